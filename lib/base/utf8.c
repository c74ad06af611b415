/* utf8.c - what counts as text
 *
 * RFC 3629, section 4: besides the form of lead and continuation bytes, the second byte has a
 * narrower range after E0 (overlong forms), ED (surrogates), F0 (overlong forms) and F4 (beyond
 * U+10FFFF). */
#include <string.h>

#include "base/base.h"

static bool within(unsigned char byte, unsigned char low, unsigned char high)
{
    return byte >= low && byte <= high;
}

/* Bytes of a character that starts with `lead`, and the range of its second byte; 0: no character
 * starts with it. */
static size_t character_bytes(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80)
        return 1;
    if (within(lead, 0xC2, 0xDF))
        return 2;
    if (within(lead, 0xE0, 0xEF)) {
        *low = lead == 0xE0 ? 0xA0 : 0x80;
        *high = lead == 0xED ? 0x9F : 0xBF;
        return 3;
    }
    if (within(lead, 0xF0, 0xF4)) {
        *low = lead == 0xF0 ? 0x90 : 0x80;
        *high = lead == 0xF4 ? 0x8F : 0xBF;
        return 4;
    }
    return 0;
}

/* Bytes of the valid character at the front, 0 if there is none. */
static size_t valid_character(const unsigned char *bytes, size_t length)
{
    unsigned char low, high;
    size_t need = character_bytes(bytes[0], &low, &high);

    if (need == 0 || need > length)
        return 0;
    if (need > 1 && !within(bytes[1], low, high))
        return 0;
    for (size_t i = 2; i < need; i++)
        if (!within(bytes[i], 0x80, 0xBF))
            return 0;
    return need;
}

/* Most text is ASCII for long stretches: skips eight bytes at a time if no high bit is set. */
static size_t skip_ascii(const unsigned char *p, size_t at, size_t length)
{
    uint64_t eight;

    for (; length - at >= sizeof eight; at += sizeof eight) {
        memcpy(&eight, p + at, sizeof eight);
        if ((eight & 0x8080808080808080u) != 0)
            break;
    }
    return at;
}

size_t utf8_valid_prefix(const char *bytes, size_t length)
{
    const unsigned char *p = (const unsigned char *)bytes;
    size_t at = 0;

    while ((at = skip_ascii(p, at, length)) < length) {
        size_t step = valid_character(p + at, length - at);
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

/* C0 controls and DEL; C1 controls are U+0080..U+009F, C2 80..C2 9F. */
static bool is_control(const unsigned char *character, size_t bytes)
{
    if (bytes == 1)
        return character[0] < 0x20 || character[0] == 0x7F;
    return bytes == 2 && character[0] == 0xC2 && character[1] < 0xA0;
}

void line_clean(char *line)
{
    unsigned char *p = (unsigned char *)line;
    size_t length = strlen(line);

    for (size_t at = 0; at < length;) {
        size_t step = valid_character(p + at, length - at);
        size_t bytes = step > 0 ? step : 1;
        if (step == 0 || is_control(p + at, step))
            memset(p + at, '?', bytes);
        at += bytes;
    }
}
