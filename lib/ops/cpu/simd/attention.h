/* attention.h - what both directions of attention share: the tile, how it is filled, how the mask
 * shapes it
 *
 * A tile is TILE queries by TILE keys. Its scores are stored with the keys as rows and the queries
 * as lanes,
 *
 *   s[j, i] = bias(h, i, j) + gain(i - j) (scale q_i) . k_j
 *
 * so that a maximum or a sum over keys needs no movement between lanes, keys are read in
 * place, and only the queries are transposed, once for all the key tiles they meet.
 *
 * Bias and mask are one strip of numbers by distance, -infinity for negative ones and for those
 * outside the window: row j of the tile is the strip from nk - 1 - j on, and is added as the
 * product's start. There is one path for every bias by distance. Gates are not one: they add c_i -
 * c_j to the strip first, which makes it a matrix.
 *
 * In the tile on the diagonal, half of which is masked, rows and depths stop at the corners of
 * CORNER x CORNER squares. */
#ifndef SIMD_ATTENTION_H
#define SIMD_ATTENTION_H

#include "ops/cpu/simd/product.h"
#include "ops/cpu/simd/vec.h"

enum { TILE = 64, CORNER = 16 };

/* A call by letters. `width` is D in whole vectors, the row length of tile buffers. Query i is at
 * position past + i, unless the call is ragged. */
struct heads {
    int64_t B, Lq, Lk, H, Hkv, D, width, past;
    const struct attention_args *a;
    float *gain; /* [Lk]: the factors by distance, owned; NULL: all are 1 */
};

static inline int64_t whole_vectors(int64_t n)
{
    return (n + SIMD_WIDTH - 1) / SIMD_WIDTH * SIMD_WIDTH;
}

static inline struct heads heads_of(const struct attention_args *a)
{
    return (struct heads){
        .B = a->q.shape[0],
        .Lq = a->q.shape[1],
        .Lk = a->k.shape[1],
        .H = a->q.shape[2],
        .Hkv = a->k.shape[2],
        .D = a->q.shape[3],
        .width = whole_vectors(a->q.shape[3]),
        .past = a->k.shape[1] - a->q.shape[1],
        .a = a,
    };
}

/* The sequence of k and v that row b reads, and how many of its keys. */
static inline int64_t keys_row(const struct heads *c, int64_t b)
{
    struct ragged ragged = c->a->ragged;

    return present(ragged.slot) ? ((const int32_t *)ragged.slot.data)[b] : b;
}

static inline int64_t keys_count(const struct heads *c, int64_t b)
{
    struct ragged ragged = c->a->ragged;

    return ragged_present(ragged) ? ((const int32_t *)ragged.length.data)[b] : c->Lk;
}

/* Rows of one head: D numbers each, `stride` apart. */
struct rows {
    float *at;
    int64_t stride;
};

/* Rows l, l + 1, ... of head h in a view [B, L, H, D]. */
static inline struct rows rows_of(struct tensor t, int64_t b, int64_t l, int64_t h)
{
    return (struct rows){ head_of(t, b, l, h), t.stride[1] };
}

/* The log-sum-exp of the queries of a head. */
static inline float *lse_of(const struct heads *c, int64_t b, int64_t h)
{
    struct tensor lse = c->a->lse;

    return (float *)lse.data + b * lse.stride[0] + h * lse.stride[1];
}

/* The current tile: nq queries from i on, in `lanes` lanes, nk keys from j on, as positions. */
struct tile {
    int64_t b, h, kv;
    int64_t i, nq, lanes;
    int64_t j, nk;
    int64_t first; /* key that its first query, and so any, sees */
    bool diagonal; /* i == j and nq == nk: the mask cuts through it; all other tiles are full, but
                      for what is outside the window */
};

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Queries from..from + TILE - 1 with the keys at their own positions: the tile that every query's
 * walk begins with. */
static inline struct tile tile_on_diagonal(const struct heads *c, int64_t b, int64_t h,
                                           int64_t from)
{
    int64_t nq = smaller(TILE, c->Lq - from), i = c->past + from;

    return (struct tile){ .b = b,
                          .h = h,
                          .kv = h / (c->H / c->Hkv),
                          .i = i,
                          .nq = nq,
                          .lanes = whole_vectors(nq),
                          .j = i,
                          .nk = nq,
                          .first = attention_first_key(i, c->a->window),
                          .diagonal = true };
}

/* Moves to the keys before; false if no query sees any of them. Nearest first: with a bias that
 * falls with distance the running maximum hardly changes after the first tile. */
static inline bool tile_step_back(struct tile *t)
{
    t->nk = smaller(TILE, t->j);
    t->j -= t->nk;
    t->diagonal = false;
    return t->j + t->nk > t->first;
}

/* Rows (of keys or of queries) that are handled at once, since the mask cuts them alike. */
static inline int64_t tile_step(const struct tile *t)
{
    return t->diagonal ? CORNER : TILE;
}

