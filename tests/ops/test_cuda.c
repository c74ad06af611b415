/* test_cuda.c - the GPU's operations against the reference, those of our own kernels: all but
 * attention (test_cuda_attention.c), linear layers (test_cuda_linear.c), fills and copies
 * (test_cuda_device.c)
 *
 * Nothing here calls cuBLASLt, in whose kernels racecheck crashes. */
#include "ops/calls.h"
#include "ops/gpu.h"

/* ---- embedding. n: B L C V start */

enum tokens { TOKENS_RANDOM, TOKENS_ALL_THE_SAME, TOKENS_ZIPF };
static const char *const tokens_names[] = { "random", "all the same", "zipf" };

static double draw_token(enum tokens kind, int64_t i, int64_t V)
{
    double u = random_uniform(SEED, 99, (uint64_t)i);

    return kind == TOKENS_RANDOM ? floor(u * (double)V)
           : kind == TOKENS_ZIPF ? floor(pow((double)V, u)) - 1.0
                                 : (double)(V - 1);
}

static void given_tokens(struct problem *p, int64_t count, int64_t V, enum tokens kind)
{
    struct slot *s = add_slot(p, vector(DTYPE_I32, count), GIVEN);

    for (int64_t i = 0; i < count; i++)
        put(s, i, draw_token(kind, i, V));
}

static alibi_status run_embedding_forward(struct device *dev, const struct problem *p,
                                          const struct tensor *t)
{
    return dev->ops->embedding_forward(dev,
                                       &(struct embedding_args){ .y = t[3],
                                                                 .tokens = t[0],
                                                                 .weight = t[1],
                                                                 .table = present_if(p->kind, t[2]),
                                                                 .start = p->n[4],
                                                                 .scale = 1.25 });
}

static alibi_status run_embedding_backward(struct device *dev, const struct problem *p,
                                           const struct tensor *t)
{
    return dev->ops->embedding_backward(
        dev, &(struct embedding_args){ .dweight = t[2],
                                       .dtable = present_if(p->kind, t[3]),
                                       .dy = t[1],
                                       .tokens = t[0],
                                       .start = p->n[4],
                                       .scale = 1.25 });
}

static void check_embedding(const int64_t *n, enum dtype type, enum tokens tokens, bool positions,
                            int64_t skew)
{
    int64_t B = n[0], L = n[1], C = n[2], V = n[3], start = 3;
    struct problem forward = {
        .type = type, .kind = positions, .n = { B, L, C, V, start }, .limit = 1e-6, .skew = skew
    };
    struct problem backward;

    DESCRIBE(&forward, "B=%d L=%d C=%d V=%d %s%s", (int)B, (int)L, (int)C, (int)V,
             tokens_names[tokens], positions ? " positions" : "");
    backward = forward;
    forward.operation = "embedding_forward";
    forward.run = run_embedding_forward;
    given_tokens(&forward, B * L, V, tokens);
    given(&forward, matrix(type, V, C));
    given(&forward, matrix(DTYPE_F32, start + L, C));
    written(&forward, tensor_3(NULL, type, B, L, C));
    backward.operation = "embedding_backward";
    backward.limit = 1e-5;
    backward.run = run_embedding_backward;
    given_tokens(&backward, B * L, V, tokens);
    given(&backward, tensor_3(NULL, type, B, L, C));
    added_to(&backward, matrix(DTYPE_F32, V, C));
    added_to(&backward, matrix(DTYPE_F32, start + L + 2, C));
    check(&forward);
    check(&backward);
}

static void embedding_equals_the_reference(void **state)
{
    static const int64_t shapes[][4] = { { 1, 1, 1, 1 },       { 2, 7, 5, 3 },
                                         { 3, 50, 65, 11 },    { 2, 70, 400, 257 },
                                         { 8, 256, 64, 257 },  { 2, 0, 4, 4 },
                                         { 1, 1, 768, 257 },   { 2, 65, 64, 50304 },
                                         { 2, 1031, 24, 257 }, { 1, 33, 128, 50257 } };

    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int tokens = TOKENS_RANDOM; tokens <= TOKENS_ZIPF; tokens++)
                check_embedding(shapes[i], gpu_types[type], (enum tokens)tokens, (i + tokens) & 1,
                                i == 3);
    end();
}

/* ---- norms. kind: 1 bias, 2 RMS norm; forward: 4 y is x, 8 branch, 16 sum is x; backward: 4 y
 * too. n: percent dropped */

static struct dropout dropout_of(int64_t percent)
{
    return (struct dropout){ .p = (double)percent / 100.0,
                             .seed = 0x123456789ull,
                             .stream = RANDOM_STREAM(RANDOM_DROPOUT, 3) };
}

