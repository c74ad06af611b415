/* skipped.c - the weight that attention skipped, in double precision and pair by pair
 *
 *   skipped_i = sum over the tiles that were not used of exp(s(i, j)) / sum over all j of exp(s(i,
 * j))
 *
 * The bound of skipping is checked against this. It costs more than the attention that it checks.
 */
#include <math.h>

#include "ops/ref/ref.h"

static bool was_used(const struct attention_args *a, int64_t b, int64_t h, int64_t i, int64_t tile)
{
    struct tensor kept = a->skip.kept;
    const int32_t *row =
        (const int32_t *)kept.data +
        ((b * kept.shape[1] + h) * kept.shape[2] + i / ATTENTION_TILE) * kept.shape[3];

    return (uint32_t)row[tile / 32] >> tile % 32 & 1;
}

static double score(const struct attention_args *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    struct tensor q = a->q, k = a->k;
    int64_t kv = h / (q.shape[2] / k.shape[2]), position = k.shape[1] - q.shape[1] + i;
    int64_t q_i = b * q.stride[0] + i * q.stride[1] + h * q.stride[2],
            k_j = b * k.stride[0] + j * k.stride[1] + kv * k.stride[2];
    double sum = 0.0;

    for (int64_t d = 0; d < q.shape[3]; d++)
        sum += get(q, q_i + d) * get(k, k_j + d);
    return ref_gain_at(a->bias, position - j) * a->scale * sum +
           ref_bias_at(a->bias, b, h, position, j);
}

/* Sums relative to the largest score so far, so that none overflows. */
static double row_skipped(const struct attention_args *a, int64_t b, int64_t h, int64_t i)
{
    int64_t position = a->k.shape[1] - a->q.shape[1] + i;
    double max = -INFINITY, all = 0.0, skipped = 0.0;

    for (int64_t j = attention_first_key(position, a->window); j <= position; j++) {
        double s = score(a, b, h, i, j), larger = fmax(s, max), shrink = exp(max - larger),
               weight = exp(s - larger);
        bool used = was_used(a, b, h, i, j / ATTENTION_TILE);
        all = all * shrink + weight;
        skipped = skipped * shrink + (used ? 0.0 : weight);
        max = larger;
    }
    return isnan(skipped / all) ? INFINITY : skipped / all; /* so that it counts as the largest */
}

double attention_skipped(const struct attention_args *a)
{
    int64_t Lq = a->q.shape[1], H = a->q.shape[2], rows = a->q.shape[0] * H * Lq;
    double most = 0.0;

#pragma omp parallel for schedule(dynamic) reduction(max : most)
    for (int64_t n = 0; n < rows; n++)
        most = fmax(most, row_skipped(a, n / Lq / H, n / Lq % H, n % Lq));
    return most;
}

int64_t attention_all_tiles(const struct attention_args *a)
{
    struct tensor kept = a->skip.kept;
    int64_t past = (a->k.shape[1] - a->q.shape[1]) / ATTENTION_TILE, all = 0;

    for (int64_t t = past; t < past + kept.shape[2]; t++)
        all += t + 1 - attention_first_key(t * ATTENTION_TILE, a->window) / ATTENTION_TILE;
    return all * kept.shape[0] * kept.shape[1];
}

struct skip_count attention_count(const struct attention_args *a)
{
    struct tensor kept = a->skip.kept;
    struct skip_count n = { .all = attention_all_tiles(a) };

    for (int64_t i = 0; i < tensor_count(kept); i++)
        n.used += __builtin_popcount(((const uint32_t *)kept.data)[i]);
    return n;
}
