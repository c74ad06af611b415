/* test_safetensors.c - valid headers, every defect, and damage of every kind */
#include "check.h"

#include "formats/formats.h"

enum { LENGTH_BYTES = 8, FILE_MAX = 4096 };

/* Puts the length and the header into `file`; returns the bytes of both. */
static size_t build(char *file, const char *header, size_t header_bytes)
{
    assert_true(header_bytes + LENGTH_BYTES <= FILE_MAX);
    for (int i = 0; i < LENGTH_BYTES; i++)
        file[i] = (char)(header_bytes >> 8 * i);
    memcpy(file + LENGTH_BYTES, header, header_bytes);
    return header_bytes + LENGTH_BYTES;
}

/* From a block of the exact size, so that the sanitizer sees a read beyond it. */
static alibi_status parse_exact(struct safetensors **out, const char *bytes, size_t length,
                                int64_t file_bytes)
{
    char *exact = exact_copy(bytes, length);
    alibi_status status = safetensors_parse(out, exact, length, file_bytes, "m");

    free(exact);
    return status;
}

/* Parses a header in front of that many bytes of data. */
static alibi_status parse(struct safetensors **out, const char *header, int64_t data_bytes)
{
    char file[FILE_MAX];
    size_t bytes = build(file, header, strlen(header));

    return parse_exact(out, file, bytes, (int64_t)bytes + data_bytes);
}

#define assert_parses(header, data_bytes)                                                          \
    do {                                                                                           \
        struct safetensors *check_s = NULL;                                                        \
        assert_ok(parse(&check_s, header, data_bytes));                                            \
        safetensors_free(check_s);                                                                 \
    } while (0)

#define assert_refused(header, data_bytes, part)                                                   \
    do {                                                                                           \
        struct safetensors *check_s = NULL;                                                        \
        size_t check_before = alibi_memory_now();                                                  \
        assert_fails(parse(&check_s, header, data_bytes), ALIBI_BAD_INPUT, "cannot read 'm': ");   \
        assert_non_null(strstr(alibi_error(), part));                                              \
        assert_null(check_s);                                                                      \
        assert_int_equal(alibi_memory_now(), check_before);                                        \
    } while (0)

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"
#define B "\"b\":{\"dtype\":\"I8\",\"shape\":[5],\"data_offsets\":[24,29]}"

/* ---- valid files */

static void tensors_come_in_the_order_of_their_data_with_places_in_the_file(void **state)
{
    const char *header =
        "{" B ", \"__metadata__\" : {\"format\":\"pt\", \"x\":\"\"},\r\n\t" A "}   ";
    struct safetensors *s = NULL;
    const struct safetensor *a, *b;
    int64_t data = LENGTH_BYTES + (int64_t)strlen(header);

    (void)state;
    assert_ok(parse(&s, header, 29));
    assert_int_equal(s->count, 2);
    a = &s->tensors[0];
    b = &s->tensors[1];
    assert_string_equal(a->name, "a");
    assert_string_equal(a->type, "F32");
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(a->begin, data);
    assert_int_equal(a->end, data + 24);
    assert_string_equal(b->name, "b");
    assert_int_equal(b->begin, data + 24);
    assert_int_equal(b->end, data + 29);
    safetensors_free(s);
    safetensors_free(NULL);
}

static void every_type_has_its_size(void **state)
{
    const struct {
        const char *name;
        int64_t bytes;
    } types[] = { { "F64", 8 }, { "F32", 4 },     { "F16", 2 },     { "BF16", 2 },
                  { "I64", 8 }, { "I32", 4 },     { "I16", 2 },     { "I8", 1 },
                  { "U8", 1 },  { "F8_E4M3", 1 }, { "F8_E5M2", 1 }, { "U16", 2 },
                  { "U32", 4 }, { "U64", 8 },     { "BOOL", 1 },    { "C64", 8 } };

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[200];
        snprintf(header, sizeof header,
                 "{\"t\":{\"shape\":[3],\"dtype\":\"%s\",\"data_offsets\":[0,%lld]}}",
                 types[i].name, (long long)(3 * types[i].bytes));
        assert_parses(header, 3 * types[i].bytes);
        assert_refused(header, 3 * types[i].bytes + 1, "the tensors end at");
    }
}

