/* test_cuda_model.c - the whole model on a GPU: losses and gradients against the CPU, decoding
 * against the full forward, training against training */
#include "ops/gpu.h"
#include "training.h"
#include "passes.h"

enum { B = 2, L = 70, VOCAB = 257, MANY = 300 };

static struct device cpu;

static void start(void)
{
    begin();
    cpu = (struct device){ .ops = ops_cpu() };
}

/* ---- models */

/* The methods, and patterns of them; NULL past the last. */
static const char *position_number(int i)
{
    static const char *const patterns[] = { "rotary:window=20,none:logn:temperature=1",
                                            "rotary:logn:window=9,alibi:logn:train-slopes",
                                            "kerple:power:window=20,bam:logn",
                                            "rotary:share=0.5:tau=10,rotary:tau=5:window=9:sinks=3",
                                            "rotary:window=9:sinks=3,alibi:window=20:sinks=4:logn",
                                            "alibi:free=0.5:logn,rotary:share=0.5",
                                            "rotary:window=9,alibi:free=0.5:logn",
                                            "rotary:window=9,fox:free=0.5:logn" };
    int methods = 0;

    while (alibi_position_name(methods, NULL))
        methods++;
    if (i >= methods + (int)(sizeof patterns / sizeof *patterns))
        return NULL;
    return i < methods ? alibi_position_name(i, NULL) : patterns[i - methods];
}

static struct alibi_config small_config(const char *position)
{
    struct alibi_config c;
    struct alibi_training training;

    tiny_defaults(&c, &training);
    c.vocab = VOCAB;
    c.layers = 2;
    c.width = 64;
    c.heads = 4;
    c.ff_width = 160;
    c.biases = true;
    c.train_length = L;
    snprintf(c.position, sizeof c.position, "%s", position);
    return c;
}

/* Clusters of 100, 33, 1 and 123 ids, with embeddings of 64, 32, 16 and 8 numbers. */
static struct alibi_config adaptive(struct alibi_config c)
{
    c.adaptive_cutoffs = (struct alibi_int_list){ .count = 3, .at = { 100, 133, 134 } };
    c.adaptive_factor = 2;
    return c;
}

static struct model *new_model(struct alibi_config c, struct device *dev, enum dtype type)
{
    struct model *m = NULL;

    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, dev, type, true));
    randomise(m, 5, 0.1);
    return m;
}

static void draw_tokens(int32_t *tokens, int64_t count, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(3, stream, (uint64_t)i, VOCAB);
}

/* A flat buffer of the model, on the host. */
static float *flat_of(const struct model *m, void *buffer)
{
    float *host = NULL;

    assert_ok(NEW_ARRAY(&host, m->span, "numbers of a model"));
    assert_ok(m->device->ops->download(m->device, host, model_flat(m, buffer)));
    return host;
}

/* ---- losses and gradients */

/* The results of one pass over the same tokens. */
struct pass {
    float nll[B * L];
    double loss;
    float *gradients; /* [span]; pass_free */
};

/* Dropout is everywhere. */
static struct pass pass_with(struct model *m, struct pass_settings settings, double dropout)
{
    struct dropout drop = { .p = dropout, .seed = 9, .stream = RANDOM_STREAM(RANDOM_DROPOUT, 4) };
    int32_t tokens[B * L], targets[B * L];
    struct pass pass = { .loss = 0 };

    settings.attention_dropout = settings.activation_dropout = dropout;
    draw_tokens(tokens, B * L, 1);
    draw_tokens(targets, B * L, 2);
    targets[3] = -1;
    assert_ok(once_loss(m, tokens, targets, B, L, pass.nll));
    assert_ok(model_clear_gradients(m));
    assert_ok(once_gradients(m, settings, tokens, targets, B, L, 1.0 / (B * L), drop, &pass.loss));
    pass.gradients = flat_of(m, m->gradients);
    return pass;
}

static struct pass pass_of(struct model *m, double dropout)
{
    return pass_with(m, (struct pass_settings){ .tail_dropout = dropout }, dropout);
}

