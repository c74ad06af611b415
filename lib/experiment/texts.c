/* texts.c - the text of an experiment as a corpus
 *
 *   files -> a tokenizer, learned from them once -> shards -> corpus
 *
 * The tokenizer and the shards stay in the folder of the text. Shards that the caller supplies have
 * their tokenizer, and bytes need none. */
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "eval/eval.h"
#include "experiment/experiment.h"

enum { SHARD_TOKENS = 100 << 20 };

#define FOLDER_SHARDS "shards"

/* ---- which text it is */

static alibi_status add_file(uint32_t *crc, int64_t *total, const char *path)
{
    struct mapping *mapping = NULL;
    const char *view;
    size_t bytes;

    TRY_RETURN(mapping_open(&mapping, path));
    view = mapping_view(mapping, &bytes);
    *crc = checksum(*crc, view, bytes);
    *total += (int64_t)bytes;
    mapping_close(mapping);
    return ALIBI_OK;
}

/* The checksum of the bytes of all files and of how they are read. Standard input can be read once
 * only: 0. */
static alibi_status files_checksum(int64_t *out, int64_t *bytes, const char *const *paths,
                                   int count, const struct alibi_reading *reading)
{
    alibi_status status;
    struct alibi_reading copy = *reading;
    struct alibi_option_group group = { .values = &copy };
    struct text how = { 0 };
    char **files = NULL;
    int file_count = 0;
    uint32_t crc;

    *out = *bytes = 0;
    group.options = alibi_reading_options(&group.count);
    TRY(options_format(&group, 1, &how));
    crc = checksum(0, how.data, how.length);
    for (int i = 0; i < count; i++) {
        int64_t size, modified;
        enum path_kind kind;

        if (strcmp(paths[i], "-") == 0)
            goto out;
        TRY(path_look(&kind, paths[i]));
        if (kind != PATH_FOLDER) {
            TRY(file_measure(&size, &modified, paths[i]));
            if (modified == 0)
                goto out;
            TRY(add_file(&crc, bytes, paths[i]));
            continue;
        }
        TRY(folder_list_files(&files, &file_count, paths[i]));
        for (int k = 0; k < file_count; k++)
            TRY(add_file(&crc, bytes, files[k]));
        names_free(files, file_count);
        files = NULL;
    }
    *out = crc;
out:
    if (files)
        names_free(files, file_count);
    text_free(&how);
    return status;
}

/* The text that was given: files, or the built-in text. */
struct given {
    int64_t files, bytes, valid;
    struct alibi_builtin builtin;
};

static alibi_status look_at_given(struct given *g, const struct experiment_text *t,
                                  const struct alibi_experiment_run *how)
{
    int64_t bytes;

    *g = (struct given){ 0 };
    if (t->count == 0) {
        g->builtin = how->builtin;
        return ALIBI_OK;
    }
    TRY_RETURN(files_checksum(&g->files, &g->bytes, (const char *const *)t->paths, t->count,
                              &how->reading));
    if (t->valid == NULL)
        return ALIBI_OK;
    return files_checksum(&g->valid, &bytes, (const char *const[]){ t->valid }, 1, &how->reading);
}

static bool is_same_given(const struct experiment_text *t, const struct given *g)
{
    return g->files == t->files_checksum && g->valid == t->valid_checksum &&
           g->builtin.seed == t->builtin.seed && g->builtin.bytes == t->builtin.bytes;
}

