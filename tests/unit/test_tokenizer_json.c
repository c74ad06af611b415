/* test_tokenizer_json.c - tokenizer.json of byte-level BPE: read, written back, and every way of
 * being wrong */
#include "bpe_files.h"

/* A file in short: '@' means the tokens of the 256 bytes. */
#define END_TOKEN                                                                                  \
    "{\"id\":259,\"content\":\"<|endoftext|>\",\"single_word\":false,\"lstrip\":false,"            \
    "\"rstrip\":false,\"normalized\":false,"                                                       \
    "\"special\":true}"
#define BYTE_LEVEL                                                                                 \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
static const char whole[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[" END_TOKEN
    "],\n"
    "\"normalizer\":null,\"pre_tokenizer\":" BYTE_LEVEL ",\n"
    "\"post_processor\":null,\"decoder\":" BYTE_LEVEL ",\n"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\n"
    "\"vocab\":{@,\"ab\":256,\"abc\":257,\"\\u0120c\":258},\n"
    "\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]}}\n";

static alibi_status parse_edited(struct bpe_file **out, const char *from, const char *to)
{
    struct text t = expand(whole, from, to);
    alibi_status status = parse_exact(out, t.data, t.length);

    text_free(&t);
    return status;
}

/* ---- letters */

static void every_byte_has_a_letter_of_its_own(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(byte_of_letter(byte_letter((unsigned char)byte)), byte);
    assert_int_equal(byte_letter(' '), 0x120);
    assert_int_equal(byte_letter('\n'), 0x10A);
    assert_int_equal(byte_letter('a'), 'a');
    assert_int_equal(byte_letter(0xAD), 0x143);
    assert_int_equal(byte_of_letter(' '), -1);
    assert_int_equal(byte_of_letter(0xAD), -1);
    assert_int_equal(byte_of_letter(0x144), -1);
    assert_int_equal(byte_of_letter(0x6F22), -1);
    assert_int_equal(byte_of_letter(UINT32_MAX), -1);
}

/* ---- valid files */

static void a_file_gives_tokens_merges_added_tokens_and_pattern(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_edited(&f, "", ""));
    assert_int_equal(f->vocab, 260);
    for (int byte = 0; byte < 256; byte++) {
        assert_int_equal(f->byte_ids[byte], byte);
        assert_slice(f->tokens[byte], &(char){ (char)byte }, 1);
    }
    assert_slice(f->tokens[257], "abc", 3);
    assert_slice(f->tokens[258], " c", 2);
    assert_slice(f->tokens[259], "<|endoftext|>", 13);
    assert_int_equal(f->merge_count, 3);
    assert_merge(f, 0, 'a', 'b', 256);
    assert_merge(f, 1, 256, 'c', 257);
    assert_merge(f, 2, ' ', 'c', 258);
    assert_int_equal(f->added_count, 1);
    assert_int_equal(f->added[0].id, 259);
    assert_true(f->added[0].special);
    assert_false(f->added[0].in_vocab);
    assert_int_equal(f->split_count, 1);
    assert_string_equal(f->splits[0].pattern, bpe_gpt2_pattern);
    assert_false(f->ignore_merges);
    assert_reads_back(f);
    bpe_file_free(f);
    bpe_file_free(NULL);
}

#define SPLIT(pattern)                                                                             \
    "{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"Isolated\",\"invert\":false}"
#define NO_REGEX                                                                                   \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"

static void patterns_stand_in_their_order(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_edited(
        &f, BYTE_LEVEL,
        "{\"pretokenizers\":[" SPLIT("\"Regex\":\"\\\\p{N}{1,3}\"") "," SPLIT(
            "\"String\":\"\\\"\"") ",{\"add_prefix_space\":false,\"type\":\"ByteLevel\"}],"
                                   "\"type\":\"Sequence\"}"));
    assert_int_equal(f->split_count, 3);
    assert_string_equal(f->splits[0].pattern, "\\p{N}{1,3}");
    assert_false(f->splits[0].plain);
    assert_string_equal(f->splits[1].pattern, "\"");
    assert_true(f->splits[1].plain);
    assert_string_equal(f->splits[2].pattern, bpe_gpt2_pattern);
    assert_reads_back(f);
    bpe_file_free(f);
    assert_ok(parse_edited(&f, BYTE_LEVEL, NO_REGEX));
    assert_int_equal(f->split_count, 0);
    assert_reads_back(f);
    bpe_file_free(f);
}

#define TEXT_A "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define SPECIAL(name) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":0}}"
#define TEMPLATE(single, tokens)                                                                   \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" single                      \
    "],\"pair\":[],\"special_tokens\":{" tokens "}}"
#define TOKEN(name, ids) "\"" name "\":{\"id\":\"" name "\",\"ids\":[" ids "],\"tokens\":[]}"
#define END_OF_TEXT "<|endoftext|>"

