/* test_init.c - runs that start from another model's weights, and padded vocabularies */
#include "training.h"

/* A run of two steps with alibi, called `run`. */
static int set_up(void **state)
{
    struct site *p = new_site(2, 2);

    p->config.layers = 2;
    assert_ok(train_at(p, p->run, false));
    *state = p;
    return 0;
}

/* The weights of a model that is made as `p` says, before any step. */
static struct model *start(struct site *p, alibi_status expected, const char *part)
{
    struct alibi_config config = p->config;
    const alibi_tokenizer *t = corpus_tokenizer(p->corpus);
    struct model *m = NULL;
    alibi_status status;

    config.train_length = p->training.train_length;
    assert_ok(config_fit_vocab(&config, t));
    assert_ok(alibi_config_resolve(&config));
    assert_ok(model_new(&m, &config, &test_device()->device, DTYPE_F32, false));
    assert_ok(model_init(m, 7, ALIBI_INIT_GPT2));
    listen_to(&p->listener, 0);
    status = checkpoint_init_weights(p->run, m, t, &p->listener.call);
    if (status != expected || (part && strstr(alibi_error(), part) == NULL))
        fail_msg("status %d: %s", status, alibi_error());
    return m;
}

static float *values_of(const struct model *m, const char *name)
{
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        float *values;
        if (strcmp(p->name, name) != 0)
            continue;
        values = malloc((size_t)p->count * sizeof *values);
        assert_non_null(values);
        assert_ok(m->device->ops->download(m->device, values, parameter_slice(m, p, m->values)));
        return values;
    }
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static bool same_tensor(const struct model *a, const struct model *b, const char *name)
{
    float *x = values_of(a, name), *y = values_of(b, name);
    bool same = x[0] == y[0] && x[1] == y[1] && x[3] == y[3];

    free(x);
    free(y);
    return same;
}

static void all_weights_are_those_of_the_other_model(void **state)
{
    struct site *p = *state;
    struct model *m = start(p, ALIBI_OK, NULL);
    alibi_model *other = open_model_at(p->run);

    for (int i = 0; i < m->count; i++)
        assert_true(same_tensor(m, other->model, m->parameters[i].name));
    assert_non_null(strstr(p->listener.log, "starting from the weights of '"));
    assert_null(strstr(p->listener.log, "tensors"));
    alibi_model_free(other);
    model_free(m);
}

static void tables_of_another_position_method_are_new_and_listed(void **state)
{
    struct site *p = *state;
    alibi_model *other;
    struct model *m, *drawn = NULL;

    snprintf(p->config.position, sizeof p->config.position, "learned");
    m = start(p, ALIBI_OK, NULL);
    other = open_model_at(p->run);
    assert_true(same_tensor(m, other->model, "blocks.1.ff.up.weight"));
    assert_non_null(strstr(p->listener.log, "new tensors, initialised: position.weight\n"));
    assert_ok(model_new(&drawn, &m->config, m->device, DTYPE_F32, false));
    assert_ok(model_init(drawn, 7, ALIBI_INIT_GPT2));
    assert_true(same_tensor(m, drawn, "position.weight"));
    model_free(drawn);
    model_free(m);
    alibi_model_free(other);

    /* Both methods have a table of that name: learned rows say nothing to t5. */
    assert_ok(train_at(p, path_at("%s/learned", p->folder), false));
    snprintf(p->run, sizeof p->run, "%s/learned", p->folder);
    snprintf(p->config.position, sizeof p->config.position, "t5");
    m = start(p, ALIBI_OK, NULL);
    assert_non_null(strstr(p->listener.log, "new tensors, initialised: position.weight\n"));
    assert_non_null(strstr(p->listener.log, "not used: position.weight\n"));
    model_free(m);
    snprintf(p->config.position, sizeof p->config.position, "none");
    m = start(p, ALIBI_OK, NULL);
    assert_null(strstr(p->listener.log, "new tensors"));
    assert_non_null(strstr(p->listener.log, "not used: position.weight\n"));
    model_free(m);
}

static void a_tensor_of_another_shape_is_named_with_both_shapes(void **state)
{
    struct site *p = *state;

    p->config.ff_width = 12;
    model_free(start(p, ALIBI_BAD_INPUT,
                     "tensor 'blocks.0.ff.up.weight' has shape [8, 4]; the configuration needs "
                     "[12, 4]"));
    p->config.ff_width = 8;
    p->config.vocab = 300;
    model_free(start(p, ALIBI_BAD_INPUT, "'embedding.weight' has shape [257, 4]"));
}

