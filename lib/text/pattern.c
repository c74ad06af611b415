/* pattern.c - the regular expressions of a BPE: from Oniguruma's spelling to PCRE2's, compiled
 *
 * Tokenizer files hold expressions as Ruby spells them. The list of constructs is closed: it has
 * those of published tokenizers (GPT-2, GPT-4, o200k, Llama 3, BLOOM, Qwen, DeepSeek, NeoX), and
 * everything else is refused by name. Most mean the same in PCRE2. These do not:
 *
 *   \s \S      Unicode's White_Space and its complement, as ranges: PCRE2 has U+180E too
 *   \d         \p{Nd}
 *   \p{..}     the category by Unicode 16 (categories.c); PCRE2's may be older
 *   [a[bc]]    a nested class is a union: its brackets are dropped
 *   (..)       (?:..): nothing refers back
 *   .          [^\n]
 *
 * Every literal becomes \x{..}, so no character can be taken for syntax. Constructs that look equal
 * but differ in meaning are refused too: {m,n}+ repeats the repetition in Ruby, and a caseless "ss"
 * matches U+00DF.
 *
 * An expression is simple if an attempt to match takes time in proportion to the text it looks at.
 * If an alternative has one long repetition, each of its ends is tried once. If it has two, and an
 * item after them can fail, the second is tried again for every end of the first: the time grows
 * with the square of the text. A repeated group counts as more than one. The cutter gives
 * expressions that are not simple a smaller budget. */
#include <string.h>

#include "text/pattern.h"

#define WHITE_SPACE                                                                                \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"             \
    "\\x{202F}\\x{205F}\\x{3000}"
#define NOT_WHITE_SPACE                                                                            \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}"                   \
    "\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}"                 \
    "\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"

enum {
    PATTERN_BYTES_MAX = 16384,
    GROUPS_MAX = 64,
    CLASSES_MAX = 16,
    REPEAT_MAX = 10000,
    LONG_REPEAT = 16,
};

#define NOWHERE SIZE_MAX

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
    bool repeatable;   /* a quantifier may follow the last item */
    uint32_t previous; /* the last item if it was a literal, else 0 */
    bool exact;        /* categories are those of Unicode 16, not PCRE2's */
    bool categories;   /* there are some */

    size_t item;    /* where the last item starts */
    int repeats;    /* long ones in this alternative so far */
    size_t failing; /* an item after two of them that can fail; NOWHERE: none */
    bool simple;
};

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

/* A character of the pattern, which is UTF-8. */
static uint32_t take_character(struct translation *t)
{
    uint32_t code;

    t->at += utf8_take(t->pattern + t->at, &code);
    return code;
}