static void a_template_says_which_tokens_are_around_a_text(void **state)
{
    static const struct {
        const char *single;
        bool begins, ends;
    } cases[] = {
        { TEMPLATE(SPECIAL(END_OF_TEXT) "," TEXT_A, TOKEN(END_OF_TEXT, "259")), true, false },
        { TEMPLATE(TEXT_A "," SPECIAL(END_OF_TEXT), TOKEN(END_OF_TEXT, "259")), false, true },
        { TEMPLATE(SPECIAL(END_OF_TEXT) "," TEXT_A "," SPECIAL(END_OF_TEXT),
                   TOKEN(END_OF_TEXT, "259")),
          true, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bpe_file *f = NULL;
        assert_ok(parse_edited(&f, "\"post_processor\":null", cases[i].single));
        assert_int_equal(f->added[0].begins, cases[i].begins);
        assert_int_equal(f->added[0].ends, cases[i].ends);
        assert_reads_back(f);
        bpe_file_free(f);
    }
}

/* Each is read as the whole file is. */
static void harmless_variations_change_nothing(void **state)
{
    static const char *const edits[][2] = {
        { "\"version\":\"1.0\",", "" },
        { "\"truncation\":null,\"padding\":null,", "" },
        { "\"post_processor\":null",
          "\"post_processor\":{\"x\":[{}],\"type\":\"RobertaProcessing\"}" },
        { "\"post_processor\":null",
          "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL
          ",{\"type\":\"TemplateProcessing\",\"single\":[" TEXT_A "],\"special_tokens\":{}}]}" },
        { "\"decoder\":" BYTE_LEVEL, "\"decoder\":null" },
        { "\"decoder\":" BYTE_LEVEL,
          "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" BYTE_LEVEL "]}" },
        { BYTE_LEVEL, "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL "]}" },
        { ",\"trim_offsets\":true,\"use_regex\":true", "" },
        { "\"type\":\"BPE\",", "" },
        { "\"dropout\":null", "\"dropout\":0" },
        { "\"dropout\":null", "\"dropout\":-0.00e+7" },
        { "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"\"" },
        { "\"end_of_word_suffix\":null,", "" },
        { "\"unk_token\":null", "\"unk_token\":\"<unk>\"" },
        { "\"fuse_unk\":false", "\"fuse_unk\":null" },
        { "\"byte_fallback\":false", "\"byte_fallback\":true" },
        { ",\"ignore_merges\":false", "" },
        { "[\"a b\",\"ab c\",\"\\u0120 c\"]",
          "[[\"a\",\"b\"],[\"ab\",\"c\"],[\"\\u0120\",\"c\"]]" },
        { "[\"a b\"", "[\"#version: 0.2\",\"a b\"" },
        { "[\"a b\"", "[\"\\u0120 c\",\"ab c\",\"a b\"" }, /* the later rank counts */
        { "\"ab\":256,\"abc\":257", "\"abc\" : 257 ,\r\n\t\"ab\" : 256" },
    };
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_edited(&f, "", ""));
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct bpe_file *edited = NULL;
        assert_ok(parse_edited(&edited, edits[i][0], edits[i][1]));
        assert_same(f, edited);
        bpe_file_free(edited);
    }
    bpe_file_free(f);
}

#define ADDED(id, content, normalized)                                                             \
    "{\"special\":false,\"normalized\":" normalized                                                \
    ",\"rstrip\":false,\"lstrip\":false,\"single_word\":false,\"content\":"                        \
    "\"" content "\",\"id\":" id "}"

#define NO_NORMALIZER "],\n\"normalizer\":null"
#define NFC "],\n\"normalizer\":{\"type\":\"NFC\"}"

static void nfc_is_read_alone_and_in_a_list(void **state)
{
    static const struct {
        const char *normalizer;
        bool nfc;
    } cases[] = {
        { "null", false },
        { "{\"type\":\"NFC\"}", true },
        { "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}", true },
        { "{\"type\":\"Sequence\",\"normalizers\":[]}", false },
    };
    struct bpe_file *f = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char to[128];
        snprintf(to, sizeof to, "\"normalizer\":%s", cases[i].normalizer);
        assert_ok(parse_edited(&f, "\"normalizer\":null", to));
        assert_int_equal(f->nfc, cases[i].nfc);
        bpe_file_free(f);
    }
    assert_ok(parse_edited(&f, END_TOKEN NO_NORMALIZER, ADDED("259", "  ", "true") NFC));
    assert_int_equal(f->added_count, 1);
    bpe_file_free(f);
}

static void added_tokens_stand_for_their_own_text(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_edited(
        &f, END_TOKEN,
        ADDED("259", "\\u00e9 \\ud83d\\ude42", "false") "," ADDED("257", "abc", "false") "," ADDED(
            "260", "x\\u0000y", "true") "," ADDED("261", "\\u00e9\\u00e9", "false")));
    assert_int_equal(f->added_count, 4);
    assert_int_equal(f->added[0].id, 257);
    assert_true(f->added[0].in_vocab);
    assert_false(f->added[0].special);
    assert_slice(f->added[1].text, "é 🙂", 7);
    assert_slice(f->added[2].text, "x\0y", 3);
    assert_slice(f->tokens[260], "x\0y", 3);
    assert_slice(f->tokens[261], "éé", 4);
    assert_slice(f->tokens[0xE9], "\xE9", 1);
    assert_reads_back(f);
    bpe_file_free(f);
}

static void tokens_of_other_letters_stand_for_their_own_text(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_edited(&f, "\"\\u0120c\":258},\n\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]",
                           "\"a \\u6f22\":258},\"merges\":[]"));
    assert_slice(f->tokens[258], "a 漢", 5);
    assert_int_equal(f->merge_count, 0);
    assert_reads_back(f);
    bpe_file_free(f);
}

#define VOCAB_AND_MERGES                                                                           \
    "\"ab\":256,\"abc\":257,\"\\u0120c\":258},\n\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]"