static enum alibi_norm norm_of(const struct problem *p)
{
    return p->kind & 2 ? ALIBI_RMSNORM : ALIBI_LAYERNORM;
}

/* RMS norm has no mean. */
static struct tensor mean_of(const struct problem *p, struct tensor mean)
{
    return present_if(norm_of(p) == ALIBI_LAYERNORM, mean);
}

static alibi_status run_norm_forward(struct device *dev, const struct problem *p,
                                     const struct tensor *t)
{
    return dev->ops->norm_forward(dev, &(struct norm_args){
                                           .kind = norm_of(p),
                                           .y = t[3],
                                           .mean = mean_of(p, t[5]),
                                           .rstd = t[4],
                                           .sum = present_if(p->kind & 8, t[7]),
                                           .x = p->kind & 4    ? t[3]
                                                : p->kind & 16 ? t[7]
                                                               : t[0],
                                           .branch = present_if(p->kind & 8, t[6]),
                                           .dropout = dropout_of(p->n[0]),
                                           .weight = t[1],
                                           .bias = present_if(p->kind & 1, t[2]),
                                           .eps = 1e-5,
                                       });
}

static alibi_status run_norm_backward(struct device *dev, const struct problem *p,
                                      const struct tensor *t)
{
    return dev->ops->norm_backward(dev, &(struct norm_args){
                                            .kind = norm_of(p),
                                            .dx = t[5],
                                            .dweight = t[6],
                                            .dbias = present_if(p->kind & 1, t[7]),
                                            .y = present_if(p->kind & 4, t[9]),
                                            .dy = t[2],
                                            .x = t[0],
                                            .weight = t[1],
                                            .bias = present_if(p->kind & 1, t[8]),
                                            .mean = mean_of(p, t[4]),
                                            .rstd = t[3],
                                        });
}

static struct slot *written_or_added_to(struct problem *p, bool in_place, struct tensor shape)
{
    return in_place ? added_to(p, shape) : written(p, shape);
}

static void check_norm_forward(int64_t rows, int64_t C, enum dtype type, int kind, int percent,
                               int64_t skew)
{
    struct problem p = {
        .type = type, .kind = kind, .n = { percent }, .limit = 5e-6, .skew = skew
    };
    bool branch = kind & 8;

    DESCRIBE(&p, "rows=%d C=%d%s%s%s%s p=0.%02d", (int)rows, (int)C, kind & 1 ? " bias" : "",
             kind & 4 ? " in place" : "", branch ? " branch" : "", kind & 16 ? " sum is x" : "",
             percent);
    p.operation = kind & 2 ? "rmsnorm_forward" : "layernorm_forward";
    p.run = run_norm_forward;
    given(&p, matrix(type, rows, C));
    given(&p, vector(DTYPE_F32, C));
    given(&p, vector(DTYPE_F32, C));
    struct slot *y = written_or_added_to(&p, kind & 4, matrix(type, rows, C));
    struct slot *rstd = written(&p, vector(DTYPE_F32, rows)),
                *mean = written(&p, vector(DTYPE_F32, kind & 2 ? 0 : rows));
    given(&p, matrix(type, rows, C));
    written_or_added_to(&p, kind & 16, matrix(type, branch ? rows : 0, C));
    mean->size = 0.1;
    /* Statistics are of a sum that was rounded; the reference's sum is not. */
    if (branch && type == DTYPE_BF16) {
        y->limit = rstd->limit = mean->limit = 0x1p-7;
        mean->size = 1.0;
    }
    check(&p);
}

static void check_norm_backward(int64_t rows, int64_t C, enum dtype type, int kind, int64_t skew)
{
    struct problem p = { .type = type, .kind = kind, .limit = 1e-5, .skew = skew };

    DESCRIBE(&p, "rows=%d C=%d%s%s", (int)rows, (int)C, kind & 1 ? " dbias" : "",
             kind & 4 ? " y" : "");
    p.operation = kind & 2 ? "rmsnorm_backward" : "layernorm_backward";
    p.run = run_norm_backward;
    given(&p, matrix(type, rows, C));
    given(&p, vector(DTYPE_F32, C));
    given(&p, matrix(type, rows, C));
    given(&p, vector(DTYPE_F32, rows));
    given(&p, vector(DTYPE_F32, rows));
    added_to(&p, matrix(type, rows, C));
    added_to(&p, vector(DTYPE_F32, C));
    added_to(&p, vector(DTYPE_F32, C));
    given(&p, vector(DTYPE_F32, C));
    written(&p, matrix(type, kind & 4 ? rows : 0, C));
    check(&p);
}

