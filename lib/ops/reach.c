/* reach.c - where attention's weight goes, by distance
 *
 *   p(i, j) = exp(s(i, j) - lse_i)      recomputed pair by pair from q, k and the log-sum-exp
 *
 * Nothing larger than the accumulators is kept. A key that attention skipped counts with its tiny
 * weight. */
#include <math.h>

#include "ops/ref/ref.h"

int reach_bin(int64_t distance)
{
    return distance == 0 ? 0 : 64 - __builtin_clzll((unsigned long long)distance);
}

static float dot(const float *a, const float *b, int64_t count)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < count; d++)
        sum += a[d] * b[d];
    return sum;
}

static void add_weight(struct head_reach *out, int64_t distance, int64_t near, double score,
                       double lse)
{
    double weight = exp(score - lse);

    out->weight[reach_bin(distance)] += weight;
    out->beyond += distance >= near ? weight : 0.0;
    out->distance += weight * (double)distance;
    out->entropy += weight * (lse - score);
}

static void add_query(const struct attention_args *a, const struct sinks_args *sinks, int64_t b,
                      int64_t h, int64_t i, int64_t near, struct head_reach *out)
{
    struct tensor q = a->q, k = a->k;
    int64_t position = k.shape[1] - q.shape[1] + i, kv = h / (q.shape[2] / k.shape[2]);
    int64_t first = sinks ? sinks_seen(position, sinks->window, sinks->k.shape[1]) : 0;
    const float *query =
        (const float *)q.data + b * q.stride[0] + i * q.stride[1] + h * q.stride[2];
    const float *keys = (const float *)k.data + b * k.stride[0] + kv * k.stride[2];
    double lse = ((const float *)a->lse.data)[(b * q.shape[2] + h) * q.shape[1] + i];

    for (int64_t j = 0; j < first; j++)
        add_weight(out, position - j, near, ref_sink_score(sinks, b, h, i, j), lse);
    for (int64_t j = attention_first_key(position, a->window); j <= position; j++)
        add_weight(out, position - j, near,
                   ref_gain_at(a->bias, position - j) * a->scale *
                           (double)dot(query, keys + j * k.stride[1], q.shape[3]) +
                       ref_bias_at(a->bias, b, h, position, j),
                   lse);
    out->queries++;
}

void attention_reach(const struct attention_args *a, const struct sinks_args *sinks, int64_t from,
                     int64_t step, int64_t near, struct head_reach *heads)
{
#pragma omp parallel for schedule(dynamic)
    for (int64_t h = 0; h < a->q.shape[2]; h++)
        for (int64_t b = 0; b < a->q.shape[0]; b++)
            for (int64_t i = from; i < a->q.shape[1]; i += step)
                add_query(a, sinks, b, h, i, near, &heads[h]);
}
