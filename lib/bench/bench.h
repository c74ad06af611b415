/* bench.h - what a training step costs, beside what its matrix products alone would cost */
#ifndef BENCH_H
#define BENCH_H

#include "model/model.h"

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

/* Runs them all: forward in order, then both products of the backward pass in reverse. Gradients of
 * the weights change. */
alibi_status products_run(struct products *p);

/* 2 rows in out, three times per layer: forward, gradient of the input, gradient of the weight. */
double products_flops(const struct products *p);

/* A fresh model for inputs of that length. */
alibi_status bench_model(struct model **out, alibi_device *device,
                         const struct alibi_config *config, int64_t length, bool trainable);

/* Random tokens of a model's vocabulary, [count]; mem_free. */
alibi_status bench_tokens(int32_t **out, const struct model *m, int64_t count);

double bench_median(double *values, int64_t count); /* sorts them */

#endif
