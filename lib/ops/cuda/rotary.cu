// rotary.cu - rotary positions
//
//   (a, b) <- (a cos t - b sin t, a sin t + b cos t)     t = angle of (row, pair)
//
// for each pair of a head. Rotating back is the same with -t. A block has one row of one
// sequence; a thread takes N pairs of a head: in the layout of halves N numbers and their N
// partners, in the layout of pairs 2 N neighbours.
#include "ops/cuda/rotary.cuh"

namespace
{

enum { THREADS = 128 };

template <class T> struct rotary_params {
    T *x;
    struct angles angles;
    int64_t L, stride[3];
    int H, D;
    float direction;
};

// Pairs n..n+N-1 of a head: (n, n + D/2).
template <class T, int N>
__device__ __forceinline__ void rotate_halves(T *head, const float *cosines, int n, int half,
                                              float direction)
{
    float a[N], b[N], cosine[N], sine[N];

    load<N>(a, head + n);
    load<N>(b, head + half + n);
    load<N>(cosine, cosines + n);
    load<N>(sine, cosines + half + n);
#pragma unroll
    for (int k = 0; k < N; k++)
        rotate(a[k], b[k], cosine[k], direction * sine[k]);
    store<N>(head + n, a);
    store<N>(head + half + n, b);
}

// Pairs n..n+N-1 of a head: (2n, 2n + 1).
template <class T, int N>
__device__ __forceinline__ void rotate_pairs(T *head, const float *cosines, int n, int half,
                                             float direction)
{
    float cosine[N], sine[N];

    load<N>(cosine, cosines + n);
    load<N>(sine, cosines + half + n);
    if constexpr (N == 1) {
        float a = to_float(head[2 * n]), b = to_float(head[2 * n + 1]);
        rotate(a, b, cosine[0], direction * sine[0]);
        head[2 * n] = from_float<T>(a);
        head[2 * n + 1] = from_float<T>(b);
    } else {
        float x[2 * N];
        load<2 * N>(x, head + 2 * n);
#pragma unroll
        for (int k = 0; k < N; k++)
            rotate(x[2 * k], x[2 * k + 1], cosine[k], direction * sine[k]);
        store<2 * N>(head + 2 * n, x);
    }
}

template <class T, int N, bool HALVES>
__global__ void __launch_bounds__(THREADS) rotary_kernel(struct rotary_params<T> r)
{
    const int64_t b = blockIdx.x / r.L, l = blockIdx.x % r.L;
    const int half = r.D / 2, per_head = half / N;
    const float *cosines = r.angles.table + l * r.D;
    T *row = r.x + b * r.stride[0] + l * r.stride[1];

    let_next_kernel_start();
    wait_for_kernel_before();
    for (int item = (int)threadIdx.x; item < r.H * per_head; item += THREADS) {
        T *head = row + item / per_head * r.stride[2];
        const int n = item % per_head * N;
        if constexpr (HALVES)
            rotate_halves<T, N>(head, cosines, n, half, r.direction);
        else
            rotate_pairs<T, N>(head, cosines, n, half, r.direction);
    }
}

// A thread of the layout of pairs reads two numbers per pair: half a pack of pairs is one access.
template <class T> alibi_status run(struct context *c, struct rotary_params<T> r, int64_t rows)
{
    constexpr int N = pack<T>::N;
    const int64_t strides = r.stride[0] | r.stride[1] | r.stride[2]; // N is a power of two
    const bool halves = r.angles.halves;
    const bool vector =
        strides % N == 0 && r.D % (halves ? 2 * N : N) == 0 && aligned(r.x, r.angles.table);
    const auto kernel = halves   ? vector ? rotary_kernel<T, N, true> : rotary_kernel<T, 1, true>
                          : vector ? rotary_kernel<T, N / 2, false>
                                 : rotary_kernel<T, 1, false>;

    if (rows == 0 || r.H == 0 || r.D < 2)
        return ALIBI_OK;
    return chain(c, "rotary", kernel, dim3((unsigned)rows), dim3(THREADS), 0, r);
}

} // namespace

alibi_status cuda_rotary(struct device *dev, struct tensor x, struct rotation r, int direction)
{
    struct context *c = cuda_of(dev);
    const int64_t B = x.shape[0], L = x.shape[1], D = x.shape[3];

    cuda_part(c, "rotary");
    DISPATCH(
        x.type, T,
        const struct rotary_params<T> p = { .x = (T *)x.data,
                                            .angles = angles_of(r),
                                            .L = L,
                                            .stride = { x.stride[0], x.stride[1], x.stride[2] },
                                            .H = (int)x.shape[2],
                                            .D = (int)D,
                                            .direction = (float)direction };
        return run<T>(c, p, B * L));
}
