/* input.c - reading a file, and the one place where text is told from what is not */
#include "text/input.h"

#include <string.h>

enum { LONGEST_CHARACTER = 4 };

alibi_status input_open(struct input *in, const char *path, const struct alibi_call *call)
{
    if (in->bytes == NULL)
        TRY_RETURN(NEW_ARRAY(&in->bytes, INPUT_BYTES, "a block of a file"));
    TRY_RETURN(unpack_open(&in->unpack, path, call));
    in->name = strcmp(path, "-") == 0 ? "standard input" : path;
    in->at = in->checked = in->end = 0;
    in->offset = 0;
    in->line = 1;
    in->ended = false;
    return ALIBI_OK;
}

void input_close(struct input *in)
{
    unpack_close(in->unpack);
    in->unpack = NULL;
}

void input_fini(struct input *in)
{
    input_close(in);
    mem_free(in->bytes);
    *in = (struct input){ 0 };
}

bool input_was_empty(const struct input *in)
{
    return in->offset == 0 && in->end == 0;
}

static int64_t count_lines(const char *bytes, size_t length)
{
    const char *end = bytes + length;
    int64_t lines = 0;

    while ((bytes = memchr(bytes, '\n', (size_t)(end - bytes))) != NULL) {
        bytes++;
        lines++;
    }
    return lines;
}

static alibi_status refuse_zero(const struct input *in, size_t at)
{
    return fail(ALIBI_BAD_INPUT, "'%s' is not text: byte 0 at offset %lld", in->name,
                (long long)in->offset + (long long)at);
}

static alibi_status refuse_byte(const struct input *in, size_t at)
{
    return fail(ALIBI_BAD_INPUT, "'%s' is not UTF-8: byte 0x%02x at offset %lld (line %lld)",
                in->name, (unsigned char)in->bytes[at], (long long)in->offset + (long long)at,
                (long long)(in->line + count_lines(in->bytes + in->checked, at - in->checked)));
}

/* Fewer bytes than a character may have can be the start of one, unless nothing more comes. */
static alibi_status check(struct input *in)
{
    const char *fresh = in->bytes + in->checked;
    size_t length = in->end - in->checked, valid = utf8_valid_prefix(fresh, length);
    const char *zero = memchr(fresh, 0, valid);

    if (zero != NULL)
        return refuse_zero(in, (size_t)(zero - in->bytes));
    if (valid < length && (in->ended || length - valid >= LONGEST_CHARACTER))
        return refuse_byte(in, in->checked + valid);
    in->line += count_lines(fresh, valid);
    in->checked += valid;
    return ALIBI_OK;
}

static void drop_what_is_done(struct input *in)
{
    size_t done = in->at;

    memmove(in->bytes, in->bytes + done, in->end - done);
    in->at = 0;
    in->checked -= done;
    in->end -= done;
    in->offset += (int64_t)done;
}

alibi_status input_fill(struct input *in)
{
    size_t got = 0, room;

    drop_what_is_done(in);
    room = INPUT_BYTES - in->end;
    TRY_RETURN(unpack_read(in->unpack, in->bytes + in->end, room, &got));
    in->end += got;
    in->ended = got < room;
    return check(in);
}
