/* test_tensorboard.c - event files are those that TensorFlow writes, and cost a training nothing */
#include "training.h"

#include "folder.h"
#include "formats/formats.h"

static int make_fast_folder(void **state)
{
    (void)state;
    folder = fast_folder();
    return 0;
}

static uint32_t unmasked(uint32_t masked)
{
    uint32_t rotated = masked - 0xA282EAD8u;

    return rotated >> 17 | rotated << 15;
}

/* RFC 3720, appendix B.4, and the usual check value. */
static void checksums_are_those_of_the_standard(void **state)
{
    unsigned char bytes[32];

    (void)state;
    assert_int_equal(unmasked(tensorboard_checksum("123456789", 9)), 0xE3069283u);
    assert_int_equal(unmasked(tensorboard_checksum("", 0)), 0);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(unmasked(tensorboard_checksum(bytes, 32)), 0x8A9136AAu);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(unmasked(tensorboard_checksum(bytes, 32)), 0x62A8AB43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(unmasked(tensorboard_checksum(bytes, 32)), 0x46DD794Eu);
}

/* Serialised by TensorBoard's own protocol buffers: version, start, two scalars, a text. */
static const unsigned char golden[] = {
    0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0x00, 0x00, 0x00,
    0x40, 0xfc, 0x54, 0xd9, 0x41, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45, 0x76, 0x65,
    0x6e, 0x74, 0x3a, 0x32, 0xec, 0xed, 0x8f, 0x9d, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x95, 0xfb, 0xfe, 0x18, 0x09, 0x00, 0x00, 0x00, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x10, 0xad, 0x02,
    0x3a, 0x02, 0x08, 0x01, 0xb5, 0x73, 0x33, 0x46, 0x2c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xf4, 0xae, 0xcc, 0x45, 0x09, 0x00, 0x00, 0x00, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x10, 0xad, 0x02,
    0x2a, 0x1e, 0x0a, 0x11, 0x0a, 0x0a, 0x6c, 0x6f, 0x73, 0x73, 0x2f, 0x74, 0x72, 0x61, 0x69, 0x6e,
    0x15, 0x00, 0x00, 0x20, 0x40, 0x0a, 0x09, 0x0a, 0x02, 0x6c, 0x72, 0x15, 0x6f, 0x12, 0x83, 0x3a,
    0xf9, 0x2b, 0x9a, 0x3b, 0x37, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe7, 0xe8, 0xca, 0x59,
    0x09, 0x00, 0x00, 0x00, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x10, 0xad, 0x02, 0x2a, 0x29, 0x0a, 0x27,
    0x0a, 0x06, 0x73, 0x61, 0x6d, 0x70, 0x6c, 0x65, 0x42, 0x11, 0x08, 0x07, 0x12, 0x04, 0x12, 0x02,
    0x08, 0x01, 0x42, 0x07, 0x49, 0x74, 0x20, 0x77, 0xc3, 0xa4, 0x73, 0x4a, 0x0a, 0x0a, 0x06, 0x0a,
    0x04, 0x74, 0x65, 0x78, 0x74, 0x20, 0x02, 0x17, 0x65, 0x4a, 0x64,
};

static alibi_status write_golden(void)
{
    const struct tensorboard_scalar scalars[] = { { "loss/train", 2.5 }, { "lr", 1e-3 } };
    const char *text = "It w\xC3\xA4s";
    struct tensorboard *t = NULL;
    alibi_status status;

    TRY(tensorboard_open(&t, folder, 301));
    TRY(tensorboard_scalars(t, 301, scalars, 2));
    TRY(tensorboard_text(t, 301, "sample", text, strlen(text)));
    TRY(tensorboard_sync(t));
out:
    tensorboard_close(t);
    return status;
}

static void file_is_tensorflow_s_byte_for_byte(void **state)
{
    const char *name = path_at("%s/events.out.tfevents.1700000000.000000000301.alibi", folder);
    char *bytes = NULL;
    size_t length;

    (void)state;
    setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
    assert_ok(write_golden());
    unsetenv("SOURCE_DATE_EPOCH");
    assert_ok(file_read_all(&bytes, &length, name, 1 << 20));
    assert_int_equal(length, sizeof golden);
    assert_memory_equal(bytes, golden, sizeof golden);
    mem_free(bytes);
}

static void every_failure_is_reported_and_leaks_nothing(void **state)
{
    static const char *const kinds[] = { "memory", "file" };
    size_t before = alibi_memory_now();

    (void)state;
    for (int k = 0; k < 2; k++) {
        alibi_status status = ALIBI_IO;
        int64_t n = 0;

        while (status != ALIBI_OK && n < 100) {
            assert_ok(alibi_inject_fault(kinds[k], ++n));
            status = write_golden();
            assert_ok(alibi_inject_fault(kinds[k], 0));
            assert_true(status == ALIBI_OK || status == (k == 0 ? ALIBI_MEMORY : ALIBI_IO));
            assert_int_equal(alibi_memory_now(), before);
        }
        assert_true(n > 4 && n < 100);
    }
}

/* ---- in a training */

static int warnings;

static void count_warning(void *user, enum alibi_log_level level, const char *line)
{
    (void)user;
    warnings += level == ALIBI_WARNING && strstr(line, "TensorBoard") != NULL;
}

static void failing_disk_ends_the_events_with_one_warning(void **state)
{
    const struct alibi_call call = { .log = count_warning };
    struct events e = { 0 };

    (void)state;
    warnings = 0;
    assert_ok(events_open(&e, folder, 0));
    events_step(&e, &(struct events_numbers){ .step = 1, .loss = 1 }, &call);
    assert_non_null(e.file);
    assert_ok(alibi_inject_fault("file", 1));
    for (int64_t step = 2; step < 5; step++)
        events_step(&e, &(struct events_numbers){ .step = step, .loss = 1 }, &call);
    assert_ok(alibi_inject_fault("file", 0));
    assert_null(e.file);
    assert_int_equal(warnings, 1);
    events_validation(&e, 5, &(struct validation){ .loss = 1 }, &call); /* to nowhere */
    events_close(&e);
}

static int64_t count_text(const char *where, const char *text)
{
    char **names = NULL;
    int count = 0;
    int64_t found = 0;

    assert_ok(folder_list(&names, &count, where));
    for (int i = 0; i < count; i++) {
        char *path = NULL, *bytes = NULL;
        size_t length;

        assert_ok(path_join(&path, where, names[i]));
        assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
        for (char *at = bytes;
             (at = memmem(at, length - (size_t)(at - bytes), text, strlen(text))) != NULL; at++)
            found++;
        mem_free(bytes);
        mem_free(path);
    }
    names_free(names, count);
    return found;
}

static void training_has_the_same_bits_with_and_without_events(void **state)
{
    const struct alibi_config config = tiny_config();
    struct alibi_training training = tiny_training(8, 4);
    alibi_corpus *corpus = tiny_corpus("road");
    struct alibi_train_result result[2];
    const char *run[2], *curves = path_at("%s/curves", folder);

    (void)state;
    warnings = 0;
    training.eval_every = 4;
    for (int i = 0; i < 2; i++) {
        const struct alibi_call call = { .log = count_warning, .events = i == 1 ? curves : NULL };
        run[i] = path_at("%s/run-%d", folder, i);
        assert_ok(alibi_train(test_device(), &config, &training, corpus, run[i], false, &result[i],
                              &call));
    }
    assert_int_equal(warnings, 0);
    assert_true(result[0].loss == result[1].loss && result[0].valid_loss == result[1].valid_loss);
    assert_true(same_file(path_at("%s/log.jsonl", run[0]), path_at("%s/log.jsonl", run[1])));
    assert_true(same_file(path_at("%s/model.safetensors", step_path(run[0], 8)),
                          path_at("%s/model.safetensors", step_path(run[1], 8))));
    assert_int_equal(count_text(curves, "loss/train"), 8);
    assert_int_equal(count_text(curves, "loss/valid"), 2);
    assert_int_equal(count_text(curves, "sample"), 2);
    alibi_corpus_free(corpus);
}

/* Each file operation of a training fails once. A failure in an event file costs only a warning;
 * any other failure ends the training as it does without events. */
static void a_fault_costs_the_events_or_ends_the_training(void **state)
{
    const struct alibi_config config = tiny_config();
    struct alibi_training training = tiny_training(3, 2);
    alibi_corpus *corpus = tiny_corpus("road");
    char curves[512], whole[512];
    const struct alibi_call call = { .log = count_warning, .events = curves };
    struct alibi_train_result result, expected;
    int survived = 0, ended = 0, unharmed = 0;
    size_t before;

    (void)state;
    snprintf(curves, sizeof curves, "%s/curves", folder);
    snprintf(whole, sizeof whole, "%s/whole", folder);
    assert_ok(
        alibi_train(test_device(), &config, &training, corpus, whole, false, &expected, NULL));
    before = alibi_memory_now();
    /* A checkpoint is written once more if it fails, so that many faults in a row do no harm. */
    for (int64_t n = 1; unharmed < 150; n++) {
        char run[512], log[600];
        alibi_status status;

        snprintf(run, sizeof run, "%s/run-%d", folder, (int)n);
        snprintf(log, sizeof log, "%s/log.jsonl", run);
        warnings = 0;
        assert_ok(alibi_inject_fault("file", n));
        status = alibi_train(test_device(), &config, &training, corpus, run, false, &result, &call);
        assert_ok(alibi_inject_fault("file", 0));
        assert_int_equal(alibi_memory_now(), before);
        if (status != ALIBI_OK && status != ALIBI_IO)
            fail_msg("fault %lld: status %d: %s", (long long)n, (int)status, alibi_error());
        unharmed = status == ALIBI_OK && warnings == 0 ? unharmed + 1 : 0;
        ended += status != ALIBI_OK;
        if (status != ALIBI_OK)
            continue;
        assert_true(result.loss == expected.loss);
        assert_true(same_file(log, path_at("%s/log.jsonl", whole)));
        survived += warnings;
    }
    print_message("%d faults cost the events, %d ended the training\n", survived, ended);
    assert_true(survived == 7 && ended >= 20); /* 3 steps, and 2 syncs and samples */
    alibi_corpus_free(corpus);
}

static void training_refuses_a_folder_of_events_that_it_cannot_write(void **state)
{
    const struct alibi_config config = tiny_config();
    struct alibi_training training = tiny_training(2, 2);
    alibi_corpus *corpus = tiny_corpus("road");
    struct alibi_train_result result;
    const char *taken = path_at("%s/taken", folder);

    (void)state;
    assert_ok(file_replace(taken, "x", 1));
    assert_true(alibi_train(test_device(), &config, &training, corpus, path_at("%s/run", folder),
                            false, &result, &(struct alibi_call){ .events = taken }) != ALIBI_OK);
    assert_non_null(strstr(alibi_error(), "taken"));
    alibi_corpus_free(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(checksums_are_those_of_the_standard, make_fast_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(file_is_tensorflow_s_byte_for_byte, make_fast_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(every_failure_is_reported_and_leaks_nothing,
                                        make_fast_folder, drop_folder),
        cmocka_unit_test_setup_teardown(failing_disk_ends_the_events_with_one_warning,
                                        make_fast_folder, drop_folder),
        cmocka_unit_test_setup_teardown(training_has_the_same_bits_with_and_without_events,
                                        make_fast_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_fault_costs_the_events_or_ends_the_training,
                                        make_fast_folder, drop_folder),
        cmocka_unit_test_setup_teardown(training_refuses_a_folder_of_events_that_it_cannot_write,
                                        make_fast_folder, drop_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
