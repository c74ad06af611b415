/* skipping.c - norms of key tiles, in a cache too, and the bounds that follow from them */
#include <omp.h>
#include <string.h>

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
                                   int64_t from)
{
    int64_t L = k.shape[1], Hkv = k.shape[2], D = k.shape[3];
    int64_t first = from / ATTENTION_TILE, tiles = attention_tiles(L) - first;
    int64_t rows = k.shape[0] * Hkv, tasks = rows * tiles;

    if (k.type != DTYPE_F32)
        return ref_attention_norms(dev, norms, k, from);
#pragma omp parallel for schedule(static) if (tasks * ATTENTION_TILE * D > CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t row = task / tiles, t = first + task % tiles;
        float *to =
            (float *)norms.data + row / Hkv * norms.stride[0] + row % Hkv * norms.stride[1] + t;
        *to = tile_norm(k, row / Hkv, row % Hkv, L, t);
    }
    return ALIBI_OK;
}

static void append_row(struct tensor to, struct tensor from, int64_t slot, int64_t position,
                       int64_t b)
{
    memcpy((float *)to.data + slot * to.stride[0] + position * to.stride[1],
           (const float *)from.data + b * from.stride[0],
           sizeof(float) * (size_t)(from.shape[2] * from.shape[3]));
}

/* The tokens become the last of `lengths`. The other keys of their tiles are not read again. */
static void append_at(const struct cache_append_args *a, const int32_t *length)
{
    const int32_t *slot = a->ragged.slot.data;
    struct tensor norms = a->norms;

    for (int64_t b = 0; b < a->new_k.shape[0]; b++) {
        int64_t p = length[b] - 1;

        append_row(a->k, a->new_k, slot[b], p, b);
        append_row(a->v, a->new_v, slot[b], p, b);
        for (int64_t kv = 0; kv < a->k.shape[2]; kv++) {
            float *to = (float *)norms.data + slot[b] * norms.stride[0] + kv * norms.stride[1] +
                        p / ATTENTION_TILE;
            float norm = largest_norm(rows_of(a->k, slot[b], p, kv), 1, a->k.shape[3]);
            *to = p % ATTENTION_TILE == 0 ? norm : larger(norm, *to);
        }
    }
}

alibi_status SIMD(cache_append)(struct device *dev, const struct cache_append_args *a)
{
    if (a->k.type != DTYPE_F32)
        return ref_cache_append(dev, a);
    append_at(a, a->ragged.length.data);
    if (a->other.data)
        append_at(a, a->other.data);
    return ALIBI_OK;
}

/* ---- the bounds of a call */

static const float *norms_of(const struct bounds *b, int64_t row, int64_t kv)
{
    return b->norms + (b->slot ? b->slot[row] : row) * b->stride_b + kv * b->stride_kv;
}

static float largest_of(const float *x, int64_t count)
{
    vec most = vec_all(-INFINITY);
    float largest;

    for (int64_t n = 0; n + SIMD_WIDTH <= count; n += SIMD_WIDTH) {
        vec some = vec_load(x + n);
        most = vec_select((some > most) | (some != some), some, most); /* a NaN stays */
    }
    largest = most[0];
    for (int l = 1; l < SIMD_WIDTH; l++)
        largest = larger(largest, most[l]);
    for (int64_t n = count / SIMD_WIDTH * SIMD_WIDTH; n < count; n++)
        largest = larger(largest, x[n]);
    return largest;
}

/* The norms are the caller's, which a ragged call keeps by slot, or our own, which are by row. */
alibi_status bounds_init(struct bounds *b, const struct heads *c)
{
    int64_t tiles = attention_tiles(c->Lk), count = c->B * c->Hkv * tiles;
    struct tensor given = c->a->skip.norms, table = c->a->bias.values;
    int64_t T = c->a->bias.kind == BIAS_TABLE ? table.shape[1] : 0, distances = attention_tiles(T);

    *b = (struct bounds){ .eps = (float)c->a->skip.eps };
    if (b->eps <= 0.0f || tiles < 2)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&b->memory, 2 * count + c->H * distances, "the norms of keys"));
    b->ahead = b->memory + count;
    b->beyond = b->ahead + count;
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

    /* ahead[t]: of the tiles up to t that the row has keys of; of those that its query sees, if it
     * is one of a ragged call. */
    for (int64_t row = 0; row < c->B; row++)
        for (int64_t kv = 0; kv < c->Hkv; kv++) {
            const float *norms = norms_of(b, row, kv);
            float *ahead = b->ahead + (row * c->Hkv + kv) * tiles, most = 0.0f;
            int64_t last = keys_count(c, row) - 1;
            int64_t first =
                ragged_present(c->a->ragged) ? attention_first_key(last, c->a->window) : 0;
            for (int64_t t = first / ATTENTION_TILE; t < attention_tiles(last + 1); t++)
                ahead[t] = most = larger(most, norms[t]);
        }
    for (int64_t h = 0; T > 0 && h < c->H; h++) {
        const float *entries = (const float *)table.data + h * T;
        float *beyond = b->beyond + h * distances, most = -INFINITY;
        for (int64_t t = distances - 1; t >= 0; t--)
            beyond[t] = most =
                larger(most, largest_of(entries + t * TILE, smaller(TILE, T - t * TILE)));
    }
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

/* Up to two tiles: every entry is compared. More: those up to the next multiple of a tile; all that
 * follow have one number, although `far` may end before them, so a test takes constant time. */
static float largest_entry(const struct bounds *b, struct tensor table, int64_t h, int64_t near,
                           int64_t far)
{
    int64_t T = table.shape[1], first = smaller(near, T - 1), last = smaller(far, T - 1);
    int64_t next = (first + TILE - 1) / TILE;
    const float *entries = (const float *)table.data + h * T;

    if (last - first < 2 * TILE)
        return largest_of(entries + first, last - first + 1);
    return larger(largest_of(entries + first, next * TILE - first),
                  b->beyond[h * attention_tiles(T) + next]);
}

float bounds_bias(const struct bounds *b, const struct bias *bias, int64_t h, int64_t near,
                  int64_t far)
{
    const float *values = bias->values.data;

    if (bias->kind == BIAS_TABLE)
        return largest_entry(b, bias->values, h, near, far);
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
