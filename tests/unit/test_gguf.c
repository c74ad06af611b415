/* test_gguf.c - GGUF files: read as llama.cpp's package writes them, refused by name, written back
 */
#include "folder.h"
#include "formats/gguf.h"

enum { FILE_MAX = 1 << 16 };

/* ---- files, byte by byte */

static void put_u32(struct text *t, uint32_t value)
{
    text_append_bytes(t, &value, sizeof value);
}

static void put_u64(struct text *t, uint64_t value)
{
    text_append_bytes(t, &value, sizeof value);
}

static void put_string(struct text *t, const char *text)
{
    gguf_append_text(t, (struct slice){ text, strlen(text) });
}

static struct text begin(uint32_t version, uint64_t tensors, uint64_t pairs)
{
    struct text t = { 0 };

    text_append_bytes(&t, "GGUF", 4);
    put_u32(&t, version);
    put_u64(&t, tensors);
    put_u64(&t, pairs);
    return t;
}

static void put_key(struct text *t, const char *key, enum gguf_kind kind)
{
    put_string(t, key);
    put_u32(t, kind);
}

/* A matrix of [rows, columns]. */
static void put_tensor(struct text *t, const char *name, uint64_t rows, uint64_t columns,
                       uint32_t type, uint64_t offset)
{
    put_string(t, name);
    put_u32(t, 2);
    put_u64(t, columns);
    put_u64(t, rows);
    put_u32(t, type);
    put_u64(t, offset);
}

/* Parses the bytes as the start of a file with `data` more bytes, from a block of their size. */
static alibi_status parse(struct gguf **out, const struct text *t, int64_t data, char **kept)
{
    *kept = exact_copy(t->data, t->length);
    return gguf_parse(out, *kept, t->length, (int64_t)t->length + data, "m");
}

/* Refused with `part` in the message; frees the bytes. */
static void refused(struct text *t, int64_t data, const char *part)
{
    struct gguf *g = NULL;
    char *kept = NULL;
    size_t before;

    assert_ok(text_status(t));
    before = alibi_memory_now();
    assert_fails(parse(&g, t, data, &kept), ALIBI_BAD_INPUT, "cannot read 'm': ");
    if (strstr(alibi_error(), part) == NULL)
        fail_msg("'%s' does not say '%s'", alibi_error(), part);
    assert_null(g);
    assert_int_equal(alibi_memory_now(), before);
    free(kept);
    text_free(t);
}

static void accepted(struct text *t, int64_t data)
{
    struct gguf *g = NULL;
    char *kept = NULL;

    assert_ok(parse(&g, t, data, &kept));
    gguf_free(g);
    free(kept);
    text_free(t);
}

/* ---- what the package writes */

static struct gguf *golden(char **bytes, size_t *length)
{
    struct gguf *g = NULL;
    const char *path = within(TEST_FOLDER, "golden/gguf/kinds.gguf");

    assert_ok(file_read_all(bytes, length, path, FILE_MAX));
    assert_ok(gguf_parse(&g, *bytes, *length, (int64_t)*length, path));
    return g;
}

static const struct gguf_value *value(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = gguf_find(g, key);

    assert_non_null(v);
    return v;
}

