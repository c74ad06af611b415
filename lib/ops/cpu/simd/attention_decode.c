/* attention_decode.c - few queries against many keys
 *
 * Each key and value is used for one query, or the few heads that share it, so memory sets the pace
 * and nothing is packed. A task is one query and some heads. It takes the keys in tiles, nearest
 * first, with the running maximum and sum of attention.c, and skips those that skipping.h proves to
 * have no weight: they are not read at all.
 *
 * A tile is taken in blocks of a few positions, each of them head by head with its sums in
 * registers. The hardware does not foresee that order of addresses, so it is told: while keys are
 * multiplied the values of the tile are fetched, and while values are, the keys of the next tile.
 * On an AMD EPYC, 8 heads of 64 after 16K tokens: 24 GB/s, and 16 GB/s when each position was read
 * for all heads, with sums in memory. Two heads that share values load them once. */
#include <omp.h>
#include <string.h>

#include "ops/cpu/simd/skipping.h"

/* One head of the query. */
struct head {
    float *query; /* [width], scaled */
    float *o;     /* [width] */
    float *s;     /* [TILE] */
    int64_t kv;   /* where its keys and values are in a position of the cache */
    float m, l;   /* as in attention.c, like the next two */
    float reach, out;
    struct gates gates;
    bool done; /* all keys that remain are skipped */
};

/* The heads that use the current tile, in order. */
struct users {
    struct head **heads;
    int64_t count;
    const float *gain; /* [TILE]: factors on its scores, without their bias; NULL: all are 1 */
};

/* The keys and values of the current tile, those of head 0: nk of each. The keys of the next tile
 * are `back` rows before them. */
struct keys {
    struct rows k, v;
    int64_t nk, back;
};

enum { LINE = 64 / sizeof(float), BLOCK = 8 }; /* floats of a cache line; values at a time */

/* Asks for a row of one head, which is D numbers, ahead of its use. */
VEC_INLINE void fetch(const float *row, const int64_t D)
{
    for (int64_t d = 0; d < D; d += LINE)
        __builtin_prefetch(row + d, 0, 2);
}

/* Whether head n of the users reads the same keys and values as the one before. */
VEC_INLINE bool shares(struct users users, int64_t n)
{
    return n > 0 && n < users.count && users.heads[n]->kv == users.heads[n - 1]->kv;
}

/* Adds the scores of the keys to s, which has their bias. The lanes of SIMD_WIDTH keys are summed
 * together, by a transpose; the last key may be taken several times, and counts once. D is a
 * constant where this is inlined. */
VEC_INLINE void score_keys(struct users users, struct keys keys, const int64_t D)
{
    for (int64_t j = 0; j < keys.nk; j += SIMD_WIDTH)
        for (int64_t n = 0; n < users.count; n++) {
            struct head *head = users.heads[n];
            const float *key[SIMD_WIDTH], *value[SIMD_WIDTH];
            vec dots[SIMD_WIDTH] = { 0 }, sum;

            for (int64_t l = 0; l < SIMD_WIDTH; l++) {
                int64_t at = smaller(j + l, keys.nk - 1);
                key[l] = keys.k.at + at * keys.k.stride + head->kv;
                value[l] = keys.v.at + at * keys.v.stride + head->kv;
            }
            for (int64_t d = 0; d < D; d += SIMD_WIDTH) {
                vec query = vec_load(head->query + d);
                for (int64_t l = 0; l < SIMD_WIDTH; l++) {
                    dots[l] += query * vec_load_some(key[l] + d, D - d);
                    if (d % LINE == 0 && !shares(users, n))
                        __builtin_prefetch(value[l] + d, 0, 2);
                }
            }
            vec_transpose(dots);
            sum = dots[0];
            for (int64_t l = 1; l < SIMD_WIDTH; l++)
                sum += dots[l];
            if (users.gain)
                sum *= vec_load(users.gain + j);
            vec_store_some(head->s + j, sum + vec_load(head->s + j),
                           smaller(SIMD_WIDTH, keys.nk - j));
        }
}