/* As a string "#version a" would be a comment. */
static void a_merge_that_looks_like_a_comment_is_kept(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_edited(
        &f, VOCAB_AND_MERGES,
        "\"ab\":256,\"#version\":257,\"#versiona\":258},\"merges\":[[\"#version\",\"a\"],[\"a\",\"b\"]]"));
    assert_int_equal(f->merge_count, 2);
    assert_merge(f, 0, 257, 'a', 258);
    assert_reads_back(f);
    bpe_file_free(f);
}

/* ---- files of characters */

#define BLANK "\xE2\x96\x81"
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"" BLANK "\"}"
#define REPLACE(from, to)                                                                          \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define METASPACE(more) "{\"type\":\"Metaspace\",\"replacement\":\"" BLANK "\"" more "}"
#define LLAMA2 "{\"type\":\"Sequence\",\"normalizers\":[" PREPEND "," REPLACE(" ", BLANK) "]}"

static const char characters[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
    "{\"id\":260,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
    "\"normalized\":false,\"special\":true}],\n\"normalizer\":" LLAMA2 ",\"pre_tokenizer\":null,"
    "\"post_processor\":null,\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" REPLACE(
        BLANK,
        " ") ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
             "\"content\":\" \",\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
             "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\n"
             "\"vocab\":{~,\"" BLANK "\":256,\"a\":257,\"" BLANK
             "a\":258,\"\u6f22\":259,\"</s>\":260},"
             "\"merges\":[\"" BLANK " a\"]}}\n";

static alibi_status parse_characters(struct bpe_file **out, const char *from, const char *to)
{
    struct text t = expand(characters, from, to);
    alibi_status status = parse_exact(out, t.data, t.length);

    text_free(&t);
    return status;
}

static void tokens_of_characters_are_text_with_blanks_and_bytes(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_characters(&f, "", ""));
    assert_true(f->characters);
    assert_int_equal(f->prefix, PREFIX_ALWAYS);
    assert_slice(f->tokens[0], "\0", 1);
    assert_slice(f->tokens['a'], "a", 1);
    assert_slice(f->tokens[0xE6], "\xE6", 1);
    assert_slice(f->tokens[256], " ", 1);
    assert_slice(f->tokens[258], " a", 2);
    assert_slice(f->tokens[259], "漢", 3);
    assert_merge(f, 0, 256, 257, 258);
    assert_int_equal(f->byte_ids['a'], 'a');
    assert_reads_back(f);
    bpe_file_free(f);
}

static void blanks_before_text_are_read_in_every_spelling(void **state)
{
    static const struct {
        const char *steps; /* the normalizer and the pre-tokenizer */
        enum bpe_prefix prefix;
        bool cut_blanks;
    } cases[] = {
        { REPLACE(" ", BLANK) ",\"pre_tokenizer\":null", PREFIX_NONE, false },
        { "null,\"pre_tokenizer\":" METASPACE(""), PREFIX_EACH, true },
        { "null,\"pre_tokenizer\":" METASPACE(",\"add_prefix_space\":true,\"str_rep\":\"" BLANK
                                              "\""),
          PREFIX_EACH, true },
        { "null,\"pre_tokenizer\":" METASPACE(",\"prepend_scheme\":\"first\",\"split\":false"),
          PREFIX_FIRST, false },
        { "null,\"pre_tokenizer\":" METASPACE(
              ",\"prepend_scheme\":\"never\",\"add_prefix_space\":false"),
          PREFIX_NONE, true },
        { "{\"type\":\"Sequence\",\"normalizers\":[" REPLACE(
              " ", BLANK) "," PREPEND "]},\"pre_tokenizer\":null",
          PREFIX_ALWAYS, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bpe_file *f = NULL;
        assert_ok(parse_characters(&f, LLAMA2 ",\"pre_tokenizer\":null", cases[i].steps));
        assert_true(f->characters);
        assert_int_equal(f->prefix, cases[i].prefix);
        assert_int_equal(f->cut_blanks, cases[i].cut_blanks);
        assert_reads_back(f);
        bpe_file_free(f);
    }
}

/* ---- defects */

struct defect {
    const char *from, *to, *part;
};

static void assert_refused(const struct defect *defects, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct bpe_file *f = NULL;
        size_t before = alibi_memory_now();
        alibi_status status = parse_edited(&f, defects[i].from, defects[i].to);
        if (status != ALIBI_BAD_INPUT || strstr(alibi_error(), defects[i].part) == NULL ||
            strstr(alibi_error(), "cannot read 't.json': ") == NULL)
            fail_msg("'%s' for '%s': status %d: '%s' has no '%s'", defects[i].to, defects[i].from,
                     (int)status, alibi_error(), defects[i].part);
        assert_null(f);
        assert_int_equal(alibi_memory_now(), before);
    }
}
#define ASSERT_REFUSED(defects) assert_refused(defects, sizeof(defects) / sizeof *(defects))

