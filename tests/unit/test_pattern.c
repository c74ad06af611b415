/* test_pattern.c - regular expressions in Ruby's spelling, and the pieces they cut texts into */
#include "check.h"
#include "text/text.h"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define GPT4                                                                                       \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define BLOOM                                                                                      \
    " ?[^(\\s|[.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C])]+"

/* ---- helpers */

static struct pattern *pattern_of(const char *const *expressions, int count)
{
    struct bpe_split splits[BPE_SPLITS_MAX] = { { 0 } };
    struct pattern *p = NULL;

    for (int i = 0; i < count; i++)
        splits[i].pattern = (char *)(uintptr_t)expressions[i];
    assert_ok(pattern_new(&p, splits, count, "t.json"));
    return p;
}

static alibi_status join(void *user, const char *piece, size_t bytes)
{
    text_append_bytes(user, piece, bytes);
    text_append_bytes(user, "|", 1);
    return text_status(user);
}

/* The pieces of the text, each followed by a '|', cut in stretches of `step` bytes of which
 * `look` more are known at first. */
static struct text cut_in_steps(const struct pattern *p, const char *text, size_t bytes,
                                size_t step, size_t look)
{
    struct text out = { 0 };
    struct cutter *c = NULL;
    size_t at = 0, more = look;

    assert_ok(cutter_new(&c, p));
    text_append_bytes(&out, "", 0);
    while (at < bytes) {
        size_t stop = at + step < bytes ? at + step : bytes,
               end = stop + more < bytes ? stop + more : bytes, reached;
        struct stretch s = { text, at, stop, end, .last = end == bytes };
        assert_ok(cutter_run(c, &s, join, &out, &reached));
        assert_in_range(reached, at, end);
        assert_true(reached >= stop || end < bytes);
        more = reached > at ? look : 2 * more + 1;
        at = reached;
    }
    cutter_free(c);
    return out;
}

static void assert_pieces(const char *expression, const char *text, const char *expected)
{
    struct pattern *p = pattern_of(&expression, 1);
    struct text out = cut_in_steps(p, text, strlen(text), strlen(text), 0);

    if (strcmp(out.data, expected) != 0)
        fail_msg("'%s' cuts '%s' into '%s', not '%s'", expression, text, out.data, expected);
    text_free(&out);
    pattern_free(p);
}

/* ---- what expressions mean */