alibi_status text_check(const alibi_experiment *e, int text, const struct alibi_experiment_run *how,
                        const char *dir, const struct alibi_call *call)
{
    const struct experiment_text *t = &e->text[text];
    struct given g;

    TRY_RETURN(look_at_given(&g, t, how));
    if (t->text_checksum == 0 || is_same_given(t, &g))
        return ALIBI_OK;
    if (t->count > 0 && t->builtin.bytes == 0 && (t->files_checksum == 0 || g.files == 0)) {
        call_note(call, "'%s' does not have the checksum of '%s': it is taken for the same text",
                  dir, t->info.name);
        return ALIBI_OK;
    }
    if (t->count == 0 && t->builtin.bytes == 0)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' holds results of the text '%s' (%s), and none was given; give it again, "
                    "or use another --out; 'alibi report' needs no text",
                    dir, t->name, t->info.name);
    if (t->count > 0 && g.files == t->files_checksum)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' holds results of the text '%s' (%s) with another --valid; use another "
                    "--out, or that --valid",
                    dir, t->name, t->info.name);
    return fail(ALIBI_BAD_INPUT,
                "'%s' holds results of another text '%s' (%s), or it was read in another way; use "
                "another --out, or that text",
                dir, t->name, t->info.name);
}

/* ---- its approximate size, before it is read */

/* Adds the bytes of a file or a folder or, if it has shards with an index, their tokens. */
static alibi_status measure_path(double *bytes, double *tokens, const char *path)
{
    alibi_status status = ALIBI_OK;
    struct shard_index index = { 0 };
    char **files = NULL;
    int64_t size, modified;
    enum path_kind kind;
    bool shards;
    int count = 0;

    TRY(path_look(&kind, path));
    TRY(shards_recognise(&shards, path));
    if (shards) {
        TRY(shard_index_read(&index, path));
        *tokens += (double)index.tokens;
        goto out;
    }
    if (kind == PATH_FOLDER)
        TRY(folder_list_files(&files, &count, path));
    for (int i = 0; i < (files ? count : 1); i++) {
        const char *file = files ? files[i] : path, *dot = strrchr(file, '.');

        TRY(file_measure(&size, &modified, file));
        if (modified == 0 || (dot && (strcmp(dot, ".gz") == 0 || strcmp(dot, ".zst") == 0)))
            TRY(fail(ALIBI_BAD_INPUT, "'%s': its size says little about its text", file));
        *bytes += (double)size;
    }
out:
    if (files)
        names_free(files, count);
    shard_index_fini(&index);
    return status;
}

/* An estimate until the text is read. A text that uses another text's tokenizer has its ratio. */
static double bytes_per_token(const alibi_experiment *e, const struct experiment_text *t)
{
    static const double usual[TEXT_KINDS] = { [TEXT_BYTES] = 1, [TEXT_BPE] = 4, [TEXT_WORDS] = 5 };

    if (t->info.tokens > 0 && t->info.bytes > 0)
        return (double)t->info.bytes / (double)t->info.tokens;
    return t->tokenizer_of < 0 ? usual[t->tokenizer]
                               : bytes_per_token(e, &e->text[t->tokenizer_of]);
}

/* After a failure the size stays unknown; opening the text reports what is wrong. */
void text_estimate(alibi_experiment *e, int text)
{
    static const double valid_share = 0.05;
    struct experiment_text *t = &e->text[text];
    alibi_status status = ALIBI_OK;
    double bytes = 0, tokens = 0, share = t->valid ? 1 : valid_share;

    if (t->valid != NULL) {
        status = measure_path(&bytes, &tokens, t->valid);
    } else if (t->own_valid) {
        status = ALIBI_BAD_INPUT; /* the folder's, which was not given */
    } else if (t->info.tokens > 0) {
        tokens = (double)t->info.tokens;
    } else if (t->count > 0) {
        for (int i = 0; status == ALIBI_OK && i < t->count; i++)
            status = measure_path(&bytes, &tokens, t->paths[i]);
    } else {
        struct alibi_builtin builtin = { 0 };
        struct alibi_option_group group = { .values = &builtin };

        group.options = alibi_builtin_options(&group.count);
        status = alibi_options_init(&group, 1);
        bytes = (double)builtin.bytes;
    }
    t->estimated = status == ALIBI_OK ? floor(share * (tokens + bytes / bytes_per_token(e, t))) : 0;
}

double text_valid_tokens(const struct experiment_text *t)
{
    if (t->corpus != NULL)
        return (double)corpus_span(t->corpus, ALIBI_VALID).count;
    return t->estimated > 0 ? t->estimated : INFINITY;
}

