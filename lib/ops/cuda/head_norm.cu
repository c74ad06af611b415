// head_norm.cu - queries and keys by the root mean square of each head, then rotated
//
//   y = R(n * weight),     n = x * rstd,     rstd = 1 / sqrt(mean(x^2) + eps)
//   dx = rstd * (g - n * mean(g * n)),       g = R^-1(dy) * weight,     dweight += R^-1(dy) * n
//
// A lane has N of the pairs of numbers that R mixes: N numbers and their N partners half a head
// away, or 2 N neighbours. Without a rotation the former.
//
//   forward_kernel    a team of lanes takes one head, and reads it once: 2 x 16 bytes per lane
//   backward_kernel   a block takes heads of queries, or heads of keys; its teams alternate. A lane
//                     keeps its columns, so gradients of the weights stay in registers to the end
//   plain_...         the same for heads that are too wide or not aligned: a warp takes a head, a
//                     lane its pairs lane, lane + 32, ..., which it reads again for each pass. For
//                     each CHUNK columns of the gradients of the weights there is a launch, and the
//                     last one, which has read all of dy, writes dx
//
// Blocks write their sums of the gradients of weights, and a second kernel adds them in order.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/heads.cuh"
#include "ops/cuda/rotary.cuh"

namespace
{

enum { THREADS = 256, CHUNK = 256, PLAIN_FORWARD_WARPS = 4 };
enum { QUERIES, KEYS, KINDS };

template <class T> struct head_norm_params {
    heads<T> y, x, dy, dx;
    const float *weight[KINDS];
    struct angles angles; // no table: no rotation, and halves is set
    int64_t rows, L;
    int count[KINDS], D; // heads of each kind in a row
    float eps;
};

// Head number `item` when each row has `heads` of them, beginning with head `from`.
struct head_place {
    int64_t b, l;
    int h;
    bool key;

    template <class T, class I>
    __device__ __forceinline__ head_place(const struct head_norm_params<T> &p, I item, int from,
                                          int heads)
    {
        const I row = item / (I)heads;

        b = row / (I)p.L;
        l = row % (I)p.L;
        h = from + (int)(item % (I)heads);
        key = h >= p.count[QUERIES];
    }

    template <class T> __device__ __forceinline__ T *in(const heads<T> &view) const
    {
        return view.row(b, l, h);
    }

    // Cosines of the head's row; its sines follow. NULL: no rotation.
    template <class T>
    __device__ __forceinline__ const float *angles(const struct head_norm_params<T> &p) const
    {
        return p.angles.table ? p.angles.table + l * p.D : NULL;
    }
};

// Pairs n..n+N-1 of a head: (a[k], b[k]). If D is odd, the last number has no partner.
template <int N> struct pairs {
    float a[N], b[N];

    template <class T>
    __device__ __forceinline__ void load_from(const T *head, int n, int D, bool halves)
    {
        if (halves) {
            const int half = (D + 1) / 2;

            load<N>(a, head + n);
            if (N > 1 || half + n < D)
                load<N>(b, head + half + n);
        } else if constexpr (N == 1) {
            a[0] = to_float(head[2 * n]);
            b[0] = to_float(head[2 * n + 1]);
        } else {
            float both[2 * N];

            load<2 * N>(both, head + 2 * n);
#pragma unroll
            for (int k = 0; k < N; k++) {
                a[k] = both[2 * k];
                b[k] = both[2 * k + 1];
            }
        }
    }

    template <class T>
    __device__ __forceinline__ void store_to(T *head, int n, int D, bool halves) const
    {
        if (halves) {
            const int half = (D + 1) / 2;

            store<N>(head + n, a);
            if (N > 1 || half + n < D)
                store<N>(head + half + n, b);
        } else if constexpr (N == 1) {
            head[2 * n] = from_float<T>(a[0]);
            head[2 * n + 1] = from_float<T>(b[0]);
        } else {
            float both[2 * N];

#pragma unroll
            for (int k = 0; k < N; k++) {
                both[2 * k] = a[k];
                both[2 * k + 1] = b[k];
            }
            store<2 * N>(head + 2 * n, both);
        }
    }

    // Rotates by the angles of a position, or back.
    __device__ __forceinline__ void rotate_by(const float *angles, int n, int D, float direction)
    {
        float cosine[N], sine[N];

        if (!angles)
            return;
        load<N>(cosine, angles + n);
        load<N>(sine, angles + D / 2 + n);
#pragma unroll
        for (int k = 0; k < N; k++)
            rotate(a[k], b[k], cosine[k], direction * sine[k]);
    }

    __device__ __forceinline__ float squares() const
    {
        float sum = 0.0f;

#pragma unroll
        for (int k = 0; k < N; k++)
            sum += a[k] * a[k] + b[k] * b[k];
        return sum;
    }
};

// y of these pairs: x is replaced by it.
template <int N>
__device__ __forceinline__ void norm(pairs<N> &x, const pairs<N> &weight, float rstd)
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        x.a[k] *= rstd * weight.a[k];
        x.b[k] *= rstd * weight.b[k];
    }
}

