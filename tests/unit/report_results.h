/* report_results.h - results to report on: ordinary, full, single, empty, missing, infinite,
 * hostile */
#ifndef REPORT_RESULTS_H
#define REPORT_RESULTS_H

#include "unit/report_check.h"

enum { METHODS = 4, LENGTHS = 3 };

/* A result with room for lists as long as they get, and for three seeds. */
enum { SEEDS = 3 };

struct full {
    struct alibi_compare_result result; /* first: who frees the result frees it all */
    struct alibi_compare_method method[ALIBI_LIST_MAX];
    struct alibi_compare_seed seed[ALIBI_LIST_MAX][SEEDS];
    struct alibi_eval_result by_length[ALIBI_LIST_MAX][SEEDS][ALIBI_LIST_MAX],
        sliding[ALIBI_LIST_MAX][SEEDS][ALIBI_LIST_MAX];
};

/* Copies what a training gave, into the room of another. */
static inline void copy_seed(struct alibi_compare_seed *to, const struct alibi_compare_seed *from)
{
    struct alibi_compare_seed room = *to;

    memcpy(room.by_length, from->by_length, ALIBI_LIST_MAX * sizeof *room.by_length);
    memcpy(room.sliding, from->sliding, ALIBI_LIST_MAX * sizeof *room.sliding);
    *to = *from;
    to->by_length = room.by_length;
    to->sliding = room.sliding;
}

/* The same for a method with one seed. */
static inline void copy_method(struct alibi_compare_method *to,
                               const struct alibi_compare_method *from)
{
    memcpy(to->name, from->name, sizeof to->name);
    copy_seed(&to->seed[0], &from->seed[0]);
}

static inline void fill_positions(struct alibi_eval_result *e)
{
    for (int64_t first = 0, last = 0; last < e->length; first = last, last = 2 * last + 1) {
        if (last == first)
            continue;
        e->by_position[e->bins] = (struct alibi_position_loss){ first, last - 1, last - first,
                                                                e->nll + 1.0 / (double)last };
        e->bins++;
    }
}

static inline struct alibi_eval_result evaluation(int64_t length, double ppl)
{
    struct alibi_eval_result e = {
        .length = length, .stride = length, .ppl = ppl, .nll = log(ppl), .standard_error = 0.002
    };

    e.word_ppl = exp(5.5 * e.nll);
    e.bits_per_byte = e.nll / log(2);
    e.tokens = 40960;
    e.words = 7000;
    e.bytes = 40900;
    e.seconds = 0.5;
    e.tokens_per_s = 81920;
    e.tiles_used = 0.75;
    e.attention_seconds = 0.125;
    e.peak_bytes = 5 << 20;
    fill_positions(&e);
    return e;
}

static inline struct alibi_eval_result no_evaluation(int64_t length)
{
    return (struct alibi_eval_result){ .length = length,
                                       .nll = NAN,
                                       .standard_error = NAN,
                                       .ppl = NAN,
                                       .word_ppl = NAN,
                                       .bits_per_byte = NAN };
}

static inline void set_options(struct alibi_compare_result *r)
{
    struct alibi_option_group groups[] = { { .values = &r->config }, { .values = &r->training } };

    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    assert_ok(alibi_options_init(groups, 2));
    r->config.vocab = 257;
    r->training.train_length = 128;
    r->training.seed = 42;
    r->compare.eval_tokens = 50000;
    r->compare.sliding_tokens = 16384;
    r->compare.stream_tokens = 8192;
    r->builtin = (struct alibi_builtin){ 3, 4000000 };
    snprintf(r->tokenizer, sizeof r->tokenizer, "bytes");
}

/* The same with a sliding window: 10% better, on fewer tokens. */
static inline struct alibi_eval_result sliding(const struct alibi_eval_result *e)
{
    struct alibi_eval_result s = *e;

    s.protocol = ALIBI_SLIDING;
    s.stride = e->length / 2;
    s.ppl = 0.9 * e->ppl;
    s.nll = log(s.ppl);
    s.tokens = e->tokens > 0 ? 16384 : 0;
    return s;
}

static inline struct alibi_eval_result stream(double ppl, double tiles_used)
{
    struct alibi_eval_result e = evaluation(8192, ppl);

    e.protocol = ALIBI_STREAM;
    e.stride = 0;
    e.tokens = 8192;
    e.tiles_used = tiles_used;
    return e;
}