/* ---- its corpus */

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

/* Learned from the text unless the folder has it already. text_open() has deleted a tokenizer other
 * than the requested one. */
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
                               const alibi_tokenizer *tokenizer, bool made,
                               const struct alibi_experiment_run *how, const char *folder,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_tokenize_result counts;
    char *shards = NULL;

    TRY(path_join(&shards, folder, FOLDER_SHARDS));
    if (!made)
        TRY(alibi_tokenize(tokenizer, (const char *const *)t->paths, t->count, &how->reading,
                           SHARD_TOKENS, shards, &counts, call));
    TRY(alibi_corpus_open(out, (const char *const[]){ shards }, 1, t->valid, tokenizer,
                          &how->reading, call));
out:
    mem_free(shards);
    return status;
}

/* `borrowed`: the tokenizer of another text, or NULL. made: the folder has the tokenizer and the
 * shards of the text. */
static alibi_status open_corpus(alibi_corpus **out, const struct experiment_text *t,
                                const alibi_tokenizer *borrowed, bool made,
                                const struct alibi_experiment_run *how, const char *folder,
                                const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;
    alibi_tokenizer *own = NULL;
    const alibi_tokenizer *tokenizer = borrowed;
    bool shards = false;

    if (t->count > 0)
        TRY(shards_recognise(&shards, t->paths[0]));
    if (shards)
        call_note(call, "text '%s': token shards, with their own tokenizer", t->name);
    if (!shards && (borrowed != NULL || t->tokenizer != TEXT_BYTES))
        TRY(folder_create(folder));
    if (!shards && t->tokenizer != TEXT_BYTES) {
        TRY(open_tokenizer(&own, t, how, folder, call));
        tokenizer = own;
    }
    if (t->count == 0)
        TRY(alibi_corpus_builtin(out, (uint64_t)how->builtin.seed, how->builtin.bytes, tokenizer,
                                 call));
    else if (shards || tokenizer == NULL)
        TRY(alibi_corpus_open(out, (const char *const *)t->paths, t->count, t->valid, NULL,
                              &how->reading, call));
    else
        TRY(open_files(out, t, tokenizer, made, how, folder, call));
out:
    alibi_tokenizer_free(own);
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

/* Checks that the text has enough tokens for every length, and computes the loss of token
 * frequencies for each choice of scored tokens. */
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
        if (protocol_is_foreign(eval.protocol)) {
            struct alibi_eval far = evaluation_at(e, v, e->evaluation[v].lengths.count - 1);
            alibi_status status = alibi_eval_check_text(t->corpus, ALIBI_VALID, &far);

            if (status != ALIBI_OK)
                return fail_context(status, "evaluation '%s'", e->evaluation[v].name);
        } else if (longest > targets) {
            return fail(ALIBI_BAD_INPUT,
                        "the validation %s '%s' has %lld tokens, but '%s' at length %lld needs "
                        "%lld; use more text",
                        t->own_valid ? "text of" : "split of", corpus_name(t->corpus),
                        (long long)targets + 1, e->evaluation[v].name, (long long)longest,
                        (long long)longest + 1);
        }
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

/* The folder records the text before anything is learned from it. A tokenizer and shards of another
 * text, on which no result depends yet, are deleted. */
static alibi_status begin_text(alibi_experiment *e, int text,
                               const struct alibi_experiment_run *how, const char *dir,
                               const char *folder)
{
    alibi_status status;
    struct experiment_text *t = &e->text[text];
    struct given g;
    char *shards = NULL;

    TRY(look_at_given(&g, t, how));
    if (t->same && (t->count == 0 || g.files != 0) && is_same_given(t, &g))
        goto out;
    TRY(path_join(&shards, folder, FOLDER_SHARDS));
    TRY(file_remove_within(folder, NAME_TOKENIZER));
    if (folder_exists(shards))
        TRY(folder_remove(shards));
    t->files_checksum = g.files;
    t->files_bytes = g.bytes;
    t->valid_checksum = g.valid;
    t->builtin = g.builtin;
    TRY(folder_save_text(e, text, dir));
out:
    mem_free(shards);
    return status;
}

/* Records the facts of the opened corpus, in the folder too. */
static alibi_status enter_text(alibi_experiment *e, int text, const char *dir)
{
    struct experiment_text *t = &e->text[text];

    alibi_corpus_get_info(t->corpus, ALIBI_ALL, &t->info);
    if (t->count > 0) { /* not those of the shards made from them */
        snprintf(t->info.name, sizeof t->info.name, "%s", t->paths[0]);
        t->info.paths = t->count + (t->valid != NULL);
    }
    t->tokenizer_checksum = tokenizer_checksum(corpus_tokenizer(t->corpus));
    t->own_valid = corpus_has_own_valid(t->corpus);
    t->builtin = corpus_builtin(t->corpus);
    snprintf(t->type, sizeof t->type, "%s", alibi_tokenizer_type(corpus_tokenizer(t->corpus)));
    TRY_RETURN(measure_text(e, text));
    t->text_checksum = corpus_checksum(t->corpus);
    return e->follows ? ALIBI_OK : folder_save_text(e, text, dir);
}

static bool need_text(const struct alibi_name_list *tasks)
{
    for (int i = 0; i < tasks->count; i++)
        if (task_kind_needs_text(task_find(tasks->at[i])))
            return true;
    return false;
}

bool text_is_read(const alibi_experiment *e, int text)
{
    for (int m = 0; m < e->models; m++) {
        double share = 1;

        for (int i = 0; i < e->model[m].mix.count; i++)
            share -= e->model[m].share[i];
        if (e->model[m].text == text && (share > 0 || need_text(&e->model[m].mix)))
            return true;
    }
    for (int v = 0; v < e->evaluations; v++) {
        const struct experiment_evaluation *x = &e->evaluation[v];
        bool reads = x->kind == KIND_TASKS ? need_text(&x->tasks.tasks) : x->kind != KIND_SPEED;

        for (int m = 0; reads && m < e->models; m++)
            if (x->has[m] && evaluated_text(e, m, v) == &e->text[text])
                return true;
    }
    for (int t = text + 1; t < e->texts; t++)
        if (e->text[t].tokenizer_of == text && text_is_read(e, t))
            return true;
    return false;
}

alibi_status text_open(alibi_experiment *e, int text, const struct alibi_experiment_run *how,
                       const char *dir, const struct alibi_call *call)
{
    alibi_status status;
    struct experiment_text *t = &e->text[text];
    const alibi_tokenizer *borrowed = NULL;
    alibi_corpus *corpus = NULL;
    char *folder = NULL;

    if (t->corpus != NULL)
        return ALIBI_OK;
    if (t->tokenizer_of >= 0) {
        TRY_RETURN(text_open(e, t->tokenizer_of, how, dir, call));
        borrowed = corpus_tokenizer(e->text[t->tokenizer_of].corpus);
    }
    if (t->count == 0 && text_is_read(e, text))
        call_note(call, "text '%s': no files were given; this is the built-in text, not %s",
                  t->name, t->about[0] != '\0' ? t->about : "a real one");
    TRY(folder_of_text(&folder, e, text, dir));
    if (t->text_checksum == 0)
        TRY(begin_text(e, text, how, dir, folder));
    TRY(open_corpus(&corpus, t, borrowed, e->follows, how, folder, call));
    if (t->text_checksum != 0 && t->text_checksum != corpus_checksum(corpus))
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' holds results of another text '%s' (%s), or of another tokenizer; use "
                 "another --out, or that text",
                 dir, t->name, t->info.name));
    t->corpus = corpus;
    corpus = NULL;
    TRY(enter_text(e, text, dir));
out:
    alibi_corpus_free(corpus);
    mem_free(folder);
    return status;
}