static void another_tokenizer_is_refused(void **state)
{
    struct site *p = *state;
    alibi_corpus *bytes = p->corpus;

    p->corpus = tiny_words_corpus("and");
    model_free(start(p, ALIBI_BAD_INPUT, "its tokenizer (bytes, 257 ids) is not that of the text"));
    alibi_corpus_free(p->corpus);
    p->corpus = bytes;
}

/* Stopped and resumed without the other model, the run is the run that was not stopped. */
static void a_run_that_was_initialised_resumes_without_the_model(void **state)
{
    struct site *p = *state;
    char whole[300], stopped[300], moved[300];

    snprintf(whole, sizeof whole, "%s/tuned", p->folder);
    snprintf(stopped, sizeof stopped, "%s/stopped", p->folder);
    snprintf(moved, sizeof moved, "%s/moved", p->folder);
    p->training = tiny_training(6, 2);
    p->training.train_length = 12;
    p->training.init = p->run;
    assert_ok(train_at(p, whole, false));
    listen_to(&p->listener, 3);
    assert_fails(train_at(p, stopped, false), ALIBI_INTERRUPTED, "step 3");
    assert_int_equal(rename(p->run, moved), 0);
    listen_to(&p->listener, 0);
    assert_ok(train_at(p, stopped, true));
    assert_same_run(whole, stopped, 6);
    assert_fails(train_at(p, path_at("%s/late", p->folder), false), ALIBI_BAD_INPUT,
                 "cannot start from '");
    p->training.init = NULL;
}

static void padded_vocabularies_train_evaluate_and_resume(void **state)
{
    struct site *p = *state;
    const struct alibi_eval eval = { .length = 8 };
    struct alibi_eval_result r;
    char whole[300], stopped[300];
    alibi_model *m;

    snprintf(whole, sizeof whole, "%s/padded", p->folder);
    snprintf(stopped, sizeof stopped, "%s/stopped", p->folder);
    p->training = tiny_training(4, 2);
    p->config.vocab = 320;
    assert_ok(train_at(p, whole, false));
    listen_to(&p->listener, 3);
    assert_fails(train_at(p, stopped, false), ALIBI_INTERRUPTED, "step 3");
    listen_to(&p->listener, 0);
    p->config.vocab = 0;
    assert_fails(train_at(p, stopped, true), ALIBI_BAD_INPUT, "vocab 320, this run asks for 257");
    p->config.vocab = 320;
    assert_ok(train_at(p, stopped, true));
    assert_same_run(whole, stopped, 4);
    m = open_model_at(whole);
    assert_int_equal(alibi_model_view_config(m)->vocab, 320);
    assert_ok(alibi_evaluate(m, p->corpus, ALIBI_VALID, &eval, &r, test_call()));
    assert_true(r.nll > 1 && r.nll < 6);
    alibi_model_free(m);
    p->config.vocab = 256;
    assert_fails(train_at(p, path_at("%s/small", p->folder), false), ALIBI_USAGE, "257 ids");
}

/* The loss of a model that was only initialised. */
static double first_loss(int64_t width, bool tied)
{
    enum { B = 4, L = 16 };
    struct alibi_config config = tiny_bytes_config("alibi", 2, L);
    struct model *m = NULL;
    struct workspace *w = NULL;
    int32_t tokens[B * L], targets[B * L];
    float nll[B * L];
    double sum = 0;

    config.width = width;
    config.ff_width = 4 * width;
    config.tied = tied;
    config.embedding_scale = sqrt((double)width);
    for (int i = 0; i < B * L; i++) {
        tokens[i] = i * 37 % 257;
        targets[i] = (i + 1) * 37 % 257;
    }
    assert_ok(model_new(&m, &config, &test_device()->device, DTYPE_F32, false));
    assert_ok(model_init(m, 3, ALIBI_INIT_GPT2));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ 0 }));
    assert_ok(model_loss(w, tokens, targets, B, L, nll));
    for (int i = 0; i < B * L; i++)
        sum += nll[i];
    workspace_free(w);
    model_free(m);
    return sum / (B * L);
}

static void a_fresh_model_knows_nothing_at_any_width(void **state)
{
    (void)state;
    for (int64_t width = 16; width <= 1024; width *= 4)
        for (int tied = 0; tied <= 1; tied++)
            assert_true(fabs(first_loss(width, tied) - log(257)) < 0.4);
}

#define RUN_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, drop_site)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_model_knows_nothing_at_any_width),
        RUN_TEST(all_weights_are_those_of_the_other_model),
        RUN_TEST(tables_of_another_position_method_are_new_and_listed),
        RUN_TEST(a_tensor_of_another_shape_is_named_with_both_shapes),
        RUN_TEST(another_tokenizer_is_refused),
        RUN_TEST(a_run_that_was_initialised_resumes_without_the_model),
        RUN_TEST(padded_vocabularies_train_evaluate_and_resume),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