/* Runs a test of norms: `check_kind` for every shape in both types, aligned and not, with kinds 0
 * to 7. */
static void check_norms(void (*check_kind)(int64_t rows, int64_t C, enum dtype type, int kind,
                                           int64_t skew))
{
    static const int64_t shapes[][2] = { { 0, 4 },    { 3, 1 },    { 2, 7 },     { 17, 16 },
                                         { 5, 33 },   { 90, 401 }, { 700, 64 },  { 33, 768 },
                                         { 4, 1025 }, { 2, 4096 }, { 3000, 24 }, { 257, 512 } };

    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int skew = 0; skew < 2; skew++)
                for (int kind = 0; kind < 8; kind++)
                    check_kind(shapes[i][0], shapes[i][1], gpu_types[type], kind, skew);
    end();
}

static void check_norm(int64_t rows, int64_t C, enum dtype type, int kind, int64_t skew)
{
    check_norm_forward(rows, C, type, kind, 0, skew);
    check_norm_backward(rows, C, type, kind, skew);
}

static void norms_equal_the_reference(void **state)
{
    (void)state;
    check_norms(check_norm);
}

static void check_norm_with_residual(int64_t rows, int64_t C, enum dtype type, int kind,
                                     int64_t skew)
{
    int norm = (kind & 3) | 8 | (kind & 4 ? 16 : 0);

    check_norm_forward(rows, C, type, norm, 0, skew);
    check_norm_forward(rows, C, type, norm, 30, skew);
}

static void norms_with_their_residual_equal_the_reference(void **state)
{
    (void)state;
    check_norms(check_norm_with_residual);
}

/* The norm with its residual, the norm of the sum alone, and the first one as recomputed by the
 * backward pass.
 * kind: 1 bias, 2 RMS norm, 4 dropout. */

enum { NORM_X, NORM_BRANCH, NORM_WEIGHT, NORM_BIAS };
enum {
    NORM_SUM = NORM_BIAS + 1,
    NORM_Y,
    NORM_MEAN,
    NORM_RSTD,
    NORM_Y_ALONE,
    NORM_MEAN_ALONE,
    NORM_RSTD_ALONE
};
enum { NORM_DX = NORM_RSTD_ALONE + 1, NORM_DWEIGHT, NORM_DBIAS, NORM_Y_AGAIN };

static alibi_status run_norm_thrice(struct device *dev, const struct problem *p,
                                    const struct tensor *t)
{
    struct tensor bias = present_if(p->kind & 1, t[NORM_BIAS]);

    TRY_RETURN(dev->ops->norm_forward(dev, &(struct norm_args){
                                               .kind = norm_of(p),
                                               .y = t[NORM_Y],
                                               .mean = mean_of(p, t[NORM_MEAN]),
                                               .rstd = t[NORM_RSTD],
                                               .sum = t[NORM_SUM],
                                               .x = t[NORM_X],
                                               .branch = t[NORM_BRANCH],
                                               .dropout = dropout_of(p->n[0]),
                                               .weight = t[NORM_WEIGHT],
                                               .bias = bias,
                                               .eps = 1e-5,
                                           }));
    TRY_RETURN(dev->ops->norm_forward(dev, &(struct norm_args){
                                               .kind = norm_of(p),
                                               .y = t[NORM_Y_ALONE],
                                               .mean = mean_of(p, t[NORM_MEAN_ALONE]),
                                               .rstd = t[NORM_RSTD_ALONE],
                                               .x = t[NORM_SUM],
                                               .dropout = dropout_of(p->n[0]),
                                               .weight = t[NORM_WEIGHT],
                                               .bias = bias,
                                               .eps = 1e-5,
                                           }));
    return dev->ops->norm_backward(dev, &(struct norm_args){
                                            .kind = norm_of(p),
                                            .dx = t[NORM_DX],
                                            .dweight = t[NORM_DWEIGHT],
                                            .dbias = present_if(p->kind & 1, t[NORM_DBIAS]),
                                            .y = t[NORM_Y_AGAIN],
                                            .dy = t[NORM_X],
                                            .x = t[NORM_SUM],
                                            .weight = t[NORM_WEIGHT],
                                            .bias = bias,
                                            .mean = mean_of(p, t[NORM_MEAN]),
                                            .rstd = t[NORM_RSTD],
                                        });
}

static bool same_bits(const struct problem *p, const struct solution *s, int a, int b)
{
    return memcmp(s->buffers[a], s->buffers[b],
                  (size_t)buffer_count(p, &p->slots[a]) * sizeof(union cell)) == 0;
}

