/* texts.c - the text of an experiment as a corpus
 *
 *   files -> a tokenizer, learned from them once -> shards -> corpus
 *
 * The tokenizer and the shards stay in the folder of the text. Shards that the caller brings have
 * their tokenizer, and bytes need none. */
#include <string.h>

#include "base/names.h"
#include "experiment/experiment.h"

enum { SHARD_TOKENS = 100 << 20 };

/* The built-in text in bytes, as a file to learn a vocabulary from. */
static alibi_status write_builtin(const char *path, const struct alibi_builtin *which,
                                  const struct alibi_call *call)
{
    alibi_status status;
    alibi_corpus *corpus = NULL;

    TRY(alibi_corpus_builtin(&corpus, (uint64_t)which->seed, which->bytes, NULL, call));
    TRY(alibi_corpus_write(corpus, ALIBI_TRAIN, path));
out:
    alibi_corpus_free(corpus);
    return status;
}

/* Learned from the text unless the folder has it already. */
static alibi_status open_tokenizer(alibi_tokenizer **out, const struct experiment_text *t,
                                   const struct alibi_experiment_run *how, const char *folder,
                                   const struct alibi_call *call)
{
    alibi_status status;
    char *path = NULL, *text = NULL;
    alibi_tokenizer *tokenizer = NULL;

    TRY(path_join(&path, folder, NAME_TOKENIZER));
    TRY(path_join(&text, folder, "built-in.txt"));
    if (file_exists(path)) {
        TRY(alibi_tokenizer_open(&tokenizer, path, NULL));
    } else if (t->count > 0) {
        TRY(alibi_tokenizer_train(&tokenizer, &t->words, (const char *const *)t->paths, t->count,
                                  &how->reading, call));
        TRY(alibi_tokenizer_write(tokenizer, path));
    } else {
        TRY(write_builtin(text, &how->builtin, call));
        TRY(alibi_tokenizer_train(&tokenizer, &t->words, (const char *const[]){ text }, 1,
                                  &how->reading, call));
        TRY(alibi_tokenizer_write(tokenizer, path));
        TRY(file_remove(text));
    }
    *out = tokenizer;
    tokenizer = NULL;
out:
    alibi_tokenizer_free(tokenizer);
    mem_free(text);
    mem_free(path);
    return status;
}

static alibi_status open_files(alibi_corpus **out, const struct experiment_text *t,
                               const alibi_tokenizer *tokenizer,
                               const struct alibi_experiment_run *how, const char *folder,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_tokenize_result counts;
    char *shards = NULL;

    TRY(path_join(&shards, folder, "shards"));
    TRY(alibi_tokenize(tokenizer, (const char *const *)t->paths, t->count, &how->reading,
                       SHARD_TOKENS, shards, &counts, call));
    TRY(alibi_corpus_open(out, (const char *const[]){ shards }, 1, t->valid, tokenizer,
                          &how->reading, call));
out:
    mem_free(shards);
    return status;
}

static alibi_status open_corpus(alibi_corpus **out, const struct experiment_text *t,
                                const struct alibi_experiment_run *how, const char *folder,
                                const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;
    alibi_tokenizer *tokenizer = NULL;
    bool shards = false;

    if (t->count > 0)
        TRY(shards_recognise(&shards, t->paths[0]));
    if (shards)
        call_note(call, "text '%s': token shards, with their own tokenizer", t->name);
    if (!shards && t->tokenizer != TEXT_BYTES) {
        TRY(folder_create(folder));
        TRY(open_tokenizer(&tokenizer, t, how, folder, call));
    }
    if (t->count == 0)
        TRY(alibi_corpus_builtin(out, (uint64_t)how->builtin.seed, how->builtin.bytes, tokenizer,
                                 call));
    else if (tokenizer == NULL)
        TRY(alibi_corpus_open(out, (const char *const *)t->paths, t->count, t->valid, NULL,
                              &how->reading, call));
    else
        TRY(open_files(out, t, tokenizer, how, folder, call));
out:
    alibi_tokenizer_free(tokenizer);
    return status;
}

