/* bench.c - the time of a training step, and the cost of a long evaluation
 *
 * Models are fresh and tokens random. Steps alternate with the products that they are compared
 * with, so that other load on the machine affects both equally; medians are compared.
 *
 * Counted are the products of the linear layers (products.c) and of attention: per head and layer
 * two in the forward pass and five in the backward pass (the scores once more, dV, dP, dQ, dK),
 * each 2 L^2/2 D for causal attention. Skipped tiles and recomputation change the time but not the
 * count. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "eval/eval.h"
#include "train/train.h"

enum { SEED = 1, ATTENTION_PRODUCTS = 7 };

/* With clusters, id n is about as frequent as 1 / (n + 1): a cluster's work depends on it. */
alibi_status bench_tokens(int32_t **out, const struct model *m, int64_t count)
{
    uint64_t stream = RANDOM_STREAM(RANDOM_BENCH, 0);
    int32_t *tokens = NULL;

    TRY_RETURN(NEW_ARRAY(&tokens, count, "random tokens"));
    for (int64_t i = 0; i < count; i++)
        tokens[i] = m->clusters > 0 ? (int32_t)(pow((double)m->config.vocab + 1,
                                                    random_uniform(SEED, stream, (uint64_t)i)) -
                                                1)
                                    : (int32_t)random_below(SEED, stream, (uint64_t)i,
                                                            (uint64_t)m->config.vocab);
    *out = tokens;
    return ALIBI_OK;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

double bench_median(double *values, int64_t count)
{
    int64_t middle = count / 2;

    qsort(values, (size_t)count, sizeof *values, ascending);
    return count % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double bench_median_error(const double *sorted, int64_t count)
{
    int64_t quarter = (count - 1) / 4;
    double middle = sorted[count / 2];

    return 1.2533 * (sorted[count - 1 - quarter] - sorted[quarter]) / 1.349 / sqrt((double)count) /
           middle;
}

/* A trainer in miniature. */
struct bench {
    struct device *device;
    const struct alibi_call *call;
    struct model *model;
    struct workspace *workspace;
    struct optimizer optimizer;
    struct alibi_training training;
    int32_t *tokens; /* [B L + 1]: the targets are the same from the second on */
    float *nll;      /* of an evaluation pass; NULL: none is taken */
    int64_t B, L, step;
    struct pass_settings settings;
    struct products products;
    double *step_seconds, *product_seconds; /* [repeats] */
    struct meter *meter;                    /* NULL: the device has none */
    double joules, hertz;                   /* sums over the steps of the repeats */
};

static void bench_fini(struct bench *b)
{
    meter_close(b->meter);
    products_fini(&b->products);
    optimizer_fini(&b->optimizer);
    workspace_free(b->workspace);
    model_free(b->model);
    mem_free(b->tokens);
    mem_free(b->nll);
    mem_free(b->step_seconds);
    mem_free(b->product_seconds);
}

static alibi_status default_training(struct alibi_training *training)
{
    struct alibi_option_group group = { .title = "training", .values = training };

    group.options = alibi_training_options(&group.count);
    return alibi_options_init(&group, 1);
}

static alibi_status check_training(int recompute, double skip)
{
    if (recompute < ALIBI_RECOMPUTE_NONE || recompute > ALIBI_RECOMPUTE_BLOCK)
        return fail(ALIBI_USAGE, "recompute %d: there is no such choice", recompute);
    if (!(skip >= 0 && skip < 1))
        return fail(ALIBI_USAGE, "skip %g: it must be from 0 to below 1", skip);
    return ALIBI_OK;
}

static alibi_status check_shape(int64_t batch, int64_t length, int64_t repeats)
{
    size_t rows;

    if (batch < 1 || length < 1 || repeats < 1)
        return fail(ALIBI_USAGE, "batch %lld, length %lld, repeats %lld: each must be 1 or more",
                    (long long)batch, (long long)length, (long long)repeats);
    if (!size_product(&rows, (int64_t[]){ batch, length, (int64_t)sizeof(int64_t) }, 3) ||
        rows > INT64_MAX)
        return fail(ALIBI_MEMORY, "a batch of %lld x %lld tokens does not fit in memory",
                    (long long)batch, (long long)length);
    return ALIBI_OK;
}

/* Tunes as the first step of training does, until the next call of device_tune(). */
static void tune(alibi_device *device)
{
    if (device_tunes_widely(&device->device))
        device_tune(&device->device, TUNING_WIDE);
}

alibi_status bench_model(struct model **out, alibi_device *device,
                         const struct alibi_config *config, int64_t length, bool trainable)
{
    alibi_status status;
    struct alibi_config c = *config;
    struct model *m = NULL;

    c.train_length = length;
    TRY(alibi_config_resolve(&c));
    TRY(model_new(&m, &c, &device->device, device->type, trainable));
    TRY(model_check_length(m, length));
    TRY(model_init(m, SEED, ALIBI_INIT_GPT2));
    *out = m;
    m = NULL;
out:
    model_free(m);
    return status;
}

/* For inputs of up to `length` tokens, and passes of `tokens`. */
static alibi_status bench_init(struct bench *b, alibi_device *device,
                               const struct alibi_config *config, int64_t length, int64_t tokens)
{
    TRY_RETURN(bench_model(&b->model, device, config, length, true));
    TRY_RETURN(workspace_new(&b->workspace, b->model, &b->settings));
    TRY_RETURN(default_training(&b->training));
    TRY_RETURN(optimizer_init(&b->optimizer, b->model, b->training.optimizer, NULL));
    return bench_tokens(&b->tokens, b->model, tokens + 1);
}

/* A whole step, as training takes it. */
static alibi_status take_step(struct bench *b)
{
    double rows = (double)(b->B * b->L), loss, norm;

    TRY_RETURN(model_clear_gradients(b->model));
    TRY_RETURN(model_gradients(b->workspace, b->tokens, b->tokens + 1, b->B, b->L, 1 / rows,
                               (struct dropout){ .p = 0 }, &loss));
    b->step++;
    return optimizer_update(&b->optimizer, &b->training, b->step, loss / rows, &norm);
}

/* Times all work that is started here, and none that was started before. */
static alibi_status time_work(struct bench *b, alibi_status (*work)(struct bench *b),
                              double *seconds)
{
    double begin;

    TRY_RETURN(b->device->ops->finish(b->device));
    begin = clock_seconds();
    TRY_RETURN(work(b));
    TRY_RETURN(b->device->ops->finish(b->device));
    *seconds = clock_seconds() - begin;
    return ALIBI_OK;
}

static alibi_status run_products(struct bench *b)
{
    return products_run(&b->products);
}

/* A step, then the products alone. The meter counts what was used between the waits, and knows the
 * clock that the step ended with. */
static alibi_status time_repeats(struct bench *b, int64_t repeats)
{
    for (int64_t i = 0; i < repeats; i++) {
        struct meter_reading before = { 0 }, after = { 0 };

        if (call_stopped(b->call))
            return fail(ALIBI_INTERRUPTED, "bench: stopped after %lld of %lld repeats",
                        (long long)i, (long long)repeats);
        TRY_RETURN(b->device->ops->finish(b->device));
        if (b->meter)
            before = meter_read(b->meter);
        TRY_RETURN(time_work(b, take_step, &b->step_seconds[i]));
        if (b->meter)
            after = meter_read(b->meter);
        b->joules += after.joules - before.joules;
        b->hertz += after.hertz;
        TRY_RETURN(time_work(b, run_products, &b->product_seconds[i]));
    }
    return ALIBI_OK;
}

static double attention_flops(const struct bench *b)
{
    const struct alibi_config *c = &b->model->config;
    double L = (double)b->L, all_heads = (double)c->width;

    return (double)ATTENTION_PRODUCTS * (double)c->layers * (double)b->B * L * L * all_heads;
}

/* 6 P + 6 N L C per token. */
static double model_flops(const struct bench *b)
{
    const struct alibi_config *c = &b->model->config;
    double P = (double)b->model->elements, N = (double)c->layers, C = (double)c->width,
           L = (double)b->L;

    return (double)b->B * L * (6 * P + 6 * N * L * C);
}

/* One more step, with a clock around every operation. In the steps that are timed as a whole, these
 * clocks would cost time. */
static alibi_status read_parts(struct bench *b, struct alibi_bench_step *r)
{
    struct device_part parts[DEVICE_PARTS_MAX];
    int count = 0;

    if (!b->device->ops->traits.times_parts)
        return ALIBI_OK;
    TRY_RETURN(b->device->ops->read_parts(b->device, parts, &count)); /* switches the clocks on */
    TRY_RETURN(take_step(b));
    TRY_RETURN(b->device->ops->finish(b->device));
    TRY_RETURN(b->device->ops->read_parts(b->device, parts, &count));
    r->parts = count < ALIBI_BENCH_PARTS ? count : ALIBI_BENCH_PARTS;
    for (int i = 0; i < r->parts; i++) {
        snprintf(r->part[i].name, sizeof r->part[i].name, "%s", parts[i].name);
        r->part[i].seconds = parts[i].seconds;
    }
    return ALIBI_OK;
}

static void fill_result(struct bench *b, int64_t repeats, struct alibi_bench_step *r)
{
    double linear = products_flops(&b->products), alone = bench_median(b->product_seconds, repeats);

    r->parameters = b->model->elements;
    r->step_seconds = bench_median(b->step_seconds, repeats);
    r->tokens_per_s = (double)(b->B * b->L) / r->step_seconds;
    r->step_gflops = (linear + attention_flops(b)) / r->step_seconds * 1e-9;
    r->model_gflops = model_flops(b) / r->step_seconds * 1e-9;
    r->product_gflops = linear / alone * 1e-9;
    r->share = r->step_gflops / r->product_gflops;
    r->step_joules = b->meter ? b->joules / (double)repeats : (double)NAN;
    r->clock_hertz = b->meter ? b->hertz / (double)repeats : (double)NAN;
}

/* Without a meter the energy is unknown, which is not a failure. */
static void open_meter(struct bench *b)
{
    char address[DEVICE_ADDRESS_MAX];

    if (!b->device->ops->address || b->device->ops->address(b->device, address) != ALIBI_OK ||
        meter_open(&b->meter, NULL, address) != ALIBI_OK)
        b->meter = NULL;
}

static struct bench bench_of(alibi_device *device, int64_t batch, int64_t length, int recompute,
                             double skip)
{
    return (struct bench){ .device = &device->device,
                           .B = batch,
                           .L = length,
                           .settings = { .recompute = recompute, .skip = skip } };
}

alibi_status alibi_bench_train(alibi_device *device, const struct alibi_config *config,
                               int64_t batch, int64_t length, int64_t repeats, int recompute,
                               double skip, struct alibi_bench_step *result,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct bench b = bench_of(device, batch, length, recompute, skip);
    struct alibi_bench_step r = { 0 };

    b.call = call;
    TRY(check_shape(batch, length, repeats));
    TRY(check_training(recompute, skip));
    device_reset_peak(b.device);
    tune(device);
    TRY(bench_init(&b, device, config, length, batch * length));
    TRY(NEW_ARRAY(&b.step_seconds, repeats, "step times"));
    TRY(NEW_ARRAY(&b.product_seconds, repeats, "product times"));
    for (int i = 0; i < b.device->ops->traits.warm_up_steps; i++)
        TRY(take_step(&b));
    r.peak_bytes = device_peak(b.device); /* before the operands of the bare products are added */
    TRY(products_init(&b.products, b.model, batch * length));
    TRY(products_run(&b.products));
    open_meter(&b);
    TRY(time_repeats(&b, repeats));
    TRY(read_parts(&b, &r));
    fill_result(&b, repeats, &r);
    *result = r;
out:
    device_tune(b.device, TUNING_SAME_BITS);
    bench_fini(&b);
    return status;
}

/* ---- models that take turns */

int64_t bench_eval_batch(const alibi_device *device, int64_t length)
{
    return rounds_rows(&device->device, length, INT64_MAX);
}

static alibi_status take_evaluation(struct bench *b)
{
    return model_loss(b->workspace, b->tokens, b->tokens + 1, b->B, b->L, b->nll);
}

/* One turn of entry k, a model at a shape. A round below 0 warms up, and its times are dropped. */
static alibi_status take_turn(struct bench *benches, alibi_device *device,
                              const struct bench_turns *t, int k, int64_t round)
{
    struct bench *b = &benches[k / t->shapes];
    int64_t at = k * t->rounds + round;
    double unused;

    b->L = t->shape[k % t->shapes].length;
    b->B = t->shape[k % t->shapes].batch;
    TRY_RETURN(time_work(b, take_step, round < 0 ? &unused : &t->train[at]));
    if (t->eval == NULL)
        return ALIBI_OK;
    b->B = bench_eval_batch(device, b->L);
    return time_work(b, take_evaluation, round < 0 ? &unused : &t->eval[at]);
}

static alibi_status check_turns(const struct bench_turns *t, alibi_device *device, int64_t *length,
                                int64_t *tokens)
{
    *length = *tokens = 0;
    TRY_RETURN(check_training(t->recompute, t->skip));
    for (int i = 0; i < t->shapes; i++) {
        int64_t L = t->shape[i].length, batch = t->shape[i].batch, windows;

        TRY_RETURN(check_shape(batch, L, t->rounds));
        windows = t->eval ? bench_eval_batch(device, L) : 0;
        batch = windows > batch ? windows : batch;
        *length = L > *length ? L : *length;
        *tokens = batch * L > *tokens ? batch * L : *tokens;
    }
    return ALIBI_OK;
}

/* Rounds run forward and backward in turn, so that no entry always follows the same one. */
alibi_status bench_turns(alibi_device *device, const struct bench_turns *t,
                         const struct alibi_call *call)
{
    alibi_status status;
    struct bench benches[ALIBI_LIST_MAX] = { 0 };
    int entries = t->models * t->shapes;
    int64_t length, tokens;

    tune(device);
    TRY(check_turns(t, device, &length, &tokens));
    for (int i = 0; i < t->models; i++) {
        benches[i] = bench_of(device, 0, 0, t->recompute, t->skip);
        TRY(bench_init(&benches[i], device, &t->config[i], length, tokens));
        if (t->eval)
            TRY(NEW_ARRAY(&benches[i].nll, tokens, "losses"));
    }
    for (int64_t round = -device->device.ops->traits.warm_up_steps; round < t->rounds; round++)
        for (int k = 0; k < entries; k++) {
            if (call_stopped(call))
                TRY(fail(ALIBI_INTERRUPTED, "bench: stopped after %lld of %lld rounds",
                         (long long)(round < 0 ? 0 : round), (long long)t->rounds));
            TRY(take_turn(benches, device, t, round % 2 ? entries - 1 - k : k, round));
        }
out:
    device_tune(&device->device, TUNING_SAME_BITS);
    for (int i = 0; i < t->models; i++)
        bench_fini(&benches[i]);
    return status;
}

/* Sorts `seconds`, [repeats], after the ratios to the first method's, round by round. */
static void fill_method(struct alibi_bench_method *r, const char *name, double *seconds,
                        const double *first, double *ratios, int64_t repeats, double tokens)
{
    for (int64_t i = 0; i < repeats; i++)
        ratios[i] = seconds[i] / first[i];
    snprintf(r->name, sizeof r->name, "%s", name);
    r->ratio = bench_median(ratios, repeats);
    r->ratio_low = ratios[(repeats - 1) / 4];
    r->ratio_high = ratios[(repeats - 1) - (repeats - 1) / 4];
    r->step_seconds = bench_median(seconds, repeats);
    r->tokens_per_s = tokens / r->step_seconds;
}

alibi_status alibi_bench_methods(alibi_device *device, const struct alibi_config *config,
                                 const struct alibi_name_list *methods, int64_t batch,
                                 int64_t length, int64_t repeats, int recompute, double skip,
                                 struct alibi_bench_method *results, const struct alibi_call *call)
{
    alibi_status status;
    const int count = methods->count;
    const struct bench_shape shape = { batch, length };
    struct alibi_config configs[ALIBI_LIST_MAX];
    struct bench_turns turns = { .config = configs,
                                 .models = count,
                                 .shape = &shape,
                                 .shapes = 1,
                                 .rounds = repeats,
                                 .recompute = recompute,
                                 .skip = skip };
    double *ratios = NULL;

    if (count < 1 || count > ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "methods: 1 to %d are needed, %d are given", ALIBI_LIST_MAX,
                    count);
    TRY(check_shape(batch, length, repeats));
    TRY(NEW_ARRAY(&turns.train, count * repeats, "step times"));
    TRY(NEW_ARRAY(&ratios, repeats, "ratios of times"));
    for (int i = 0; i < count; i++) {
        configs[i] = *config;
        snprintf(configs[i].position, sizeof configs[i].position, "%s", methods->at[i]);
    }
    TRY(bench_turns(device, &turns, call));
    for (int i = count - 1; i >= 0; i--) /* the first one last: the others are relative to it */
        fill_method(&results[i], methods->at[i], turns.train + i * repeats, turns.train, ratios,
                    repeats, (double)(batch * length));
out:
    mem_free(ratios);
    mem_free(turns.train);
    return status;
}

/* ---- evaluation */

alibi_status bench_eval(alibi_device *device, const struct alibi_config *config, int64_t windows,
                        int64_t length, double *seconds, size_t *peak_bytes,
                        const struct alibi_call *call)
{
    alibi_status status;
    struct device *dev = &device->device;
    struct alibi_training training;
    struct model *m = NULL;
    struct workspace *w = NULL;
    int32_t *tokens = NULL;
    float *nll = NULL;
    double begin;

    TRY(check_shape(windows, length, 1));
    if (call_stopped(call))
        TRY(fail(ALIBI_INTERRUPTED, "bench: stopped before length %lld", (long long)length));
    device_reset_peak(dev);
    TRY(default_training(&training));
    TRY(bench_model(&m, device, config, length, false));
    TRY(workspace_new(&w, m, &(struct pass_settings){ .skip = training.skip }));
    TRY(bench_tokens(&tokens, m, windows * length + 1));
    TRY(NEW_ARRAY(&nll, windows * length, "losses"));
    TRY(dev->ops->finish(dev)); /* the initialisation of the weights */
    begin = clock_seconds();
    TRY(model_loss(w, tokens, tokens + 1, windows, length, nll));
    *seconds = clock_seconds() - begin;
    *peak_bytes = device_peak(dev);
out:
    mem_free(nll);
    mem_free(tokens);
    workspace_free(w);
    model_free(m);
    return status;
}

alibi_status alibi_bench_eval(alibi_device *device, const struct alibi_config *config,
                              int64_t length, double *seconds, size_t *peak_bytes,
                              const struct alibi_call *call)
{
    return bench_eval(device, config, 1, length, seconds, peak_bytes, call);
}