static const struct gguf_tensor *tensor(const struct gguf *g, const char *name)
{
    for (int i = 0; i < g->tensor_count; i++)
        if (strcmp(g->tensors[i].name, name) == 0)
            return &g->tensors[i];
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static void every_kind_of_metadata_has_its_value(void **state)
{
    char *bytes = NULL;
    size_t length = 0;
    struct gguf *g = golden(&bytes, &length);
    const struct {
        const char *key;
        int64_t value;
    } integers[] = { { "kinds.u8", 200 },          { "kinds.i8", -100 },
                     { "kinds.u16", 60000 },       { "kinds.i16", -30000 },
                     { "kinds.u32", 4000000000 },  { "kinds.i32", -2000000000 },
                     { "kinds.i64", -(1LL << 62) } };
    struct slice text = { 0 };
    int64_t n = 0;
    double x = 0;
    bool flag = false;
    const char *at;

    (void)state;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        assert_true(gguf_integer(value(g, integers[i].key), 0, &n));
        assert_int_equal(n, integers[i].value);
        assert_true(gguf_real(value(g, integers[i].key), 0, &x));
        assert_true(x == (double)integers[i].value);
        assert_false(gguf_flag(value(g, integers[i].key), &flag));
        assert_false(gguf_text(value(g, integers[i].key), &text));
    }
    assert_false(gguf_integer(value(g, "kinds.u64"), 0, &n)); /* 2^63 */
    assert_true(gguf_real(value(g, "kinds.f32"), 0, &x));
    assert_true((float)x == 0.1f);
    assert_true(gguf_real(value(g, "kinds.f64"), 0, &x));
    assert_true(x == 0.1);
    assert_false(gguf_integer(value(g, "kinds.f64"), 0, &n));
    assert_true(gguf_flag(value(g, "kinds.bool"), &flag) && flag);
    assert_true(gguf_text(value(g, "kinds.text"), &text));
    assert_int_equal(text.bytes, strlen("größer"));
    assert_memory_equal(text.at, "größer", text.bytes);
    at = value(g, "kinds.texts")->at;
    assert_int_equal(value(g, "kinds.texts")->count, 3);
    for (int i = 0; i < 3; i++) {
        const char *expected = ((const char *[]){ "", "a", "Ġthe" })[i];
        text = gguf_next_text(&at);
        assert_int_equal(text.bytes, strlen(expected));
        assert_memory_equal(text.at, expected, text.bytes);
    }
    assert_ptr_equal(at, value(g, "kinds.texts")->at + value(g, "kinds.texts")->bytes);
    assert_true(gguf_integer(value(g, "kinds.integers"), 1, &n));
    assert_int_equal(n, -1);
    assert_false(gguf_integer(value(g, "kinds.integers"), 3, &n));
    assert_true(gguf_real(value(g, "kinds.reals"), 1, &x));
    assert_true(x == -2.25);
    assert_false(gguf_real(value(g, "kinds.reals"), -1, &x));
    assert_null(gguf_find(g, "kinds"));
    gguf_free(g);
    gguf_free(NULL);
    mem_free(bytes);
}

/* Decoding equals the package's, and encoding gives the same bytes. */
static void numbers_are_quantized_as_the_package_does(void **state)
{
    char *bytes = NULL, encoded[8 * 64 * 4];
    size_t length = 0;
    struct gguf *g = golden(&bytes, &length);
    const struct gguf_tensor *numbers = tensor(g, "numbers");
    float x[8 * 64], y[8 * 64];

    (void)state;
    assert_int_equal(numbers->rank, 2);
    assert_int_equal(numbers->shape[0], 8);
    assert_int_equal(numbers->shape[1], 64);
    assert_int_equal(tensor(g, "vector")->rank, 1);
    numbers->type->decode(x, bytes + numbers->begin, 8 * 64);
    assert_memory_equal(x, bytes + numbers->begin, sizeof x);
    for (int i = 0; i < 3; i++) {
        const struct gguf_tensor *t = tensor(g, ((const char *[]){ "f16", "bf16", "q8_0" })[i]);
        const double relative[] = { 1.0 / 2048, 1.0 / 256, 0 };
        t->type->encode(encoded, x, 8 * 64);
        assert_memory_equal(encoded, bytes + t->begin, (size_t)(t->end - t->begin));
        t->type->decode(y, encoded, 8 * 64);
        for (int j = 0; j < 8 * 64; j++) {
            double most = 0;
            for (int k = j / 32 * 32; k < j / 32 * 32 + 32; k++)
                most = fmax(most, fabs((double)x[k]));
            /* half a step of the block, and what fp16 loses of the scale */
            assert_close(y[j], x[j],
                         i < 2 ? relative[i] * fabs((double)x[j]) + 0x1p-25
                               : most / 254 + most / 2048 + 127 * 0x1p-25);
        }
    }
    gguf_free(g);
    mem_free(bytes);
}