static void scalars_empty_tensors_and_empty_files_are_fine(void **state)
{
    (void)state;
    assert_parses("{}", 0);
    assert_parses("{\"__metadata__\":{}}", 0);
    assert_parses("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
    assert_parses("{\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
                  "\"f\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}," A "}",
                  24);
    assert_parses("{\"r\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}",
                  2);
}

static void names_may_have_escapes(void **state)
{
    struct safetensors *s = NULL;

    (void)state;
    assert_ok(parse(
        &s,
        "{\"\\\"\\\\\\/\\b\\f\\n\\r\\tA\\u0041\\u00e9\\u20AC\\ud83d\\ude42 é\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        1));
    assert_string_equal(s->tensors[0].name, "\"\\/\b\f\n\r\tAAé€🙂 é");
    safetensors_free(s);
}

/* ---- defects */

static void broken_grammar_is_refused_at_its_byte(void **state)
{
    (void)state;
    assert_refused("", 0, "'{' expected at byte 8");
    assert_refused(" {}", 0, "'{' expected at byte 8");
    assert_refused("[]", 0, "'{' expected at byte 8");
    assert_refused("{", 0, "'\"' expected at byte 9");
    assert_refused("{}{}", 0, "the end of the header expected at byte 10");
    assert_refused("{" A, 24, "'}' expected");
    assert_refused("{" A ",}", 24, "'\"' expected");
    assert_refused("{" A " " B "}", 29, "'}' expected");
    assert_refused("{\"a\"}", 0, "':' expected at byte 12");
    assert_refused("{\"a\":{}}", 0, "'\"' expected");
    assert_refused("{\"a\":5}", 0, "'{' expected");
    assert_refused("{\"a\":{\"dtype\":5}}", 0, "'\"' expected");
    assert_refused("{\"a\":{\"shape\":5}}", 0, "'[' expected");
    assert_refused("{\"a\":{\"shape\":[1,]}}", 0, "a whole number that is not negative expected");
    assert_refused("{\"a\":{\"shape\":[1 2]}}", 0, "']' expected");
    assert_refused("{\"a\":{\"data_offsets\":[0]}}", 0, "',' expected");
    assert_refused("{\"a\":{\"data_offsets\":[0,1,2]}}", 0, "']' expected");
}

static void numbers_are_whole_and_in_range(void **state)
{
    const char *const wrong[] = { "-1", "+1", "01", "1.0", "1e3", "\"1\"", "null", "", "0x1" };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char header[200];
        snprintf(header, sizeof header, "{\"a\":{\"shape\":[%s]}}", wrong[i]);
        if (wrong[i][0] != '\0')
            assert_refused(header, 0, "expected at byte");
        snprintf(header, sizeof header, "{\"a\":{\"data_offsets\":[0,%s]}}", wrong[i]);
        assert_refused(header, 0, "expected at byte");
    }
    assert_refused("{\"a\":{\"shape\":[9223372036854775808]}}", 0, "a number of at most 63 bits");
    assert_refused("{\"a\":{\"shape\":[99999999999999999999999999]}}", 0,
                   "a number of at most 63 bits");
}

static void strings_are_json_and_utf8(void **state)
{
    (void)state;
    assert_refused("{\"a", 0, "'\"' or a printable character expected");
    assert_refused("{\"a\n\":1}", 0, "'\"' or a printable character expected");
    assert_refused("{\"\\x\":1}", 0, "an escape of JSON expected");
    assert_refused("{\"\\", 0, "an escape of JSON expected");
    assert_refused("{\"\\u12", 0, "four hexadecimal digits expected");
    assert_refused("{\"\\u12g4\":1}", 0, "four hexadecimal digits expected");
    assert_refused("{\"\\u0000\":1}", 0, "other than U+0000");
    assert_refused("{\"\\ud800\":1}", 0, "a pair of surrogates expected");
    assert_refused("{\"\\udc00\":1}", 0, "a pair of surrogates expected");
    assert_refused("{\"\\ud800\\u0041\":1}", 0, "a pair of surrogates expected");
    assert_refused("{\"\xff\":1}", 0, "byte 10 is not UTF-8");
}

static void fields_must_be_known_and_come_once(void **state)
{
    (void)state;
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"extra\":1}}", 4,
                   "unknown key 'extra'");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4,
                   "tensor 'a' has 'dtype' twice");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4,
                   "tensor 'a' lacks dtype, shape or data_offsets");
    assert_refused("{\"a\":{\"dtype\":\"F31\"}}", 4, "tensor 'a' has the unknown type 'F31'");
    assert_refused("{\"a\":{\"dtype\":\"f32\"}}", 4, "unknown type 'f32'");
    assert_refused("{\"a\":{\"dtype\":\"\"}}", 4, "unknown type ''");
    assert_refused("{\"a\":{\"shape\":[1,1,1,1,1,1,1,1,1]}}", 4,
                   "tensor 'a' has more than 8 dimensions");
    assert_refused("{" A ",\"a\":{\"dtype\":\"I8\",\"shape\":[5],\"data_offsets\":[24,29]}}", 29,
                   "the tensor 'a' is repeated");
    assert_refused("{" A ",\"\\u0061\":{\"dtype\":\"I8\",\"shape\":[5],\"data_offsets\":[24,29]}}",
                   29, "the tensor 'a' is repeated");
    assert_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "'__metadata__' is repeated");
    assert_refused("{\"__metadata__\":{\"k\":\"1\",\"j\":\"\",\"k\":\"2\"}}", 0,
                   "the metadata key 'k' is repeated");
    assert_refused("{\"__metadata__\":{\"k\":1}}", 0, "'\"' expected");
    assert_refused("{\"__metadata__\":{\"k\":{}}}", 0, "'\"' expected");
    assert_refused("{\"__metadata__\":[]}", 0, "'{' expected");
}

