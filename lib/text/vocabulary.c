/* vocabulary.c - learning a tokenizer: options, named patterns, words by their counts */
#include <stdlib.h>
#include <string.h>

#include "text/vocabulary.h"

#define AT(field) offsetof(struct alibi_vocabulary, field)

static const struct alibi_option options[] = {
    { "type", ALIBI_OPTION_CHOICE, AT(type), 0, 0, "bpe|words", "bpe", "NAME",
      "parts of words, or words between white space" },
    { "vocab", ALIBI_OPTION_INT, AT(vocab), 0, 1 << 24, NULL, "0", "N",
      "largest number of ids; 0: 32000 for bpe, all for words" },
    { "min-count", ALIBI_OPTION_INT, AT(min_count), 0, 1e15, NULL, "0", "N",
      "rarer pairs (words) do not become tokens; 0: 2 for bpe, 1 for words" },
    { "pattern", ALIBI_OPTION_TEXT, AT(pattern), 0, 0, NULL, NULL, "NAME",
      "bpe: cuts text first; gpt2, bloom, gpt4, or a regular expression; default: gpt2" },
};

enum { OPTIONS = COUNT(options) };

const struct alibi_option *alibi_vocabulary_options(int *count)
{
    *count = OPTIONS;
    return options;
}

/* As the tokenizer.json of each has it. */
static const char bloom_pattern[] = " ?[^(\\s|[.,!?…。，、।۔،])]+";
static const char gpt4_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const struct {
    const char *name, *expression;
} named[] = { { "gpt2", bpe_gpt2_pattern }, { "bloom", bloom_pattern }, { "gpt4", gpt4_pattern } };

enum { NAMED = COUNT(named) };

static alibi_status find_expression(const char **out, const char *pattern)
{
    const char *wanted = pattern != NULL ? pattern : named[0].name;

    for (int i = 0; i < NAMED; i++)
        if (strcmp(wanted, named[i].name) == 0) {
            *out = named[i].expression;
            return ALIBI_OK;
        }
    if (looks_like_a_name(wanted)) /* as an expression it would match only that word */
        return fail(ALIBI_USAGE,
                    "option '--pattern': '%s' is none of gpt2, bloom, gpt4, and not an expression",
                    wanted);
    *out = wanted;
    return ALIBI_OK;
}

static alibi_status check(const struct alibi_vocabulary *how)
{
    struct alibi_vocabulary values = *how;
    struct alibi_option_group group = { "vocabulary", options, OPTIONS, &values };

    TRY_RETURN(options_check(&group, 1));
    if (how->type == ALIBI_BPE && how->vocab != 0 &&
        (how->vocab < VOCAB_BPE_MIN || how->vocab > VOCAB_BPE_MAX))
        return fail(
            ALIBI_USAGE,
            "option '--vocab': %lld is outside %d..%d, the range for bpe, which has every byte "
            "and an end",
            (long long)how->vocab, VOCAB_BPE_MIN, VOCAB_BPE_MAX);
    if (how->type == ALIBI_WORDS && how->vocab == 1)
        return fail(ALIBI_USAGE, "option '--vocab': 1 is too small; <unk> and <eos> take two ids");
    if (how->type == ALIBI_WORDS && how->pattern != NULL)
        return fail(ALIBI_USAGE, "option '--pattern' is for bpe; words are cut at white space");
    return ALIBI_OK;
}

/* ---- learning */

/* Ids 0 and 1. A text may contain them as words, as WikiText does. */
static const char *const reserved[] = { "<unk>", "<eos>" };
enum { RESERVED = 2 };

