/* test_train.c - the optimizer, the guard, the loop; a resumed run is the run that was never
 * stopped */
#include "training.h"

#include "choosing.h"
#include "ranks.h"

static struct device device;

static struct model *new_model(void)
{
    struct alibi_config config = tiny_config();
    struct model *m = NULL;

    config.vocab = 257;
    config.train_length = 8;
    assert_ok(alibi_config_resolve(&config));
    device.ops = ops_cpu();
    assert_ok(model_new(&m, &config, &device, DTYPE_F32, true));
    assert_ok(model_init(m, 1, ALIBI_INIT_GPT2));
    return m;
}

static float *values_of(const struct model *m)
{
    float *values = malloc((size_t)m->span * sizeof *values);

    assert_non_null(values);
    assert_ok(device.ops->download(&device, values, model_flat(m, m->values)));
    return values;
}

/* ---- options */

static void defaults_are_within_their_ranges(void **state)
{
    struct alibi_config config;
    struct alibi_training training;

    (void)state;
    tiny_defaults(&config, &training);
    assert_ok(training_resolve(&training, &(struct alibi_config){ .width = 128 }));
}

static void every_value_outside_its_range_is_named(void **state)
{
    int count;
    const struct alibi_option *options = alibi_training_options(&count);

    (void)state;
    for (int i = 0; i < count; i++) {
        struct alibi_training t = tiny_training(10, 10);
        char *at = (char *)&t + options[i].offset;
        if (options[i].type == ALIBI_OPTION_TEXT || options[i].type == ALIBI_OPTION_FLAG)
            continue; /* any text will do, and a flag has no range */
        if (options[i].type == ALIBI_OPTION_REAL)
            *(double *)at = NAN;
        else if (options[i].type == ALIBI_OPTION_INT)
            *(int64_t *)at = INT64_MIN;
        else
            *(int *)at = 4;
        assert_fails(training_resolve(&t, &(struct alibi_config){ .width = 128 }), ALIBI_USAGE,
                     options[i].name);
    }
}

static void a_min_lr_above_lr_is_refused(void **state)
{
    struct alibi_training t = tiny_training(10, 10);

    (void)state;
    t.min_lr = 0.02;
    assert_fails(training_resolve(&t, &(struct alibi_config){ .width = 128 }), ALIBI_USAGE,
                 "min-lr 0.02 is above lr 0.01");
}

static void a_learning_rate_of_0_follows_the_width_and_nesterov_needs_one(void **state)
{
    struct alibi_training t = tiny_training(10, 10);
    struct alibi_config wide = { .width = 2048 }, narrow = { .width = 8 };

    (void)state;
    t.lr = 0;
    assert_ok(training_resolve(&t, &wide));
    assert_float_equal(t.lr, 1e-3, 1e-12);
    assert_ok(training_resolve(&t, &narrow)); /* a given rate stays */
    assert_float_equal(t.lr, 1e-3, 1e-12);
    t.lr = 0;
    assert_ok(training_resolve(&t, &narrow));
    assert_float_equal(t.lr, 4e-3, 1e-12);
    t.lr = 0;
    t.optimizer = ALIBI_NESTEROV;
    assert_fails(training_resolve(&t, &wide), ALIBI_USAGE, "--lr");
}

/* ---- optimizer */

/* With zero gradients decay is all that happens. */
static void check_decay(int kind)
{
    struct alibi_training t = tiny_training(10, 10);
    struct model *m = new_model();
    struct optimizer o;
    float *before, *after;

    t.weight_decay = 0.5;
    assert_ok(optimizer_init(&o, m, kind, NULL));
    for (int i = 0; i < m->count; i++) /* biases start at 0, where decay could not be seen */
        assert_ok(device.ops->fill(&device, m->parameters[i].value, 1.0));
    before = values_of(m);
    assert_ok(optimizer_step(&o, &t, 3, 1));
    after = values_of(m);
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        double factor = p->rank == 2 ? 1 - 0.01 * 0.5 : 1;
        for (int64_t j = p->offset; j < p->offset + p->count; j++)
            assert_close(after[j], before[j] * factor, 1e-7);
    }
    free(before);
    free(after);
    optimizer_fini(&o);
    model_free(m);
}

static void matrices_decay_norms_and_biases_do_not(void **state)
{
    (void)state;
    check_decay(ALIBI_ADAMW);
    check_decay(ALIBI_NESTEROV);
}

/* ---- whole runs */

/* Each test says for itself how long it trains. */
static int set_up(void **state)
{
    *state = new_site(0, 0);
    return 0;
}

static int tear_down(void **state)
{
    alibi_inject_fault("nan", 0);
    return drop_site(state);
}

static const char *in_place(const struct site *p, const char *name)
{
    return path_at("%s/%s", p->folder, name);
}

static alibi_status train(struct site *p, const struct alibi_training *t, const char *name,
                          bool resume)
{
    p->training = *t;
    return train_at(p, in_place(p, name), resume);
}

static float *weights(struct site *p, const char *name, int64_t *count)
{
    alibi_model *m = NULL;
    float *values;

    assert_ok(alibi_model_open(&m, test_device(), in_place(p, name), NULL));
    *count = m->model->span;
    values = malloc((size_t)*count * sizeof *values);
    assert_non_null(values);
    assert_ok(m->model->device->ops->download(m->model->device, values,
                                              model_flat(m->model, m->model->values)));
    alibi_model_free(m);
    return values;
}

