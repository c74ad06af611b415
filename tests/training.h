/* training.h - a model and a text so small that a run takes milliseconds, and ways to compare runs
 * byte by byte */
#ifndef TRAINING_H
#define TRAINING_H

#include "check.h"
#include "device.h"
#include "base/json.h"
#include "text/text.h"
#include "checkpoint/parts.h"
#include "train/train.h"

/* ---- the model and the text */

static inline void tiny_defaults(struct alibi_config *config, struct alibi_training *training)
{
    struct alibi_option_group groups[] = { { .title = "model", .values = config },
                                           { .title = "training", .values = training } };

    memset(config, 0, sizeof *config);
    memset(training, 0, sizeof *training);
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    assert_ok(alibi_options_init(groups, 2));
}

static inline struct alibi_config tiny_config(void)
{
    struct alibi_config config;
    struct alibi_training training;

    tiny_defaults(&config, &training);
    config.layers = 1;
    config.width = 4;
    config.heads = 2;
    config.ff_width = 8;
    return config;
}

/* Accumulation and dropout are on: their random numbers must survive a resume too. */
static inline struct alibi_training tiny_training(int64_t steps, int64_t save_every)
{
    struct alibi_config config;
    struct alibi_training training;

    tiny_defaults(&config, &training);
    training.train_length = 8;
    training.batch = 2;
    training.accumulate = 2;
    training.steps = steps;
    training.save_every = save_every;
    training.eval_every = 0; /* tests of validation say how often */
    training.warmup = 3;
    training.lr = 0.01;
    training.dropout = 0.1;
    training.attention_dropout = 0.1;
    training.activation_dropout = 0.1;
    return training;
}

static inline alibi_corpus *tiny_corpus(const char *word)
{
    enum { WORDS = 400 };
    char text[WORDS * 16] = "";
    const char *texts[] = { text, text };
    size_t used = 0;
    alibi_corpus *corpus = NULL;

    for (int i = 0; i < WORDS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%.6s %d%s", word, i * i % 97,
                                 i % 8 == 7 ? "\n" : " ");
    assert_ok(corpus_from_texts(&corpus, texts, 2));
    return corpus;
}

/* A vocabulary of four words, `word` and "the" among them. */
static inline alibi_tokenizer *tiny_tokenizer(const char *word)
{
    const struct slice words[] = {
        { "<unk>", 5 }, { "<eos>", 5 }, { "the", 3 }, { word, strlen(word) }
    };
    alibi_tokenizer *t = NULL;

    assert_ok(tokenizer_new_words(&t, words, 4));
    return t;
}

static inline alibi_corpus *tiny_words_corpus(const char *word)
{
    alibi_tokenizer *t = tiny_tokenizer(word);
    alibi_corpus *corpus = NULL;

    assert_ok(alibi_corpus_builtin(&corpus, 1, 8000, t, test_call()));
    alibi_tokenizer_free(t);
    return corpus;
}

/* ---- models of bytes, with weights that matter */

static inline struct alibi_config tiny_bytes_config(const char *position, int64_t layers,
                                                    int64_t train_length)
{
    struct alibi_config c;
    struct alibi_training training;

    tiny_defaults(&c, &training);
    c.vocab = 257;
    c.layers = layers;
    c.width = 16;
    c.heads = 2;
    c.tied = false;
    c.train_length = train_length;
    snprintf(c.position, sizeof c.position, "%s", position);
    assert_ok(alibi_config_resolve(&c));
    return c;
}

/* Weights of a size at which every part of the model matters and losses differ from token to token;
 * norms stay near one. */
static inline void randomise(struct model *m, uint64_t seed, double size)
{
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        float *values = NULL;
        assert_ok(NEW_ARRAY(&values, p->count, "weights"));
        for (int64_t k = 0; k < p->count; k++)
            values[k] = (float)((p->init == INIT_ONE) +
                                size * random_normal(seed, (uint64_t)i, (uint64_t)k));
        assert_ok(m->device->ops->upload(m->device, parameter_slice(m, p, m->values), values));
        mem_free(values);
    }
    assert_ok(model_refresh(m));
}

/* ---- where */

/* A save syncs a dozen times. In memory that costs nothing, and what the tests show does not depend
 * on it. */
