/* Decoding several sequences at once: a row has the same bits in any batch, on every device.
 *
 * Each test runs on the reference, the CPU and, if there is one, the GPU, and compares a call of
 * several rows with calls of each row alone, bit for bit, and with the reference. */
#include "check.h"
#include "ops/bf16.h"
#include "ops/ops.h"

enum { BUFFERS = 64, SLOTS = 6, CAPACITY = 700, H = 4, HKV = 2, D = 64, B = 5, ENTRIES = 32 };

/* Rows of the batch: a first token, the end of a tile, its beginning, a full cache, and between.
 * Their other places, outside of the tiles that a window of WINDOW sees. */
enum { WINDOW = 290 };
static const int32_t slots[B] = { 3, 0, 5, 1, 4 }, lengths[B] = { 1, 64, 65, CAPACITY, 300 };
static const int32_t others[B] = { 65, 300, CAPACITY, 64, 450 };

/* ---- devices */

static struct {
    struct device *dev;
    enum dtype type;
    void *buffers[BUFFERS];
    int count;
} on;

static struct device ref_device = { .ops = &ops_ref }, cpu_device;
static alibi_device *gpu;

static int find_gpu(void **state)
{
    const struct alibi_compute compute = { .device = ALIBI_DEVICE_CUDA, .precision = ALIBI_FP32 };

    (void)state;
    cpu_device.ops = ops_cpu();
    if (alibi_device_open(&gpu, &compute, NULL) != ALIBI_OK)
        printf("%s\n", alibi_error());
    return 0;
}

static int free_gpu(void **state)
{
    (void)state;
    alibi_device_free(gpu);
    return 0;
}

/* Runs `check` on every device and type. */
static void on_every_device(void (*check)(void))
{
    struct {
        struct device *dev;
        enum dtype type;
    } all[] = { { &ref_device, DTYPE_F32 },
                { &cpu_device, DTYPE_F32 },
                { gpu ? &gpu->device : NULL, DTYPE_F32 },
                { gpu ? &gpu->device : NULL, DTYPE_BF16 } };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!all[i].dev)
            continue;
        on.dev = all[i].dev;
        on.type = all[i].type;
        printf("on %s in %s\n", on.dev->ops->name, on.type == DTYPE_BF16 ? "bf16" : "f32");
        check();
    }
    if (!gpu)
        printf("no GPU: the host's devices only\n");
}

/* ---- tensors */

static struct tensor place(struct tensor shape)
{
    assert_true(on.count < BUFFERS);
    assert_ok(on.dev->ops->buffer_new(
        on.dev, &shape.data, (size_t)tensor_count(shape) * dtype_bytes(shape.type), "test"));
    on.buffers[on.count++] = shape.data;
    return shape;
}

static void free_tensors(void)
{
    while (on.count > 0)
        on.dev->ops->buffer_free(on.dev, on.buffers[--on.count]);
}

static struct tensor random_tensor(struct tensor shape, uint64_t stream)
{
    struct tensor t = place(shape);
    int64_t count = tensor_count(t);
    float *host = malloc((size_t)(count + 1) * sizeof *host);

    assert_non_null(host);
    for (int64_t i = 0; i < count; i++)
        host[i] = (float)(2.0 * random_uniform(7, stream, (uint64_t)i) - 1.0);
    assert_ok(on.dev->ops->upload(on.dev, t, host));
    free(host);
    return t;
}

static struct tensor ids(const int32_t *values, int64_t count)
{
    struct tensor t = place(tensor_1(NULL, DTYPE_I32, count));

    assert_ok(on.dev->ops->upload(on.dev, t, values));
    return t;
}

/* The numbers of a contiguous tensor; free(). */
static float *numbers(struct tensor t)
{
    float *host = calloc((size_t)tensor_count(t) + 1, sizeof *host);

    assert_non_null(host);
    assert_ok(on.dev->ops->download(on.dev, host, t));
    return host;
}

