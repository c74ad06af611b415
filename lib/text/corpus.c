/* corpus.c - text or shards as tokens, in three splits
 *
 * All documents follow each other, each with its end token if the tokenizer has one. A split is a
 * range of that:
 *
 *   0 ... train ... cuts[1] ... validation ... cuts[2] ... test ... cuts[3] = count */
#include <math.h>
#include <string.h>

#include "text/corpus.h"

static const double report_seconds = 0.2;

/* ---- where the splits are cut */

/* The first line start in from..from + reach, else the first character that starts from there. */
static int64_t cut_at(const alibi_corpus *c, int64_t from, int64_t reach)
{
    int64_t i = from;

    for (int64_t line = from; line > 0 && line <= from + reach && line < c->count; line++)
        if (corpus_starts_line(c, line))
            return line;
    for (; i < c->count; i++) {
        size_t bytes;
        const char *text = corpus_bytes(c, i, &bytes);

        if (bytes == 0 || !utf8_continues(text[0]))
            break;
    }
    return i;
}

static void cut_by_length(alibi_corpus *c)
{
    int64_t part = c->count / 20, reach = c->count / 40;

    c->cuts[1] = cut_at(c, c->count - 2 * part, reach);
    c->cuts[2] = cut_at(c, c->count - part, reach);
}

/* The checksum of the tokens so far. */
static uint32_t checksum_tokens(alibi_corpus *c)
{
    uint32_t crc = 0;

    for (int i = 0; i < c->shards.count; i++) {
        struct shard *s = &c->shards.at[i];
        if (s->mapping == NULL)
            shard_seal(s);
        crc = checksum_join(crc, s->checksum, (size_t)(s->count * s->width));
    }
    return crc;
}

/* The corpus has all its tokens. */
static void seal(alibi_corpus *c)
{
    c->checksum = checksum_tokens(c);
    c->cuts[SPLITS] = c->count;
}

/* ---- making one */

static alibi_status new_corpus(alibi_corpus **out, const char *name, const alibi_tokenizer *t)
{
    alibi_status status;
    alibi_corpus *c = NULL;

    TRY(NEW_ZERO_ARRAY(&c, 1, "a corpus"));
    TRY(text_copy(&c->name, name));
    c->indexed = true;
    if (t != NULL)
        c->tokenizer = tokenizer_share(t);
    *out = c;
    c = NULL;
out:
    alibi_corpus_free(c);
    return status;
}

void alibi_corpus_free(alibi_corpus *c)
{
    if (c == NULL)
        return;
    for (int i = c->borrows; i < c->part_count; i++)
        alibi_corpus_free(c->parts[i]);
    mem_free(c->parts);
    mem_free(c->shares);
    task_free(c->task);
    alibi_tokenizer_free(c->tokenizer);
    mem_free(c->name);
    origin_fini(&c->origin);
    shards_fini(&c->shards);
    mem_free(c);
}

/* An id takes as many bytes as in a shard of that vocabulary. */
static alibi_status add_ids(alibi_corpus *c, const int32_t *ids, int64_t count)
{
    int width = alibi_tokenizer_vocab(c->tokenizer) <= UINT16_MAX + 1 ? 2 : 4;

    TRY_RETURN(shards_append(&c->shards, ids, count, width));
    c->indexed = false;
    c->count = shards_tokens(&c->shards);
    return ALIBI_OK;
}

static alibi_status need_tokenizer(alibi_corpus *c)
{
    return c->tokenizer != NULL ? ALIBI_OK : tokenizer_new_bytes(&c->tokenizer);
}

/* ---- text */

/* The ends of documents, as indices of tokens. */
struct ends {
    int64_t *at, count, capacity;
};

static alibi_status report(const struct source *source, double started, double *reported,
                           const struct alibi_call *call)
{
    double now = clock_seconds(), seconds = now - started;
    int64_t done = source_bytes_done(source), total = source_bytes_total(source);

    if (call_stopped(call))
        return fail(ALIBI_INTERRUPTED, "stopped after %lld bytes of text", (long long)done);
    if (now - *reported < report_seconds)
        return ALIBI_OK;
    *reported = now;
    call_progress(call, &(struct alibi_progress){
                            .task = "read text",
                            .unit = "bytes",
                            .done = done,
                            .total = total,
                            .seconds = seconds,
                            .seconds_left = seconds_left(seconds, done, total),
                            .loss = NAN,
                        });
    return ALIBI_OK;
}