static void expressions_match_what_ruby_says(void **state)
{
    static const struct {
        const char *expression, *text, *pieces;
    } cases[] = {
        { "b", "abcb", "a|b|c|b|" },
        { "a|bc", "xbca", "x|bc|a|" },
        { "(ab)+c?", "ababcx", "ababc|x|" },
        { "(?:ab){2}", "ababab", "abab|ab|" },
        { "a{2,}", "aaaab", "aaaa|b|" },
        { "a?+b", "abb", "ab|b|" },
        { "a(?=b)", "abac", "a|bac|" },
        { "a(?!b)", "abac", "ab|a|c|" },
        { ".+", "ab\ncd", "ab|\n|cd|" },
        { "\\.\\*\\[\\]\\{\\}\\\\", "x.*[]{}\\y", "x|.*[]{}\\|y|" },
        { "\\d+", "a12\xD9\xA3z", "a|12\xD9\xA3|z|" },
        { "\\D+", "a12b", "a|12|b|" },
        { "[\\d-]+", "a1-2b", "a|1-2|b|" },
        { "[^\\D]+", "a12b", "a|12|b|" },
        { "\\p{Lu}+",
          "abCD\xC3\x89"
          "f",
          "ab|CD\xC3\x89|f|" },
        { "\\P{L}+", "ab, c", "ab|, |c|" },
        { "[^\\p{L}\\p{N}]", "a-1", "a|-|1|" },
        { "(?i:ab)c", "ABcABC", "ABc|ABC|" },
        { "(?i:k)", "\xE2\x84\xAA", "\xE2\x84\xAA|" }, /* the sign for kelvin */
        { "[a[bc]]+", "xabcx", "x|abc|x|" },
        { "[^a[bc]]+", "xabcx", "x|abc|x|" },
        { "[-a]+", "b-ab", "b|-a|b|" },
        { "[a-]+", "b-ab", "b|-a|b|" },
        { "[a-c-e]+", "abc-ed", "abc-e|d|" },
        { "[\\]\\[^]+", "a[]^b", "a|[]^|b|" },
        { "[(|)]+", "a(|)b", "a|(|)|b|" },
        { "]", "a]b", "a|]|b|" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_pieces(cases[i].expression, cases[i].text, cases[i].pieces);
}

/* U+0085 and U+3000 are white space, U+180E and U+200B are not. */
static void white_space_is_unicodes(void **state)
{
    static const char text[] = "a\xC2\x85\xE3\x80\x80\t\xE1\xA0\x8E\xE2\x80\x8B ";

    (void)state;
    assert_pieces("\\s+", text, "a|\xC2\x85\xE3\x80\x80\t|\xE1\xA0\x8E\xE2\x80\x8B| |");
    assert_pieces("\\S+", text, "a|\xC2\x85\xE3\x80\x80\t|\xE1\xA0\x8E\xE2\x80\x8B| |");
    assert_pieces("[^\\s]+", text, "a|\xC2\x85\xE3\x80\x80\t|\xE1\xA0\x8E\xE2\x80\x8B| |");
    assert_pieces("[^\\S\\t]+", text, "a|\xC2\x85\xE3\x80\x80|\t\xE1\xA0\x8E\xE2\x80\x8B| |");
}

/* U+10D50 is a letter and U+10D40 a digit since Unicode 16, U+1171E was Mn before. U+1C8B and
 * U+10D66 are not assigned in it. */
static void categories_are_those_of_unicode_16(void **state)
{
    static const char text[] = "a\xF0\x90\xB5\x90 \xF0\x90\xB5\x80-\xF0\x91\x9C\x9E\xE1\xB2\x8B";

    (void)state;
    assert_pieces("\\p{L}+", text,
                  "a\xF0\x90\xB5\x90| \xF0\x90\xB5\x80-\xF0\x91\x9C\x9E\xE1\xB2\x8B|");
    assert_pieces("[^\\s\\p{L}\\p{N}]+", text,
                  "a\xF0\x90\xB5\x90 \xF0\x90\xB5\x80|-\xF0\x91\x9C\x9E\xE1\xB2\x8B|");
    assert_pieces("\\P{L}", text,
                  "a\xF0\x90\xB5\x90| |\xF0\x90\xB5\x80|-|\xF0\x91\x9C\x9E|\xE1\xB2\x8B|");
    assert_pieces("\\d", text,
                  "a\xF0\x90\xB5\x90 |\xF0\x90\xB5\x80|-\xF0\x91\x9C\x9E\xE1\xB2\x8B|");
    assert_pieces("[\\p{Mn}\\p{Lu}]", text,
                  "a|\xF0\x90\xB5\x90| \xF0\x90\xB5\x80-\xF0\x91\x9C\x9E\xE1\xB2\x8B|");
    assert_pieces("\\p{M}", text,
                  "a\xF0\x90\xB5\x90 \xF0\x90\xB5\x80-|\xF0\x91\x9C\x9E|\xE1\xB2\x8B|");
    assert_pieces("\\p{Cn}", text,
                  "a\xF0\x90\xB5\x90 \xF0\x90\xB5\x80-\xF0\x91\x9C\x9E|\xE1\xB2\x8B|");
}

static void known_tokenizers_cut_as_they_do(void **state)
{
    (void)state;
    assert_pieces(GPT2, "I'll  see 12 of\n\n them!? \n", "I|'ll| | see| 12| of|\n\n| them|!?| \n|");
    assert_pieces(GPT4, "I'LL  see 1234 of\n\n them!?\n \n",
                  "I|'LL| | see| |123|4| of|\n\n| them|!?\n| \n|");
    assert_pieces(BLOOM, "I'll  see, 12... (x)", "I'll| | see|,| 12|... (|x|)|");
}

/* As Hugging Face's library does: an empty match ends the text before it, and a character is
 * passed over. */
static void empty_matches_cut_and_end(void **state)
{
    (void)state;
    assert_pieces("x*", "abxxc", "a|b|xx|c|");
    assert_pieces("|a", "aab", "a|a|b|");
    assert_pieces("(?=b)", "abab", "a|ba|b|");
    assert_pieces("",
                  "ab\xC3\xA9"
                  "c",
                  "a|b|\xC3\xA9|c|");
}

static void each_expression_cuts_the_pieces_of_the_one_before(void **state)
{
    static const char *const expressions[] = { "\\p{N}{1,3}", "[a-c]+", "b" };
    static const char text[] = "xabc1234ab2";
    struct pattern *p = pattern_of(expressions, 3);
    struct text out = cut_in_steps(p, text, strlen(text), strlen(text), 0);

    (void)state;
    assert_string_equal(out.data, "x|a|b|c|123|4|a|b|2|");
    text_free(&out);
    pattern_free(p);
}

static void plain_texts_are_looked_for_as_they_are(void **state)
{
    struct bpe_split split = { .pattern = (char[]){ ".*" }, .plain = true };
    struct pattern *p = NULL;
    struct text out;

    (void)state;
    assert_ok(pattern_new(&p, &split, 1, "t.json"));
    out = cut_in_steps(p, "ab.*c", 5, 5, 0);
    assert_string_equal(out.data, "ab|.*|c|");
    text_free(&out);
    pattern_free(p);
}

/* ---- refusals */

static void what_is_not_understood_is_named(void **state)
{
    static const struct {
        const char *expression, *part;
    } cases[] = {
        { "a\\w", "byte 1 of the pattern 'a\\w': '\\w' is not supported" },
        { "[\\W]", "'\\W' is not supported" },
        { "\\bx", "'\\b' is not supported" },
        { "\\h", "'\\h' is not supported" },
        { "\\R", "'\\R' is not supported" },
        { "\\X", "'\\X' is not supported" },
        { "\\G", "'\\G' is not supported" },
        { "(a)\\1", "'\\1' is not supported" },
        { "\\k<a>", "'\\k' is not supported" },
        { "a\\", "ends within an escape" },
        { "[a&&b]", "'&&' within a class" },
        { "[a[^b]]", "'[^' within a class" },
        { "[[:alpha:]]", "'[:' within a class" },
        { "\\x41", "'\\x' is not supported" },
        { "\\u0041", "'\\u' is not supported" },
        { "\\v", "'\\v' is not supported" },
        { "(?>a)", "'(?>' is not supported" },
        { "(?i)a", "'(?i' is not supported" },
        { "a+?", "'+?' is not supported" },
        { "a{,2}", "is not a repetition" },
        { "[]a]", "'[]' is an empty class" },
        { "[a[]]", "'[]' is an empty class" },
        { "[a", "ends within a class" },
        { "[a-", "ends within a class" },
        { "[z-a]", "'z-a' is a range that runs backwards" },
        { "[a-\\d]", "does not end with a character" },
        { "(?<=a)b", "'(?<=' is not supported" },
        { "(?<!a)b", "'(?<!' is not supported" },
        { "(?<n>a)", "'(?<n' is not supported" },
        { "a(?i)b", "'(?i' is not supported" },
        { "(?m:a)", "'(?m' is not supported" },
        { "(?#a)", "'(?#' is not supported" },
        { "(*FAIL)", "'(*F' is not supported" },
        { "(a", "ends within a group" },
        { "a)", "byte 1 of the pattern 'a)': ')' closes no group" },
        { "a{1,2}+", "'{1,2}+' is not supported" },
        { "a{2}?", "'{2}?' is not supported" },
        { "a{x}", "is not a repetition" },
        { "a{2,1}", "is not a repetition" },
        { "a{99999}", "is not a repetition" },
        { "a**", "'*' repeats nothing" },
        { "+a", "'+' repeats nothing" },
        { "(?=a)+", "'+' repeats nothing" },
        { "^a", "'^' is not supported" },
        { "a$", "'$' is not supported" },
        { "\\pL", "'\\p' needs a name" },
        { "\\p{^L}", "is not a general category" },
        { "\\p{Klingon}", "is not a general category" },
        { "(?i:ss)", "'s' within (?i)" },
        { "(?i:\xC3\x9F)", "within (?i)" },
        { "(?i:\\p{Lu})", "'\\p{Lu}' within (?i)" },
        { "a\xFF", "is not UTF-8" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bpe_split split = { .pattern = (char *)(uintptr_t)cases[i].expression };
        struct pattern *p = NULL;
        assert_fails(pattern_new(&p, &split, 1, "t.json"), ALIBI_BAD_INPUT, cases[i].part);
        assert_non_null(strstr(alibi_error(), "'t.json'"));
        assert_null(p);
    }
}

static void nesting_has_a_limit(void **state)
{
    char deep[400] = "";
    struct bpe_split split = { .pattern = deep };
    struct pattern *p = NULL;

    (void)state;
    memset(deep, '(', 100);
    assert_fails(pattern_new(&p, &split, 1, "t.json"), ALIBI_BAD_INPUT, "nested too deeply");
    memset(deep, '[', 100);
    assert_fails(pattern_new(&p, &split, 1, "t.json"), ALIBI_BAD_INPUT, "nested too deeply");
}

/* ---- stretches */

static void assert_same_in_all_steps(const char *const *expressions, int count, const char *text,
                                     size_t bytes)
{
    static const size_t looks[] = { 0, 1, 2, 5, 100 };
    struct pattern *p = pattern_of(expressions, count);
    struct text whole = cut_in_steps(p, text, bytes, bytes, 0);

    for (size_t step = 1; step <= bytes; step++) {
        for (size_t k = 0; k < sizeof looks / sizeof *looks; k++) {
            struct text parts = cut_in_steps(p, text, bytes, step, looks[k]);
            assert_int_equal(parts.length, whole.length);
            assert_memory_equal(parts.data, whole.data, whole.length);
            text_free(&parts);
        }
    }
    text_free(&whole);
    pattern_free(p);
}

static void any_stretches_give_the_pieces_of_the_whole(void **state)
{
    static const char *const expressions[] = { GPT2,         GPT4,    BLOOM, "x*",
                                               "a(?!bc)|b+", "(?=b)", ".*Q", "" };
    static const char *const texts[] = {
        "I'll  see   12 of\n\n \n them!?\xE2\x80\xA6 \xC3\xA9t\xC3\xA9 \xE6\xBC\xA2\xE5\xAD\x97...   ",
        "   \n\n\n   \r\n a'l 'll'x  ",
        "abxxcabcabbbbabc",
        "\xC3\xA9\xC3\xC3\xA9\xE2\x80 a\xF0\x9F\x98\x80\xF0\x9F\x98 \xFF\xFE\x80\x80  b\xC3",
    };

    (void)state;
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++)
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            assert_same_in_all_steps(&expressions[i], 1, texts[k], strlen(texts[k]));
    assert_same_in_all_steps(expressions, 3, texts[0], strlen(texts[0]));
    assert_same_in_all_steps(expressions, 0, texts[3], strlen(texts[3]));
}

static void bytes_that_are_no_text_are_pieces_of_their_own(void **state)
{
    (void)state;
    assert_pieces("\\p{L}+",
                  "ab\xFF\xFE"
                  "cd\xE2\x82",
                  "ab|\xFF|\xFE|cd|\xE2|\x82|");
    assert_pieces("a+(?!b)",
                  "aa\xFF"
                  "b",
                  "aa|\xFF|b|"); /* what comes before them ends there */
}

static void long_pieces_are_found_whole(void **state)
{
    static const char *const expressions[] = { GPT2 };
    enum { BYTES = 300000 };
    struct pattern *p = pattern_of(expressions, 1);
    char *text = malloc(BYTES);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', BYTES);
    memset(text + 100000, ' ', 100001);
    for (size_t step = 1000; step <= BYTES; step *= 17) {
        struct text out = cut_in_steps(p, text, BYTES, step, 100);
        assert_int_equal(out.length, BYTES + 3);
        assert_int_equal(out.data[100000], '|');
        assert_int_equal(out.data[200001], '|');
        text_free(&out);
    }
    free(text);
    pattern_free(p);
}

/* ---- limits */

static alibi_status cut_all(const struct pattern *p, const char *text, size_t bytes,
                            piece_sink *sink, void *user)
{
    alibi_status status;
    struct cutter *c = NULL;
    struct stretch s = { .text = text, .stop = bytes, .end = bytes, .last = true };
    size_t reached;

    TRY(cutter_new(&c, p));
    TRY(cutter_run(c, &s, sink, user, &reached));
out:
    cutter_free(c);
    return status;
}

static alibi_status ignore(void *user, const char *piece, size_t bytes)
{
    (void)user;
    (void)piece;
    return bytes > 0 ? ALIBI_OK : fail(ALIBI_BAD_INPUT, "an empty piece");
}

static void no_expression_hangs(void **state)
{
    static const char *const expressions[] = { "(?:a|a)*[bc]", "(?:a+)+[bc]", "a*a*[bc]",
                                               "a*a*a*a*[bc]", "a*(?:b|a*c)", "(?:ab|a)+",
                                               ".*Q",          ".*Q|." };
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);

    (void)state;
    assert_non_null(text);
    memset(text, 'a', BYTES);
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        struct pattern *p = pattern_of(&expressions[i], 1);
        assert_fails(cut_all(p, text, BYTES, ignore, NULL), ALIBI_BAD_INPUT, expressions[i]);
        assert_in_range(cut_all(p, text, 10000, ignore, NULL), ALIBI_OK, ALIBI_BAD_INPUT);
        assert_ok(cut_all(p, "aaaaaa", 6, ignore, NULL));
        pattern_free(p);
    }
    free(text);
}