static void pass_free(struct pass *p)
{
    mem_free(p->gradients);
}

static double norm_of(const float *x, int64_t count)
{
    double sum = 0.0;

    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* |x - y| / |y|, the latter taken as at least `least`. */
static double relative(const float *x, const float *y, int64_t count, double least)
{
    double sum = 0.0;

    for (int64_t i = 0; i < count; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sqrt(sum) / fmax(norm_of(y, count), fmax(least, 1e-30));
}

static double cosine(const float *x, const float *y, int64_t count)
{
    double sum = 0.0;

    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)y[i];
    return sum / (norm_of(x, count) * norm_of(y, count));
}

static void say(const char *what, const char *type, const struct alibi_config *c, const char *kind,
                const char *words, bool good)
{
    printf("%s cuda %s %s %s  %s  %s\n", what, type, c->position, kind, words,
           good ? "ok" : "TOO FAR");
    all_good = all_good && good;
}

/* The parameter whose gradient is furthest off, by name. */
static double worst_gradient(const struct model *m, const float *got, const float *want,
                             const char **name)
{
    double worst = 0.0, all = norm_of(want, m->span);

    *name = "none";
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        double error = relative(got + p->offset, want + p->offset, p->count, 1e-5 * all);
        if (!(error <= worst)) {
            worst = isnan(error) ? INFINITY : error;
            *name = p->name;
        }
    }
    return worst;
}

static void check_fp32(struct alibi_config c, const char *kind, double dropout)
{
    struct model *there = new_model(c, &gpu, DTYPE_F32), *here = new_model(c, &cpu, DTYPE_F32);
    struct pass got = pass_of(there, dropout), want = pass_of(here, dropout);
    const char *name;
    double nll = relative(got.nll, want.nll, B * L, 0.0), loss = fabs(got.loss / want.loss - 1.0);
    double gradient = worst_gradient(here, got.gradients, want.gradients, &name);
    char words[160];

    snprintf(words, sizeof words, "nll %.1e loss %.1e gradient %.1e (%s) limit 1.0e-04", nll, loss,
             gradient, name);
    say("model", "f32", &c, kind, words, nll <= 1e-4 && loss <= 1e-4 && gradient <= 1e-4);
    pass_free(&got);
    pass_free(&want);
    model_free(there);
    model_free(here);
}

/* The least cosine of the gradients that are a hundredth of the whole or more. */
static double least_cosine(const struct model *m, const float *got, const float *want,
                           const char **name)
{
    double least = 1.0, all = norm_of(want, m->span);

    *name = "none";
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        double x = cosine(got + p->offset, want + p->offset, p->count);
        if (norm_of(want + p->offset, p->count) > 0.01 * all && !(x >= least)) {
            least = isnan(x) ? -1.0 : x;
            *name = p->name;
        }
    }
    return least;
}

static void check_bf16(struct alibi_config c, const char *kind, double dropout)
{
    struct model *there = new_model(c, &gpu, DTYPE_BF16), *here = new_model(c, &cpu, DTYPE_F32);
    struct pass got = pass_of(there, dropout), want = pass_of(here, dropout);
    const char *name;
    double nll = relative(got.nll, want.nll, B * L, 0.0), loss = fabs(got.loss / want.loss - 1.0);
    double all = cosine(got.gradients, want.gradients, here->span);
    double least = least_cosine(here, got.gradients, want.gradients, &name);
    char words[160];

    snprintf(words, sizeof words,
             "nll %.1e loss %.1e limit 2.0e-02 cosine %.5f, of %s %.5f limit 0.99", nll, loss, all,
             name, least);
    say("model", "bf16", &c, kind, words,
        nll <= 2e-2 && loss <= 2e-2 && all > 0.99 && least > 0.99);
    pass_free(&got);
    pass_free(&want);
    model_free(there);
    model_free(here);
}

