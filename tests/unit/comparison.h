/* comparison.h - a comparison that takes moments, for the tests of lib/compare */
#ifndef COMPARISON_H
#define COMPARISON_H

#include "base/os.h"
#include "base/json.h"
#include "base/names.h"
#include "compare/compare.h"
#include "check.h"
#include "device.h"

enum { TEXT_BYTES = 6000 };

/* Words drawn from a short list: enough for a model to learn something from. */
static inline alibi_corpus *new_corpus(void)
{
    static const char *const words[] = { "the ",    "boat ",  "key ", "of ",     "a ",
                                         "house\n", "opens ", "and ", "sinks.\n" };
    char text[TEXT_BYTES + 16];
    size_t length = 0;
    const char *texts[1] = { text };
    alibi_corpus *c = NULL;

    for (uint64_t i = 0; length < TEXT_BYTES; i++) {
        const char *word = words[random_below(1, 1, i, sizeof words / sizeof *words)];

        memcpy(text + length, word, strlen(word) + 1);
        length += strlen(word);
    }
    assert_ok(corpus_from_texts(&c, texts, 1));
    return c;
}

struct setting {
    struct alibi_compare compare;
    struct alibi_config config;
    struct alibi_training training;
    alibi_corpus *corpus;
};

static inline void set_defaults(struct setting *s)
{
    struct alibi_option_group groups[2] = { { .title = "model", .values = &s->config },
                                            { .title = "training", .values = &s->training } };

    memset(s, 0, sizeof *s);
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    assert_ok(alibi_options_init(groups, 2));
}

static inline struct setting tiny(void)
{
    struct setting s;

    set_defaults(&s);
    s.compare = (struct alibi_compare){ .methods = { 2, { "alibi", "learned" } },
                                        .lengths = { 3, { 32, 8, 64 } } };
    s.compare.sliding_tokens = 200;
    s.compare.stream_tokens = 150;
    s.config.layers = 1;
    s.config.width = 8;
    s.config.heads = 2;
    s.training.train_length = 32;
    s.training.batch = 2;
    s.training.steps = 6;
    s.training.warmup = 2;
    s.training.save_every = 4;
    s.corpus = new_corpus();
    return s;
}

/* Stops at the n-th progress report, counted from 1; 0: never. */
struct stopper {
    int reports, stop_at;
    struct alibi_stop stop;
};

static inline void count_report(void *user, const struct alibi_progress *p)
{
    struct stopper *s = user;

    (void)p;
    if (++s->reports == s->stop_at)
        alibi_stop_request(&s->stop);
}

static inline alibi_status run_with_stop(const struct setting *s, const char *dir, int stop_at,
                                         struct alibi_compare_result **out)
{
    struct stopper stopper = { .stop_at = stop_at };
    struct alibi_call call = { &stopper, .progress = count_report, .stop = &stopper.stop };

    return alibi_compare_run(test_device(), &s->compare, &s->config, &s->training, s->corpus, dir,
                             out, &call);
}

static inline alibi_status run(const struct setting *s, const char *dir,
                               struct alibi_compare_result **out)
{
    return alibi_compare_run(test_device(), &s->compare, &s->config, &s->training, s->corpus, dir,
                             out, test_call());
}

static inline alibi_status try_run(const struct setting *s, const char *dir)
{
    struct alibi_compare_result *result = NULL;
    alibi_status status = run(s, dir, &result);

    alibi_compare_free(result);
    return status;
}

static inline void assert_same_evals(const struct alibi_eval_result *x,
                                     const struct alibi_eval_result *y, int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(x[i].tokens, y[i].tokens);
        if (x[i].tokens > 0)
            assert_true(x[i].nll == y[i].nll && x[i].standard_error == y[i].standard_error);
    }
}

static inline void assert_same_seed(const struct alibi_compare_seed *x,
                                    const struct alibi_compare_seed *y)
{
    assert_int_equal(x->seed, y->seed);
    assert_true(x->train_loss == y->train_loss);
    assert_int_equal(x->lengths, y->lengths);
    assert_int_equal(x->sliding_lengths, y->sliding_lengths);
    assert_same_evals(x->by_length, y->by_length, x->lengths);
    assert_same_evals(x->sliding, y->sliding, x->sliding_lengths);
    assert_same_evals(&x->stream, &y->stream, 1);
}

static inline void assert_same_losses(const struct alibi_compare_result *a,
                                      const struct alibi_compare_result *b)
{
    assert_int_equal(a->methods, b->methods);
    for (int m = 0; m < a->methods; m++) {
        assert_string_equal(a->method[m].name, b->method[m].name);
        assert_int_equal(a->method[m].seeds, b->method[m].seeds);
        for (int k = 0; k < a->method[m].seeds; k++)
            assert_same_seed(&a->method[m].seed[k], &b->method[m].seed[k]);
    }
}

#endif
