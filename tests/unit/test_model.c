/* The model as a whole: its gradient against finite differences in double, on the reference
 * operations; the fast operations against the reference; decoding against the full forward. */
#include <math.h>
#include <string.h>

#include "training.h"
#include "model/walk.h"
#include "passes.h"

enum { B = 2, L = 7, VOCAB = 7, MANY = 300 };

static struct device reference = { .ops = &ops_ref };

static struct alibi_config tiny(const char *position)
{
    struct alibi_config c = default_config();

    c.vocab = VOCAB;
    c.layers = 2;
    c.width = 6;
    c.heads = 3;
    c.ff_width = 5;
    c.embedding_scale = 1.5;
    c.t5_buckets = 4;
    c.t5_max_distance = 6;
    c.train_length = 7;
    snprintf(c.position, sizeof c.position, "%s", position);
    return c;
}

static struct alibi_config trained_slopes(void)
{
    struct alibi_config c = tiny("alibi");

    c.train_slopes = true;
    return c;
}

/* Layers of different methods and windows. */
static const char *const patterns[] = {
    "rotary:window=3,none:logn",
    "rotary:window=3,alibi:logn:free=0.5",
    "none:logn:window=4,rotary:logn",
    "alibi:train-slopes:logn,t5:logn",
    "t5:window=70,alibi:train-slopes:window=5",
    "rotary:base=50:layout=pairs,t5:window=2",
    "kerple:power:window=3,bam:logn",
    "alibi:free=0.3:logn,rotary:share=0.5",
    "alibi:free=0.7:logn:train-slopes:window=20,alibi:free=1",
    "kerple:logn,kerple:power:window=4",
    "rotary:window=3:sinks=2,none:logn:window=5:sinks=1",
    "rotary:share=0.5:tau=3,rotary:tau=2:window=4:sinks=2:logn",
    "alibi:train-slopes:window=4:sinks=3,kerple:window=3:sinks=2",
    "t5:window=2:sinks=4,rotary:layout=pairs:window=3:sinks=1:logn",
    "rotary:window=3,fox:free=0.4:logn",
    "fox:window=5,fox:free=0.7",
    "none:logn:temperature=0.5,rotary:temperature=2:window=40",
    "alibi:bias-max=4,alibi:train-slopes",
    "rotary:stretch=yarn:factor=4,alibi:stretch=ntk:factor=2"
};

/* With norms of queries and keys. */
static const char *const normed[] = { "rotary:window=3:sinks=2,rotary:window=3:logn",
                                      "alibi:free=0.3:logn,none", "fox:free=0.4:logn,rotary" };

/* Number i of the position methods, after them alibi with trained slopes, the patterns, and those
 * with norms. */
static bool position_variant(int i, struct alibi_config *c)
{
    int methods = 0, count = (int)(sizeof patterns / sizeof *patterns);
    int last = (int)(sizeof normed / sizeof *normed);

    while (alibi_position_name(methods, NULL))
        methods++;
    if (i > methods + count + last)
        return false;
    *c = i < methods            ? tiny(alibi_position_name(i, NULL))
         : i == methods         ? trained_slopes()
         : i <= methods + count ? tiny(patterns[i - methods - 1])
                                : tiny(normed[i - methods - count - 1]);
    if (i > methods + count) {
        c->qk_norm = true;
        c->norm_eps = 0.01; /* a head of two numbers may be near 0, where the norm bends sharply */
        c->kv_heads = i % 2 ? 1 : 3;
    }
    return true;
}

/* Clusters of 2, 3 and 2 ids, with embeddings of 6, 3 and 1 numbers. */
static struct alibi_config adaptive(struct alibi_config c)
{
    c.adaptive_cutoffs = (struct alibi_int_list){ .count = 2, .at = { 2, 5 } };
    c.adaptive_factor = 2;
    return c;
}

static struct model *new_model(struct alibi_config c, struct device *dev, enum dtype type)
{
    struct model *m = NULL;

    assert_int_equal(alibi_config_resolve(&c), ALIBI_OK);
    assert_int_equal(model_new(&m, &c, dev, type, true), ALIBI_OK);
    randomise(m, 5, 0.3);
    return m;
}

static void draw_tokens(int32_t *tokens, int64_t count, int64_t vocab, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(3, stream, (uint64_t)i, (uint64_t)vocab);
}

static double loss_of(struct model *m, const int32_t *tokens, const int32_t *targets)
{
    double sum = 0;

    assert_int_equal(once_gradients(m, (struct pass_settings){ 0 }, tokens, targets, B, L, 1.0,
                                    (struct dropout){ 0 }, &sum),
                     ALIBI_OK);
    return sum;
}

/* fmax passes over a NaN; an error that is none must not. */
static double larger(double worst, double error)
{
    return isnan(error) ? INFINITY : fmax(worst, error);
}

static double central_difference(struct model *m, double *value, const int32_t *tokens,
                                 const int32_t *targets)
{
    double was = *value, h = 2e-6, up, down;

    *value = was + h;
    up = loss_of(m, tokens, targets);
    *value = was - h;
    down = loss_of(m, tokens, targets);
    *value = was;
    return (up - down) / (2 * h);
}

/* The largest difference between gradient and central difference over all parameters, relative to
 * the largest gradient. */
static double gradient_error(struct model *m)
{
    int32_t tokens[B * L], targets[B * L];
    double *gradient = NULL, worst = 0, largest = 1e-3;

    draw_tokens(tokens, B * L, m->config.vocab, 1);
    draw_tokens(targets, B * L, m->config.vocab, 2);
    targets[3] = -1;
    assert_int_equal(model_clear_gradients(m), ALIBI_OK);
    loss_of(m, tokens, targets);
    assert_int_equal(NEW_ARRAY(&gradient, m->span, "gradients"), ALIBI_OK);
    memcpy(gradient, m->gradients, (size_t)m->span * sizeof *gradient);
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        for (int64_t k = p->offset; k < p->offset + p->count; k++) {
            double change = central_difference(m, (double *)m->values + k, tokens, targets);
            worst = larger(worst, fabs(change - gradient[k]));
            largest = fmax(largest, fabs(gradient[k]));
        }
    }
    mem_free(gradient);
    return worst / largest;
}

static void check_gradient(struct alibi_config c, const char *what)
{
    struct model *m = new_model(c, &reference, DTYPE_F64);
    double error = gradient_error(m);

    print_message("model gradient ref f64 %-12s %-24s error %.1e  limit 1.0e-07  %s\n", c.position,
                  what, error, error < 1e-7 ? "ok" : "FAILED");
    assert_true(error < 1e-7);
    model_free(m);
}

static void gradients_equal_finite_differences_for_every_method_tied_and_untied(void **state)
{
    struct alibi_config c;

    (void)state;
    for (int i = 0; position_variant(i, &c); i++) {
        check_gradient(c, "tied");
        check_gradient(adaptive(c), "adaptive, tied");
        c.tied = false;
        c.biases = false;
        check_gradient(c, "untied, no biases");
        if (i == 0)
            check_gradient(adaptive(c), "adaptive, untied");
    }
}