static void tensors_must_fill_the_data_without_hole_or_overlap(void **state)
{
    (void)state;
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]}}", 7,
                   "tensor 'a' needs 8 bytes, its offsets are 0 and 7");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,0]}}", 4,
                   "its offsets are 4 and 0");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
                   "tensor 'a' begins at 4 of the data, but the one before it ends at 0");
    assert_refused("{" A ",\"b\":{\"dtype\":\"I8\",\"shape\":[5],\"data_offsets\":[23,28]}}", 28,
                   "tensor 'b' begins at 23");
    assert_refused("{" A ",\"b\":{\"dtype\":\"I8\",\"shape\":[5],\"data_offsets\":[25,30]}}", 30,
                   "tensor 'b' begins at 25");
    assert_refused("{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24,
                   "tensor 'b' begins at 0");
    assert_refused("{" A "}", 25, "the tensors end at ");
    assert_refused("{}", 1, "the tensors end at 10, the file at 11");
    assert_refused("{" A "}", 23, "tensor 'a' needs 24 bytes at ");
}

static void shapes_whose_size_would_wrap_are_refused(void **state)
{
    (void)state;
    assert_refused(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
        "a shape that no file can hold");
    assert_refused(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
        "a shape that no file can hold");
    assert_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,9223372036854775807]}}",
        5, "the file ends at");
    assert_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,9223372036854775807],\"data_offsets\":[0,0]}}", 5,
        "a shape that no file can hold");
}

static void header_length_is_checked_against_limit_file_and_bytes(void **state)
{
    struct safetensors *s = NULL;
    char bytes[16] = { 0 };

    (void)state;
    assert_fails(safetensors_parse(&s, bytes, 0, 0, "m"), ALIBI_BAD_INPUT, "'m': it has no header");
    assert_fails(safetensors_parse(&s, bytes, 7, 7, "m"), ALIBI_BAD_INPUT, "'m': it has no header");
    bytes[0] = 9;
    assert_fails(safetensors_parse(&s, bytes, 16, 16, "m"), ALIBI_BAD_INPUT,
                 "its header needs 9 bytes at 8, the file ends at 16");
    assert_fails(safetensors_parse(&s, bytes, 16, 100, "m"), ALIBI_BAD_INPUT,
                 "its header needs 9 bytes, only 8 are there");
    memcpy(bytes, "\x01\xe1\xf5\x05\0\0\0\0", 8);
    assert_fails(safetensors_parse(&s, bytes, 16, INT64_MAX, "m"), ALIBI_BAD_INPUT,
                 "would have 100000001 bytes");
    memset(bytes, 0xFF, 8);
    assert_fails(safetensors_parse(&s, bytes, 16, INT64_MAX, "m"), ALIBI_BAD_INPUT,
                 "would have 18446744073709551615 bytes");
    assert_null(s);
}

/* ---- damage: no crash, no leak, and an error or a table that holds */

static void assert_holds(const struct safetensors *s, int64_t file_bytes)
{
    for (int i = 0; i < s->count; i++) {
        assert_true(s->tensors[i].begin >= LENGTH_BYTES);
        assert_true(s->tensors[i].begin <= s->tensors[i].end);
        assert_true(s->tensors[i].end <= file_bytes);
        assert_in_range(s->tensors[i].rank, 0, 8);
    }
}

/* Parses `length` bytes of a file of that size. */
static void parse_damaged(const char *bytes, size_t length, int64_t file_bytes)
{
    struct safetensors *s = NULL;
    size_t before = alibi_memory_now();

    if (parse_exact(&s, bytes, length, file_bytes) == ALIBI_OK)
        assert_holds(s, file_bytes);
    safetensors_free(s);
    assert_int_equal(alibi_memory_now(), before);
}

