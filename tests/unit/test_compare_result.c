/* result.json: reads back exactly, finds every altered bit, and accepts files of older versions */
#include <omp.h>

#include "compare/trial.h"
#include "unit/comparison.h"

/* result_fini. */
static struct alibi_compare_seed sample_result(void)
{
    struct alibi_compare_seed m;

    assert_ok(result_init(&m, 7, 4));
    m.train_tokens_per_s = 1234.5;
    m.train_seconds = 1.0 / 3;
    m.train_loss = 2.25;
    m.peak_bytes = 4096;
    m.parameters = 99;
    snprintf(m.device, sizeof m.device, "a \"quick\", \\hot\\ one: \u00e9");
    m.precision = ALIBI_BF16;
    m.lengths = 3;
    m.by_length[0] = (struct alibi_eval_result){
        .length = 8, .stride = 8, .nll = 0.1, .standard_error = 1e-300, .ppl = 1.1
    };
    m.by_length[0].tokens = m.by_length[0].words = m.by_length[0].bytes = 5;
    m.by_length[0].bins = 2;
    m.by_length[0].by_position[1] = (struct alibi_position_loss){ 1, 1, 3, 0.7 };
    m.by_length[0].block = 5;
    m.by_length[0].blocks = m.by_length[0].start = 1;
    m.by_length[0].available = 7;
    m.by_length[0].parts = 2;
    m.by_length[0].part[0] = (struct alibi_eval_part){ 3, 0.25 };
    m.by_length[0].part[1] = (struct alibi_eval_part){ 2, 1.0 / 3 };
    m.by_length[1] = m.by_length[0];
    m.by_length[1].length = m.by_length[1].stride = 16;
    m.by_length[1].ppl = m.by_length[1].word_ppl = INFINITY;
    m.by_length[2] = result_none(32);
    m.sliding_lengths = 2;
    for (int i = 0; i < 2; i++) {
        m.sliding[i] = m.by_length[1 - i];
        m.sliding[i].length = m.by_length[i].length;
        m.sliding[i].stride = m.by_length[i].length / 2;
        m.sliding[i].protocol = ALIBI_SLIDING;
    }
    m.stream = m.by_length[0];
    m.stream.length = m.stream.tokens = 77;
    m.stream.stride = 0;
    m.stream.protocol = ALIBI_STREAM;
    m.stream.tiles_used = 0.3;
    m.stream.attention_seconds = 0.7;
    m.passage = m.by_length[0];
    m.passage.length = 32;
    snprintf(m.machine, sizeof m.machine, "Some CPU, 2 threads");
    snprintf(m.date, sizeof m.date, "2026-11-15T21:24:13Z");
    snprintf(m.version, sizeof m.version, "0.1.0");
    return m;
}

static const struct alibi_int_list sample_lengths = { 4, { 8, 16, 32, 64 } };

/* Reads into a fresh method of that name, which result_fini() releases. */
static alibi_status read_into(struct alibi_compare_seed *m, const char *name,
                              const struct alibi_int_list *lengths, const char *path)
{
    result_fini(m);
    assert_ok(result_init(m, 7, lengths->count));
    return result_read(m, name, lengths, path);
}

