/* The request of a comparison: refusals, and the files in its folder */
#include <omp.h>

#include "unit/comparison.h"

/* A text of as many words in `folder`, as words. */
static alibi_corpus *words_corpus(const char *folder)
{
    static const struct slice words[] = { { "<unk>", 5 }, { "<eos>", 5 }, { "a", 1 } };
    const char *path = within(folder, "words.txt");
    char text[TEXT_BYTES + 1];
    alibi_tokenizer *t = NULL;
    alibi_corpus *c = NULL;

    for (int i = 0; i < TEXT_BYTES; i++)
        text[i] = "a b c d "[i % 8];
    write_file(path, text, TEXT_BYTES);
    assert_ok(tokenizer_new_words(&t, words, 3));
    assert_ok(alibi_corpus_open(&c, &path, 1, NULL, t, &(struct alibi_reading){ 0 }, test_call()));
    alibi_tokenizer_free(t);
    return c;
}

/* The recipe of a comparison repeats it, including the built-in text. */
static void its_recipe_gives_the_same_numbers(void **state)
{
    struct setting s = tiny(), again;
    struct alibi_builtin text = { 0 };
    struct alibi_option_group groups[4] = { { .values = &again.compare },
                                            { .values = &again.config },
                                            { .values = &again.training },
                                            { .values = &text } };
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *first = NULL, *second = NULL;

    (void)state;
    alibi_corpus_free(s.corpus);
    assert_ok(alibi_corpus_builtin(&s.corpus, 3, 20000, NULL, test_call()));
    s.config.embedding_scale = 0; /* becomes a number that needs all its digits */
    s.compare.eval_tokens = 300;
    assert_ok(run(&s, dir, &first));
    assert_int_equal(first->builtin.seed, 3);
    assert_int_equal(first->compare.eval_tokens, 300);

    groups[0].options = alibi_compare_options(&groups[0].count);
    groups[1].options = alibi_config_options(&groups[1].count);
    groups[2].options = alibi_training_options(&groups[2].count);
    groups[3].options = alibi_builtin_options(&groups[3].count);
    assert_ok(alibi_options_init(groups, 4));
    assert_ok(alibi_options_read(groups, 4, within(dir, "recipe.json")));
    assert_true(text.seed == 3 && text.bytes == 20000);
    assert_ok(
        alibi_corpus_builtin(&again.corpus, (uint64_t)text.seed, text.bytes, NULL, test_call()));
    assert_ok(run(&again, other, &second));
    assert_same_losses(first, second);
    alibi_compare_free(first);
    alibi_compare_free(second);
    alibi_corpus_free(s.corpus);
    alibi_corpus_free(again.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

static void a_folder_with_another_comparison_is_refused_and_the_difference_named(void **state)
{
    struct setting s = tiny(), other = s;
    char *dir = temporary_folder();
    const char *text =
        "Another text, of which there must be enough for a training window and one of validation.\n";
    const char *texts[32];
    alibi_corpus *corpus = NULL;

    (void)state;
    for (int i = 0; i < 32; i++)
        texts[i] = text;
    assert_ok(try_run(&s, dir));
    other.training.steps = 7;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(steps 6 there, 7 asked)");
    other = s;
    other.compare.lengths.count = 2;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "lengths");
    other = s;
    other.compare.methods.count = 1;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "methods");
    other = s;
    assert_ok(corpus_from_texts(&corpus, texts, 32));
    other.corpus = corpus;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "another text");
    alibi_corpus_free(corpus);
    other.corpus = corpus = words_corpus(dir);
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "with another tokenizer");
    other = s;
    other.compare.sliding_tokens = 0;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(sliding_tokens 200 there, 0 asked)");
    other = s;
    other.compare.stream_tokens = 0;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(stream_tokens 150 there, 0 asked)");
    other = s;
    other.training.save_every = 2;
    assert_ok(try_run(&other, dir));
    alibi_corpus_free(corpus);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static alibi_status train_into(const struct setting *s, const char *dir)
{
    struct alibi_train_result result;

    return alibi_train(test_device(), &s->config, &s->training, s->corpus, dir, true, &result,
                       NULL);
}

