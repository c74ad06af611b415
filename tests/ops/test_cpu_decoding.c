/* test_cpu_decoding.c - decoding several sequences of different lengths in one call: a row of a
 * ragged batch has the bits that it has in a call of its own, in every type and on every
 * instruction set */
#include "ops/cpu/cpu.h"

#include "check.h"

enum { SEED = 7, SLOTS = 7, ROWS = 5, CAPACITY = 200, H = 4, HKV = 2, D = 24, VOCAB = 11 };

/* Lengths around tiles; slots out of order, and some not used. */
static const int32_t slots[ROWS] = { 4, 0, 6, 1, 3 };
static const int32_t lengths[ROWS] = { 1, 64, 65, 200, 130 };

static struct ragged rows_at(int first, int count)
{
    return (struct ragged){ .slot = tensor_1((void *)(slots + first), DTYPE_I32, count),
                            .length = tensor_1((void *)(lengths + first), DTYPE_I32, count) };
}

static struct tensor new_tensor(struct tensor shape, uint64_t stream)
{
    assert_ok(mem_new(&shape.data, (size_t)tensor_count(shape) * dtype_bytes(shape.type), "test"));
    for (int64_t i = 0; i < tensor_count(shape); i++)
        set(shape, i, stream ? random_normal(SEED, stream, (uint64_t)i) : (double)NAN);
    return shape;
}

static void assert_same_bits(struct tensor a, struct tensor b)
{
    assert_memory_equal(a.data, b.data, (size_t)tensor_count(a) * dtype_bytes(a.type));
}

static struct tensor row_of(struct tensor t, int64_t b)
{
    t.data = tensor_at(t, b * t.stride[0]);
    t.shape[0] = 1;
    return t;
}

/* Runs `test` on the reference in every type, and on every instruction set. */
static void on_every_backend(void (*test)(struct device *dev, enum dtype type))
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_F64, DTYPE_BF16 };
    struct ops ops;
    struct device dev = { .ops = &ops_ref };

    for (int t = 0; t < 3; t++)
        test(&dev, types[t]);
    dev.ops = &ops;
    for (int s = 0; cpu_set_name(s); s++) {
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        for (int t = 0; t < 3; t++)
            test(&dev, types[t]);
    }
}

/* ---- attention */

/* The caches of a call and its queries, with positions beyond each length poisoned. */
static struct attention_args attention_call(struct device *dev, enum dtype type,
                                            enum bias_kind kind, double eps, bool with_norms)
{
    struct tensor cache = tensor_4(NULL, type, SLOTS, CAPACITY, HKV, D);
    struct attention_args a = { .q = new_tensor(tensor_4(NULL, type, ROWS, 1, H, D), 1),
                                .k = new_tensor(cache, 2),
                                .v = new_tensor(cache, 3),
                                .y = new_tensor(tensor_4(NULL, type, ROWS, 1, H, D), 0),
                                .lse = new_tensor(tensor_3(NULL, dtype_sums(type), ROWS, H, 1), 0),
                                .bias = { kind, tensor_none() },
                                .scale = 0.2,
                                .skip.eps = eps,
                                .ragged = rows_at(0, ROWS) };

    a.bias.values = new_tensor(kind == BIAS_TABLE ? tensor_2(NULL, dtype_sums(type), H, 90)
                                                  : tensor_1(NULL, dtype_sums(type), H),
                               4);
    for (int64_t h = 0; kind == BIAS_LINEAR && h < H; h++)
        set(a.bias.values, h, exp2(-(double)(h + 1)));
    for (int b = 0; b < ROWS; b++)
        for (int64_t i = lengths[b] * HKV * D; i < CAPACITY * HKV * D; i++) {
            set(a.k, slots[b] * a.k.stride[0] + i, (double)NAN);
            set(a.v, slots[b] * a.v.stride[0] + i, (double)NAN);
        }
    if (with_norms) {
        int64_t tiles = attention_tiles(CAPACITY);
        a.skip.norms = new_tensor(tensor_3(NULL, dtype_sums(type), SLOTS, HKV, tiles), 0);
        for (int b = 0; b < ROWS; b++) { /* as a cache that grew to this length has them */
            struct tensor k = row_of(a.k, slots[b]);
            k.shape[1] = lengths[b];
            assert_ok(dev->ops->attention_norms(dev, row_of(a.skip.norms, slots[b]), k, 0));
        }
    }
    return a;
}

static void attention_free(struct attention_args *a)
{
    struct tensor all[] = { a->q, a->k, a->v, a->y, a->lse, a->bias.values, a->skip.norms };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i].data);
}

