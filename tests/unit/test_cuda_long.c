/* test_cuda_long.c - whole models on a GPU over windows long enough to skip tiles, and to have
 * several key blocks add to the same rows of dQ */
#include "ops/gpu.h"
#include "passes.h"
#include "training.h"

enum { L = 1088, VOCAB = 257, KINDS = 4 }; /* L: 17 tiles, so the last block is half full */

static const double budget = 0x1p-16;

/* With few cases 10 tiles, half a block of the next. */
static int64_t window(void)
{
    return few_cases() ? 640 : L;
}

/* Heads of 64 and of 128, without and with groups. Most slopes are steep enough to skip. */
static struct alibi_config config_of(int kind, const char *position)
{
    struct alibi_config c;
    struct alibi_training training;

    tiny_defaults(&c, &training);
    c.vocab = VOCAB;
    c.layers = few_cases() && !strchr(position, ',') ? 1 : 2;
    c.heads = few_cases() ? 2 : 4;
    c.kv_heads = kind % 2 ? c.heads / 2 : c.heads;
    c.width = c.heads * (kind < 2 ? 64 : 128);
    c.ff_width = 128;
    c.train_length = window();
    snprintf(c.position, sizeof c.position, "%s", position);
    assert_ok(alibi_config_resolve(&c));
    return c;
}

struct outcome {
    double loss;
    float *gradients;                /* [span]; mem_free */
    struct attention_statistics all; /* of a pass without gradients */
};

static struct outcome outcome_of(const struct alibi_config *c, struct device *dev, enum dtype type,
                                 double skip)
{
    static int32_t tokens[L + 1];
    static float nll[L];
    struct outcome o = { .loss = 0 };
    struct workspace *w = NULL;
    struct model *m = NULL;

    for (int64_t i = 0; i <= L; i++)
        tokens[i] = (int32_t)random_below(3, 1, (uint64_t)i, VOCAB);
    assert_ok(model_new(&m, c, dev, type, true));
    assert_ok(model_init(m, 5, ALIBI_INIT_GPT2));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ .skip = skip, .record = true }));
    assert_ok(model_loss(w, tokens, tokens + 1, 1, window(), nll));
    o.all = workspace_statistics(w);
    workspace_free(w);
    assert_ok(model_clear_gradients(m));
    assert_ok(once_gradients(m, (struct pass_settings){ .skip = skip }, tokens, tokens + 1, 1,
                             window(), 1.0 / (double)window(), (struct dropout){ .p = 0 },
                             &o.loss));
    assert_ok(NEW_ARRAY(&o.gradients, m->span, "gradients"));
    assert_ok(dev->ops->download(dev, o.gradients, model_flat(m, m->gradients)));
    model_free(m);
    return o;
}

static int64_t span_of(const struct alibi_config *c)
{
    struct device cpu = { .ops = ops_cpu() };
    struct model *m = NULL;
    int64_t span;

    assert_ok(model_outline(&m, c, &cpu, DTYPE_F32));
    span = m->span;
    model_free(m);
    return span;
}