static void gradients_equal_finite_differences_for_every_kind_of_block(void **state)
{
    static const char *const names[] = { "gelu-tanh", "gelu-erf", "relu", "swiglu" };
    struct alibi_config c = tiny("alibi");

    (void)state;
    for (int i = 0; i < 4; i++) {
        c.activation = i;
        check_gradient(c, names[i]);
    }
    c.norm = ALIBI_RMSNORM;
    check_gradient(c, "rmsnorm");
    c.embedding_norm = true;
    check_gradient(c, "embedding norm");
    c.final_norm = false;
    check_gradient(c, "no final norm");
    c.kv_heads = 1;
    check_gradient(c, "one key/value head");
    check_gradient(adaptive(c), "all that and adaptive");
    c = tiny("rotary");
    c.rotary_layout = ALIBI_ROTARY_PAIRS;
    check_gradient(c, "pairs");
    c.qk_norm = true;
    c.norm_eps = 0.1;
    check_gradient(c, "norms of queries and keys");
    c = tiny("rotary:share=0.5,rotary:share=0.5:spread");
    c.width = 8;
    c.heads = 2; /* of two pairs, of which one is rotated */
    check_gradient(c, "half of a head rotated");
    c.parallel = true;
    check_gradient(c, "parallel");
    c.biases = false;
    c.qkv_biases = true;
    check_gradient(c, "parallel, biases of queries, keys and values");
    c.qkv_biases = false;
    c.norm_biases = c.embedding_norm = true;
    check_gradient(c, "parallel, biases of norms");
}

static bool has_parameter(const struct model *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->parameters[i].name, name) == 0)
            return true;
    return false;
}

static void biases_are_where_the_options_say(void **state)
{
    static const char *const names[] = { "blocks.1.attention.qkv.bias", "blocks.1.norm2.bias",
                                         "norm.bias", "blocks.0.attention.out.bias",
                                         "blocks.0.ff.down.bias" };

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct alibi_config c = tiny("alibi");
        struct model *m;

        c.biases = i & 1;
        c.qkv_biases = i & 2;
        c.norm_biases = i & 4;
        m = new_model(c, &reference, DTYPE_F32);
        for (int n = 0; n < 5; n++)
            assert_int_equal(has_parameter(m, names[n]),
                             (i & 1) || (n == 0 && (i & 2)) || ((n == 1 || n == 2) && (i & 4)));
        model_free(m);
    }
}

static double difference(const float *a, const float *b, int64_t count)
{
    double worst = 0, largest = 1e-6;

    for (int64_t i = 0; i < count; i++) {
        worst = larger(worst, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    return worst / largest;
}

static void fast_operations_give_the_reference_losses_and_gradients(void **state)
{
    struct device fast = { .ops = ops_cpu() };
    struct alibi_config c;

    (void)state;
    for (int i = 0; position_variant(i, &c); i++) {
        struct model *slow_model = new_model(c, &reference, DTYPE_F32);
        struct model *fast_model = new_model(c, &fast, DTYPE_F32);
        struct dropout drop = { .p = 0.2, .seed = 9, .stream = 4 };
        const struct pass_settings settings = { .attention_dropout = 0.3,
                                                .activation_dropout = 0.1 };
        int32_t tokens[B * L], targets[B * L];
        double slow_loss, fast_loss;

        draw_tokens(tokens, B * L, VOCAB, 1);
        draw_tokens(targets, B * L, VOCAB, 2);
        assert_ok(
            once_gradients(slow_model, settings, tokens, targets, B, L, 0.5, drop, &slow_loss));
        assert_ok(
            once_gradients(fast_model, settings, tokens, targets, B, L, 0.5, drop, &fast_loss));
        assert_true(fabs(slow_loss - fast_loss) < 1e-4 * slow_loss);
        assert_true(difference(slow_model->gradients, fast_model->gradients, slow_model->span) <
                    1e-4);
        model_free(slow_model);
        model_free(fast_model);
    }
}

/* ---- the first gradient is written, the others are added */

/* Every parameter's gradient becomes NaN; the gaps between them stay 0. */
static void spoil_gradients(struct model *m)
{
    for (int i = 0; i < m->count; i++) {
        struct tensor g = m->parameters[i].gradient;
        assert_ok(m->device->ops->fill(m->device, g, NAN));
    }
}

static void check_first_gradients(struct alibi_config c, int64_t ids, const char *what)
{
    struct device fast = { .ops = ops_cpu() };
    struct model *m = new_model(c, &fast, DTYPE_F32);
    int32_t tokens[B * L], targets[B * L];
    float *added = NULL;
    const float *gradients = m->gradients;
    size_t bytes = (size_t)m->span * sizeof *added;

    draw_tokens(tokens, B * L, ids, 1);
    draw_tokens(targets, B * L, ids, 2);
    assert_ok(NEW_ARRAY(&added, m->span, "gradients"));
    memset(m->gradients, 0, bytes);
    for (int i = 0; i < m->count; i++)
        assert_false(m->parameters[i].fresh);
    loss_of(m, tokens, targets);
    memcpy(added, m->gradients, bytes);
    spoil_gradients(m);
    assert_ok(model_clear_gradients(m));
    loss_of(m, tokens, targets);
    for (int64_t i = 0; i < m->span; i++)
        if (!(gradients[i] == added[i]))
            fail_msg("%s, %s: gradient %lld is %a, added to 0 it was %a", c.position, what,
                     (long long)i, (double)gradients[i], (double)added[i]);
    loss_of(m, tokens, targets);
    for (int64_t i = 0; i < m->span; i++)
        assert_true(fabs((double)gradients[i] - 2 * (double)added[i]) <=
                    1e-5 * (1e-2 + fabs((double)added[i])));
    mem_free(added);
    model_free(m);
}

static void the_first_gradients_are_those_that_adding_to_zeros_gives(void **state)
{
    struct alibi_config c;

    (void)state;
    for (int i = 0; position_variant(i, &c); i++) {
        check_first_gradients(c, VOCAB, "tied");
        check_first_gradients(adaptive(c), 2, "tails without a token");
        c.tied = false;
        check_first_gradients(c, VOCAB, "untied");
        check_first_gradients(adaptive(c), VOCAB, "adaptive, untied");
        c.parallel = true;
        check_first_gradients(adaptive(c), 2, "parallel, untied, tails without a token");
    }
}

/* ---- computing again instead of keeping */

static void gradients_with(struct model *m, struct pass_settings settings, struct dropout drop,
                           double *loss)
{
    int32_t tokens[B * L], targets[B * L];

    draw_tokens(tokens, B * L, VOCAB, 1);
    draw_tokens(targets, B * L, VOCAB, 2);
    assert_int_equal(model_clear_gradients(m), ALIBI_OK);
    assert_int_equal(once_gradients(m, settings, tokens, targets, B, L, 0.5, drop, loss), ALIBI_OK);
}

static void check_recompute(struct alibi_config c, double dropout)
{
    struct device fast = { .ops = ops_cpu() };
    struct model *m = new_model(c, &fast, DTYPE_F32);
    struct dropout drop = { .p = dropout, .seed = 9, .stream = 4 };
    struct pass_settings settings = { .attention_dropout = dropout, .activation_dropout = dropout };
    size_t bytes = (size_t)m->span * sizeof(float);
    double kept_loss, loss;
    float *kept = NULL;

    assert_int_equal(NEW_ARRAY(&kept, m->span, "gradients"), ALIBI_OK);
    gradients_with(m, settings, drop, &kept_loss);
    memcpy(kept, m->gradients, bytes);
    for (int recompute = ALIBI_RECOMPUTE_CHEAP; recompute <= ALIBI_RECOMPUTE_BLOCK; recompute++) {
        settings.recompute = recompute;
        gradients_with(m, settings, drop, &loss);
        assert_true(loss == kept_loss);
        assert_memory_equal(kept, m->gradients, bytes);
    }
    mem_free(kept);
    model_free(m);
}

static void what_is_computed_again_gives_the_same_gradients_bit_for_bit(void **state)
{
    static const int activations[] = { ALIBI_GELU_TANH, ALIBI_SWIGLU };

    (void)state;
    for (int i = 0; alibi_position_name(i, NULL); i++)
        for (int a = 0; a < 2; a++)
            for (int dropped = 0; dropped < 2; dropped++) {
                struct alibi_config c = tiny(alibi_position_name(i, NULL));
                c.activation = activations[a];
                c.layers = 3;
                c.embedding_norm = a == 1;
                check_recompute(c, dropped ? 0.2 : 0.0);
                if (a == 0 && dropped)
                    check_recompute(adaptive(c), 0.2);
                c.qk_norm = true;
                if (a == 1 && dropped)
                    check_recompute(c, 0.2);
                c.parallel = true;
                if (a == 0 && i < 2)
                    check_recompute(c, dropped ? 0.2 : 0.0);
            }
}

/* Each dropout draws masks of its own, changes the loss, and only that of training. */
static void dropouts_within_a_branch_act_in_training_alone(void **state)
{
    static const struct pass_settings some[] = { { 0 },
                                                 { .attention_dropout = 0.3 },
                                                 { .activation_dropout = 0.3 },
                                                 { .attention_dropout = 0.3,
                                                   .activation_dropout = 0.3 } };
    const struct dropout keys[] = { { 0, 9, 4 }, { 0, 9, 5 } };
    struct device fast = { .ops = ops_cpu() };
    struct model *m = new_model(tiny("alibi"), &fast, DTYPE_F32);
    int32_t tokens[B * L];
    float nll[2][B * L];
    double losses[4], other;

    (void)state;
    draw_tokens(tokens, B * L, VOCAB, 1);
    for (int i = 0; i < 4; i++) {
        struct workspace *w = NULL;

        gradients_with(m, some[i], keys[0], &losses[i]);
        gradients_with(m, some[i], keys[1], &other);
        assert_int_equal(other != losses[i], i > 0);
        for (int n = 0; n < i; n++)
            assert_true(losses[n] != losses[i]);
        assert_ok(workspace_new(&w, m, &some[i]));
        assert_ok(model_loss(w, tokens, tokens, B, L, nll[i > 0]));
        assert_memory_equal(nll[0], nll[i > 0], sizeof nll[0]);
        workspace_free(w);
    }
    model_free(m);
}

/* The reference computes row by row, so gathered rows have the bits of all of them. An adaptive
 * softmax lists the rows of its tails alone. */
static void check_rows_without_a_target(struct alibi_config c, enum dtype type, int multiple)
{
    static const int32_t some[] = { 3, 4, L + 5 };
    bool clusters = c.adaptive_cutoffs.count > 0;
    struct ops ops = ops_ref;
    struct device device = { .ops = &ops };
    struct model *m = new_model(c, &device, type);
    struct workspace *w = NULL;
    int32_t tokens[B * L], targets[B * L];
    float all[B * L], nll[B * L], *logits = NULL, read[3 * VOCAB];

    ops.traits.row_multiple = multiple;
    draw_tokens(tokens, B * L, VOCAB, 1);
    assert_ok(NEW_ARRAY(&logits, B * L * VOCAB, "logits"));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
    assert_ok(model_loss(w, tokens, tokens, B, L, all));
    assert_int_equal(w->listed, -1);
    for (int count = 0; count <= 3; count++) {
        for (int i = 0; i < B * L; i++)
            targets[i] = -1;
        for (int i = 0; i < count; i++)
            targets[some[i]] = tokens[some[i]];
        assert_ok(model_loss(w, tokens, targets, B, L, nll));
        assert_int_equal(w->listed, clusters ? -1 : count);
        for (int i = 0; i < B * L; i++)
            assert_true(nll[i] == (targets[i] < 0 ? 0 : all[i]));
    }
    assert_ok(model_read_listed(w, some, 3, read));
    assert_ok(model_logits(w, tokens, B, L, logits));
    for (int i = 0; i < 3; i++)
        assert_memory_equal(read + i * VOCAB, logits + some[i] * VOCAB, VOCAB * sizeof *read);
    mem_free(logits);
    workspace_free(w);
    model_free(m);
}

static void rows_without_a_target_change_no_loss(void **state)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        check_rows_without_a_target(tiny("alibi"), types[i / 2], i % 2 ? 4 : 1);
        check_rows_without_a_target(adaptive(tiny("alibi")), types[i / 2], i % 2 ? 4 : 1);
    }
}