/* Rows first..first+count-1 of two tensors have the same bits. */
static void assert_same_rows(const char *what, struct tensor all, int64_t first, struct tensor some,
                             int64_t some_first, int64_t count, int64_t width)
{
    float *a = numbers(all), *b = numbers(some);

    if (memcmp(a + first * width, b + some_first * width, (size_t)(count * width) * sizeof *a) != 0)
        fail_msg("%s: row %lld in a batch differs from the row alone", what, (long long)first);
    free(a);
    free(b);
}

static struct ragged rows_of(int64_t first, int64_t count)
{
    return (struct ragged){ .slot = ids(slots + first, count),
                            .length = ids(lengths + first, count) };
}

/* ---- attention, norms, the KV cache */

struct step {
    struct tensor k, v, norms, y, lse;
};

/* Sums of gates as a cache has them, after one step of rows first..first+count-1. The last head has
 * none. */
static struct tensor gates(int64_t first, int64_t count, struct ragged ragged)
{
    const int64_t G = H - 1;
    struct gate_args all = { .c = place(tensor_4(NULL, DTYPE_F32, 2, SLOTS, G, CAPACITY)),
                             .z = random_tensor(tensor_2(NULL, on.type, SLOTS * CAPACITY, G), 6),
                             .bias = random_tensor(tensor_1(NULL, DTYPE_F32, G), 7),
                             .ragged = ragged_none() };
    struct gate_args step = all;
    struct tensor z = random_tensor(tensor_2(NULL, on.type, B, G), 8);

    assert_ok(on.dev->ops->gate_forward(on.dev, &all));
    step.z = tensor_2(tensor_at(z, first * G), on.type, count, G);
    step.ragged = ragged;
    assert_ok(on.dev->ops->gate_forward(on.dev, &step));
    return step.c;
}

/* A number of the first new key or value of the next steps. */
static struct {
    bool key, value;
    float number;
} spoilt;

static void spoil(struct tensor t)
{
    assert_ok(on.dev->ops->upload(on.dev, tensor_1(t.data, t.type, 1), &spoilt.number));
}

/* One step of rows first..first+count-1: append k and v to the caches, with a window to both of
 * their places, update norms, attend; by one call if `together`. */
static struct step attend(int64_t first, int64_t count, enum bias_kind kind, double eps,
                          int64_t window, bool together)
{
    struct device *dev = on.dev;
    struct step s = { .k = random_tensor(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D), 1),
                      .v = random_tensor(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D), 2),
                      .norms =
                          place(tensor_3(NULL, DTYPE_F32, SLOTS, HKV, attention_tiles(CAPACITY))),
                      .y = place(tensor_4(NULL, on.type, count, 1, H, D)),
                      .lse = place(tensor_3(NULL, DTYPE_F32, count, H, 1)) };
    struct tensor q = random_tensor(tensor_4(NULL, on.type, B, 1, H, D), 3),
                  new_k = random_tensor(tensor_4(NULL, on.type, B, 1, HKV, D), 4),
                  new_v = random_tensor(tensor_4(NULL, on.type, B, 1, HKV, D), 5);
    struct ragged ragged = rows_of(first, count);
    struct tensor values = kind == BIAS_GAIN   ? tensor_none()
                           : kind == BIAS_GATE ? gates(first, count, ragged)
                           : kind == BIAS_TABLE
                               ? random_tensor(tensor_2(NULL, DTYPE_F32, H, ENTRIES), 6)
                               : random_tensor(tensor_1(NULL, DTYPE_F32, H), 6);
    struct attention_args a = { .k = s.k,
                                .v = s.v,
                                .bias = { kind, values, kind == BIAS_GAIN ? 30.0 : 0.0 },
                                .scale = 0.125,
                                .window = window,
                                .skip = { .eps = eps, .norms = s.norms },
                                .ragged = ragged,
                                .y = s.y,
                                .lse = s.lse };

    a.q = tensor_4(tensor_at(q, first * H * D), on.type, count, 1, H, D);
    new_k = tensor_4(tensor_at(new_k, first * HKV * D), on.type, count, 1, HKV, D);
    new_v = tensor_4(tensor_at(new_v, first * HKV * D), on.type, count, 1, HKV, D);
    if (spoilt.key)
        spoil(new_k);
    if (spoilt.value)
        spoil(new_v);
    const struct cache_append_args rows = { .k = s.k,
                                            .v = s.v,
                                            .norms = s.norms,
                                            .new_k = new_k,
                                            .new_v = new_v,
                                            .ragged = ragged,
                                            .other = window > 0 ? ids(others + first, count)
                                                                : tensor_none() };
    assert_ok(dev->ops->attention_norms(dev, s.norms, s.k, 0));
    if (together)
        a.append = &rows;
    else
        assert_ok(dev->ops->cache_append(dev, &rows));
    assert_ok(dev->ops->attention_forward(dev, &a));
    return s;
}