static const char whole[] = "{\"__metadata__\":{\"format\":\"pt\"}," A "," B "} ";

static void every_truncation_is_an_error(void **state)
{
    char file[FILE_MAX];
    size_t bytes = build(file, whole, strlen(whole));

    (void)state;
    for (size_t length = 0; length < bytes; length++) {
        struct safetensors *s = NULL;
        assert_int_equal(safetensors_parse(&s, file, length, (int64_t)length, "m"),
                         ALIBI_BAD_INPUT);
        parse_damaged(file, length, (int64_t)length);
    }
    for (int64_t data = 0; data < 29; data++)
        assert_refused(whole, data, "the file ends at");
    assert_parses(whole, 29);
}

static void every_flipped_bit_and_every_byte_value_is_survived(void **state)
{
    char file[FILE_MAX];
    size_t bytes = build(file, whole, strlen(whole));

    (void)state;
    for (size_t i = 0; i < bytes; i++) {
        char kept = file[i];
        for (int value = 0; value < 256; value++) {
            file[i] = (char)value;
            parse_damaged(file, bytes, (int64_t)bytes + 29);
        }
        file[i] = kept;
    }
}

/* A fixed number of random edits: bytes replaced, removed and doubled. */
static void random_edits_are_survived(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 20000; round++) {
        char header[2 * sizeof whole], file[FILE_MAX];
        size_t length = strlen(whole), bytes;
        memcpy(header, whole, length);
        for (uint64_t edit = 0; edit < 1 + round % 4; edit++) {
            struct random4 r = random_block(1, RANDOM_STREAM(RANDOM_BENCH, edit), round);
            size_t at = r.at[0] % length;
            if (r.at[1] % 3 == 0)
                header[at] = "{}[]:,\"\\019u "[r.at[2] % 13];
            else if (r.at[1] % 3 == 1)
                memmove(header + at, header + at + 1, --length - at);
            else
                memmove(header + at + 1, header + at, length++ - at);
        }
        bytes = build(file, header, length);
        parse_damaged(file, bytes, (int64_t)bytes + 29);
    }
}

static alibi_status parse_whole(void *subject)
{
    struct safetensors *s = NULL;
    alibi_status status = parse(&s, whole, 29);

    (void)subject;
    safetensors_free(s);
    return status;
}

static void every_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    assert_true(fail_each_call("memory", parse_whole, NULL, ALIBI_MEMORY, "not enough memory") >=
                4);
}