static int compare_pieces(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    order = memcmp(a->at, b->at, shorter);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool is_reserved(const struct piece *p)
{
    for (int i = 0; i < RESERVED; i++)
        if (p->bytes == strlen(reserved[i]) && memcmp(p->at, reserved[i], p->bytes) == 0)
            return true;
    return false;
}

static int64_t least_count(const struct alibi_vocabulary *how)
{
    if (how->min_count > 0)
        return how->min_count;
    return how->type == ALIBI_BPE ? 2 : 1;
}

/* The words by falling count. */
static alibi_status learn_words(alibi_tokenizer **out, const struct alibi_vocabulary *how,
                                struct source *source, const struct tally_limits *limits,
                                const struct alibi_call *call)
{
    alibi_status status;
    struct tally tally = { 0 };
    struct piece *pieces = NULL;
    struct slice *words = NULL;
    int64_t count = 0, n = 0, most, least = least_count(how);

    TRY(count_pieces(&tally, source, NULL, limits, call));
    TRY(tally_list(&tally, &pieces, &count));
    qsort(pieces, (size_t)count, sizeof *pieces, compare_pieces);
    TRY(NEW_ARRAY(&words, count + RESERVED, "the words of a vocabulary"));
    for (; n < RESERVED; n++)
        words[n] = (struct slice){ reserved[n], strlen(reserved[n]) };
    most = how->vocab > 0 && how->vocab < count + RESERVED ? how->vocab : count + RESERVED;
    for (int64_t i = 0; i < count && n < most && pieces[i].count >= least; i++)
        if (!is_reserved(&pieces[i]))
            words[n++] = (struct slice){ pieces[i].at, pieces[i].bytes };
    TRY(tokenizer_new_words(out, words, n));
out:
    mem_free(words);
    mem_free(pieces);
    tally_fini(&tally);
    return status;
}

static alibi_status learn_bpe(alibi_tokenizer **out, const struct alibi_vocabulary *how,
                              struct source *source, const struct tally_limits *limits,
                              const struct alibi_call *call)
{
    alibi_status status;
    struct tally tally = { 0 };
    struct bpe_split split = { 0 };
    struct pattern *pattern = NULL;
    struct bpe_file *file = NULL, *given;
    const char *expression = NULL;

    TRY(find_expression(&expression, how->pattern));
    TRY(text_copy(&split.pattern, expression));
    TRY(pattern_new(&pattern, &split, 1, "pattern"));
    TRY(count_pieces(&tally, source, pattern, limits, call));
    TRY(train_bpe(&file, &tally, how->vocab > 0 ? how->vocab : VOCAB_BPE_USUAL, least_count(how),
                  call));
    file->splits[0] = split;
    file->split_count = 1;
    split.pattern = NULL;
    given = file;
    file = NULL;
    TRY(tokenizer_new_bpe(out, given, "the new tokenizer"));
out:
    pattern_free(pattern);
    mem_free(split.pattern);
    bpe_file_free(file);
    tally_fini(&tally);
    return status;
}

alibi_status vocabulary_train(alibi_tokenizer **out, const struct alibi_vocabulary *how,
                              const char *const *paths, int count,
                              const struct alibi_reading *reading,
                              const struct tally_limits *limits, const struct alibi_call *call)
{
    alibi_status status;
    struct source *source = NULL;

    TRY(check(how));
    TRY(source_open(&source, paths, count, reading, call));
    TRY((how->type == ALIBI_WORDS ? learn_words : learn_bpe)(out, how, source, limits, call));
    if (alibi_tokenizer_vocab(*out) < how->vocab)
        call_note(call,
                  "the vocabulary has %lld ids, not %lld: all %ss that occur at least %lld time%s "
                  "in this text are in it; a longer text has more",
                  (long long)alibi_tokenizer_vocab(*out), (long long)how->vocab,
                  how->type == ALIBI_WORDS ? "word" : "pair", (long long)least_count(how),
                  least_count(how) == 1 ? "" : "s");
out:
    source_close(source);
    return status;
}

alibi_status alibi_tokenizer_train(alibi_tokenizer **out, const struct alibi_vocabulary *how,
                                   const char *const *paths, int count,
                                   const struct alibi_reading *reading,
                                   const struct alibi_call *call)
{
    return vocabulary_train(out, how, paths, count, reading, &tally_limits_usual, call);
}
