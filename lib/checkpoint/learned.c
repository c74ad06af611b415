/* learned.c - the numbers that position methods learn for each head, read from a checkpoint:
 * slopes, the two numbers of a curve, the biases of gates, the factors of logn
 *
 * Layers of one kind share slopes and curves; gates and logn belong to a layer. */
#include <string.h>

#include "checkpoint/checkpoint.h"

enum { CURVE_ROWS = 2 };

static alibi_status add_row(struct learned *out, const char *name, int64_t place, bool trained,
                            int64_t heads, const float *values)
{
    struct learned_row row = { .place = place, .trained = trained, .heads = heads };

    snprintf(row.name, sizeof row.name, "%s", name);
    TRY_RETURN(RESERVE_ARRAY(&out->row, &out->capacity, out->count + 1, "numbers per head"));
    TRY_RETURN(NEW_ARRAY(&row.value, heads, "numbers per head"));
    for (int64_t h = 0; h < heads; h++)
        row.value[h] = (double)values[h];
    out->row[out->count++] = row;
    return ALIBI_OK;
}

/* values [CURVE_ROWS, H] */
static alibi_status add_kind(struct learned *out, const char *path, const struct alibi_config *c,
                             const struct pattern *pattern, int kind, float *values)
{
    const struct position *p = &pattern->kind[kind];
    const struct position_method *method = p->method;
    int64_t place = kind > 0 ? kind : -1, shape[2] = { 0 };

    if (method->slope) {
        if (method->parameter_shape)
            method->parameter_shape(c, p, shape);
        TRY_RETURN(checkpoint_read_slopes(path, c, kind, values));
        return add_row(out, "slopes", place, shape[0] > 0, c->heads, values);
    }
    if (!method->curve)
        return ALIBI_OK;
    TRY_RETURN(checkpoint_read_numbers(path, c, kind, CURVE_ROWS, values));
    for (int64_t row = 0; row < CURVE_ROWS; row++) {
        float *of_row = values + row * c->heads;

        for (int64_t h = 0; method->shown && h < c->heads; h++)
            of_row[h] = (float)method->shown(p, row, (double)of_row[h]);
        TRY_RETURN(add_row(out, method->number(p, row), place, true, c->heads, of_row));
    }
    return ALIBI_OK;
}

static alibi_status add_layer(struct learned *out, const char *path, const struct alibi_config *c,
                              const struct position *p, int64_t layer, float *values)
{
    int64_t gates = position_gates(c, p), heads = position_logn_heads(c, p);

    if (gates > 0) {
        TRY_RETURN(checkpoint_read_gates(path, layer, gates, values));
        for (int64_t h = 0; h < gates; h++)
            values[h] = (float)p->method->shown(p, 0, (double)values[h]);
        TRY_RETURN(add_row(out, p->method->number(p, 0), layer, true, gates, values));
    }
    if (!p->logn)
        return ALIBI_OK;
    TRY_RETURN(checkpoint_read_logn(path, layer, heads, values));
    return add_row(out, "logn", layer, true, heads, values);
}

alibi_status learned_read(struct learned *out, const char *path, const struct alibi_config *c)
{
    alibi_status status;
    struct pattern pattern;
    float *values = NULL;

    TRY(pattern_read(&pattern, c));
    TRY(NEW_ARRAY(&values, CURVE_ROWS * c->heads, "numbers per head"));
    for (int k = 0; k < pattern.kinds; k++)
        TRY(add_kind(out, path, c, &pattern, k, values));
    for (int64_t n = 0; n < c->layers; n++)
        TRY(add_layer(out, path, c, &pattern.kind[pattern_kind(&pattern, n)], n, values));
out:
    mem_free(values);
    return status;
}

void learned_fini(struct learned *l)
{
    for (int64_t i = 0; i < l->count; i++)
        mem_free(l->row[i].value);
    mem_free(l->row);
    *l = (struct learned){ 0 };
}