static void what_is_not_supported_is_named(void **state)
{
    static const struct defect defects[] = {
        { "\"1.0\"", "\"2.0\"", "'version' is '2.0', only '1.0' is supported, at byte 11, line 1" },
        { "\"truncation\":null", "\"truncation\":{\"max_length\":5}",
          "'truncation' is not supported" },
        { "\"padding\":null", "\"padding\":{}", "'padding' is not supported" },
        { "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}",
          "the normalizer 'NFKC' is not supported" },
        { "\"normalizer\":null", "\"normalizer\":" PREPEND,
          "the normalizers Prepend and Replace with ByteLevel are not supported" },
        { "\"normalizer\":null", "\"normalizer\":" REPLACE("a", BLANK),
          "a Replace of 'a' is not supported" },
        { "\"normalizer\":null", "\"normalizer\":" REPLACE(" ", "_"),
          "'content' is '_', only '" BLANK "' is supported" },
        { BYTE_LEVEL,
          "{\"type\":\"Sequence\",\"pretokenizers\":[" METASPACE("") "," BYTE_LEVEL "]}",
          "the pre-tokenizer 'ByteLevel' after Metaspace is not supported" },
        { BYTE_LEVEL, METASPACE(",\"prepend_scheme\":\"last\""),
          "'prepend_scheme' is 'last', not one of always, first, never" },
        { BYTE_LEVEL, METASPACE(",\"add_prefix_space\":false"),
          "'add_prefix_space' is false, but 'prepend_scheme' is 'always'" },
        { "\"post_processor\":null", TEMPLATE("", ""), "the template 'single' has no text" },
        { "\"post_processor\":null", TEMPLATE(TEXT_A "," TEXT_A, ""), "has a second text" },
        { "\"post_processor\":null",
          TEMPLATE(SPECIAL(END_OF_TEXT) "," SPECIAL(END_OF_TEXT) "," TEXT_A, ""),
          "a template with several tokens before the text is not supported" },
        { "\"post_processor\":null", TEMPLATE(SPECIAL("x") "," TEXT_A, ""),
          "the special tokens of the template" },
        { "\"post_processor\":null",
          TEMPLATE(SPECIAL(END_OF_TEXT) "," TEXT_A, TOKEN(END_OF_TEXT, "258")),
          "no added token is '<|endoftext|>' with the id 258" },
        { "\"post_processor\":null",
          TEMPLATE(SPECIAL(END_OF_TEXT) "," TEXT_A, TOKEN(END_OF_TEXT, "259,259")),
          "has several ids" },
        { "\"normalizer\":null",
          "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
          "{\"type\":\"Lowercase\"}]}",
          "the normalizer 'Lowercase' is not supported" },
        { BYTE_LEVEL, "null", "the pre-tokenizer has no ByteLevel" },
        { BYTE_LEVEL, "{\"type\":\"Whitespace\"}",
          "the pre-tokenizer 'Whitespace' is not supported" },
        { BYTE_LEVEL, SPLIT("\"Regex\":\"a\""), "the pre-tokenizer has no ByteLevel" },
        { BYTE_LEVEL, "{\"type\":\"Sequence\",\"pretokenizers\":[]}",
          "the pre-tokenizer has no ByteLevel" },
        { BYTE_LEVEL,
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"}," BYTE_LEVEL "]}",
          "a Digits lacks 'individual_digits'" },
        { BYTE_LEVEL,
          "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL ",{\"type\":\"Punctuation\"}]}",
          "a Punctuation that is 'Isolated' after ByteLevel is not supported" },
        { BYTE_LEVEL,
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\",\"behavior\":"
          "\"Removed\"}," BYTE_LEVEL "]}",
          "a Punctuation that is 'Removed' is not supported" },
        { BYTE_LEVEL,
          "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL "," SPLIT("\"Regex\":\"a\"") "]}",
          "the pattern 'a' after ByteLevel is not supported, only digits are" },
        { BYTE_LEVEL,
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":"
          "false,\"use_regex\":false},{\"type\":\"Digits\",\"individual_digits\":true}]}",
          "a pre-tokenizer after a ByteLevel that does not cut text is not supported" },
        { BYTE_LEVEL, "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL "," BYTE_LEVEL "]}",
          "the pre-tokenizer 'ByteLevel' after ByteLevel is not supported" },
        { BYTE_LEVEL,
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\",\"invert\":false}",
          "'behavior' is 'Removed', only 'Isolated' is supported" },
        { BYTE_LEVEL,
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Isolated\",\"invert\":true}",
          "'invert' is true, which is not supported" },
        { BYTE_LEVEL,
          "{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT(
              "\"Regex\":\"a\"") ",{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]}",
          "'add_prefix_space' after another pre-tokenizer is not supported" },
        { "\"post_processor\":null", "\"post_processor\":{\"type\":\"BertProcessing\"}",
          "'BertProcessing' is not supported" },
        { "\"decoder\":" BYTE_LEVEL, "\"decoder\":{\"type\":\"Metaspace\"}",
          "the decoder 'Metaspace' is not supported" },
        { "\"decoder\":" BYTE_LEVEL,
          "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}]}",
          "'Fuse' is not" },
        { "\"BPE\"", "\"WordPiece\"", "it is a WordPiece tokenizer; only BPE is read" },
        { "\"dropout\":null", "\"dropout\":0.1", "the dropout of the model is not supported" },
        { "\"dropout\":null", "\"dropout\":\"0\"", "the dropout of the model is not supported" },
        { "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
          "only '' is supported" },
        { "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
          "'end_of_word_suffix' is '</w>'" },
        { END_TOKEN,
          "{\"id\":259,\"content\":\"xy\",\"single_word\":true,\"lstrip\":false,\"rstrip\":false,"
          "\"normalized\":false,\"special\":true}," ADDED("260", "yz", "false"),
          "the added token 'xy' has 'single_word', and 'yz' can start within it" },
        { "\"rstrip\":false,\"normalized\":false,\"special\":true}",
          "\"rstrip\":true,\"normalized\":false,\"special\":true}," ADDED("260", "x\\u3000",
                                                                          "false"),
          "the added token '<|endoftext|>' takes white space, and 'x\xE3\x80\x80' begins or ends" },
    };

    (void)state;
    ASSERT_REFUSED(defects);
}

