/* skipping.c - norms of key tiles, and the bounds that follow from them */
#include <omp.h>

#include "ops/cpu/simd/skipping.h"

/* Sums of D squares in fp32, in any order, are off by less than D 2^-24 of themselves. */
static float norm_margin(int64_t D)
{
    return 1.0001f + (float)D * 0x1p-23f;
}

static float square(const float *row, int64_t D)
{
    vec sum = { 0 };

    for (int64_t d = 0; d < D; d += SIMD_WIDTH) {
        vec x = vec_load_some(row + d, D - d);
        sum += x * x;
    }
    return vec_sum(sum);
}

static float larger(float a, float b)
{
    return a > b || isnan(a) ? a : b;
}

/* NaN if a key has one, so that its tile is never skipped. */
static float largest_norm(struct rows keys, int64_t count, int64_t D)
{
    float largest = 0.0f;

    for (int64_t j = 0; j < count; j++) {
        largest = larger(square(keys.at + j * keys.stride, D), largest);
        if (isnan(largest))
            break;
    }
    return norm_margin(D) * sqrtf(largest);
}

/* The norm of tile t of the first `length` keys of head kv of sequence b. */
static float tile_norm(struct tensor k, int64_t b, int64_t kv, int64_t length, int64_t t)
{
    int64_t j = t * ATTENTION_TILE;

    return largest_norm(rows_of(k, b, j, kv), smaller(ATTENTION_TILE, length - j), k.shape[3]);
}

alibi_status SIMD(attention_norms)(struct device *dev, struct tensor norms, struct tensor k,
                                   int64_t from, struct ragged ragged)
{
    int64_t L = k.shape[1], Hkv = k.shape[2], D = k.shape[3];
    int64_t first = from / ATTENTION_TILE, tiles = attention_tiles(L) - first;
    int64_t rows = k.shape[0] * Hkv, tasks = rows * tiles;
    const int32_t *slot = ragged.slot.data, *length = ragged.length.data;

    if (k.type != DTYPE_F32)
        return ref_attention_norms(dev, norms, k, from, ragged);
    for (int64_t row = 0; length && row < ragged.length.shape[0]; row++)
        for (int64_t kv = 0; kv < Hkv; kv++) { /* the tile's other keys are not read again */
            int64_t j = length[row] - 1;
            float *to = (float *)norms.data + slot[row] * norms.stride[0] + kv * norms.stride[1] +
                        j / ATTENTION_TILE;
            float norm = largest_norm(rows_of(k, slot[row], j, kv), 1, D);
            *to = j % ATTENTION_TILE == 0 ? norm : larger(norm, *to);
        }
    if (length)
        return ALIBI_OK;
#pragma omp parallel for schedule(static) if (tasks * ATTENTION_TILE * D > CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t row = task / tiles, t = first + task % tiles;
        float *to =
            (float *)norms.data + row / Hkv * norms.stride[0] + row % Hkv * norms.stride[1] + t;
        *to = tile_norm(k, row / Hkv, row % Hkv, L, t);
    }
    return ALIBI_OK;
}

/* ---- the bounds of a call */

static const float *norms_of(const struct bounds *b, int64_t row, int64_t kv)
{
    return b->norms + (b->slot ? b->slot[row] : row) * b->stride_b + kv * b->stride_kv;
}

/* ahead[t] = the largest norm of tiles 0..t, of the tiles that the row has keys of; of the tiles
 * that its query sees, if it is one of a ragged call. */
static void look_ahead(struct bounds *b, const struct heads *c)
{
    int64_t tiles = attention_tiles(c->Lk);

    for (int64_t row = 0; row < c->B; row++)
        for (int64_t kv = 0; kv < c->Hkv; kv++) {
            const float *norms = norms_of(b, row, kv);
            float *ahead = b->ahead + (row * c->Hkv + kv) * tiles, most = 0.0f;
            int64_t last = keys_count(c, row) - 1;
            int64_t first =
                ragged_present(c->a->ragged) ? attention_first_key(last, c->a->window) : 0;
            for (int64_t t = first / ATTENTION_TILE; t < attention_tiles(keys_count(c, row)); t++)
                ahead[t] = most = larger(most, norms[t]);
        }
}