static void used_tiles_are_recorded_only_if_some_may_be_skipped(void **state)
{
    static const double budgets[] = { 0.0, 0x1p-24 };
    struct device fast = { .ops = ops_cpu() };
    struct model *m = new_model(tiny("alibi"), &fast, DTYPE_F32);
    double losses[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        for (int recompute = ALIBI_RECOMPUTE_NONE; recompute <= ALIBI_RECOMPUTE_BLOCK;
             recompute++) {
            struct pass_settings settings = { .skip = budgets[i], .recompute = recompute };
            struct workspace *w = NULL;

            gradients_with(m, settings, (struct dropout){ 0 }, &losses[i]);
            assert_true(losses[i] == losses[0]);
            assert_ok(workspace_new(&w, m, &settings));
            assert_ok(activations_reserve(w, B, L, true));
            assert_int_equal(w->activations.layers[0].kept.data != NULL, budgets[i] > 0);
            workspace_free(w);
        }
    model_free(m);
}

/* ---- the flat buffers */

static void check_zeros(const float *flat, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        assert_true(flat[i] == 0.0f);
}

/* The gaps are 0 in weights and gradients, after a pass too. */
static void check_places(struct alibi_config c)
{
    struct device fast = { .ops = ops_cpu() };
    struct model *m = new_model(c, &fast, DTYPE_F32);
    double loss;
    int64_t elements = 0;

    gradients_with(m, (struct pass_settings){ 0 }, (struct dropout){ 0 }, &loss);
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        int64_t end = p->offset + p->count;
        int64_t next = (p->offset + p->rows * p->shape[1] + 63) / 64 * 64;
        assert_int_equal(p->offset % 64, 0);
        assert_true(p->decays ? next <= m->decaying : p->offset >= m->decaying && next <= m->span);
        check_zeros(m->values, end, next);
        check_zeros(m->gradients, end, next);
        elements += p->count;
    }
    assert_int_equal(elements, m->elements);
    model_free(m);
}

static void parameters_that_decay_come_first_and_all_begin_at_multiples_of_64(void **state)
{
    (void)state;
    check_places(tiny("t5"));
    check_places(adaptive(tiny("t5"))); /* rows that pad a cluster's weights are 0 too */
}

/* ---- another type of activations */

/* 8 bits of mantissa through two layers; the gradients and the statistics stay fp32. */
static void bf16_gives_the_losses_and_gradients_of_fp32_to_its_precision(void **state)
{
    struct alibi_config c;

    (void)state;
    for (int i = 0; position_variant(i, &c); i++) {
        struct model *exact = new_model(c, &reference, DTYPE_F32),
                     *rough = new_model(c, &reference, DTYPE_BF16);
        double exact_loss, rough_loss, error;

        gradients_with(exact, (struct pass_settings){ 0 }, (struct dropout){ 0 }, &exact_loss);
        gradients_with(rough, (struct pass_settings){ .recompute = ALIBI_RECOMPUTE_CHEAP },
                       (struct dropout){ 0 }, &rough_loss);
        error = difference(exact->gradients, rough->gradients, exact->span);
        print_message("model ref bf16 %-12s loss %.4f of %.4f  gradients %.1e  limit 5e-02\n",
                      c.position, rough_loss, exact_loss, error);
        assert_true(fabs(exact_loss - rough_loss) < 0.02 * exact_loss);
        assert_true(error > 0 && error < 0.05);
        model_free(exact);
        model_free(rough);
    }
}