static void zero_and_tiny_blocks_are_finite_in_q8_0(void **state)
{
    const struct gguf_type *q8 = gguf_type_named("q8_0");
    float x[64] = { 0 }, y[64];
    char bytes[2 * 34];

    (void)state;
    x[40] = 1e-45f; /* the inverse of its scale would be infinite */
    q8->encode(bytes, x, 64);
    q8->decode(y, bytes, 64);
    for (int i = 0; i < 64; i++)
        assert_true(y[i] == 0);
    assert_null(gguf_type_named("Q4_0"));
}

/* ---- writing */

/* The golden file, taken apart and put together again, has the bytes that the package wrote. */
static void a_file_is_written_as_the_package_writes_it(void **state)
{
    char *bytes = NULL, key[64];
    size_t length = 0;
    struct gguf *g = golden(&bytes, &length);
    struct gguf_writer w = { 0 };
    struct text header = { 0 };
    struct gguf_tensor tensors[8];

    (void)state;
    assert_in_range(g->tensor_count, 5, 8);
    for (int i = 0; i < g->pair_count; i++) {
        snprintf(key, sizeof key, "%.*s", (int)g->pairs[i].key.bytes, g->pairs[i].key.at);
        if (strcmp(key, "kinds.u32") == 0)
            gguf_put_u32(&w, key, 4000000000);
        else if (strcmp(key, "kinds.f32") == 0)
            gguf_put_f32(&w, key, 0.1);
        else if (strcmp(key, "kinds.bool") == 0)
            gguf_put_bool(&w, key, true);
        else if (strcmp(key, "kinds.text") == 0)
            gguf_put_text(&w, key, "größer");
        else
            gguf_put(&w, key, &g->pairs[i].value);
    }
    for (int i = 0; i < g->tensor_count; i++) {
        tensors[i] = g->tensors[i];
        tensors[i].begin = tensors[i].end = 0;
    }
    assert_ok(gguf_header(&header, &w, tensors, g->tensor_count));
    assert_int_equal(header.length, g->tensors[0].begin);
    assert_memory_equal(header.data, bytes, header.length);
    for (int i = 0; i < g->tensor_count; i++) {
        assert_int_equal(tensors[i].begin, g->tensors[i].begin);
        assert_int_equal(tensors[i].end, g->tensors[i].end);
    }
    text_free(&header);
    gguf_writer_fini(&w);
    gguf_free(g);
    mem_free(bytes);
}

static void rows_that_are_not_whole_blocks_cannot_be_quantized(void **state)
{
    struct gguf_tensor t = {
        .name = "w", .type = gguf_type_named("Q8_0"), .rank = 2, .shape = { 3, 48 }
    };
    struct gguf_writer w = { 0 };
    struct text header = { 0 };

    (void)state;
    assert_fails(gguf_header(&header, &w, &t, 1), ALIBI_BAD_INPUT,
                 "cannot write tensor 'w' as Q8_0: its rows of 48 numbers");
    text_free(&header);
    t.shape[1] = INT64_MAX / 32 * 32;
    assert_fails(gguf_header(&header, &w, &t, 1), ALIBI_BAD_INPUT, "more than a file can hold");
    text_free(&header);
}

/* ---- defects */

static void versions_2_and_3_are_read_and_others_are_named(void **state)
{
    struct text t = begin(2, 0, 0);

    (void)state;
    accepted(&t, 0);
    t = begin(3, 0, 0);
    accepted(&t, 100);
    t = begin(1, 0, 0);
    refused(&t, 0, "GGUF version 1; versions 2 and 3 can be read");
    t = begin(4, 0, 0);
    refused(&t, 0, "GGUF version 4");
    t = begin(3u << 24, 0, 0);
    refused(&t, 0, "big-endian");
    t = begin(3, 0, 0);
    t.data[0] = 'g';
    refused(&t, 0, "it is not a GGUF file");
    t = begin(3, 0, 0);
    t.length = 3;
    refused(&t, 0, "it is not a GGUF file");
}