/* The caller's norms, which a ragged call keeps by slot, or our own, which are by row. */
alibi_status bounds_init(struct bounds *b, const struct heads *c)
{
    int64_t tiles = attention_tiles(c->Lk), count = c->B * c->Hkv * tiles;
    struct tensor given = c->a->skip.norms;

    *b = (struct bounds){ .eps = (float)c->a->skip.eps };
    if (b->eps <= 0.0f || tiles < 2)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&b->memory, 2 * count, "the norms of keys"));
    b->ahead = b->memory + count;
    if (present(given)) {
        b->slot = c->a->ragged.slot.data;
    } else {
        given = tensor_3(b->memory, DTYPE_F32, c->B, c->Hkv, tiles);
#pragma omp parallel for schedule(static) if (count * ATTENTION_TILE * c->D > CPU_PARALLEL_MIN)
        for (int64_t task = 0; task < count; task++) {
            int64_t row = task / tiles / c->Hkv, kv = task / tiles % c->Hkv, t = task % tiles;
            if (t < attention_tiles(keys_count(c, row)))
                b->memory[task] = tile_norm(c->a->k, keys_row(c, row), kv, keys_count(c, row), t);
        }
    }
    b->norms = given.data;
    b->stride_b = given.stride[0];
    b->stride_kv = given.stride[1];
    look_ahead(b, c);
    return ALIBI_OK;
}

void bounds_fini(struct bounds *b)
{
    mem_free(b->memory);
}

/* A range that does not start with a tile of keys is in two of them. */
struct key_range bounds_tile(const struct bounds *b, int64_t row, int64_t kv, int64_t first,
                             int64_t last)
{
    const float *norms = norms_of(b, row, kv);

    return (struct key_range){
        first, last, larger(norms[first / ATTENTION_TILE], norms[last / ATTENTION_TILE])
    };
}

struct key_range bounds_rest(const struct bounds *b, const struct heads *c, int64_t row, int64_t kv,
                             int64_t first, int64_t last)
{
    const float *ahead = b->ahead + (row * c->Hkv + kv) * attention_tiles(c->Lk);

    return (struct key_range){ first, last, ahead[last / ATTENTION_TILE] };
}

float bounds_reach(const struct heads *c, const float *query)
{
    return norm_margin(c->D) * fabsf((float)c->a->scale) * sqrtf(square(query, c->D));
}

static float largest_entry(const float *table, int64_t T, int64_t near, int64_t far)
{
    float largest = table[smaller(near, T - 1)];

    for (int64_t d = near + 1; d <= smaller(far, T - 1); d++)
        largest = larger(largest, table[d]);
    return largest;
}

float bounds_bias(const struct bias *bias, int64_t h, int64_t near, int64_t far)
{
    const float *values = bias->values.data;

    if (bias->kind == BIAS_TABLE)
        return largest_entry(values + h * bias->values.shape[1], bias->values.shape[1], near, far);
    if (bias->kind == BIAS_LINEAR)
        return -values[h] * (float)(values[h] < 0.0f ? far : near);
    return 0.0f;
}

float bounds_gain(float x, float near, float far)
{
    float gain = x / 2 < near ? near : x / 2 > far ? far : x / 2; /* NaN stays */

    return gain * x + (1.0f - gain * gain);
}

float bounds_count(const struct bias *bias, int64_t h, int64_t keys)
{
    float slope = bias->kind == BIAS_LINEAR ? ((const float *)bias->values.data)[h] : 0.0f;
    float counted = bound_margin / -expm1f(-fabsf(slope));

    return counted < (float)keys ? counted : (float)keys;
}
