/* skip_inputs.h - random and adversarial inputs for the tests of skipping, on the CPU and on a GPU
 *
 * Attention sinks, huge, small and equal keys, slopes near zero and negative ones, gates that
 * close, tables in which one far distance has no penalty: where a bound that is wrong would skip
 * weight. */
#ifndef SKIP_INPUTS_H
#define SKIP_INPUTS_H

#include "ops/bf16.h"
#include "ops/ref/ref.h"

#include "check.h"

enum { SEED = 5 };

/* The rounding error of fp32: the default budget. */
#define TINY 0x1p-24

/* KEYS_ALIGNED: all queries are one vector, and the first key is a multiple of it, so that the
 * bound of its score by norms is the score itself. */
enum { KEYS_RANDOM, KEYS_SINKS, KEYS_SCATTERED, KEYS_ALIGNED, KEYS_CONSTANT, KEYS_SMALL };
static const char *const keys_names[] = { "random",  "sinks",    "scattered",
                                          "aligned", "constant", "small" };

struct skip_case {
    int64_t L, H, Hkv, D;
    enum bias_kind bias;
    double slope; /* 0: those of ALiBi for H heads; else of every head. Table: a distance without a
                     penalty, if it is not 0. Gates: of their sums, on average. Gain: tau */
    int keys;
    double eps;
    int64_t window;
};

static const struct skip_case hostile_cases[] = {
    { 700, 1, 1, 64, BIAS_LINEAR, 0.25, KEYS_SINKS, TINY, 0 },
    { 700, 1, 1, 64, BIAS_LINEAR, 0.25, KEYS_SINKS, 1e-2, 0 },
    { 700, 1, 1, 64, BIAS_LINEAR, 0.25, KEYS_CONSTANT, TINY, 0 },
    { 700, 2, 2, 64, BIAS_LINEAR, 1e-6, KEYS_RANDOM, TINY, 0 },
    { 700, 2, 2, 16, BIAS_LINEAR, 1e-6, KEYS_SMALL, 1e-2, 0 },
    { 700, 1, 1, 16, BIAS_LINEAR, -0.01, KEYS_RANDOM, TINY, 0 },
    { 450, 17, 17, 8, BIAS_LINEAR, 0, KEYS_RANDOM, TINY, 0 },
    { 450, 6, 2, 16, BIAS_LINEAR, 0, KEYS_RANDOM, 0x1p-16, 0 },
    { 600, 2, 2, 16, BIAS_NONE, 0, KEYS_RANDOM, 1e-2, 0 },
    { 600, 2, 1, 16, BIAS_TABLE, 0, KEYS_RANDOM, TINY, 0 },
    { 600, 2, 2, 16, BIAS_TABLE, 0, KEYS_SMALL, 1e-3, 0 },
    { 800, 2, 1, 16, BIAS_TABLE, 448, KEYS_RANDOM, TINY, 0 },
    { 800, 1, 1, 16, BIAS_TABLE, 447, KEYS_RANDOM, TINY, 0 },
    { 800, 1, 1, 16, BIAS_TABLE, 401, KEYS_SINKS, 1e-2, 460 },
    { 600, 1, 1, 16, BIAS_LINEAR, 0.0625, KEYS_SMALL, TINY, 0 },
    { 600, 1, 1, 16, BIAS_LINEAR, 0.0625, KEYS_SMALL, 1e-40, 0 },
    { 500, 2, 2, 128, BIAS_LINEAR, 0.125, KEYS_RANDOM, 0.5, 0 },
    { 4096, 1, 1, 16, BIAS_LINEAR, 0.03125, KEYS_RANDOM, TINY, 0 },
    { 4097, 2, 1, 8, BIAS_LINEAR, 0.015625, KEYS_SINKS, TINY, 0 },
    { 700, 1, 1, 64, BIAS_LINEAR, 0.25, KEYS_SINKS, TINY, 300 },
    { 700, 1, 1, 16, BIAS_LINEAR, -0.01, KEYS_RANDOM, 1e-2, 200 },
    { 650, 2, 2, 16, BIAS_LINEAR, 0.5, KEYS_RANDOM, TINY, 64 },
    { 650, 2, 2, 16, BIAS_LINEAR, 0.5, KEYS_RANDOM, TINY, 1 },
    { 600, 2, 1, 16, BIAS_TABLE, 0, KEYS_RANDOM, TINY, 257 },
    { 4096, 1, 1, 16, BIAS_LINEAR, 0.03125, KEYS_RANDOM, TINY, 1000 },
    { 700, 1, 1, 64, BIAS_GATE, 0.25, KEYS_SINKS, TINY, 0 },
    { 700, 3, 1, 16, BIAS_GATE, 0.1, KEYS_RANDOM, 1e-2, 0 },
    { 650, 2, 2, 16, BIAS_GATE, 0.5, KEYS_SMALL, TINY, 200 },
    { 2049, 1, 1, 8, BIAS_GATE, 0.02, KEYS_RANDOM, TINY, 0 },
    { 700, 1, 1, 64, BIAS_GAIN, 10, KEYS_SINKS, 1e-2, 0 },
    { 700, 2, 2, 16, BIAS_GAIN, 1e-5, KEYS_SMALL, 1e-4, 0 },
    { 1500, 2, 1, 16, BIAS_GAIN, 1e-6, KEYS_SMALL, 1e-6, 0 },
    { 650, 3, 1, 16, BIAS_GAIN, 1e-6, KEYS_RANDOM, 1e-2, 200 },
    { 1500, 1, 1, 64, BIAS_LINEAR, 0.25, KEYS_SCATTERED, TINY, 0 },
    { 700, 2, 1, 64, BIAS_LINEAR, 0.5, KEYS_ALIGNED, TINY, 0 },
    { 800, 1, 1, 128, BIAS_LINEAR, 0.5, KEYS_ALIGNED, 1e-2, 700 },
    { 700, 1, 1, 64, BIAS_TABLE, 0, KEYS_ALIGNED, TINY, 0 },
    { 750, 2, 1, 64, BIAS_GATE, 0.5, KEYS_ALIGNED, TINY, 0 },
};