/* Appends the tokens of a source, and the ends of its documents unless `ends` is NULL. */
static alibi_status add_source(alibi_corpus *c, struct source *source, struct ends *ends,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct encoding *encoding = NULL;
    double started = clock_seconds(), reported = started;
    struct encoded some;

    TRY(need_tokenizer(c));
    TRY(encoding_open(&encoding, source, c->tokenizer, ENCODING_BLOCK_BYTES));
    do {
        TRY(encoding_next(encoding, &some));
        if (ends != NULL)
            TRY(RESERVE_ARRAY(&ends->at, &ends->capacity, ends->count + some.end_count,
                              "the ends of documents"));
        for (int64_t i = 0; ends != NULL && i < some.end_count; i++)
            ends->at[ends->count++] = c->count + some.ends[i];
        TRY(add_ids(c, some.ids, some.count));
        c->documents += some.end_count;
        TRY(report(source, started, &reported, call));
    } while (some.count > 0);
out:
    encoding_close(encoding);
    return status;
}

/* Some tokenizers make no tokens of some texts. */
static alibi_status need_tokens(const alibi_corpus *c, int64_t before, const char *name)
{
    return c->count > before ? ALIBI_OK : fail(ALIBI_BAD_INPUT, "'%s' is empty", name);
}

static alibi_status add_texts(alibi_corpus *c, const char *const *paths, int count,
                              const struct alibi_reading *reading, const struct alibi_call *call)
{
    alibi_status status;
    struct source *source = NULL;
    int64_t before = c->count;

    TRY(source_open(&source, paths, count, reading, call));
    TRY(add_source(c, source, NULL, call));
    TRY(need_tokens(c, before, paths[0]));
out:
    source_close(source);
    return status;
}

alibi_status alibi_corpus_texts(alibi_corpus **out, const char *const *texts, const size_t *bytes,
                                int64_t count, const alibi_tokenizer *t,
                                const struct alibi_call *call)
{
    alibi_status status;
    struct source *source = NULL;
    alibi_corpus *c = NULL;

    TRY(source_open_texts(&source, texts, bytes, count));
    TRY(new_corpus(&c, "texts", t));
    TRY(add_source(c, source, NULL, call));
    TRY(need_tokens(c, 0, c->name));
    seal(c);
    cut_by_length(c);
    *out = c;
    c = NULL;
out:
    source_close(source);
    alibi_corpus_free(c);
    return status;
}

/* ---- the built-in text */

/* Its documents are independent of each other, so the splits are whole documents: the last
 * twentieth of them is for testing, the one before it for validation. */
static void cut_by_document(alibi_corpus *c, const struct ends *ends)
{
    int64_t part = ends->count < 20 ? 1 : ends->count / 20;

    for (int split = 1; split < SPLITS; split++) {
        int64_t last = ends->count - (SPLITS - split) * part;
        c->cuts[split] = last > 0 ? ends->at[last - 1] : 0;
    }
}

alibi_status alibi_corpus_builtin(alibi_corpus **out, uint64_t seed, int64_t bytes,
                                  const alibi_tokenizer *t, const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_builtin which = { seed > INT64_MAX ? -1 : (int64_t)seed, bytes };
    struct source *source = NULL;
    struct ends ends = { 0 };
    alibi_corpus *c = NULL;

    TRY(source_open_builtin(&source, &which));
    TRY(new_corpus(&c, "built-in text", t));
    TRY(add_source(c, source, &ends, call));
    seal(c);
    cut_by_document(c, &ends);
    c->builtin = which;
    *out = c;
    c = NULL;
out:
    mem_free(ends.at);
    source_close(source);
    alibi_corpus_free(c);
    return status;
}

/* ---- shards */