/* Whether some model is evaluated on this text. */
static bool scores_text(const alibi_experiment *e, int evaluation, int text)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];

    for (int m = 0; m < e->models; m++)
        if (v->has[m] && (v->text < 0 ? e->model[m].text : v->text) == text)
            return v->kind == KIND_PERPLEXITY && v->protocol != ALIBI_STREAM;
    return false;
}

/* Every length has its tokens. The loss of token frequencies is found for each choice of them. */
static alibi_status measure_text(alibi_experiment *e, int text)
{
    struct experiment_text *t = &e->text[text];
    int64_t targets = corpus_span(t->corpus, ALIBI_VALID).count - 1;

    t->unigrams = 0;
    for (int v = 0; v < e->evaluations; v++) {
        struct alibi_eval eval = evaluation_at(e, v, 0);
        int64_t longest = e->evaluation[v].lengths.at[e->evaluation[v].lengths.count - 1];
        bool known = false;

        if (!scores_text(e, v, text))
            continue;
        if (longest > targets)
            return fail(ALIBI_BAD_INPUT,
                        "the validation %s '%s' has %lld tokens, but '%s' at length %lld needs "
                        "%lld; use more text",
                        t->own_valid ? "text of" : "split of", corpus_name(t->corpus),
                        (long long)targets + 1, e->evaluation[v].name, (long long)longest,
                        (long long)longest + 1);
        for (int i = 0; i < t->unigrams; i++)
            known |= t->unigram[i].tokens == eval.tokens && t->unigram[i].block == eval.block;
        if (known)
            continue;
        t->unigram[t->unigrams].tokens = eval.tokens;
        t->unigram[t->unigrams].block = eval.block;
        TRY_RETURN(
            alibi_corpus_unigram(t->corpus, ALIBI_VALID, &eval, &t->unigram[t->unigrams].nll));
        t->unigrams++;
    }
    return ALIBI_OK;
}

alibi_status text_open(alibi_experiment *e, int text, const struct alibi_experiment_run *how,
                       const char *dir, const struct alibi_call *call)
{
    alibi_status status;
    struct experiment_text *t = &e->text[text];
    char *folder = NULL;
    int64_t checksum;

    if (t->corpus != NULL)
        return ALIBI_OK;
    if (t->count == 0 && t->builtin.bytes == 0 && t->text_checksum != 0)
        return fail(ALIBI_USAGE,
                    "the models of '%s' were trained on '%s'; give that text again to continue",
                    dir, t->info.name);
    if (t->count == 0)
        call_note(call, "text '%s': no files were given; this is the built-in text, not %s",
                  t->name, t->about[0] != '\0' ? t->about : "a real one");
    TRY(folder_of_text(&folder, e, text, dir));
    TRY(open_corpus(&t->corpus, t, how, folder, call));
    checksum = corpus_checksum(t->corpus);
    if (t->text_checksum != 0 && t->text_checksum != checksum) {
        status = fail(ALIBI_BAD_INPUT,
                      "'%s' holds results of another text '%s' (%s), or of another tokenizer; use "
                      "another --out, or that text",
                      dir, t->name, t->info.name);
        goto out;
    }
    alibi_corpus_get_info(t->corpus, ALIBI_ALL, &t->info);
    if (t->count > 0) /* not that of the shards made from it */
        snprintf(t->info.name, sizeof t->info.name, "%s", t->paths[0]);
    t->text_checksum = checksum;
    t->tokenizer_checksum = tokenizer_checksum(corpus_tokenizer(t->corpus));
    t->own_valid = corpus_has_own_valid(t->corpus);
    t->builtin = corpus_builtin(t->corpus);
    snprintf(t->type, sizeof t->type, "%s", alibi_tokenizer_type(corpus_tokenizer(t->corpus)));
    TRY(measure_text(e, text));
    TRY(folder_save_text(e, text, dir));
out:
    mem_free(folder);
    return status;
}
