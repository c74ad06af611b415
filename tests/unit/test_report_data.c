/* Results for programs: results.json and results.csv */
#include <jansson.h>

#include "unit/report_results.h"

static json_t *parse(const struct alibi_compare_result *r)
{
    struct text out = { 0 };
    json_error_t error;
    json_t *json;

    assert_ok(report_json(&out, r));
    json = json_loadb(out.data, out.length, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL)
        fail_msg("line %d: %s in:\n%s", error.line, error.text, out.data);
    text_free(&out);
    return json;
}

static void assert_keys(const json_t *object, const char *const *keys, int count)
{
    for (int i = 0; i < count; i++)
        if (json_object_get(object, keys[i]) == NULL)
            fail_msg("the key '%s' is missing", keys[i]);
}

static void json_has_every_key(void **state)
{
    static const char *const top[] = { "version", "train", "text", "eval", "methods" };
    static const char *const train[] = { "vocab",        "layers", "width", "heads", "norm",
                                         "train_length", "steps",  "lr",    "seed" };
    static const char *const method[] = { "name",          "train_tokens_per_s",
                                          "train_seconds", "train_loss",
                                          "peak_bytes",    "parameters",
                                          "by_length",     "stream",
                                          "device",        "precision",
                                          "machine",       "date",
                                          "version",       "passage",
                                          "seeds" };
    static const char *const length[] = { "length",
                                          "nll",
                                          "standard_error",
                                          "ppl",
                                          "word_ppl",
                                          "bits_per_byte",
                                          "tokens",
                                          "words",
                                          "bytes",
                                          "seconds",
                                          "tokens_per_s",
                                          "tiles_used",
                                          "attention_seconds",
                                          "peak_bytes",
                                          "by_position",
                                          "sliding" };
    static const char *const sliding_keys[] = { "stride", "nll",         "standard_error",
                                                "ppl",    "word_ppl",    "bits_per_byte",
                                                "tokens", "tokens_per_s" };
    static const char *const position[] = { "first", "last", "tokens", "nll" };
    struct alibi_compare_result *r = new_results();
    json_t *json = parse(r), *alibi = json_array_get(json_object_get(json, "methods"), 0), *at;

    (void)state;
    assert_keys(json, top, 5);
    assert_keys(json_object_get(json, "train"), train, 9);
    assert_null(json_object_get(json_object_get(json, "train"), "position"));
    assert_keys(alibi, method, 15);
    assert_keys(json_object_get(alibi, "stream"), length, 15);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(alibi, "stream"), "tokens")), 8192);
    assert_true(json_real_value(json_object_get(json_object_get(alibi, "stream"), "tiles_used")) ==
                0.31);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json, "eval"), "stream_tokens")), 8192);
    at = json_array_get(json_object_get(alibi, "by_length"), 2);
    assert_keys(at, length, 16);
    assert_true(json_real_value(json_object_get(at, "attention_seconds")) == 0.125);
    assert_keys(json_object_get(at, "sliding"), sliding_keys, 8);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(at, "sliding"), "stride")),
                     512);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json, "text"), "text_seed")), 3);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "text"), "tokenizer")), "bytes");
    assert_true(json_is_false(json_object_get(json_object_get(json, "text"), "own_valid")));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json, "eval"), "eval_tokens")), 50000);
    assert_true(json_real_value(json_object_get(at, "ppl")) == 3.072);
    assert_int_equal(json_integer_value(json_object_get(at, "length")), 1024);
    assert_keys(json_array_get(json_object_get(at, "by_position"), 0), position, 4);
    assert_int_equal(json_array_size(json_object_get(at, "by_position")),
                     r->method[0].seed[0].by_length[2].bins);
    json_decref(json);
    free(r);
}

