/* pattern_translate.c - regular expressions from Oniguruma's spelling to PCRE2's
 *
 * Tokenizer files hold expressions as Ruby spells them. Most of it means the same in both; what
 * does not is said in other words:
 *
 *   \s \S      Unicode's White_Space and the rest, as ranges: PCRE2 counts U+180E too
 *   \d         \p{Nd}
 *   \p{Han}    \p{sc:Han}: PCRE2 would take the characters that are used with the script as well
 *   [a[bc]]    a nested class is a union: its brackets are left out
 *   (..)       (?:..): nothing refers back
 *   .          [^\n]
 *
 * Every literal becomes \x{..}, so no character can be taken for syntax. The list of what is
 * accepted is closed: the rest is refused by name, as is what reads the same and means something
 * else: {m,n}+ repeats the repetition in Ruby, (?i) within a group reaches over the next "|", and a
 * caseless "ss" matches U+00DF. */
#include <string.h>

#include "text/pattern.h"

#define WHITE_SPACE                                                                                \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NOT_WHITE_SPACE                                                                                                \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}" \
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"

enum { GROUPS_MAX = 64, CLASSES_MAX = 16, REPEAT_MAX = 10000, NAME_MAX_BYTES = 40 };

struct group {
    size_t start; /* its first byte */
    bool caseless;
    bool looks; /* a lookahead, which cannot be repeated */
};

struct translation {
    const char *pattern, *path;
    size_t at;
    struct text *out;
    struct group groups[GROUPS_MAX]; /* [0] is the whole */
    int depth;
    bool repeatable;   /* what came last may be followed by a quantifier */
    uint32_t previous; /* the literal that came last, 0 if it was something else */
    struct pattern_cost cost;
};

/* ---- messages */

static alibi_status refuse(const struct translation *t, size_t at, size_t bytes, const char *why)
{
    return fail(ALIBI_BAD_INPUT, "'%s': byte %zu of the pattern '%.80s': '%.*s' %s", t->path, at,
                t->pattern, (int)bytes, t->pattern + at, why);
}

static alibi_status refuse_end(const struct translation *t, const char *what)
{
    return fail(ALIBI_BAD_INPUT, "'%s': the pattern '%.80s' ends within %s", t->path, t->pattern,
                what);
}

/* ---- characters */

static char peek(const struct translation *t, size_t ahead)
{
    for (size_t i = 0; i < ahead; i++)
        if (t->pattern[t->at + i] == '\0')
            return '\0';
    return t->pattern[t->at + ahead];
}

static bool comes(const struct translation *t, const char *text)
{
    return strncmp(t->pattern + t->at, text, strlen(text)) == 0;
}