static inline void set_device(struct alibi_compare_method *method, const char *device,
                              int precision)
{
    snprintf(method->seed[0].device, sizeof method->seed[0].device, "%s", device);
    method->seed[0].precision = precision;
}

/* Four methods trained at 128: alibi gets 4% better at 1024, sinusoidal 3.1 times worse, learned
 * ends at 128; alibi and rotary can stream. The caller frees. */
static inline struct alibi_compare_result *new_results(void)
{
    struct full *f = calloc(1, sizeof *f);
    struct alibi_compare_result *r = &f->result;

    static const char *const names[METHODS] = { "alibi", "sinusoidal", "rotary", "learned" };
    static const double ppl[METHODS][LENGTHS] = {
        { 3.2, 3.1, 3.072 }, { 3.3, 4.1, 10.23 }, { 3.25, 3.5, 4.5 }, { 3.4, NAN, NAN }
    };
    static const int64_t lengths[LENGTHS] = { 128, 512, 1024 };

    assert_non_null(f);
    r->method = f->method;
    for (int m = 0; m < ALIBI_LIST_MAX; m++) {
        f->method[m].seeds = 1;
        f->method[m].seed = f->seed[m];
        for (int k = 0; k < SEEDS; k++) {
            f->seed[m][k].seed = 42 + k;
            f->seed[m][k].by_length = f->by_length[m][k];
            f->seed[m][k].sliding = f->sliding[m][k];
        }
    }
    set_options(r);
    r->text = (struct alibi_corpus_info){
        .documents = 10, .tokens = 4000000, .words = 700000, .bytes = 3999000, .vocab = 257
    };
    snprintf(r->text.name, sizeof r->text.name, "books/a \"b\".txt");
    r->text.checksum = 123456789;
    r->methods = METHODS;
    for (int m = 0; m < METHODS; m++) {
        struct alibi_compare_method *method = &r->method[m];
        snprintf(method->name, sizeof method->name, "%s", names[m]);
        method->seed[0].train_tokens_per_s = 41234.5;
        method->seed[0].train_seconds = 61.25;
        method->seed[0].train_loss = 1.1;
        method->seed[0].peak_bytes = (size_t)83 << 20;
        method->seed[0].parameters = 1800000;
        set_device(method, "cpu", ALIBI_FP32);
        snprintf(method->seed[0].machine, sizeof method->seed[0].machine, "Some CPU, 2 threads");
        snprintf(method->seed[0].date, sizeof method->seed[0].date, "2026-11-15T21:24:1%cZ",
                 (char)('0' + m % 10));
        snprintf(method->seed[0].version, sizeof method->seed[0].version, "0.1.0");
        method->seed[0].lengths = LENGTHS;
        for (int i = 0; i < LENGTHS; i++)
            method->seed[0].by_length[i] =
                isnan(ppl[m][i]) ? no_evaluation(lengths[i]) : evaluation(lengths[i], ppl[m][i]);
        method->seed[0].sliding_lengths = LENGTHS;
        for (int i = 0; i < LENGTHS; i++)
            method->seed[0].sliding[i] = sliding(&method->seed[0].by_length[i]);
    }
    for (int m = 0; m < METHODS - 1; m++)
        r->method[m].seed[0].passage = evaluation(128, 3.15 + 0.1 * m);
    r->method[0].seed[0].stream = stream(3.0, 0.31);
    r->method[2].seed[0].stream = stream(6.0, 1);
    return r;
}

/* Every list full, names as long as they get. */
static inline struct alibi_compare_result *new_full_results(void)
{
    struct alibi_compare_result *r = new_results();

    r->methods = ALIBI_LIST_MAX;
    for (int m = 0; m < ALIBI_LIST_MAX; m++) {
        if (m != 0)
            copy_method(&r->method[m], &r->method[0]);
        snprintf(r->method[m].name, sizeof r->method[m].name, "method-with-a-very-long-name-%c%c",
                 '0' + m / 10, '0' + m % 10);
        r->method[m].seed[0].lengths = r->method[m].seed[0].sliding_lengths = ALIBI_LIST_MAX;
        for (int i = 0; i < ALIBI_LIST_MAX; i++) {
            r->method[m].seed[0].by_length[i] = evaluation(16 + 100 * i, 3 + 0.1 * m * i);
            r->method[m].seed[0].sliding[i] = sliding(&r->method[m].seed[0].by_length[i]);
        }
    }
    return r;
}