/* Few rows have a target, so the output layer gathers them. */
static void losses_of_few_rows_are_those_of_the_cpu(void **state)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    static const double limits[] = { 1e-4, 2e-2 };
    struct alibi_config c = small_config("alibi");
    int32_t tokens[B * MANY], targets[B * MANY];
    float got[B * MANY], want[B * MANY];
    char words[80];

    (void)state;
    start();
    draw_tokens(tokens, B * MANY, 1);
    for (int i = 0; i < B * MANY; i++)
        targets[i] = i % 50 == 7 ? tokens[i] : -1;
    for (int i = 0; i < 2; i++) {
        struct model *there = new_model(c, &gpu, types[i]), *here = new_model(c, &cpu, DTYPE_F32);
        double nll;

        assert_ok(once_loss(there, tokens, targets, B, MANY, got));
        assert_ok(once_loss(here, tokens, targets, B, MANY, want));
        for (int r = 0; r < B * MANY; r++)
            assert_true(targets[r] >= 0 || got[r] == 0);
        nll = relative(got, want, B * MANY, 0.0);
        snprintf(words, sizeof words, "nll %.1e limit %.1e", nll, limits[i]);
        say("model", i == 0 ? "f32" : "bf16", &c, "few targets", words, nll <= limits[i]);
        model_free(there);
        model_free(here);
    }
    end();
}

/* ---- every model */

typedef void check_model(struct alibi_config c, const char *kind, double dropout);

/* A method in blocks of every kind; with few cases in one of them, another for each method. */
static void check_method(int method, check_model *check)
{
    static const struct {
        const char *name;
        double dropout;
        bool untied, normed, parallel;
    } kinds[] = {
        { "tied", 0.0, false, false, false },
        { "tied, dropout", 0.2, false, false, false },
        { "untied, no biases, groups of heads", 0.2, true, false, false },
        { "norms of queries and keys", 0.2, true, true, false },
        { "parallel", 0.2, true, false, true },
    };

    for (int k = 0; k < COUNT_OF(kinds); k++) {
        struct alibi_config c = small_config(position_number(method));

        if (few_cases() && k != method % COUNT_OF(kinds))
            continue;
        if (kinds[k].untied) {
            c.tied = c.biases = false;
            c.kv_heads = 2;
        }
        c.qk_norm = kinds[k].normed;
        c.parallel = c.qkv_biases = kinds[k].parallel;
        check(c, kinds[k].name, kinds[k].dropout);
    }
}

static void check_adaptive(check_model *check)
{
    struct alibi_config c;

    for (int tied = few_cases() ? 1 : 0; tied < 2; tied++) {
        c = adaptive(small_config(tied ? "alibi" : "sinusoidal"));
        c.tied = tied;
        check(c, tied ? "adaptive, tied" : "adaptive, untied", 0.0);
        c.final_norm = false;
        check(c, "adaptive, no final norm, dropout", 0.2);
    }
    c = small_config("alibi");
    c.width = 256;
    c.adaptive_cutoffs = (struct alibi_int_list){ .count = 1, .at = { 80 } };
    check(c, "adaptive, width 256", 0.0);
}

static void for_every_model(check_model *check)
{
    static const char *const activations[] = { "gelu-tanh", "gelu-erf", "relu", "swiglu" };
    struct alibi_config c;

    for (int i = 0; position_number(i); i++)
        check_method(i, check);
    check_adaptive(check);
    for (int activation = ALIBI_GELU_TANH; activation <= ALIBI_SWIGLU; activation++)
        for (int norm = ALIBI_LAYERNORM; norm <= ALIBI_RMSNORM; norm++) {
            c = small_config("alibi");
            c.activation = activation;
            c.norm = norm;
            c.embedding_norm = norm == ALIBI_RMSNORM;
            check(c, activations[activation], norm == ALIBI_RMSNORM ? 0.1 : 0.0);
        }
    c = small_config("alibi");
    c.width = 256; /* heads of 64 and of 128: what large models have */
    check(c, "width 256, 4 heads", 0.0);
    c.heads = 2;
    c.kv_heads = 1;
    check(c, "width 256, 2 heads in a group", 0.0);
    c.train_slopes = true;
    check(c, "trained slopes, width 256, 2 heads in a group", 0.0);
    c = small_config("alibi");
    c.train_slopes = true;
    check(c, "trained slopes, dropout", 0.2);
    c = small_config("rotary");
    c.rotary_layout = ALIBI_ROTARY_PAIRS;
    check(c, "pairs", 0.0);
    c.qk_norm = true;
    c.width = 256;
    check(c, "pairs, norms of queries and keys, width 256", 0.0);
}