/* Each of them would be compared with all the others. */
static void too_many_single_words_are_refused(void **state)
{
    struct bpe_file *f = NULL;
    struct text tokens = { 0 };

    (void)state;
    for (int i = 0; i < 6000; i++)
        text_append(&tokens,
                    "%s{\"id\":%d,\"content\":\"<%06d>\",\"single_word\":true,\"lstrip\":false,"
                    "\"rstrip\":false,\"normalized\":false,\"special\":false}",
                    i > 0 ? "," : "", 259 + i, i);
    assert_ok(text_status(&tokens));
    assert_fails(parse_edited(&f, END_TOKEN, tokens.data), ALIBI_BAD_INPUT,
                 "too many added tokens with 'single_word', in the list");
    text_free(&tokens);
}

static void what_files_of_characters_lack_or_cannot_have_is_named(void **state)
{
    static const struct defect defects[] = {
        { "\"byte_fallback\":true", "\"byte_fallback\":false", "without 'byte_fallback'" },
        { "\"fuse_unk\":true", "\"ignore_merges\":true",
          "'ignore_merges' with 'byte_fallback' is not supported" },
        { "\"decoders\":[", "\"decoders\":[" BYTE_LEVEL ",",
          "the decoder 'ByteLevel' is not supported" },
        { "\"normalizers\":[", "\"normalizers\":[{\"type\":\"NFC\"},",
          "NFC with blanks as '" BLANK "' is not supported" },
        { "\"normalizers\":[", "\"normalizers\":[" PREPEND ",", "'Prepend' is not supported" },
        { "\"pre_tokenizer\":null", "\"pre_tokenizer\":" METASPACE(""),
          "the pre-tokenizer 'Metaspace' is not supported here" },
        { "\"pre_tokenizer\":null", "\"pre_tokenizer\":" SPLIT("\"Regex\":\"a\""),
          "a Split, Digits or Punctuation with blanks as '" BLANK "' is not supported" },
        { "\"\u6f22\":259", "\"a b\":259", "the token 'a b' has a blank" },
        { "\"" BLANK "\":256,\"a\":257,\"" BLANK "a\":258,\"\u6f22\":259,\"</s>\":260},"
          "\"merges\":[\"" BLANK " a\"]",
          "\"_\":256,\"a\":257,\"b\":258,\"c\":259,\"</s>\":260},\"merges\":[]",
          "no token is the blank, written '" BLANK "'" },
        { "~,\"" BLANK "\":256", "~,\"_\":256", "the merge has '" BLANK "'" },
        { "\"" BLANK " a\"]", "[\"" BLANK "\",\" \"]]", "' ', which is not in the vocabulary" },
        { "\"content\":\"</s>\"", "\"content\":\"<0x41>\"", "has the id 260" },
        { "\"id\":260,\"content\":\"</s>\"", "\"id\":65,\"content\":\"<0x41>\"",
          "the added token '<0x41>' is a byte" },
        { "\"id\":260,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
          "\"normalized\":false",
          "\"id\":261,\"content\":\"x " BLANK "\",\"single_word\":false,\"lstrip\":false,"
          "\"rstrip\":false,\"normalized\":true",
          "is 'normalized' by Prepend, and is a single word or has or takes blanks" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        struct bpe_file *f = NULL;
        assert_fails(parse_characters(&f, defects[i].from, defects[i].to), ALIBI_BAD_INPUT,
                     defects[i].part);
    }
}

static void broken_grammar_is_refused_at_its_place(void **state)
{
    static const struct defect defects[] = {
        { "{\"version\"", "[\"version\"", "'{' expected at byte 0, line 1" },
        { "{\"version\"", "\xEF\xBB\xBF{\"version\"", "'{' expected at byte 0" },
        { "\"version\"", "version", "'\"' expected at byte 1, line 1" },
        { "\"version\":", "\"version\" ", "':' expected at byte 11" },
        { "\"1.0\"", "1.0", "'\"' expected at byte 11" },
        { "\"padding\":null,\n", "\"padding\":null\n", "'}' expected at byte 50, line 2" },
        { "\"padding\":null", "\"padding\":nul", "a value expected at byte 45" },
        { "\"padding\":null", "\"padding\":+1", "a value expected" },
        { "\"padding\":null", "\"padding\":-", "a digit expected" },
        { "\"padding\":null", "\"padding\":1.", "a digit expected" },
        { "\"padding\":null", "\"padding\":1e", "a digit expected" },
        { "\"padding\":null", "\"padding\":01", "'}' expected" },
        { "\"padding\":null", "\"padding\":[1,]", "a value expected" },
        { "\"padding\":null", "\"padding\":[1}", "']' expected" },
        { "\"padding\":null", "\"padding\":{\"a\"}", "':' expected" },
        { "\"padding\":null", "\"padding\":{1:2}", "'\"' expected" },
        { "\"padding\":null", "\"padding\":{\"a\":1]", "'}' expected" },
        { "\"padding\":null", "\"padding\":\"\\x\"", "an escape of JSON expected" },
        { "\"padding\":null", "\"padding\":\"\\ud800\"", "a pair of surrogates expected" },
        { "\"padding\":null", "\"padding\":\"\t\"", "a printable character expected" },
        { "\"padding\":null", "\"padding\":\"\xC3\"", "byte 46 is not UTF-8" },
        { "]}}\n", "]}}\n}", "the end of the file expected at byte" },
        { "\"added_tokens\":[", "\"added_tokens\":{}, \"x\":[",
          "the file has the unknown key 'x'" },
        { "[" END_TOKEN "]", "{}", "'[' expected" },
        { "\"vocab\":{@", "\"vocab\":[{@", "']' expected" },
        { "\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]", "\"merges\":{}", "'[' expected" },
        { "[\"a b\",", "[5,", "'\"' expected" },
        { "[\"a b\",", "[[\"a\",\"b\"],", "'[' expected" },
        { "[\"a b\",", "[\"a b\",[\"a\",\"b\"],", "'\"' expected" },
        { "[\"a b\",\"ab c\",\"\\u0120 c\"]", "[[\"a\",\"b\",\"c\"]]", "']' expected" },
        { "[\"a b\",\"ab c\",\"\\u0120 c\"]", "[[\"a\"]]", "',' expected" },
        { "\"special\":true", "\"special\":1", "true or false expected" },
        { "\"fuse_unk\":false", "\"fuse_unk\":0", "true or false expected" },
        { "\"unk_token\":null", "\"unk_token\":0", "'\"' expected" },
        { "\"id\":259", "\"id\":-1", "a whole number that is not negative expected" },
        { "\"id\":259", "\"id\":\"259\"", "a whole number that is not negative expected" },
        { "\"id\":259", "\"id\":99999999999999999999", "a number of at most 63 bits expected" },
    };

    (void)state;
    ASSERT_REFUSED(defects);
}

static void members_are_known_and_come_once(void **state)
{
    static const struct defect defects[] = {
        { "\"padding\":null", "\"padding\":null,\"padding\":null",
          "the file has 'padding' twice at byte 50, line 1" },
        { "\"padding\":null", "\"pudding\":null",
          "the file has the unknown key 'pudding' at byte 35" },
        { "\"model\":", "\"model\":{},\"model\":", "the file has 'model' twice" },
        { "\"pre_tokenizer\":" BYTE_LEVEL ",", "", "the file lacks 'pre_tokenizer'" },
        { "\"type\":\"BPE\",", "\"type\":\"BPE\",\"type\":\"BPE\",", "the model has 'type' twice" },
        { "\"dropout\":null", "\"drop\":null", "the model has the unknown key 'drop'" },
        { "\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]", "\"dropout\":0",
          "the model has 'dropout' twice" },
        { ",\n\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]", "", "the model lacks 'merges'" },
        { "\"add_prefix_space\":false,", "", "the pre-tokenizer lacks 'add_prefix_space'" },
        { "\"use_regex\":true", "\"use_regex\":true,\"x\":1",
          "the pre-tokenizer has the unknown key 'x'" },
        { "{\"type\":\"ByteLevel\",", "{", "the pre-tokenizer lacks 'type'" },
        { "\"special\":true", "\"special\":true,\"special\":true",
          "an added token has 'special' twice" },
        { ",\"special\":true", "", "an added token lacks 'special'" },
        { "\"content\":\"<|endoftext|>\",", "", "an added token lacks 'content'" },
        { BYTE_LEVEL, SPLIT(""), "one of 'Regex' and 'String'" },
        { BYTE_LEVEL, SPLIT("\"Regex\":\"a\",\"String\":\"b\""), "one of 'Regex' and 'String'" },
        { BYTE_LEVEL, SPLIT("\"Regex\":\"\""), "the pattern is empty" },
        { BYTE_LEVEL, SPLIT("\"Regex\":\"a\\u0000\""), "characters other than U+0000 expected" },
        { "\"post_processor\":null", "\"post_processor\":{}", "the post-processor lacks 'type'" },
    };

    (void)state;
    ASSERT_REFUSED(defects);
}

static void ids_are_whole_and_each_is_there_once(void **state)
{
    static const struct defect defects[] = {
        { "\"abc\":257", "\"abc\":256", "the tokens 'ab' and 'abc' both have the id 256" },
        { "\"abc\":257", "\"abc\":259", "the token 'abc' has the id 259, but ids are 0 to 258" },
        { "\"abc\":257", "\"abc\":-1", "a whole number that is not negative expected" },
        { "\"abc\":257", "\"abc\":257e0", "'}' expected" },
        { "\"ab\":256,\"abc\":257", "\"ab\":256,\"ab\":257", "the token 'ab' is repeated" },
        { "\"ab\":256,\"abc\":257", "\"ab\":256,\"\":257", "token 257 has no letters" },
        { "{@,\"ab\":256,\"abc\":257,\"\\u0120c\":258}",
          "{\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"abc\":4,\"\\u0120\":5,\"\\u0120c\":6}",
          "has the id 259, but the next free one is 7" },
        { END_TOKEN, ADDED("260", "xx", "false"), "the added token 'xx' has the id 260" },
        { END_TOKEN, ADDED("259", "abc", "false"),
          "the added token 'abc' has the id 259, but its id in the vocabulary is 257" },
        { END_TOKEN, END_TOKEN "," ADDED("260", "<|endoftext|>", "false"),
          "the added token '<|endoftext|>' is repeated" },
        { END_TOKEN, ADDED("260", "yy", "false") "," ADDED("259", "xx", "false"),
          "the next free one is 259" },
        { END_TOKEN, ADDED("259", "", "false"), "an added token without letters" },
        { END_TOKEN, ADDED("233", "\\u00e9", "false"),
          "the added token '\xC3\xA9' has other bytes in the vocabulary" },
        { END_TOKEN, ADDED("259", "xyz", "false") "," ADDED("260", "wxy", "true"),
          "the added tokens 'wxy' and 'xyz' can overlap, and only one of them is 'normalized'" },
        { END_TOKEN, ADDED("259", "xyz", "true") "," ADDED("260", "yz", "false"), "can overlap" },
        { END_TOKEN NO_NORMALIZER, ADDED("259", "xyz", "true") NFC,
          "the added token 'xyz' is 'normalized', and NFC may change it" },
        { END_TOKEN NO_NORMALIZER, ADDED("259", "\\u00e9 ", "true") NFC, "NFC may change it" },
        { END_TOKEN NO_NORMALIZER, ADDED("259", "K ", "true") NFC, "NFC may change it" },
        { END_TOKEN NO_NORMALIZER, ADDED("259", "<x>", "true") NFC, "NFC may change it" },
    };

    (void)state;
    ASSERT_REFUSED(defects);
}

static void vocabulary_and_merges_fit_each_other(void **state)
{
    static const struct defect defects[] = {
        { "\"a b\"", "\"a z\"", "the merge makes 'az', which is not in the vocabulary, at byte" },
        { "\"a b\"", "\"a zz\"", "the merge has 'zz', which is not in the vocabulary" },
        { "\"a b\"", "\"zz b\"", "the merge has 'zz', which is not in the vocabulary" },
        { "\"a b\"", "\"ab\"", "two tokens with a blank between them expected" },
        { "\"a b\"", "\"\"", "two tokens with a blank between them expected" },
        { "\"a b\"", "\"a  b\"", "two tokens with one blank between them expected" },
        { "\"a b\"", "\"a b c\"", "two tokens with one blank between them expected" },
        { "\"a b\"", "\" ab\"", "the merge has '', which is not in the vocabulary" },
        { "\"a b\"", "\"ab \"", "the merge has '', which is not in the vocabulary" },
        { VOCAB_AND_MERGES,
          "\"\\u6f22\":256,\"\\u6f22a\":257,\"x\\u5b57\":258},\"merges\":[\"\\u6f22 a\"]",
          "has letters of no byte" },
        { "\"a b\",\"ab c\",\"\\u0120 c\"", "\"a b\",\"ab c\",\"\\u0120 c\",null",
          "'\"' expected" },
        { VOCAB_AND_MERGES,
          "\"\\u00e6\\u00bc\\u00a2\":256,\"\\u6f22\":257,\"xx\":258},\"merges\":[]",
          "the tokens '\xE6\xBC\xA2' and '\xC3\xA6\xC2\xBC\xC2\xA2' are the same bytes" },
    };

    (void)state;
    ASSERT_REFUSED(defects);
}

static void every_byte_needs_a_token(void **state)
{
    struct text t = expand(whole, "\"a b\",\"ab c\",", "");
    char *a = strstr(t.data, "\"a\":97");
    struct bpe_file *f = NULL;

    (void)state;
    assert_non_null(a);
    a[1] = ' ';
    assert_fails(parse_exact(&f, t.data, t.length), ALIBI_BAD_INPUT,
                 "no token is the byte 97, written 'a'");
    text_free(&t);
}

static void own_text_is_refused_where_it_could_be_mistaken(void **state)
{
    struct text t = expand(whole, "\"\\u0120c\":258},\n\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]",
                           "\"a \":258},\"merges\":[]");
    struct bpe_file *f = NULL;
    char *flag = strstr(t.data, "\"ignore_merges\":false");

    (void)state;
    memcpy(flag, "\"ignore_merges\": true", 21);
    assert_fails(parse_exact(&f, t.data, t.length), ALIBI_BAD_INPUT,
                 "with ignore_merges, the token 'a ' has letters of no byte");
    memcpy(flag, "\"ignore_merges\":false", 21);
    assert_ok(parse_exact(&f, t.data, t.length));
    bpe_file_free(f);
    f = NULL;
    memcpy(strstr(t.data, "<|endoftext|>"), "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9x",
           13);
    assert_fails(parse_exact(&f, t.data, t.length), ALIBI_BAD_INPUT,
                 "is spelled in letters of bytes, the token 'a ' is not");
    text_free(&t);
}

static void values_may_be_deep_but_not_without_end(void **state)
{
    struct text deep = { 0 };
    struct bpe_file *f = NULL;

    (void)state;
    for (int more = 0; more < 2; more++) {
        deep.length = 0;
        text_append(&deep, "\"post_processor\":{\"type\":\"RobertaProcessing\",\"x\":");
        for (int i = 0; i < SCAN_DEPTH_MAX - 1 + more; i++)
            text_append(&deep, "[");
        for (int i = 0; i < SCAN_DEPTH_MAX - 1 + more; i++)
            text_append(&deep, "]");
        text_append(&deep, "}");
        if (more == 0)
            assert_ok(parse_edited(&f, "\"post_processor\":null", deep.data));
        else
            assert_fails(parse_edited(&f, "\"post_processor\":null", deep.data), ALIBI_BAD_INPUT,
                         "more than 128 levels of lists and objects");
        bpe_file_free(f);
        f = NULL;
    }
    text_free(&deep);
}

static void more_patterns_than_there_is_room_for_are_refused(void **state)
{
    struct text many = { 0 };
    struct bpe_file *f = NULL;

    (void)state;
    text_append(&many, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < BPE_SPLITS_MAX; i++)
        text_append(&many, "%s,", SPLIT("\"Regex\":\"a\""));
    text_append(&many, "%s]}", BYTE_LEVEL);
    assert_fails(parse_edited(&f, BYTE_LEVEL, many.data), ALIBI_BAD_INPUT,
                 "the pre-tokenizer has more than 8 patterns");
    text_free(&many);
}

static void a_file_that_is_too_large_is_refused_before_it_is_looked_at(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_fails(bpe_file_parse(&f, "", (size_t)BPE_FILE_MAX + 1, "t.json"), ALIBI_BAD_INPUT,
                 "it has 268435457 bytes, at most 268435456 are allowed");
}

/* ---- damage */

static void every_truncation_is_refused(void **state)
{
    struct text t = expand(whole, "", "");

    (void)state;
    for (size_t length = 0; length < t.length - 1; length++) { /* the last byte is a line end */
        struct bpe_file *f = NULL;
        assert_fails(parse_exact(&f, t.data, length), ALIBI_BAD_INPUT, "cannot read 't.json': ");
        assert_null(f);
    }
    text_free(&t);
}

static void every_byte_value_is_survived(void **state)
{
    struct text t = expand(whole, "@,", "");
    size_t before = alibi_memory_now();

    (void)state;
    for (size_t i = 0; i < t.length; i++) {
        char kept = t.data[i];
        for (int value = 0; value < 256; value++) {
            struct bpe_file *f = NULL;
            t.data[i] = (char)value;
            assert_int_not_equal(parse_exact(&f, t.data, t.length),
                                 ALIBI_OK); /* the bytes are missing in all */
        }
        t.data[i] = kept;
    }
    assert_int_equal(alibi_memory_now(), before);
    text_free(&t);
}

static alibi_status parse_and_write(void *subject)
{
    const struct text *t = subject;
    alibi_status status;
    struct bpe_file *f = NULL;
    struct text json = { 0 };

    TRY(bpe_file_parse(&f, t->data, t->length, "t.json"));
    TRY(bpe_file_write(f, &json));
out:
    bpe_file_free(f);
    text_free(&json);
    return status;
}

static void every_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct text t = expand(whole, "", "");

    (void)state;
    assert_true(fail_each_call("memory", parse_and_write, &t, ALIBI_MEMORY, "not enough memory") >=
                12);
    text_free(&t);
    t = expand(characters, "", "");
    assert_true(fail_each_call("memory", parse_and_write, &t, ALIBI_MEMORY, "not enough memory") >=
                12);
    text_free(&t);
}