/* Two long repetitions are one too many only if what follows them can fail. */
static void expressions_of_known_tokenizers_take_long_pieces(void **state)
{
    static const char *const expressions[] = {
        GPT2, GPT4, BLOOM,
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{M}]*[\\p{Ll}\\p{M}]+(?i:'s|'t|'re)?|\\p{Lu}+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    };
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        struct pattern *p = pattern_of(&expressions[i], 1);
        for (const char *c = "aA. \n"; *c != '\0'; c++) {
            memset(text, *c, BYTES);
            text[BYTES - 1] = 'x';
            assert_ok(cut_all(p, text, BYTES, ignore, NULL));
        }
        pattern_free(p);
    }
    free(text);
}

/* A run of "ab" without a 'c' after it: nearly the whole budget of the expression. */
static void what_a_cutter_did_before_does_not_decide(void **state)
{
    static const char *const expression = "(?:ab)+c|[a-z]| +";
    enum { BYTES = 4096 };
    struct pattern *p = pattern_of(&expression, 1);
    struct cutter *c = NULL;
    char text[BYTES];

    (void)state;
    for (int i = 0; i < BYTES; i++)
        text[i] = i < 700 ? "ab"[i % 2] : ' ';
    assert_ok(cutter_new(&c, p));
    for (int i = 0; i < 5; i++) {
        size_t reached = 0;
        assert_ok(cutter_run(c, &(struct stretch){ text, 0, BYTES, BYTES, .last = true }, ignore,
                             NULL, &reached));
        assert_int_equal(reached, BYTES);
    }
    cutter_free(c);
    pattern_free(p);
}

