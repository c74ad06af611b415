/* test_weights.c - checkpoints of weights alone, in fp32, bf16 and fp16 */
#include "training.h"

#include "ops/bf16.h"
#include "ops/fp16.h"

/* ---- half precision */

#ifdef __FLT16_MAX__
static void fp16_is_the_compilers_for_every_half_and_every_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 1 << 16; h++) {
        uint16_t half = (uint16_t)h;
        _Float16 theirs;
        float wide = fp16_to_float(half);
        memcpy(&theirs, &half, sizeof theirs);
        if (isnan(wide)) {
            assert_true(isnan((float)theirs));
            continue;
        }
        assert_true(wide == (float)theirs);
        assert_int_equal(fp16_from_float(wide), half);
    }
    /* Every 1009th float: subnormals, ties, overflow, infinity. */
    for (uint64_t b = 0; b < 0x7f800001; b += 1009) {
        uint32_t bits = (uint32_t)b;
        float x;
        _Float16 theirs;
        uint16_t expected;
        memcpy(&x, &bits, sizeof x);
        theirs = (_Float16)x;
        memcpy(&expected, &theirs, sizeof expected);
        if (fp16_from_float(x) != expected || fp16_from_float(-x) != (expected | 0x8000))
            fail_msg("%a becomes %04x, not %04x", (double)x, fp16_from_float(x), expected);
    }
}
#endif

static void ties_of_fp16_go_to_even_and_65520_overflows(void **state)
{
    (void)state;
    assert_int_equal(fp16_from_float(1 + 0x1p-11f), 0x3c00);
    assert_int_equal(fp16_from_float(1 + 3 * 0x1p-11f), 0x3c02);
    assert_int_equal(fp16_from_float(0x1p-25f), 0);
    assert_int_equal(fp16_from_float(3 * 0x1p-25f), 2);
    assert_int_equal(fp16_from_float(65519.99f), 0x7bff);
    assert_int_equal(fp16_from_float(65520), 0x7c00);
    assert_int_equal(fp16_from_float(-INFINITY), 0xfc00);
    assert_true(isnan(fp16_to_float(fp16_from_float(NAN))));
}

/* ---- saving and opening */

/* A run of two steps. */
static int set_up(void **state)
{
    struct site *p = new_site(2, 2);

    assert_ok(train_at(p, p->run, false));
    *state = p;
    return 0;
}

static float *values_of(const struct model *m)
{
    float *values = malloc((size_t)m->span * sizeof *values);

    assert_non_null(values);
    assert_ok(m->device->ops->download(m->device, values, model_flat(m, m->values)));
    return values;
}

static float same(float x)
{
    return x;
}

static float through_bf16(float x)
{
    return bf16_to_float(bf16_from_float(x));
}

static float through_fp16(float x)
{
    return fp16_to_float(fp16_from_float(x));
}

static const struct {
    enum alibi_precision precision;
    const char *type;
    float (*rounded)(float x);
    int bytes;
} types[] = { { ALIBI_FP32, "F32", same, 4 },
              { ALIBI_BF16, "BF16", through_bf16, 2 },
              { ALIBI_FP16, "F16", through_fp16, 2 } };

static void weights_of_each_type_open_as_what_was_rounded(void **state)
{
    struct site *p = *state;

    for (int i = 0; i < 3; i++) {
        const char *saved = path_at("%s/weights-%s", p->folder, types[i].type);
        alibi_model *from = open_model_at(p->run), *to;
        struct manifest manifest;
        float *before = values_of(from->model), *after;
        assert_ok(alibi_model_save(from, saved, types[i].precision, NULL));
        to = open_model_at(saved);
        after = values_of(to->model);
        for (int64_t j = 0; j < from->model->span; j++)
            assert_true(after[j] == types[i].rounded(before[j]));
        assert_int_equal(tokenizer_checksum(to->tokenizer), tokenizer_checksum(from->tokenizer));
        assert_memory_equal(&to->model->config, &from->model->config, sizeof to->model->config);
        assert_ok(manifest_read(&manifest, saved));
        assert_false(manifest.parts[PART_OPTIMIZER].present || manifest.parts[PART_STATE].present);
        assert_true(manifest.parts[PART_MODEL].bytes > from->model->elements * types[i].bytes);
        assert_true(manifest.parts[PART_MODEL].bytes <
                    from->model->elements * types[i].bytes + 4096);
        alibi_model_free(from);
        alibi_model_free(to);
        free(before);
        free(after);
    }
}