static void losses_and_gradients_in_fp32_are_those_of_the_cpu(void **state)
{
    (void)state;
    start();
    for_every_model(check_fp32);
    end();
}

static void losses_and_gradients_in_bf16_are_those_of_the_cpu_to_its_precision(void **state)
{
    (void)state;
    start();
    for_every_model(check_bf16);
    end();
}

/* The same bits, except activations in bf16, which are recomputed from rounded inputs. */
static void check_again(const struct model *m, int recompute, const struct pass *again,
                        const struct pass *kept)
{
    bool cheap = recompute == ALIBI_RECOMPUTE_CHEAP;
    double error = relative(again->gradients, kept->gradients, m->span, 0.0);
    double limit = cheap && m->type == DTYPE_BF16 ? 1e-2 : 0.0;
    bool same = memcmp(again->gradients, kept->gradients, (size_t)m->span * sizeof(float)) == 0;
    char words[80];

    snprintf(words, sizeof words, "gradient %.1e limit %.1e", error, limit);
    say("model computed again", type_name(m->type), &m->config, cheap ? "cheap" : "block", words,
        again->loss == kept->loss && (same || (limit > 0 && error <= limit)));
}

/* One model passes from one way to the other, as its buffers must. */
static void check_recompute(struct alibi_config c, enum dtype type)
{
    struct model *m = new_model(c, &gpu, type);
    struct pass kept = pass_of(m, 0.2);

    for (int recompute = ALIBI_RECOMPUTE_CHEAP; recompute <= ALIBI_RECOMPUTE_BLOCK; recompute++) {
        struct pass again = pass_with(
            m, (struct pass_settings){ .recompute = recompute, .tail_dropout = 0.2 }, 0.2);
        check_again(m, recompute, &again, &kept);
        pass_free(&again);
    }
    pass_free(&kept);
    model_free(m);
}

static void what_is_computed_again_gives_the_same_numbers(void **state)
{
    (void)state;
    start();
    for (int i = 0; position_number(i); i++)
        for (int kind = 0; kind < 4; kind++) {
            struct alibi_config c = small_config(position_number(i));
            c.layers = 3;
            c.activation = kind & 1 ? ALIBI_SWIGLU : ALIBI_GELU_TANH;
            c.norm = kind & 1 ? ALIBI_RMSNORM : ALIBI_LAYERNORM;
            check_recompute(c, kind & 2 ? DTYPE_BF16 : DTYPE_F32);
            c.qk_norm = true;
            check_recompute(c, kind & 2 ? DTYPE_BF16 : DTYPE_F32);
            c.qk_norm = false;
            if (i == 0)
                check_recompute(adaptive(c), kind & 2 ? DTYPE_BF16 : DTYPE_F32);
        }
    end();
}

/* A budget so small that it cannot show in the numbers, beyond another order of sums. */
static void skipping_leaves_losses_and_gradients_as_they_are(void **state)
{
    (void)state;
    start();
    for (int n = 0; n < 4; n++) {
        bool rounded = n % 2;
        struct alibi_config c = small_config(n < 2 ? "alibi" : "fox");
        enum dtype type = rounded ? DTYPE_BF16 : DTYPE_F32;
        c.width = 256;
        struct model *m = new_model(c, &gpu, type);
        struct pass exact = pass_of(m, 0.0);
        struct pass skipped = pass_with(m, (struct pass_settings){ .skip = 0x1p-24 }, 0.0);
        double error = relative(skipped.gradients, exact.gradients, m->span, 0.0),
               limit = rounded ? 2e-2 : 1e-4;
        char words[80];
        snprintf(words, sizeof words, "gradient %.1e limit %.1e", error, limit);
        say("model skipping", type_name(type), &c, "eps 2^-24", words, error <= limit);
        pass_free(&exact);
        pass_free(&skipped);
        model_free(m);
    }
    end();
}