/* Passes read the copy for products and the master weights for norms and positions. */
static void copies_follow_the_masters_once_they_are_refreshed(void **state)
{
    struct model *m = new_model(tiny("learned"), &reference, DTYPE_BF16);

    (void)state;
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        bool norm = strstr(p->name, "norm") != NULL, position = strstr(p->name, "position") != NULL;
        float read[1];
        assert_int_equal(p->value.type, norm || position ? DTYPE_F32 : DTYPE_BF16);
        assert_int_equal(p->gradient.type, DTYPE_F32);
        assert_int_equal(reference.ops->fill(&reference, parameter_slice(m, p, m->values), 0.75),
                         ALIBI_OK);
        assert_int_equal(model_refresh(m), ALIBI_OK);
        assert_int_equal(
            reference.ops->download(&reference, read, tensor_1(p->value.data, p->value.type, 1)),
            ALIBI_OK);
        assert_true(read[0] == 0.75f);
    }
    model_free(m);
}

/* ---- the output layer's pieces */

static void the_output_layer_is_cut_evenly(void **state)
{
    struct ops ops = *ops_cpu();
    struct device device = { .ops = &ops };
    struct alibi_config c = tiny("alibi");
    struct model *m;

    (void)state;
    c.vocab = 1000;
    m = new_model(c, &device, DTYPE_F32);
    ops.traits.logits = 1000 * 1000;
    assert_int_equal(model_head_rows(m, m->head, 1000), 1000);
    assert_int_equal(model_head_rows(m, m->head, 1001),
                     512); /* two pieces, not one of 1000 and one of 1 */
    assert_int_equal(model_head_rows(m, m->head, 4096), 896); /* five of 820, in multiples of 128 */
    ops.traits.logits = 1;
    assert_int_equal(model_head_rows(m, m->head, 1000), 63); /* sixteen of at most 64 */
    ops.traits.logits = ops_cpu()->traits.logits;
    assert_int_equal(model_head_rows(m, m->head, 10000), 10000);
    model_free(m);
}

/* ---- statistics of a device that keeps times by itself */

static int waits, readings;
static bool timing;

static alibi_status counted_finish(struct device *dev)
{
    (void)dev;
    waits++;
    return ALIBI_OK;
}

static alibi_status fixed_parts(struct device *dev, struct device_part *parts, int *count)
{
    (void)dev;
    readings++;
    *count = parts && timing ? 3 : 0;
    timing = parts != NULL;
    for (int i = 0; i < *count; i++)
        parts[i] = (struct device_part){
            (const char *[]){ "norm forward", "attention bounds", "attention forward" }[i], i, 1
        };
    return ALIBI_OK;
}

/* Windows of 300 tokens, two at a time, with steep slopes: some tiles are skipped. */
static struct attention_statistics statistics_on(struct device *dev, struct pass_settings settings)
{
    enum { WINDOW = 300 };
    struct alibi_config c = tiny("alibi");
    int32_t tokens[2 * WINDOW + 1];
    float nll[2 * WINDOW];
    struct attention_statistics s;
    struct model *m = new_model(c, dev, DTYPE_F32);
    struct workspace *w = NULL;

    draw_tokens(tokens, 2 * WINDOW + 1, VOCAB, 1);
    assert_ok(workspace_new(&w, m, &settings));
    for (int pass = 0; pass < 3; pass++)
        assert_ok(model_loss(w, tokens, tokens + 1, pass < 2 ? 2 : 1, WINDOW, nll));
    s = workspace_statistics(w);
    workspace_free(w);
    model_free(m);
    return s;
}

static void a_device_that_keeps_times_is_not_interrupted_by_statistics(void **state)
{
    struct ops ops = *ops_cpu();
    struct device device = { .ops = &ops }, plain = { .ops = ops_cpu() };
    struct pass_settings settings = { .skip = 1e-6, .record = true };
    struct attention_statistics one = statistics_on(&plain, settings), s;

    (void)state;
    ops.finish = counted_finish;
    ops.read_parts = fixed_parts;
    ops.traits.times_parts = true;
    ops.traits.batch_tokens = 600;
    s = statistics_on(&device, settings);
    assert_true(one.tiles.used > 0 && one.tiles.used < one.tiles.all);
    assert_int_equal(s.tiles.used, one.tiles.used);
    assert_int_equal(s.tiles.all, one.tiles.all);
    assert_true(s.seconds == 3 * (1 + 2));
    assert_int_equal(waits, 0);
    assert_int_equal(readings, 3 * 3);
    assert_false(timing);

    ops.traits.batch_tokens = 599; /* the passes over two windows wait at each layer */
    s = statistics_on(&device, settings);
    assert_int_equal(s.tiles.used, one.tiles.used);
    assert_int_equal(s.tiles.all, one.tiles.all);
    assert_int_equal(waits, 2 * 2 * 2);

    waits = 0;
    settings.verify = true; /* all do: queries and keys are read */
    s = statistics_on(&device, settings);
    assert_int_equal(s.tiles.used, one.tiles.used);
    assert_int_equal(waits, 3 * 2 * 2);
}

/* A product dx of 9472 rows and 768 columns has 222 tiles, 1.7 waves of 132: as long as 2. */
static void the_output_layer_is_cut_into_whole_waves(void **state)
{
    static const struct {
        int64_t vocab, width, rows, piece;
    } shapes[] = {
        { 50304, 768, 65536, 5504 },    /* 12 pieces of one wave, for 7 of two */
        { 50304, 1024, 32768, 8192 },   /* nearly whole waves as it is */
        { 50304, 2048, 16384, 8192 },   /* the same */
        { 50304, 2048, 10000, 10000 },  /* one piece */
        { 50304, 64, 10000000, 10752 }, /* narrow: no piece fills a wave */
    };
    struct ops ops = *ops_cpu();
    struct device device = { .ops = &ops };
    struct parameter weight = { .rank = 2 };
    struct model m = { .device = &device, .parameters = &weight };

    (void)state;
    ops.traits.logits = 1 << 29;
    ops.traits.wave = 132;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        weight.rows = weight.shape[0] = shapes[i].vocab;
        weight.shape[1] = shapes[i].width;
        assert_int_equal(model_head_rows(&m, 0, shapes[i].rows), shapes[i].piece);
    }
}

/* Feeds MANY tokens in pieces of the given lengths, repeated, and compares with the full forward
 * wherever a piece ends. */
static void check_decoding(struct model *m, const int64_t *pieces, int count)
{
    int32_t tokens[MANY];
    int64_t V = m->config.vocab;
    float *full = NULL, last[64];
    struct cache *cache = NULL;
    struct workspace *w = NULL;

    draw_tokens(tokens, MANY, V, 7);
    assert_int_equal(NEW_ARRAY(&full, MANY * V, "logits"), ALIBI_OK);
    assert_ok(once_logits(m, tokens, 1, MANY, full));
    assert_ok(cache_new(&cache, m, 1, (struct cache_window){ 0 }));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
    for (int64_t at = 0, i = 0; at < MANY; i++) {
        int64_t length = pieces[i % count] < MANY - at ? pieces[i % count] : MANY - at;
        assert_ok(extend(w, cache, tokens + at, length, last));
        at += length;
        assert_int_equal(cache_length(cache, 0), at);
        assert_true(difference(full + (at - 1) * V, last, V) < 2e-5);
    }
    cache_free(cache);
    workspace_free(w);
    mem_free(full);
}

static void decoding_equals_the_full_forward_for_every_method_past_the_training_length(void **state)
{
    static const int64_t one[] = { 1 }, mixed[] = { 1, 64, 3, 17, 100 };
    struct device devices[2] = { reference, { .ops = ops_cpu() } };
    struct alibi_config c;

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int i = 0; position_variant(i, &c); i++) {
            struct model *m;
            c.max_length = MANY;
            c.kv_heads = d == 1 ? 1 : 0;
            m = new_model(c, &devices[d], DTYPE_F32);
            check_decoding(m, one, 1);
            check_decoding(m, mixed, 5);
            model_free(m);
        }
}