static void check_norm_bits(int64_t rows, int64_t C, enum dtype type, int kind, int64_t skew)
{
    struct problem p = {
        .operation = kind & 2 ? "rmsnorm" : "layernorm", .type = type, .kind = kind, .skew = skew
    };

    p.n[0] = kind & 4 ? 30 : 0;
    DESCRIBE(&p, "rows=%d C=%d%s p=0.%02d", (int)rows, (int)C, kind & 1 ? " bias" : "",
             (int)p.n[0]);
    p.run = run_norm_thrice;
    given(&p, matrix(type, rows, C));
    given(&p, matrix(type, rows, C));
    given(&p, vector(DTYPE_F32, C));
    given(&p, vector(DTYPE_F32, C));
    written(&p, matrix(type, rows, C));
    for (int n = 0; n < 2; n++) {
        written(&p, matrix(type, rows, C));
        written(&p, vector(DTYPE_F32, kind & 2 ? 0 : rows));
        written(&p, vector(DTYPE_F32, rows));
    }
    added_to(&p, matrix(type, rows, C));
    added_to(&p, vector(DTYPE_F32, C));
    added_to(&p, vector(DTYPE_F32, C));
    written(&p, matrix(type, rows, C));
    struct solution s = solve_on_gpu(&p);
    bool good =
        same_bits(&p, &s, NORM_Y, NORM_Y_ALONE) && same_bits(&p, &s, NORM_MEAN, NORM_MEAN_ALONE) &&
        same_bits(&p, &s, NORM_RSTD, NORM_RSTD_ALONE) && same_bits(&p, &s, NORM_Y, NORM_Y_AGAIN);
    for (int64_t i = 0; i < stored(&p.slots[NORM_Y]); i++)
        good = good && !isnan(result(&p, &s, NORM_Y, i));
    printf("%s cuda %s %s%s  %s\n", p.operation, type_name(type), p.shape, skew ? " unaligned" : "",
           good ? "the same bits: ok" : "OTHER BITS");
    all_good = all_good && good;
    solution_free(&s);
    problem_free(&p);
}

static void a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass(
    void **state)
{
    (void)state;
    check_norms(check_norm_bits);
}

/* ---- activations. kind is the activation; n: where dx is */

enum place { APART, ON_X, ON_DY };
static const char *const place_names[] = { "", " dx is x", " dx is dy" };

static alibi_status run_activation_forward(struct device *dev, const struct problem *p,
                                           const struct tensor *t)
{
    return dev->ops->activation_forward(dev, p->kind, t[1], t[0]);
}

static alibi_status run_activation_backward(struct device *dev, const struct problem *p,
                                            const struct tensor *t)
{
    return dev->ops->activation_backward(dev, p->kind, t[2], p->n[0] == ON_DY ? t[2] : t[0],
                                         p->n[0] == ON_X ? t[2] : t[1]);
}

static void check_activation(int64_t rows, int64_t F, enum dtype type, int kind, int64_t skew)
{
    int64_t wide = kind == ALIBI_SWIGLU ? 2 * F : F;
    struct problem forward = {
        .operation = "activation_forward", .type = type, .kind = kind, .limit = 2e-6, .skew = skew
    };

    DESCRIBE(&forward, "rows=%d F=%d %s", (int)rows, (int)F, activation_names[kind]);
    forward.run = run_activation_forward;
    given(&forward, matrix(type, rows, wide));
    written(&forward, matrix(type, rows, F));
    check(&forward);
    for (int place = APART; place <= (kind == ALIBI_SWIGLU ? ON_X : ON_DY); place++) {
        struct problem p = { .operation = "activation_backward",
                             .type = type,
                             .kind = kind,
                             .n = { place },
                             .limit = 2e-6 };
        DESCRIBE(&p, "rows=%d F=%d %s%s", (int)rows, (int)F, activation_names[kind],
                 place_names[place]);
        p.skew = skew;
        p.run = run_activation_backward;
        given(&p, matrix(type, rows, F));
        given(&p, matrix(type, rows, wide));
        written_or_added_to(&p, place != APART, matrix(type, rows, wide));
        check(&p);
    }
}

static void activations_equal_the_reference(void **state)
{
    static const int64_t shapes[][2] = { { 0, 3 },     { 1, 1 },     { 3, 5 },   { 2, 64 },
                                         { 13, 4097 }, { 37, 1000 }, { 64, 512 } };

    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++)
                for (int skew = 0; skew < 2; skew++)
                    check_activation(shapes[i][0], shapes[i][1], gpu_types[type], kind, skew);
    end();
}