/* As many tensors as can be said in 2 MB. */
static void memory_stays_a_small_multiple_of_the_header(void **state)
{
    struct text header = { 0 };
    struct safetensors *s = NULL;
    char *file;
    size_t bytes, before;

    (void)state;
    text_append(&header, "{");
    for (int i = 0; header.length < 2000000; i++)
        text_append(&header, "%s\"%d\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    i > 0 ? "," : "", i);
    text_append(&header, "}");
    bytes = header.length + LENGTH_BYTES;
    file = malloc(bytes);
    assert_non_null(file);
    for (int i = 0; i < LENGTH_BYTES; i++)
        file[i] = (char)(header.length >> 8 * i);
    memcpy(file + LENGTH_BYTES, header.data, header.length);
    text_free(&header);
    before = alibi_memory_now();
    alibi_memory_reset_peak();
    assert_ok(safetensors_parse(&s, file, bytes, (int64_t)bytes, "m"));
    assert_true(s->count > 30000);
    assert_true(alibi_memory_peak() - before < 10 * bytes);
    safetensors_free(s);
    free(file);
}

/* ---- files and writing */

static void written_header_reads_back_from_a_file(void **state)
{
    char *folder = temporary_folder();
    const char *path = within(folder, "m.safetensors");
    struct safetensor tensors[] = {
        { .name = (char *)"blocks.0.\"w\"", .type = "F32", .rank = 2, .shape = { 3, 2 } },
        { .name = (char *)"scalar", .type = "F32", .rank = 0 },
        { .name = (char *)"empty", .type = "BF16", .rank = 1, .shape = { 0 } },
        { .name = (char *)"last", .type = "F16", .rank = 1, .shape = { 5 } }
    };
    const int64_t bytes[] = { 24, 4, 0, 10 };
    struct text file = { 0 };
    struct safetensors *s = NULL;

    (void)state;
    assert_ok(safetensors_header(&file, tensors, 4));
    assert_int_equal(file.length % 8, 0);
    assert_int_equal(tensors[0].begin, file.length);
    assert_non_null(strstr(file.data + LENGTH_BYTES, "\"__metadata__\":{\"format\":\"pt\"}"));
    text_append_bytes(&file, (char[38]){ 0 }, 38);
    write_file(path, file.data, file.length);
    assert_ok(safetensors_open(&s, path));
    assert_int_equal(s->count, 4);
    for (int i = 0; i < 4; i++) {
        const struct safetensor *t = &s->tensors[i];
        assert_string_equal(t->name, tensors[i].name);
        assert_string_equal(t->type, tensors[i].type);
        assert_int_equal(t->rank, tensors[i].rank);
        assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
        assert_int_equal(t->begin, tensors[i].begin);
        assert_int_equal(t->end, tensors[i].end);
        assert_int_equal(t->end - t->begin, bytes[i]);
    }
    safetensors_free(s);
    text_free(&file);
    remove_temporary_folder(folder);
}

static void same_tensors_give_the_same_header(void **state)
{
    struct safetensor t = { .name = (char *)"w", .type = "F32", .rank = 1, .shape = { 2 } };
    struct text file = { 0 };
    const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";

    (void)state;
    assert_ok(safetensors_header(&file, &t, 1));
    assert_memory_equal(file.data + LENGTH_BYTES, expected, strlen(expected));
    assert_int_equal(strspn(file.data + LENGTH_BYTES + strlen(expected), " "),
                     file.length - LENGTH_BYTES - strlen(expected));
    text_free(&file);
    t.shape[0] = INT64_MAX;
    assert_fails(safetensors_header(&file, &t, 1), ALIBI_BAD_INPUT,
                 "tensor 'w': its shape is more than a file can hold");
    text_free(&file);
}

static void files_that_cannot_be_opened_are_named(void **state)
{
    char *folder = temporary_folder();
    const char *path = within(folder, "m.safetensors");
    struct safetensors *s = NULL;

    (void)state;
    assert_fails(safetensors_open(&s, path), ALIBI_BAD_INPUT,
                 "m.safetensors': No such file or directory");
    assert_fails(safetensors_open(&s, folder), ALIBI_BAD_INPUT, "it is a folder");
    write_file(path, "", 0);
    assert_fails(safetensors_open(&s, path), ALIBI_BAD_INPUT, "m.safetensors': it has no header");
    write_file(path, "\x02\0\0\0\0\0\0\0{", 9);
    assert_fails(safetensors_open(&s, path), ALIBI_BAD_INPUT,
                 "its header needs 2 bytes at 8, the file ends at 9");
    assert_null(s);
    remove_temporary_folder(folder);
}

static alibi_status open_file(void *path)
{
    struct safetensors *s = NULL;
    alibi_status status = safetensors_open(&s, path);

    safetensors_free(s);
    return status;
}

static void every_failing_file_call_is_reported_and_leaks_nothing(void **state)
{
    char *folder = temporary_folder(), *path = strdup(within(folder, "m.safetensors"));
    int failures;

    (void)state;
    write_file(path, "\x02\0\0\0\0\0\0\0{}", 10);
    failures =
        fail_each_call("file", open_file, path, ALIBI_IO, "m.safetensors': Input/output error");
    assert_true(failures >= 4); /* open, fstat, two reads */
    free(path);
    remove_temporary_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_in_the_order_of_their_data_with_places_in_the_file),
        cmocka_unit_test(every_type_has_its_size),
        cmocka_unit_test(scalars_empty_tensors_and_empty_files_are_fine),
        cmocka_unit_test(names_may_have_escapes),
        cmocka_unit_test(broken_grammar_is_refused_at_its_byte),
        cmocka_unit_test(numbers_are_whole_and_in_range),
        cmocka_unit_test(strings_are_json_and_utf8),
        cmocka_unit_test(fields_must_be_known_and_come_once),
        cmocka_unit_test(tensors_must_fill_the_data_without_hole_or_overlap),
        cmocka_unit_test(shapes_whose_size_would_wrap_are_refused),
        cmocka_unit_test(header_length_is_checked_against_limit_file_and_bytes),
        cmocka_unit_test(every_truncation_is_an_error),
        cmocka_unit_test(every_flipped_bit_and_every_byte_value_is_survived),
        cmocka_unit_test(random_edits_are_survived),
        cmocka_unit_test(every_failing_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(memory_stays_a_small_multiple_of_the_header),
        cmocka_unit_test(written_header_reads_back_from_a_file),
        cmocka_unit_test(same_tensors_give_the_same_header),
        cmocka_unit_test(files_that_cannot_be_opened_are_named),
        cmocka_unit_test(every_failing_file_call_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