/* N layers with a window of W reach N (W - 1) tokens back, and no further: there not a bit
 * changes. Decoding sees the same keys. Sums of gates begin with the text, so that all after a
 * token differ by what its own gate adds: their differences are the same, except for rounding. The
 * oldest token that a query sees may have no weight at all behind closed gates. */
static void a_window_ends_what_a_token_depends_on(void **state)
{
    enum { W = 40, AT = 30 };
    struct device devices[2] = { reference, { .ops = ops_cpu() } };
    struct alibi_config c;

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int i = 0; position_variant(i, &c); i++) {
            const struct pass_settings settings = { .window = W };
            int32_t tokens[MANY];
            float *before = NULL, *after = NULL, *before_end, *after_end, last[VOCAB];
            int64_t reach = 0, V = c.vocab, beyond;
            struct workspace *w = NULL;
            struct cache *cache = NULL;
            struct model *m;

            c.max_length = MANY;
            m = new_model(c, &devices[d], DTYPE_F32);
            for (int64_t n = 0; n < c.layers; n++) {
                int64_t own = model_position(m, n)->window;
                reach += (own > 0 && own < W ? own : W) - 1;
            }
            draw_tokens(tokens, MANY, V, 7);
            assert_ok(NEW_ARRAY(&before, MANY * V, "logits"));
            assert_ok(NEW_ARRAY(&after, MANY * V, "logits"));
            assert_ok(workspace_new(&w, m, &settings));
            assert_ok(cache_new(&cache, m, 1, (struct cache_window){ .positions = W }));
            assert_ok(model_logits(w, tokens, 1, MANY, before));
            tokens[AT] = (int32_t)((tokens[AT] + 1) % V);
            assert_ok(model_logits(w, tokens, 1, MANY, after));
            assert_true(AT + reach + 1 < MANY);
            assert_true(difference(before + AT * V, after + AT * V, V) > 0);
            before_end = before + (AT + reach) * V;
            after_end = after + (AT + reach) * V;
            beyond = (MANY - AT - reach - 1) * V;
            if (most_gates(m) > 0) {
                assert_true(difference(before_end + V, after_end + V, beyond) < 1e-5);
            } else {
                assert_true(difference(before_end, after_end, V) > 0);
                assert_memory_equal(before_end + V, after_end + V, (size_t)beyond * sizeof *after);
            }
            for (int64_t at = 0, length = 1; at < MANY; at += length, length = at % 3 ? 1 : 70) {
                length = length < MANY - at ? length : MANY - at;
                assert_ok(extend(w, cache, tokens + at, length, last));
                assert_true(difference(after + (at + length - 1) * V, last, V) < 2e-5);
            }
            cache_free(cache);
            workspace_free(w);
            mem_free(before);
            mem_free(after);
            model_free(m);
        }
}

static void decoding_equals_the_full_forward_without_a_last_norm_and_in_parallel(void **state)
{
    static const int64_t mixed[] = { 1, 64, 3, 17, 100 };
    struct device fast = { .ops = ops_cpu() };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct alibi_config c = tiny("alibi");
        struct model *m;

        c.final_norm = i & 1;
        c.parallel = i & 2;
        m = new_model(c, &fast, DTYPE_F32);
        check_decoding(m, mixed, 5);
        model_free(m);
    }
}

static void decoding_equals_the_full_forward_with_clusters(void **state)
{
    static const int64_t mixed[] = { 1, 64, 3, 17, 100 };
    struct device devices[2] = { reference, { .ops = ops_cpu() } };

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int tied = 0; tied < 2; tied++) {
            struct alibi_config c = adaptive(tiny(d == 0 ? "sinusoidal" : "alibi"));
            struct model *m;

            c.tied = tied;
            m = new_model(c, &devices[d], DTYPE_F32);
            check_decoding(m, mixed, 5);
            model_free(m);
        }
}

/* Sequences of different lengths, fed in different chunks, on both backends; some join late. The
 * logits of every step are compared bit by bit with a cache of one slot. */
static void check_batched_decoding(struct model *m, struct cache_window window, double skip)
{
    enum { SLOTS = 5, STEPS = 40 };
    static const int64_t prompts[SLOTS] = { 1, 130, 63, 64, 17 };
    const struct pass_settings settings = { .skip = skip };
    int64_t vocab = m->config.vocab;
    int32_t tokens[SLOTS][MANY];
    float logits[SLOTS * VOCAB], alone[VOCAB];
    struct workspace *w = NULL, *single = NULL;
    struct cache *all = NULL, *one[SLOTS] = { NULL };

    assert_ok(workspace_new(&w, m, &settings));
    assert_ok(workspace_new(&single, m, &settings));
    assert_ok(cache_new(&all, m, SLOTS, window));
    for (int s = 0; s < SLOTS; s++) {
        draw_tokens(tokens[s], MANY, vocab, (uint64_t)(20 + s));
        assert_ok(cache_new(&one[s], m, 1, window));
        assert_ok(model_extend(w, all, s, tokens[s], prompts[s]));
        assert_ok(model_extend(single, one[s], 0, tokens[s], prompts[s]));
    }
    for (int t = 0; t < STEPS; t++) {
        int32_t slots[SLOTS], next[SLOTS];
        int64_t count = 0;

        for (int s = SLOTS - 1; s >= 0;
             s--) /* slots in descending order, slot 3 every third time */
            if (s != 3 || t % 3 == 0) {
                slots[count] = s;
                next[count++] = tokens[s][cache_length(all, s)];
            }
        assert_ok(model_step(w, all, slots, next, count));
        assert_ok(model_read_logits(w, 0, count, logits));
        for (int64_t i = 0; i < count; i++) {
            assert_ok(model_step(single, one[slots[i]], &(int32_t){ 0 }, &next[i], 1));
            assert_ok(model_read_logits(single, 0, 1, alone));
            assert_memory_equal(logits + i * vocab, alone, (size_t)vocab * sizeof *alone);
        }
    }
    for (int s = 0; s < SLOTS; s++)
        cache_free(one[s]);
    cache_free(all);
    workspace_free(w);
    workspace_free(single);
}

static void sequences_decoded_together_get_the_bits_they_get_alone(void **state)
{
    struct device devices[2] = { reference, { .ops = ops_cpu() } };
    struct alibi_config c;

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int i = 0; position_variant(i, &c); i++) {
            struct model *m;

            c.max_length = MANY;
            c.kv_heads = d == 1 ? 1 : 0;
            m = new_model(c, &devices[d], DTYPE_F32);
            check_batched_decoding(m, (struct cache_window){ 0 }, 0);
            check_batched_decoding(m, (struct cache_window){ 0 }, 0x1p-20);
            if (m->pattern.kind[0].method->slope)
                check_batched_decoding(m, (struct cache_window){ 40, 1e6 }, 0x1p-20);
            model_free(m);
            m = new_model(adaptive(c), &devices[d], DTYPE_F32);
            check_batched_decoding(m, (struct cache_window){ 0 }, 0);
            model_free(m);
        }
}

static void a_step_equals_the_full_forward_past_the_training_length(void **state)
{
    struct device fast = { .ops = ops_cpu() };
    struct alibi_config c;

    (void)state;
    for (int i = 0; position_variant(i, &c); i++) {
        int32_t tokens[MANY];
        float *full = NULL, last[VOCAB];
        struct workspace *w = NULL;
        struct cache *cache = NULL;
        struct model *m;

        c.max_length = MANY;
        m = new_model(c, &fast, DTYPE_F32);
        draw_tokens(tokens, MANY, VOCAB, 7);
        assert_ok(NEW_ARRAY(&full, MANY * VOCAB, "logits"));
        assert_ok(once_logits(m, tokens, 1, MANY, full));
        assert_ok(cache_new(&cache, m, 2, (struct cache_window){ 0 }));
        assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
        for (int t = 0; t < MANY; t++) {
            assert_ok(model_step(w, cache, &(int32_t){ 1 }, &tokens[t], 1));
            assert_ok(model_read_logits(w, 0, 1, last));
            assert_true(difference(full + (int64_t)t * VOCAB, last, VOCAB) < 2e-5);
        }
        cache_free(cache);
        workspace_free(w);
        mem_free(full);
        model_free(m);
    }
}