// The part of the sum of g * n over a head that these pairs are, divided by rstd; dy is rotated
// back already.
template <int N>
__device__ __forceinline__ float products(const pairs<N> &x, const pairs<N> &dy,
                                          const pairs<N> &weight)
{
    float sum = 0.0f;

#pragma unroll
    for (int k = 0; k < N; k++)
        sum += dy.a[k] * x.a[k] * weight.a[k] + dy.b[k] * x.b[k] * weight.b[k];
    return sum;
}

// dy is replaced by dx; mean: of g * n.
template <int N>
__device__ __forceinline__ void input_gradient(pairs<N> &dy, const pairs<N> &x,
                                               const pairs<N> &weight, float rstd, float mean)
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        dy.a[k] = rstd * (dy.a[k] * weight.a[k] - x.a[k] * rstd * mean);
        dy.b[k] = rstd * (dy.b[k] * weight.b[k] - x.b[k] * rstd * mean);
    }
}

// ---- heads of which a lane has N pairs: two accesses of 16 bytes

// Over the lanes of a team, a power of two; all lanes of the warp take part.
__device__ __forceinline__ float team_sum(float x, int team)
{
    for (int step = team / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    forward_kernel(struct head_norm_params<T> p, unsigned items, int team)
{
    // Threads of all blocks may be more than 32 bits count; items are not.
    const unsigned item = blockIdx.x * (THREADS / team) + threadIdx.x / team;
    const int n = (int)threadIdx.x % team * N, heads = p.count[QUERIES] + p.count[KEYS];
    const bool inside = item < items && n < p.D / 2;
    const head_place at(p, item, 0, heads);
    pairs<N> x = {}, weight;

    let_next_kernel_start();
    wait_for_kernel_before();
    if (inside)
        x.load_from(at.in(p.x), n, p.D, p.angles.halves);
    const float rstd = rsqrtf(team_sum(x.squares(), team) / (float)p.D + p.eps);
    if (!inside)
        return;
    weight.load_from(p.weight[at.key], n, p.D, p.angles.halves);
    norm(x, weight, rstd);
    x.rotate_by(at.angles(p), n, p.D, 1.0f);
    x.store_to(at.in(p.y), n, p.D, p.angles.halves);
}

// partials [slices, KINDS, D]; block (slice, kind).
template <class T, int N>
__global__ void __launch_bounds__(THREADS, 2)
    backward_kernel(struct head_norm_params<T> p, float *partials, int team)
{
    __shared__ __align__(16) float sums[THREADS * 2 * N]; // [teams, D]
    const int kind = (int)blockIdx.y, heads = p.count[kind], from = kind * p.count[QUERIES];
    const int own = (int)threadIdx.x / team, n = (int)threadIdx.x % team * N,
              teams = THREADS / team;
    const unsigned items = (unsigned)p.rows * (unsigned)heads;
    const bool column = n < p.D / 2, halves = p.angles.halves;
    pairs<N> weight = {}, dweight = {};

    if (column)
        weight.load_from(p.weight[kind], n, p.D, halves);
    // All teams of a warp take as many turns: team_sum() is of the whole warp.
    for (unsigned first = blockIdx.x * teams; first < items; first += gridDim.x * teams) {
        const bool inside = column && first + own < items;
        const head_place at(p, first + own, from, heads);
        pairs<N> x = {}, dy = {};

        if (inside) {
            x.load_from(at.in(p.x), n, p.D, halves);
            dy.load_from(at.in(p.dy), n, p.D, halves);
            dy.rotate_by(at.angles(p), n, p.D, -1.0f);
        }
        const float rstd = rsqrtf(team_sum(x.squares(), team) / (float)p.D + p.eps);
        const float mean = team_sum(products(x, dy, weight), team) * rstd / (float)p.D;
#pragma unroll
        for (int k = 0; k < N; k++) {
            dweight.a[k] += dy.a[k] * x.a[k] * rstd;
            dweight.b[k] += dy.b[k] * x.b[k] * rstd;
        }
        if (inside) {
            input_gradient(dy, x, weight, rstd, mean);
            dy.store_to(at.in(p.dx), n, p.D, halves);
        }
    }

    // The sums of the teams, added in their order.
    if (column)
        dweight.store_to(sums + own * p.D, n, p.D, halves);
    __syncthreads();
    for (int d = (int)threadIdx.x; d < p.D; d += THREADS) {
        float total = 0.0f;
        for (int t = 0; t < teams; t++)
            total += sums[t * p.D + d];
        partials[((int64_t)blockIdx.x * KINDS + kind) * p.D + d] = total;
    }
}

// ---- other heads

// Calls f(n) for the pairs of this lane.
template <class F> __device__ __forceinline__ void each_pair(int D, F f)
{
    for (int n = (int)threadIdx.x % LANES; n < (D + 1) / 2; n += LANES)
        f(n);
}

template <class T>
__device__ __forceinline__ float rstd_of(const struct head_norm_params<T> &p, const T *x)
{
    float squares = 0.0f;

    each_pair(p.D, [&](int n) {
        pairs<1> v = {};

        v.load_from(x, n, p.D, p.angles.halves);
        squares += v.squares();
    });
    return rsqrtf(warp_sum(squares) / (float)p.D + p.eps);
}

template <class T>
__global__ void __launch_bounds__(LANES *PLAIN_FORWARD_WARPS)
    plain_forward_kernel(struct head_norm_params<T> p)
{
    const int heads = p.count[QUERIES] + p.count[KEYS];
    const int64_t item = (int64_t)blockIdx.x * PLAIN_FORWARD_WARPS + threadIdx.x / LANES;

    if (item >= p.rows * heads)
        return;
    const head_place at(p, item, 0, heads);
    const float rstd = rstd_of(p, at.in(p.x));

    each_pair(p.D, [&](int n) {
        pairs<1> x = {}, weight = {};

        x.load_from(at.in(p.x), n, p.D, p.angles.halves);
        weight.load_from(p.weight[at.key], n, p.D, p.angles.halves);
        norm(x, weight, rstd);
        x.rotate_by(at.angles(p), n, p.D, 1.0f);
        x.store_to(at.in(p.y), n, p.D, p.angles.halves);
    });
}

// partials [slices, KINDS, columns]: of columns first_column..first_column+columns-1; block (slice,
// kind).
template <class T>
__global__ void __launch_bounds__(LANES *WARPS)
    plain_backward_kernel(struct head_norm_params<T> p, float *partials, int first_column,
                          int columns, bool write)
{
    __shared__ float of_warp[WARPS][CHUNK];
    const int warp = (int)threadIdx.x / LANES, kind = (int)blockIdx.y, heads = p.count[kind];
    const int half = (p.D + 1) / 2;
    const bool halves = p.angles.halves;
    const auto add = [&](int d, float gn) {
        if (d >= first_column && d < first_column + columns)
            of_warp[warp][d - first_column] += gn;
    };

    for (int i = (int)threadIdx.x; i < WARPS * CHUNK; i += LANES * WARPS)
        of_warp[i / CHUNK][i % CHUNK] = 0.0f;
    __syncthreads();

    for (int64_t item = (int64_t)blockIdx.x * WARPS + warp; item < p.rows * heads;
         item += (int64_t)gridDim.x * WARPS) {
        const head_place at(p, item, kind * p.count[QUERIES], heads);
        const float rstd = rstd_of(p, at.in(p.x));
        const auto read = [&](pairs<1> &x, pairs<1> &dy, pairs<1> &weight, int n) {
            x.load_from(at.in(p.x), n, p.D, halves);
            dy.load_from(at.in(p.dy), n, p.D, halves);
            dy.rotate_by(at.angles(p), n, p.D, -1.0f);
            weight.load_from(p.weight[kind], n, p.D, halves);
        };
        float sum = 0.0f;

        each_pair(p.D, [&](int n) {
            pairs<1> x = {}, dy = {}, weight = {};

            read(x, dy, weight, n);
            sum += products(x, dy, weight);
            add(halves ? n : 2 * n, dy.a[0] * x.a[0] * rstd);
            add(halves ? half + n : 2 * n + 1, dy.b[0] * x.b[0] * rstd);
        });
        if (!write)
            continue;
        const float mean = warp_sum(sum) * rstd / (float)p.D;
        each_pair(p.D, [&](int n) {
            pairs<1> x = {}, dy = {}, weight = {};

            read(x, dy, weight, n);
            input_gradient(dy, x, weight, rstd, mean);
            dy.store_to(at.in(p.dx), n, p.D, halves);
        });
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < columns; i += LANES * WARPS) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += of_warp[w][i];
        partials[((int64_t)blockIdx.x * KINDS + kind) * columns + i] = total;
    }
}

// ---- launching

template <class T> struct head_norm_params<T> params_of(const struct head_norm_args *a) {
    const int H = (int)a->x.shape[2];
    struct head_norm_params<T> p = {
        .y = heads_of<T>(a->y), .x = heads_of<T>(a->x), .dy = heads_of<T>(a->dy),
        .dx = heads_of<T>(a->dx),
        .weight = { (const float *)a->q_weight.data, (const float *)a->k_weight.data },
        .angles = angles_of(a->rotation), .rows = a->x.shape[0] * a->x.shape[1], .L = a->x.shape[1],
        .count = { (int)a->queries, H - (int)a->queries }, .D = (int)a->x.shape[3],
        .eps = (float)a->eps
    };

    p.angles.halves = p.angles.halves || !p.angles.table;
    return p;
}

// How many lanes take a head of which a lane has N pairs in two accesses of 16 bytes; 0: the views,
// x and another two, and the weights do not allow that.
template <class T, int N>
int team_of(const struct head_norm_params<T> &p, heads<T> second, heads<T> third)
{
    const int64_t items = p.rows * (p.count[QUERIES] + p.count[KEYS]);
    int team = 1;

    if (p.D % (2 * N) != 0 || p.D > 2 * N * LANES || items > INT32_MAX / 2 ||
        !fits(p.x, second, p.D, N) || !fits(p.x, third, p.D, N) ||
        !aligned(p.weight[QUERIES], p.weight[KEYS], p.angles.table))
        return 0;
    while (team * 2 * N < p.D)
        team *= 2;
    return team;
}

template <class T> alibi_status forward(struct context *c, const struct head_norm_args *a)
{
    constexpr int N = pack<T>::N;
    const struct head_norm_params<T> p = params_of<T>(a);
    const int64_t items = p.rows * a->x.shape[2];
    const int team = team_of<T, N>(p, p.y, p.y);

    if (items == 0)
        return ALIBI_OK;
    if (team == 0)
        return launch(c, "head norm", plain_forward_kernel<T>,
                      dim3((unsigned)ceil_div(items, PLAIN_FORWARD_WARPS)),
                      dim3(LANES * PLAIN_FORWARD_WARPS), 0, p);
    return chain(c, "head norm", forward_kernel<T, N>,
                 dim3((unsigned)ceil_div(items * team, THREADS)), dim3(THREADS), 0, p,
                 (unsigned)items, team);
}

// Slices of queries, and as many of keys: 8 turns or more for each team, and blocks for a large GPU
// at most. Results depend on their number, so it is the same on every GPU.
template <class T> int64_t slices_of(const struct head_norm_params<T> &p, int teams)
{
    const int most = p.count[QUERIES] > p.count[KEYS] ? p.count[QUERIES] : p.count[KEYS];
    const int64_t slices = ceil_div(p.rows * most, teams * 8);

    return slices < MULTIPROCESSORS ? slices : (int64_t)MULTIPROCESSORS;
}

template <class T> alibi_status backward(struct context *c, const struct head_norm_args *a)
{
    constexpr int N = pack<T>::N;
    const struct head_norm_params<T> p = params_of<T>(a);
    const int team = team_of<T, N>(p, p.dy, p.dx);
    const int64_t slices = slices_of(p, team > 0 ? THREADS / team : (int)WARPS);
    const dim3 blocks((unsigned)slices, KINDS);
    const int64_t factors[] = { slices, KINDS, p.D, (int64_t)sizeof(float) };
    float *dq_weight = (float *)a->dq_weight.data, *dk_weight = (float *)a->dk_weight.data;
    float *partials = NULL;

    if (slices == 0)
        return ALIBI_OK;
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_SUMS, factors, 4, (void **)&partials));
    if (team > 0) {
        TRY_RETURN(launch(c, "head norm backward", backward_kernel<T, N>, blocks, dim3(THREADS), 0,
                          p, partials, team));
        return cuda_add_partials(c, dq_weight, dk_weight, partials, slices, p.D);
    }
    for (int from = 0; from < p.D; from += CHUNK) {
        const int columns = min(p.D - from, (int)CHUNK);

        TRY_RETURN(launch(c, "head norm backward", plain_backward_kernel<T>, blocks,
                          dim3(LANES * WARPS), 0, p, partials, from, columns,
                          from + columns == p.D));
        TRY_RETURN(
            cuda_add_partials(c, dq_weight + from, dk_weight + from, partials, slices, columns));
    }
    return ALIBI_OK;
}

} // namespace

alibi_status cuda_head_norm_forward(struct device *dev, const struct head_norm_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "head norm");
    DISPATCH(a->x.type, T, return forward<T>(c, a));
}

alibi_status cuda_head_norm_backward(struct device *dev, const struct head_norm_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "head norm");
    DISPATCH(a->x.type, T, return backward<T>(c, a));
}