static void a_result_reads_back_as_it_was_written(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_seed m = sample_result();
    struct alibi_compare_seed back = { 0 };

    (void)state;
    assert_ok(result_write(&m, "rotary", path));
    assert_ok(read_into(&back, "rotary", &sample_lengths, path));
    assert_true(back.train_seconds == m.train_seconds && back.peak_bytes == 4096 &&
                back.parameters == 99);
    assert_string_equal(back.device, m.device);
    assert_int_equal(back.precision, ALIBI_BF16);
    assert_int_equal(back.lengths, 3);
    assert_true(back.by_length[0].standard_error == 1e-300 && back.by_length[0].ppl == 1.1);
    assert_memory_equal(back.by_length[0].by_position, m.by_length[0].by_position,
                        sizeof m.by_length[0].by_position);
    assert_true(isinf(back.by_length[1].ppl) && isinf(back.by_length[1].word_ppl));
    assert_true(back.by_length[2].tokens == 0 && isnan(back.by_length[2].ppl));
    assert_int_equal(back.sliding_lengths, 2);
    assert_true(back.sliding[1].stride == 8 && back.sliding[1].protocol == ALIBI_SLIDING &&
                back.sliding[1].ppl == 1.1);
    assert_memory_equal(&back.stream, &m.stream, sizeof m.stream);
    assert_memory_equal(&back.passage, &m.passage, sizeof m.passage);
    assert_memory_equal(&back.by_length[0], &m.by_length[0], sizeof m.by_length[0]);
    assert_string_equal(back.machine, m.machine);
    assert_string_equal(back.date, m.date);
    assert_string_equal(back.version, m.version);
    m.stream = result_none(77);
    assert_ok(result_write(&m, "rotary", path));
    assert_ok(read_into(&back, "rotary", &sample_lengths, path));
    assert_true(back.stream.length == 77 && back.stream.tokens == 0 && isnan(back.stream.ppl));
    result_fini(&back);
    result_fini(&m);
    remove_temporary_folder(dir);
}