/* ---- decoding */

/* Feeds MANY tokens in pieces of the given lengths, repeated; the largest difference to the full
 * forward where a piece ends. */
static double decoding_error(struct model *m, const int64_t *pieces, int count)
{
    static int32_t tokens[MANY];
    static float full[MANY * VOCAB], last[VOCAB];
    struct cache *cache = NULL;
    struct workspace *w = NULL;
    double worst = 0.0;

    draw_tokens(tokens, MANY, 7);
    assert_ok(once_logits(m, tokens, 1, MANY, full));
    assert_ok(cache_new(&cache, m, 1, (struct cache_window){ 0 }));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
    for (int64_t at = 0, i = 0; at < MANY; i++) {
        int64_t length = pieces[i % count] < MANY - at ? pieces[i % count] : MANY - at;
        assert_ok(extend(w, cache, tokens + at, length, last));
        at += length;
        double error = relative(last, full + (at - 1) * VOCAB, VOCAB, 0.0);
        worst = isnan(error) ? INFINITY : fmax(worst, error);
    }
    cache_free(cache);
    workspace_free(w);
    return worst;
}

static void check_decoding(struct alibi_config c, enum dtype type, const char *kind)
{
    static const int64_t one[] = { 1 }, mixed[] = { 1, 64, 3, 17, 100 };
    double limit = type == DTYPE_BF16 ? 3e-2 : 1e-4;

    c.max_length = MANY;
    c.kv_heads = 2;
    struct model *m = new_model(c, &gpu, type);
    double single = decoding_error(m, one, 1), pieces = decoding_error(m, mixed, 5);
    char words[100];
    snprintf(words, sizeof words, "one by one %.1e in pieces %.1e limit %.1e", single, pieces,
             limit);
    say("decoding", type_name(type), &c, kind, words, single <= limit && pieces <= limit);
    model_free(m);
}

static void decoding_equals_the_full_forward_for_every_method(void **state)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16 };

    (void)state;
    start();
    for (int t = 0; t < 2; t++) {
        for (int i = 0; position_number(i); i++) {
            struct alibi_config c = small_config(position_number(i));

            check_decoding(c, types[t], "groups of heads");
            c.qk_norm = true;
            check_decoding(c, types[t], "norms of queries and keys");
        }
        check_decoding(adaptive(small_config("alibi")), types[t], "adaptive");
    }
    end();
}

/* Three sequences of different lengths step together, past windows and sinks: the largest
 * difference to the full forward of each. */
static double steps_error(struct model *m)
{
    enum { SLOTS = 3, STEPS_EACH = 4, MOST = 44 };
    static const int64_t prompt[SLOTS] = { 5, 13, MOST - STEPS_EACH };
    static int32_t tokens[SLOTS][MOST];
    static float full[SLOTS][MOST * VOCAB], got[SLOTS * VOCAB];
    static const int32_t slots[SLOTS] = { 2, 0, 1 };
    struct cache *cache = NULL;
    struct workspace *w = NULL;
    double worst = 0.0;

    assert_ok(cache_new(&cache, m, SLOTS, (struct cache_window){ 0 }));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
    for (int s = 0; s < SLOTS; s++) {
        draw_tokens(tokens[s], MOST, (uint64_t)(40 + s));
        assert_ok(once_logits(m, tokens[s], 1, prompt[s] + STEPS_EACH, full[s]));
        assert_ok(model_extend(w, cache, s, tokens[s], prompt[s]));
    }
    for (int n = 0; n < STEPS_EACH; n++) {
        int32_t next[SLOTS];

        for (int i = 0; i < SLOTS; i++)
            next[i] = tokens[slots[i]][prompt[slots[i]] + n];
        assert_ok(model_step(w, cache, slots, next, SLOTS));
        assert_ok(model_read_logits(w, 0, SLOTS, got));
        for (int i = 0; i < SLOTS; i++) {
            const float *want = full[slots[i]] + (prompt[slots[i]] + n) * VOCAB;
            double error = relative(got + i * VOCAB, want, VOCAB, 0.0);
            worst = isnan(error) ? INFINITY : fmax(worst, error);
        }
    }
    cache_free(cache);
    workspace_free(w);
    return worst;
}