static inline char *fast_folder(void)
{
    if (getenv("TMPDIR") == NULL && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return temporary_folder();
}

/* A path, in one of sixteen buffers that are used in turn. */
static inline const char *path_at(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline const char *path_at(const char *format, ...)
{
    static char paths[16][512];
    static int turn;
    char *path = paths[turn++ % 16];
    va_list arguments;

    va_start(arguments, format);
    assert_true(vsnprintf(path, sizeof paths[0], format, arguments) < (int)sizeof paths[0]);
    va_end(arguments);
    return path;
}

static inline const char *step_path(const char *run, int64_t step)
{
    return path_at("%s/step-%08lld", run, (long long)step);
}

/* ---- files */

static inline char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *content;
    long size;

    if (f == NULL)
        fail_msg("cannot open '%s'", path);
    fseek(f, 0, SEEK_END);
    size = ftell(f);
    rewind(f);
    content = malloc((size_t)size + 1);
    assert_non_null(content);
    assert_int_equal(fread(content, 1, (size_t)size, f), size);
    content[size] = '\0';
    fclose(f);
    *bytes = (size_t)size;
    return content;
}

static inline bool same_file(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    char *x = read_file(a, &a_bytes), *y = read_file(b, &b_bytes);
    bool same = a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;

    free(x);
    free(y);
    return same;
}

static inline void assert_same_file(const char *a, const char *b, const char *name)
{
    if (!same_file(path_at("%s/%s", a, name), path_at("%s/%s", b, name)))
        fail_msg("%s differs between '%s' and '%s'", name, a, b);
}

/* All parts and the manifest of the checkpoints of `step`, and the logs, are the same bytes. */
static inline void assert_same_run(const char *a, const char *b, int64_t step)
{
    char *x = strdup(a), *y = strdup(b); /* they may be in a buffer of path_at */

    assert_true(x && y);
    for (int i = 0; i <= PARTS; i++) {
        if (i == PART_PRODUCTS && access(path_at("%s/%s", step_path(x, step), part_names[i]), F_OK))
            continue; /* if only one has it, the manifests differ */
        assert_same_file(step_path(x, step), step_path(y, step),
                         i < PARTS ? part_names[i] : "manifest.json");
    }
    assert_same_file(x, y, "log.jsonl");
    free(x);
    free(y);
}

/* ---- calls */

/* A call that keeps what was logged and requests a stop at a step. */
struct listener {
    char log[1 << 16];
    size_t used;
    int64_t stop_at, steps;
    struct alibi_stop stop;
    struct alibi_call call;
};

static inline void listen_log(void *user, enum alibi_log_level level, const char *line)
{
    struct listener *l = user;
    int n = snprintf(l->log + l->used, sizeof l->log - l->used, "%s%s\n",
                     level == ALIBI_WARNING ? "warning: " : "", line);

    l->used += (size_t)n < sizeof l->log - l->used ? (size_t)n : 0;
}

static inline void listen_progress(void *user, const struct alibi_progress *p)
{
    struct listener *l = user;

    l->steps++;
    if (p->done == l->stop_at)
        alibi_stop_request(&l->stop);
}

static inline void listen_to(struct listener *l, int64_t stop_at)
{
    *l = (struct listener){ .stop_at = stop_at };
    l->call = (struct alibi_call){ l, listen_progress, listen_log, &l->stop, 0, NULL, NULL };
}

/* ---- whole runs */

/* A folder, the paths of two runs in it and of the last checkpoint of the second, and the model and
 * text. */
struct site {
    char *folder, whole[256], run[256], newest[300];
    alibi_corpus *corpus;
    struct alibi_config config;
    struct alibi_training training;
    alibi_device *device;
    struct listener listener;
    const struct alibi_call *call; /* of the next training; the listener's unless a test says so */
    struct alibi_train_result result;
};

/* The site listens to all callbacks; end with drop_site(). */
static inline struct site *new_site(int64_t steps, int64_t save_every)
{
    struct site *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->folder = fast_folder();
    snprintf(p->whole, sizeof p->whole, "%s/whole", p->folder);
    snprintf(p->run, sizeof p->run, "%s/run", p->folder);
    snprintf(p->newest, sizeof p->newest, "%s/step-%08lld", p->run, (long long)steps);
    p->corpus = tiny_corpus("river");
    p->config = tiny_config();
    p->training = tiny_training(steps, save_every);
    p->device = test_device();
    listen_to(&p->listener, 0);
    p->call = &p->listener.call;
    return p;
}

/* The teardown of a test or a group: whatever happened, nothing leaks. */
static inline int drop_site(void **state)
{
    struct site *p = *state;

    remove_temporary_folder(p->folder);
    alibi_corpus_free(p->corpus);
    free(p);
    return alibi_memory_now() != 0;
}

static inline alibi_model *open_model_at(const char *path)
{
    alibi_model *m = NULL;

    assert_ok(alibi_model_open(&m, test_device(), path, NULL));
    return m;
}

static inline alibi_status train_at(struct site *p, const char *run, bool resume)
{
    return alibi_train(p->device, &p->config, &p->training, p->corpus, run, resume, &p->result,
                       p->call);
}

#endif