static void metadata_is_checked(void **state)
{
    struct text t = begin(3, 0, 1);

    (void)state;
    put_key(&t, "a", GGUF_KINDS);
    put_u64(&t, 0);
    refused(&t, 0, "the value of 'a' is of unknown kind 13");
    t = begin(3, 0, 1);
    put_key(&t, "a", GGUF_ARRAY);
    put_u32(&t, GGUF_ARRAY);
    put_u64(&t, 0);
    refused(&t, 0, "'a' is an array of arrays");
    t = begin(3, 0, 1);
    put_key(&t, "a", GGUF_ARRAY);
    put_u32(&t, GGUF_TEXT);
    put_u64(&t, UINT64_MAX);
    refused(&t, 0, "'a' has 18446744073709551615 items");
    t = begin(3, 0, 1);
    put_key(&t, "a", GGUF_ARRAY);
    put_u32(&t, GGUF_U64);
    put_u64(&t, 2);
    put_u64(&t, 1);
    refused(&t, 0, "a value needs 16 bytes at byte 49, the file ends at 57");
    t = begin(3, 0, 1);
    put_key(&t, "a", GGUF_TEXT);
    put_u64(&t, UINT64_MAX);
    refused(&t, 0, "a text needs 18446744073709551615 bytes at byte 45");
    t = begin(3, 0, 1);
    put_key(&t, "", GGUF_U32);
    put_u64(&t, 1);
    refused(&t, 0, "a key at byte 24 has 0 bytes");
    t = begin(3, 0, 1);
    put_key(&t, "a b", GGUF_U32);
    put_u64(&t, 1);
    refused(&t, 0, "a key at byte 24 is not printable ASCII");
    t = begin(3, 0, 2);
    put_key(&t, "a", GGUF_U32);
    put_u32(&t, 1);
    put_key(&t, "a", GGUF_U64);
    put_u64(&t, 1);
    refused(&t, 0, "the key 'a' is repeated");
    t = begin(3, 0, 1 << 20);
    refused(&t, 1 << 30, "1048576 pairs of metadata, more than fit");
    t = begin(3, UINT64_MAX, 0);
    refused(&t, 1 << 30, "tensors, more than fit");
}

static void alignment_is_a_power_of_two(void **state)
{
    (void)state;
    for (uint32_t alignment = 0; alignment <= 64; alignment++) {
        struct text t = begin(3, 1, 1);
        put_key(&t, "general.alignment", GGUF_U32);
        put_u32(&t, alignment);
        put_tensor(&t, "w", 1, 1, 0, 0);
        if (alignment > 0 && (alignment & (alignment - 1)) == 0)
            accepted(&t, 4 + 64);
        else
            refused(&t, 4 + 64, "'general.alignment' is not a power of two");
    }
}