static void steps_of_several_sequences_equal_the_full_forward(void **state)
{
    (void)state;
    start();
    for (int i = 0; position_number(i); i++)
        for (int type = first_type(); type < 2; type++) {
            struct alibi_config c = small_config(position_number(i));
            double error, limit = gpu_types[type] == DTYPE_BF16 ? 3e-2 : 1e-4;
            struct model *m;
            char words[80];

            if (few_cases() && type != i % 2)
                continue;
            c.qk_norm = i % 3 == 0;
            c.kv_heads = 2;
            c.norm = i / 2 % 2 ? ALIBI_RMSNORM : ALIBI_LAYERNORM;
            c.parallel = i % 5 == 3;
            c.activation = i % 7 == 5 ? ALIBI_SWIGLU : ALIBI_GELU_TANH;
            m = new_model(c, &gpu, gpu_types[type]);
            error = steps_error(m);
            snprintf(words, sizeof words, "three at once %.1e limit %.1e", error, limit);
            say("steps", type_name(gpu_types[type]), &c, c.qk_norm ? "normed" : "", words,
                error <= limit);
            model_free(m);
        }
    end();
}

/* Three sequences step together; each gets the bits that it gets alone, whatever its clusters. */
static void sequences_with_clusters_get_the_bits_they_get_alone(void **state)
{
    enum { SLOTS = 3, STEPS_EACH = 40 };
    static int32_t tokens[SLOTS][STEPS_EACH];
    static float together[STEPS_EACH][SLOTS * VOCAB], alone[VOCAB];
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16 };

    (void)state;
    start();
    for (int t = 0; t < 2; t++) {
        struct model *m = new_model(adaptive(small_config("alibi")), &gpu, types[t]);
        struct workspace *w = NULL;
        struct cache *cache = NULL;

        assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
        assert_ok(cache_new(&cache, m, SLOTS, (struct cache_window){ 0 }));
        for (int s = 0; s < SLOTS; s++)
            draw_tokens(tokens[s], STEPS_EACH, (uint64_t)(20 + s));
        for (int n = 0; n < STEPS_EACH; n++) {
            int32_t slots[SLOTS] = { 0, 1, 2 };
            int32_t next[SLOTS] = { tokens[0][n], tokens[1][n], tokens[2][n] };
            assert_ok(model_step(w, cache, slots, next, SLOTS));
            assert_ok(model_read_logits(w, 0, SLOTS, together[n]));
        }
        for (int s = 0; s < SLOTS; s++) {
            cache_clear(cache, s);
            for (int n = 0; n < STEPS_EACH; n++) {
                assert_ok(model_step(w, cache, &(int32_t){ s }, &tokens[s][n], 1));
                assert_ok(model_read_logits(w, 0, 1, alone));
                assert_memory_equal(together[n] + s * VOCAB, alone, sizeof alone);
            }
        }
        cache_free(cache);
        workspace_free(w);
        model_free(m);
    }
    end();
}

static void ignore_layer(void *user, int64_t layers)
{
    (void)user;
    (void)layers;
}

/* The same steps twice, while caches grow, batches change and a prompt comes in between. A step
 * that calls back after each layer is never recorded. With a window the cache is a ring of 128
 * positions, and from the third lap on steps read what was written to a second place. */
