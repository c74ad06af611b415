/* test_old_checkpoint.c - a checkpoint that version 0.1 wrote opens, evaluates, and resumes
 *
 * tests/golden/checkpoint has text.txt and a run that was stopped at step 2 of 4. Made with
 *   alibi train text.txt --layers 1 --width 4 --heads 2 --ff-width 8 --train-length 8 --batch 2
 *     --accumulate 2 --dropout 0.1 --lr 0.01 --warmup 3 --steps 4 --save-every 2 --out run
 * Losses depend on the machine's vector width in their last digits; bytes that are only read and
 * written again do not. */
#include "training.h"

static const char run[] = TEST_FOLDER "/golden/checkpoint/run";

static void opens_and_evaluates(void **state)
{
    alibi_model *m = open_model_at(run);
    const char *paths[] = { TEST_FOLDER "/golden/checkpoint/text.txt" };
    const struct alibi_eval eval = { .length = 8 };
    struct alibi_eval_result r;
    alibi_corpus *c = NULL;

    (void)state;
    assert_int_equal(alibi_model_view_config(m)->vocab, 257);
    assert_ok(alibi_corpus_open(&c, paths, 1, NULL, NULL, NULL, NULL));
    assert_ok(alibi_evaluate(m, c, ALIBI_ALL, &eval, &r, NULL));
    assert_int_equal(r.tokens, 2880);
    assert_close(r.nll, 5.5155142436424889, 1e-6);
    alibi_corpus_free(c);
    alibi_model_free(m);
}

/* Options that came later are new members of these files; those that were there stay as they are.
 */
static void assert_members_stay(const char *old, const char *new, const char *name)
{
    size_t bytes;
    char *was = read_file(path_at("%s/%s", old, name), &bytes);
    char *is = read_file(path_at("%s/%s", new, name), &bytes);

    for (char *line = strtok(was, ",\n"); line; line = strtok(NULL, ",\n"))
        if (!strstr(is, line))
            fail_msg("%s in '%s' has no line '%s'", name, new, line);
    free(was);
    free(is);
}

static void tensors_are_written_again_to_the_same_bytes(void **state)
{
    char *folder = fast_folder(), from[300];
    struct checkpoint c = { 0 };
    struct alibi_config config;
    struct alibi_training training;
    struct optimizer o;
    alibi_tokenizer *t = NULL;
    struct model *m = NULL;

    (void)state;
    snprintf(from, sizeof from, "%s", step_path(run, 2));
    assert_ok(checkpoint_verify(from));
    assert_ok(checkpoint_read_config(from, &config, &t));
    assert_ok(model_new(&m, &config, &test_device()->device, DTYPE_F32, true));
    assert_ok(optimizer_init(&o, m, ALIBI_ADAMW, NULL));
    assert_ok(checkpoint_read_weights(from, m));
    assert_ok(checkpoint_read_moments(from, m, o.first, o.second));
    c = (struct checkpoint){
        .model = m, .tokenizer = t, .first = o.first, .second = o.second, .training = &training
    };
    assert_ok(checkpoint_read_state(from, &c.state, &training));
    assert_ok(checkpoint_save(folder, &c, NULL));
    for (int i = 0; i < PARTS; i++)
        if (i == PART_CONFIG || i == PART_STATE)
            assert_members_stay(from, step_path(folder, 2), part_names[i]);
        else if (i != PART_PRODUCTS) /* of runs on a GPU only */
            assert_same_file(from, step_path(folder, 2), part_names[i]);
    optimizer_fini(&o);
    model_free(m);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

static void resumes(void **state)
{
    char *folder = fast_folder(), command[1024];
    const char *paths[] = { TEST_FOLDER "/golden/checkpoint/text.txt" };
    struct alibi_config config;
    struct alibi_training training;
    struct alibi_option_group groups[] = { { .title = "model", .values = &config },
                                           { .title = "training", .values = &training } };
    struct alibi_train_result r;
    alibi_corpus *c = NULL;

    (void)state;
    tiny_defaults(&config, &training);
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    assert_ok(alibi_options_read(groups, 2, path_at("%s/recipe.json", run)));
    snprintf(command, sizeof command, "cp -r '%s/.' '%s'", run, folder);
    assert_int_equal(system(command), 0);
    assert_ok(alibi_corpus_open(&c, paths, 1, NULL, NULL, NULL, NULL));
    assert_ok(alibi_train(test_device(), &config, &training, c, folder, true, &r, NULL));
    assert_int_equal(r.step, 4);
    assert_close(r.loss, 5.4669937789440155, 1e-5);
    alibi_corpus_free(c);
    remove_temporary_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_and_evaluates),
        cmocka_unit_test(tensors_are_written_again_to_the_same_bytes),
        cmocka_unit_test(resumes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
