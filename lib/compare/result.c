/* result.c - what a method has shown so far, so that an interrupted comparison goes on where it
 * stopped
 *
 * Tables of fields say what numbers the file holds; writing and reading both follow them. Real
 * numbers are written so that they read back the same; null stands for infinity (a perplexity that
 * overflowed), and for a device that is not known. The last member is the checksum of all before
 * it. A file is accepted if writing what was read from it gives the same bytes: one altered bit and
 * it is not. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "compare/compare.h"

enum { RESULT_BYTES_MAX = 1 << 24 };

enum field_type { FIELD_INT, FIELD_SIZE, FIELD_REAL };

struct field {
    const char *name;
    enum field_type type;
    size_t offset;
};

/* clang-format off */
#define METHOD(kind, name) { #name, FIELD_##kind, offsetof(struct alibi_compare_method, name) }
#define EVAL(kind, name) { #name, FIELD_##kind, offsetof(struct alibi_eval_result, name) }
#define BIN(kind, name) { #name, FIELD_##kind, offsetof(struct alibi_position_loss, name) }
/* clang-format on */
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct field method_fields[] = {
    METHOD(REAL, train_tokens_per_s), METHOD(REAL, train_seconds), METHOD(REAL, train_loss),
    METHOD(SIZE, peak_bytes),         METHOD(INT, parameters),
};

static const struct field eval_fields[] = {
    EVAL(INT, length),          EVAL(INT, stride),      EVAL(REAL, nll),
    EVAL(REAL, standard_error), EVAL(REAL, ppl),        EVAL(REAL, word_ppl),
    EVAL(REAL, bits_per_byte),  EVAL(INT, tokens),      EVAL(INT, words),
    EVAL(INT, bytes),           EVAL(REAL, seconds),    EVAL(REAL, tokens_per_s),
    EVAL(SIZE, peak_bytes),     EVAL(REAL, tiles_used), EVAL(REAL, attention_seconds),
};

static const struct field bin_fields[] = { BIN(INT, first), BIN(INT, last), BIN(INT, tokens),
                                           BIN(REAL, nll) };

struct alibi_eval_result result_none(int64_t length)
{
    return (struct alibi_eval_result){
        .length = length,
        .stride = length,
        .protocol = ALIBI_NONOVERLAPPING,
        .nll = NAN,
        .standard_error = NAN,
        .ppl = NAN,
        .word_ppl = NAN,
        .bits_per_byte = NAN,
    };
}

/* ---- writing */

static alibi_status write_field(struct text *json, const struct field *f, const void *values)
{
    const char *at = (const char *)values + f->offset;

    TRY_RETURN(text_append(json, "\"%s\": ", f->name));
    switch (f->type) {
    case FIELD_INT:
        return text_append(json, "%lld", (long long)*(const int64_t *)at);
    case FIELD_SIZE:
        return text_append(json, "%zu", *(const size_t *)at);
    default:
        return json_append_real(json, *(const double *)at);
    }
}

/* The fields as members, each followed by `end` but for the last. */
static alibi_status write_fields(struct text *json, const struct field *fields, int count,
                                 const void *values, const char *end)
{
    for (int i = 0; i < count; i++) {
        TRY_RETURN(write_field(json, &fields[i], values));
        if (i + 1 < count)
            TRY_RETURN(text_append(json, "%s", end));
    }
    return ALIBI_OK;
}

/* Not known where an older version trained: null, so that the file is not taken for an older one
 * again. */
static alibi_status write_device(struct text *json, const struct alibi_compare_method *m)
{
    if (m->device[0] == '\0')
        return text_append(json, ",\n  \"device\": null,\n  \"precision\": null");
    TRY_RETURN(text_append(json, ",\n  \"device\": "));
    TRY_RETURN(json_append_string(json, m->device, strlen(m->device)));
    return text_append(json, ",\n  \"precision\": \"%s\"", alibi_precision_name(m->precision));
}