static void check_recorded_steps(struct model *m)
{
    enum { SLOTS = 3, STEPS_EACH = 90, STEPS_OF_RINGS = 290, PROMPT = 20 };
    const int steps = strstr(m->config.position, "window") ? STEPS_OF_RINGS : STEPS_EACH;
    static int32_t tokens[STEPS_OF_RINGS * SLOTS], prompt[PROMPT];
    static float recorded[SLOTS * VOCAB], called[SLOTS * VOCAB];
    static const struct pass_settings settings[2] = { { .skip = 0 },
                                                      { .layer_done = ignore_layer } };
    struct workspace *w[2] = { NULL, NULL };
    struct cache *cache[2] = { NULL, NULL };

    draw_tokens(tokens, steps * SLOTS, 31);
    draw_tokens(prompt, PROMPT, 32);
    for (int i = 0; i < 2; i++) {
        assert_ok(workspace_new(&w[i], m, &settings[i]));
        assert_ok(cache_new(&cache[i], m, SLOTS, (struct cache_window){ 0 }));
    }
    /* Learned positions end. */
    for (int n = 0; n < steps && n + PROMPT < model_longest(m); n++) {
        int32_t slots[SLOTS] = { 2, 0, 1 };
        int64_t count = n % 9 < 6 ? SLOTS : 1;
        for (int i = 0; i < 2; i++) {
            if (n == 40)
                assert_ok(model_extend(w[i], cache[i], 1, prompt, PROMPT));
            assert_ok(model_step(w[i], cache[i], slots, tokens + n * SLOTS, count));
            assert_ok(model_read_logits(w[i], 0, count, i == 0 ? recorded : called));
        }
        assert_memory_equal(recorded, called, (size_t)(count * VOCAB) * sizeof *called);
    }
    for (int i = 0; i < 2; i++) {
        cache_free(cache[i]);
        workspace_free(w[i]);
    }
}

static void recorded_steps_have_the_bits_of_steps_that_are_not(void **state)
{
    (void)state;
    start();
    for (int i = 0; position_number(i); i++) {
        struct model *m =
            new_model(small_config(position_number(i)), &gpu, i % 2 ? DTYPE_F32 : DTYPE_BF16);

        check_recorded_steps(m);
        model_free(m);
    }
    end();
}

/* ---- training */

enum { STEPS = 200, SMOOTHED = 20 };

static struct alibi_training small_training(double dropout)
{
    struct alibi_config config;
    struct alibi_training t;

    tiny_defaults(&config, &t);
    t.train_length = 64;
    t.batch = 8;
    t.accumulate = 1;
    t.steps = STEPS;
    t.warmup = 20;
    t.lr = 1e-3;
    t.dropout = dropout;
    return t;
}

static struct model *new_trainee(const alibi_corpus *corpus, struct device *dev, enum dtype type)
{
    struct alibi_config c = small_config("alibi");
    struct model *m = NULL;

    c.vocab = alibi_tokenizer_vocab(corpus_tokenizer(corpus));
    c.train_length = 64;
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, dev, type, true));
    assert_ok(model_init(m, 1, ALIBI_INIT_GPT2));
    return m;
}

static double take_step(struct model *m, struct optimizer *o, const struct alibi_training *t,
                        const struct batches *batches, int64_t step)
{
    static int32_t tokens[8 * 64], targets[8 * 64];
    struct dropout drop = { t->dropout, (uint64_t)t->seed,
                            RANDOM_STREAM(RANDOM_DROPOUT, step - 1) };
    double scale = 1.0 / (double)(t->batch * t->train_length), sum, norm;

    batches_read(batches, step - 1, tokens, targets);
    assert_ok(model_clear_gradients(m));
    assert_ok(once_gradients(m, (struct pass_settings){ 0 }, tokens, targets, t->batch,
                             t->train_length, scale, drop, &sum));
    assert_ok(optimizer_update(o, t, step, sum * scale, &norm));
    return sum * scale;
}

/* losses [steps]; returns the weights at the end (mem_free), and their number. */
static float *train(const alibi_corpus *corpus, struct device *dev, enum dtype type, double dropout,
                    int64_t steps, double *losses, int64_t *span)
{
    struct alibi_training t = small_training(dropout);
    struct model *m = new_trainee(corpus, dev, type);
    struct optimizer o;
    struct batches batches;
    float *weights;

    assert_ok(batches_init(&batches, corpus_span(corpus, ALIBI_TRAIN), t.train_length, t.batch,
                           (uint64_t)t.seed));
    assert_ok(optimizer_init(&o, m, t.optimizer, NULL));
    for (int64_t step = 1; step <= steps; step++)
        losses[step - 1] = take_step(m, &o, &t, &batches, step);
    weights = flat_of(m, m->values);
    *span = m->span;
    optimizer_fini(&o);
    model_free(m);
    return weights;
}

