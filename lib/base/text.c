/* text.c - texts that grow, and what counts as text
 *
 * Numbers are formatted in the C locale whatever the program has set, so that the same values give
 * the same bytes anywhere. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

alibi_status text_copy(char **out, const char *text)
{
    size_t bytes = strlen(text) + 1;

    TRY_RETURN(NEW_ARRAY(out, (int64_t)bytes, "a text"));
    memcpy(*out, text, bytes);
    return ALIBI_OK;
}

/* Makes room for `more` bytes and the terminating 0; false if the text has failed. The capacity
 * doubles, so that appending n bytes copies O(n). */
static bool reserve(struct text *t, size_t more)
{
    size_t need, capacity = t->capacity > 0 ? t->capacity : 128;

    if (t->status != ALIBI_OK)
        return false;
    if (!size_add(&need, t->length, more) || !size_add(&need, need, 1)) {
        t->status = ALIBI_MEMORY;
        return false;
    }
    if (need <= t->capacity)
        return true;
    while (capacity < need)
        if (!size_multiply(&capacity, capacity, 2))
            capacity = need;
    t->status = mem_grow((void **)&t->data, t->length, capacity, "a text");
    if (t->status == ALIBI_OK)
        t->capacity = capacity;
    return t->status == ALIBI_OK;
}

void text_append_bytes(struct text *t, const void *bytes, size_t length)
{
    if (!reserve(t, length))
        return;
    if (length > 0)
        memcpy(t->data + t->length, bytes, length);
    t->length += length;
    t->data[t->length] = '\0';
}

int text_format(char *out, size_t size, const char *format, va_list args)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(plain);
    int length = vsnprintf(out, size, format, args);

    uselocale(before);
    freelocale(plain);
    return length;
}

int text_print(char *out, size_t size, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = text_format(out, size, format, args);
    va_end(args);
    return length;
}

double text_real(const char *text)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = strtod_l(text, NULL, plain);

    freelocale(plain);
    return value;
}

void text_append(struct text *t, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = text_format(NULL, 0, format, args);
    va_end(args);
    if (length < 0 && t->status == ALIBI_OK)
        t->status = ALIBI_MEMORY; /* longer than an int can count */
    if (!reserve(t, length > 0 ? (size_t)length : 0))
        return;
    va_start(args, format);
    text_format(t->data + t->length, (size_t)length + 1, format, args);
    va_end(args);
    t->length += (size_t)length;
}

alibi_status text_status(const struct text *t)
{
    if (t->status != ALIBI_MEMORY)
        return t->status; /* its message is the last one of this thread */
    return fail(t->status, "not enough memory for a text of more than %zu bytes", t->length);
}

void text_free(struct text *t)
{
    mem_free(t->data);
    *t = (struct text){ 0 };
}

alibi_status text_give(struct text *t, alibi_status status, char **out)
{
    if (status == ALIBI_OK)
        *out = t->data;
    else
        text_free(t);
    return status;
}

void alibi_text_free(char *text)
{
    mem_free(text);
}

/* ---- UTF-8 */

static bool within(unsigned char byte, unsigned char low, unsigned char high)
{
    return byte >= low && byte <= high;
}

/* Bytes of the valid character at the front, 0 if there is none. RFC 3629, section 4: besides the
 * form of lead and continuation bytes, the second byte has a narrower range after E0 (overlong
 * forms), ED (surrogates), F0 (overlong forms) and F4 (beyond U+10FFFF). */
static size_t valid_character(const unsigned char *bytes, size_t length)
{
    unsigned char lead = bytes[0], low = 0x80, high = 0xBF;
    size_t need = 0;

    if (lead < 0x80) {
        need = 1;
    } else if (within(lead, 0xC2, 0xDF)) {
        need = 2;
    } else if (within(lead, 0xE0, 0xEF)) {
        need = 3;
        low = lead == 0xE0 ? 0xA0 : low;
        high = lead == 0xED ? 0x9F : high;
    } else if (within(lead, 0xF0, 0xF4)) {
        need = 4;
        low = lead == 0xF0 ? 0x90 : low;
        high = lead == 0xF4 ? 0x8F : high;
    }
    if (need > length || (need > 1 && !within(bytes[1], low, high)))
        return 0;
    for (size_t i = 2; i < need; i++)
        if (!within(bytes[i], 0x80, 0xBF))
            return 0;
    return need;
}

size_t utf8_valid_prefix(const char *bytes, size_t length)
{
    const unsigned char *p = (const unsigned char *)bytes;
    size_t at = 0, step;
    uint64_t eight;

    while (at < length) {
        /* Most text is ASCII for long stretches: eight bytes at a time while no high bit is set. */
        for (; length - at >= sizeof eight; at += sizeof eight) {
            memcpy(&eight, p + at, sizeof eight);
            if ((eight & 0x8080808080808080u) != 0)
                break;
        }
        step = at < length ? valid_character(p + at, length - at) : 0;
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

size_t utf8_put(char *out, uint32_t code)
{
    size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (size_t i = count; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(count == 1 ? code : (0xF00u >> count & 0xFF) | code);
    return count;
}

void line_clean(char *line)
{
    unsigned char *p = (unsigned char *)line;
    size_t length = strlen(line);

    for (size_t at = 0; at < length;) {
        size_t step = valid_character(p + at, length - at);
        /* C0 controls and DEL; C1 controls are U+0080..U+009F, C2 80..C2 9F. */
        bool control = (step == 1 && (p[at] < 0x20 || p[at] == 0x7F)) ||
                       (step == 2 && p[at] == 0xC2 && p[at + 1] < 0xA0);

        if (step == 0 || control)
            memset(p + at, '?', step > 0 ? step : 1);
        at += step > 0 ? step : 1;
    }
}

bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}