/* A device that would record steps, and counts the copies in those that it would record: their
 * places are numbers of the host, so a recorded copy would be to the places of its first run. */
static struct ops recorder;
static int64_t copies_recorded;
static bool records;

static alibi_status would_record(struct device *dev, struct work_key key, enum replay *how)
{
    (void)dev;
    (void)key;
    records = true;
    *how = REPLAY_NONE;
    return ALIBI_OK;
}

static alibi_status counted_copy(struct device *dev, struct tensor dst, struct tensor src)
{
    copies_recorded += records;
    return ops_ref.copy(dev, dst, src);
}

static void a_step_that_is_recorded_has_no_copies_by_the_host(void **state)
{
    struct device dev = { .ops = &recorder };
    struct alibi_config c;
    int64_t recorded = 0;

    (void)state;
    recorder = ops_ref;
    recorder.replay = would_record;
    recorder.copy = counted_copy;
    copies_recorded = 0;
    for (int i = 0; position_variant(i, &c); i++) {
        int32_t tokens[MANY];
        struct workspace *w = NULL;
        struct cache *cache = NULL;
        struct model *m;

        c.max_length = MANY;
        m = new_model(c, &dev, DTYPE_F32);
        draw_tokens(tokens, MANY, VOCAB, 7);
        assert_ok(cache_new(&cache, m, 1, (struct cache_window){ 0 }));
        assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
        for (int t = 0; t < MANY; t++) {
            records = false;
            assert_ok(model_step(w, cache, &(int32_t){ 0 }, &tokens[t], 1));
            recorded += records;
            if (copies_recorded > 0)
                fail_msg("%s: step %d copies", c.position, t);
        }
        records = false;
        cache_free(cache);
        workspace_free(w);
        model_free(m);
    }
    assert_true(recorded > 0);
}

/* A device whose copies fail from a moment on. */
static int64_t copies_left;
static struct ops failing;

static alibi_status failing_copy(struct device *dev, struct tensor dst, struct tensor src)
{
    if (copies_left-- <= 0)
        return fail(ALIBI_DEVICE, "a copy failed");
    return ops_ref.copy(dev, dst, src);
}

/* Feeds 200 tokens, then 30 in a pass that fails after so many copies, then these again. The ring
 * of a window is cut within them. */
static void check_failed_pass(struct model *m, int64_t copies)
{
    enum { BEFORE = 200, MORE = 30 };
    int32_t tokens[BEFORE + MORE];
    float full[(BEFORE + MORE) * VOCAB], last[VOCAB];
    struct cache *cache = NULL;
    struct workspace *w = NULL;
    alibi_status status;

    draw_tokens(tokens, BEFORE + MORE, VOCAB, 7);
    copies_left = INT64_MAX;
    assert_ok(once_logits(m, tokens, 1, BEFORE + MORE, full));
    assert_ok(cache_new(&cache, m, 2, (struct cache_window){ 0 }));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
    for (int at = 0; at < BEFORE; at += 40)
        assert_ok(model_extend(w, cache, 1, tokens + at, 40));
    copies_left = copies;
    status = model_extend(w, cache, 1, tokens + BEFORE, MORE);
    copies_left = INT64_MAX;
    assert_int_equal(cache_length(cache, 1), status == ALIBI_OK ? BEFORE + MORE : BEFORE);
    if (status != ALIBI_OK)
        assert_ok(model_extend(w, cache, 1, tokens + BEFORE, MORE));
    assert_ok(model_read_logits(w, MORE - 1, 1, last));
    assert_true(difference(full + (BEFORE + MORE - 1) * VOCAB, last, VOCAB) < 2e-5);
    cache_free(cache);
    workspace_free(w);
}

static void a_pass_that_failed_has_overwritten_no_key_that_the_next_one_needs(void **state)
{
    struct device device = { .ops = &failing };
    struct model *m;

    (void)state;
    failing = ops_ref;
    failing.copy = failing_copy;
    m = new_model(tiny("alibi:window=20:sinks=2,rotary:window=90"), &device, DTYPE_F32);
    for (int64_t n = 0; n < 16; n++)
        check_failed_pass(m, n);
    model_free(m);
}

static void learned_positions_past_the_table_are_an_error_that_says_so(void **state)
{
    struct model *m = new_model(tiny("learned"), &reference, DTYPE_F32);
    int32_t tokens[8] = { 0 };
    float logits[8 * VOCAB];
    struct cache *cache = NULL;
    struct workspace *w = NULL;

    (void)state;
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
    assert_ok(model_logits(w, tokens, 1, 7, logits));
    assert_int_equal(model_logits(w, tokens, 1, 8, logits), ALIBI_BAD_INPUT);
    assert_non_null(strstr(alibi_error(), "'learned' ends at 7"));
    assert_ok(cache_new(&cache, m, 1, (struct cache_window){ 0 }));
    assert_ok(extend(w, cache, tokens, 7, logits));
    assert_int_equal(extend(w, cache, tokens, 1, logits), ALIBI_BAD_INPUT);
    assert_int_equal(model_step(w, cache, &(int32_t){ 0 }, tokens, 1), ALIBI_BAD_INPUT);
    assert_int_equal(cache_length(cache, 0), 7);
    cache_free(cache);
    workspace_free(w);
    model_free(m);
}

static void tokens_outside_the_vocabulary_are_refused(void **state)
{
    struct model *m = new_model(tiny("alibi"), &reference, DTYPE_F32);
    int32_t tokens[2] = { 3, VOCAB }, targets[2] = { -2, 0 };
    float nll[2];

    (void)state;
    assert_int_equal(once_loss(m, tokens, targets, 1, 2, nll), ALIBI_BAD_INPUT);
    tokens[1] = 0;
    assert_int_equal(once_loss(m, tokens, targets, 1, 2, nll), ALIBI_BAD_INPUT);
    assert_non_null(strstr(alibi_error(), "target -2"));
    targets[0] = -1;
    assert_int_equal(once_loss(m, tokens, targets, 1, 2, nll), ALIBI_OK);
    assert_true(nll[0] == 0.0f && nll[1] > 0.0f);
    model_free(m);
}

/* ---- slopes that are trained */

static void set_factors(struct model *m, const float factors[3])
{
    assert_ok(m->device->ops->upload(
        m->device, parameter_slice(m, &m->parameters[m->positions[0]], m->values), factors));
}

static void a_fresh_model_with_trained_slopes_is_the_one_with_fixed_slopes(void **state)
{
    struct device devices[2] = { reference, { .ops = ops_cpu() } };
    int32_t tokens[MANY];
    float logits[2][MANY * VOCAB];

    (void)state;
    draw_tokens(tokens, MANY, VOCAB, 7);
    for (int d = 0; d < 2; d++) {
        for (int trained = 0; trained < 2; trained++) {
            struct model *m =
                new_model(trained ? trained_slopes() : tiny("alibi"), &devices[d], DTYPE_F32);

            assert_ok(model_init(m, 5, ALIBI_INIT_GPT2));
            assert_ok(once_logits(m, tokens, 1, MANY, logits[trained]));
            assert_int_equal(m->elements, config_parameters(&m->config));
            model_free(m);
        }
        assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    }
}

/* The bound on a far tile's scores holds for any slope: a flat head, and one that prefers far keys,
 * keep every tile, and the steep head skips. */
