/* attention_tile.c - packing, bias strips, the mask of dropout, and the four products of a tile */
#include <string.h>

#include "ops/cpu/simd/attention.h"
#include "ops/cpu/simd/mask.h"

/* bias(distance) = -slope * distance. No bias is slope 0. */
static void fill_linear(float *bias, float slope, int64_t distance, int64_t step, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        int64_t d = distance + n * step;
        bias[n] = d < 0 ? -INFINITY : -slope * (float)d;
    }
}

static void fill_from_table(float *bias, const float *table, int64_t T, int64_t distance,
                            int64_t step, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        int64_t d = distance + n * step;
        bias[n] = d < 0 ? -INFINITY : table[smaller(d, T - 1)];
    }
}

alibi_status gain_init(struct heads *c)
{
    const struct bias *bias = &c->a->bias;

    if (bias->kind != BIAS_GAIN)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&c->gain, c->Lk, "the factors on scores by distance"));
    for (int64_t d = 0; d < c->Lk; d++)
        c->gain[d] = sqrtf(1.0f + 2.0f * log1pf((float)d / (float)bias->tau));
    return ALIBI_OK;
}

void fill_gain(float *gain, const struct heads *c, int64_t distance, int64_t step, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        int64_t d = distance + n * step;
        gain[n] = d < 0 ? 1.0f : gain_at(c, d);
    }
}

void fill_bias(float *bias, const struct heads *c, int64_t h, int64_t distance, int64_t step,
               int64_t count)
{
    const struct attention_args *a = c->a;
    const float *values = a->bias.values.data;
    int64_t T = a->bias.values.shape[1];

    if (c->gain)
        for (int64_t n = 0; n < count; n++) {
            int64_t d = distance + n * step;
            bias[n] = d < 0 ? -INFINITY : 1.0f - gain_at(c, d) * gain_at(c, d);
        }
    else if (a->bias.kind == BIAS_TABLE)
        fill_from_table(bias, values + h * T, T, distance, step, count);
    else
        fill_linear(bias, a->bias.kind == BIAS_LINEAR ? values[h] : 0.0f, distance, step, count);
    for (int64_t n = 0; a->window > 0 && n < count; n++)
        bias[n] = distance + n * step < a->window ? bias[n] : -INFINITY;
}

/* c_i - c_j as (c_i - c_0) + (c_0 - c_j), with the tile's first query 0: what is rounded is as
 * large as the sums within the tile and from the tile to its keys, and not as c. */
static void add_gates(float *scores, const float *strip, struct gates g, const struct tile *t)
{
    float queries[TILE] = { 0 };

    for (int64_t i = 0; i < t->nq; i++)
        queries[i] = gates_between(g, t->i + i, t->i);
    for (int64_t j = 0; j < t->nk; j++) {
        float key = gates_between(g, t->i, t->j + j);

        for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH)
            vec_store(scores + j * TILE + i,
                      vec_load(strip + i - j) + (vec_load(queries + i) + key));
    }
}

struct start fill_start(float *strip, float *scores, const struct heads *c, const struct tile *t)
{
    struct gates gates = gates_of(c, t->b, t->h);
    const float *first = strip + t->nk - 1;
    int64_t distance = t->i - t->j - (t->nk - 1), count = t->lanes + t->nk - 1;

    fill_bias(strip, c, t->h, distance, 1, count);
    if (c->gain)
        fill_gain(strip + 2 * TILE, c, distance, 1, count);
    if (!gates.sum)
        return (struct start){ first, -1, c->gain ? first + 2 * TILE : NULL };
    add_gates(scores, first, gates, t);
    return (struct start){ .at = scores, .row = TILE };
}

void pack_rows(float *to, const struct heads *c, struct rows from, int64_t n, float factor)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t d = 0; d < c->D; d += SIMD_WIDTH)
            vec_store(to + r * c->width + d,
                      factor * vec_load_some(from.at + r * from.stride + d, c->D - d));
}

void unpack_rows(struct rows to, const struct heads *c, const float *from, int64_t n, float factor)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t d = 0; d < c->D; d += SIMD_WIDTH)
            vec_store_some(to.at + r * to.stride + d, factor * vec_load(from + r * c->width + d),
                           c->D - d);
}

