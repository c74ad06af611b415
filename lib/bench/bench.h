/* bench.h - the cost of a training step, compared with that of its matrix products alone */
#ifndef BENCH_H
#define BENCH_H

#include "model/model.h"
#include "text/text.h"

/* The linear layers of a model on `rows` tokens, one entry per layer in the order of the forward
 * pass. */
struct product {
    int weight;   /* index of the parameter */
    int64_t rows; /* at a time */
    int times;    /* pieces: the output layer works on some rows at a time */
};

struct products {
    struct model *model;
    struct product *list;
    int count;
    void *x, *y, *dx; /* [rows, widest] on the device, used by every product */
};

/* The model must have made a training pass of that many rows: its buffers say how the output layer
 * is cut. */
alibi_status products_init(struct products *p, struct model *m, int64_t rows);
void products_fini(struct products *p);

/* Runs all products: forward in order, then both products of the backward pass in reverse order.
 * Changes the gradients of the weights. */
alibi_status products_run(struct products *p);

/* 2 rows in out, three times per layer: forward, gradient of the input, gradient of the weight. */
double products_flops(const struct products *p);

/* A fresh model for inputs of that length. */
alibi_status bench_model(struct model **out, alibi_device *device,
                         const struct alibi_config *config, int64_t length, bool trainable);

/* Random tokens of a model's vocabulary, [count]; mem_free. */
alibi_status bench_tokens(int32_t **out, const struct model *m, int64_t count);

double bench_median(double *values, int64_t count); /* sorts them */
/* Its standard error as a share of it, from the quartiles of sorted values. */
double bench_median_error(const double *sorted, int64_t count);

/* ---- models that take turns */

struct bench_shape {
    int64_t batch, length;
};

/* Fresh models, all in memory at once. Each of the rounds has one training step, and if `eval` is
 * given one evaluation pass, of every model at every shape, in an order that alternates. The clock
 * of a device changes by more than methods differ, but not within a round, so the ratios of a round
 * can be trusted. Nothing but the step or the pass is timed. */
struct bench_turns {
    const struct alibi_config *config; /* [models] */
    int models;                        /* ALIBI_LIST_MAX at most */
    const struct bench_shape *shape;   /* [shapes] */
    int shapes;
    int64_t rounds;
    int recompute;
    double skip;
    double *train, *eval; /* seconds, [models, shapes, rounds]; eval NULL: no such passes */
};
alibi_status bench_turns(alibi_device *device, const struct bench_turns *turns,
                         const struct alibi_call *call);

/* Windows that an evaluation reads at a time. */
int64_t bench_eval_batch(const alibi_device *device, int64_t length);

/* ---- a stream (stream.c) */

/* The cost of a token after a context. Seconds are per token, errors are shares of them. */
struct bench_stream {
    double read_seconds, read_error;     /* of tokens that are read in chunks; 0: not measured */
    double decode_seconds, decode_error; /* one by one */
    double cache_bytes;                  /* allocated for the KV cache */
};

/* Reads `context` tokens of a text, from its start and again if it is shorter, with one KV cache.
 */
alibi_status bench_stream(struct bench_stream *out, const struct model *m, struct span text,
                          int64_t context, double skip, const struct alibi_call *call);

/* alibi_bench_eval() of `windows` windows at a time. */
alibi_status bench_eval(alibi_device *device, const struct alibi_config *config, int64_t windows,
                        int64_t length, double *seconds, size_t *peak_bytes,
                        const struct alibi_call *call);

#endif