static alibi_status write_eval(struct text *json, const struct alibi_eval_result *e)
{
    TRY_RETURN(text_append(json, "\n    {"));
    TRY_RETURN(write_fields(json, eval_fields, COUNT(eval_fields), e, ", "));
    TRY_RETURN(text_append(json, ",\n     \"by_position\": ["));
    for (int b = 0; b < e->bins; b++) {
        TRY_RETURN(text_append(json, "%s\n      {", b > 0 ? "," : ""));
        TRY_RETURN(write_fields(json, bin_fields, COUNT(bin_fields), &e->by_position[b], ", "));
        TRY_RETURN(text_append(json, "}"));
    }
    return text_append(json, "]}");
}

static alibi_status write_evals(struct text *json, const char *key,
                                const struct alibi_eval_result *evals, int count)
{
    TRY_RETURN(text_append(json, "  \"%s\": [", key));
    for (int i = 0; i < count; i++) {
        TRY_RETURN(text_append(json, "%s", i > 0 ? "," : ""));
        TRY_RETURN(write_eval(json, &evals[i]));
    }
    return text_append(json, "],\n");
}

static alibi_status format_result(struct text *json, const struct alibi_compare_method *m)
{
    TRY_RETURN(text_append(json, "{\n  \"name\": \"%s\",\n  ", m->name));
    TRY_RETURN(write_fields(json, method_fields, COUNT(method_fields), m, ",\n  "));
    TRY_RETURN(write_device(json, m));
    TRY_RETURN(text_append(json, ",\n"));
    TRY_RETURN(write_evals(json, "by_length", m->by_length, m->lengths));
    TRY_RETURN(write_evals(json, "sliding", m->sliding, m->sliding_lengths));
    TRY_RETURN(write_evals(json, "stream", &m->stream, m->stream.length > 0 ? 1 : 0));
    return text_append(json, "  \"checksum\": %u\n}\n", checksum(0, json->data, json->length));
}

alibi_status result_write(const struct alibi_compare_method *m, const char *path)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(format_result(&json, m));
    TRY(file_replace(path, json.data, json.length));
out:
    text_free(&json);
    return status;
}

/* ---- reading */

static alibi_status read_real(const json_t *object, const char *key, double *out, const char *path)
{
    if (!json_is_null(json_object_get(object, key)))
        return json_get_real(object, key, out, path);
    *out = INFINITY;
    return ALIBI_OK;
}

static alibi_status read_field(const json_t *object, const struct field *f, void *values,
                               const char *path)
{
    char *at = (char *)values + f->offset;
    int64_t number;

    if (f->type == FIELD_REAL)
        return read_real(object, f->name, (double *)at, path);
    TRY_RETURN(json_get_int(object, f->name, 0, INT64_MAX, &number, path));
    if (f->type == FIELD_SIZE)
        *(size_t *)at = (size_t)number;
    else
        *(int64_t *)at = number;
    return ALIBI_OK;
}

static alibi_status read_fields(const json_t *object, const struct field *fields, int count,
                                void *values, const char *path)
{
    for (int i = 0; i < count; i++)
        TRY_RETURN(read_field(object, &fields[i], values, path));
    return ALIBI_OK;
}

static alibi_status read_precision(const json_t *file, int *precision, const char *path)
{
    const char *name;

    TRY_RETURN(json_get_text(file, "precision", &name, path));
    for (int p = ALIBI_FP32; p <= ALIBI_BF16; p++)
        if (strcmp(name, alibi_precision_name(p)) == 0) {
            *precision = p;
            return ALIBI_OK;
        }
    return fail(ALIBI_BAD_INPUT, "'%s': 'precision' is neither fp32 nor bf16", path);
}

static alibi_status read_device(const json_t *file, struct alibi_compare_method *m,
                                const char *path)
{
    const char *device;

    if (json_is_null(json_object_get(file, "device")))
        return ALIBI_OK;
    TRY_RETURN(json_get_text(file, "device", &device, path));
    if (strlen(device) >= sizeof m->device)
        return fail(ALIBI_BAD_INPUT, "'%s': 'device' is longer than %zu bytes", path,
                    sizeof m->device - 1);
    TRY_RETURN(read_precision(file, &m->precision, path));
    memcpy(m->device, device, strlen(device) + 1);
    return ALIBI_OK;
}

/* Members of an array, `most` of them at most. */
static alibi_status read_count(const json_t *object, const char *key, int most,
                               const json_t **array, int *count, const char *path)
{
    *array = json_object_get(object, key);
    if (!json_is_array(*array) || json_array_size(*array) > (size_t)most)
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not an array of at most %d", path, key, most);
    *count = (int)json_array_size(*array);
    return ALIBI_OK;
}