static void json_has_null_for_what_is_missing_or_not_finite(void **state)
{
    struct alibi_compare_result *r = new_infinite_results();
    json_t *json = parse(r), *methods = json_object_get(json, "methods");
    json_t *infinite = json_array_get(json_object_get(json_array_get(methods, 1), "by_length"), 0);
    json_t *missing = json_array_get(json_object_get(json_array_get(methods, 3), "by_length"), 1);

    (void)state;
    assert_true(json_is_null(json_object_get(infinite, "ppl")));
    assert_true(json_is_null(json_object_get(infinite, "nll")));
    assert_true(json_is_null(
        json_object_get(json_array_get(json_object_get(infinite, "by_position"), 0), "nll")));
    assert_true(json_is_null(json_object_get(missing, "ppl")));
    assert_int_equal(json_integer_value(json_object_get(missing, "tokens")), 0);
    assert_int_equal(json_integer_value(json_object_get(missing, "length")), 512);
    assert_true(json_is_null(json_object_get(missing, "tiles_used")));
    assert_true(json_is_null(json_object_get(missing, "sliding")));
    assert_true(json_is_null(json_object_get(json_array_get(methods, 3), "stream")));
    assert_true(json_is_null(
        json_object_get(json_object_get(json_array_get(methods, 2), "stream"), "ppl")));
    assert_true(json_is_null(json_object_get(json_object_get(infinite, "sliding"), "ppl")));
    json_decref(json);
    free(r);
}

static void assert_json_device(const json_t *methods, size_t method, const char *device,
                               const char *precision)
{
    const json_t *m = json_array_get(methods, method);

    assert_string_equal(json_string_value(json_object_get(m, "device")), device);
    assert_string_equal(json_string_value(json_object_get(m, "precision")), precision);
}

static void json_names_each_device_or_has_null(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    json_t *json, *methods;

    (void)state;
    set_device(&r->method[2], "", 0);
    json = parse(r);
    methods = json_object_get(json, "methods");
    assert_json_device(methods, 0, "<b>GPU</b>", "bf16");
    assert_json_device(methods, 1, "a \"quick\", hot one??", "bf16");
    assert_true(json_is_null(json_object_get(json_array_get(methods, 2), "device")));
    assert_true(json_is_null(json_object_get(json_array_get(methods, 2), "precision")));
    assert_json_device(methods, 3, "cpu", "fp32");
    json_decref(json);
    free(r);
}

static void json_parses_whatever_the_results(void **state)
{
    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++) {
        struct alibi_compare_result *r = all_results[k]();
        json_t *json = parse(r);
        assert_int_equal(json_array_size(json_object_get(json, "methods")), r->methods);
        json_decref(json);
        free(r);
    }
}

/* Fields of the line at *p, which advances past it; quotes are understood. */
static int csv_fields(const char **p)
{
    int fields = 1;
    bool quoted = false;

    for (; **p != '\0' && (quoted || strncmp(*p, "\r\n", 2) != 0); (*p)++) {
        quoted ^= **p == '"';
        fields += **p == ',' && !quoted;
    }
    assert_false(quoted);
    assert_memory_equal(*p, "\r\n", 2);
    *p += 2;
    return fields;
}

/* Every test length, with a value or not; whatever else has a value. */
static int lines_of(const struct alibi_compare_result *r, const struct alibi_compare_seed *s)
{
    struct view v;
    int lines;

    view_init(&v, r);
    lines = v.lengths + (s->stream.tokens > 0) + (s->passage.tokens > 0);
    for (int i = 0; i < s->sliding_lengths; i++)
        lines += s->sliding[i].tokens > 0 && view_has_length(&v, s->sliding[i].length);
    return lines;
}

static void csv_has_a_line_per_method_seed_length_and_protocol(void **state)
{
    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++) {
        struct alibi_compare_result *r = all_results[k]();
        struct text out = { 0 };
        const char *p;
        int lines = 0, expected = 1, columns;
        assert_ok(report_csv(&out, r));
        p = out.data;
        columns = csv_fields(&p);
        assert_int_equal(columns, 34);
        for (lines = 1; *p != '\0'; lines++)
            assert_int_equal(csv_fields(&p), columns);
        for (int m = 0; m < r->methods; m++)
            for (int s = 0; s < r->method[m].seeds; s++)
                expected += lines_of(r, &r->method[m].seed[s]);
        assert_int_equal(lines, expected);
        text_free(&out);
        free(r);
    }
}