/* The newest key or value of a row is in the cache as the last of `length`, and those around it are
 * from before. The cache was filled from stream `old`, the new rows are from `added`. */
static void check_append(struct tensor cache, uint64_t old, uint64_t added, int64_t b,
                         int64_t length)
{
    struct tensor before = random_tensor(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D), old),
                  new = random_tensor(tensor_4(NULL, on.type, B, 1, HKV, D), added);
    int64_t row = (int64_t)slots[b] * CAPACITY + length - 1;

    assert_same_rows("cache", cache, row, new, b, 1, HKV * D);
    if (length > 1)
        assert_same_rows("cache", cache, row - 1, before, row - 1, 1, HKV * D);
    if (length < CAPACITY)
        assert_same_rows("cache", cache, row + 1, before, row + 1, 1, HKV * D);
}

/* The norms of a cache that grew to the lengths of the batch are those of one filled at once. */
static void check_norms(void)
{
    struct tensor keys = random_tensor(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D), 9),
                  k = place(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D)),
                  v = place(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D)),
                  norms = place(tensor_3(NULL, DTYPE_F32, SLOTS, HKV, attention_tiles(CAPACITY))),
                  want = place(tensor_3(NULL, DTYPE_F32, SLOTS, HKV, attention_tiles(CAPACITY)));
    const int last = 130; /* two whole tiles, and more */

    for (int32_t length = 1; length <= last; length++) {
        int before = on.count;
        struct tensor row = keys;

        row.data = tensor_at(keys, (length - 1) * keys.stride[1]);
        row.shape[0] = row.shape[1] = 1;
        assert_ok(on.dev->ops->cache_append(
            on.dev,
            &(struct cache_append_args){ .k = k,
                                         .v = v,
                                         .norms = norms,
                                         .new_k = row,
                                         .new_v = row,
                                         .ragged = { ids(&(int32_t){ 0 }, 1), ids(&length, 1) } }));
        while (on.count > before)
            on.dev->ops->buffer_free(on.dev, on.buffers[--on.count]);
    }
    k.shape[0] = 1;
    k.shape[1] = last;
    assert_ok(on.dev->ops->attention_norms(on.dev, want, k, 0));
    for (int64_t h = 0; h < HKV; h++)
        assert_same_rows("norms", want, h * attention_tiles(CAPACITY), norms,
                         h * attention_tiles(CAPACITY), attention_tiles(last), 1);
    free_tensors();
}

static void norms_of_a_cache_that_grew_are_those_of_one_filled_at_once(void **state)
{
    (void)state;
    on_every_device(check_norms);
}

