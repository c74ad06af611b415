/* test_cuda_linear.c - the GPU's linear layers against the reference: cuBLASLt, and what our own
 * kernels add to it */
#include <dlfcn.h>

#include "ops/gpu.h"

/* ---- linear. kind: 1 bias; backward: 1 dbias, 2 dx, 4 no dweight */

static alibi_status run_linear_forward(struct device *dev, const struct problem *p,
                                       const struct tensor *t)
{
    return dev->ops->linear_forward(
        dev, &(struct linear_args){
                 .y = t[3], .x = t[0], .weight = t[1], .bias = present_if(p->kind & 1, t[2]) });
}

/* Without dweight x is not read. */
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
    p.rough = 0x1p-7; /* the input of the activation may be rounded already */
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
    p.rough = 0x1p-7; /* the gradient of the activation may be rounded already */
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

/* ---- the autotuner */

/* The backend's hook for tests (lib/ops/cuda/cuda.h). */
typedef void autotune_function(struct device *dev, int after, double flops, int *tuned);

static autotune_function *autotune_hook(const struct device *dev)
{
    Dl_info info;
    void *library, *symbol;
    autotune_function *hook;

    assert_true(dladdr(dev->ops, &info) != 0);
    library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    symbol = dlsym(library, "alibi_cuda_autotune");
    assert_non_null(symbol);
    memcpy(&hook, &symbol, sizeof symbol);
    dlclose(library);
    return hook;
}

static alibi_device *open_gpu(void)
{
    const struct alibi_compute compute = { ALIBI_DEVICE_CUDA, ALIBI_FP32, 0 };
    alibi_device *device = NULL;

    assert_ok(alibi_device_open(&device, &compute, NULL));
    return device;
}

enum { RESULTS = 4 }; /* y, activated, dx, dweight */

struct layer {
    struct tensor x, weight, bias, dy, up, results[RESULTS];
};

static struct tensor random_on(struct device *dev, struct tensor shape, uint64_t stream)
{
    int64_t count = tensor_count(shape);
    float *host = malloc((size_t)count * sizeof *host);

    assert_non_null(host);
    for (int64_t i = 0; i < count; i++)
        host[i] = (float)(2.0 * random_uniform(SEED, stream, (uint64_t)i) - 1.0);
    assert_ok(
        dev->ops->buffer_new(dev, &shape.data, (size_t)count * dtype_bytes(shape.type), "test"));
    assert_ok(dev->ops->upload(dev, shape, host));
    free(host);
    return shape;
}

/* Operands of a layer, other ones for another seed; dweight begins with numbers of its own. */
static struct layer layer_of(struct device *dev, enum dtype type, const int64_t *n, uint64_t seed)
{
    const uint64_t s = 16 * seed;

    return (struct layer){ .x = random_on(dev, matrix(type, n[0], n[1]), s),
                           .weight = random_on(dev, matrix(type, n[2], n[1]), s + 1),
                           .bias = random_on(dev, vector(type, n[2]), s + 2),
                           .dy = random_on(dev, matrix(type, n[0], n[2]), s + 3),
                           .up = random_on(dev, matrix(type, n[0], n[2]), s + 4),
                           .results = { random_on(dev, matrix(type, n[0], n[2]), s + 5),
                                        random_on(dev, matrix(type, n[0], n[2]), s + 6),
                                        random_on(dev, matrix(type, n[0], n[1]), s + 7),
                                        random_on(dev, matrix(DTYPE_F32, n[2], n[1]), s + 8) } };
}

/* Every kind of product: with a bias, with GELU, both gradients. */
static void run_layer(struct device *dev, const struct layer *l)
{
    assert_ok(dev->ops->linear_forward(
        dev, &(struct linear_args){
                 .y = l->results[0], .x = l->x, .weight = l->weight, .bias = l->bias }));
    assert_ok(dev->ops->linear_activation_forward(
        dev, &(struct linear_activation_args){ .kind = ALIBI_GELU_TANH,
                                               .activated = l->results[1],
                                               .up = l->up,
                                               .x = l->x,
                                               .weight = l->weight,
                                               .bias = l->bias }));
    assert_ok(dev->ops->linear_backward(dev, &(struct linear_args){ .dx = l->results[2],
                                                                    .dweight = l->results[3],
                                                                    .dy = l->dy,
                                                                    .x = l->x,
                                                                    .weight = l->weight }));
}

static float *result_of(struct device *dev, struct tensor t)
{
    float *host = malloc((size_t)tensor_count(t) * sizeof *host);

    assert_non_null(host);
    assert_ok(dev->ops->download(dev, host, t));
    return host;
}

/* One device tunes every product after its second run, the other never. They are compared on
 * operands that the tuning has not seen. */
static void check_autotuner(enum dtype type, const int64_t *n)
{
    enum { RUNS = 4 };
    alibi_device *tuned = open_gpu(), *plain = open_gpu();
    autotune_function *hook = autotune_hook(&tuned->device);
    struct layer seen = layer_of(&tuned->device, type, n, 1);
    int products = 0, none = 0, different = 0;

    hook(&tuned->device, 2, 0.0, &products);
    hook(&plain->device, 1 << 30, 0.0, &none);
    for (int i = 0; i < RUNS; i++)
        run_layer(&tuned->device, &seen);
    hook(&tuned->device, -1, 0.0, &products);
    for (uint64_t seed = 2; seed < 4; seed++) {
        struct layer a = layer_of(&tuned->device, type, n, seed),
                     b = layer_of(&plain->device, type, n, seed);
        run_layer(&tuned->device, &a);
        run_layer(&plain->device, &b);
        for (int i = 0; i < RESULTS; i++) {
            float *got = result_of(&tuned->device, a.results[i]),
                  *want = result_of(&plain->device, b.results[i]);
            different += memcmp(got, want, (size_t)tensor_count(a.results[i]) * sizeof *got) != 0;
            free(got);
            free(want);
        }
    }
    hook(&plain->device, -1, 0.0, &none);
    printf(
        "autotuner cuda %s rows=%d in=%d out=%d  products tuned %d  results that differ %d  %s\n",
        type_name(type), (int)n[0], (int)n[1], (int)n[2], products, different,
        products > 0 && none == 0 && different == 0 ? "ok" : "WRONG");
    all_good = all_good && products > 0 && none == 0 && different == 0;
    alibi_device_free(tuned); /* with its buffers */
    alibi_device_free(plain);
}

static void the_autotuner_does_not_change_a_bit(void **state)
{
    static const int64_t shapes[][3] = {
        { 512, 768, 1024 }, { 4096, 1024, 1024 }, { 640, 384, 1536 }, { 100, 96, 200 }
    };

    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            check_autotuner(gpu_types[type], shapes[i]);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_equals_the_reference),
        cmocka_unit_test(linear_takes_tensors_at_any_place),
        cmocka_unit_test(linear_with_activation_equals_the_reference),
        cmocka_unit_test(the_autotuner_does_not_change_a_bit),
    };

    return RUN_ON_GPU(tests);
}