/* As many tokens and merges as can be said in 2 MB, and each merge twice. */
static void memory_stays_a_small_multiple_of_the_file(void **state)
{
    struct text vocab = { 0 }, merges = { 0 }, t;
    struct bpe_file *f = NULL;
    size_t before;

    (void)state;
    for (int i = 0; vocab.length < 1000000; i++) {
        int id = 259 + i;
        text_append(&vocab, ",\"a%d\":%d", id, id);
        text_append(&merges, "\"a b\",\"ab c\",");
    }
    text_append(&vocab, "},\"merges\":[%s\"a b\",\"ab c\",\"\\u0120 c\"]", merges.data);
    t = expand(whole, "},\n\"merges\":[\"a b\",\"ab c\",\"\\u0120 c\"]", vocab.data);
    text_free(&vocab);
    text_free(&merges);
    strstr(t.data, "\"added_tokens\":[")[16] = ']';
    memset(strstr(t.data, "\"added_tokens\":[") + 17, ' ', sizeof END_TOKEN - 1);
    before = alibi_memory_now();
    alibi_memory_reset_peak();
    assert_ok(bpe_file_parse(&f, t.data, t.length, "t.json"));
    assert_true(f->vocab > 50000);
    assert_int_equal(f->merge_count, 3);
    assert_true(alibi_memory_peak() - before < 10 * t.length);
    bpe_file_free(f);
    text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_has_a_letter_of_its_own),
        cmocka_unit_test(a_file_gives_tokens_merges_added_tokens_and_pattern),
        cmocka_unit_test(patterns_stand_in_their_order),
        cmocka_unit_test(a_template_says_which_tokens_are_around_a_text),
        cmocka_unit_test(harmless_variations_change_nothing),
        cmocka_unit_test(tokens_of_characters_are_text_with_blanks_and_bytes),
        cmocka_unit_test(blanks_before_text_are_read_in_every_spelling),
        cmocka_unit_test(nfc_is_read_alone_and_in_a_list),
        cmocka_unit_test(added_tokens_stand_for_their_own_text),
        cmocka_unit_test(tokens_of_other_letters_stand_for_their_own_text),
        cmocka_unit_test(a_merge_that_looks_like_a_comment_is_kept),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(too_many_single_words_are_refused),
        cmocka_unit_test(what_files_of_characters_lack_or_cannot_have_is_named),
        cmocka_unit_test(broken_grammar_is_refused_at_its_place),
        cmocka_unit_test(members_are_known_and_come_once),
        cmocka_unit_test(ids_are_whole_and_each_is_there_once),
        cmocka_unit_test(vocabulary_and_merges_fit_each_other),
        cmocka_unit_test(every_byte_needs_a_token),
        cmocka_unit_test(own_text_is_refused_where_it_could_be_mistaken),
        cmocka_unit_test(values_may_be_deep_but_not_without_end),
        cmocka_unit_test(more_patterns_than_there_is_room_for_are_refused),
        cmocka_unit_test(a_file_that_is_too_large_is_refused_before_it_is_looked_at),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_byte_value_is_survived),
        cmocka_unit_test(every_failing_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(memory_stays_a_small_multiple_of_the_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
