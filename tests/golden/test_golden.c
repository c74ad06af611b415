/* test_golden.c - small models give the logits and gradients that PyTorch gives
 *
 * make_golden.py beside this file wrote data/NAME.json and data/NAME.safetensors, and says what is
 * in them. */
#include "formats/formats.h"
#include "model/model.h"

#include "check.h"
#include "passes.h"

#define LIMIT 1e-4 /* relative to the largest magnitude of the tensor */
#define DATA TEST_FOLDER "/golden/data"

enum { FILE_MAX = 1 << 22, PATH_BYTES = 4096 };

/* One golden file in memory. */
struct golden {
    const char *name;
    struct alibi_config config;
    struct safetensors *tensors;
    char *bytes;
    const int32_t *tokens;
    int64_t B, L;
    const float *dropout; /* of residual branches, attention, activations, tails; NULL: none */
    int64_t dropouts;
};

/* ---- reading */

static void path_of(char path[PATH_BYTES], const char *name, const char *ending)
{
    snprintf(path, PATH_BYTES, "%s/%s.%s", DATA, name, ending);
}

static const struct safetensor *look_for(const struct golden *g, const char *full)
{
    for (int i = 0; i < g->tensors->count; i++)
        if (strcmp(g->tensors->tensors[i].name, full) == 0)
            return &g->tensors->tensors[i];
    return NULL;
}

static const struct safetensor *find(const struct golden *g, const char *prefix, const char *name)
{
    char full[2 * PARAMETER_NAME_MAX];
    const struct safetensor *t;

    snprintf(full, sizeof full, "%s%s", prefix, name);
    t = look_for(g, full);
    if (!t)
        fail_msg("'%s' has no tensor '%s'", g->name, full);
    return t;
}

static const float *floats(const struct golden *g, const struct safetensor *t, int64_t count)
{
    assert_string_equal(t->type, "F32");
    assert_int_equal(t->end - t->begin, count * 4);
    return (const float *)(g->bytes + t->begin);
}

static void golden_open(struct golden *g, const char *name)
{
    char path[PATH_BYTES], *json = NULL;
    const struct safetensor *tokens;
    size_t bytes;

    *g = (struct golden){ .name = name };
    path_of(path, name, "json");
    assert_ok(file_read_all(&json, &bytes, path, FILE_MAX));
    assert_ok(config_read_json(&g->config, json, bytes, path));
    mem_free(json);
    path_of(path, name, "safetensors");
    assert_ok(safetensors_open(&g->tensors, path));
    assert_ok(file_read_all(&g->bytes, &bytes, path, FILE_MAX));
    tokens = find(g, "", "golden.tokens");
    assert_string_equal(tokens->type, "I32");
    g->tokens = (const int32_t *)(g->bytes + tokens->begin);
    g->B = tokens->shape[0];
    g->L = tokens->shape[1];
    if (look_for(g, "golden.dropout")) {
        g->dropouts = look_for(g, "golden.dropout")->shape[0];
        assert_in_range(g->dropouts, 3, 4);
        g->dropout = floats(g, look_for(g, "golden.dropout"), g->dropouts);
    }
}

static void golden_close(struct golden *g)
{
    safetensors_free(g->tensors);
    mem_free(g->bytes);
}

/* ---- comparing */

static double relative_error(const float *ours, const float *theirs, int64_t count)
{
    double error = 0.0, largest = 0.0;

    for (int64_t i = 0; i < count; i++) {
        assert_true(isfinite(ours[i]));
        error = fmax(error, fabs((double)ours[i] - (double)theirs[i]));
        largest = fmax(largest, fabs((double)theirs[i]));
    }
    assert_true(largest > 0.0);
    return error / largest;
}

static void report(const struct golden *g, const struct model *m, const char *what, double error)
{
    printf("golden %-3s f32 %-14s %-52s error %.1e  limit %.1e  %s\n", m->device->ops->name,
           g->name, what, error, LIMIT, error <= LIMIT ? "ok" : "FAILED");
    assert_true(error <= LIMIT);
}

static void load_weights(const struct golden *g, struct model *m)
{
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        const struct safetensor *t = find(g, "", p->name);
        assert_int_equal(t->rank, p->rank);
        for (int d = 0; d < t->rank; d++)
            assert_int_equal(t->shape[d], p->shape[d]);
        assert_ok(m->device->ops->upload(m->device, parameter_slice(m, p, m->values),
                                         floats(g, t, p->count)));
    }
    assert_ok(model_refresh(m));
    /* A value and a gradient each, tokens, logits, those of training, dropout: nothing in the file
     * is left unchecked. */
    assert_int_equal(g->tensors->count, 2 * m->count + 2 + (g->dropout ? 1 : 0) +
                                            (look_for(g, "golden.trained") ? 1 : 0));
}

static void check_logits(const struct golden *g, struct model *m)
{
    int64_t count = g->B * g->L * g->config.vocab;
    float *logits = NULL;

    assert_ok(NEW_ARRAY(&logits, count, "logits"));
    assert_ok(once_logits(m, g->tokens, g->B, g->L, logits));
    report(g, m, "logits",
           relative_error(logits, floats(g, find(g, "golden.", "logits"), count), count));
    mem_free(logits);
}

/* Minus the logarithm of what a softmax of their logits in that row gives the target. */
static double nll_of(const float *logits, int64_t V, int32_t target)
{
    double sum = 0.0;

    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v] - (double)logits[target]);
    return log(sum);
}

