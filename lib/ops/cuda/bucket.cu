// bucket.cu - biases by bucket of the distance (T5)
//
//   table[h, d] = weight[bucket[d], h]
//
// A few thousand numbers: a thread per output.
#include "ops/cuda/launch.cuh"

namespace
{

struct bucket_lookup {
    float *table;
    const float *weight;
    const int32_t *bucket;
    int64_t H, T;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        table[i] = weight[bucket[i % T] * H + i / T];
    }
};

// The gradient of a weight: the distances of its bucket, added in order.
struct bucket_gather {
    float *dweight;
    const float *dtable;
    const int32_t *bucket;
    int64_t H, T;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        const int64_t own = i / H, h = i % H;
        float sum = 0.0f;

        for (int64_t d = 0; d < T; d++)
            if (bucket[d] == own)
                sum += dtable[h * T + d];
        dweight[i] += sum;
    }
};

} // namespace

alibi_status cuda_bucket_forward(struct device *dev, struct tensor table, struct tensor weight,
                                 struct tensor bucket)
{
    struct context *c = cuda_of(dev);
    const struct bucket_lookup op = { (float *)table.data, (const float *)weight.data,
                                      (const int32_t *)bucket.data, table.shape[0],
                                      table.shape[1] };

    cuda_part(c, "bias by bucket");
    return each<1>(c, "bias by bucket", op, tensor_count(table), false);
}

alibi_status cuda_bucket_backward(struct device *dev, struct tensor dweight, struct tensor dtable,
                                  struct tensor bucket)
{
    struct context *c = cuda_of(dev);
    const struct bucket_gather op = { (float *)dweight.data, (const float *)dtable.data,
                                      (const int32_t *)bucket.data, dtable.shape[0],
                                      dtable.shape[1] };

    cuda_part(c, "bias by bucket");
    return each<1>(c, "bias by bucket", op, tensor_count(dweight), false);
}