/* sqrt of the sum of squares of the difference of two runs' weights. */
static double distance(struct site *p, const char *a, const char *b)
{
    int64_t count, other;
    float *x = weights(p, a, &count), *y = weights(p, b, &other);
    double sum = 0;

    assert_int_equal(count, other);
    for (int64_t i = 0; i < count; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    free(x);
    free(y);
    return sqrt(sum);
}

/* Without momentum an update is lr times the clipped gradient: its length tells. Two runs of one
 * step from the same weights, with clips of c and 2c, move c * lr apart. */
static void clipping_bounds_the_norm_of_the_update(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(1, 1);

    t.optimizer = ALIBI_NESTEROV;
    t.momentum = 0;
    t.warmup = 0;
    t.weight_decay = 0;
    t.clip = 0.01;
    assert_ok(train(p, &t, "one", false));
    t.clip = 0.02;
    assert_ok(train(p, &t, "two", false));
    assert_close(distance(p, "one", "two"), 0.01 * t.lr, 1e-7 * t.lr);
}

static void four_passes_of_two_windows_are_one_of_eight(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(5, 5);

    t.dropout = t.attention_dropout = t.activation_dropout = 0; /* masks are keyed by pass */
    t.optimizer = ALIBI_NESTEROV;
    t.batch = 8;
    t.accumulate = 1;
    assert_ok(train(p, &t, "whole", false));
    double loss = p->result.loss;
    t.batch = 2;
    t.accumulate = 4;
    assert_ok(train(p, &t, "parts", false));
    assert_close(p->result.loss, loss, 1e-6);
    assert_close(distance(p, "whole", "parts"), 0, 1e-6);
    t.seed = 2;
    assert_ok(train(p, &t, "other", false));
    assert_true(distance(p, "whole", "other") > 1e-3);
}

static void training_lowers_the_loss(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(60, 60);

    t.lr = 0.05;
    assert_ok(train(p, &t, "run", false));
    assert_int_equal(p->result.step, 60);
    assert_true(p->result.loss < 4.5); /* ln 257 = 5.55 is where it starts */
    assert_true(p->result.tokens_per_s > 0 && p->result.seconds > 0 && p->result.peak_bytes > 0);
    assert_int_equal(p->listener.steps, 60);
}

static void the_same_seed_gives_the_same_bytes(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(6, 3);

    assert_ok(train(p, &t, "a", false));
    assert_ok(train(p, &t, "b", false));
    assert_same_run(in_place(p, "a"), in_place(p, "b"), 6);
}

static void check_resume_at_every_step(struct site *p, struct alibi_training t)
{
    char name[32];

    assert_ok(train(p, &t, "whole", false));
    for (int64_t k = 1; k < t.steps; k++) {
        snprintf(name, sizeof name, "stopped-%lld", (long long)k);
        listen_to(&p->listener, k);
        assert_fails(train(p, &t, name, false), ALIBI_INTERRUPTED, "saved");
        listen_to(&p->listener, 0);
        assert_ok(train(p, &t, name, true));
        assert_int_equal(p->listener.steps, t.steps - k);
        assert_same_run(in_place(p, "whole"), in_place(p, name), t.steps);
    }
}

static void a_run_stopped_at_any_of_50_steps_resumes_to_the_same_bytes(void **state)
{
    check_resume_at_every_step(*state, tiny_training(50, 20));
}

static void so_does_one_with_nesterov_momentum(void **state)
{
    struct alibi_training t = tiny_training(8, 3);

    t.optimizer = ALIBI_NESTEROV;
    t.schedule = ALIBI_WSD;
    check_resume_at_every_step(*state, t);
}

static void so_does_one_that_learns_its_positions(void **state)
{
    struct site *p = *state;

    snprintf(p->config.position, sizeof p->config.position, "learned");
    check_resume_at_every_step(p, tiny_training(5, 2));
}

static void so_does_one_that_trains_its_slopes(void **state)
{
    struct site *p = *state;

    p->config.train_slopes = true;
    check_resume_at_every_step(p, tiny_training(5, 2));
}

static void so_does_one_with_a_pattern_of_methods(void **state)
{
    struct site *p = *state;

    p->config.layers = 2;
    snprintf(p->config.position, sizeof p->config.position, "%s",
             "t5:window=3:logn,alibi:train-slopes:logn");
    check_resume_at_every_step(p, tiny_training(5, 2));
}

static void so_does_one_with_learned_curves(void **state)
{
    struct site *p = *state;

    p->config.layers = 4;
    snprintf(p->config.position, sizeof p->config.position, "%s",
             "kerple,kerple:power:logn,bam,alibi:free=0.5:logn");
    check_resume_at_every_step(p, tiny_training(5, 2));
}

static void so_does_one_with_gates(void **state)
{
    struct site *p = *state;

    p->config.layers = 2;
    snprintf(p->config.position, sizeof p->config.position, "fox,fox:free=0.5:logn:window=5");
    check_resume_at_every_step(p, tiny_training(5, 2));
}

static void so_does_one_that_norms_queries_and_keys(void **state)
{
    struct site *p = *state;

    p->config.qk_norm = true;
    snprintf(p->config.position, sizeof p->config.position, "rotary:logn");
    check_resume_at_every_step(p, tiny_training(5, 2));
}

static void so_does_one_whose_positions_end(void **state)
{
    struct site *p = *state;

    snprintf(p->config.position, sizeof p->config.position, "rotary:until=0.5:logn");
    check_resume_at_every_step(p, tiny_training(6, 2));
}

static void assert_position(struct site *p, const char *run, int64_t step, const char *position)
{
    struct alibi_config config;
    alibi_tokenizer *tokenizer = NULL;

    assert_ok(checkpoint_read_config(step_path(in_place(p, run), step), &config, &tokenizer));
    alibi_tokenizer_free(tokenizer);
    assert_string_equal(config.position, position);
}

/* The first three of six steps are those of rotary. */
static void positions_that_end_leave_a_model_without_them(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(6, 6);
    static const char *const names[] = { "rotary", "drope:until=0.5" };

    for (int64_t k = 3; k <= 4; k++) {
        for (int i = 0; i < 2; i++) {
            listen_to(&p->listener, k);
            snprintf(p->config.position, sizeof p->config.position, "%s", names[i]);
            assert_fails(train(p, &t, i == 0 ? "rotary" : "run", k == 4), ALIBI_INTERRUPTED,
                         "saved");
        }
        assert_position(p, "run", k, k == 3 ? "drope:until=0.5" : "none");
        assert_true((distance(p, "run", "rotary") > 0) == (k == 4));
    }
    listen_to(&p->listener, 0);
    assert_ok(train(p, &t, "run", true));
    assert_position(p, "run", 6, "none");

    /* A longer run stays without them, also if it is stopped where they would not have ended. */
    t.steps = 60;
    listen_to(&p->listener, 8);
    assert_fails(train(p, &t, "run", true), ALIBI_INTERRUPTED, "saved");
    assert_position(p, "run", 8, "none");
    listen_to(&p->listener, 9);
    assert_fails(train(p, &t, "run", true), ALIBI_INTERRUPTED, "saved");
    assert_position(p, "run", 9, "none");
    snprintf(p->config.position, sizeof p->config.position, "rotary");
    assert_fails(train(p, &t, "run", true), ALIBI_BAD_INPUT,
                 "has position \"none\", this run asks for \"rotary\"");
}

/* The third layer's table would be the second of its kind. */
static void positions_that_would_rename_a_tensor_cannot_end(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(3, 1);

    p->config.layers = 3;
    snprintf(p->config.position, sizeof p->config.position, "none,rotary:until=0.5,t5");
    assert_fails(train(p, &t, "run", false), ALIBI_USAGE, "as 'position.1.weight' shows");
}

static void trained_slopes_move_and_are_in_the_checkpoint(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(60, 60);
    struct alibi_config config;
    alibi_tokenizer *tokenizer = NULL;
    const char *path = step_path(in_place(p, "run"), 60);
    float slopes[2];

    p->config.train_slopes = true;
    assert_ok(train(p, &t, "run", false));
    assert_ok(checkpoint_read_config(path, &config, &tokenizer));
    assert_true(config.train_slopes);
    assert_ok(checkpoint_read_slopes(path, &config, 0, slopes));
    for (int64_t h = 0; h < 2; h++) {
        float fixed = exp2f(-4.0f * (float)(h + 1));
        print_message("slope %g, fixed %g\n", (double)slopes[h], (double)fixed);
        assert_true(slopes[h] >= 0 && fabsf(slopes[h] / fixed - 1) > 0.01f);
    }
    alibi_tokenizer_free(tokenizer);
}

/* A step of either optimizer that would make them negative leaves them at 0, and they come back. */
static void an_update_leaves_slopes_at_0_or_above(void **state)
{
    (void)state;
    for (int kind = ALIBI_ADAMW; kind <= ALIBI_NESTEROV; kind++) {
        struct alibi_training t = tiny_training(10, 10);
        struct alibi_config config = tiny_bytes_config("alibi", 1, 8);
        struct model *m = NULL;
        struct optimizer o;
        float slopes[2];

        config.train_slopes = true;
        device.ops = ops_cpu();
        assert_ok(model_new(&m, &config, &device, DTYPE_F32, true));
        assert_ok(model_init(m, 1, ALIBI_INIT_GPT2));
        assert_ok(optimizer_init(&o, m, kind, NULL));
        assert_ok(device.ops->fill(&device, m->parameters[m->positions[0]].gradient, 1e3));
        t.lr = 10;
        assert_ok(optimizer_step(&o, &t, 5, 1));
        assert_ok(model_slopes(m, 0, slopes));
        assert_true(slopes[0] == 0 && slopes[1] == 0);
        assert_ok(device.ops->fill(&device, m->parameters[m->positions[0]].gradient, -1e3));
        for (int64_t step = 6; step < 10; step++)
            assert_ok(optimizer_step(&o, &t, step, 1));
        assert_ok(model_slopes(m, 0, slopes));
        assert_true(slopes[0] > 0 && slopes[1] > 0);
        optimizer_fini(&o);
        model_free(m);
    }
}

static void a_run_can_be_stopped_at_every_step(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(10, 100);

    assert_ok(train(p, &t, "whole", false));
    for (int64_t k = 1; k < 10; k++) {
        listen_to(&p->listener, k);
        assert_fails(train(p, &t, "stopped", k > 1), ALIBI_INTERRUPTED, "--resume");
    }
    assert_ok(train(p, &t, "stopped", true));
    assert_same_run(in_place(p, "whole"), in_place(p, "stopped"), 10);
}

static void a_stop_at_the_last_step_finds_the_run_complete(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 4);

    listen_to(&p->listener, 4);
    assert_ok(train(p, &t, "run", false));
    assert_true(alibi_stop_requested(&p->listener.stop)); /* the caller's, who may clear it */
}