static void a_result_of_another_method_or_other_lengths_is_refused(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_seed m = sample_result();
    struct alibi_compare_seed back = { 0 };

    (void)state;
    assert_ok(result_write(&m, "rotary", path));
    assert_fails(read_into(&back, "alibi", &sample_lengths, path), ALIBI_BAD_INPUT, path);
    assert_fails(read_into(&back, "rotary", &(struct alibi_int_list){ 3, { 8, 16, 33 } }, path),
                 ALIBI_BAD_INPUT, "32");
    assert_fails(read_into(&back, "rotary", &(struct alibi_int_list){ 2, { 8, 16 } }, path),
                 ALIBI_BAD_INPUT, "by_length");
    m.seed = 8;
    assert_ok(result_write(&m, "rotary", path));
    assert_fails(read_into(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT,
                 "with seed 8, not of 'rotary' with seed 7");
    result_fini(&back);
    result_fini(&m);
    remove_temporary_folder(dir);
}

static void device_and_precision_read_back_known_or_not(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_seed m = sample_result();
    struct alibi_compare_seed back = { 0 };

    (void)state;
    for (int precision = ALIBI_FP32; precision <= ALIBI_BF16; precision++) {
        memset(m.device, 'x', sizeof m.device - 1);
        m.precision = precision;
        assert_ok(result_write(&m, "rotary", path));
        assert_ok(read_into(&back, "rotary", &sample_lengths, path));
        assert_string_equal(back.device, m.device);
        assert_int_equal(back.precision, precision);
    }
    m.device[0] = '\0';
    assert_ok(result_write(&m, "rotary", path));
    assert_ok(read_into(&back, "rotary", &sample_lengths, path));
    assert_string_equal(back.device, "");
    assert_int_equal(back.lengths, 3);
    result_fini(&back);
    result_fini(&m);
    remove_temporary_folder(dir);
}

/* The result at `path` with its lines from key `first` to before key `next` replaced, its checksum
 * right again. */
static void replace_lines(const char *path, const char *first, const char *next, const char *lines)
{
    char begin[64], behind[64];
    struct text json = { 0 };
    char *bytes = NULL;
    const char *from, *to, *end;
    size_t length;

    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    snprintf(begin, sizeof begin, "  \"%s\"", first);
    snprintf(behind, sizeof behind, "  \"%s\"", next);
    from = strstr(bytes, begin);
    to = strstr(bytes, behind);
    end = strstr(bytes, "  \"crc32\"");
    assert_true(from != NULL && from < to && to < end);
    text_append(&json, "%.*s%s%.*s", (int)(from - bytes), bytes, lines, (int)(end - to), to);
    text_append(&json, "  \"crc32\": %u\n}\n", checksum(0, json.data, json.length));
    write_file(path, json.data, json.length);
    text_free(&json);
    mem_free(bytes);
}

static void replace_device(const char *path, const char *lines)
{
    replace_lines(path, "device", "machine", lines);
}

static void a_device_that_cannot_be_is_refused_and_the_file_named(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_seed m = sample_result();
    struct alibi_compare_seed back = { 0 };
    char name[sizeof m.device + 1] = "", lines[512];

    (void)state;
    memset(name, 'x', sizeof m.device); /* one byte too many */
    snprintf(lines, sizeof lines, "  \"device\": \"%s\",\n  \"precision\": \"fp32\",\n", name);
    assert_ok(result_write(&m, "rotary", path));
    replace_device(path, lines);
    assert_fails(read_into(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT,
                 "'device' is longer than 127 bytes");
    assert_non_null(strstr(alibi_error(), path));
    assert_string_equal(back.device, "");
    replace_device(path, "  \"device\": \"cpu\",\n  \"precision\": \"fp8\",\n");
    assert_fails(read_into(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT,
                 "'precision' is neither fp32 nor bf16");
    replace_device(path, "  \"device\": 3,\n  \"precision\": \"fp32\",\n");
    assert_fails(read_into(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT,
                 "'device' is not a text");
    replace_device(path, "  \"device\": \"cpu\",\n  \"precision\": \"fp32\",\n");
    assert_ok(read_into(&back, "rotary", &sample_lengths, path));
    result_fini(&back);
    result_fini(&m);
    remove_temporary_folder(dir);
}

/* Trained where nobody knows, and evaluated again once: from then on it is as any other. */
static void a_comparison_of_before_devices_keeps_its_training_and_is_evaluated_again(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *first = NULL, *again = NULL, *third = NULL;

    (void)state;
    assert_ok(run(&s, dir, &first));
    replace_lines(within(dir, "alibi/result.json"), "device", "by_length", "");
    replace_lines(within(dir, "alibi/result.json"), "seed", "train_tokens_per_s", "");
    assert_int_equal(run_with_stop(&s, dir, 1, &again),
                     ALIBI_INTERRUPTED); /* there is something to do */
    assert_ok(run(&s, dir, &again));
    assert_same_losses(first, again);
    assert_true(first->method[0].seed[0].train_seconds == again->method[0].seed[0].train_seconds);
    assert_string_equal(again->method[0].seed[0].device, "");
    assert_string_equal(again->method[1].seed[0].device, "cpu");
    assert_ok(run_with_stop(&s, dir, 1, &third)); /* nothing is left to do */
    assert_string_equal(third->method[0].seed[0].device, "");
    alibi_compare_free(first);
    alibi_compare_free(again);
    alibi_compare_free(third);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* Golden files: a comparison of version 0.1, whose seal is called "checksum". It scored other
 * tokens: its training is kept and its evaluations are repeated. */
static void a_result_of_version_0_1_keeps_its_training_and_is_verified(void **state)
{
    static const struct alibi_int_list lengths = { 2, { 8, 16 } };
    const char *golden = TEST_FOLDER "/golden/compare/result-0.1.json";
    char *dir = temporary_folder(), *bytes = NULL;
    const char *path = within(dir, "result.json");
    struct alibi_compare_seed m = { 0 };
    size_t length;

    (void)state;
    assert_ok(read_into(&m, "rotary", &lengths, golden));
    assert_true(m.parameters == 2944 && m.train_loss > 5.48 && m.train_loss < 5.49);
    assert_true(m.lengths == 0 && m.sliding_lengths == 0 && m.stream.length == 0);
    assert_string_equal(m.device, "cpu");
    assert_string_equal(m.machine, "");
    assert_ok(file_read_all(&bytes, &length, golden, 1 << 20));
    strstr(bytes, "\"tokens\": 64")[strlen("\"tokens\": ")] = '7';
    write_file(path, bytes, length);
    assert_fails(read_into(&m, "rotary", &lengths, path), ALIBI_BAD_INPUT, path);
    mem_free(bytes);
    result_fini(&m);
    remove_temporary_folder(dir);
}

/* As it was written before there were streams. */
static void write_older(const char *path, const char *altered)
{
    struct text json = { 0 };

    text_append(
        &json,
        "{\n  \"name\": \"rotary\",\n  \"train_tokens_per_s\": 1234.5,\n  \"train_seconds\": 0.5,\n"
        "  \"train_loss\": 2.25,\n  \"peak_bytes\": 4096,\n  \"parameters\": 99,\n"
        "  \"by_length\": [\n    {\"length\": 8, \"stride\": 8}],\n  \"sliding\": [],\n");
    text_append(&json, "  \"checksum\": %u\n}\n", checksum(0, json.data, json.length));
    if (altered)
        strstr(json.data, altered)[0]++;
    write_file(path, json.data, json.length);
    text_free(&json);
}

static void a_result_of_before_streams_keeps_its_training_and_is_evaluated_again(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_seed back = { 0 };

    (void)state;
    write_older(path, NULL);
    assert_ok(read_into(&back, "rotary", &sample_lengths, path));
    assert_true(back.train_seconds == 0.5 && back.peak_bytes == 4096 && back.parameters == 99);
    assert_true(back.lengths == 0 && back.sliding_lengths == 0 && back.stream.length == 0);
    assert_string_equal(back.device, "");
    write_older(path, "96");
    assert_int_equal(read_into(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT);
    result_fini(&back);
    remove_temporary_folder(dir);
}

/* No altered byte passes: some lines in the middle of the file are digits only. */
static void one_flipped_bit_anywhere_in_a_result_is_found(void **state)
{
    char *dir = temporary_folder(), *bytes = NULL;
    const char *path = within(dir, "result.json");
    struct alibi_compare_seed m = sample_result();
    struct alibi_compare_seed back = { 0 };
    size_t length;

    (void)state;
    assert_ok(result_write(&m, "rotary", path));
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    for (size_t i = 0; i < length; i++) {
        char was = bytes[i];

        bytes[i] = (char)(was ^ (1 << (i % 8)));
        write_file(path, bytes, length);
        assert_int_equal(read_into(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT);
        bytes[i] = was;
        write_file(path, bytes, i);
        assert_int_equal(read_into(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT);
    }
    mem_free(bytes);
    result_fini(&back);
    result_fini(&m);
    remove_temporary_folder(dir);
}

static void a_result_without_memory_leaves_nothing_allocated(void **state)
{
    struct alibi_compare_seed m;
    size_t before = alibi_memory_now();

    (void)state;
    for (int64_t n = 1; n <= 2; n++) {
        assert_ok(alibi_inject_fault("memory", n));
        assert_fails(result_init(&m, 7, 4), ALIBI_MEMORY, "results");
        assert_int_equal(alibi_memory_now(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_reads_back_as_it_was_written),
        cmocka_unit_test(a_result_of_another_method_or_other_lengths_is_refused),
        cmocka_unit_test(device_and_precision_read_back_known_or_not),
        cmocka_unit_test(a_device_that_cannot_be_is_refused_and_the_file_named),
        cmocka_unit_test(a_comparison_of_before_devices_keeps_its_training_and_is_evaluated_again),
        cmocka_unit_test(a_result_of_version_0_1_keeps_its_training_and_is_verified),
        cmocka_unit_test(a_result_of_before_streams_keeps_its_training_and_is_evaluated_again),
        cmocka_unit_test(one_flipped_bit_anywhere_in_a_result_is_found),
        cmocka_unit_test(a_result_without_memory_leaves_nothing_allocated),
    };

    omp_set_num_threads(1); /* for models this small threads only cost time */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
