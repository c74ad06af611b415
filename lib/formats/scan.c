/* scan.c - the tokens of RFC 8259: punctuation, whole numbers, strings */
#include "formats/scan.h"

#include <string.h>

static alibi_status fail_at(const struct scan *s, const char *expected)
{
    return fail(ALIBI_BAD_INPUT, "cannot read '%s': %s expected at byte %zu", s->path, expected, s->at);
}

/* 0 at the end, which no token begins with. */
static char current(const struct scan *s)
{
    return s->at < s->end ? s->text[s->at] : '\0';
}

static void skip_blanks(struct scan *s)
{
    for (char c = current(s); c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = current(s))
        s->at++;
}

bool scan_take(struct scan *s, char c)
{
    skip_blanks(s);
    if (current(s) != c)
        return false;
    s->at++;
    return true;
}

alibi_status scan_expect(struct scan *s, char c)
{
    const char expected[] = { '\'', c, '\'', '\0' };

    return scan_take(s, c) ? ALIBI_OK : fail_at(s, expected);
}

alibi_status scan_end(struct scan *s)
{
    skip_blanks(s);
    return s->at == s->end ? ALIBI_OK : fail_at(s, "the end of the header");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

alibi_status scan_count(struct scan *s, int64_t *out)
{
    int64_t value = 0;
    size_t start;

    skip_blanks(s);
    start = s->at;
    for (; is_digit(current(s)); s->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, current(s) - '0', &value))
            return fail_at(s, "a number of at most 63 bits");
    if (s->at == start || (s->text[start] == '0' && s->at > start + 1))
        return fail_at(s, "a whole number that is not negative");
    *out = value;
    return ALIBI_OK;
}

/* ---- strings */

static alibi_status read_hex(struct scan *s, uint32_t *out)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++, s->at++) {
        char c = current(s), lower = (char)(c | 0x20);
        if (is_digit(c))
            value = value << 4 | (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value << 4 | (uint32_t)(lower - 'a' + 10);
        else
            return fail_at(s, "four hexadecimal digits");
    }
    *out = value;
    return ALIBI_OK;
}

/* What follows \u: one code point, of two halves (surrogates) if it is beyond U+FFFF. U+0000 would end a C string. */
static alibi_status read_code_point(struct scan *s, uint32_t *out)
{
    uint32_t high = 0, low = 0;

    TRY_RETURN(read_hex(s, &high));
    if (high == 0)
        return fail_at(s, "a character other than U+0000");
    if (high < 0xD800 || high > 0xDFFF) {
        *out = high;
        return ALIBI_OK;
    }
    if (high > 0xDBFF || s->end - s->at < 2 || s->text[s->at] != '\\' || s->text[s->at + 1] != 'u')
        return fail_at(s, "a pair of surrogates");
    s->at += 2;
    TRY_RETURN(read_hex(s, &low));
    if (low < 0xDC00 || low > 0xDFFF)
        return fail_at(s, "a pair of surrogates");
    *out = 0x10000 + ((high - 0xD800) << 10 | (low - 0xDC00));
    return ALIBI_OK;
}

static void put(struct scan *s, uint32_t byte)
{
    s->strings[s->used++] = (char)byte;
}

static void put_utf8(struct scan *s, uint32_t c)
{
    if (c < 0x80) {
        put(s, c);
        return;
    }
    if (c < 0x800) {
        put(s, 0xC0 | c >> 6);
    } else if (c < 0x10000) {
        put(s, 0xE0 | c >> 12);
        put(s, 0x80 | (c >> 6 & 0x3F));
    } else {
        put(s, 0xF0 | c >> 18);
        put(s, 0x80 | (c >> 12 & 0x3F));
        put(s, 0x80 | (c >> 6 & 0x3F));
    }
    put(s, 0x80 | (c & 0x3F));
}

static alibi_status read_escape(struct scan *s)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = current(s);
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    uint32_t code_point = 0;

    if (letter == NULL && c != 'u')
        return fail_at(s, "an escape of JSON");
    s->at++;
    if (letter != NULL) {
        put(s, (uint32_t)meant[letter - letters]);
        return ALIBI_OK;
    }
    TRY_RETURN(read_code_point(s, &code_point));
    put_utf8(s, code_point);
    return ALIBI_OK;
}

alibi_status scan_string(struct scan *s, const char **string)
{
    size_t start = s->used;

    TRY_RETURN(scan_expect(s, '"'));
    while (current(s) != '"') {
        char c = current(s);
        if ((unsigned char)c < 0x20)
            return fail_at(s, "'\"' or a printable character");
        s->at++;
        if (c == '\\')
            TRY_RETURN(read_escape(s));
        else
            put(s, (unsigned char)c);
    }
    s->at++;
    put(s, '\0');
    *string = s->strings + start;
    return ALIBI_OK;
}