/* A call with two places does what two calls do. */
static void check_both_places(void)
{
    const int64_t tiles = attention_tiles(CAPACITY);
    struct tensor filled[2][3];

    for (int n = 0; n < 2; n++) {
        struct cache_append_args a = {
            .k = random_tensor(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D), 1),
            .v = random_tensor(tensor_4(NULL, on.type, SLOTS, CAPACITY, HKV, D), 2),
            .norms = place(tensor_3(NULL, DTYPE_F32, SLOTS, HKV, tiles)),
            .new_k = random_tensor(tensor_4(NULL, on.type, B, 1, HKV, D), 4),
            .new_v = random_tensor(tensor_4(NULL, on.type, B, 1, HKV, D), 5),
            .ragged = rows_of(0, B),
            .other = ids(others, B)
        };

        assert_ok(on.dev->ops->attention_norms(on.dev, a.norms, a.k, 0));
        if (n == 1) {
            a.other = tensor_none();
            assert_ok(on.dev->ops->cache_append(on.dev, &a));
            a.ragged.length = ids(others, B);
        }
        assert_ok(on.dev->ops->cache_append(on.dev, &a));
        filled[n][0] = a.k;
        filled[n][1] = a.v;
        filled[n][2] = a.norms;
    }
    assert_same_rows("keys", filled[0][0], 0, filled[1][0], 0, SLOTS * CAPACITY, HKV * D);
    assert_same_rows("values", filled[0][1], 0, filled[1][1], 0, SLOTS * CAPACITY, HKV * D);
    assert_same_rows("norms", filled[0][2], 0, filled[1][2], 0, SLOTS * HKV, tiles);
    check_append(filled[0][0], 1, 4, 1, others[1]);
    free_tensors();
}

static void a_token_is_written_to_both_of_its_places(void **state)
{
    (void)state;
    on_every_device(check_both_places);
}

static void check_attention(void)
{
    static const int64_t windows[] = { 0, WINDOW };
    const int64_t tiles = attention_tiles(CAPACITY);

    for (int kind = BIAS_NONE; kind <= BIAS_GAIN; kind++)
        for (int n = 0; n < 8; n++) {
            bool budget = n % 2, together = n / 4;
            int64_t window = windows[n / 2 % 2];
            double eps = budget ? 1e-2 : 0;
            struct step all = attend(0, B, (enum bias_kind)kind, eps, window, together);
            float *y = numbers(all.y), *lse = numbers(all.lse), *want_y, *want_lse;

            check_append(all.k, 1, 4, 3, lengths[3]);
            check_append(all.k, 1, 4, 0, lengths[0]);
            check_append(all.v, 2, 5, 3, lengths[3]);
            for (int64_t b = 0; window > 0 && b < B; b++) {
                check_append(all.k, 1, 4, b, others[b]);
                check_append(all.v, 2, 5, b, others[b]);
            }
            for (int64_t b = 0; b < B; b++) {
                int before = on.count;
                struct step alone = attend(b, 1, (enum bias_kind)kind, eps, window, together);
                assert_same_rows("attention", all.y, b, alone.y, 0, 1, H * D);
                assert_same_rows("lse", all.lse, b, alone.lse, 0, 1, H);
                assert_same_rows("norms", all.norms, slots[b], alone.norms, slots[b], 1,
                                 HKV * tiles);
                while (on.count > before)
                    on.dev->ops->buffer_free(on.dev, on.buffers[--on.count]);
            }
            free_tensors();
            /* against the reference on the same numbers, which in bf16 are rounded: loosely */
            if (on.dev != &ref_device) {
                struct device *dev = on.dev;
                enum dtype type = on.type;
                double limit = type == DTYPE_BF16 ? 3e-2 : budget ? 3e-2 : 1e-5;
                on.dev = &ref_device;
                on.type = DTYPE_F32;
                all = attend(0, B, (enum bias_kind)kind, 0, window, false);
                want_y = numbers(all.y);
                want_lse = numbers(all.lse);
                for (int64_t i = 0; i < B * H * D; i++)
                    assert_close(y[i], want_y[i], limit);
                for (int64_t i = 0; i < B * H; i++)
                    assert_close(lse[i], want_lse[i], limit);
                free(want_y);
                free(want_lse);
                free_tensors();
                on.dev = dev;
                on.type = type;
            }
            free(y);
            free(lse);
        }
}

static void attention_of_a_row_does_not_depend_on_the_batch(void **state)
{
    (void)state;
    on_every_device(check_attention);
}