static void skipping_is_right_for_slopes_of_any_sign(void **state)
{
    static const float factors[3] = { 0, -0.5f, 40 };
    const struct pass_settings settings = { .skip = 0x1p-20, .record = true, .verify = true };
    struct device devices[2] = { reference, { .ops = ops_cpu() } };
    int32_t tokens[MANY];
    float exact[MANY * VOCAB], skipped[MANY * VOCAB], slopes[3];

    (void)state;
    draw_tokens(tokens, MANY, VOCAB, 7);
    for (int d = 0; d < 2; d++) {
        struct model *m = new_model(trained_slopes(), &devices[d], DTYPE_F32);
        struct workspace *w = NULL;
        struct attention_statistics s;

        set_factors(m, factors);
        assert_ok(model_slopes(m, 0, slopes));
        assert_true(slopes[0] == 0 && slopes[1] == -0x1p-9f && slopes[2] == 10);
        assert_ok(once_logits(m, tokens, 1, MANY, exact));
        assert_ok(workspace_new(&w, m, &settings));
        assert_ok(model_logits(w, tokens, 1, MANY, skipped));
        s = workspace_statistics(w);
        print_message("%s: %lld of %lld tiles, skipped %.1e\n", devices[d].ops->name,
                      (long long)s.tiles.used, (long long)s.tiles.all, s.skipped);
        assert_true(difference(exact, skipped, MANY * VOCAB) < 2e-5);
        assert_true(s.skipped <= settings.skip);
        assert_true(3 * s.tiles.used >= 2 * s.tiles.all);
        assert_true(d == 0 || s.tiles.used < s.tiles.all);
        workspace_free(w);
        model_free(m);
    }
}

static void slopes_are_never_negative_after_an_update(void **state)
{
    static const float factors[3] = { -1, 0.5f, 2 }, expected[3] = { 0, 0x1p-9f, 0.5f };
    struct device devices[2] = { reference, { .ops = ops_cpu() } };
    float slopes[3];

    (void)state;
    for (int d = 0; d < 2; d++) {
        struct model *m = new_model(trained_slopes(), &devices[d], DTYPE_F32);

        set_factors(m, factors);
        assert_ok(model_limit_slopes(m));
        assert_ok(model_slopes(m, 0, slopes));
        assert_memory_equal(slopes, expected, sizeof slopes);
        model_free(m);
    }
}

static void methods_start_from_the_same_weights_but_for_their_own(void **state)
{
    struct alibi_config with = tiny("t5"), without = tiny("alibi");
    struct model *a = new_model(with, &reference, DTYPE_F32),
                 *b = new_model(without, &reference, DTYPE_F32);

    (void)state;
    assert_int_equal(model_init(a, 4, ALIBI_INIT_GPT2), ALIBI_OK);
    assert_int_equal(model_init(b, 4, ALIBI_INIT_GPT2), ALIBI_OK);
    for (int i = 0; i < b->count; i++)
        for (int k = 0; k < a->count; k++)
            if (strcmp(a->parameters[k].name, b->parameters[i].name) == 0)
                assert_memory_equal(a->parameters[k].value.data, b->parameters[i].value.data,
                                    (size_t)b->parameters[i].count * sizeof(float));
    assert_int_equal(a->count, b->count + 1);
    model_free(a);
    model_free(b);
}

static double deviation(const struct model *m, const char *name)
{
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        const float *x = p->value.data;
        double squares = 0;

        if (strcmp(p->name, name) != 0)
            continue;
        for (int64_t k = 0; k < p->count; k++)
            squares += (double)x[k] * x[k];
        return sqrt(squares / (double)p->count);
    }
    fail_msg("no tensor '%s'", name);
    return 0;
}

static void weights_start_as_large_as_the_scale_says(void **state)
{
    /* GPT-2's is less for what adds to the stream, and for embeddings that are scaled and tied:
     * see embedding_deviation(). */
    static const struct {
        const char *name;
        double gpt2;
    } tensors[] = {
        { "embedding.weight", 4.0 / 400 },         { "position.weight", 4.0 / 400 * 20 },
        { "blocks.0.attention.qkv.weight", 0.02 }, { "blocks.1.attention.out.weight", 0.01 },
        { "blocks.0.ff.up.weight", 0.02 },         { "blocks.1.ff.down.weight", 0.01 }
    };
    struct alibi_config c = tiny("learned");
    struct model *m;

    (void)state;
    c.layers = 2;
    c.width = 400;
    c.heads = 8;
    c.kv_heads = 8;
    c.ff_width = 800;
    c.tied = true;
    c.embedding_scale = 20;
    m = new_model(c, &reference, DTYPE_F32);
    for (int scale = ALIBI_INIT_GPT2; scale <= ALIBI_INIT_WIDTH; scale++) {
        assert_ok(model_init(m, 4, (enum alibi_init_scale)scale));
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            bool position = strcmp(tensors[i].name, "position.weight") == 0;
            double expected = scale == ALIBI_INIT_GPT2 ? tensors[i].gpt2 : position ? 1 : 1.0 / 20;

            assert_true(fabs(deviation(m, tensors[i].name) / expected - 1) < 0.05);
        }
    }
    model_free(m);
}

static bool is_matrix(const char *name)
{
    static const char *const matrices[] = { "embedding.weight", "attention.qkv.weight",
                                            "attention.out.weight", "ff.up.weight",
                                            "ff.down.weight" };

    for (int i = 0; i < 5; i++)
        if (strstr(name, matrices[i]))
            return true;
    return false;
}

static void norms_and_biases_do_not_decay_the_learned_bias_by_distance_included(void **state)
{
    struct model *m = new_model(tiny("t5"), &reference, DTYPE_F32);

    (void)state;
    for (int i = 0; i < m->count; i++)
        assert_int_equal(m->parameters[i].decays, is_matrix(m->parameters[i].name));
    model_free(m);
}

static void configurations_that_do_not_fit_together_are_named(void **state)
{
    struct alibi_config c = tiny("alibi");

    (void)state;
    c.heads = 5;
    assert_int_equal(alibi_config_resolve(&c), ALIBI_USAGE);
    assert_non_null(strstr(alibi_error(), "heads 5 do not divide width 6"));
    c = tiny("alibi");
    c.kv_heads = 2;
    assert_int_equal(alibi_config_resolve(&c), ALIBI_USAGE);
    c = tiny("rotery");
    assert_int_equal(alibi_config_resolve(&c), ALIBI_USAGE);
    assert_non_null(strstr(alibi_error(), "'rotary'"));
    c = tiny("rotary");
    c.heads = 2;
    assert_int_equal(alibi_config_resolve(&c), ALIBI_USAGE);
}

static void values_outside_their_range_are_named(void **state)
{
    struct alibi_config c[] = { tiny("alibi"), tiny("alibi"), tiny("alibi"),
                                tiny("alibi"), tiny("alibi"), tiny("learned") };
    static const char *const names[] = { "norm",  "activation", "norm-eps",
                                         "width", "heads",      "train-length" };

    (void)state;
    c[0].norm = 9;
    c[1].activation = 42;
    c[2].norm_eps = -5;
    c[3].width = (int64_t)1 << 62;
    c[4].heads = 0;
    c[5].train_length = (int64_t)1 << 62;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(alibi_config_resolve(&c[i]), ALIBI_USAGE);
        assert_non_null(strstr(alibi_error(), names[i]));
        assert_non_null(strstr(alibi_error(), "out of range"));
    }
}