/* All parts of a corpus have one tokenizer. */
static alibi_status agree_on_tokenizer(alibi_corpus *c, const alibi_tokenizer *own,
                                       const char *path)
{
    if (c->tokenizer == NULL)
        c->tokenizer = tokenizer_share(own);
    if (tokenizer_checksum(c->tokenizer) == tokenizer_checksum(own))
        return ALIBI_OK;
    return fail(ALIBI_BAD_INPUT,
                "'%s' was tokenized with another tokenizer (%s, %lld ids) than the one in use "
                "(%s, %lld ids)",
                path, alibi_tokenizer_type(own), (long long)alibi_tokenizer_vocab(own),
                alibi_tokenizer_type(c->tokenizer), (long long)alibi_tokenizer_vocab(c->tokenizer));
}

static alibi_status open_shards(alibi_corpus *c, const char *path, const struct alibi_call *call)
{
    alibi_status status;
    struct shard_index index = { 0 };
    alibi_tokenizer *own = NULL;
    bool has_index;

    TRY(shards_open(&c->shards, &index, &has_index, &own, path, call));
    if (own != NULL)
        TRY(agree_on_tokenizer(c, own, path));
    c->indexed = c->indexed && has_index;
    c->unknown = c->unknown || !has_index;
    c->documents += index.documents;
    c->words += index.words;
    c->bytes += index.bytes;
out:
    shard_index_fini(&index);
    alibi_tokenizer_free(own);
    return status;
}

static alibi_status add_shards(alibi_corpus *c, const char *const *paths, int count,
                               const struct alibi_call *call)
{
    int before = c->shards.count;

    for (int i = 0; i < count; i++)
        TRY_RETURN(open_shards(c, paths[i], call));
    if (c->tokenizer == NULL)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has no tokenizer; give the one that made its tokens with --tokenizer",
                    paths[0]);
    for (int i = before; i < c->shards.count; i++)
        TRY_RETURN(shard_check(&c->shards.at[i], alibi_tokenizer_vocab(c->tokenizer)));
    c->count = shards_tokens(&c->shards);
    return ALIBI_OK;
}

/* ---- any files */

static alibi_status recognise(bool *shards, const char *const *paths, int count)
{
    bool first, next;

    TRY_RETURN(shards_recognise(&first, paths[0]));
    for (int i = 1; i < count; i++) {
        TRY_RETURN(shards_recognise(&next, paths[i]));
        if (next != first)
            return fail(ALIBI_BAD_INPUT, "'%s' holds tokens and '%s' text; give files of one kind",
                        paths[first ? 0 : i], paths[first ? i : 0]);
    }
    *shards = first;
    return ALIBI_OK;
}

static alibi_status add_paths(alibi_corpus *c, const char *const *paths, int count,
                              const struct alibi_reading *reading, const struct alibi_call *call)
{
    bool shards = false;

    TRY_RETURN(recognise(&shards, paths, count));
    return shards ? add_shards(c, paths, count, call) : add_texts(c, paths, count, reading, call);
}

/* A path or an option that is wrong shows before other text is read, which may take minutes. */
static alibi_status check_valid(const char *valid, const struct alibi_reading *reading,
                                const struct alibi_call *call)
{
    struct source *source = NULL;
    bool shards;

    TRY_RETURN(recognise(&shards, &valid, 1));
    if (shards)
        return ALIBI_OK;
    TRY_RETURN(source_open(&source, &valid, 1, reading, call));
    source_close(source);
    return ALIBI_OK;
}

/* The corpus is sealed: `train` tokens of files, then those of the validation text. If these are
 * the same, the checksum is that of the files twice. */
static alibi_status warn_of_overlap(const alibi_corpus *c, int64_t train,
                                    const struct alibi_call *call)
{
    size_t bytes = (size_t)(train * c->shards.at[0].width);
    bool overlaps;

    TRY_RETURN(origin_overlaps(&c->origin, &overlaps));
    if (overlaps || (c->count == 2 * train &&
                     c->checksum == checksum_join(c->files_checksum, c->files_checksum, bytes)))
        call_warn(call,
                  "the validation text '%s' is also text to train on, so validation does not "
                  "show how the model does on new text; give other text with --valid",
                  c->origin.valid);
    return ALIBI_OK;
}