/* NaN in a new key makes all of its row NaN, and in a new value its column. */
static void check_nan(void)
{
    for (int n = 0; n < 8; n++) {
        const bool together = n % 2, budget = n / 2 % 2, key = n / 4;

        spoilt.key = key;
        spoilt.value = !key;
        spoilt.number = NAN;
        struct step s = attend(B - 1, 1, BIAS_LINEAR, budget ? 1e-2 : 0, 0, together);
        float *y = numbers(s.y), *lse = numbers(s.lse);

        for (int64_t h = 0; h < H; h++) {
            bool reads = h < H / HKV; /* the first head of keys */

            assert_int_equal(isnan(lse[h]), reads && key);
            for (int64_t d = 0; d < D; d++)
                assert_int_equal(isnan(y[h * D + d]), reads && (key || d == 0));
        }
        free(y);
        free(lse);
        free_tensors();
    }
    spoilt.key = spoilt.value = false;
}

static void new_keys_and_values_that_are_nan_show_in_the_output(void **state)
{
    (void)state;
    on_every_device(check_nan);
}

/* ---- positions */

static void check_positions(void)
{
    enum { C = 40, VOCAB = 11 };
    static const int32_t tokens[B] = { 0, 10, 3, 3, 7 };
    struct device *dev = on.dev;
    struct tensor angles = random_tensor(tensor_2(NULL, DTYPE_F32, B, D), 1),
                  table = random_tensor(tensor_2(NULL, DTYPE_F32, CAPACITY, C), 2),
                  weight = random_tensor(tensor_2(NULL, on.type, VOCAB, C), 3),
                  x = random_tensor(tensor_4(NULL, on.type, B, 1, H, D), 4),
                  alone_x = random_tensor(tensor_4(NULL, on.type, B, 1, H, D), 4),
                  factor = random_tensor(tensor_1(NULL, DTYPE_F32, H), 5),
                  scaled = place(tensor_4(NULL, on.type, B, 1, H, D)),
                  alone_scaled = place(tensor_4(NULL, on.type, B, 1, H, D)),
                  y = place(tensor_3(NULL, on.type, B, 1, C)),
                  alone_y = place(tensor_3(NULL, on.type, B, 1, C)), all_tokens = ids(tokens, B);
    struct rotation r = { .table = angles, .layout = ALIBI_ROTARY_HALVES };
    struct embedding_args e = { .y = y,
                                .tokens = tensor_2(all_tokens.data, DTYPE_I32, B, 1),
                                .weight = weight,
                                .table = table,
                                .ragged = rows_of(0, B),
                                .scale = 2 };
    struct logn_args n = {
        .y = scaled, .x = x, .factor = factor, .window = 70, .ragged = e.ragged
    };

    assert_ok(dev->ops->rotary(dev, tensor_4(x.data, on.type, 1, B, H, D), r, 1));
    assert_ok(dev->ops->logn_forward(dev, &n));
    assert_ok(dev->ops->embedding_forward(dev, &e));
    e.ragged = n.ragged = ragged_none();
    for (int64_t b = 0; b < B; b++) { /* each row alone, at its position */
        struct tensor row = tensor_4(tensor_at(alone_x, b * H * D), on.type, 1, 1, H, D);
        e.start = n.start = lengths[b] - 1;
        r.table = tensor_rows(angles, b, 1);
        n.x = row;
        n.y = tensor_4(tensor_at(alone_scaled, b * H * D), on.type, 1, 1, H, D);
        e.y = tensor_3(tensor_at(alone_y, b * C), on.type, 1, 1, C);
        e.tokens = tensor_2(tensor_at(all_tokens, b), DTYPE_I32, 1, 1);
        assert_ok(dev->ops->rotary(dev, row, r, 1));
        assert_ok(dev->ops->logn_forward(dev, &n));
        assert_ok(dev->ops->embedding_forward(dev, &e));
    }
    assert_same_rows("logn", scaled, 0, alone_scaled, 0, B, H * D);
    assert_same_rows("rotary", x, 0, alone_x, 0, B, H * D);
    assert_same_rows("embedding", y, 0, alone_y, 0, B, C);
    free_tensors();
}

