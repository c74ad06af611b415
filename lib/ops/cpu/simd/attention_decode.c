/* attention_decode.c - few queries against many keys
 *
 * Each key and value is read once and used for one query, so memory sets the pace and nothing is
 * packed. A task is one query of one head; it takes the keys in tiles, nearest first, with the
 * running maximum and sum of attention.c, and skips those that skipping.h proves to have no
 * weight: they are not read at all. */
#include <omp.h>
#include <string.h>

#include "ops/cpu/simd/skipping.h"

/* The buffers of one thread. */
struct work {
    float *query;  /* [width], scaled */
    float *o;      /* [width] */
    float *s;      /* [TILE] */
    float *bias;   /* [TILE] */
    float *values; /* [TILE, width], where D is not whole vectors */
    float m, l;
    float reach, out; /* as in attention.c */
};

static int64_t work_floats(const struct heads *c)
{
    return 2 * c->width + 2 * TILE + TILE * c->width;
}

static struct work work_at(const struct heads *c, float *memory)
{
    struct work w = { .m = -INFINITY, .l = 0.0f };

    w.query = memory;
    w.o = w.query + c->width;
    w.s = w.o + c->width;
    w.bias = w.s + TILE;
    w.values = w.bias + TILE;
    return w;
}

/* Lane by lane, the sum of which is query . key. */
static vec partial_dot(const struct heads *c, const float *query, const float *key)
{
    vec sum = { 0 };

    for (int64_t d = 0; d < c->D; d += SIMD_WIDTH)
        sum += vec_load(query + d) * vec_load_some(key + d, c->D - d);
    return sum;
}

/* A row of a head is a few lines, and the next row is far away, so the hardware does not see it
 * coming. */
static void prefetch_row(const struct heads *c, struct rows rows, int64_t j)
{
    enum { LINE_FLOATS = 16 };

    for (int64_t d = 0; d < c->D; d += LINE_FLOATS)
        __builtin_prefetch(rows.at + j * rows.stride + d);
}

/* Scores of nk keys. The lanes of SIMD_WIDTH keys are summed together, by a transpose. The values,
 * which are next, are fetched meanwhile. */
static void score_keys(struct work *w, const struct heads *c, struct rows keys, struct rows values,
                       int64_t nk)
{
    for (int64_t j = 0; j < nk; j += SIMD_WIDTH) {
        vec square[SIMD_WIDTH], sum;
        for (int64_t l = 0; l < SIMD_WIDTH; l++) {
            if (j + l < nk)
                prefetch_row(c, values, j + l);
            if (j + l + SIMD_WIDTH < nk)
                prefetch_row(c, keys, j + l + SIMD_WIDTH);
            square[l] =
                j + l < nk ? partial_dot(c, w->query, keys.at + (j + l) * keys.stride) : (vec){ 0 };
        }
        vec_transpose(square);
        sum = square[0];
        for (int64_t l = 1; l < SIMD_WIDTH; l++)
            sum += square[l];
        vec_store_some(w->s + j, sum + vec_load(w->bias + j), nk - j);
    }
}

/* s <- exp(s - m'), with m and l brought up to date; returns the factor on what was summed before.
 * */
static float softmax_keys(struct work *w, int64_t nk)
{
    vec max = vec_all(w->m), sum = { 0 };
    float before = w->m;

    for (int64_t j = nk; j < TILE; j++)
        w->s[j] = -INFINITY;
    for (int64_t j = 0; j < TILE; j += SIMD_WIDTH)
        max = vec_max(vec_load(w->s + j), max);
    w->m = vec_largest(max);
    for (int64_t j = 0; j < TILE; j += SIMD_WIDTH) {
        vec e = vec_exp_term(vec_load(w->s + j) - w->m);
        vec_store(w->s + j, e);
        sum += e;
    }
    float shrink = expf(before - w->m);
    w->l = w->l * shrink + vec_sum(sum);
    return shrink;
}

