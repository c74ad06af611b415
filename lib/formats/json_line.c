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

struct line {
    struct scan scan;
    const char *field;
    bool found;
    size_t kept; /* bytes of the field's text and its 0, at the start of scan.strings */
};

/* ---- the members of the line */

static alibi_status take_text(struct line *l)
{
    struct slice text;
    size_t start;

    if (l->found)
        return scan_fail(&l->scan, "there is a second '%s'", l->field);
    if (scan_peek(&l->scan) != '"')
        return scan_fail(&l->scan, "'%s' is not a string", l->field);
    start = l->scan.at;
    TRY_RETURN(scan_slice(&l->scan, &text));
    if (memchr(text.at, 0, text.bytes) != NULL) {
        l->scan.at = start;
        return scan_fail(&l->scan, "'%s' is not text: U+0000 is in the string", l->field);
    }
    l->found = true;
    l->kept = l->scan.used;
    return ALIBI_OK;
}

static alibi_status take_member(struct line *l)
{
    struct slice key;
    bool wanted;

    TRY_RETURN(scan_slice(&l->scan, &key));
    wanted = key.bytes == strlen(l->field) && memcmp(key.at, l->field, key.bytes) == 0;
    l->scan.used = l->kept;
    TRY_RETURN(scan_expect(&l->scan, ':'));
    return wanted ? take_text(l) : scan_skip(&l->scan, NULL);
}

static alibi_status take_object(struct line *l)
{
    TRY_RETURN(scan_expect(&l->scan, '{'));
    if (scan_take(&l->scan, '}'))
        return ALIBI_OK;
    do
        TRY_RETURN(take_member(l));
    while (scan_take(&l->scan, ','));
    return scan_expect(&l->scan, '}');
}

static alibi_status take_line(struct line *l)
{
    TRY_RETURN(take_object(l));
    if (!l->found)
        return scan_fail(&l->scan, "'%s' is missing from the object that ends", l->field);
    scan_peek(&l->scan);
    return l->scan.at == l->scan.end ? ALIBI_OK
                                     : scan_fail(&l->scan, "the end of the line expected");
}

/* ---- the line as bytes */

static alibi_status check_utf8(struct slice line, const char *place)
{
    size_t valid = utf8_valid_prefix(line.at, line.bytes);

    if (valid < line.bytes)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': 0x%02x is not UTF-8 at byte %zu", place,
                    (unsigned char)line.at[valid], valid);
    return ALIBI_OK;
}

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

alibi_status json_line_field(struct text *out, struct slice line, const char *field,
                             const char *path, int64_t number)
{
    char place[PLACE_MAX];
    struct line l = { .field = field };

    snprintf(place, sizeof place, "%s:%lld", path, (long long)number);
    TRY_RETURN(check_utf8(line, place));
    TRY_RETURN(make_room(out, line.bytes));
    l.scan = (struct scan){
        .text = line.at, .end = line.bytes, .path = place, .strings = out->data + out->length
    };
    TRY_RETURN(take_line(&l));
    out->length += l.kept - 1;
    out->data[out->length] = '\0';
    return ALIBI_OK;
}