/* Each row again: as a ragged batch of one, and as a plain call over its slot's keys. */
static void check_attention(struct device *dev, enum dtype type, enum bias_kind kind, double eps,
                            bool with_norms)
{
    struct attention_args a = attention_call(dev, type, kind, eps, with_norms);
    struct tensor y = new_tensor(tensor_4(NULL, type, 1, 1, H, D), 0);
    struct tensor lse = new_tensor(tensor_3(NULL, dtype_sums(type), 1, H, 1), 0);

    assert_ok(dev->ops->attention_forward(dev, &a));
    for (int b = 0; b < ROWS; b++) {
        struct attention_args alone = a;
        alone.q = row_of(a.q, b);
        alone.y = y;
        alone.lse = lse;
        alone.ragged = rows_at(b, 1);
        assert_ok(dev->ops->attention_forward(dev, &alone));
        assert_same_bits(y, row_of(a.y, b));
        assert_same_bits(lse, row_of(a.lse, b));
        alone.ragged = ragged_none();
        alone.k = row_of(a.k, slots[b]);
        alone.v = row_of(a.v, slots[b]);
        alone.k.shape[1] = alone.v.shape[1] = lengths[b];
        if (with_norms)
            alone.skip.norms = row_of(a.skip.norms, slots[b]);
        assert_ok(dev->ops->attention_forward(dev, &alone));
        assert_same_bits(y, row_of(a.y, b));
        assert_same_bits(lse, row_of(a.lse, b));
        assert_true(isfinite(get(lse, 0)));
    }
    mem_free(y.data);
    mem_free(lse.data);
    attention_free(&a);
}

static void check_attentions(struct device *dev, enum dtype type)
{
    for (int kind = BIAS_NONE; kind <= BIAS_TABLE; kind++)
        for (int n = 0; n < 3; n++)
            check_attention(dev, type, (enum bias_kind)kind, n > 0 ? 1e-2 : 0.0, n > 1);
}

static void ragged_attention_gives_each_row_the_bits_it_has_alone(void **state)
{
    (void)state;
    on_every_backend(check_attentions);
}

/* ---- the cache */

/* Appending token by token in ragged steps gives the keys and norms of a cache filled at once. */
static void check_cache(struct device *dev, enum dtype type)
{
    int64_t tiles = attention_tiles(CAPACITY);
    struct tensor k = new_tensor(tensor_4(NULL, type, SLOTS, CAPACITY, HKV, D), 0);
    struct tensor v = new_tensor(tensor_4(NULL, type, SLOTS, CAPACITY, HKV, D), 0);
    struct tensor keys = new_tensor(tensor_4(NULL, type, ROWS, CAPACITY, HKV, D), 5);
    struct tensor values = new_tensor(tensor_4(NULL, type, ROWS, CAPACITY, HKV, D), 6);
    struct tensor norms = new_tensor(tensor_3(NULL, dtype_sums(type), SLOTS, HKV, tiles), 0);
    struct tensor expected = new_tensor(tensor_3(NULL, dtype_sums(type), ROWS, HKV, tiles), 0);
    struct tensor all[] = { k, v, keys, values, norms, expected };

    assert_ok(dev->ops->attention_norms(dev, expected, keys, 0));
    for (int32_t step = 1; step <= CAPACITY; step++) {
        int32_t length[ROWS] = { step, step, step, step, step };
        struct cache_append_args a = { .k = k,
                                       .v = v,
                                       .norms = norms,
                                       .new_k = keys,
                                       .new_v = values,
                                       .ragged = rows_at(0, ROWS) };
        a.ragged.length.data = length;
        a.new_k.data = tensor_at(keys, (step - 1) * keys.stride[1]);
        a.new_v.data = tensor_at(values, (step - 1) * values.stride[1]);
        a.new_k.shape[1] = a.new_v.shape[1] = 1;
        assert_ok(dev->ops->cache_append(dev, &a));
    }
    for (int b = 0; b < ROWS; b++) {
        assert_same_bits(row_of(k, slots[b]), row_of(keys, b));
        assert_same_bits(row_of(v, slots[b]), row_of(values, b));
        assert_same_bits(row_of(norms, slots[b]), row_of(expected, b));
    }
    assert_true(isnan(get(k, 2 * k.stride[0]))); /* slot 2 is nobody's */
    assert_true(isnan(get(norms, 2 * norms.stride[0])));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i].data);
}

static void a_cache_appended_to_in_ragged_steps_equals_one_filled_at_once(void **state)
{
    (void)state;
    on_every_backend(check_cache);
}

/* ---- positions */

