/* scan.c - the tokens of JSON (RFC 8259): punctuation, words, numbers, strings; and whole values */
#include "formats/scan.h"

#include <string.h>

enum { REASON_MAX = 512 };

alibi_status scan_fail(const struct scan *s, const char *format, ...)
{
    char reason[REASON_MAX];
    size_t line = 1;
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (!s->lines)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': %s at byte %zu", s->path, reason, s->at);
    for (size_t i = 0; i < s->at; i++)
        line += s->text[i] == '\n';
    return fail(ALIBI_BAD_INPUT, "cannot read '%s': %s at byte %zu, line %zu", s->path, reason,
                s->at, line);
}

static alibi_status fail_at(const struct scan *s, const char *expected)
{
    return scan_fail(s, "%s expected", expected);
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

char scan_peek(struct scan *s)
{
    skip_blanks(s);
    return current(s);
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
    return s->at == s->end ? ALIBI_OK
                           : fail_at(s, s->lines ? "the end of the file" : "the end of the header");
}

static bool take_word(struct scan *s, const char *word)
{
    size_t length = strlen(word);

    skip_blanks(s);
    if (s->end - s->at < length || memcmp(s->text + s->at, word, length) != 0)
        return false;
    s->at += length;
    return true;
}

bool scan_take_null(struct scan *s)
{
    return take_word(s, "null");
}

alibi_status scan_bool(struct scan *s, bool *out)
{
    bool yes = take_word(s, "true");

    if (!yes && !take_word(s, "false"))
        return fail_at(s, "true or false");
    *out = yes;
    return ALIBI_OK;
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
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, current(s) - '0', &value))
            return fail_at(s, "a number of at most 63 bits");
    if (s->at == start || (s->text[start] == '0' && s->at > start + 1))
        return fail_at(s, "a whole number that is not negative");
    *out = value;
    return ALIBI_OK;
}

static alibi_status skip_digits(struct scan *s)
{
    if (!is_digit(current(s)))
        return fail_at(s, "a digit");
    while (is_digit(current(s)))
        s->at++;
    return ALIBI_OK;
}