/* s <- exp(s - m'), with m, l and o brought up to date. */
static void softmax_keys(struct head *head, int64_t width, int64_t nk)
{
    vec max = vec_all(head->m), sum = { 0 };
    float before = head->m;

    for (int64_t j = nk; j < TILE; j++)
        head->s[j] = -INFINITY;
    for (int64_t j = 0; j < TILE; j += SIMD_WIDTH)
        max = vec_max(vec_load(head->s + j), max);
    head->m = vec_largest(max);
    for (int64_t j = 0; j < TILE; j += SIMD_WIDTH) {
        vec e = vec_exp_term(vec_load(head->s + j) - head->m);
        vec_store(head->s + j, e);
        sum += e;
    }
    float shrink = expf(before - head->m);
    head->l = head->l * shrink + vec_sum(sum);
    for (int64_t d = 0; d < width; d += SIMD_WIDTH)
        vec_store(head->o + d, shrink * vec_load(head->o + d));
}

/* o <- o + sum over the keys from..to-1 of s_j v_j, for `count` heads with the same values: 1 or 2.
 */
VEC_INLINE void add_values(struct head **heads, const int64_t count, struct keys keys, int64_t from,
                           int64_t to, const int64_t D)
{
    enum { PART = 4 }; /* vectors of each head whose sums are in registers */

    for (int64_t d = 0; d < D; d += PART * SIMD_WIDTH) {
        vec sum[2][PART] = { 0 };

        for (int64_t j = from; j < to; j++) {
            const float *value = keys.v.at + j * keys.v.stride + heads[0]->kv + d;

            if (d == 0)
                fetch(keys.k.at + (j - keys.back) * keys.k.stride + heads[0]->kv, D);
            for (int64_t p = 0; p < PART; p++) {
                int64_t left = D - d - p * SIMD_WIDTH;
                vec v = left > 0 ? vec_load_some(value + p * SIMD_WIDTH, left) : (vec){ 0 };
                for (int64_t n = 0; n < count; n++)
                    sum[n][p] += heads[n]->s[j] * v;
            }
        }
        for (int64_t n = 0; n < count; n++)
            for (int64_t p = 0; p < PART && d + p * SIMD_WIDTH < D; p++) {
                float *o = heads[n]->o + d + p * SIMD_WIDTH;
                vec_store(o, sum[n][p] + vec_load(o));
            }
    }
}

VEC_INLINE void take_tile(struct users users, struct keys keys, const int64_t D)
{
    score_keys(users, keys, D);
    for (int64_t n = 0; n < users.count; n++)
        softmax_keys(users.heads[n], whole_vectors(D), keys.nk);
    for (int64_t j = 0, to; j < keys.nk; j = to) {
        to = smaller(j + BLOCK, keys.nk);
        for (int64_t n = 0; n < users.count; n++)
            if (shares(users, n + 1)) {
                add_values(users.heads + n, 2, keys, j, to, D);
                n++;
            } else {
                add_values(users.heads + n, 1, keys, j, to, D);
            }
    }
}

/* Skips these keys if the budget allows for their bound, and takes it from the budget. */
static bool skip(struct head *head, const struct heads *c, const struct bounds *b, int64_t h,
                 int64_t position, struct key_range keys)
{
    const struct bias *bias = &c->a->bias;
    int64_t near = position - keys.last, far = position - keys.first;
    float score = head->reach * keys.norm;
    float most_bias = head->gates.sum ? gates_between(head->gates, position, keys.last)
                                      : bounds_bias(b, bias, h, near, far);
    float size = score + fabsf(most_bias) + fabsf(head->m), most = score + most_bias - head->m;
    if (c->gain) {
        most = bounds_gain(score, gain_at(c, near), gain_at(c, far)) - head->m;
        size = gain_at(c, far) * (score + gain_at(c, far)) + fabsf(head->m);
    }
    float weight = bound_margin * bounds_count(bias, h, keys.last - keys.first + 1) *
                   expf(most + bound_rounding * size) / head->l;

    if (!(head->out + weight <= b->eps))
        return false;
    head->out += weight;
    return true;
}

/* Heads from..to - 1 of query i of row b. The first tile, which has the query's own key, may be a
 * part of one. */