static void a_stop_that_was_requested_before_ends_after_one_step(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 4);

    alibi_stop_request(&p->listener.stop);
    assert_fails(train(p, &t, "run", false), ALIBI_INTERRUPTED, "step 1");
    p->call = NULL;
    assert_ok(train(p, &t, "run", true));
}

static void a_complete_run_returns_its_result_at_once(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(5, 2);
    struct alibi_train_result first;

    assert_ok(train(p, &t, "run", false));
    first = p->result;
    listen_to(&p->listener, 0);
    assert_ok(train(p, &t, "run", true));
    assert_int_equal(p->listener.steps, 0);
    assert_int_equal(p->result.step, 5);
    assert_int_equal(p->result.parameters, first.parameters);
    assert_close(p->result.loss, first.loss, 0);
    assert_close(p->result.seconds, first.seconds, 0);
    assert_true(p->result.peak_bytes >= first.peak_bytes);
}

static void the_log_has_a_line_per_step_and_no_times(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(3, 3);
    size_t bytes;
    char *log;

    assert_ok(train(p, &t, "run", false));
    log = read_file(path_at("%s/run/log.jsonl", p->folder), &bytes);
    for (int step = 1; step <= 3; step++) {
        char *end = strchr(log, '\n');
        int read = 0, found;
        double loss, norm, lr;
        assert_non_null(end);
        assert_int_equal(
            sscanf(log, "{\"step\": %d, \"loss\": %lf, \"gradient_norm\": %lf, \"lr\": %lf}%n",
                   &found, &loss, &norm, &lr, &read),
            4);
        assert_ptr_equal(log + read, end);
        assert_int_equal(found, step);
        assert_close(lr, schedule_lr(&t, step), 0);
        assert_true(loss > 0 && norm > 0);
        memmove(log, end + 1, strlen(end + 1) + 1);
    }
    assert_string_equal(log, "");
    free(log);
}