static alibi_status read_eval(const json_t *object, enum alibi_protocol protocol,
                              struct alibi_eval_result *e, const char *path)
{
    const json_t *bins;

    *e = (struct alibi_eval_result){ .protocol = protocol };
    TRY_RETURN(read_fields(object, eval_fields, COUNT(eval_fields), e, path));
    TRY_RETURN(read_count(object, "by_position", ALIBI_POSITION_BINS, &bins, &e->bins, path));
    for (int b = 0; b < e->bins; b++)
        TRY_RETURN(read_fields(json_array_get(bins, (size_t)b), bin_fields, COUNT(bin_fields),
                               &e->by_position[b], path));
    if (e->tokens == 0)
        *e = result_none(e->length);
    return ALIBI_OK;
}

static alibi_status read_evals(const json_t *file, enum alibi_protocol protocol,
                               struct alibi_eval_result *evals, int *count,
                               const struct alibi_int_list *lengths, const char *path)
{
    const json_t *array;

    TRY_RETURN(read_count(file, protocol == ALIBI_SLIDING ? "sliding" : "by_length", lengths->count,
                          &array, count, path));
    for (int i = 0; i < *count; i++) {
        TRY_RETURN(read_eval(json_array_get(array, (size_t)i), protocol, &evals[i], path));
        if (evals[i].length != lengths->at[i])
            return fail(ALIBI_BAD_INPUT, "'%s': length %lld stands where %lld should", path,
                        (long long)evals[i].length, (long long)lengths->at[i]);
    }
    return ALIBI_OK;
}

/* Done, if it is there: a method that cannot stream has an entry without tokens. */
static alibi_status read_stream(const json_t *file, struct alibi_eval_result *stream,
                                const char *path)
{
    const json_t *array;
    int count = 0;

    TRY_RETURN(read_count(file, "stream", 1, &array, &count, path));
    if (count == 1)
        TRY_RETURN(read_eval(json_array_get(array, 0), ALIBI_STREAM, stream, path));
    return ALIBI_OK;
}

/* Whether the file is whole, but of before there were streams, or of before devices were named. */
static bool is_older(const json_t *file, const char *bytes)
{
    const char *end = strstr(bytes, "  \"checksum\"");
    bool lacks = json_object_get(file, "stream") == NULL || json_object_get(file, "device") == NULL;

    return lacks && end != NULL &&
           json_integer_value(json_object_get(file, "checksum")) ==
               (json_int_t)checksum(0, bytes, (size_t)(end - bytes));
}

static alibi_status check_bytes(const struct alibi_compare_method *m, const char *bytes,
                                size_t length, const char *path)
{
    alibi_status status;
    struct text again = { 0 };

    TRY(format_result(&again, m));
    if (again.length != length || memcmp(again.data, bytes, length) != 0)
        status =
            fail(ALIBI_BAD_INPUT,
                 "'%s' was altered or damaged: remove it, and the method is evaluated again", path);
out:
    text_free(&again);
    return status;
}

alibi_status result_read(struct alibi_compare_method *m, const char *name,
                         const struct alibi_int_list *lengths, const char *path)
{
    alibi_status status;
    char *bytes = NULL;
    size_t length;
    json_t *file = NULL;

    TRY(file_read_all(&bytes, &length, path, RESULT_BYTES_MAX));
    TRY(json_parse(&file, bytes, length, path));
    TRY(read_fields(file, method_fields, COUNT(method_fields), m, path));
    snprintf(m->name, sizeof m->name, "%s", name);
    if (is_older(file, bytes))
        goto out;
    TRY(read_device(file, m, path));
    TRY(read_evals(file, ALIBI_NONOVERLAPPING, m->by_length, &m->lengths, lengths, path));
    TRY(read_evals(file, ALIBI_SLIDING, m->sliding, &m->sliding_lengths, lengths, path));
    TRY(read_stream(file, &m->stream, path));
    TRY(check_bytes(m, bytes, length, path));
out:
    json_decref(file);
    mem_free(bytes);
    return status;
}