static void csv_quotes_what_needs_quotes(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_csv(&out, r));
    assert_contains(out.data, "\r\n\"a,\"\"b\"\"&'c'?\",42,128,512,nonoverlapping,512,");
    assert_contains(
        out.data,
        "\r\n100%s%n,42,128,512,nonoverlapping,,,,,,,0,0,0,,,,,,41234.5,61.25,1.1,87031808,1800000,cpu,fp32,\"Some CPU, 2 threads\",2026-11-15T21:24:13Z,0.1.0,\"books/a \"\"b\"\".txt\",3999000,123456789,the first of a window has one token of context; the first of the text is not scored,scored tokens\r\n");
    assert_contains(out.data, ",1800000,<b>GPU</b>,bf16,\"Some CPU");
    assert_contains(out.data, ",1800000,\"a \"\"quick\"\", hot one??\",bf16,\"Some CPU");
    assert_contains(out.data, ",42,128,8192,stream,0,");
    assert_contains(out.data, ",42,128,128,passage,128,");
    assert_contains(out.data, ",8192,7000,40900,0.5,81920,0.31,0.125,");
    text_free(&out);
    free(r);
}

static void csv_leaves_a_device_that_is_not_known_empty(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    set_device(&r->method[0], "", 0);
    assert_ok(report_csv(&out, r));
    assert_contains(out.data, ",peak_bytes,parameters,device,precision,machine,date,version,");
    assert_contains(out.data, ",1800000,,,\"Some CPU");
    assert_contains(out.data, ",1800000,cpu,fp32,\"Some CPU");
    text_free(&out);
    free(r);
}

static void json_has_every_seed_and_their_mean_and_spread(void **state)
{
    struct alibi_compare_result *r = new_seeds_results();
    json_t *json = parse(r), *alibi = json_array_get(json_object_get(json, "methods"), 0);
    json_t *seeds = json_object_get(alibi, "seeds"), *mean, *third;

    (void)state;
    assert_int_equal(json_array_size(seeds), 3);
    mean = json_array_get(json_object_get(alibi, "by_length"), 2);
    third = json_array_get(json_object_get(json_array_get(seeds, 2), "by_length"), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(seeds, 2), "seed")), 44);
    assert_close(json_real_value(json_object_get(mean, "nll")), log(3.072) + 0.01, 1e-12);
    assert_close(json_real_value(json_object_get(mean, "spread")), 0.01, 1e-12);
    assert_close(json_real_value(json_object_get(mean, "standard_error")),
                 hypot(0.002, 0.01 / sqrt(3)), 1e-12);
    assert_close(json_real_value(json_object_get(third, "nll")), log(3.072) + 0.02, 1e-12);
    assert_string_equal(json_string_value(json_object_get(json_array_get(seeds, 2), "machine")),
                        "Some CPU, 2 threads");
    assert_string_equal(json_string_value(json_object_get(json, "date")), "2026-11-15T21:24:13Z");
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "text"), "path")),
                        "books/a \"b\".txt");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "text"), "checksum")),
                     123456789);
    json_decref(json);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_every_key),
        cmocka_unit_test(json_has_null_for_what_is_missing_or_not_finite),
        cmocka_unit_test(json_names_each_device_or_has_null),
        cmocka_unit_test(json_parses_whatever_the_results),
        cmocka_unit_test(json_has_every_seed_and_their_mean_and_spread),
        cmocka_unit_test(csv_has_a_line_per_method_seed_length_and_protocol),
        cmocka_unit_test(csv_quotes_what_needs_quotes),
        cmocka_unit_test(csv_leaves_a_device_that_is_not_known_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