/* ---- folders and recipes that do not fit */

static void a_folder_that_holds_a_run_is_refused_without_resume(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 2);

    assert_ok(train(p, &t, "run", false));
    assert_fails(train(p, &t, "run", false), ALIBI_BAD_INPUT,
                 "already holds a run (step 4): use --resume");
    assert_fails(train(p, &t, "run/step-00000004", true), ALIBI_BAD_INPUT, "is a checkpoint");
}

static void a_resumed_run_must_agree_in_all_that_shapes_it(void **state)
{
    struct site *p = *state;
    const struct alibi_training t = tiny_training(4, 2);
    struct alibi_training other = t;
    alibi_corpus *corpus = p->corpus;

    listen_to(&p->listener, 3);
    assert_fails(train(p, &t, "run", false), ALIBI_INTERRUPTED, "step 3");
    other.lr = 0.02;
    assert_fails(train(p, &other, "run", true), ALIBI_BAD_INPUT, "lr 0.01, this run asks for 0.02");
    assert_non_null(strstr(alibi_error(), "--init "));
    other = t;
    other.optimizer = ALIBI_NESTEROV;
    assert_fails(train(p, &other, "run", true), ALIBI_BAD_INPUT,
                 "optimizer \"adamw\", this run asks for \"nesterov\"");
    p->config.bias_max = 16;
    assert_fails(train(p, &t, "run", true), ALIBI_BAD_INPUT, "bias-max 8, this run asks for 16");
    p->config.bias_max = 8;
    p->corpus = tiny_corpus("forest");
    assert_fails(train(p, &t, "run", true), ALIBI_BAD_INPUT,
                 "differs from the one it was trained on");
    alibi_corpus_free(p->corpus);
    p->corpus = tiny_words_corpus("and");
    assert_fails(
        train(p, &t, "run", true), ALIBI_BAD_INPUT,
        "its tokenizer (bytes, 257 ids) is not that of the text 'built-in text' (words, 4 ids)");
    alibi_corpus_free(p->corpus);
    p->corpus = corpus;
    other = t;
    other.save_every = 1;
    assert_ok(train(p, &other, "run", true));
}

/* Recomputing saves memory and changes nothing: a run may start one way and resume the other. */
static void runs_that_recompute_are_the_runs_that_keep(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 2);

    p->config.layers = 2;
    assert_ok(train(p, &t, "kept", false));
    t.recompute = ALIBI_RECOMPUTE_CHEAP;
    listen_to(&p->listener, 2);
    assert_fails(train(p, &t, "again", false), ALIBI_INTERRUPTED, "step 2");
    listen_to(&p->listener, 0);
    t.recompute = ALIBI_RECOMPUTE_BLOCK;
    assert_ok(train(p, &t, "again", true));
    assert_same_run(in_place(p, "kept"), in_place(p, "again"), 4);
}