static void pieces_have_a_greatest_length(void **state)
{
    static const char *const expressions[] = { "b+", "a+" };
    enum { BYTES = PIECE_MAX + 10 };
    char *text = malloc(BYTES);

    (void)state;
    assert_non_null(text);
    memset(text, 'a', BYTES);
    for (int i = 0; i < 3; i++) {
        struct pattern *p = pattern_of(&expressions[i % 2], i < 2);
        assert_fails(cut_all(p, text, BYTES, ignore, NULL), ALIBI_BAD_INPUT,
                     "a piece of more than");
        assert_ok(cut_all(p, text, PIECE_MAX, ignore, NULL));
        pattern_free(p);
    }
    free(text);
}

static void a_failing_sink_ends_the_cutting(void **state)
{
    static const char *const expressions[] = { "a" };
    struct pattern *p = pattern_of(expressions, 1);
    struct text t = { 0 };

    (void)state;
    assert_ok(alibi_inject_fault("memory", 4)); /* three for the cutter, then the text */
    assert_int_equal(cut_all(p, "bab", 3, join, &t), ALIBI_MEMORY);
    assert_ok(alibi_inject_fault("memory", 0));
    text_free(&t);
    pattern_free(p);
}

static alibi_status make_and_cut(void)
{
    static const char text[] = "some text to cut, 12 times";
    struct bpe_split splits[] = { { .pattern = (char[]){ GPT2 } },
                                  { .pattern = (char[]){ "e" }, .plain = true } };
    struct pattern *p = NULL;
    alibi_status status;

    TRY(pattern_new(&p, splits, 2, "t.json"));
    TRY(cut_all(p, text, strlen(text), ignore, NULL));
out:
    pattern_free(p);
    return status;
}