/* Where exp overflows and where 1 + tanh cancels. */
static void activations_of_numbers_large_and_small_stay_right(void **state)
{
    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++)
            for (int size = 0; size < 3; size++) {
                static const double sizes[] = { 1e-3, 12.0, 300.0 };
                struct problem p = { .operation = "activation_forward",
                                     .type = gpu_types[type],
                                     .kind = kind,
                                     .limit = 2e-6 };
                DESCRIBE(&p, "%s of numbers up to %g", activation_names[kind], sizes[size]);
                p.run = run_activation_forward;
                fill_random(
                    &p, add_slot(&p, matrix(p.type, 20, kind == ALIBI_SWIGLU ? 100 : 50), GIVEN),
                    sizes[size]);
                written(&p, matrix(p.type, 20, 50));
                check(&p);
            }
    end();
}

/* ---- residual and dropout. kind: percent dropped; n: in place */

static alibi_status run_residual(struct device *dev, const struct problem *p,
                                 const struct tensor *t)
{
    return dev->ops->residual_forward(dev, t[2], p->n[0] ? t[2] : t[0], t[1], dropout_of(p->kind));
}

static alibi_status run_dropout(struct device *dev, const struct problem *p, const struct tensor *t)
{
    return dev->ops->dropout(dev, t[2], p->n[0] ? t[2] : t[0], dropout_of(p->kind));
}

static void check_dropout(int64_t count, enum dtype type, int percent, bool alone, bool in_place,
                          int64_t skew)
{
    struct problem p = {
        .type = type, .kind = percent, .n = { in_place }, .limit = 5e-7, .skew = skew
    };

    DESCRIBE(&p, "count=%d p=0.%02d%s", (int)count, percent, in_place ? " in place" : "");
    p.operation = alone ? "dropout" : "residual_forward";
    p.run = alone ? run_dropout : run_residual;
    given(&p, vector(type, count));
    given(&p, vector(type, count));
    struct slot *y = written_or_added_to(&p, in_place, vector(type, count));
    for (int64_t i = 0; i < count;
         i++) { /* of one size, so that one wrong element of the mask is far off */
        put(&p.slots[0], i, alone ? 1.0 : p.slots[0].values[i]);
        put(&p.slots[1], i, i % 2 ? 1.0 : -1.0);
        if (in_place && alone)
            put(y, i, 1.0);
    }
    check(&p);
}

static void residual_and_dropout_equal_the_reference(void **state)
{
    static const int64_t counts[] = { 0, 1, 3, 17, 4095, 4097, 40001, 65536 };

    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(counts); i++)
            for (int percent = 0; percent <= 60; percent += 30)
                for (int kind = 0; kind < 8; kind++)
                    check_dropout(counts[i], gpu_types[type], percent, kind & 1, kind & 2,
                                  kind >> 2);
    end();
}

/* ---- rotary. n: B L H D start; kind: 1 pairs, 2 back */

static alibi_status run_rotary(struct device *dev, const struct problem *p, const struct tensor *t)
{
    const int64_t *n = p->n;
    struct tensor x = tensor_heads(t[1], n[0], n[1], n[5], n[2], n[3]);
    struct rotation r = { .table = t[0],
                          .start = n[4],
                          .layout = p->kind & 1 ? ALIBI_ROTARY_PAIRS : ALIBI_ROTARY_HALVES };

    return dev->ops->rotary(dev, x, r, p->kind & 2 ? -1 : 1);
}

static void check_rotary(const int64_t *n, enum dtype type, int kind, int64_t column, int64_t skew)
{
    struct problem p = { .operation = "rotary",
                         .type = type,
                         .kind = kind,
                         .n = { n[0], n[1], n[2], n[3], 2, column } };

    DESCRIBE(&p, "B=%d L=%d H=%d D=%d column=%d %s%s", (int)n[0], (int)n[1], (int)n[2], (int)n[3],
             (int)column, kind & 1 ? "pairs" : "halves", kind & 2 ? " back" : "");
    p.skew = skew;
    p.limit = 5e-7;
    p.run = run_rotary;
    given(&p, matrix(DTYPE_F32, n[1] + 2, n[3]));
    added_to(&p, matrix(type, n[0] * n[1], 2 * column + n[2] * n[3]));
    check(&p);
}

static void rotary_equals_the_reference(void **state)
{
    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(head_shapes); i++)
            for (int kind = 0; kind < 4; kind++) {
                check_rotary(head_shapes[i], gpu_types[type], kind, 0, 0);
                check_rotary(head_shapes[i], gpu_types[type], kind, 16, 0);
                check_rotary(head_shapes[i], gpu_types[type], kind, 3, 1);
            }
    end();
}

/* ---- bias by bucket */

static alibi_status run_bucket_forward(struct device *dev, const struct problem *p,
                                       const struct tensor *t)
{
    (void)p;
    return dev->ops->bucket_forward(dev, t[2], t[1], t[0]);
}