/* Two vocabularies of one size: the checksum tells them apart. */
static void the_tokenizer_travels_with_the_model(void **state)
{
    struct site *p = *state;
    const struct alibi_training t = tiny_training(2, 2);
    const struct alibi_eval eval = { .length = 8 };
    struct alibi_eval_result r;
    alibi_corpus *bytes = p->corpus, *same = NULL, *other = tiny_words_corpus("a");
    alibi_model *m = NULL;

    p->corpus = tiny_words_corpus("and");
    assert_ok(train(p, &t, "run", false));
    assert_ok(alibi_model_open(&m, test_device(), in_place(p, "run"), NULL));
    assert_int_equal(tokenizer_checksum(alibi_model_view_tokenizer(m)),
                     tokenizer_checksum(corpus_tokenizer(p->corpus)));
    assert_ok(alibi_corpus_builtin(&same, 2, 8000, alibi_model_view_tokenizer(m), test_call()));
    assert_ok(alibi_evaluate(m, same, ALIBI_VALID, &eval, &r, test_call()));
    assert_fails(
        alibi_evaluate(m, other, ALIBI_VALID, &eval, &r, test_call()), ALIBI_BAD_INPUT,
        "'built-in text' has another tokenizer (words, 4 ids) than the model (words, 4 ids)");
    assert_fails(alibi_evaluate(m, bytes, ALIBI_VALID, &eval, &r, test_call()), ALIBI_BAD_INPUT,
                 "the text has a vocabulary of 257 tokens, the model one of 4");
    alibi_model_free(m);
    alibi_corpus_free(p->corpus);
    p->corpus = other;
    assert_fails(train(p, &t, "run", true), ALIBI_BAD_INPUT,
                 "its tokenizer (words, 4 ids) is not that of the text");
    p->corpus = bytes;
    alibi_corpus_free(same);
    alibi_corpus_free(other);
}

static bool has_text(const char *path, const char *text)
{
    size_t bytes;
    char *content = read_file(path, &bytes);
    bool has = strstr(content, text) != NULL;

    free(content);
    return has;
}

static void the_recipe_leaves_to_be_derived_what_was_and_the_checkpoint_does_not(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(2, 2);
    static const char *const derived[] = { "kv_heads", "ff_width", "embedding_scale",
                                           "max_length" };

    p->config.ff_width = 0;
    assert_ok(train(p, &t, "run", false));
    for (int i = 0; i < 4; i++) {
        assert_true(has_text(in_place(p, "run/recipe.json"), path_at("\"%s\": 0,", derived[i])));
        assert_false(has_text(in_place(p, "run/step-00000002/config.json"),
                              path_at("\"%s\": 0,", derived[i])));
    }
    p->config.ff_width = 16;
    assert_ok(train(p, &t, "run", true));
}

static void the_folder_of_a_comparison_is_refused_and_left_as_it_is(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(2, 2);

    assert_int_equal(mkdir(in_place(p, "book"), 0777), 0);
    write_file(in_place(p, "book/text.json"), "{}", 2);
    for (int resume = 0; resume < 2; resume++)
        assert_fails(train(p, &t, "book", resume), ALIBI_BAD_INPUT, "book': it holds a comparison");
    assert_int_equal(unlink(in_place(p, "book/text.json")), 0);
    assert_int_equal(rmdir(in_place(p, "book")), 0); /* nothing else was in it */
}

static void a_run_does_not_go_into_a_folder_that_is_read_as_text(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(2, 2);
    alibi_corpus *bytes = p->corpus, *corpus = NULL;
    const char *folder, *book = in_place(p, "book.txt");
    char text[4000];

    memset(text, 'a', sizeof text);
    assert_int_equal(mkdir(in_place(p, "texts"), 0777), 0);
    write_file(in_place(p, "texts/a.txt"), text, sizeof text);
    write_file(book, text, sizeof text);
    folder = in_place(p, "texts");
    for (int valid = 0; valid < 2; valid++) {
        assert_ok(alibi_corpus_open(&corpus, valid ? &book : &folder, 1, valid ? folder : NULL,
                                    NULL, NULL, NULL));
        p->corpus = corpus;
        assert_fails(train(p, &t, "texts/run", false), ALIBI_BAD_INPUT, "texts/run': it is within");
        assert_false(folder_exists(in_place(p, "texts/run")));
        alibi_corpus_free(corpus);
    }
    p->corpus = bytes;
}

static void resuming_what_never_began_is_noted(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(2, 2);

    assert_ok(train(p, &t, "other", false));
    assert_null(strstr(p->listener.log, "no checkpoint"));
    assert_ok(train(p, &t, "typo", true));
    assert_non_null(strstr(p->listener.log, "typo': starting\n"));
    listen_to(&p->listener, 0);
    assert_ok(train(p, &t, "typo", true));
    assert_null(strstr(p->listener.log, "no checkpoint"));
}

/* Trains into the same folder from within a step of the run that has it. */
struct intruder {
    struct site *place;
    struct alibi_training training;
    alibi_status status;
    char message[256];
};

static void intrude(void *user, const struct alibi_progress *progress)
{
    struct intruder *i = user;
    struct alibi_train_result result;

    (void)progress;
    i->status = alibi_train(test_device(), &i->place->config, &i->training, i->place->corpus,
                            in_place(i->place, "run"), true, &result, NULL);
    snprintf(i->message, sizeof i->message, "%s", alibi_error());
}