static inline const char *skip_bias_name(enum bias_kind kind)
{
    return kind == BIAS_LINEAR  ? "alibi"
           : kind == BIAS_TABLE ? "table"
           : kind == BIAS_GATE  ? "gates"
           : kind == BIAS_GAIN  ? "gain"
                                : "none";
}

/* ---- tensors of a case, in this process's memory */

struct data {
    struct skip_case c;
    enum dtype type; /* q, k, v and dy are numbers of this type */
    struct attention_args f32, f64;
    struct tensor dy32, dy64;
    void *memory[32];
    int count;
};

static inline struct tensor keep(struct data *d, struct tensor shape)
{
    assert_ok(mem_new(&shape.data, (size_t)tensor_count(shape) * dtype_bytes(shape.type), "test"));
    d->memory[d->count++] = shape.data;
    return shape;
}

static inline void data_free(struct data *d)
{
    for (int i = 0; i < d->count; i++)
        mem_free(d->memory[i]);
}

static inline struct tensor heads_tensor(struct data *d, enum dtype type, int64_t L, int64_t H,
                                         int64_t D)
{
    return keep(d, tensor_4(NULL, type, 1, L, H, D));
}

/* A standard normal number times a factor, as one of the case's type. */
static inline float skip_number(const struct data *d, double factor, uint64_t stream, int64_t index)
{
    float x = (float)(factor * random_normal(SEED, stream, (uint64_t)index));

    return d->type == DTYPE_BF16 ? bf16_to_float(bf16_from_float(x)) : x;
}

/* Sinks are at places that two tests know; scattered keys are at every place of a tile, of a block
 * of a GPU's kernels and of a word of tiles. */
static inline double key_factor(const struct skip_case *c, int64_t j)
{
    bool huge = c->keys == KEYS_SINKS       ? j == 0 || j == c->L / 3
                : c->keys == KEYS_SCATTERED ? j % 1021 == 127
                                            : false;

    return huge ? 100.0 : c->keys == KEYS_SMALL ? 0.05 : 1.0;
}

static inline struct tensor make_queries(struct data *d)
{
    struct tensor q = heads_tensor(d, DTYPE_F32, d->c.L, d->c.H, d->c.D);
    bool one = d->c.keys == KEYS_ALIGNED;

#pragma omp parallel for
    for (int64_t i = 0; i < tensor_count(q); i++)
        ((float *)q.data)[i] = skip_number(d, 1.0, 1, one ? i % d->c.D : i);
    return q;
}

