/* bucket.c
 *
 *   table[h, d] = weight[bucket[d], h] */
#include "ops/ref/ref.h"

alibi_status ref_bucket_forward(struct device *dev, struct tensor table, struct tensor weight,
                                struct tensor bucket)
{
    int64_t H = table.shape[0], T = table.shape[1];

    (void)dev;
    for (int64_t h = 0; h < H; h++)
        for (int64_t d = 0; d < T; d++)
            set(table, h * T + d, get(weight, get_index(bucket, d) * H + h));
    return ALIBI_OK;
}

alibi_status ref_bucket_backward(struct device *dev, struct tensor dweight, struct tensor dtable,
                                 struct tensor bucket)
{
    int64_t H = dtable.shape[0], T = dtable.shape[1], buckets = dweight.shape[0];

    (void)dev;
    for (int64_t k = 0; k < buckets; k++)
        for (int64_t h = 0; h < H; h++) {
            double sum = 0.0;
            for (int64_t d = 0; d < T; d++)
                if (get_index(bucket, d) == k)
                    sum += get(dtable, h * T + d);
            add(dweight, k * H + h, sum);
        }
    return ALIBI_OK;
}
