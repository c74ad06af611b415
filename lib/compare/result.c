/* result.c - the results of a method so far, so that an interrupted comparison resumes
 *
 * result.json is a sealed file. Tables of fields name the numbers in it; writing and reading both
 * follow them. Numbers read back exactly. null is infinity (a perplexity that overflowed), or a
 * device that is not known because an older version trained the model. */
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

/* ---- a method's results */

alibi_status result_init(struct alibi_compare_method *m, const char *name, int count)
{
    *m = (struct alibi_compare_method){ 0 };
    snprintf(m->name, sizeof m->name, "%s", name);
    TRY_RETURN(NEW_ZERO_ARRAY(&m->by_length, count, "a method's results"));
    return NEW_ZERO_ARRAY(&m->sliding, count, "a method's results");
}

void result_fini(struct alibi_compare_method *m)
{
    mem_free(m->by_length);
    mem_free(m->sliding);
    *m = (struct alibi_compare_method){ 0 };
}

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

static void write_fields(struct json_writer *w, const struct field *fields, int count,
                         const void *values)
{
    for (int i = 0; i < count; i++) {
        const char *at = (const char *)values + fields[i].offset;

        if (fields[i].type == FIELD_REAL)
            json_write_real(w, fields[i].name, *(const double *)at);
        else if (fields[i].type == FIELD_SIZE)
            json_write_int(w, fields[i].name, (int64_t) * (const size_t *)at);
        else
            json_write_int(w, fields[i].name, *(const int64_t *)at);
    }
}

static void write_evals(struct json_writer *w, const char *key,
                        const struct alibi_eval_result *evals, int count)
{
    json_write_array(w, key);
    for (int i = 0; i < count; i++) {
        json_write_object_line(w, NULL);
        write_fields(w, eval_fields, COUNT(eval_fields), &evals[i]);
        json_write_array_line(w, "by_position");
        for (int b = 0; b < evals[i].bins; b++) {
            json_write_object_line(w, NULL);
            write_fields(w, bin_fields, COUNT(bin_fields), &evals[i].by_position[b]);
            json_write_end(w);
        }
        json_write_end(w);
        json_write_end(w);
    }
    json_write_end(w);
}

alibi_status result_write(const struct alibi_compare_method *m, const char *path)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);

    json_write_object(&w, NULL);
    json_write_string(&w, "name", m->name);
    write_fields(&w, method_fields, COUNT(method_fields), m);
    if (m->device[0] != '\0') {
        json_write_string(&w, "device", m->device);
        json_write_string(&w, "precision", alibi_precision_name(m->precision));
    } else { /* present, so that the file is not taken for one that predates devices */
        json_write_null(&w, "device");
        json_write_null(&w, "precision");
    }
    write_evals(&w, "by_length", m->by_length, m->lengths);
    write_evals(&w, "sliding", m->sliding, m->sliding_lengths);
    write_evals(&w, "stream", &m->stream, m->stream.length > 0 ? 1 : 0);
    json_write_seal(&w);
    status = sealed_write(path, &json);
    text_free(&json);
    return status;
}

/* ---- reading */

static alibi_status read_fields(const json_t *object, const struct field *fields, int count,
                                void *values, const char *path)
{
    for (int i = 0; i < count; i++) {
        const struct field *f = &fields[i];
        char *at = (char *)values + f->offset;
        int64_t number;

        if (f->type == FIELD_REAL && json_is_null(json_object_get(object, f->name))) {
            *(double *)at = INFINITY;
        } else if (f->type == FIELD_REAL) {
            TRY_RETURN(json_get_real(object, f->name, (double *)at, path));
        } else {
            TRY_RETURN(json_get_int(object, f->name, 0, INT64_MAX, &number, path));
            if (f->type == FIELD_SIZE)
                *(size_t *)at = (size_t)number;
            else
                *(int64_t *)at = number;
        }
    }
    return ALIBI_OK;
}