alibi_status alibi_corpus_open(alibi_corpus **out, const char *const *paths, int count,
                               const char *valid, const alibi_tokenizer *t,
                               const struct alibi_reading *reading, const struct alibi_call *call)
{
    alibi_status status;
    alibi_corpus *c = NULL;
    int64_t train;

    if (count < 1)
        return fail(ALIBI_USAGE, "a corpus needs at least one file");
    TRY(new_corpus(&c, paths[0], t));
    TRY(origin_init(&c->origin, paths, count, valid, reading));
    c->paths = count + (valid != NULL);
    if (valid != NULL)
        TRY(check_valid(valid, reading, call));
    TRY(add_paths(c, paths, count, reading, call));
    train = c->count;
    if (valid != NULL) {
        c->own_valid = true;
        c->files_checksum = checksum_tokens(c);
        TRY(add_paths(c, &valid, 1, reading, call));
    }
    seal(c);
    if (valid == NULL) {
        cut_by_length(c);
    } else { /* the validation split is a text of its own, and there is no test split */
        c->cuts[1] = train;
        c->cuts[2] = c->count;
        TRY(warn_of_overlap(c, train, call));
    }
    *out = c;
    c = NULL;
out:
    alibi_corpus_free(c);
    return status;
}

/* ---- tasks */

alibi_status alibi_corpus_task(alibi_corpus **out, const char *name, const alibi_tokenizer *t)
{
    enum { VERSION = 1 }; /* of the windows: a run resumes only with those it was trained on */
    alibi_status status;
    alibi_corpus *c = NULL;
    struct text full = { 0 };
    int kind;

    TRY(task_named(&kind, name));
    text_append(&full, "task:%s", alibi_task_name(kind, NULL));
    TRY(text_status(&full));
    TRY(new_corpus(&c, full.data, t));
    TRY(need_tokenizer(c));
    TRY(task_new(&c->task, kind, c->tokenizer));
    c->checksum = checksum(VERSION, full.data, full.length);
    *out = c;
    c = NULL;
out:
    text_free(&full);
    alibi_corpus_free(c);
    return status;
}

bool corpus_is_task(const alibi_corpus *c)
{
    return c->task != NULL;
}

struct task_windows corpus_task_windows(const alibi_corpus *c, int i, enum task_use use,
                                        int64_t length, uint64_t seed)
{
    struct task_windows w = {
        .task = corpus_part(c, i)->task, .near = length, .length = length, .seed = seed, .use = use
    };

    for (int k = corpus_parts(c) - 1; k >= 0; k--)
        if (!corpus_is_task(corpus_part(c, k)))
            w.text = corpus_span(corpus_part(c, k), use == TASK_TRAIN ? ALIBI_TRAIN : ALIBI_VALID);
    return w;
}

/* ---- mixtures */

static alibi_status check_parts(alibi_corpus *const *parts, const double *shares, int count)
{
    if (count < 2 || count > CORPUS_PARTS_MAX)
        return fail(ALIBI_USAGE, "a mixture has 2 to %d texts; %d are given", CORPUS_PARTS_MAX,
                    count);
    for (int i = 0; i < count; i++) {
        if (parts[i]->part_count > 0)
            return fail(ALIBI_USAGE, "'%s' is a mixture itself", parts[i]->name);
        if (!(shares[i] > 0 && shares[i] <= 1e6))
            return fail(ALIBI_USAGE, "'%s': share %g must be above 0 and at most 1e6",
                        parts[i]->name, shares[i]);
        if (tokenizer_checksum(parts[i]->tokenizer) != tokenizer_checksum(parts[0]->tokenizer))
            return fail(ALIBI_BAD_INPUT,
                        "'%s' and '%s' have different tokenizers; tokenize both with the same one",
                        parts[0]->name, parts[i]->name);
    }
    return ALIBI_OK;
}