/* Any number, with sign, fraction and exponent. */
static alibi_status skip_number(struct scan *s)
{
    s->at += current(s) == '-';
    if (current(s) == '0')
        s->at++;
    else
        TRY_RETURN(skip_digits(s));
    if (current(s) == '.') {
        s->at++;
        TRY_RETURN(skip_digits(s));
    }
    if (current(s) == 'e' || current(s) == 'E') {
        s->at++;
        s->at += current(s) == '-' || current(s) == '+';
        TRY_RETURN(skip_digits(s));
    }
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

/* The escape after a backslash. A code point beyond U+FFFF is a pair of surrogates. */
static alibi_status read_escape(struct scan *s)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = current(s);
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    uint32_t code = 0, low = 0;

    if (letter == NULL && c != 'u')
        return fail_at(s, "an escape of JSON");
    s->at++;
    if (letter != NULL) {
        s->strings[s->used++] = meant[letter - letters];
        return ALIBI_OK;
    }
    TRY_RETURN(read_hex(s, &code));
    if (code >= 0xD800 && code <= 0xDFFF) {
        if (code > 0xDBFF || s->end - s->at < 2 || memcmp(s->text + s->at, "\\u", 2) != 0)
            return fail_at(s, "a pair of surrogates");
        s->at += 2;
        TRY_RETURN(read_hex(s, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return fail_at(s, "a pair of surrogates");
        code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
    }
    s->used += utf8_put(s->strings + s->used, code);
    return ALIBI_OK;
}

/* Takes literal bytes: all except the quote, the backslash and control characters. */
static void take_plain(struct scan *s)
{
    size_t start = s->at, at = start;

    while (at < s->end && (unsigned char)s->text[at] >= 0x20 && s->text[at] != '"' &&
           s->text[at] != '\\')
        at++;
    memcpy(s->strings + s->used, s->text + start, at - start);
    s->used += at - start;
    s->at = at;
}

alibi_status scan_slice(struct scan *s, struct slice *string)
{
    size_t start = s->used;

    TRY_RETURN(scan_expect(s, '"'));
    for (take_plain(s); current(s) == '\\'; take_plain(s)) {
        s->at++;
        TRY_RETURN(read_escape(s));
    }
    if (current(s) != '"')
        return fail_at(s, "'\"' or a printable character");
    s->at++;
    *string = (struct slice){ s->strings + start, s->used - start };
    s->strings[s->used++] = '\0';
    return ALIBI_OK;
}

/* U+0000 would end a C string. */
alibi_status scan_string(struct scan *s, const char **string)
{
    struct slice slice;

    TRY_RETURN(scan_slice(s, &slice));
    if (strlen(slice.at) != slice.bytes)
        return fail_at(s, "a string of characters other than U+0000");
    *string = slice.at;
    return ALIBI_OK;
}

/* ---- values */

static alibi_status skip_string(struct scan *s)
{
    struct slice string;
    size_t before = s->used;

    TRY_RETURN(scan_slice(s, &string));
    s->used = before;
    return ALIBI_OK;
}

static alibi_status skip_key(struct scan *s)
{
    TRY_RETURN(skip_string(s));
    return scan_expect(s, ':');
}

/* Not recursive: a hostile file cannot exhaust the stack. */
alibi_status scan_skip(struct scan *s, int64_t *items)
{
    char close[SCAN_DEPTH_MAX]; /* of the lists and objects that are open: the bracket at its end */
    int depth = 0;
    int64_t outermost = 0;

    do {
        char open = scan_peek(s), end = open == '{' ? '}' : ']';
        bool inside = false; /* a value follows within this one */

        if (open == '"') {
            TRY_RETURN(skip_string(s));
        } else if (open == '-' || is_digit(open)) {
            TRY_RETURN(skip_number(s));
        } else if (open == '{' || open == '[') {
            if (depth == SCAN_DEPTH_MAX)
                return scan_fail(s, "more than %d levels of lists and objects", SCAN_DEPTH_MAX);
            s->at++;
            inside = !scan_take(s, end);
            if (inside)
                close[depth++] = end;
            if (inside && open == '{')
                TRY_RETURN(skip_key(s));
        } else if (!take_word(s, "true") && !take_word(s, "false") && !take_word(s, "null")) {
            return fail_at(s, "a value");
        }
        /* Advances to the next value, and leaves the lists and objects that end before it. */
        while (!inside && depth > 0) {
            outermost += depth == 1;
            inside = scan_take(s, ',');
            if (!inside)
                TRY_RETURN(scan_expect(s, close[--depth]));
            else if (close[depth - 1] == '}')
                TRY_RETURN(skip_key(s));
        }
    } while (depth > 0);
    if (items != NULL)
        *items = outermost;
    return ALIBI_OK;
}

/* ---- objects */

static alibi_status note_member(struct scan *s, const char *what, struct scan_member *members,
                                int count, bool others)
{
    size_t before = s->used, start;
    struct slice key;
    struct scan_member *m = NULL;

    scan_peek(s);
    start = s->at;
    TRY_RETURN(scan_slice(s, &key));
    for (int i = 0; i < count; i++)
        if (strlen(members[i].key) == key.bytes && memcmp(members[i].key, key.at, key.bytes) == 0)
            m = &members[i];
    if (m == NULL && !others) {
        s->at = start;
        return scan_fail(s, "%s has the unknown key '%.*s'", what,
                         (int)(key.bytes < 80 ? key.bytes : 80), key.at);
    }
    s->used = before;
    if (m != NULL && m->at != 0) {
        s->at = start;
        return scan_fail(s, "%s has '%s' twice", what, m->key);
    }
    TRY_RETURN(scan_expect(s, ':'));
    scan_peek(s);
    if (m != NULL)
        m->at = s->at;
    return scan_skip(s, NULL);
}

/* `others`: other keys may be there too. */
static alibi_status note_members(struct scan *s, const char *what, struct scan_member *members,
                                 int count, bool others)
{
    for (int i = 0; i < count; i++)
        members[i].at = 0;
    TRY_RETURN(scan_expect(s, '{'));
    if (!scan_take(s, '}')) {
        do
            TRY_RETURN(note_member(s, what, members, count, others));
        while (scan_take(s, ','));
        TRY_RETURN(scan_expect(s, '}'));
    }
    for (int i = 0; i < count; i++)
        if (members[i].needed && members[i].at == 0)
            return scan_fail(s, "%s lacks '%s'; it ends", what, members[i].key);
    return ALIBI_OK;
}

alibi_status scan_object(struct scan *s, const char *what, struct scan_member *members, int count)
{
    return note_members(s, what, members, count, false);
}

alibi_status scan_find(struct scan *s, const char *what, struct scan_member *member)
{
    return note_members(s, what, member, 1, true);
}
