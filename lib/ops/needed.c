/* needed.c - which tiles of earlier keys the queries of a part of a sequence need
 *
 * As in skipping, but before anyone has the keys: of a tile J of them only K, its largest norm, is
 * known, and of each query i the log-sum-exp over some keys near it, which is less than the whole.
 * Relative to that, tile J has at most the weight
 *
 *   w_iJ = g exp(scale |q_i| K + b - lse_i),     b the largest bias between the tiles of i and J
 *
 * where g counts the keys; under a slope m at most 1 / (1 - e^-m) of them count. The tile is not
 * needed if for every query its bound and those of all tiles that are not needed, the farthest
 * first, sum to at most eps. Everything errs upwards, by the margins of cpu/simd/skipping.h; a
 * number that is not finite makes a comparison false, and the tile is needed. */
#include <math.h>

#include "ops/ref/ref.h"

/* One query head. */
struct head {
    const struct needed_args *a;
    int64_t h, tiles; /* of queries */
    double *spent;    /* [tiles]: the bounds of what is not needed */
    double *weight;   /* [tiles]: of the tile in question */
    double *bias;     /* [first + tiles], by distance: the largest between tiles so far apart */
    double *reach;    /* [tiles]: the largest scale |q_i| */
    double *least;    /* [tiles]: the smallest lse_i */
};

static double larger(double a, double b)
{
    return a > b || isnan(a) ? a : b; /* a NaN stays */
}

/* Distances between the tiles: 0 apart is the same tile. */
static double largest_bias(const struct needed_args *a, int64_t h, int64_t apart)
{
    int64_t near = (apart - 1) * ATTENTION_TILE + 1, far = (apart + 1) * ATTENTION_TILE - 1;
    struct tensor values = a->bias.values;
    const float *at = values.data;
    double most = -INFINITY;

    if (a->bias.kind == BIAS_LINEAR)
        return -(double)at[h] * (double)(at[h] < 0.0f ? far : near);
    for (int64_t d = near; d <= far; d++) {
        int64_t T = values.shape[1];

        most = larger(most, (double)at[h * T + (d < T ? d : T - 1)]);
    }
    return most;
}

static double keys_that_count(const struct needed_args *a, int64_t h)
{
    double slope =
        a->bias.kind == BIAS_LINEAR ? (double)((const float *)a->bias.values.data)[h] : 0;
    double most = -1.0 / expm1(-fabs(slope));

    return most < ATTENTION_TILE ? most : ATTENTION_TILE;
}

static double reach_of(const struct head *n, int64_t i)
{
    return fabs(n->a->scale) * (double)n->a->queries[i * n->a->H + n->h];
}

static double lse_of(const struct head *n, int64_t i)
{
    return (double)n->a->lse[n->h * n->a->Lq + i];
}

static int64_t end_of(const struct head *n, int64_t tile)
{
    int64_t end = (tile + 1) * ATTENTION_TILE;

    return end < n->a->Lq ? end : n->a->Lq;
}

static void begin(struct head *n)
{
    for (int64_t t = 0; t < n->tiles; t++) {
        n->spent[t] = n->reach[t] = 0;
        n->least[t] = INFINITY;
        for (int64_t i = t * ATTENTION_TILE; i < end_of(n, t); i++) {
            n->reach[t] = larger(n->reach[t], reach_of(n, i));
            n->least[t] = -larger(-n->least[t], -lse_of(n, i));
        }
    }
    for (int64_t apart = 1; n->a->bias.kind != BIAS_GATE && apart < n->a->first + n->tiles; apart++)
        n->bias[apart] = largest_bias(n->a, n->h, apart);
}

/* scale |q| K - lse, rounded up. */
static double exponent(double score, double lse)
{
    return score - lse + 0x1p-20 * (score + fabs(lse));
}

/* The largest of all queries of a tile. One bound serves them all where it is small beside what
 * each of the key tiles may take; else each query has its own. */
static double weight_of(const struct head *n, int64_t tile, double norm, double bias)
{
    static const double margin = 1.001;
    double count = margin * keys_that_count(n->a, n->h), most = -INFINITY, weight;

    bias += 0x1p-20 * fabs(bias);
    weight = count * exp(bias + exponent(n->reach[tile] * norm, n->least[tile]));
    if (16 * weight * (double)n->a->first <= n->a->eps)
        return weight;
    for (int64_t i = tile * ATTENTION_TILE; i < end_of(n, tile); i++)
        most = larger(most, exponent(reach_of(n, i) * norm, lse_of(n, i)));
    return count * exp(bias + most);
}

static bool sees(const struct needed_args *a, int64_t tile, int64_t key_tile)
{
    int64_t first = attention_first_key((a->first + tile) * ATTENTION_TILE, a->window);

    return (key_tile + 1) * ATTENTION_TILE > first;
}

static bool is_needed(struct head *n, int64_t key_tile)
{
    const struct needed_args *a = n->a;
    double norm = (double)a->norms[n->h / (a->H / a->Hkv) * a->first + key_tile];

    for (int64_t t = 0; t < n->tiles; t++) {
        double bias =
            a->bias.kind == BIAS_GATE /* gates only close */
                ? a->query_gates[n->h * n->tiles + t] - a->key_gates[n->h * a->first + key_tile]
                : n->bias[a->first + t - key_tile];

        n->weight[t] = sees(a, t, key_tile) ? weight_of(n, t, norm, bias) : 0;
        if (!(n->spent[t] + n->weight[t] <= a->eps))
            return true;
    }
    for (int64_t t = 0; t < n->tiles; t++)
        n->spent[t] += n->weight[t];
    return false;
}

bool attention_may_skip(const struct bias *bias, double eps)
{
    return eps > 0 && bias->kind != BIAS_NONE && bias->kind != BIAS_GAIN;
}

alibi_status attention_needed(const struct needed_args *a, uint32_t *needed)
{
    int64_t tiles = attention_tiles(a->Lq);
    int64_t gates = a->bias.kind == BIAS_GATE ? a->bias.values.shape[2] : a->H;
    double *memory = NULL;
    struct head n = { .a = a, .tiles = tiles };

    TRY_RETURN(NEW_ARRAY(&memory, 5 * tiles + a->first, "the bounds of earlier keys"));
    n.spent = memory;
    n.weight = n.spent + tiles;
    n.reach = n.weight + tiles;
    n.least = n.reach + tiles;
    n.bias = n.least + tiles;
    for (n.h = 0; n.h < a->H && tiles > 0; n.h++) {
        bool bounded = attention_may_skip(&a->bias, a->eps) && n.h < gates;
        uint32_t *row = needed + n.h / (a->H / a->Hkv) * a->words;

        if (bounded)
            begin(&n);
        for (int64_t t = 0; t < a->first; t++)
            if (sees(a, 0, t) && (!bounded || is_needed(&n, t)))
                row[t / 32] |= UINT32_C(1) << t % 32;
    }
    mem_free(memory);
    return ALIBI_OK;
}