alibi_status alibi_corpus_mix(alibi_corpus **out, alibi_corpus *const *parts, const double *shares,
                              int count)
{
    alibi_status status;
    alibi_corpus *c = NULL;
    struct text name = { 0 };
    double sum = 0;

    TRY_RETURN(check_parts(parts, shares, count));
    text_append(&name, "%s and %d more", parts[0]->name, count - 1);
    TRY(text_status(&name));
    TRY(new_corpus(&c, name.data, parts[0]->tokenizer));
    TRY(NEW_ZERO_ARRAY(&c->parts, count, "the parts of a mixture"));
    TRY(NEW_ZERO_ARRAY(&c->shares, count, "the shares of a mixture"));
    for (int i = 0; i < count; i++)
        sum += shares[i];
    if (fabs(sum - 1) < 1e-9) /* shares of a mixture that is opened again stay what they are */
        sum = 1;
    for (int i = 0; i < count; i++) {
        c->shares[i] = shares[i] / sum;
        c->checksum = checksum(c->checksum, &parts[i]->checksum, sizeof parts[i]->checksum);
        c->checksum = checksum(c->checksum, &c->shares[i], sizeof c->shares[i]);
        c->paths += parts[i]->paths;
    }
    for (; c->part_count < count; c->part_count++)
        c->parts[c->part_count] = parts[c->part_count];
    *out = c;
    c = NULL;
out:
    text_free(&name);
    alibi_corpus_free(c);
    return status;
}

alibi_status corpus_mix_tasks(alibi_corpus **out, alibi_corpus *text,
                              const struct alibi_name_list *tasks, const double *shares)
{
    alibi_status status = ALIBI_OK;
    alibi_corpus *parts[CORPUS_PARTS_MAX] = { text };
    double all[CORPUS_PARTS_MAX] = { 1 };
    int made = 0, first;

    if (tasks->count >= CORPUS_PARTS_MAX)
        return fail(ALIBI_USAGE, "a mixture has at most %d tasks; %d are given",
                    CORPUS_PARTS_MAX - 1, tasks->count);
    for (; made < tasks->count; made++) {
        TRY(alibi_corpus_task(&parts[1 + made], tasks->at[made], text->tokenizer));
        all[1 + made] = shares[made];
        all[0] -= shares[made];
    }
    first = all[0] < 1e-9; /* tasks that fill all windows leave no share to the text */
    if (first == 1 && made == 1) {
        *out = parts[1];
    } else {
        TRY(alibi_corpus_mix(out, parts + first, all + first, 1 + made - first));
        (*out)->borrows = first == 0;
    }
    made = 0; /* the mixture owns them */
out:
    for (int i = 0; i < made; i++)
        alibi_corpus_free(parts[1 + i]);
    return status;
}

int corpus_parts(const alibi_corpus *c)
{
    return c->part_count > 0 ? c->part_count : 1;
}

const alibi_corpus *corpus_part(const alibi_corpus *c, int i)
{
    return c->part_count > 0 ? c->parts[i] : c;
}

double corpus_share(const alibi_corpus *c, int i)
{
    return c->part_count > 0 ? c->shares[i] : 1;
}

/* ---- using one */

struct span corpus_span(const alibi_corpus *c, enum alibi_split split)
{
    if (split == ALIBI_ALL)
        return (struct span){ .corpus = c, .count = c->count };
    return (struct span){ .corpus = c,
                          .first = c->cuts[split],
                          .count = c->cuts[split + 1] - c->cuts[split] };
}

const alibi_tokenizer *alibi_corpus_view_tokenizer(const alibi_corpus *c)
{
    return c->tokenizer;
}

const alibi_tokenizer *corpus_tokenizer(const alibi_corpus *c)
{
    return c->tokenizer;
}

const char *corpus_name(const alibi_corpus *c)
{
    return c->name;
}

struct alibi_builtin corpus_builtin(const alibi_corpus *c)
{
    return c->builtin;
}

uint32_t corpus_checksum(const alibi_corpus *c)
{
    return c->checksum;
}

bool corpus_has_own_valid(const alibi_corpus *c)
{
    return c->own_valid;
}

uint32_t corpus_files_checksum(const alibi_corpus *c)
{
    return c->own_valid ? c->files_checksum : c->checksum;
}
