/* json_line.c - the text in one member of a line of JSON
 *
 *   { KEY: VALUE, FIELD: "the text", KEY: VALUE }
 *
 * The whole line is checked in one pass. The field is decoded at the end of the caller's text.
 * Other strings are decoded after it, each over the one before. */
#include <string.h>

#include "formats/formats.h"
#include "formats/scan.h"

enum { PLACE_MAX = 1024 };

/* Room for all strings of the line and a 0 after `out`. */
static alibi_status make_room(struct text *out, size_t more)
{
    size_t need, capacity;

    if (!size_add(&need, out->length, more) || !size_add(&need, need, 1) ||
        !size_multiply(&capacity, out->capacity, 2))
        return fail(ALIBI_MEMORY, "not enough memory for a line of %zu bytes", more);
    if (need <= out->capacity)
        return ALIBI_OK;
    capacity = capacity > need ? capacity : need;
    TRY_RETURN(mem_grow((void **)&out->data, out->length, capacity, "a line of JSON"));
    out->capacity = capacity;
    return ALIBI_OK;
}

/* A member of the object. *kept: the bytes of the field's text and its 0, at the start of
 * s->strings; 0 until it is found. */
static alibi_status take_member(struct scan *s, const char *field, size_t *kept)
{
    struct slice key, text;
    bool wanted;
    size_t start;

    TRY_RETURN(scan_slice(s, &key));
    wanted = key.bytes == strlen(field) && memcmp(key.at, field, key.bytes) == 0;
    s->used = *kept;
    TRY_RETURN(scan_expect(s, ':'));
    if (!wanted)
        return scan_skip(s, NULL);
    if (*kept > 0)
        return scan_fail(s, "there is a second '%s'", field);
    if (scan_peek(s) != '"')
        return scan_fail(s, "'%s' is not a string", field);
    start = s->at;
    TRY_RETURN(scan_slice(s, &text));
    if (memchr(text.at, 0, text.bytes) != NULL) {
        s->at = start;
        return scan_fail(s, "'%s' is not text: U+0000 is in the string", field);
    }
    *kept = s->used;
    return ALIBI_OK;
}

alibi_status json_line_field(struct text *out, struct slice line, const char *field,
                             const char *path, int64_t number)
{
    char place[PLACE_MAX];
    struct scan scan;
    size_t valid = utf8_valid_prefix(line.at, line.bytes), kept = 0;

    snprintf(place, sizeof place, "%s:%lld", path, (long long)number);
    if (valid < line.bytes)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': 0x%02x is not UTF-8 at byte %zu", place,
                    (unsigned char)line.at[valid], valid);
    TRY_RETURN(make_room(out, line.bytes));
    scan = (struct scan){
        .text = line.at, .end = line.bytes, .path = place, .strings = out->data + out->length
    };
    TRY_RETURN(scan_expect(&scan, '{'));
    if (!scan_take(&scan, '}')) {
        do
            TRY_RETURN(take_member(&scan, field, &kept));
        while (scan_take(&scan, ','));
        TRY_RETURN(scan_expect(&scan, '}'));
    }
    if (kept == 0)
        return scan_fail(&scan, "'%s' is missing from the object that ends", field);
    scan_peek(&scan);
    if (scan.at != scan.end)
        return scan_fail(&scan, "the end of the line expected");
    out->length += kept - 1;
    out->data[out->length] = '\0';
    return ALIBI_OK;
}