static void check_positions(struct device *dev, enum dtype type)
{
    enum dtype sums = dtype_sums(type);
    int32_t tokens[ROWS] = { 3, 0, 10, 3, 7 };
    struct tensor weight = new_tensor(tensor_2(NULL, type, VOCAB, D), 6);
    struct tensor table = new_tensor(tensor_2(NULL, sums, CAPACITY, D), 7);
    struct tensor y = new_tensor(tensor_3(NULL, type, ROWS, 1, D), 0);
    struct tensor one = new_tensor(tensor_3(NULL, type, 1, 1, D), 0);
    struct tensor x = new_tensor(tensor_4(NULL, type, ROWS, 1, H, D), 8);
    struct tensor alone = new_tensor(tensor_4(NULL, type, ROWS, 1, H, D), 8);
    struct embedding_args e = { .y = y,
                                .tokens = tensor_2(tokens, DTYPE_I32, ROWS, 1),
                                .weight = weight,
                                .table = table,
                                .scale = 1.25,
                                .ragged = rows_at(0, ROWS) };

    assert_ok(dev->ops->embedding_forward(dev, &e));
    for (int b = 0; b < ROWS; b++) {
        e.y = one;
        e.tokens = tensor_2(tokens + b, DTYPE_I32, 1, 1);
        e.ragged = ragged_none();
        e.start = lengths[b] - 1;
        assert_ok(dev->ops->embedding_forward(dev, &e));
        assert_same_bits(one, row_of(y, b));
    }
    for (int layout = ALIBI_ROTARY_HALVES; layout <= ALIBI_ROTARY_PAIRS; layout++) {
        struct rotation r = { .table = table, .layout = layout };
        assert_ok(dev->ops->rotary(dev, tensor_4(x.data, type, 1, ROWS, H, D), r, 1));
        for (int b = 0; b < ROWS; b++) {
            r.table = tensor_rows(table, b, 1);
            assert_ok(dev->ops->rotary(dev, row_of(alone, b), r, 1));
        }
        assert_same_bits(x, alone);
    }
    struct tensor all[] = { weight, table, y, one, x, alone };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i].data);
}

static void ragged_rows_are_embedded_and_rotated_at_their_own_positions(void **state)
{
    (void)state;
    on_every_backend(check_positions);
}

/* ---- linear */

/* A row of every batch size around the kernel's blocks, against the row alone and the reference. */
static void check_linear(struct device *dev, enum dtype type)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 7, 5 }, { 16, 4 }, { 67, 33 }, { 130, 10 } };
    enum { MOST = 35 };

    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        int64_t in = shapes[n][0], out = shapes[n][1];
        struct tensor x = new_tensor(tensor_2(NULL, type, MOST, in), 9);
        struct tensor y = new_tensor(tensor_2(NULL, type, MOST, out), 0);
        struct tensor alone = new_tensor(tensor_2(NULL, type, MOST, out), 0);
        struct linear_args a = { .weight = new_tensor(tensor_2(NULL, type, out, in), 10),
                                 .bias = new_tensor(tensor_1(NULL, type, out), 11),
                                 .decoding = true };

        for (int64_t r = 0; r < MOST; r++) {
            a.x = tensor_rows(x, r, 1);
            a.y = tensor_rows(alone, r, 1);
            assert_ok(dev->ops->linear_forward(dev, &a));
        }
        for (int64_t rows = 1; rows <= MOST; rows++) {
            a.x = tensor_rows(x, 0, rows);
            a.y = tensor_rows(y, 0, rows);
            assert_ok(dev->ops->linear_forward(dev, &a));
            assert_same_bits(a.y, tensor_rows(alone, 0, rows));
        }
        a.y = alone;
        a.decoding = false;
        assert_ok(ref_linear_forward(dev, &a));
        for (int64_t i = 0; i < MOST * out; i++)
            assert_close(get(y, i), get(alone, i), type == DTYPE_BF16 ? 0.0 : 1e-4);
        mem_free(x.data);
        mem_free(y.data);
        mem_free(alone.data);
        mem_free(a.weight.data);
        mem_free(a.bias.data);
    }
}

static void a_row_of_a_decoding_product_does_not_depend_on_the_other_rows(void **state)
{
    (void)state;
    on_every_backend(check_linear);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_attention_gives_each_row_the_bits_it_has_alone),
        cmocka_unit_test(a_cache_appended_to_in_ragged_steps_equals_one_filled_at_once),
        cmocka_unit_test(ragged_rows_are_embedded_and_rotated_at_their_own_positions),
        cmocka_unit_test(a_row_of_a_decoding_product_does_not_depend_on_the_other_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