static void a_second_run_into_a_folder_in_use_is_refused(void **state)
{
    struct site *p = *state;
    struct intruder i = { .place = p, .training = tiny_training(4, 2) };

    p->call = &(struct alibi_call){ .user = &i, .progress = intrude };
    assert_ok(train(p, &i.training, "run", false));
    p->call = NULL;
    assert_int_equal(i.status, ALIBI_IO);
    assert_non_null(strstr(i.message, "is in use"));
    assert_ok(train(p, &i.training, "alone", false));
    assert_same_run(in_place(p, "alone"), in_place(p, "run"), 4);
}

static void what_cannot_be_trained_leaves_no_folder(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 2);

    p->config.heads = 3;
    assert_fails(train(p, &t, "run", false), ALIBI_USAGE, "heads 3 do not divide width 4");
    p->config = tiny_config();
    snprintf(p->config.position, sizeof p->config.position, "learned");
    p->config.max_length = 4;
    assert_fails(train(p, &t, "run", false), ALIBI_BAD_INPUT, "4");
    p->config = tiny_config();
    t.train_length = 1 << 20;
    assert_fails(train(p, &t, "run", false), ALIBI_BAD_INPUT, "1048577");
    t.train_length = 0;
    assert_fails(train(p, &t, "run", false), ALIBI_USAGE, "train-length");
    assert_int_not_equal(access(in_place(p, "run"), F_OK), 0);
}

static void a_file_in_place_of_the_folder_is_named(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 2);

    write_file(in_place(p, "file"), "x", 1);
    assert_fails(train(p, &t, "file", false), ALIBI_BAD_INPUT, "file'");
}

/* ---- numbers that are not finite */

static void a_nan_ends_the_run_with_its_checkpoints_intact(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(12, 5);
    char name[32];

    assert_ok(train(p, &t, "whole", false));
    for (int k = 1; k <= 12; k++) {
        char step[64], left[64];
        snprintf(name, sizeof name, "nan-%d", k);
        snprintf(step, sizeof step, "step %d: the loss is not finite", k);
        snprintf(left, sizeof left,
                 k <= 5 ? "there is no checkpoint yet" : "the last checkpoint is step %d",
                 k <= 10 ? 5 : 10);
        assert_ok(alibi_inject_fault("nan", k));
        assert_fails(train(p, &t, name, false), ALIBI_NUMERIC, step);
        assert_non_null(strstr(alibi_error(), left));
        assert_ok(train(p, &t, name, true));
        assert_same_run(in_place(p, "whole"), in_place(p, name), 12);
    }
}

static void put_value(struct tensor t, int64_t i, float value)
{
    assert_ok(device.ops->upload(&device, tensor_1(tensor_at(t, i), t.type, 1), &value));
}

static void a_gradient_that_is_not_finite_is_named(void **state)
{
    struct model *m = new_model();
    struct optimizer o;
    const float bad[] = { NAN, INFINITY, -INFINITY };
    double norm = -1;

    (void)state;
    assert_ok(optimizer_init(&o, m, ALIBI_ADAMW, NULL));
    for (int i = 0; i < m->count; i++)
        for (int b = 0; b < 3; b++) {
            const struct parameter *p = &m->parameters[i];
            char expected[128];
            snprintf(expected, sizeof expected, "step 7: the gradient of '%s' is not finite",
                     p->name);
            put_value(p->gradient, p->count - 1, bad[b]);
            assert_fails(guard_check(&o, 1.0, 7, &norm), ALIBI_NUMERIC, expected);
            put_value(p->gradient, p->count - 1, 0);
        }
    assert_close(norm, -1, 0);
    put_value(m->parameters[0].gradient, 0, 3);
    put_value(m->parameters[1].gradient, 0, -4);
    assert_ok(guard_check(&o, 1.0, 7, &norm));
    assert_close(norm, 5, 0);
    assert_fails(guard_check(&o, (double)INFINITY, 7, &norm), ALIBI_NUMERIC,
                 "step 7: the loss is not finite");
    optimizer_fini(&o);
    model_free(m);
}

static void the_largest_finite_gradient_is_finite(void **state)
{
    struct model *m = new_model();
    struct optimizer o;
    double norm;

    (void)state;
    assert_ok(optimizer_init(&o, m, ALIBI_ADAMW, NULL));
    put_value(m->parameters[0].gradient, 0, 3.4e38f);
    assert_ok(guard_check(&o, 1.0, 7, &norm));
    assert_close(norm / 3.4e38, 1, 1e-6);
    optimizer_fini(&o);
    model_free(m);
}

static int no_leak(void **state)
{
    (void)state;
    return alibi_memory_now() != 0;
}

/* ---- a device that other threads use too */

/* The CPU's operations, each of which counts if the device is not locked while it runs. Operations
 * that a pass makes are represented by those that other code makes as well. */
static struct ops watched;
static int watched_calls, unlocked_calls;

static void *try_to_lock(void *lock)
{
    int reason = pthread_mutex_trylock(lock);

    if (reason == 0)
        pthread_mutex_unlock(lock);
    return reason == 0 ? lock : NULL;
}

static void watch(struct device *dev)
{
    pthread_t other;
    void *locked = NULL;

    assert_int_equal(pthread_create(&other, NULL, try_to_lock, dev->lock), 0);
    assert_int_equal(pthread_join(other, &locked), 0);
    watched_calls++;
    unlocked_calls += locked != NULL;
}

static alibi_status watched_new(struct device *dev, void **out, size_t bytes, const char *what)
{
    watch(dev);
    return ops_cpu()->buffer_new(dev, out, bytes, what);
}