static void the_same_weights_give_the_same_bytes(void **state)
{
    struct site *p = *state;
    const char *once = path_at("%s/once", p->folder), *twice = path_at("%s/twice", p->folder);
    alibi_model *m = open_model_at(p->run);

    assert_ok(alibi_model_save(m, once, ALIBI_FP32, NULL));
    assert_same_file(once, p->newest, "model.safetensors");
    assert_same_file(once, p->newest, "config.json");
    assert_same_file(once, p->newest, "tokenizer.json");
    alibi_model_free(m);
    m = open_model_at(once);
    assert_ok(alibi_model_save(m, twice, ALIBI_FP32, NULL));
    assert_same_file(once, twice, "manifest.json");
    assert_same_file(once, twice, "model.safetensors");
    alibi_model_free(m);
}

static void weights_alone_are_inspected_but_not_resumed(void **state)
{
    struct site *p = *state;
    const char *saved = path_at("%s/weights", p->folder);
    alibi_model *m = open_model_at(p->run);
    char *text = NULL;

    assert_ok(alibi_model_save(m, saved, ALIBI_BF16, NULL));
    alibi_model_free(m);
    assert_ok(alibi_inspect(&text, saved, false, test_call()));
    assert_non_null(strstr(text, "BF16"));
    assert_non_null(strstr(text, "parameters"));
    assert_null(strstr(text, "loss"));
    alibi_text_free(text);
    assert_fails(train_at(p, saved, true), ALIBI_BAD_INPUT, "is a checkpoint");
}

static void a_weight_beyond_the_range_of_fp16_is_named_and_nothing_is_left(void **state)
{
    struct site *p = *state;
    const char *saved = path_at("%s/weights", p->folder);
    alibi_model *m = open_model_at(p->run);
    struct tensor at = parameter_slice(m->model, &m->model->parameters[1], m->model->values);

    at.shape[0] = 1;
    assert_ok(m->model->device->ops->fill(m->model->device, at, 70000.0));
    assert_fails(alibi_model_save(m, saved, ALIBI_FP16, NULL), ALIBI_NUMERIC,
                 m->model->parameters[1].name);
    assert_non_null(strstr(alibi_error(), "70000"));
    assert_int_not_equal(access(saved, F_OK), 0);
    assert_ok(alibi_model_save(m, saved, ALIBI_BF16, NULL));
    alibi_model_free(m);
}

static void a_folder_that_is_not_empty_and_types_that_are_none_are_refused(void **state)
{
    struct site *p = *state;
    alibi_model *m = open_model_at(p->run);

    assert_fails(alibi_model_save(m, p->run, ALIBI_FP32, NULL), ALIBI_BAD_INPUT, "is not empty");
    assert_ok(checkpoint_verify(p->newest));
    assert_fails(alibi_model_save(m, path_at("%s/x", p->folder), ALIBI_PRECISION_AUTO, NULL),
                 ALIBI_USAGE, "fp32, bf16 or fp16");
    alibi_model_free(m);
}

/* ---- manifests that make no sense, under a right checksum */

static void a_manifest_with_other_parts_is_refused(void **state)
{
    static const struct {
        unsigned present;
        const char *message;
    } cases[] = { { 1u << PART_MODEL | 1u << PART_CONFIG, "lacks the part 'tokenizer.json'" },
                  { 0, "lacks the part 'model.safetensors'" },
                  { ~0u & ~(1u << PART_STATE), "only one of the parts" } };
    struct site *p = *state;
    struct manifest good;

    assert_ok(manifest_read(&good, p->newest));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct manifest m = good;
        struct text json = { 0 };
        for (int i = 0; i < PARTS; i++)
            m.parts[i].present = cases[c].present >> i & 1;
        manifest_format(&m, &json);
        assert_ok(text_status(&json));
        write_file(path_at("%s/manifest.json", p->newest), json.data, json.length);
        assert_fails(checkpoint_verify(p->newest), ALIBI_BAD_INPUT, cases[c].message);
        text_free(&json);
    }
}

#define RUN_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, drop_site)

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef __FLT16_MAX__
        cmocka_unit_test(fp16_is_the_compilers_for_every_half_and_every_rounding),
#endif
        cmocka_unit_test(ties_of_fp16_go_to_even_and_65520_overflows),
        RUN_TEST(weights_of_each_type_open_as_what_was_rounded),
        RUN_TEST(the_same_weights_give_the_same_bytes),
        RUN_TEST(weights_alone_are_inspected_but_not_resumed),
        RUN_TEST(a_weight_beyond_the_range_of_fp16_is_named_and_nothing_is_left),
        RUN_TEST(a_folder_that_is_not_empty_and_types_that_are_none_are_refused),
        RUN_TEST(a_manifest_with_other_parts_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
