/* test_cuda_autotune.c - the GPU's choice among algorithms for matrix products */
#include <dlfcn.h>

#include "ops/gpu.h"

enum { SEED = 5 };

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

    return (struct layer){ .x = random_on(dev, tensor_2(NULL, type, n[0], n[1]), s),
                           .weight = random_on(dev, tensor_2(NULL, type, n[2], n[1]), s + 1),
                           .bias = random_on(dev, tensor_1(NULL, type, n[2]), s + 2),
                           .dy = random_on(dev, tensor_2(NULL, type, n[0], n[2]), s + 3),
                           .up = random_on(dev, tensor_2(NULL, type, n[0], n[2]), s + 4),
                           .results = {
                               random_on(dev, tensor_2(NULL, type, n[0], n[2]), s + 5),
                               random_on(dev, tensor_2(NULL, type, n[0], n[2]), s + 6),
                               random_on(dev, tensor_2(NULL, type, n[0], n[1]), s + 7),
                               random_on(dev, tensor_2(NULL, DTYPE_F32, n[2], n[1]), s + 8) } };
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
        cmocka_unit_test(the_autotuner_does_not_change_a_bit),
    };

    return RUN_ON_GPU(tests);
}
