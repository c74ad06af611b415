/* result.c - the results of one training so far, so that an interrupted comparison resumes
 *
 * result.json is a sealed file. Tables of fields name the numbers in it; writing and reading both
 * follow them. Numbers read back exactly. null is infinity (a perplexity that overflowed), or a
 * device that is not known because an older version trained the model. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "compare/compare.h"
#include "compare/trial.h"

enum { RESULT_BYTES_MAX = 1 << 24 };

#define TRAINED(kind, name) JSON_FIELD(kind, struct alibi_compare_seed, name)
#define EVAL(kind, name) JSON_FIELD(kind, struct alibi_eval_result, name)
#define PART(kind, name) JSON_FIELD(kind, struct alibi_eval_part, name)
#define BIN(kind, name) JSON_FIELD(kind, struct alibi_position_loss, name)

static const struct json_field training_fields[] = {
    TRAINED(UNBOUNDED, train_tokens_per_s),
    TRAINED(UNBOUNDED, train_seconds),
    TRAINED(UNBOUNDED, train_loss),
    TRAINED(SIZE, peak_bytes),
    TRAINED(INT, parameters),
};

static const struct json_field eval_fields[] = {
    EVAL(INT, length),
    EVAL(INT, stride),
    EVAL(UNBOUNDED, nll),
    EVAL(UNBOUNDED, standard_error),
    EVAL(UNBOUNDED, ppl),
    EVAL(UNBOUNDED, word_ppl),
    EVAL(UNBOUNDED, bits_per_byte),
    EVAL(INT, tokens),
    EVAL(INT, words),
    EVAL(INT, bytes),
    EVAL(UNBOUNDED, seconds),
    EVAL(UNBOUNDED, tokens_per_s),
    EVAL(SIZE, peak_bytes),
    EVAL(UNBOUNDED, tiles_used),
    EVAL(UNBOUNDED, attention_seconds),
    EVAL(INT, block),
    EVAL(INT, blocks),
    EVAL(INT, start),
    EVAL(INT, available),
};

static const struct json_field bin_fields[] = { BIN(INT, first), BIN(INT, last), BIN(INT, tokens),
                                                BIN(UNBOUNDED, nll) };

static const struct json_field part_fields[] = { PART(INT, tokens), PART(UNBOUNDED, nll) };

/* ---- the results of one training */

alibi_status result_init(struct alibi_compare_seed *s, int64_t seed, int count)
{
    alibi_status status;

    *s = (struct alibi_compare_seed){ .seed = seed };
    TRY(NEW_ZERO_ARRAY(&s->by_length, count, "a method's results"));
    TRY(NEW_ZERO_ARRAY(&s->sliding, count, "a method's results"));
out:
    if (status != ALIBI_OK)
        result_fini(s);
    return status;
}

void result_fini(struct alibi_compare_seed *s)
{
    mem_free(s->by_length);
    mem_free(s->sliding);
    *s = (struct alibi_compare_seed){ 0 };
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

void result_write_eval(struct json_writer *w, const struct alibi_eval_result *e)
{
    json_write_fields(w, eval_fields, COUNT(eval_fields), e);
    json_write_array_line(w, "by_position");
    for (int b = 0; b < e->bins; b++) {
        json_write_object_line(w, NULL);
        json_write_fields(w, bin_fields, COUNT(bin_fields), &e->by_position[b]);
        json_write_end(w);
    }
    json_write_end(w);
    json_write_array_line(w, "parts");
    for (int k = 0; k < e->parts; k++) {
        json_write_object_line(w, NULL);
        json_write_fields(w, part_fields, COUNT(part_fields), &e->part[k]);
        json_write_end(w);
    }
    json_write_end(w);
}

static void write_evals(struct json_writer *w, const char *key,
                        const struct alibi_eval_result *evals, int count)
{
    json_write_array(w, key);
    for (int i = 0; i < count; i++) {
        json_write_object_line(w, NULL);
        result_write_eval(w, &evals[i]);
        json_write_end(w);
    }
    json_write_end(w);
}

/* null: not known, and the file is not taken for one that predates such names. */
static void write_name(struct json_writer *w, const char *key, const char *name)
{
    if (name[0] != '\0')
        json_write_string(w, key, name);
    else
        json_write_null(w, key);
}

void result_write_cost(struct json_writer *w, const struct alibi_compare_seed *s)
{
    json_write_int(w, "seed", s->seed);
    json_write_fields(w, training_fields, COUNT(training_fields), s);
    write_name(w, "device", s->device);
    write_name(w, "precision", s->device[0] != '\0' ? alibi_precision_name(s->precision) : "");
    write_name(w, "machine", s->machine);
    write_name(w, "date", s->date);
    write_name(w, "version", s->version);
}

alibi_status result_write(const struct alibi_compare_seed *s, const char *method, const char *path)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);

    json_write_object(&w, NULL);
    json_write_string(&w, "name", method);
    result_write_cost(&w, s);
    write_evals(&w, "by_length", s->by_length, s->lengths);
    write_evals(&w, "sliding", s->sliding, s->sliding_lengths);
    write_evals(&w, "stream", &s->stream, s->stream.length > 0 ? 1 : 0);
    write_evals(&w, "passage", &s->passage, s->passage.length > 0 ? 1 : 0);
    json_write_seal(&w);
    status = sealed_write(path, &json);
    text_free(&json);
    return status;
}