static alibi_status run_bucket_backward(struct device *dev, const struct problem *p,
                                        const struct tensor *t)
{
    (void)p;
    return dev->ops->bucket_backward(dev, t[2], t[1], t[0]);
}

static void check_bucket(int64_t H, int64_t T, int64_t buckets, enum tokens kind)
{
    struct problem forward = { .operation = "bucket_forward", .run = run_bucket_forward };
    struct problem backward = { .operation = "bucket_backward",
                                .run = run_bucket_backward,
                                .limit = 1e-5 };

    DESCRIBE(&forward, "H=%d T=%d buckets=%d %s", (int)H, (int)T, (int)buckets, tokens_names[kind]);
    memcpy(backward.shape, forward.shape, sizeof forward.shape);
    given_tokens(&forward, T, buckets, kind);
    given(&forward, matrix(DTYPE_F32, buckets, H));
    written(&forward, matrix(DTYPE_F32, H, T));
    given_tokens(&backward, T, buckets, kind);
    given(&backward, matrix(DTYPE_F32, H, T));
    added_to(&backward, matrix(DTYPE_F32, buckets, H));
    check(&forward);
    check(&backward);
}

static void bias_by_bucket_equals_the_reference(void **state)
{
    static const int64_t shapes[][3] = { { 1, 1, 1 },     { 3, 7, 4 }, { 8, 128, 32 },
                                         { 5, 1025, 32 }, { 2, 0, 4 }, { 16, 4096, 31 } };

    (void)state;
    begin();
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int kind = TOKENS_RANDOM; kind <= TOKENS_ZIPF; kind++)
            check_bucket(shapes[i][0], shapes[i][1], shapes[i][2], (enum tokens)kind);
    end();
}

/* ---- cross-entropy. kind: 0 no gradient, 1 gradient apart, 2 in place of the logits */

static alibi_status run_cross_entropy(struct device *dev, const struct problem *p,
                                      const struct tensor *t)
{
    struct tensor logits = p->kind == 2 ? t[3] : t[0];

    return dev->ops->cross_entropy(
        dev, &(struct cross_entropy_args){ .nll = t[2],
                                           .dlogits = present_if(p->kind > 0, t[3]),
                                           .logits = logits,
                                           .targets = t[1],
                                           .scale = 0.25 });
}

static void check_cross_entropy(int64_t rows, int64_t V, enum dtype type, int kind, double size,
                                int64_t skew)
{
    static const char *const kinds[] = { "", " gradient", " gradient in place" };
    struct problem p = {
        .operation = "cross_entropy", .type = type, .kind = kind, .limit = 5e-6, .skew = skew
    };

    DESCRIBE(&p, "rows=%d V=%d size=%g%s", (int)rows, (int)V, size, kinds[kind]);
    p.run = run_cross_entropy;
    fill_random(&p, add_slot(&p, matrix(type, rows, V), GIVEN), size);
    given_tokens(&p, rows, V, TOKENS_RANDOM);
    for (int64_t r = 1; r < rows; r += 3)
        put(&p.slots[1], r, -1.0);
    written(&p, vector(DTYPE_F32, rows))->size =
        size; /* a difference of logits, which may be nothing */
    if (kind == 2)
        fill_random(&p, add_slot(&p, matrix(type, rows, V), ADDED_TO), size);
    else
        written(&p, matrix(type, kind ? rows : 0, V));
    p.slots[3].size = kind == 2 ? size : 0.25; /* for V = 1 there is no gradient */
    if (kind == 2) /* relative to the gradients, not to the logits that were there */
        p.slots[3].limit *= 0.25 / size;
    check(&p);
}

static void cross_entropy_equals_the_reference(void **state)
{
    static const int64_t shapes[][2] = { { 0, 5 },     { 1, 1 },     { 4, 3 },     { 7, 257 },
                                         { 5, 2049 },  { 3, 50257 }, { 3, 50304 }, { 64, 256 },
                                         { 300, 257 }, { 2, 131071 } };

    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int kind = 0; kind < 3; kind++) {
                check_cross_entropy(shapes[i][0], shapes[i][1], gpu_types[type], kind, 3.0, 0);
                check_cross_entropy(shapes[i][0], shapes[i][1], gpu_types[type], kind, 100.0,
                                    0); /* beyond what exp can take */
                check_cross_entropy(shapes[i][0], shapes[i][1], gpu_types[type], kind, 3.0, 1);
            }
    end();
}

/* ---- optimizers. kind: copy 0 none, 1 f32, 2 bf16; n: how many decay */