/* A backslash and the character that it makes. */
static alibi_status take_escaped(struct translation *t, uint32_t *code)
{
    char c = peek(t, 1);

    if (c == '\0')
        return refuse_end(t, "an escape");
    if (c == 'r' || c == 'n' || c == 't') {
        *code = c == 'r' ? '\r' : c == 'n' ? '\n' : '\t';
        t->at += 2;
        return ALIBI_OK;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return refuse(t, t->at, 2, "is not supported");
    t->at++;
    *code = take_character(t);
    return ALIBI_OK;
}

/* Whether \s \S \d \D \p{..} or \P{..} is next. */
static bool comes_class(const struct translation *t)
{
    return peek(t, 0) == '\\' && peek(t, 1) != '\0' && strchr("sSdDpP", peek(t, 1)) != NULL;
}

static void put_category(struct translation *t, const char *name, size_t bytes, bool complement)
{
    t->categories = true;
    if (t->exact)
        category_append_exact(t->out, name, bytes, complement);
    else
        text_append(t->out, "\\%c{%.*s}", complement ? 'P' : 'p', (int)bytes, name);
}

/* Appends it as a member of a class. \p is for general categories only. */
static alibi_status take_class(struct translation *t)
{
    size_t start = t->at, bytes;
    char c = peek(t, 1);
    const char *name = t->pattern + start + 3;

    if (c == 's' || c == 'S' || c == 'd' || c == 'D') {
        t->at += 2;
        if (c == 's' || c == 'S')
            text_append(t->out, "%s", c == 's' ? WHITE_SPACE : NOT_WHITE_SPACE);
        else
            put_category(t, "Nd", 2, c == 'D');
        return ALIBI_OK;
    }
    if (peek(t, 2) != '{')
        return refuse(t, start, 2, "needs a name in braces");
    bytes = strcspn(name, "}");
    if (name[bytes] != '}' || !category_known(name, bytes))
        return refuse(t, start, bytes < 40 ? 4 + bytes : 40, "is not a general category");
    t->at = start + bytes + 4;
    if (t->groups[t->depth].caseless && name[0] == 'L' && bytes == 2 &&
        strchr("ult", name[1]) != NULL)
        return refuse(t, start, t->at - start, "within (?i) is not supported");
    put_category(t, name, bytes, c == 'P');
    return ALIBI_OK;
}

/* ---- items */

/* An item that matches text was translated: it starts at `start`. */
static void end_item(struct translation *t, size_t start, uint32_t literal)
{
    t->item = start;
    if (t->repeats >= 2 && t->failing == NOWHERE)
        t->failing = start;
    t->previous = literal;
    t->repeatable = true;
}

static alibi_status take_literal(struct translation *t)
{
    static const char folding[][3] = { "ss", "ff", "fi", "fl", "st" };
    size_t start = t->at;
    bool caseless = t->groups[t->depth].caseless, folds = false;
    uint32_t code;

    if (peek(t, 0) == '\\')
        TRY_RETURN(take_escaped(t, &code));
    else
        code = take_character(t);
    /* Two letters that are one character in the other case, such as U+00DF and U+FB00. Letters
     * beyond ASCII have more such cases and are all refused. */
    for (int i = 0; i < COUNT(folding); i++)
        folds = folds || ((t->previous | 0x20) == (uint32_t)folding[i][0] &&
                          (code | 0x20) == (uint32_t)folding[i][1]);
    if (caseless && (code > 0x7F || folds))
        return refuse(t, start, t->at - start,
                      "within (?i) is not supported: the cases differ in length");
    text_append(t->out, "\\x{%X}", (unsigned)code);
    end_item(t, start, code);
    return ALIBI_OK;
}

static alibi_status take_class_character(struct translation *t, uint32_t *code)
{
    if (peek(t, 0) == '\0')
        return refuse_end(t, "a class");
    if (peek(t, 0) == '\\')
        return take_escaped(t, code);
    *code = take_character(t);
    return ALIBI_OK;
}

/* A character of a class, or a range. A hyphen is a range unless it ends the class. */
static alibi_status take_range(struct translation *t)
{
    size_t start = t->at;
    uint32_t low, high;

    TRY_RETURN(take_class_character(t, &low));
    high = low;
    if (peek(t, 0) == '-' && peek(t, 1) != ']') {
        t->at++;
        if (peek(t, 0) == '[' || comes_class(t))
            return refuse(t, start, t->at - start, "is a range that does not end with a character");
        TRY_RETURN(take_class_character(t, &high));
    }
    if (high < low)
        return refuse(t, start, t->at - start, "is a range that runs backwards");
    if (t->groups[t->depth].caseless && high > 0x7F)
        return refuse(t, start, t->at - start, "within (?i) is not supported");
    text_append(t->out, "\\x{%X}-\\x{%X}", (unsigned)low, (unsigned)high);
    return ALIBI_OK;
}

static alibi_status take_brackets(struct translation *t)
{
    size_t start = t->at++;
    int open = 1;

    text_append(t->out, take(t, "^") ? "[^" : "[");
    if (peek(t, 0) == ']')
        return refuse(t, start, t->at + 1 - start, "is an empty class");
    while (open > 0) {
        if (peek(t, 0) == '\0')
            return refuse_end(t, "a class");
        if (comes(t, "&&") || comes(t, "[^") || comes(t, "[:"))
            return refuse(t, t->at, 2, "within a class is not supported");
        if (comes(t, "[]"))
            return refuse(t, t->at, 2, "is an empty class");
        if (take(t, "[")) {
            if (++open > CLASSES_MAX)
                return refuse(t, t->at - 1, 1, "is nested too deeply");
        } else if (take(t, "]")) {
            open--;
        } else {
            TRY_RETURN(comes_class(t) ? take_class(t) : take_range(t));
        }
    }
    text_append(t->out, "]");
    end_item(t, start, 0);
    return ALIBI_OK;
}

static alibi_status open_group(struct translation *t)
{
    struct group g = { .start = t->at, .caseless = t->groups[t->depth].caseless };
    const char *as = "(?:";

    if (take(t, "(?i:")) {
        g.caseless = true;
        as = "(?i:";
    } else if (comes(t, "(?=") || comes(t, "(?!")) {
        as = comes(t, "(?=") ? "(?=" : "(?!";
        t->at += 3;
        g.looks = true;
    } else if (!take(t, "(?:")) {
        if (comes(t, "(?") || comes(t, "(*"))
            return refuse(t, t->at, comes(t, "(?<") ? 4 : 3, "is not supported");
        t->at++;
    }
    if (t->depth + 1 == GROUPS_MAX)
        return refuse(t, g.start, 1, "is nested too deeply");
    t->groups[++t->depth] = g;
    t->repeatable = false;
    t->previous = 0;
    text_append(t->out, "%s", as);
    return ALIBI_OK;
}

static alibi_status close_group(struct translation *t)
{
    if (t->depth == 0)
        return refuse(t, t->at, 1, "closes no group");
    t->at++;
    text_append(t->out, ")");
    end_item(t, t->groups[t->depth].start, 0);
    t->repeatable = !t->groups[t->depth--].looks;
    return ALIBI_OK;
}

/* -1: there is no digit. */
static int take_number(struct translation *t)
{
    int value = -1;

    for (char c; c = t->pattern[t->at], c >= '0' && c <= '9' && value < REPEAT_MAX; t->at++)
        value = (value < 0 ? 0 : value * 10) + (c - '0');
    return value;
}

/* ? * + {n} {n,} {n,m}, and the possessive ?+ *+ ++. */
static alibi_status take_quantifier(struct translation *t)
{
    size_t start = t->at;
    char c = t->pattern[t->at++];
    int low = c == '+', high = c == '?' ? 1 : -1;
    bool group = t->pattern[t->item] == '(';

    if (!t->repeatable)
        return refuse(t, start, 1, "repeats nothing (as a literal it is written with a backslash)");
    if (c == '{') {
        low = high = take_number(t);
        if (take(t, ","))
            high = take_number(t);
        if (!take(t, "}") || low < 0 || low >= REPEAT_MAX || high >= REPEAT_MAX ||
            (high >= 0 && high < low))
            return refuse(t, start, t->at - start, "is not a repetition (a brace is written \\{)");
        text_append(t->out, high < 0 ? "{%d,}" : "{%d,%d}", low, high);
    } else {
        text_append(t->out, "%c", c);
    }
    if (peek(t, 0) == '?' || (c == '{' && peek(t, 0) == '+'))
        return refuse(t, start, t->at + 1 - start, "is not supported");
    if (take(t, "+"))
        text_append(t->out, "+");
    if (low == 0 && t->failing != NOWHERE && t->failing >= t->item)
        t->failing = NOWHERE; /* an item that may be absent cannot fail */
    if (high < 0 || high > (group ? 1 : LONG_REPEAT)) {
        t->repeats++;
        t->simple = t->simple && !group;
    }
    t->repeatable = false;
    t->previous = 0;
    return ALIBI_OK;
}

/* "|", or the end. Within a group, alternatives count as if they followed each other. */
static void end_alternative(struct translation *t)
{
    t->repeatable = false;
    t->previous = 0;
    if (t->depth > 0)
        return;
    t->simple = t->simple && t->failing == NOWHERE;
    t->repeats = 0;
    t->failing = NOWHERE;
}

static alibi_status take_item(struct translation *t)
{
    size_t start = t->at;

    switch (t->pattern[t->at]) {
    case '[':
        return take_brackets(t);
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '|':
        t->at++;
        text_append(t->out, "|");
        end_alternative(t);
        return ALIBI_OK;
    case '.':
        t->at++;
        text_append(t->out, "[^\\x{A}]");
        end_item(t, start, 0);
        return ALIBI_OK;
    case '*':
    case '+':
    case '?':
    case '{':
        return take_quantifier(t);
    case '^':
    case '$':
        return refuse(t, start, 1,
                      "is not supported (as a literal it is written with a backslash)");
    default:
        if (!comes_class(t))
            return take_literal(t);
        text_append(t->out, "[");
        TRY_RETURN(take_class(t));
        text_append(t->out, "]");
        end_item(t, start, 0);
        return ALIBI_OK;
    }
}

/* Writes the expression in PCRE2's spelling, in ASCII. */
static alibi_status translate(struct translation *t, struct text *out, const char *pattern,
                              const char *path, bool exact)
{
    size_t bytes = strlen(pattern);

    *t = (struct translation){ .pattern = pattern,
                               .path = path,
                               .out = out,
                               .exact = exact,
                               .failing = NOWHERE,
                               .simple = true };

    if (bytes > PATTERN_BYTES_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s': a pattern has %zu bytes, more than %d", path, bytes,
                    PATTERN_BYTES_MAX);
    if (utf8_valid_prefix(pattern, bytes) != bytes)
        return fail(ALIBI_BAD_INPUT, "'%s': the pattern '%.80s' is not UTF-8", path, pattern);
    out->length = 0;
    text_append_bytes(out, "", 0);
    while (t->pattern[t->at] != '\0')
        TRY_RETURN(take_item(t));
    if (t->depth > 0)
        return refuse_end(t, "a group");
    end_alternative(t);
    return text_status(out);
}

/* ---- PCRE2's memory is ours */

_Thread_local bool pattern_memory_failed;

static void *take_memory(size_t bytes, void *user)
{
    void *p = NULL;

    (void)user;
    if (mem_new(&p, bytes, "a regular expression") != ALIBI_OK)
        pattern_memory_failed = true;
    return p;
}

static void give_memory(void *p, void *user)
{
    (void)user;
    mem_free(p);
}

/* ---- compiling */

alibi_status pattern_out_of_memory(void)
{
    return pattern_memory_failed ? ALIBI_MEMORY
                                 : fail(ALIBI_MEMORY, "not enough memory for a regular expression");
}

static alibi_status compile_text(pcre2_code **out, struct pattern *p, const char *text,
                                 uint32_t options, const char *source, const char *path)
{
    pcre2_compile_context *context = NULL;
    int error = 0, jit;
    size_t offset;

    pattern_memory_failed = false;
    context = pcre2_compile_context_create(p->memory);
    if (context == NULL)
        return pattern_out_of_memory();
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options | PCRE2_USE_OFFSET_LIMIT,
                         &error, &offset, context);
    pcre2_compile_context_free(context);
    if (*out == NULL && (error == PCRE2_ERROR_NOMEMORY || pattern_memory_failed))
        return pattern_out_of_memory();
    if (*out == NULL) {
        char reason[256];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
        return fail(ALIBI_BAD_INPUT, "'%s': the pattern '%.80s': %s", path, source, reason);
    }
    jit = pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    if (jit != 0 && pattern_memory_failed)
        return ALIBI_MEMORY;
    return ALIBI_OK; /* without JIT, PCRE2 interprets */
}