static void rotary_logn_and_embedding_take_a_position_per_row(void **state)
{
    (void)state;
    on_every_device(check_positions);
}

/* ---- linear layers */

enum { ROWS = 70 };

struct layer {
    struct tensor x, weight, bias;
    struct tensor up, activated;             /* of batches */
    struct tensor alone_up, alone_activated; /* of one row at a time */
};

static alibi_status run_layer(const struct layer *l, int kind, int64_t first, int64_t rows,
                              struct tensor up, struct tensor activated, bool decoding)
{
    return on.dev->ops->linear_activation_forward(
        on.dev, &(struct linear_activation_args){ .kind = kind,
                                                  .activated = activated,
                                                  .up = up,
                                                  .x = tensor_rows(l->x, first, rows),
                                                  .weight = l->weight,
                                                  .bias = l->bias,
                                                  .decoding = decoding });
}

static void assert_all_close(struct tensor got, struct tensor want, double limit)
{
    float *a = numbers(got), *b = numbers(want);

    for (int64_t i = 0; i < tensor_count(got); i++)
        assert_close(a[i], b[i], limit);
    free(a);
    free(b);
}

/* The rows again, where no row is aligned to 16 bytes. */
static void check_odd_address(const struct layer *l)
{
    int64_t in = l->x.shape[1], out = l->up.shape[1];
    struct tensor room = place(tensor_1(NULL, on.type, ROWS * in + 1)), x = l->x;
    struct tensor y = place(tensor_2(NULL, on.type, ROWS, out));

    x.data = tensor_at(room, 1);
    assert_ok(on.dev->ops->copy(on.dev, tensor_4(x.data, on.type, 1, 1, 1, ROWS * in),
                                tensor_4(l->x.data, on.type, 1, 1, 1, ROWS * in)));
    assert_ok(on.dev->ops->linear_forward(
        on.dev, &(struct linear_args){
                    .y = y, .x = x, .weight = l->weight, .bias = l->bias, .decoding = true }));
    assert_same_rows("odd address", l->alone_up, 0, y, 0, ROWS, out);
}

static void check_linear_shape(int64_t in, int64_t out, bool bias, int kind)
{
    static const int64_t batches[] = { 1, 3, 5, 8, 9, 16, 17, 31, 32, 33, ROWS };
    int64_t F = kind == ALIBI_SWIGLU ? out / 2 : out;
    struct tensor up = tensor_2(NULL, on.type, ROWS, out), act = tensor_2(NULL, on.type, ROWS, F);
    struct layer l = { .x = random_tensor(tensor_2(NULL, on.type, ROWS, in), 1),
                       .weight = random_tensor(tensor_2(NULL, on.type, out, in), 2),
                       .bias =
                           bias ? random_tensor(tensor_1(NULL, on.type, out), 3) : tensor_none(),
                       .up = place(up),
                       .activated = place(act),
                       .alone_up = place(up),
                       .alone_activated = place(act) };
    double size = sqrt((double)in) + 1, limit = on.type == DTYPE_BF16 ? 0x1p-6 : 1e-6;

    for (int64_t r = 0; r < ROWS; r++)
        assert_ok(run_layer(&l, kind, r, 1, tensor_rows(l.alone_up, r, 1),
                            tensor_rows(l.alone_activated, r, 1), true));
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        int64_t rows = batches[i], first = ROWS - rows;
        struct tensor y = tensor_rows(l.up, 0, rows);

        assert_ok(run_layer(&l, kind, first, rows, y, tensor_rows(l.activated, 0, rows), true));
        assert_same_rows("linear", l.alone_up, first, l.up, 0, rows, out);
        assert_same_rows("activation", l.alone_activated, first, l.activated, 0, rows, F);
        assert_ok(on.dev->ops->linear_forward(
            on.dev, &(struct linear_args){ .y = y,
                                           .x = tensor_rows(l.x, first, rows),
                                           .weight = l.weight,
                                           .bias = l.bias,
                                           .decoding = true }));
        assert_same_rows("linear alone", l.alone_up, first, l.up, 0, rows, out);
    }
    check_odd_address(&l);
    assert_ok(run_layer(&l, kind, 0, ROWS, l.up, l.activated, false));
    assert_all_close(l.alone_up, l.up, limit * size);
    assert_all_close(l.alone_activated, l.activated,
                     limit * size * (kind == ALIBI_SWIGLU ? size : 1));
    free_tensors();
}