static alibi_status run_adamw(struct device *dev, const struct problem *p, const struct tensor *t)
{
    struct adamw_args a = { .lr = 1e-2,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .gradient_scale = 0.5,
                            .step = 3,
                            .decaying = p->n[0] };

    return adamw_of(dev, t[1], present_if(p->kind > 0, t[4]), t[2], t[3], t[0], a);
}

static alibi_status run_nesterov(struct device *dev, const struct problem *p,
                                 const struct tensor *t)
{
    struct nesterov_args n = { .lr = 0.02,
                               .previous_lr = 0.019,
                               .momentum = 0.99,
                               .weight_decay = 0.1,
                               .gradient_scale = 0.5,
                               .decaying = p->n[0] };

    return nesterov_of(dev, t[1], present_if(p->kind > 0, t[4]), t[2], t[0], n);
}

static void check_optimizer(bool adamw, int64_t count, int64_t decaying, int copy, int64_t skew)
{
    static const char *const copies[] = { "", " copy f32", " copy bf16" };
    struct problem p = {
        .operation = adamw ? "adamw" : "nesterov", .kind = copy, .n = { decaying }, .limit = 1e-6
    };

    DESCRIBE(&p, "count=%d decaying=%d%s", (int)count, (int)decaying, copies[copy]);
    p.skew = skew;
    p.rough = 0x1.01p-8; /* one rounding */
    p.run = adamw ? run_adamw : run_nesterov;
    given(&p, vector(DTYPE_F32, count));
    added_to(&p, vector(DTYPE_F32, count));
    added_to(&p, vector(DTYPE_F32, count));
    added_to(&p, vector(DTYPE_F32, adamw ? count : 0));
    for (int64_t i = 0; adamw && i < count; i++)
        put(&p.slots[3], i, fabs(p.slots[3].values[i])); /* a mean of squares */
    for (int64_t i = 5; i < count;
         i += 11) /* nothing there, nothing to learn: as between tensors */
        for (int s = 0; s < (adamw ? 4 : 3); s++)
            put(&p.slots[s], i, 0.0);
    written(&p, vector(copy == 2 ? DTYPE_BF16 : DTYPE_F32, copy ? count : 0));
    check(&p);
}

static void optimizers_equal_the_reference(void **state)
{
    static const int64_t counts[] = { 0, 1, 15, 4096, 4097, 50021, 1100003 };

    (void)state;
    begin();
    for (int i = 0; i < COUNT_OF(counts); i++)
        for (int copy = 0; copy < 3; copy++)
            for (int kind = 0; kind < 4; kind++) {
                check_optimizer(kind & 1, counts[i], counts[i] / 3, copy, kind >> 1);
                check_optimizer(kind & 1, counts[i], kind & 2 ? counts[i] : 0, copy, 0);
            }
    end();
}

/* ---- sums */

/* Uploads, sums twice, and compares with sums in the order of the elements. */
static void check_sums(const float *x, int64_t count, enum dtype type, int64_t skew)
{
    double squares[2], sums[2], expected_squares = 0.0, expected_sum = 0.0, size = 0.0;
    struct tensor t = tensor_1(NULL, type, count);

    for (int64_t i = 0; i < count; i++) {
        double value = rounded(type, (double)x[i]);
        expected_squares += value * value;
        expected_sum += value;
        size += fabs(value);
    }
    assert_ok(gpu.ops->buffer_new(&gpu, &t.data, (size_t)(count + skew) * dtype_bytes(type) + 1,
                                  "numbers"));
    void *buffer = t.data;
    t.data = tensor_at(t, skew);
    assert_ok(gpu.ops->upload(&gpu, t, x));
    for (int n = 0; n < 2; n++) {
        assert_ok(gpu.ops->sum_squares(&gpu, &squares[n], t));
        assert_ok(gpu.ops->sum(&gpu, &sums[n], t));
    }
    gpu.ops->buffer_free(&gpu, buffer);
    double error = fmax(fabs(squares[0] - expected_squares) / fmax(expected_squares, 1e-30),
                        fabs(sums[0] - expected_sum) / fmax(size, 1e-30));
    bool good = error <= 1e-12 && memcmp(&squares[0], &squares[1], sizeof(double)) == 0 &&
                memcmp(&sums[0], &sums[1], sizeof(double)) == 0;
    printf("sums cuda %s count=%d%s  error %.1e  limit 1.0e-12  %s\n", type_name(type), (int)count,
           skew ? " unaligned" : "", error, good ? "ok" : "TOO FAR, OR DIFFERS THE SECOND TIME");
    all_good = all_good && good;
}

