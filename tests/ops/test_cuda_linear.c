/* test_cuda_linear.c - the GPU's linear layers against the reference: cuBLASLt, and what our own
 * kernels add to it */
#include "ops/gpu.h"

/* ---- linear. kind: 1 bias; backward: 1 dbias, 2 dx, 4 no dweight */

static alibi_status run_linear_forward(struct device *dev, const struct problem *p,
                                       const struct tensor *t)
{
    return dev->ops->linear_forward(
        dev, &(struct linear_args){
                 .y = t[3], .x = t[0], .weight = t[1], .bias = present_if(p->kind & 1, t[2]) });
}

/* Without dweight nobody looks at x. */
static alibi_status run_linear_backward(struct device *dev, const struct problem *p,
                                        const struct tensor *t)
{
    struct tensor dx = p->kind & 2 ? t[5] : tensor_none(), dbias = present_if(p->kind & 1, t[4]);
    bool dweight = !(p->kind & 4);

    return dev->ops->linear_backward(dev,
                                     &(struct linear_args){ .dx = dx,
                                                            .dweight = present_if(dweight, t[3]),
                                                            .dbias = dbias,
                                                            .dy = t[2],
                                                            .x = present_if(dweight, t[0]),
                                                            .weight = t[1] });
}

static void check_linear_forward(const int64_t *n, enum dtype type, int kind, int64_t skew)
{
    struct problem p = {
        .operation = "linear_forward", .type = type, .kind = kind, .limit = 1e-5, .skew = skew
    };

    DESCRIBE(&p, "rows=%d in=%d out=%d%s", (int)n[0], (int)n[1], (int)n[2],
             kind & 1 ? " bias" : "");
    p.rough = kind & 1 ? 0x1p-7 : 0.0; /* the product may be rounded before the bias is added */
    p.run = run_linear_forward;
    given(&p, matrix(type, n[0], n[1]));
    given(&p, matrix(type, n[2], n[1]));
    given(&p, vector(type, n[2]));
    written(&p, matrix(type, n[0], n[2]));
    check(&p);
}

static void check_linear_backward(const int64_t *n, enum dtype type, int kind, int64_t skew)
{
    struct problem p = {
        .operation = "linear_backward", .type = type, .kind = kind, .limit = 1e-5, .skew = skew
    };

    DESCRIBE(&p, "rows=%d in=%d out=%d%s%s%s", (int)n[0], (int)n[1], (int)n[2],
             kind & 1 ? " dbias" : "", kind & 2 ? " dx" : "", kind & 4 ? "" : " dweight");
    p.run = run_linear_backward;
    given(&p, matrix(type, n[0], n[1]));
    given(&p, matrix(type, n[2], n[1]));
    given(&p, matrix(type, n[0], n[2]));
    added_to(&p, matrix(DTYPE_F32, n[2], n[1]));
    added_to(&p, vector(DTYPE_F32, n[2]));
    if (kind & 2)
        written(&p, matrix(type, n[0], n[1]));
    check(&p);
}

static const int64_t linear_shapes[][3] = {
    { 1, 1, 1 },      { 1, 96, 67 },     { 2, 3, 5 },       { 7, 65, 129 },   { 64, 64, 64 },
    { 130, 33, 17 },  { 0, 8, 8 },       { 5, 0, 3 },       { 5, 3, 0 },      { 600, 20, 150 },
    { 1, 768, 257 },  { 31, 40, 257 },   { 128, 512, 256 }, { 256, 64, 192 }, { 37, 128, 1031 },
    { 3, 64, 50304 }, { 512, 192, 128 },
};

static void linear_equals_the_reference(void **state)
{
    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(linear_shapes); i++) {
            for (int kind = 0; kind < 2; kind++)
                check_linear_forward(linear_shapes[i], gpu_types[type], kind, 0);
            for (int kind = 0; kind < 8; kind++)
                check_linear_backward(linear_shapes[i], gpu_types[type], kind, 0);
        }
    end();
}

static void linear_takes_tensors_at_any_place(void **state)
{
    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(linear_shapes); i++) {
            check_linear_forward(linear_shapes[i], gpu_types[type], 1, 1);
            check_linear_forward(linear_shapes[i], gpu_types[type], 0, 3);
            check_linear_backward(linear_shapes[i], gpu_types[type], 3, 1);
            check_linear_backward(linear_shapes[i], gpu_types[type], 6, 1);
        }
    end();
}

/* ---- linear with activation. n: activation; kind: 1 bias; backward: 2 dup is up, 4 dup is
 * scratch, 8 sums of dup */

static alibi_status run_linear_activation_forward(struct device *dev, const struct problem *p,
                                                  const struct tensor *t)
{
    return dev->ops->linear_activation_forward(
        dev, &(struct linear_activation_args){ .kind = (int)p->n[0],
                                               .activated = t[3],
                                               .up = t[4],
                                               .x = t[0],
                                               .weight = t[1],
                                               .bias = present_if(p->kind & 1, t[2]) });
}