/* ---- reading */

/* A name that is null or, in a file of an older version, absent is empty. */
static alibi_status read_name(const json_t *file, const char *key, char *name, size_t size,
                              const char *path)
{
    const json_t *value = json_object_get(file, key);
    const char *text;

    name[0] = '\0';
    if (value == NULL || json_is_null(value))
        return ALIBI_OK;
    TRY_RETURN(json_get_text(file, key, &text, path));
    if (strlen(text) >= size)
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is longer than %zu bytes", path, key, size - 1);
    memcpy(name, text, strlen(text) + 1);
    return ALIBI_OK;
}

static alibi_status read_origin(const json_t *file, struct alibi_compare_seed *s, const char *path)
{
    char precision[ALIBI_NAME_MAX], device[sizeof s->device];
    int p = ALIBI_FP32;

    TRY_RETURN(read_name(file, "device", device, sizeof device, path));
    TRY_RETURN(read_name(file, "precision", precision, sizeof precision, path));
    while (device[0] != '\0' && p <= ALIBI_BF16 && strcmp(precision, alibi_precision_name(p)) != 0)
        p++;
    if (p > ALIBI_BF16)
        return fail(ALIBI_BAD_INPUT, "'%s': 'precision' is neither fp32 nor bf16", path);
    memcpy(s->device, device, sizeof device);
    s->precision = device[0] != '\0' ? p : 0;
    TRY_RETURN(read_name(file, "machine", s->machine, sizeof s->machine, path));
    TRY_RETURN(read_name(file, "date", s->date, sizeof s->date, path));
    return read_name(file, "version", s->version, sizeof s->version, path);
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

alibi_status result_read_eval(const json_t *object, int protocol, struct alibi_eval_result *e,
                              const char *path)
{
    const json_t *bins, *parts;

    *e = (struct alibi_eval_result){ .protocol = protocol };
    TRY_RETURN(json_read_fields(object, eval_fields, COUNT(eval_fields), e, path));
    TRY_RETURN(read_array(object, "by_position", ALIBI_POSITION_BINS, &bins, &e->bins, path));
    for (int b = 0; b < e->bins; b++)
        TRY_RETURN(json_read_fields(json_array_get(bins, (size_t)b), bin_fields, COUNT(bin_fields),
                                    &e->by_position[b], path));
    TRY_RETURN(read_array(object, "parts", ALIBI_EVAL_PARTS, &parts, &e->parts, path));
    for (int k = 0; k < e->parts; k++)
        TRY_RETURN(json_read_fields(json_array_get(parts, (size_t)k), part_fields,
                                    COUNT(part_fields), &e->part[k], path));
    if (e->tokens == 0)
        *e = result_none(e->length);
    return ALIBI_OK;
}

/* Lengths: those of the evaluations, in order; NULL: one evaluation of any length. */
static alibi_status read_evals(const json_t *file, const char *key, enum alibi_protocol protocol,
                               struct alibi_eval_result *evals, int *count,
                               const struct alibi_int_list *lengths, const char *path)
{
    const json_t *array;

    TRY_RETURN(read_array(file, key, lengths ? lengths->count : 1, &array, count, path));
    for (int i = 0; i < *count; i++) {
        TRY_RETURN(result_read_eval(json_array_get(array, (size_t)i), protocol, &evals[i], path));
        if (lengths && evals[i].length != lengths->at[i])
            return fail(ALIBI_BAD_INPUT, "'%s': entry %d of '%s' has length %lld, not %lld", path,
                        i, key, (long long)evals[i].length, (long long)lengths->at[i]);
    }
    return ALIBI_OK;
}

alibi_status result_read_cost(const json_t *file, struct alibi_compare_seed *s, const char *path)
{
    TRY_RETURN(json_read_fields(file, training_fields, COUNT(training_fields), s, path));
    return read_origin(file, s, path);
}

alibi_status result_read(struct alibi_compare_seed *s, const char *method,
                         const struct alibi_int_list *lengths, const char *path)
{
    alibi_status status;
    json_t *file = NULL;
    const char *name;
    bool current;
    int64_t seed = s->seed;
    int streams;

    TRY(sealed_read(&file, path, RESULT_BYTES_MAX));
    TRY(json_get_text(file, "name", &name, path));
    /* Older versions had one seed, and scored other tokens: their evaluations are repeated. */
    current = json_object_get(file, "seed") != NULL;
    if (current)
        TRY(json_get_int(file, "seed", INT64_MIN, INT64_MAX, &seed, path));
    if (strcmp(name, method) != 0 || seed != s->seed)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' holds the results of '%s' with seed %lld, not of '%s' with seed %lld; "
                 "remove it",
                 path, name, (long long)seed, method, (long long)s->seed));
    TRY(result_read_cost(file, s, path));
    if (!current)
        goto out;
    TRY(read_evals(file, "by_length", ALIBI_NONOVERLAPPING, s->by_length, &s->lengths, lengths,
                   path));
    TRY(read_evals(file, "sliding", ALIBI_SLIDING, s->sliding, &s->sliding_lengths, lengths, path));
    TRY(read_evals(file, "stream", ALIBI_STREAM, &s->stream, &streams, NULL, path));
    TRY(read_evals(file, "passage", ALIBI_NONOVERLAPPING, &s->passage, &streams, NULL, path));
out:
    json_decref(file);
    return status;
}