static void a_training_and_a_comparison_do_not_share_a_folder(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *r = NULL;

    (void)state;
    assert_int_equal(run_with_stop(&s, dir, 1, &r), ALIBI_INTERRUPTED);
    assert_fails(train_into(&s, dir), ALIBI_BAD_INPUT, "holds a comparison");
    assert_ok(try_run(&s, dir));
    assert_fails(train_into(&s, dir), ALIBI_BAD_INPUT, "holds a comparison");
    assert_ok(train_into(&s, within(dir, "alibi")));
    assert_ok(train_into(&s, other));
    assert_fails(try_run(&s, other), ALIBI_BAD_INPUT, "holds a training run");
    assert_false(file_exists(within(other, "text.json")));
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

static int64_t recipe_value(const char *dir, const char *name, const char *key)
{
    json_t *json = NULL;
    int64_t value;

    assert_ok(json_read(&json, within(dir, name)));
    assert_true(json_is_number(json_object_get(json, key)));
    value = (int64_t)json_number_value(json_object_get(json, key));
    json_decref(json);
    return value;
}

/* In the recipe they stay to be derived; spelled out they ask for the same comparison. */
static void derived_options_are_not_frozen_in_the_recipe(void **state)
{
    static const char *const derived[] = { "kv_heads", "ff_width", "embedding_scale",
                                           "max_length" };
    struct setting s = tiny(), other = s;
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;

    (void)state;
    assert_ok(run(&s, dir, &r));
    assert_int_equal(recipe_value(dir, "recipe.json", "recipe"), 1); /* its version */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(recipe_value(dir, "recipe.json", derived[i]), 0);
        assert_int_equal(recipe_value(dir, "alibi/recipe.json", derived[i]), 0);
    }
    assert_int_equal(r->config.ff_width, 32);
    other.config = r->config;
    assert_ok(try_run(&other, dir));
    other.config.ff_width = 16;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(ff_width 32 there, 16 asked)");
    other = s;
    other.training.train_length = 16;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(train_length 32 there, 16 asked)");
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void requests_that_cannot_work_are_refused_before_anything_is_made(void **state)
{
    struct setting s = tiny(), bad = s;
    char *root = temporary_folder();
    const char *dir = within(root, "run");
    int64_t valid = corpus_span(s.corpus, ALIBI_VALID).count;

    (void)state;
    snprintf(bad.compare.methods.at[1], ALIBI_NAME_MAX, "alibbi");
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "alibi");
    snprintf(bad.compare.methods.at[1], ALIBI_NAME_MAX, "alibi");
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "'alibi' is listed twice");
    bad = s;
    bad.compare.methods.count = 0;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "methods");
    bad = s;
    bad.compare.lengths.count = 0;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "lengths");
    bad = s;
    bad.compare.lengths.at[1] = 0;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "lengths: 0");
    bad = s;
    bad.compare.lengths.at[1] = bad.compare.lengths.at[0];
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "listed twice");
    bad = s;
    bad.compare.lengths.at[1] = valid;
    assert_fails(try_run(&bad, dir), ALIBI_BAD_INPUT, "validation split");
    bad = s;
    bad.compare.eval_tokens = 63;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "eval-tokens 63");
    bad = s;
    bad.compare.sliding_tokens = -1;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "sliding-tokens -1");
    bad = s;
    bad.compare.stream_tokens = -1;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "stream-tokens -1");
    bad = s;
    bad.training.train_length = 1 << 20;
    assert_fails(try_run(&bad, dir), ALIBI_BAD_INPUT, "1048576");
    bad = s;
    bad.config.heads = 3;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "heads 3");
    assert_false(folder_exists(dir));
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(root);
}

/* The checkpoints of such a model do not fit on any disk: known before the first step. */
static void a_disk_without_room_for_all_checkpoints_is_named_before_the_first_step(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();

    (void)state;
    s.config.layers = 512;
    s.config.width = 65536;
    assert_fails(try_run(&s, dir), ALIBI_IO, "for the checkpoints of 2 models");
    assert_non_null(strstr(alibi_error(), dir));
    assert_false(folder_exists(within(dir, "alibi")));
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void two_comparisons_into_one_folder_are_refused(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct lock *lock = NULL;

    (void)state;
    assert_ok(lock_take(&lock, dir));
    assert_fails(try_run(&s, dir), ALIBI_IO, dir);
    lock_release(lock);
    assert_ok(try_run(&s, dir));
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* text.json is sealed; one of version 0.1 has no seal and still names its text. */
static void an_altered_text_file_is_found_and_an_older_one_accepted(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *bytes = NULL, older[256];
    const char *path = within(dir, NAME_COMPARED_TEXT);
    size_t length;

    (void)state;
    assert_ok(try_run(&s, dir));
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    assert_non_null(strstr(bytes, "crc32"));
    snprintf(older, sizeof older, "{\n  \"checksum\": %lld,\n  \"files\": %lld\n}\n",
             (long long)corpus_checksum(s.corpus), (long long)corpus_files_checksum(s.corpus));
    write_file(path, older, strlen(older));
    assert_ok(try_run(&s, dir));
    strstr(bytes, "files")[0] ^= 1;
    write_file(path, bytes, length);
    assert_fails(try_run(&s, dir), ALIBI_BAD_INPUT, path);
    mem_free(bytes);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_recipe_gives_the_same_numbers),
        cmocka_unit_test(a_folder_with_another_comparison_is_refused_and_the_difference_named),
        cmocka_unit_test(a_training_and_a_comparison_do_not_share_a_folder),
        cmocka_unit_test(derived_options_are_not_frozen_in_the_recipe),
        cmocka_unit_test(requests_that_cannot_work_are_refused_before_anything_is_made),
        cmocka_unit_test(a_disk_without_room_for_all_checkpoints_is_named_before_the_first_step),
        cmocka_unit_test(two_comparisons_into_one_folder_are_refused),
        cmocka_unit_test(an_altered_text_file_is_found_and_an_older_one_accepted),
    };

    omp_set_num_threads(1); /* for models this small threads only cost time */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