static void tensors_are_checked(void **state)
{
    struct text t = begin(3, 1, 0);

    (void)state;
    put_tensor(&t, "w", 2, 3, 12, 0);
    refused(&t, 1000, "tensor 'w' is of type Q4_K; F32, F16, BF16 and Q8_0 can be read");
    t = begin(3, 1, 0);
    put_tensor(&t, "w", 2, 3, 4, 0); /* a type that is no more */
    refused(&t, 1000, "tensor 'w' is of unknown type 4");
    t = begin(3, 1, 0);
    put_tensor(&t, "w", 2, 48, 8, 0);
    refused(&t, 1000, "tensor 'w' has a shape that Q8_0 cannot have");
    t = begin(3, 1, 0);
    put_tensor(&t, "w", 1ULL << 62, 8, 0, 0);
    refused(&t, 1000, "tensor 'w' has a shape that F32 cannot have");
    t = begin(3, 1, 0);
    put_tensor(&t, "w", UINT64_MAX, 0, 0, 0);
    refused(&t, 1000, "tensor 'w' has a shape that no file can hold");
    t = begin(3, 1, 0);
    put_string(&t, "w");
    put_u32(&t, 5);
    for (int i = 0; i < 7; i++)
        put_u64(&t, 1);
    refused(&t, 1000, "tensor 'w' has 5 dimensions, at most 4");
    t = begin(3, 2, 0);
    put_tensor(&t, "v", 2, 3, 0, 0);
    put_tensor(&t, "w", 2, 3, 0, 24);
    refused(&t, 1000, "tensor 'w' begins at 24 of the data, not at 32");
    t = begin(3, 2, 0);
    put_tensor(&t, "w", 2, 3, 0, 0);
    put_tensor(&t, "w", 2, 3, 0, 32);
    refused(&t, 1000, "the tensor 'w' is repeated");
    t = begin(3, 1, 0);
    put_tensor(&t, "w", 2, 3, 0, 0);
    refused(&t, 24, "tensor 'w' needs 24 bytes at 96, the file ends at 89"); /* header: 65 */
    t = begin(3, 1, 0);
    put_tensor(&t, "w", 2, 3, 0, 0);
    accepted(&t, 31 + 24);
    t = begin(3, 1, 0);
    put_tensor(&t, "w", 2, 3, 0, 0);
    refused(&t, 30 + 24, "tensor 'w' needs 24 bytes");
    t = begin(3, 1, 0);
    put_tensor(&t, "a_name_that_is_longer_than_the_sixty-four_bytes_that_ggml_allows_it", 1, 1, 0,
               0);
    refused(&t, 1000, "the name of a tensor at byte 24 has 67 bytes, 1 to 64 are allowed");
}

static void every_truncation_of_a_file_is_refused(void **state)
{
    char *bytes = NULL;
    size_t length = 0;
    struct gguf *g = golden(&bytes, &length);
    size_t needed = (size_t)g->tensors[g->tensor_count - 1].end;

    (void)state;
    gguf_free(g);
    for (size_t cut = 0; cut < needed; cut++) {
        char *exact = exact_copy(bytes, cut);
        g = NULL;
        assert_fails(gguf_parse(&g, exact, cut, (int64_t)cut, "m"), ALIBI_BAD_INPUT,
                     "cannot read 'm': ");
        free(exact);
    }
    mem_free(bytes);
}

static alibi_status open_golden(void *path)
{
    struct gguf *g = NULL;
    alibi_status status = gguf_open(&g, path);

    gguf_free(g);
    return status;
}

static void faults_are_reported(void **state)
{
    char path[4096];

    (void)state;
    snprintf(path, sizeof path, "%s", within(TEST_FOLDER, "golden/gguf/kinds.gguf"));
    assert_ok(open_golden(path));
    assert_true(fail_each_call("memory", open_golden, path, ALIBI_MEMORY, "") >= 4);
    assert_true(fail_each_call("file", open_golden, path, ALIBI_IO, "kinds.gguf") >= 2);
    assert_fails(open_golden((char *)"/nowhere/m.gguf"), ALIBI_BAD_INPUT, "/nowhere/m.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_metadata_has_its_value),
        cmocka_unit_test(numbers_are_quantized_as_the_package_does),
        cmocka_unit_test(zero_and_tiny_blocks_are_finite_in_q8_0),
        cmocka_unit_test(a_file_is_written_as_the_package_writes_it),
        cmocka_unit_test(rows_that_are_not_whole_blocks_cannot_be_quantized),
        cmocka_unit_test(versions_2_and_3_are_read_and_others_are_named),
        cmocka_unit_test(metadata_is_checked),
        cmocka_unit_test(alignment_is_a_power_of_two),
        cmocka_unit_test(tensors_are_checked),
        cmocka_unit_test(every_truncation_of_a_file_is_refused),
        cmocka_unit_test(faults_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