static inline struct alibi_compare_result *new_single_result(void)
{
    struct alibi_compare_result *r = new_results();

    r->methods = 1;
    r->method[0].seed[0].lengths = 1;
    return r;
}

static inline struct alibi_compare_result *new_empty_results(void)
{
    struct alibi_compare_result *r = new_results();

    r->methods = 0;
    return r;
}

static inline struct alibi_compare_result *new_missing_results(void)
{
    struct alibi_compare_result *r = new_results();

    for (int m = 0; m < METHODS; m++) {
        r->method[m].seed[0].train_tokens_per_s = NAN;
        r->method[m].seed[0].train_loss = INFINITY;
        set_device(&r->method[m], "", 0);
        r->method[m].seed[0].peak_bytes = 0;
        r->method[m].seed[0].sliding_lengths = 0;
        r->method[m].seed[0].stream = no_evaluation(8192);
        for (int i = 0; i < LENGTHS; i++)
            r->method[m].seed[0].by_length[i] =
                no_evaluation(r->method[m].seed[0].by_length[i].length);
    }
    return r;
}

/* Values that are there and are no numbers. */
static inline struct alibi_compare_result *new_infinite_results(void)
{
    struct alibi_compare_result *r = new_results();

    for (int i = 0; i < LENGTHS; i++) {
        struct alibi_eval_result *e = &r->method[1].seed[0].by_length[i];
        e->ppl = e->word_ppl = e->tokens_per_s = INFINITY;
        e->nll = e->bits_per_byte = e->standard_error = NAN;
        e->by_position[0].nll = -INFINITY;
        r->method[1].seed[0].sliding[i] = *e;
        r->method[2].seed[0].by_length[i].ppl = r->method[2].seed[0].sliding[i].ppl = 1e300;
    }
    r->method[2].seed[0].stream.ppl = INFINITY;
    r->method[2].seed[0].stream.nll = r->method[2].seed[0].stream.tiles_used =
        r->method[2].seed[0].stream.tokens_per_s = NAN;
    return r;
}

static inline struct alibi_compare_result *new_hostile_results(void)
{
    struct alibi_compare_result *r = new_results();

    snprintf(r->method[0].name, sizeof r->method[0].name, "<script>alert(1)</script>");
    snprintf(r->method[1].name, sizeof r->method[1].name, "a,\"b\"&'c'\n");
    snprintf(r->method[2].name, sizeof r->method[2].name, "\x1b[31m\xff\xc3");
    snprintf(r->method[3].name, sizeof r->method[3].name, "100%%s%%n");
    set_device(&r->method[0], "<b>GPU</b>", ALIBI_BF16);
    set_device(&r->method[1], "a \"quick\", hot one\x1b\xff", ALIBI_BF16);
    return r;
}

/* Three seeds, whose losses are 0.01 nats apart. */
static inline struct alibi_compare_result *new_seeds_results(void)
{
    struct alibi_compare_result *r = new_results();

    r->compare.seeds = (struct alibi_int_list){ 3, { 42, 43, 44 } };
    for (int m = 0; m < METHODS; m++) {
        r->method[m].seeds = SEEDS;
        for (int k = 1; k < SEEDS; k++) {
            struct alibi_compare_seed *s = &r->method[m].seed[k];

            copy_seed(s, &r->method[m].seed[0]);
            s->seed = 42 + k;
            for (int i = 0; i < LENGTHS; i++) {
                s->by_length[i].nll += 0.01 * k;
                s->by_length[i].ppl = exp(s->by_length[i].nll);
                s->sliding[i].nll += 0.01 * k;
                s->sliding[i].ppl = exp(s->sliding[i].nll);
            }
        }
    }
    return r;
}

static struct alibi_compare_result *(*const all_results[])(void) = {
    new_results,         new_full_results,     new_single_result,   new_empty_results,
    new_missing_results, new_infinite_results, new_hostile_results, new_seeds_results
};

enum { ALL_RESULTS = sizeof all_results / sizeof *all_results };

#endif