static void attend(struct head *heads, struct users users, const struct heads *c,
                   const struct bounds *bounds, int64_t b, int64_t i, int64_t from, int64_t to)
{
    const struct attention_args *a = c->a;
    int64_t row = keys_row(c, b), share = c->H / c->Hkv, left = to - from;
    int64_t position = keys_count(c, b) - c->Lq + i;
    int64_t first = attention_first_key(position, a->window);
    float gain[TILE];

    users.gain = c->gain ? gain : NULL;
    for (int64_t h = from; h < to; h++) {
        struct head *head = &heads[h];
        struct rows query = rows_of(a->q, b, i, h);

        pack_rows(head->query, c, query, 1, (float)a->scale);
        memset(head->o, 0, sizeof(float) * (size_t)c->width);
        head->kv = h / share * a->k.stride[2];
        head->m = -INFINITY;
        head->l = head->out = 0.0f;
        head->reach = bounds->norms ? bounds_reach(c, query.at) : 0.0f;
        head->gates = gates_of(c, b, h);
        head->done = false;
    }
    for (int64_t j = position / TILE * TILE, last = position; last >= first && left > 0;
         last = j - 1, j -= TILE) {
        struct keys keys = { rows_of(a->k, row, j, 0), rows_of(a->v, row, j, 0), last - j + 1,
                             smaller(j, TILE) };

        users.count = 0;
        for (int64_t h = from; h < to; h++) {
            struct head *head = &heads[h];
            if (head->done)
                continue;
            if (bounds->norms && last < position) {
                struct key_range rest = bounds_rest(bounds, c, b, h / share, first, last);
                struct key_range tile = bounds_tile(bounds, b, h / share, j, last);
                head->done = skip(head, c, bounds, h, position, rest);
                left -= head->done;
                if (head->done || skip(head, c, bounds, h, position, tile))
                    continue;
            }
            fill_bias(head->s, c, h, position - j, -1, TILE);
            for (int64_t n = 0; head->gates.sum && n <= last - j; n++)
                head->s[n] += gates_between(head->gates, position, j + n);
            users.heads[users.count++] = head;
        }
        if (users.count == 0)
            continue;
        if (c->gain)
            fill_gain(gain, c, position - j, -1, TILE);
        if (c->D == 64)
            take_tile(users, keys, 64);
        else if (c->D == 128)
            take_tile(users, keys, 128);
        else
            take_tile(users, keys, c->D);
    }
    for (int64_t h = from; h < to; h++) {
        unpack_rows(rows_of(a->y, b, i, h), c, heads[h].o, 1, 1.0f / heads[h].l);
        lse_of(c, b, h)[i] = heads[h].m + logf(heads[h].l);
    }
}

/* A task has all heads of a query, the longest stretches of memory; of few queries some of them, so
 * that every thread has work. */
alibi_status decode_rows(const struct heads *c)
{
    int64_t threads = omp_get_max_threads(), queries = c->B * c->Lq;
    int64_t each = queries < 4 * threads ? (c->H + threads - 1) / threads : c->H;
    int64_t groups = (c->H + each - 1) / each;
    int64_t floats = 2 * c->width + TILE;
    struct bounds bounds = { 0 };
    struct head *heads = NULL, **users = NULL;
    float *memory = NULL;
    alibi_status status;

    TRY(bounds_init(&bounds, c));
    TRY(NEW_ARRAY(&heads, threads * c->H, "the heads of attention"));
    TRY(NEW_ARRAY(&users, threads * c->H, "the heads of attention"));
    TRY(NEW_ARRAY(&memory, threads * c->H * floats, "the tiles of attention"));
    for (int64_t h = 0; h < threads * c->H; h++) {
        heads[h].query = memory + h * floats;
        heads[h].o = heads[h].query + c->width;
        heads[h].s = heads[h].o + c->width;
    }
#pragma omp parallel for schedule(dynamic) if (queries * c->H > 1 &&                               \
                                               queries * c->H * c->Lk * c->D > CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < queries * groups; task++) {
        int64_t query = task / groups, from = task % groups * each;
        int64_t first = omp_get_thread_num() * c->H; /* of this thread's heads */

        attend(heads + first, (struct users){ .heads = users + first }, c, &bounds, query / c->Lq,
               query % c->Lq, from, smaller(c->H, from + each));
    }
out:
    mem_free(memory);
    mem_free(users);
    mem_free(heads);
    bounds_fini(&bounds);
    return status;
}