static void every_failing_allocation_is_told_and_leaves_nothing(void **state)
{
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;
    int n = 0;

    (void)state;
    while (status != ALIBI_OK) {
        assert_ok(alibi_inject_fault("memory", ++n));
        status = make_and_cut();
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_int_equal(alibi_memory_now(), before);
    }
    assert_ok(alibi_inject_fault("memory", 0));
    assert_in_range(n, 10, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_match_what_ruby_says),
        cmocka_unit_test(white_space_is_unicodes),
        cmocka_unit_test(categories_are_those_of_unicode_16),
        cmocka_unit_test(known_tokenizers_cut_as_they_do),
        cmocka_unit_test(empty_matches_cut_and_end),
        cmocka_unit_test(each_expression_cuts_the_pieces_of_the_one_before),
        cmocka_unit_test(plain_texts_are_looked_for_as_they_are),
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(any_stretches_give_the_pieces_of_the_whole),
        cmocka_unit_test(bytes_that_are_no_text_are_pieces_of_their_own),
        cmocka_unit_test(long_pieces_are_found_whole),
        cmocka_unit_test(no_expression_hangs),
        cmocka_unit_test(expressions_of_known_tokenizers_take_long_pieces),
        cmocka_unit_test(what_a_cutter_did_before_does_not_decide),
        cmocka_unit_test(pieces_have_a_greatest_length),
        cmocka_unit_test(a_failing_sink_ends_the_cutting),
        cmocka_unit_test(every_failing_allocation_is_told_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