static void configuration_survives_its_file(void **state)
{
    struct alibi_config c = adaptive(tiny("t5")), read;
    struct text json = { 0 };

    (void)state;
    assert_int_equal(alibi_config_resolve(&c), ALIBI_OK);
    assert_int_equal(config_write_json(&c, &json), ALIBI_OK);
    assert_int_equal(config_read_json(&read, json.data, json.length, "config.json"), ALIBI_OK);
    assert_string_equal(read.position, "t5");
    assert_int_equal(read.kv_heads, 3);
    assert_int_equal(read.vocab, VOCAB);
    assert_true(read.embedding_scale == c.embedding_scale && read.norm_eps == c.norm_eps);
    assert_memory_equal(&read.adaptive_cutoffs, &c.adaptive_cutoffs, sizeof c.adaptive_cutoffs);
    assert_int_equal(read.adaptive_factor, 2);
    text_free(&json);
    c = trained_slopes();
    assert_int_equal(alibi_config_resolve(&c), ALIBI_OK);
    assert_int_equal(config_write_json(&c, &json), ALIBI_OK);
    assert_int_equal(config_read_json(&read, json.data, json.length, "config.json"), ALIBI_OK);
    assert_true(read.train_slopes);
    text_free(&json);
}

static void files_from_before_trained_slopes_have_fixed_ones(void **state)
{
    static const char json[] = "{ \"vocab\": 7, \"position\": \"alibi\", \"bias_max\": 8.0 }";
    struct alibi_config read;

    (void)state;
    assert_int_equal(config_read_json(&read, json, strlen(json), "config.json"), ALIBI_OK);
    assert_false(read.train_slopes);
}

static void check_failing_allocations(struct alibi_config c)
{
    int32_t tokens[B * L] = { 0 };
    size_t before = alibi_memory_now();

    assert_int_equal(alibi_config_resolve(&c), ALIBI_OK);
    for (int64_t n = 1;; n++) {
        struct model *m = NULL;
        double sum;
        alibi_status status;

        alibi_inject_fault("memory", n);
        status = model_new(&m, &c, &reference, DTYPE_F32, true);
        if (status == ALIBI_OK)
            status = model_init(m, 1, ALIBI_INIT_GPT2);
        if (status == ALIBI_OK)
            status = once_gradients(m, (struct pass_settings){ 0 }, tokens, tokens, B, L, 1.0,
                                    (struct dropout){ 0 }, &sum);
        alibi_inject_fault("memory", 0);
        model_free(m);
        assert_int_equal(alibi_memory_now(), before);
        if (status == ALIBI_OK) {
            assert_true(n > 8);
            break;
        }
        assert_int_equal(status, ALIBI_MEMORY);
    }
}

static void every_failing_allocation_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    check_failing_allocations(tiny("t5"));
    check_failing_allocations(adaptive(tiny("t5")));
    check_failing_allocations(trained_slopes());
}

static void count_layers(void *user, int64_t layers)
{
    int64_t *seen = user;

    assert_int_equal(layers, *seen + 1); /* one after the other */
    *seen = layers;
}

static void a_pass_reports_each_layer(void **state)
{
    struct alibi_config c = tiny("alibi");
    int64_t seen = 0;
    const struct pass_settings settings = { .layer_done = count_layers, .user = &seen };
    struct workspace *w = NULL;
    struct model *m = NULL;
    int32_t tokens[8] = { 0 };
    float nll[8];

    (void)state;
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, &reference, DTYPE_F32, false));
    assert_ok(model_init(m, 1, ALIBI_INIT_GPT2));
    assert_ok(workspace_new(&w, m, &settings));
    assert_ok(model_loss(w, tokens, tokens, 1, 8, nll));
    assert_int_equal(seen, c.layers);
    workspace_free(w);
    model_free(m);
}

/* What a pass hands over and reads, in order. */
static char told[64];

static alibi_status tell_gradient(void *user, int64_t layer)
{
    snprintf(told + strlen(told), sizeof told - strlen(told), "%lld ", (long long)layer);
    return (void)user, ALIBI_OK;
}

static alibi_status tell_sum(struct device *dev, double *sum, struct tensor x)
{
    snprintf(told + strlen(told), sizeof told - strlen(told), "loss");
    return ops_ref.sum(dev, sum, x);
}

/* So that they are on their way to other ranks while the host waits for the loss. */
static void all_gradients_are_handed_over_before_the_loss_is_read(void **state)
{
    struct ops ops = ops_ref;
    struct device dev = { .ops = &ops };
    struct model *m = new_model(tiny("alibi"), &dev, DTYPE_F32);
    int32_t tokens[B * L], targets[B * L];
    double loss;

    (void)state;
    ops.sum = tell_sum;
    draw_tokens(tokens, B * L, VOCAB, 1);
    draw_tokens(targets, B * L, VOCAB, 2);
    assert_ok(once_gradients(m, (struct pass_settings){ .gradient_done = tell_gradient }, tokens,
                             targets, B, L, 1.0, (struct dropout){ 0 }, &loss));
    assert_string_equal(told, "1 0 -1 loss");
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_reports_each_layer),
        cmocka_unit_test(gradients_equal_finite_differences_for_every_method_tied_and_untied),
        cmocka_unit_test(gradients_equal_finite_differences_for_every_kind_of_block),
        cmocka_unit_test(biases_are_where_the_options_say),
        cmocka_unit_test(fast_operations_give_the_reference_losses_and_gradients),
        cmocka_unit_test(the_first_gradients_are_those_that_adding_to_zeros_gives),
        cmocka_unit_test(what_is_computed_again_gives_the_same_gradients_bit_for_bit),
        cmocka_unit_test(dropouts_within_a_branch_act_in_training_alone),
        cmocka_unit_test(rows_without_a_target_change_no_loss),
        cmocka_unit_test(used_tiles_are_recorded_only_if_some_may_be_skipped),
        cmocka_unit_test(parameters_that_decay_come_first_and_all_begin_at_multiples_of_64),
        cmocka_unit_test(bf16_gives_the_losses_and_gradients_of_fp32_to_its_precision),
        cmocka_unit_test(copies_follow_the_masters_once_they_are_refreshed),
        cmocka_unit_test(the_output_layer_is_cut_evenly),
        cmocka_unit_test(the_output_layer_is_cut_into_whole_waves),
        cmocka_unit_test(a_device_that_keeps_times_is_not_interrupted_by_statistics),
        cmocka_unit_test(
            decoding_equals_the_full_forward_for_every_method_past_the_training_length),
        cmocka_unit_test(a_window_ends_what_a_token_depends_on),
        cmocka_unit_test(decoding_equals_the_full_forward_without_a_last_norm_and_in_parallel),
        cmocka_unit_test(decoding_equals_the_full_forward_with_clusters),
        cmocka_unit_test(sequences_decoded_together_get_the_bits_they_get_alone),
        cmocka_unit_test(a_step_equals_the_full_forward_past_the_training_length),
        cmocka_unit_test(a_step_that_is_recorded_has_no_copies_by_the_host),
        cmocka_unit_test(a_pass_that_failed_has_overwritten_no_key_that_the_next_one_needs),
        cmocka_unit_test(learned_positions_past_the_table_are_an_error_that_says_so),
        cmocka_unit_test(tokens_outside_the_vocabulary_are_refused),
        cmocka_unit_test(methods_start_from_the_same_weights_but_for_their_own),
        cmocka_unit_test(weights_start_as_large_as_the_scale_says),
        cmocka_unit_test(norms_and_biases_do_not_decay_the_learned_bias_by_distance_included),
        cmocka_unit_test(configurations_that_do_not_fit_together_are_named),
        cmocka_unit_test(values_outside_their_range_are_named),
        cmocka_unit_test(configuration_survives_its_file),
        cmocka_unit_test(files_from_before_trained_slopes_have_fixed_ones),
        cmocka_unit_test(a_fresh_model_with_trained_slopes_is_the_one_with_fixed_slopes),
        cmocka_unit_test(skipping_is_right_for_slopes_of_any_sign),
        cmocka_unit_test(slopes_are_never_negative_after_an_update),
        cmocka_unit_test(all_gradients_are_handed_over_before_the_loss_is_read),
        cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