static void check_linear(void)
{
    check_linear_shape(96, 200, true, ALIBI_GELU_TANH);
    check_linear_shape(96, 200, false, ALIBI_SWIGLU);
    check_linear_shape(8, 1, true, ALIBI_RELU);
    check_linear_shape(40, 17, false, ALIBI_GELU_ERF);
    check_linear_shape(33, 17, true, ALIBI_GELU_TANH); /* rows that begin at odd addresses */
    check_linear_shape(1024, 257, true, ALIBI_GELU_TANH);
    check_linear_shape(3208, 19, true, ALIBI_RELU); /* more inputs than a GPU takes at once */
}

static void a_row_of_a_linear_layer_does_not_depend_on_the_batch(void **state)
{
    (void)state;
    on_every_device(check_linear);
}

/* ---- the norm before a linear layer, computed by it */

enum { NORM_ROWS = 33 };

struct normed_layer {
    struct norm_args norm; /* of all rows, as x and its outputs */
    struct tensor weight, bias, up, activated;
};

static struct normed_layer new_normed_layer(int kind, bool branch, int64_t in, int64_t out)
{
    struct tensor wide = tensor_2(NULL, on.type, NORM_ROWS, in);
    struct tensor statistic = tensor_1(NULL, DTYPE_F32, NORM_ROWS);

    return (struct normed_layer){
        .norm = { .kind = kind,
                  .y = place(wide),
                  .sum = branch ? place(wide) : tensor_none(),
                  .mean = kind == ALIBI_LAYERNORM ? place(statistic) : tensor_none(),
                  .rstd = place(statistic),
                  .x = random_tensor(wide, 1),
                  .branch = branch ? random_tensor(wide, 2) : tensor_none(),
                  .weight = random_tensor(tensor_1(NULL, DTYPE_F32, in), 3),
                  .bias = branch ? random_tensor(tensor_1(NULL, DTYPE_F32, in), 4) : tensor_none(),
                  .eps = 1e-5 },
        .weight = random_tensor(tensor_2(NULL, on.type, out, in), 5),
        .bias = random_tensor(tensor_1(NULL, on.type, out), 6),
        .up = place(tensor_2(NULL, on.type, NORM_ROWS, out)),
        .activated = place(tensor_2(NULL, on.type, NORM_ROWS, out))
    };
}

static struct tensor some_rows(struct tensor t, int64_t first, int64_t rows)
{
    return !t.data       ? t
           : t.rank == 1 ? tensor_1(tensor_at(t, first), t.type, rows)
                         : tensor_rows(t, first, rows);
}

static struct norm_args norm_of_rows(const struct normed_layer *l, int64_t first, int64_t rows)
{
    struct norm_args norm = l->norm;

    norm.y = some_rows(norm.y, first, rows);
    norm.sum = some_rows(norm.sum, first, rows);
    norm.mean = some_rows(norm.mean, first, rows);
    norm.rstd = some_rows(norm.rstd, first, rows);
    norm.x = some_rows(norm.x, first, rows);
    norm.branch = some_rows(norm.branch, first, rows);
    return norm;
}