static void watched_free(struct device *dev, void *buffer)
{
    watch(dev);
    ops_cpu()->buffer_free(dev, buffer);
}

static alibi_status watched_fill(struct device *dev, struct tensor dst, double value)
{
    watch(dev);
    return ops_cpu()->fill(dev, dst, value);
}

static alibi_status watched_upload(struct device *dev, struct tensor dst, const void *host)
{
    watch(dev);
    return ops_cpu()->upload(dev, dst, host);
}

static alibi_status watched_download(struct device *dev, void *host, struct tensor src)
{
    watch(dev);
    return ops_cpu()->download(dev, host, src);
}

static void watched_memory(struct device *dev, struct device_memory *memory)
{
    watch(dev);
    ops_cpu()->memory(dev, memory);
}

static void watched_reset_peak(struct device *dev)
{
    watch(dev);
    ops_cpu()->reset_peak(dev);
}

static void a_run_locks_its_device_around_every_operation(void **state)
{
    struct site *p = *state;
    struct alibi_device locked = { .type = DTYPE_F32 };
    pthread_mutexattr_t nesting;

    watched = *ops_cpu();
    watched.buffer_new = watched_new;
    watched.buffer_free = watched_free;
    watched.fill = watched_fill;
    watched.upload = watched_upload;
    watched.download = watched_download;
    watched.memory = watched_memory;
    watched.reset_peak = watched_reset_peak;
    pthread_mutexattr_init(&nesting);
    pthread_mutexattr_settype(&nesting, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&locked.lock, &nesting);
    locked.device = (struct device){ .ops = &watched, .lock = &locked.lock };
    watched_calls = unlocked_calls = 0;
    for (int64_t steps = 1; steps <= 2; steps++) { /* started, then resumed */
        p->training = tiny_training(2, 1);
        listen_to(&p->listener, steps == 1 ? 1 : 0);
        alibi_status status = alibi_train(&locked, &p->config, &p->training, p->corpus, p->run,
                                          steps > 1, &p->result, p->call);
        assert_int_equal(status, steps == 1 ? ALIBI_INTERRUPTED : ALIBI_OK);
    }
    assert_true(watched_calls > 20);
    assert_int_equal(unlocked_calls, 0);
    pthread_mutex_destroy(&locked.lock);
    pthread_mutexattr_destroy(&nesting);
}

/* ---- algorithms that the first step has chosen */

static void a_run_that_chose_its_algorithms_resumes_to_the_same_bytes(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(6, 6);

    p->device = choosing_device(1);
    assert_ok(train(p, &t, "whole", false));
    for (int64_t k = 1; k < t.steps; k++) {
        char name[32];
        snprintf(name, sizeof name, "stopped-%lld", (long long)k);
        p->device = choosing_device(1);
        listen_to(&p->listener, k);
        assert_fails(train(p, &t, name, false), ALIBI_INTERRUPTED, "saved");
        assert_non_null(strstr(p->listener.log, "chose the fastest algorithms of "));
        p->device = choosing_device(2); /* what is the fastest now does not matter */
        if (k % 2 == 0)
            p->device->device.autotune = ALIBI_AUTOTUNE_SAME_BITS; /* nor what is asked for */
        listen_to(&p->listener, 0);
        assert_ok(train(p, &t, name, true));
        assert_null(strstr(p->listener.log, "algorithms"));
        assert_same_run(in_place(p, "whole"), in_place(p, name), t.steps);
        assert_int_equal(choosing.count, 0); /* the next user of the device has its own */
        assert_int_equal(choosing.how, TUNING_SAME_BITS);
    }
}

static bool same_weights(struct site *p, const char *a, const char *b)
{
    int64_t count;
    float *x = weights(p, a, &count), *y = weights(p, b, &count);
    bool same = memcmp(x, y, (size_t)count * sizeof *x) == 0;

    free(x);
    free(y);
    return same;
}

static void algorithms_change_bits_unless_the_same_bits_are_asked_for(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(3, 3);

    assert_ok(train(p, &t, "cpu", false));
    for (unsigned char n = 1; n < 3; n++) {
        p->device = choosing_device(n);
        assert_ok(train(p, &t, n == 1 ? "one" : "two", false));
    }
    assert_false(same_weights(p, "cpu", "one"));
    assert_false(same_weights(p, "one", "two"));
    p->device->device.autotune = ALIBI_AUTOTUNE_SAME_BITS;
    assert_ok(train(p, &t, "same-bits", false));
    assert_same_run(in_place(p, "cpu"), in_place(p, "same-bits"), 3);
}

static void algorithms_of_another_device_are_chosen_again_and_that_is_said(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 4);

    p->device = choosing_device(1);
    listen_to(&p->listener, 2);
    assert_fails(train(p, &t, "run", false), ALIBI_INTERRUPTED, "saved");
    p->device = choosing_device(2);
    choosing.by = "a device that chooses, version 2";
    listen_to(&p->listener, 3);
    assert_fails(train(p, &t, "run", true), ALIBI_INTERRUPTED, "saved");
    assert_non_null(strstr(p->listener.log, "version 1', and this is '"));
    assert_non_null(strstr(p->listener.log, "the bits differ from here on"));
    choosing.fastest = 3;
    listen_to(&p->listener, 0); /* those of version 2 are stored now */
    assert_ok(train(p, &t, "run", true));
    assert_null(strstr(p->listener.log, "algorithms"));
    p->device = test_device();
    listen_to(&p->listener, 0); /* a device that has one for each product */
    t.steps = 5;
    assert_ok(train(p, &t, "run", true));
    assert_null(strstr(p->listener.log, "algorithms"));
}