static alibi_status run_linear_activation_backward(struct device *dev, const struct problem *p,
                                                   const struct tensor *t)
{
    struct tensor dup = p->kind & 6 ? t[5] : t[7], up = p->kind & 2 ? t[5] : t[6],
                  room = p->kind & 4 ? t[5] : t[2];
    struct tensor sums = present_if(p->kind & 8, t[9]), dbias = present_if(p->kind & 1, t[4]);

    return dev->ops->linear_activation_backward(
        dev, &(struct linear_activation_args){ .kind = (int)p->n[0],
                                               .dup = dup,
                                               .dup_sums = sums,
                                               .scratch = room,
                                               .dweight = t[3],
                                               .dbias = dbias,
                                               .dy = t[0],
                                               .activated = t[1],
                                               .weight = t[8],
                                               .up = up });
}

static void check_linear_activation_forward(const int64_t *n, enum dtype type, int activation,
                                            int kind, int64_t skew)
{
    int64_t rows = n[0], C = n[1], F = n[2], wide = activation == ALIBI_SWIGLU ? 2 * F : F;
    struct problem p = {
        .operation = "linear_activation_forward", .type = type, .kind = kind, .n = { activation }
    };

    DESCRIBE(&p, "rows=%d C=%d F=%d %s%s", (int)rows, (int)C, (int)F, activation_names[activation],
             kind & 1 ? " bias" : "");
    p.skew = skew;
    p.limit = 1e-5;
    p.rough = 0x1p-7; /* what is activated may be rounded already */
    p.run = run_linear_activation_forward;
    given(&p, matrix(type, rows, C));
    given(&p, matrix(type, wide, C));
    given(&p, vector(type, wide));
    written(&p, matrix(type, rows, F));
    written(&p, matrix(type, rows, wide));
    check(&p);
}

static void check_linear_activation_backward(const int64_t *n, enum dtype type, int activation,
                                             int kind, int64_t skew)
{
    int64_t rows = n[0], C = n[1], F = n[2], wide = activation == ALIBI_SWIGLU ? 2 * F : F;
    struct problem p = {
        .operation = "linear_activation_backward", .type = type, .kind = kind, .n = { activation }
    };

    DESCRIBE(&p, "rows=%d C=%d F=%d %s%s%s%s%s", (int)rows, (int)C, (int)F,
             activation_names[activation], kind & 1 ? " dbias" : "", kind & 2 ? " dup is up" : "",
             kind & 4 ? " dup is scratch" : "", kind & 8 ? " sums" : "");
    p.skew = skew;
    p.limit = 1e-5;
    p.rough = 0x1p-7; /* the gradient of what is activated may be rounded already */
    p.run = run_linear_activation_backward;
    given(&p, matrix(type, rows, C));
    given(&p, matrix(type, rows, F));
    scratch(&p, matrix(type, rows, F));
    added_to(&p, matrix(DTYPE_F32, C, F));
    added_to(&p, vector(DTYPE_F32, C));
    added_to(&p, matrix(type, rows, kind & 6 ? wide : 0));
    given(&p, matrix(type, rows, wide));
    written(&p, matrix(type, rows, kind & 6 ? 0 : wide));
    given(&p, matrix(type, C, F));
    struct slot *sums = added_to(&p, vector(DTYPE_F32, wide));
    if (type == DTYPE_BF16)
        sums->limit = p.rough; /* of what was rounded */
    check(&p);
}

static void linear_with_activation_equals_the_reference(void **state)
{
    static const int64_t shapes[][3] = { { 1, 1, 1 },     { 3, 5, 7 },       { 0, 8, 8 },
                                         { 17, 64, 33 },  { 130, 24, 100 },  { 5, 8, 257 },
                                         { 64, 64, 256 }, { 128, 128, 512 }, { 96, 72, 200 },
                                         { 1, 64, 64 } };

    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int activation = ALIBI_GELU_TANH; activation <= ALIBI_SWIGLU; activation++) {
                for (int kind = 0; kind < 2; kind++)
                    check_linear_activation_forward(shapes[i], gpu_types[type], activation, kind,
                                                    0);
                for (int kind = 0; kind < (activation == ALIBI_SWIGLU ? 4 : 6); kind++) {
                    check_linear_activation_backward(shapes[i], gpu_types[type], activation, kind,
                                                     0);
                    check_linear_activation_backward(shapes[i], gpu_types[type], activation,
                                                     kind | 8, 0);
                }
                check_linear_activation_forward(shapes[i], gpu_types[type], activation, 1, 1);
                check_linear_activation_backward(shapes[i], gpu_types[type], activation, 3 | 8, 1);
            }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_equals_the_reference),
        cmocka_unit_test(linear_takes_tensors_at_any_place),
        cmocka_unit_test(linear_with_activation_equals_the_reference),
    };

    return RUN_ON_GPU(tests);
}