/* Some rows of the layer, with its norm or after it. */
static void run_normed_layer(const struct normed_layer *l, int kind, bool together, int64_t first,
                             int64_t rows)
{
    const struct ops *ops = on.dev->ops;
    struct norm_args norm = norm_of_rows(l, first, rows);
    struct linear_activation_args a = { .kind = kind,
                                        .activated = some_rows(l->activated, first, rows),
                                        .up = some_rows(l->up, first, rows),
                                        .x = norm.y,
                                        .weight = l->weight,
                                        .bias = l->bias,
                                        .decoding = true,
                                        .norm = together ? &norm : NULL };

    if (!together)
        assert_ok(ops->norm_forward(on.dev, &norm));
    if (kind != ALIBI_SWIGLU) {
        assert_ok(ops->linear_activation_forward(on.dev, &a));
        return;
    }
    assert_ok(ops->linear_forward(on.dev, &(struct linear_args){ .y = a.up,
                                                                 .x = a.x,
                                                                 .weight = a.weight,
                                                                 .bias = a.bias,
                                                                 .decoding = true,
                                                                 .norm = a.norm }));
}

static void assert_same_layers(const struct normed_layer *a, const struct normed_layer *b,
                               bool activated, int64_t first, int64_t rows)
{
    int64_t in = a->weight.shape[1], out = a->weight.shape[0];

    assert_same_rows("y of the norm", a->norm.y, first, b->norm.y, first, rows, in);
    assert_same_rows("rstd", a->norm.rstd, first, b->norm.rstd, first, rows, 1);
    if (a->norm.mean.data)
        assert_same_rows("mean", a->norm.mean, first, b->norm.mean, first, rows, 1);
    if (a->norm.sum.data)
        assert_same_rows("sum", a->norm.sum, first, b->norm.sum, first, rows, in);
    assert_same_rows("layer", a->up, first, b->up, first, rows, out);
    if (activated)
        assert_same_rows("activated", a->activated, first, b->activated, first, rows, out);
}

/* kind SWIGLU: without an activation. */
static void check_normed_shape(int64_t in, int64_t out, int kind)
{
    static const int64_t batches[] = { 1, 3, 8, 9, 16, 31, 32, NORM_ROWS };

    for (int n = 0; n < 4; n++) {
        int norm = n % 2 ? ALIBI_RMSNORM : ALIBI_LAYERNORM;
        struct normed_layer apart = new_normed_layer(norm, n / 2, in, out);

        run_normed_layer(&apart, kind, false, 0, NORM_ROWS);
        for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
            int before = on.count;
            struct normed_layer together = new_normed_layer(norm, n / 2, in, out);
            int64_t rows = batches[i], first = NORM_ROWS - rows;

            run_normed_layer(&together, kind, true, first, rows);
            assert_same_layers(&apart, &together, kind != ALIBI_SWIGLU, first, rows);
            while (on.count > before)
                on.dev->ops->buffer_free(on.dev, on.buffers[--on.count]);
        }
        free_tensors();
    }
}

static void check_normed(void)
{
    check_normed_shape(8, 1, ALIBI_RELU);
    check_normed_shape(40, 17, ALIBI_GELU_ERF);
    check_normed_shape(33, 17, ALIBI_GELU_TANH); /* rows that begin at odd addresses */
    check_normed_shape(200, 33, ALIBI_SWIGLU);
    check_normed_shape(768, 40, ALIBI_GELU_TANH);
    check_normed_shape(1024, 16, ALIBI_SWIGLU); /* the longest row of a warp in a GPU's norm */
    check_normed_shape(1736, 19, ALIBI_RELU);   /* of two */
    check_normed_shape(2056, 9, ALIBI_GELU_TANH);
}

static void a_norm_computed_by_the_linear_layer_has_the_bits_of_the_norm(void **state)
{
    (void)state;
    on_every_device(check_normed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_a_row_does_not_depend_on_the_batch),
        cmocka_unit_test(new_keys_and_values_that_are_nan_show_in_the_output),
        cmocka_unit_test(a_token_is_written_to_both_of_its_places),
        cmocka_unit_test(norms_of_a_cache_that_grew_are_those_of_one_filled_at_once),
        cmocka_unit_test(rotary_logn_and_embedding_take_a_position_per_row),
        cmocka_unit_test(a_row_of_a_linear_layer_does_not_depend_on_the_batch),
        cmocka_unit_test(a_norm_computed_by_the_linear_layer_has_the_bits_of_the_norm),
    };

    return cmocka_run_group_tests(tests, find_gpu, free_gpu);
}