static alibi_status read_device(const json_t *file, struct alibi_compare_method *m,
                                const char *path)
{
    const char *device, *precision;
    int p = ALIBI_FP32;

    if (json_is_null(json_object_get(file, "device")))
        return ALIBI_OK;
    TRY_RETURN(json_get_text(file, "device", &device, path));
    TRY_RETURN(json_get_text(file, "precision", &precision, path));
    if (strlen(device) >= sizeof m->device)
        return fail(ALIBI_BAD_INPUT, "'%s': 'device' is longer than %zu bytes", path,
                    sizeof m->device - 1);
    while (p <= ALIBI_BF16 && strcmp(precision, alibi_precision_name(p)) != 0)
        p++;
    if (p > ALIBI_BF16)
        return fail(ALIBI_BAD_INPUT, "'%s': 'precision' is neither fp32 nor bf16", path);
    memcpy(m->device, device, strlen(device) + 1);
    m->precision = p;
    return ALIBI_OK;
}

/* An array of at most `most` members. */
static alibi_status read_array(const json_t *object, const char *key, int most,
                               const json_t **array, int *count, const char *path)
{
    *array = json_object_get(object, key);
    if (!json_is_array(*array) || json_array_size(*array) > (size_t)most)
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not an array of at most %d", path, key, most);
    *count = (int)json_array_size(*array);
    return ALIBI_OK;
}

/* Lengths: those of the evaluations, in order; NULL: one evaluation of any length. */
static alibi_status read_evals(const json_t *file, const char *key, enum alibi_protocol protocol,
                               struct alibi_eval_result *evals, int *count,
                               const struct alibi_int_list *lengths, const char *path)
{
    const json_t *array, *bins;

    TRY_RETURN(read_array(file, key, lengths ? lengths->count : 1, &array, count, path));
    for (int i = 0; i < *count; i++) {
        const json_t *object = json_array_get(array, (size_t)i);
        struct alibi_eval_result *e = &evals[i];

        *e = (struct alibi_eval_result){ .protocol = protocol };
        TRY_RETURN(read_fields(object, eval_fields, COUNT(eval_fields), e, path));
        TRY_RETURN(read_array(object, "by_position", ALIBI_POSITION_BINS, &bins, &e->bins, path));
        for (int b = 0; b < e->bins; b++)
            TRY_RETURN(read_fields(json_array_get(bins, (size_t)b), bin_fields, COUNT(bin_fields),
                                   &e->by_position[b], path));
        if (lengths && e->length != lengths->at[i])
            return fail(ALIBI_BAD_INPUT, "'%s': entry %d of '%s' has length %lld, not %lld", path,
                        i, key, (long long)e->length, (long long)lengths->at[i]);
        if (e->tokens == 0)
            *e = result_none(e->length);
    }
    return ALIBI_OK;
}

alibi_status result_read(struct alibi_compare_method *m, const struct alibi_int_list *lengths,
                         const char *path)
{
    alibi_status status;
    json_t *file = NULL;
    const char *name;
    int streams;

    TRY(sealed_read(&file, path, RESULT_BYTES_MAX));
    TRY(json_get_text(file, "name", &name, path));
    if (strcmp(name, m->name) != 0) {
        status = fail(ALIBI_BAD_INPUT, "'%s' holds the results of '%s', not of '%s'; remove it",
                      path, name, m->name);
        goto out;
    }
    TRY(read_fields(file, method_fields, COUNT(method_fields), m, path));
    if (json_object_get(file, "stream") == NULL || json_object_get(file, "device") == NULL)
        goto out; /* it predates streams or device names */
    TRY(read_device(file, m, path));
    TRY(read_evals(file, "by_length", ALIBI_NONOVERLAPPING, m->by_length, &m->lengths, lengths,
                   path));
    TRY(read_evals(file, "sliding", ALIBI_SLIDING, m->sliding, &m->sliding_lengths, lengths, path));
    TRY(read_evals(file, "stream", ALIBI_STREAM, &m->stream, &streams, NULL, path));
out:
    json_decref(file);
    return status;
}