static alibi_corpus *builtin_corpus(void)
{
    alibi_corpus *corpus = NULL;

    assert_ok(alibi_corpus_builtin(&corpus, 1, 400000, NULL, test_call()));
    return corpus;
}

static void training_twice_from_the_same_seed_gives_the_same_bits(void **state)
{
    enum { FEW = 5 };
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16 };

    (void)state;
    start();
    alibi_corpus *corpus = builtin_corpus();
    for (int i = 0; i < 2; i++) {
        double losses[2][FEW];
        int64_t span;
        float *first = train(corpus, &gpu, types[i], 0.1, FEW, losses[0], &span);
        float *second = train(corpus, &gpu, types[i], 0.1, FEW, losses[1], &span);
        assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
        assert_memory_equal(first, second, (size_t)span * sizeof *first);
        mem_free(first);
        mem_free(second);
    }
    alibi_corpus_free(corpus);
    end();
}

static double smoothed(const double *losses, int end_step)
{
    double sum = 0.0;

    for (int i = end_step - SMOOTHED; i < end_step; i++)
        sum += losses[i];
    return sum / SMOOTHED;
}

/* In bf16 the model learns a thing some steps earlier or later, and then the curves are apart for a
 * while: the reference in bf16 was 1.3% above, 0.4% above and 1.4% below for three seeds. */
static void check_curve(const char *type, const double *got, const double *want, double limit)
{
    double worst = 0.0;

    for (int step = SMOOTHED; step <= STEPS; step++) {
        double error = fabs(smoothed(got, step) / smoothed(want, step) - 1.0);
        worst = isnan(error) ? INFINITY : fmax(worst, error);
    }
    printf("training cuda %s %d steps  loss %.4f cpu %.4f  furthest apart %.1e  limit %.1e  %s\n",
           type, STEPS, smoothed(got, STEPS), smoothed(want, STEPS), worst, limit,
           worst <= limit ? "ok" : "TOO FAR");
    all_good = all_good && worst <= limit;
}

static void training_follows_the_loss_of_the_cpu(void **state)
{
    static double on_cpu[STEPS], fp32[STEPS], bf16[STEPS];
    int64_t span;

    (void)state;
    start();
    alibi_corpus *corpus = builtin_corpus();
    mem_free(train(corpus, &cpu, DTYPE_F32, 0.0, STEPS, on_cpu, &span));
    mem_free(train(corpus, &gpu, DTYPE_F32, 0.0, STEPS, fp32, &span));
    mem_free(train(corpus, &gpu, DTYPE_BF16, 0.0, STEPS, bf16, &span));
    assert_true(smoothed(on_cpu, STEPS) <
                0.8 * smoothed(on_cpu, SMOOTHED)); /* it learns something */
    check_curve("f32", fp32, on_cpu, 1e-4);
    check_curve("bf16", bf16, on_cpu, 3e-2);
    alibi_corpus_free(corpus);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_in_fp32_are_those_of_the_cpu),
        cmocka_unit_test(losses_and_gradients_in_bf16_are_those_of_the_cpu_to_its_precision),
        cmocka_unit_test(losses_of_few_rows_are_those_of_the_cpu),
        cmocka_unit_test(what_is_computed_again_gives_the_same_numbers),
        cmocka_unit_test(skipping_leaves_losses_and_gradients_as_they_are),
        cmocka_unit_test(decoding_equals_the_full_forward_for_every_method),
        cmocka_unit_test(steps_of_several_sequences_equal_the_full_forward),
        cmocka_unit_test(sequences_with_clusters_get_the_bits_they_get_alone),
        cmocka_unit_test(recorded_steps_have_the_bits_of_steps_that_are_not),
        cmocka_unit_test(training_twice_from_the_same_seed_gives_the_same_bits),
        cmocka_unit_test(training_follows_the_loss_of_the_cpu),
    };

    return RUN_ON_GPU(tests);
}