/* o <- shrink * o + sum over keys of s_j v_j */
static void add_values(struct work *w, const struct heads *c, struct rows values, int64_t nk,
                       float shrink)
{
    if (c->D != c->width) {
        pack_rows(w->values, c, values, nk, 1.0f);
        values = (struct rows){ w->values, c->width };
    }
    for (int64_t d = 0; d < c->width; d += SIMD_WIDTH)
        vec_store(w->o + d, shrink * vec_load(w->o + d));
    struct product p = {
        .rows = 1,
        .columns = c->width,
        .depth = nk,
        .a = w->s,
        .a_column = 1,
        .b = values.at,
        .b_row = values.stride,
        .start = w->o,
        .c = w->o,
    };
    multiply(&p);
}

/* Skips these keys if the budget allows for their bound, and takes it from the budget. */
static bool skip(struct work *w, const struct heads *c, int64_t h, int64_t position,
                 struct key_range keys, float eps)
{
    const struct bias *bias = &c->a->bias;
    float score = w->reach * keys.norm,
          most_bias = bounds_bias(bias, h, position - keys.last, position - keys.first);
    float most =
        score + most_bias - w->m + bound_rounding * (score + fabsf(most_bias) + fabsf(w->m));
    float weight =
        bound_margin * bounds_count(bias, h, keys.last - keys.first + 1) * expf(most) / w->l;

    if (!(w->out + weight <= eps))
        return false;
    w->out += weight;
    return true;
}

/* Query i of head h of row b. The first tile, which has the query's own key, may be a part of one.
 */
static void attend(struct work w, const struct heads *c, const struct bounds *bounds, int64_t b,
                   int64_t h, int64_t i)
{
    const struct attention_args *a = c->a;
    int64_t row = keys_row(c, b), kv = h / (c->H / c->Hkv);
    int64_t position = keys_count(c, b) - c->Lq + i;
    struct rows query = rows_of(a->q, b, i, h);

    pack_rows(w.query, c, query, 1, (float)a->scale);
    memset(w.o, 0, sizeof(float) * (size_t)c->width);
    w.reach = bounds->norms ? bounds_reach(c, query.at) : 0.0f;
    for (int64_t j = position / TILE * TILE, last = position; j >= 0; last = j - 1, j -= TILE) {
        int64_t nk = last - j + 1;
        if (bounds->norms && last < position) {
            if (skip(&w, c, h, position, bounds_rest(bounds, c, b, kv, last), bounds->eps))
                break;
            if (skip(&w, c, h, position, bounds_tile(bounds, b, kv, j, last), bounds->eps))
                continue;
        }
        fill_bias(w.bias, a->bias, h, position - j, -1, TILE);
        score_keys(&w, c, rows_of(a->k, row, j, kv), rows_of(a->v, row, j, kv), nk);
        add_values(&w, c, rows_of(a->v, row, j, kv), nk, softmax_keys(&w, nk));
    }
    unpack_rows(rows_of(a->y, b, i, h), c, w.o, 1, 1.0f / w.l);
    ((float *)a->lse.data)[(b * c->H + h) * c->Lq + i] = w.m + logf(w.l);
}

alibi_status decode_rows(const struct heads *c)
{
    int64_t tasks = c->B * c->H * c->Lq;
    struct bounds bounds = { 0 };
    float *memory = NULL;
    alibi_status status;

    TRY(bounds_init(&bounds, c));
    TRY(NEW_ARRAY(&memory, omp_get_max_threads() * work_floats(c), "the tiles of attention"));
#pragma omp parallel for schedule(dynamic) if (tasks > 1 && tasks * c->Lk * c->D > CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t i = task % c->Lq, head = task / c->Lq;
        struct work w = work_at(c, memory + omp_get_thread_num() * work_floats(c));
        attend(w, c, &bounds, head / c->H, head % c->H, i);
    }
out:
    mem_free(memory);
    bounds_fini(&bounds);
    return status;
}