static inline struct tensor make_keys(struct data *d)
{
    const struct skip_case *c = &d->c;
    struct tensor k = heads_tensor(d, DTYPE_F32, c->L, c->Hkv, c->D);
    int64_t row = c->Hkv * c->D;

#pragma omp parallel for
    for (int64_t j = 0; j < c->L; j++)
        for (int64_t n = 0; n < row; n++)
            ((float *)k.data)[j * row + n] =
                c->keys == KEYS_ALIGNED && j == 0
                    ? skip_number(d, 30.0, 1, n % c->D)
                    : skip_number(d, key_factor(c, j), 2,
                                  c->keys == KEYS_CONSTANT ? n : j * row + n);
    return k;
}

static inline struct tensor normal_tensor(struct data *d, int64_t H, uint64_t stream)
{
    struct tensor t = heads_tensor(d, DTYPE_F32, d->c.L, H, d->c.D);

#pragma omp parallel for
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t.data)[i] = skip_number(d, 1.0, stream, i);
    return t;
}

/* Gates are closed by random amounts, and one in a hundred entirely. The last head of several has
 * none. */
static inline struct tensor make_gates(struct data *d)
{
    const struct skip_case *c = &d->c;
    int64_t G = c->H > 1 ? c->H - 1 : 1;
    struct tensor t = keep(d, tensor_4(NULL, DTYPE_F32, 2, 1, G, c->L));

    for (int64_t h = 0; h < G; h++) {
        double sum = -1e6;
        for (int64_t l = 0; l < c->L; l++) {
            double u = random_uniform(SEED, 5, (uint64_t)(h * c->L + l));
            sum -= u < 0.01 ? 20.0 : 2.0 * c->slope * u;
            set(t, h * c->L + l, sum);
            set(t, (G + h) * c->L + l, sum - get(t, h * c->L + l));
        }
    }
    return t;
}

static inline struct tensor make_bias(struct data *d)
{
    const struct skip_case *c = &d->c;
    int64_t T = c->bias != BIAS_TABLE ? 1 : c->slope > 0 ? c->L : 200;
    struct tensor b = keep(d, c->bias == BIAS_TABLE ? tensor_2(NULL, DTYPE_F32, c->H, T)
                                                    : tensor_1(NULL, DTYPE_F32, c->H));

    for (int64_t h = 0; h < c->H; h++)
        for (int64_t n = 0; n < T; n++)
            set(b, h * T + n,
                c->bias == BIAS_TABLE ? -0.3 * (double)(n == (int64_t)c->slope ? 0 : n)
                : c->slope != 0       ? c->slope
                                      : exp2(-8.0 * (double)(h + 1) / (double)c->H));
    return b;
}

static inline struct data make_inputs(struct skip_case c, enum dtype type)
{
    struct data d = { .c = c, .type = type };

    d.f32 = (struct attention_args){
        .q = make_queries(&d),
        .k = make_keys(&d),
        .v = normal_tensor(&d, c.Hkv, 3),
        .bias = { c.bias, c.bias == BIAS_GATE ? make_gates(&d) : make_bias(&d), c.slope },
        .scale = 1.0 / sqrt((double)c.D),
        .window = c.window,
    };
    d.f32.skip.eps = c.eps;
    d.f32.skip.kept = keep(
        &d, tensor_4(NULL, DTYPE_I32, 1, c.H, attention_tiles(c.L), attention_kept_words(c.L)));
    d.dy32 = normal_tensor(&d, c.H, 4);
    return d;
}

/* ---- what was used */

static inline bool is_kept(const struct data *d, int64_t h, int64_t i, int64_t t)
{
    struct tensor kept = d->f32.skip.kept;
    const int32_t *row = (const int32_t *)kept.data + (h * kept.shape[2] + i) * kept.shape[3];

    return (uint32_t)row[t / 32] >> t % 32 & 1;
}

static inline double largest_row(struct tensor t)
{
    double most = 0.0;

    for (int64_t i = 0; i < tensor_count(t); i += t.shape[3]) {
        double sum = 0.0;
        for (int64_t n = 0; n < t.shape[3]; n++)
            sum += get(t, i + n) * get(t, i + n);
        most = fmax(most, sqrt(sum));
    }
    return most;
}

#endif