static double relative(const float *x, const float *y, int64_t count)
{
    double error = 0.0, size = 0.0;

    for (int64_t i = 0; i < count; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    return sqrt(error / size);
}

/* Twice with the same bits, close to the CPU, which computed every pair. With a budget some tiles
 * must really be skipped. */
static void check_model(const struct alibi_config *c, bool skips, enum dtype type, double skip,
                        const struct outcome *want)
{
    struct outcome got = outcome_of(c, &gpu, type, skip), again = outcome_of(c, &gpu, type, skip);
    int64_t span = span_of(c);
    double error = relative(got.gradients, want->gradients, span),
           limit = type == DTYPE_BF16 ? 5e-2 : 1e-3,
           used = skip > 0 ? (double)got.all.tiles.used / (double)got.all.tiles.all : 1;
    bool same = got.loss == again.loss &&
                memcmp(got.gradients, again.gradients, (size_t)span * sizeof(float)) == 0;
    bool good = error <= limit && same && fabs(got.loss / want->loss - 1) <= limit &&
                (skip == 0 || !skips || used < 1);

    printf(
        "model %s %s L=%d H=%d/%d D=%d %s skip %.0e  tiles used %.3f  gradient %.1e  limit %.1e  "
        "%s  %s\n",
        gpu.ops->name, type_name(type), (int)window(), (int)c->heads, (int)c->kv_heads,
        (int)(c->width / c->heads), c->position, skip, used, error, limit,
        same ? "repeats" : "DOES NOT REPEAT", good ? "ok" : "WRONG");
    all_good = all_good && good;
    mem_free(got.gradients);
    mem_free(again.gradients);
}

static void long_windows_skip_tiles_and_keep_losses_and_gradients(void **state)
{
    static const struct {
        const char *position;
        bool skips;
    } all[] = {
        { "alibi", true },
        { "rotary", false },
        { "t5", false },
        { "fox", true },
        { "kerple:power", true },
        { "bam", true },
        { "scale-invariant", false },
        { "rotary:window=200:sinks=4,alibi:bias-max=2:free=0.5:logn", true },
    };
    struct device cpu = { .ops = ops_cpu() };

    (void)state;
    begin();
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < COUNT_OF(all); i++) {
            struct alibi_config c = config_of(kind, all[i].position);
            struct outcome want;

            if (few_cases() && (kind != 1 || i < 3))
                continue;
            want = outcome_of(&c, &cpu, DTYPE_F32, 0);
            for (int type = first_type(); type < 2; type++) {
                if (!few_cases())
                    check_model(&c, false, gpu_types[type], 0, &want);
                check_model(&c, all[i].skips, gpu_types[type], budget, &want);
            }
            mem_free(want.gradients);
        }
    end();
}

/* ---- training */

enum { STEPS = 4 };

struct trainee {
    struct model *model;
    struct optimizer optimizer;
};

static struct alibi_training training_of(void)
{
    struct alibi_config c;
    struct alibi_training t;

    tiny_defaults(&c, &t);
    t.lr = 1e-3;
    t.dropout = 0.1;
    return t;
}

static struct trainee trainee_of(const struct alibi_config *c, enum dtype type)
{
    struct trainee t = { NULL };

    assert_ok(model_new(&t.model, c, &gpu, type, true));
    assert_ok(model_init(t.model, 5, ALIBI_INIT_GPT2));
    assert_ok(optimizer_init(&t.optimizer, t.model, training_of().optimizer, NULL));
    return t;
}

static void trainee_free(struct trainee *t)
{
    optimizer_fini(&t->optimizer);
    model_free(t->model);
}

static void train(struct trainee *t, int64_t from, int64_t to)
{
    struct alibi_training training = training_of();
    int32_t tokens[L + 1];

    for (int64_t step = from; step <= to; step++) {
        struct dropout drop = { training.dropout, 3, RANDOM_STREAM(RANDOM_DROPOUT, step) };
        double loss, norm;
        for (int64_t i = 0; i <= L; i++)
            tokens[i] = (int32_t)random_below(3, (uint64_t)step, (uint64_t)i, VOCAB);
        assert_ok(model_clear_gradients(t->model));
        assert_ok(once_gradients(t->model, (struct pass_settings){ .skip = budget }, tokens,
                                 tokens + 1, 1, L, 1.0 / L, drop, &loss));
        assert_ok(optimizer_update(&t->optimizer, &training, step, loss / L, &norm));
    }
}

static float *flat_of(struct model *m, void *buffer)
{
    float *host = NULL;

    assert_ok(NEW_ARRAY(&host, m->span, "numbers of a model"));
    assert_ok(m->device->ops->download(m->device, host, model_flat(m, buffer)));
    return host;
}

static void training_on_long_windows_repeats_bit_for_bit(void **state)
{
    (void)state;
    begin();
    for (int type = 0; type < 2; type++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct alibi_config c = config_of(kind, kind % 2 ? "rotary" : "alibi");
            struct trainee first = trainee_of(&c, gpu_types[type]),
                           second = trainee_of(&c, gpu_types[type]);
            float *a, *b;
            train(&first, 1, STEPS);
            train(&second, 1, STEPS);
            a = flat_of(first.model, first.model->values);
            b = flat_of(second.model, second.model->values);
            assert_memory_equal(a, b, (size_t)first.model->span * sizeof *a);
            mem_free(a);
            mem_free(b);
            trainee_free(&first);
            trainee_free(&second);
        }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_windows_skip_tiles_and_keep_losses_and_gradients),
        cmocka_unit_test(training_on_long_windows_repeats_bit_for_bit),
    };

    return RUN_ON_GPU(tests);
}