static void sums_equal_those_in_double(void **state)
{
    static const int64_t counts[] = { 0, 1, 15, 255, 4096, 4097, 50021, 3000017 };
    float *x = NULL;

    (void)state;
    begin();
    assert_ok(NEW_ARRAY(&x, 3000017, "floats"));
    for (int i = 0; i < 3000017; i++)
        x[i] = (float)random_normal(SEED, 3, (uint64_t)i);
    for (int i = 0; i < COUNT_OF(counts); i++)
        for (int kind = 0; kind < 4; kind++)
            check_sums(x, counts[i], gpu_types[kind & 1], kind >> 1);
    for (int i = 0; i < 1000; i++)
        x[i] = 1e30f; /* squares beyond fp32 */
    check_sums(x, 1000, DTYPE_F32, 0);
    mem_free(x);
    end();
}

static void sums_with_a_number_that_is_not_finite_are_not_finite(void **state)
{
    enum { COUNT = 70001 };
    static const int64_t places[] = { 0, 1, 4096, COUNT - 1 };
    static float x[COUNT];
    struct tensor t = tensor_1(NULL, DTYPE_F32, COUNT);

    (void)state;
    begin();
    assert_ok(gpu.ops->buffer_new(&gpu, &t.data, sizeof x, "numbers"));
    for (int type = 0; type < 2; type++)
        for (int place = 0; place < COUNT_OF(places); place++)
            for (int kind = 0; kind < 3; kind++) {
                static const float odd[] = { NAN, INFINITY, -INFINITY };
                double squares, sum;
                t.type = gpu_types[type];
                memset(x, 0, sizeof x);
                x[places[place]] = odd[kind];
                assert_ok(gpu.ops->upload(&gpu, t, x));
                assert_ok(gpu.ops->sum_squares(&gpu, &squares, t));
                assert_ok(gpu.ops->sum(&gpu, &sum, t));
                assert_true(!isfinite(squares) && !isfinite(sum));
            }
    gpu.ops->buffer_free(&gpu, t.data);
    end();
}

/* ---- what else holds */

/* The problem's result at one place is not a number, as the reference's is. */
static void check_nan(struct problem *p, int slot, int64_t place)
{
    struct solution s = solve_on_gpu(p);
    bool good = isnan(result(p, &s, slot, place));

    printf("%s cuda %s %s  a nan %s\n", p->operation, type_name(p->type), p->shape,
           good ? "shows: ok" : "IS HIDDEN");
    all_good = all_good && good;
    solution_free(&s);
    problem_free(p);
}

/* One NaN in the input of each operation that could lose it in a comparison. */
static void a_nan_is_never_hidden(void **state)
{
    (void)state;
    begin();
    for (int type = 0; type < 2; type++) {
        for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++)
            for (int backward = 0; backward < 2; backward++) {
                int64_t wide = kind == ALIBI_SWIGLU ? 40 : 20;
                struct problem p = { .operation = "activation",
                                     .type = gpu_types[type],
                                     .kind = kind };
                DESCRIBE(&p, "%s%s", activation_names[kind], backward ? " backward" : "");
                p.run = backward ? run_activation_backward : run_activation_forward;
                if (backward)
                    given(&p, matrix(p.type, 1, 20));
                given(&p, matrix(p.type, 1, wide))->values[3] = (double)NAN;
                fill_random(&p, written(&p, matrix(p.type, 1, backward ? wide : 20)), 1.0);
                check_nan(&p, backward ? 2 : 1, 3);
            }
        struct problem p = { .operation = "cross_entropy",
                             .type = gpu_types[type],
                             .run = run_cross_entropy };
        given(&p, matrix(p.type, 1, 37))->values[36] = (double)NAN;
        given_tokens(&p, 1, 1, TOKENS_RANDOM);
        fill_random(&p, written(&p, vector(DTYPE_F32, 1)), 1.0);
        written(&p, vector(p.type, 0));
        check_nan(&p, 2, 0);
    }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_equals_the_reference),
        cmocka_unit_test(norms_equal_the_reference),
        cmocka_unit_test(norms_with_their_residual_equal_the_reference),
        cmocka_unit_test(
            a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass),
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(activations_of_numbers_large_and_small_stay_right),
        cmocka_unit_test(residual_and_dropout_equal_the_reference),
        cmocka_unit_test(rotary_equals_the_reference),
        cmocka_unit_test(bias_by_bucket_equals_the_reference),
        cmocka_unit_test(cross_entropy_equals_the_reference),
        cmocka_unit_test(optimizers_equal_the_reference),
        cmocka_unit_test(sums_equal_those_in_double),
        cmocka_unit_test(sums_with_a_number_that_is_not_finite_are_not_finite),
        cmocka_unit_test(a_nan_is_never_hidden),
    };

    return RUN_ON_GPU(tests);
}