/* The lane from which on the keys j .. j + tile_step - 1 are seen, and the number of keys that some
 * lane of the step of i sees. */
static inline int64_t first_lane(const struct tile *t, int64_t j)
{
    return t->diagonal ? j / CORNER * CORNER : 0;
}

static inline int64_t keys_seen(const struct tile *t, int64_t i)
{
    return t->diagonal ? smaller(t->nk, (i / CORNER + 1) * CORNER) : t->nk;
}

/* ---- gates */

/* c[l] = sum[l] + rest[l] of a head of the keys of row b; sum NULL: its scores have none. */
struct gates {
    const float *sum, *rest;
};

static inline struct gates gates_of(const struct heads *c, int64_t b, int64_t h)
{
    struct tensor values = c->a->bias.values;
    const float *sum = values.data;

    if (c->a->bias.kind != BIAS_GATE || h >= values.shape[2])
        return (struct gates){ 0 };
    sum += keys_row(c, b) * values.stride[1] + h * values.stride[2];
    return (struct gates){ sum, sum + values.stride[0] };
}

/* c_i - c_j. The difference of two near sums is exact, and one of far sums is as exact as itself.
 */
static inline float gates_between(struct gates g, int64_t i, int64_t j)
{
    return (g.sum[i] - g.sum[j]) + (g.rest[i] - g.rest[j]);
}

/* ---- attention_decode.c: up to DECODE_ROWS queries are taken row by row */

enum { DECODE_ROWS = 4 };
#define decode_rows SIMD(decode_rows)
alibi_status decode_rows(const struct heads *c);

/* ---- attention_tile.c */

#define fill_bias SIMD(fill_bias)
#define fill_gain SIMD(fill_gain)
#define gain_init SIMD(gain_init)
#define fill_start SIMD(fill_start)
#define pack_rows SIMD(pack_rows)
#define pack_lanes SIMD(pack_lanes)
#define unpack_rows SIMD(unpack_rows)
#define tile_scores SIMD(tile_scores)
#define tile_mask SIMD(tile_mask)
#define tile_sum_keys SIMD(tile_sum_keys)
#define tile_sum_queries SIMD(tile_sum_queries)

/* bias[n] <- the bias of head h at distance + n * step for n < count, -infinity where the distance
 * is negative or outside the window; gates are not in it. */
void fill_bias(float *bias, const struct heads *c, int64_t h, int64_t distance, int64_t step,
               int64_t count);

/* Fills in c->gain, which mem_free() ends; and the factors of such a strip, 1 for negative
 * distances. */
alibi_status gain_init(struct heads *c);
void fill_gain(float *gain, const struct heads *c, int64_t distance, int64_t step, int64_t count);

static inline float gain_at(const struct heads *c, int64_t distance)
{
    return c->gain ? c->gain[smaller(distance, c->Lk - 1)] : 1.0f;
}

/* The initial scores of a tile: row j is at + j * row. The factors on the products are in the same
 * rows; NULL: all are 1. */
struct start {
    const float *at;
    int64_t row;
    const float *gain;
};

/* The strip of a tile, lanes + nk - 1 numbers, each row of which begins one number earlier than the
 * row before, and after 2 TILE numbers the strip of factors; or with gates a matrix in `scores`
 * [TILE, TILE], where the scores may replace it. */
struct start fill_start(float *strip, float *scores, const struct heads *c, const struct tile *t);

/* to [n, width] <- factor * from [n, D], zero beyond D. */
void pack_rows(float *to, const struct heads *c, struct rows from, int64_t n, float factor);

/* to [D, TILE] <- factor * the transpose of from [n, D], zero up to whole vectors of lanes. */
void pack_lanes(float *to, const struct heads *c, struct rows from, int64_t n, float factor);

/* to [n, D] <- factor * from [n, width]. */
void unpack_rows(struct rows to, const struct heads *c, const float *from, int64_t n, float factor);

/* out[j, i] = start[j, i] + gain[j, i] keys_j . lanes_i for what the mask leaves; keys [nk, D] in
 * place, lanes [D, TILE], out [TILE, TILE]. */
void tile_scores(float *out, const struct heads *c, const struct tile *t, struct rows keys,
                 const float *lanes, struct start start);

/* factors[j, i], [TILE, TILE], of the dropout on the weights of a tile. */
void tile_mask(float *factors, const struct heads *c, const struct tile *t);

/* out[i, :] += sum over keys of s[j, i] rows[j, :]; out [nq, width], rows [nk, width]. */
void tile_sum_keys(float *out, const struct heads *c, const struct tile *t, const float *s,
                   const float *rows);

/* out[j, :] += sum over queries of s[j, i] rows[i, :]; out [nk, width], rows [nq, width]. */
void tile_sum_queries(float *out, const struct heads *c, const struct tile *t, const float *s,
                      const float *rows);

#endif