void pack_lanes(float *to, const struct heads *c, struct rows from, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i += SIMD_WIDTH)
        for (int64_t d = 0; d < c->D; d += SIMD_WIDTH) {
            vec square[SIMD_WIDTH];
            for (int64_t l = 0; l < SIMD_WIDTH; l++)
                square[l] = i + l < n ? factor * vec_load_some(from.at + (i + l) * from.stride + d,
                                                               c->D - d)
                                      : (vec){ 0 };
            vec_transpose(square);
            for (int64_t l = 0; l < SIMD_WIDTH && d + l < c->D; l++)
                vec_store(to + (d + l) * TILE + i, square[l]);
        }
}

void tile_scores(float *out, const struct heads *c, const struct tile *t, struct rows keys,
                 const float *lanes, struct start start)
{
    static const float zero[TILE] = { 0 };

    for (int64_t j = 0; j < t->nk; j += tile_step(t)) {
        int64_t lane = first_lane(t, j);
        struct product p = {
            .rows = smaller(tile_step(t), t->nk - j),
            .columns = t->lanes - lane,
            .depth = c->D,
            .a = keys.at + j * keys.stride,
            .a_row = keys.stride,
            .a_column = 1,
            .b = lanes + lane,
            .b_row = TILE,
            .start = start.gain ? zero : start.at + j * start.row + lane,
            .start_row = start.gain ? 0 : start.row,
            .c = out + j * TILE + lane,
            .c_row = TILE,
        };
        multiply(&p);
        for (int64_t row = j; start.gain && row < j + p.rows; row++)
            for (int64_t i = lane; i < t->lanes; i += SIMD_WIDTH) {
                int64_t at = row * start.row + i;
                vec_store(out + row * TILE + i,
                          vec_load(out + row * TILE + i) * vec_load(start.gain + at) +
                              vec_load(start.at + at));
            }
    }
}

/* Blocks of random numbers by attention_element(), for 32 pairs of queries at a time. Tiles begin
 * at multiples of TILE, so pairs are 32 consecutive numbers, and the blocks of each group of 8 are
 * the lanes of two groups of 8 queries, in two rows of keys. */
void tile_mask(float *factors, const struct heads *c, const struct tile *t)
{
    enum { PAIRS = TILE / 2, GROUP = 8 };
    const struct mask mask = mask_of(c->a->dropout);
    uint64_t half = (uint64_t)(c->Lk + 15) / 16 * 8, head = (uint64_t)(t->b * c->H + t->h);
    uint64_t first = (head * half + (uint64_t)t->i / 2) * half + (uint64_t)t->j / 2;

    for (int64_t key = 0; key < PAIRS; key++) {
        float words[4][PAIRS], *row = factors + (key / GROUP * 2 * GROUP + key % GROUP) * TILE;

        for (int64_t query = 0; query < PAIRS; query++) {
            float block[4];
            mask_block(block, mask, first + (uint64_t)key + (uint64_t)query * half);
            for (int n = 0; n < 4; n++)
                words[n][query] = block[n];
        }
        for (int64_t group = 0; group < PAIRS; group += GROUP)
            for (int n = 0; n < 4; n++)
                memcpy(row + n % 2 * GROUP * TILE + 2 * group + n / 2 * GROUP, words[n] + group,
                       sizeof(float) * GROUP);
    }
}

/* A product whose rows are those of a buffer [n, width] from `row` on, added to its numbers. */
static struct product sum_of_rows(float *out, const struct heads *c, int64_t row, int64_t count)
{
    float *first = out + row * c->width;

    return (struct product){
        .rows = count,
        .columns = c->width,
        .b_row = c->width,
        .start = first,
        .start_row = c->width,
        .c = first,
        .c_row = c->width,
    };
}

void tile_sum_keys(float *out, const struct heads *c, const struct tile *t, const float *s,
                   const float *rows)
{
    for (int64_t i = 0; i < t->nq; i += tile_step(t)) {
        struct product p = sum_of_rows(out, c, i, smaller(tile_step(t), t->nq - i));
        p.depth = keys_seen(t, i);
        p.a = s + i;
        p.a_row = 1;
        p.a_column = TILE;
        p.b = rows;
        multiply(&p);
    }
}

void tile_sum_queries(float *out, const struct heads *c, const struct tile *t, const float *s,
                      const float *rows)
{
    for (int64_t j = 0; j < t->nk; j += tile_step(t)) {
        int64_t lane = first_lane(t, j);
        struct product p = sum_of_rows(out, c, j, smaller(tile_step(t), t->nk - j));
        p.depth = t->nq - lane;
        p.a = s + j * TILE + lane;
        p.a_row = TILE;
        p.a_column = 1;
        p.b = rows + lane * c->width;
        multiply(&p);
    }
}