/* The bytes whose letters are digits. */
static const char digit_bytes[] = "[0-9\\xB2\\xB3\\xB9\\xBC-\\xBE]";

static alibi_status compile(struct pattern *p, int at, const struct bpe_split *split,
                            const char *path)
{
    alibi_status status;
    struct text translated = { 0 };
    struct translation t;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;

    p->simple[at] = true;
    if (split->plain)
        return compile_text(&p->codes[at], p, split->pattern, PCRE2_UTF | PCRE2_LITERAL,
                            split->pattern, path);
    if (split->after_bytes) { /* digits in some form, which are bytes in UTF-8 too */
        if (split->kind == SPLIT_DIGITS)
            text_append(&translated, "%s%s", digit_bytes, split->each ? "" : "+");
        else
            TRY(translate(&t, &translated, split->pattern, path, false));
        TRY(text_status(&translated));
        TRY(compile_text(&p->codes[at], p, translated.data, 0, split->pattern, path));
        goto out;
    }
    TRY(translate(&t, &translated, split->pattern, path, false));
    TRY(compile_text(&p->codes[at], p, translated.data, options, split->pattern, path));
    p->simple[at] = t.simple;
    if (t.categories) {
        TRY(translate(&t, &translated, split->pattern, path, true));
        TRY(compile_text(&p->exact[at], p, translated.data, options, split->pattern, path));
    }
out:
    text_free(&translated);
    return status;
}

alibi_status pattern_new(struct pattern **out, const struct bpe_split *splits, int count,
                         const char *path)
{
    alibi_status status;
    struct pattern *p = NULL;

    if (count < 0 || count > BPE_SPLITS_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s': %d patterns, more than %d", path, count,
                    BPE_SPLITS_MAX);
    TRY(NEW_ZERO_ARRAY(&p, 1, "patterns"));
    pattern_memory_failed = false;
    p->memory = pcre2_general_context_create(take_memory, give_memory, NULL);
    if (p->memory == NULL)
        TRY(pattern_out_of_memory());
    for (; p->count < count; p->count++) {
        TRY(text_copy(&p->sources[p->count], splits[p->count].pattern));
        TRY(compile(p, p->count, &splits[p->count], path));
    }
    newer_init(&p->newer);
    *out = p;
    p = NULL;
out:
    pattern_free(p);
    return status;
}

void pattern_free(struct pattern *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < BPE_SPLITS_MAX; i++) {
        pcre2_code_free(p->codes[i]);
        pcre2_code_free(p->exact[i]);
        mem_free(p->sources[i]);
    }
    pcre2_general_context_free(p->memory);
    mem_free(p);
}
