/* init.c - the weights of a fresh model
 *
 * Every tensor starts from a constant, from its position method, or from random numbers whose
 * deviation is a rule of the chosen scale: GPT-2's, or one over the square root of the width. */
#include <math.h>
#include <string.h>

#include "model/walk.h"

/* If the output layer shares the embedding, a fresh model predicts the token that it reads: the
 * stream is mostly that token's vector. With deviation d, scale s and fixed positions of mean
 * square r (sines: 1/2, otherwise 0) in the stream, that token's logit after the final norm is
 * about
 *
 *   C d * s d / sqrt((s d)^2 + r)
 *
 * For d = 0.02 and r = 0 it is 7.7 at width 384, and the first loss 7.1 instead of ln 257 = 5.5. So
 * d is at most the deviation that makes it 4. Vectors that are no larger than 0.02 once they are
 * scaled do not dominate the stream, as in GPT-2, and stay. */
static double embedding_deviation(const struct model *m)
{
    const double most = 4.0, C = (double)m->config.width, s = m->config.embedding_scale;
    double r = m->pattern.kind[0].method->row ? 0.5 : 0.0, a = most * most * s * s;
    double square = (a + sqrt(a * a + 4 * a * C * C * r)) / (2 * s * s * C * C);

    return m->config.tied ? fmin(0.02, fmax(sqrt(square), 0.02 / s)) : 0.02;
}

/* By the width, a fresh model does not predict the token that it reads either: each layer adds
 * about as much to the stream as the embedding. */
static double deviation_of(const struct model *m, const struct parameter *p,
                           enum alibi_init_scale scale)
{
    bool wide = scale == ALIBI_INIT_WIDTH;
    double by_width = 1.0 / sqrt((double)m->config.width);
    double embedding = wide ? by_width : embedding_deviation(m);

    switch (p->init) {
    case INIT_EMBEDDING:
        return embedding;
    case INIT_EMBEDDED:
        return embedding * m->config.embedding_scale;
    case INIT_RESIDUAL:
        return wide ? by_width : 0.02 / sqrt(2.0 * (double)m->config.layers);
    case INIT_CLUSTER:
        return 1.0 / sqrt((double)p->shape[1]);
    default:
        return wide ? by_width : 0.02;
    }
}

/* The number of all elements, where they are equal. Queries begin as they would be without a factor
 * in the last position of a training window. */
static bool constant_of(const struct model *m, const struct parameter *p, double *value)
{
    *value = p->init == INIT_ONE ? 1.0 : 0.0;
    if (p->init == INIT_LOGN)
        *value = 1.0 / log((double)logn_keys(m->config.train_length - 1, 0));
    return p->init == INIT_ZERO || p->init == INIT_ONE || p->init == INIT_LOGN;
}

/* Keyed by the tensor's name, so that models that differ in their position method start from the
 * same weights elsewhere. */
static void draw(const struct model *m, const struct parameter *p, uint64_t seed,
                 enum alibi_init_scale scale, float *values)
{
    uint64_t stream = RANDOM_STREAM(RANDOM_INIT, checksum(0, p->name, strlen(p->name)));
    double deviation = deviation_of(m, p, scale);
    double most = sqrt(6.0 / (double)(p->shape[0] + p->shape[1]));
    bool uniform = p->init == INIT_XAVIER;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p->count; i++)
        values[i] = (float)(uniform ? most * (2.0 * random_uniform(seed, stream, (uint64_t)i) - 1.0)
                                    : deviation * random_normal(seed, stream, (uint64_t)i));
}

static void draw_position(const struct model *m, const struct parameter *p, uint64_t seed,
                          float *values)
{
    uint64_t stream = RANDOM_STREAM(RANDOM_INIT, checksum(0, p->name, strlen(p->name)));
    const struct position *position = m->pattern.kind;
    int64_t H = p->rank == 2 ? p->shape[1] : p->shape[0];

    for (int64_t n = 0; n < m->config.layers; n++)
        if (m->blocks[n].gate_bias >= 0 && &m->parameters[m->blocks[n].gate_bias] == p)
            position = model_position(m, n);
    for (int k = 0; k < m->pattern.kinds; k++)
        if (m->positions[k] >= 0 && &m->parameters[m->positions[k]] == p)
            position = &m->pattern.kind[k];
    for (int64_t i = 0; i < p->count; i++)
        values[i] = (float)position->method->initial(&m->config, position, i / H, i % H,
                                                     random_uniform(seed, stream, (uint64_t)i));
}

static alibi_status init_one(struct model *m, const struct parameter *p, uint64_t seed,
                             enum alibi_init_scale scale)
{
    alibi_status status;
    float *values = NULL;
    double value;
    const struct ops *ops = m->device->ops;
    struct tensor master = parameter_slice(m, p, m->values);

    if (constant_of(m, p, &value))
        return ops->fill(m->device, master, value);
    TRY(NEW_ARRAY(&values, p->count, "initial weights"));
    if (p->init == INIT_POSITION)
        draw_position(m, p, seed, values);
    else
        draw(m, p, seed, scale, values);
    TRY(ops->upload(m->device, master, values));
out:
    mem_free(values);
    return status;
}

alibi_status model_init(struct model *m, uint64_t seed, enum alibi_init_scale scale)
{
    alibi_status status = ALIBI_OK;

    device_lock(m->device);
    for (int i = 0; i < m->count; i++)
        TRY(init_one(m, &m->parameters[i], seed, scale));
    TRY(model_refresh(m));
out:
    device_unlock(m->device);
    return status;
}