static bool take(struct translation *t, const char *text)
{
    bool found = comes(t, text);

    t->at += found ? strlen(text) : 0;
    return found;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t character_bytes(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The pattern is known to be UTF-8. */
static uint32_t take_character(struct translation *t)
{
    unsigned char lead = (unsigned char)t->pattern[t->at];
    size_t bytes = character_bytes(lead);
    uint32_t code = bytes == 1 ? lead : lead & (0x7Fu >> bytes);

    for (size_t i = 1; i < bytes; i++)
        code = (code << 6) | ((unsigned char)t->pattern[t->at + i] & 0x3Fu);
    t->at += bytes;
    return code;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Up to `most` hexadecimal digits; returns how many there were. */
static int take_hex(struct translation *t, int most, uint32_t *code)
{
    int digits = 0;

    for (*code = 0; digits < most && hex_value(t->pattern[t->at]) >= 0; digits++)
        *code = *code * 16 + (uint32_t)hex_value(t->pattern[t->at++]);
    return digits;
}

/* ---- escapes */

/* \uXXXX, \xXX, \x{X..}; t->at is behind the letter. */
static alibi_status numbered_character(struct translation *t, uint32_t *code)
{
    size_t start = t->at - 2;
    bool fixed = t->pattern[t->at - 1] == 'u', braces = !fixed && take(t, "{");
    int digits = take_hex(t, fixed ? 4 : braces ? 6 : 2, code);

    if (digits == 0 || (fixed && digits != 4) || (braces && !take(t, "}")))
        return refuse(t, start, t->at - start, "is not the number of a character");
    if (!fixed && !braces && *code > 0x7F)
        return refuse(t, start, t->at - start,
                      "is a byte within a character, which patterns cannot ask for");
    if (*code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF))
        return refuse(t, start, t->at - start, "is not a character");
    return ALIBI_OK;
}

/* A backslash and what it makes a single character of; t->at is at the backslash. */
static alibi_status escaped_character(struct translation *t, uint32_t *code)
{
    static const char letters[] = "rntfvae", codes[] = "\r\n\t\f\v\a\x1B";
    char c = peek(t, 1);
    const char *known = c != '\0' ? strchr(letters, c) : NULL;

    if (c == '\0')
        return refuse_end(t, "an escape");
    t->at += 2;
    if (c == 'u' || c == 'x')
        return numbered_character(t, code);
    if (known != NULL) {
        *code = (uint32_t)codes[known - letters];
        return ALIBI_OK;
    }
    if (is_letter(c) || is_digit(c))
        return refuse(t, t->at - 2, 2, "is not supported");
    t->at -= 1;
    *code = take_character(t);
    return ALIBI_OK;
}

static bool is_category(const char *name, size_t bytes)
{
    static const char *const categories[] = { "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn",
                                              "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc",
                                              "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
                                              "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",
                                              "Cc", "Cf", "Cn", "Co", "Cs" };

    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strlen(categories[i]) == bytes && memcmp(categories[i], name, bytes) == 0)
            return true;
    return false;
}

/* \p{..} or \P{..}: a general category, or a script. */
static alibi_status property(struct translation *t)
{
    size_t start = t->at, name = start + 3, bytes = 0;
    char letter = peek(t, 1);

    if (peek(t, 2) != '{')
        return refuse(t, start, 2, "needs a name in braces");
    while (is_letter(t->pattern[name + bytes]) || t->pattern[name + bytes] == '_')
        bytes++;
    if (bytes == 0 || bytes > NAME_MAX_BYTES || t->pattern[name + bytes] != '}')
        return refuse(t, start, 3 + bytes, "is not a general category or a script");
    t->at = name + bytes + 1;
    if (!is_category(t->pattern + name, bytes))
        return text_append(t->out, "\\%c{sc:%.*s}", letter, (int)bytes, t->pattern + name);
    if (t->groups[t->depth].caseless && bytes == 2 &&
        memchr("ult", t->pattern[name + 1], 3) != NULL && t->pattern[name] == 'L')
        return refuse(t, start, t->at - start, "within (?i) is not supported");
    return text_append(t->out, "\\%c{%.*s}", letter, (int)bytes, t->pattern + name);
}

/* \s \S \d \D \p \P, as they stand within a class. *yes: it was one of them. */
static alibi_status escaped_class(struct translation *t, bool *yes)
{
    char c = peek(t, 1);

    *yes = c != '\0' && strchr("sSdDpP", c) != NULL;
    if (!*yes)
        return ALIBI_OK;
    if (c == 'p' || c == 'P')
        return property(t);
    t->at += 2;
    if (c == 's' || c == 'S')
        return text_append(t->out, "%s", c == 's' ? WHITE_SPACE : NOT_WHITE_SPACE);
    return text_append(t->out, "\\%c{Nd}", c == 'd' ? 'p' : 'P');
}

/* ---- literals */

/* Pairs that one character stands for when case is ignored: U+00DF, U+FB00 and their like. Other
 * languages have more. */
static bool folds_together(uint32_t a, uint32_t b)
{
    static const char pairs[][3] = { "ss", "ff", "fi", "fl", "st" };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((a | 0x20) == (uint32_t)pairs[i][0] && (b | 0x20) == (uint32_t)pairs[i][1])
            return true;
    return false;
}

static alibi_status put_literal(struct translation *t, uint32_t code, size_t start)
{
    if (t->groups[t->depth].caseless && (code > 0x7F || folds_together(t->previous, code)))
        return refuse(
            t, start, t->at - start,
            "within (?i) is not supported: one letter in one case is several in the other");
    pattern_cost_item(&t->cost, start);
    t->previous = code;
    t->repeatable = true;
    return text_append(t->out, "\\x{%X}", (unsigned)code);
}

/* ---- classes */

/* One character of a class, or the start of a range. */
static alibi_status class_character(struct translation *t, uint32_t *code)
{
    if (peek(t, 0) == '\0')
        return refuse_end(t, "a class");
    if (peek(t, 0) == '\\')
        return escaped_character(t, code);
    *code = take_character(t);
    return ALIBI_OK;
}

/* A hyphen is a range unless it ends the class. */
static alibi_status class_range(struct translation *t)
{
    size_t start = t->at;
    uint32_t low, high;

    TRY_RETURN(class_character(t, &low));
    high = low;
    if (peek(t, 0) == '-' && peek(t, 1) != ']') {
        t->at++;
        if (peek(t, 0) == '[' ||
            (peek(t, 0) == '\\' && peek(t, 1) != '\0' && strchr("sSdDpP", peek(t, 1)) != NULL))
            return refuse(t, start, t->at - start, "is a range that does not end with a character");
        TRY_RETURN(class_character(t, &high));
    }
    if (high < low)
        return refuse(t, start, t->at - start, "is a range that runs backwards");
    if (t->groups[t->depth].caseless && high > 0x7F)
        return refuse(t, start, t->at - start, "within (?i) is not supported");
    return text_append(t->out, "\\x{%X}-\\x{%X}", (unsigned)low, (unsigned)high);
}

/* "[" within a class. */
static alibi_status class_nested(struct translation *t, int *open)
{
    if (comes(t, "[:"))
        return refuse(t, t->at, 2, "is not supported: classes have no names");
    if (comes(t, "[^"))
        return refuse(t, t->at, 2, "within a class is not supported");
    if (++*open > CLASSES_MAX)
        return refuse(t, t->at, 1, "is nested too deeply");
    t->at++;
    if (peek(t, 0) == ']')
        return refuse(t, t->at - 1, 2, "is an empty class");
    return ALIBI_OK;
}

static alibi_status class_item(struct translation *t, int *open)
{
    bool done = false;

    if (peek(t, 0) == '\0')
        return refuse_end(t, "a class");
    if (comes(t, "&&"))
        return refuse(t, t->at, 2, "within a class is not supported");
    if (peek(t, 0) == '[')
        return class_nested(t, open);
    if (take(t, "]")) {
        --*open;
        return ALIBI_OK;
    }
    if (peek(t, 0) == '\\')
        TRY_RETURN(escaped_class(t, &done));
    return done ? ALIBI_OK : class_range(t);
}

static alibi_status class_whole(struct translation *t)
{
    size_t start = t->at++;
    int open = 1;
    bool negated = take(t, "^");

    TRY_RETURN(text_append(t->out, negated ? "[^" : "["));
    if (peek(t, 0) == ']')
        return refuse(t, start, t->at + 1 - start, "is an empty class");
    while (open > 0)
        TRY_RETURN(class_item(t, &open));
    pattern_cost_item(&t->cost, start);
    t->repeatable = true;
    t->previous = 0;
    return text_append(t->out, "]");
}

/* ---- groups */

/* The ways a group may open, and what PCRE2 calls them. */
static const struct {
    const char *open, *as;
    bool caseless, looks;
} openings[] = {
    { "(?:", "(?:", false, false }, { "(?i:", "(?i:", true, false }, { "(?=", "(?=", false, true },
    { "(?!", "(?!", false, true },  { "(?>", "(?>", false, false },
};

static alibi_status open_group(struct translation *t)
{
    size_t start = t->at, i = 0, count = sizeof openings / sizeof *openings;
    struct group g = { .start = start, .caseless = t->groups[t->depth].caseless };
    const char *as = "(?:";

    if (t->at == 0 && take(t, "(?i)")) {
        t->groups[0].caseless = true;
        return text_append(t->out, "(?i)");
    }
    while (i < count && !take(t, openings[i].open))
        i++;
    if (i == count && (comes(t, "(?") || comes(t, "(*")))
        return refuse(t, start, comes(t, "(?<") ? 4 : 3, "is not supported");
    if (i < count) {
        as = openings[i].as;
        g.caseless = g.caseless || openings[i].caseless;
        g.looks = openings[i].looks;
    } else
        t->at++;
    if (t->depth + 1 == GROUPS_MAX)
        return refuse(t, start, 1, "is nested too deeply");
    t->groups[++t->depth] = g;
    t->repeatable = false;
    t->previous = 0;
    return text_append(t->out, "%s", as);
}

static alibi_status close_group(struct translation *t)
{
    if (t->depth == 0)
        return refuse(t, t->at, 1, "closes no group");
    t->at++;
    pattern_cost_item(&t->cost, t->groups[t->depth].start);
    t->repeatable = !t->groups[t->depth--].looks;
    t->previous = 0;
    return text_append(t->out, ")");
}

/* ---- quantifiers */

static bool repeats_group(const struct translation *t)
{
    return t->pattern[t->cost.item] == '(';
}

static int take_number(struct translation *t)
{
    int value = -1;

    for (; is_digit(t->pattern[t->at]) && value < REPEAT_MAX; t->at++)
        value = (value < 0 ? 0 : value * 10) + (t->pattern[t->at] - '0');
    return value;
}

/* {n}, {n,}, {,m}, {n,m} */
static alibi_status interval(struct translation *t, bool *fixed)
{
    size_t start = t->at++;
    int low = take_number(t), high;

    *fixed = !take(t, ",");
    high = *fixed ? low : take_number(t);
    if (!take(t, "}") || (low < 0 && high < 0) || low >= REPEAT_MAX || high >= REPEAT_MAX ||
        (high >= 0 && high < low))
        return refuse(t, start, t->at - start > 0 ? t->at - start : 1,
                      "is not a repetition (a brace itself is written \\{)");
    low = low < 0 ? 0 : low;
    pattern_cost_repeat(&t->cost, repeats_group(t), low, high);
    if (high < 0)
        return text_append(t->out, "{%d,}", low);
    return text_append(t->out, "{%d,%d}", low, high);
}

static alibi_status quantifier(struct translation *t)
{
    size_t start = t->at;
    bool braces = peek(t, 0) == '{', fixed = false;

    if (!t->repeatable)
        return refuse(
            t, start, 1,
            "repeats nothing that can be repeated (itself it is written with a backslash)");
    if (braces)
        TRY_RETURN(interval(t, &fixed));
    else {
        pattern_cost_repeat(&t->cost, repeats_group(t), peek(t, 0) == '+',
                            peek(t, 0) == '?' ? 1 : -1);
        TRY_RETURN(text_append(t->out, "%c", t->pattern[t->at++]));
    }
    if ((braces && peek(t, 0) == '+') || (fixed && peek(t, 0) == '?'))
        return refuse(t, start, t->at + 1 - start,
                      "is not supported: it means different things to different readers");
    if (peek(t, 0) == '?' || peek(t, 0) == '+')
        TRY_RETURN(text_append(t->out, "%c", t->pattern[t->at++]));
    t->repeatable = false;
    t->previous = 0;
    return ALIBI_OK;
}

/* ---- the whole */

static alibi_status alternative(struct translation *t)
{
    if (t->depth == 0) /* within a group, alternatives count as if they followed each other */
        pattern_cost_alternative(&t->cost);
    t->at++;
    t->repeatable = false;
    t->previous = 0;
    return text_append(t->out, "|");
}

static alibi_status any_character(struct translation *t)
{
    pattern_cost_item(&t->cost, t->at++);
    t->repeatable = true;
    t->previous = 0;
    return text_append(t->out, "[^\\x{A}]");
}

static alibi_status escape(struct translation *t)
{
    size_t start = t->at;
    bool done = false;
    uint32_t code;

    if (peek(t, 1) != '\0' && strchr("sSdDpP", peek(t, 1)) != NULL) {
        TRY_RETURN(text_append(t->out, "["));
        TRY_RETURN(escaped_class(t, &done));
        pattern_cost_item(&t->cost, start);
        t->repeatable = true;
        t->previous = 0;
        return text_append(t->out, "]");
    }
    TRY_RETURN(escaped_character(t, &code));
    return put_literal(t, code, start);
}

static alibi_status item(struct translation *t)
{
    size_t start = t->at;

    switch (t->pattern[t->at]) {
    case '\\':
        return escape(t);
    case '[':
        return class_whole(t);
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '|':
        return alternative(t);
    case '.':
        return any_character(t);
    case '*':
    case '+':
    case '?':
    case '{':
        return quantifier(t);
    case '^':
    case '$':
        return refuse(t, start, 1, "is not supported (itself it is written with a backslash)");
    default:
        return put_literal(t, take_character(t), start);
    }
}

alibi_status pattern_translate(struct text *out, bool *simple, const char *pattern,
                               const char *path)
{
    struct translation t = {
        .pattern = pattern, .path = path, .out = out, .cost = pattern_cost_start()
    };
    size_t bytes = strlen(pattern);

    if (bytes > PATTERN_BYTES_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s': a pattern of %zu bytes, more than %d", path, bytes,
                    PATTERN_BYTES_MAX);
    if (utf8_valid_prefix(pattern, bytes) != bytes)
        return fail(ALIBI_BAD_INPUT, "'%s': the pattern '%.80s' is not UTF-8", path, pattern);
    TRY_RETURN(text_append_bytes(out, "", 0));
    while (t.pattern[t.at] != '\0')
        TRY_RETURN(item(&t));
    if (t.depth > 0)
        return refuse_end(&t, "a group");
    pattern_cost_alternative(&t.cost);
    *simple = t.cost.simple;
    return ALIBI_OK;
}