static alibi_status of_rank[2];

static void train_as_rank(alibi_comm *c, void *user)
{
    struct site *p = user;
    const struct alibi_call call = { .comm = c };
    struct alibi_train_result result;

    of_rank[comm_rank(c)] =
        alibi_train(p->device, &p->config, &p->training, p->corpus, p->run, false, &result, &call);
}

static void ranks_that_would_each_choose_algorithms_are_refused(void **state)
{
    struct site *p = *state;

    p->training = tiny_training(2, 2);
    p->device = choosing_device(1);
    run_as_ranks(2, train_as_rank, p);
    for (int r = 0; r < 2; r++)
        assert_int_equal(of_rank[r], ALIBI_USAGE);
    assert_int_not_equal(access(p->run, F_OK), 0);
}

static void algorithms_that_are_not_offered_any_more_are_counted(void **state)
{
    struct site *p = *state;
    struct alibi_training t = tiny_training(4, 4);

    p->device = choosing_device(5);
    listen_to(&p->listener, 2);
    assert_fails(train(p, &t, "run", false), ALIBI_INTERRUPTED, "saved");
    choosing.offered = 2;
    listen_to(&p->listener, 0);
    assert_ok(train(p, &t, "run", true));
    assert_non_null(strstr(p->listener.log, "warning: step 3: the algorithms of "));
    assert_null(strstr(p->listener.log, "step 4: the algorithms of "));
}

#define RUN_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_within_their_ranges),
        cmocka_unit_test(every_value_outside_its_range_is_named),
        cmocka_unit_test(a_min_lr_above_lr_is_refused),
        cmocka_unit_test(a_learning_rate_of_0_follows_the_width_and_nesterov_needs_one),
        cmocka_unit_test_teardown(matrices_decay_norms_and_biases_do_not, no_leak),
        cmocka_unit_test_teardown(a_gradient_that_is_not_finite_is_named, no_leak),
        cmocka_unit_test_teardown(the_largest_finite_gradient_is_finite, no_leak),
        RUN_TEST(a_run_locks_its_device_around_every_operation),
        RUN_TEST(a_run_that_chose_its_algorithms_resumes_to_the_same_bytes),
        RUN_TEST(algorithms_change_bits_unless_the_same_bits_are_asked_for),
        RUN_TEST(algorithms_of_another_device_are_chosen_again_and_that_is_said),
        RUN_TEST(algorithms_that_are_not_offered_any_more_are_counted),
        RUN_TEST(ranks_that_would_each_choose_algorithms_are_refused),
        RUN_TEST(clipping_bounds_the_norm_of_the_update),
        RUN_TEST(four_passes_of_two_windows_are_one_of_eight),
        RUN_TEST(training_lowers_the_loss),
        RUN_TEST(the_same_seed_gives_the_same_bytes),
        RUN_TEST(a_run_stopped_at_any_of_50_steps_resumes_to_the_same_bytes),
        RUN_TEST(so_does_one_with_nesterov_momentum),
        RUN_TEST(runs_that_recompute_are_the_runs_that_keep),
        RUN_TEST(so_does_one_that_learns_its_positions),
        RUN_TEST(so_does_one_that_trains_its_slopes),
        RUN_TEST(so_does_one_with_a_pattern_of_methods),
        RUN_TEST(so_does_one_with_learned_curves),
        RUN_TEST(so_does_one_with_gates),
        RUN_TEST(so_does_one_that_norms_queries_and_keys),
        RUN_TEST(so_does_one_whose_positions_end),
        RUN_TEST(positions_that_end_leave_a_model_without_them),
        RUN_TEST(positions_that_would_rename_a_tensor_cannot_end),
        RUN_TEST(trained_slopes_move_and_are_in_the_checkpoint),
        cmocka_unit_test_teardown(an_update_leaves_slopes_at_0_or_above, no_leak),
        RUN_TEST(a_run_can_be_stopped_at_every_step),
        RUN_TEST(a_stop_at_the_last_step_finds_the_run_complete),
        RUN_TEST(a_stop_that_was_requested_before_ends_after_one_step),
        RUN_TEST(a_complete_run_returns_its_result_at_once),
        RUN_TEST(the_log_has_a_line_per_step_and_no_times),
        RUN_TEST(a_folder_that_holds_a_run_is_refused_without_resume),
        RUN_TEST(a_resumed_run_must_agree_in_all_that_shapes_it),
        RUN_TEST(the_tokenizer_travels_with_the_model),
        RUN_TEST(the_recipe_leaves_to_be_derived_what_was_and_the_checkpoint_does_not),
        RUN_TEST(the_folder_of_a_comparison_is_refused_and_left_as_it_is),
        RUN_TEST(a_run_does_not_go_into_a_folder_that_is_read_as_text),
        RUN_TEST(resuming_what_never_began_is_noted),
        RUN_TEST(a_second_run_into_a_folder_in_use_is_refused),
        RUN_TEST(what_cannot_be_trained_leaves_no_folder),
        RUN_TEST(a_file_in_place_of_the_folder_is_named),
        RUN_TEST(a_nan_ends_the_run_with_its_checkpoints_intact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