/* 0.3 and not the float that is nearest to it. */
static double decimal(float x)
{
    return round((double)x * 1e6) * 1e-6;
}

/* The next token is the target; the last position has none. */
static void run_gradients(const struct golden *g, struct model *m)
{
    int64_t rows = g->B * g->L, V = g->config.vocab;
    const char *trained = look_for(g, "golden.trained") ? "trained" : "logits";
    const float *logits = floats(g, find(g, "golden.", trained), rows * V);
    struct pass_settings settings = { 0 };
    struct dropout drop = { 0, 9, 4 }; /* SEED and STREAM of make_golden.py */
    int32_t *targets = NULL;
    double loss, theirs = 0.0, scale = 1.0 / (double)(g->B * (g->L - 1));

    assert_ok(NEW_ARRAY(&targets, rows, "targets"));
    for (int64_t r = 0; r < rows; r++) {
        targets[r] = (r + 1) % g->L == 0 ? -1 : g->tokens[r + 1];
        theirs += targets[r] < 0 ? 0.0 : nll_of(logits + r * V, V, targets[r]);
    }
    assert_ok(model_clear_gradients(m));
    if (g->dropout) {
        drop.p = decimal(g->dropout[0]);
        settings.attention_dropout = decimal(g->dropout[1]);
        settings.activation_dropout = decimal(g->dropout[2]);
        settings.tail_dropout = g->dropouts > 3 ? decimal(g->dropout[3]) : 0.0;
    }
    assert_ok(once_gradients(m, settings, g->tokens, targets, g->B, g->L, scale, drop, &loss));
    report(g, m, "loss", fabs(loss - theirs) / theirs);
    mem_free(targets);
}

/* Every tensor is compared by itself; the line shows the worst of them. */
static void check_gradients(const struct golden *g, struct model *m)
{
    float *ours = NULL;
    double worst = -1.0;
    char what[2 * PARAMETER_NAME_MAX];

    assert_ok(NEW_ARRAY(&ours, m->elements, "a gradient"));
    run_gradients(g, m);
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        const float *theirs = floats(g, find(g, "gradient.", p->name), p->count);
        double error;
        assert_ok(m->device->ops->download(m->device, ours, p->gradient));
        error = relative_error(ours, theirs, p->count);
        if (error > worst)
            snprintf(what, sizeof what, "%d gradients, worst %s", m->count, p->name);
        worst = fmax(worst, error);
    }
    report(g, m, what, worst);
    mem_free(ours);
}

static void check_device(const struct golden *g, const struct ops *ops)
{
    struct device device = { .ops = ops };
    struct model *m = NULL;

    assert_ok(model_new(&m, &g->config, &device, DTYPE_F32, true));
    load_weights(g, m);
    if (!g->dropout) /* theirs are of training: the loss is held against them */
        check_logits(g, m);
    check_gradients(g, m);
    model_free(m);
}

static void logits_and_gradients_equal_pytorch(void **state)
{
    struct golden g;

    golden_open(&g, *state);
    check_device(&g, &ops_ref);
    check_device(&g, ops_cpu());
    golden_close(&g);
}

/* ---- the files */

static const char *const models[] = {
    "gpt2",
    "bloom-8",
    "bloom-12",
    "bloom-17",
    "mpt-8",
    "mpt-12",
    "mpt-17",
    "alibi-bias-max",
    "rotary-halves",
    "qk-norm-rotary",
    "qk-norm",
    "rotary-pairs",
    "t5",
    "hybrid",
    "sinks",
    "scale-invariant",
    "pattern",
    "curves",
    "gates",
    "shares",
    "stretched-rotary",
    "stretched-alibi",
    "slopes",
    "temperature",
    "yarn-original",
    "reach",
    "scale-invariant-preset",
    "sinusoidal",
    "adaptive-tied",
    "adaptive-untied",
    "dropout-alibi",
    "dropout-rotary",
    "dropout-adaptive",
};

enum { MODELS = sizeof models / sizeof *models };

static bool is_known(const char *file)
{
    char expected[PATH_BYTES];

    for (int i = 0; i < MODELS; i++) {
        snprintf(expected, sizeof expected, "%s.safetensors", models[i]);
        if (strcmp(file, expected) == 0)
            return true;
    }
    return false;
}

/* A file that is missing fails its own test; one that no test reads fails this. */
static void every_golden_file_is_read_by_a_test(void **state)
{
    char **names = NULL;
    int count = 0, known = 0;

    (void)state;
    assert_ok(folder_list(&names, &count, DATA));
    for (int i = 0; i < count; i++) {
        if (strstr(names[i], ".safetensors") == NULL)
            continue;
        if (!is_known(names[i]))
            fail_msg("'%s' is read by no test", names[i]);
        known++;
    }
    names_free(names, count);
    assert_int_equal(known, MODELS);
}

int main(void)
{
    struct CMUnitTest tests[MODELS + 1];

    for (int i = 0; i < MODELS; i++)
        tests[i] = (struct CMUnitTest){ models[i], logits_and_gradients_equal_pytorch, NULL, NULL,
                                        (void *)models[i] };
    tests[MODELS] = (struct CMUnitTest)cmocka_unit_test(every_golden_file_is_read_by_a_test);
    return cmocka_run_group_tests_name("logits and gradients equal PyTorch's", tests, NULL, NULL);
}
