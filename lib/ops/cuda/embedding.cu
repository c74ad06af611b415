// embedding.cu - looking up rows, and adding their gradients without races
//
//   y[b, l] = scale * weight[tokens[b, l]] + table[position],   position = start + l
//
// Backward: tokens repeat, and the rows of dy that belong to one row of dweight must be added in a
// fixed order. They are sorted by token, and the sorted rows are cut into segments, at every new
// token and at every multiple of SEGMENT, so that a frequent token does not wait for one block:
//
//   sorted tokens    4 4 4 4 4 4 | 4 4 7 7 | 7 9 ...         | multiples of SEGMENT
//   segments         a             b   c     d e
//
//   segment_kernel   a block per segment adds its rows in order. A segment that begins the run of a
//                    token (a, c, e) adds to dweight; one that continues a run (b, d) stores its
//                    sum
//   join_kernel      adds the stored sums of a run to dweight, in order
#include <cub/device/device_radix_sort.cuh>

#include "ops/cuda/launch.cuh"

namespace
{

enum { THREADS = 128, SEGMENT = 64 };

// ---- forward

template <class T> struct lookup {
    T *y;
    const int32_t *tokens;
    const T *weight;
    const float *table;    // from position `start` on; may be absent
    const int32_t *length; // ragged: row b is at position length[b] - 1, and L is 1
    int64_t L;
    int C;
    float scale;
};

template <class T, int N>
__global__ void __launch_bounds__(THREADS) lookup_kernel(struct lookup<T> a)
{
    let_next_kernel_start();
    wait_for_kernel_before();
    const int64_t row = blockIdx.x, token = a.tokens[row],
                  l = a.length ? a.length[row] - 1 : row % a.L;

    for (int c = (int)threadIdx.x * N; c < a.C; c += THREADS * N) {
        float x[N], position[N] = {};
        load<N>(x, a.weight + token * a.C + c);
        if (a.table)
            load<N>(position, a.table + l * a.C + c);
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] = a.scale * x[k] + position[k];
        store<N>(a.y + row * a.C + c, x);
    }
}

template <class T> alibi_status run_forward(struct context *c, const struct embedding_args *a)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = a->y.shape[0] * a->y.shape[1], C = a->y.shape[2],
                  start = ragged_present(a->ragged) ? 0 : a->start;
    const struct lookup<T> p = {
        .y = (T *)a->y.data, .tokens = (const int32_t *)a->tokens.data,
        .weight = (const T *)a->weight.data,
        .table = a->table.data ? (const float *)a->table.data + start * C : NULL,
        .length = (const int32_t *)a->ragged.length.data, .L = a->y.shape[1], .C = (int)C,
        .scale = (float)a->scale,
    };
    const bool vector = C % N == 0 && aligned(p.y, p.weight, p.table);

    if (rows == 0 || C == 0)
        return ALIBI_OK;
    return chain(c, "embedding", vector ? lookup_kernel<T, N> : lookup_kernel<T, 1>,
                 dim3((unsigned)rows), dim3(THREADS), 0, p);
}

// ---- sorting the tokens

// CUB's radix sort is stable: equal tokens stay in the order of their rows. With temp NULL it only
// says how many bytes of temporary memory it needs.
cudaError_t radix_sort(void *temp, size_t *temp_bytes, const int32_t *keys, int32_t *sorted_keys,
                       const int32_t *values, int32_t *sorted_values, int64_t count, int bits,
                       cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(temp, *temp_bytes, (const uint32_t *)keys,
                                           (uint32_t *)sorted_keys, values, sorted_values,
                                           (int)count, 0, bits, stream);
}

struct sorting {
    int32_t *tokens, *order; // sorted; order: the row that each came from
    int32_t *rows;           // 0, 1, 2 ...
    void *temp;
    size_t temp_bytes;
};

struct iota {
    int32_t *to;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        to[i] = (int32_t)i;
    }
};

// Bits that the numbers 0..V-1 need.
int id_bits(int64_t V)
{
    int bits = 1;

    while (bits < 31 && V > (int64_t)1 << bits)
        bits++;
    return bits;
}

// Bytes of `arrays` arrays of `count` ids, each padded to a multiple of 256.
size_t ids_bytes(int64_t arrays, int64_t count)
{
    const int64_t factors[] = { arrays, ceil_div(count, 256 / (int64_t)sizeof(int32_t)), 256 };

    return cuda_bytes(factors, 3);
}

// Bytes of three arrays, then CUB's temporary memory. *all is SIZE_MAX if that is too much.
alibi_status sorting_bytes(struct context *c, size_t *all, size_t *temp, int64_t count, int bits)
{
    *all = SIZE_MAX;
    *temp = 0;
    if (count > INT32_MAX)
        return fail(ALIBI_MEMORY, "%lld tokens are too many for one pass on the GPU",
                    (long long)count);
    TRY_RETURN(cuda_check(radix_sort(NULL, temp, NULL, NULL, NULL, NULL, count, bits, c->stream),
                          "embedding"));
    (void)size_add(all, ids_bytes(3, count), *temp);
    return ALIBI_OK;
}

alibi_status sort(struct context *c, struct sorting *s, struct tensor tokens, int64_t V)
{
    const int64_t count = tensor_count(tokens);
    const size_t bytes = ids_bytes(1, count);
    const int bits = id_bits(V);
    size_t total;
    char *all;

    *s = sorting{};
    TRY_RETURN(sorting_bytes(c, &total, &s->temp_bytes, count, bits));
    TRY_RETURN(cuda_scratch(c, SCRATCH_SORT, total, (void **)&all));
    s->tokens = (int32_t *)all;
    s->order = (int32_t *)(all + bytes);
    s->rows = (int32_t *)(all + 2 * bytes);
    s->temp = all + 3 * bytes;
    TRY_RETURN(each<1>(c, "embedding", iota{ s->rows }, count, false));
    return cuda_check(radix_sort(s->temp, &s->temp_bytes, (const int32_t *)tokens.data, s->tokens,
                                 s->rows, s->order, count, bits, c->stream),
                      "embedding");
}

// ---- gradient of the weights

template <class T> struct scatter {
    float *dweight;
    float *aside; // [rows / SEGMENT, C]: sums of segments that continue a run
    const T *dy;
    const int32_t *tokens, *order; // sorted
    int64_t rows;
    int C;
    float scale;
};

template <int N>
__device__ __forceinline__ void add_scaled(float *to, const float (&sum)[N], float scale)
{
    float total[N];

    load<N>(total, to);
#pragma unroll
    for (int k = 0; k < N; k++)
        total[k] += scale * sum[k];
    store<N>(to, total);
}

// The sum of `count` rows of x from column c on.
template <class T, int N>
__device__ __forceinline__ void add_rows(float (&sum)[N], const T *x, const int32_t *rows,
                                         int count, int64_t C, int c)
{
#pragma unroll 4
    for (int j = 0; j < count; j++) {
        float part[N];
        load<N>(part, x + rows[j] * C + c);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] += part[k];
    }
}

// A block per sorted row; those in the middle of a segment return at once.
template <class T, int N>
__global__ void __launch_bounds__(THREADS) segment_kernel(struct scatter<T> a)
{
    __shared__ int32_t rows[SEGMENT];
    const int64_t first = blockIdx.x, segment = first / SEGMENT, token = a.tokens[first];
    const bool begins = first == 0 || a.tokens[first - 1] != token;

    if (!begins && first % SEGMENT != 0)
        return;

    // The rows of dy that the segment adds: those with the same token, up to its end.
    const int64_t own = first + threadIdx.x;
    const bool within = own < a.rows && own < (segment + 1) * SEGMENT && a.tokens[own] == token;
    if (within)
        rows[threadIdx.x] = a.order[own];
    const int count = __syncthreads_count(within);

    for (int c = (int)threadIdx.x * N; c < a.C; c += THREADS * N) {
        float sum[N] = {};
        add_rows<T, N>(sum, a.dy, rows, count, a.C, c);
        if (begins)
            add_scaled<N>(a.dweight + token * a.C + c, sum, a.scale);
        else
            store<N>(a.aside + segment * a.C + c, sum);
    }
}

// A block per multiple of SEGMENT; it acts if that is the first one within its token's run.
template <class T, int N>
__global__ void __launch_bounds__(THREADS) join_kernel(struct scatter<T> a)
{
    const int64_t segment = (int64_t)blockIdx.x + 1, first = segment * SEGMENT,
                  token = a.tokens[first];
    const bool continues = a.tokens[first - 1] == token;
    const bool continued = segment > 1 && a.tokens[first - SEGMENT - 1] == token;

    if (!continues || continued)
        return;
    for (int c = (int)threadIdx.x * N; c < a.C; c += THREADS * N) {
        float sum[N] = {};
        for (int64_t s = segment; s * SEGMENT < a.rows && a.tokens[s * SEGMENT] == token; s++) {
            float part[N];
            load<N>(part, a.aside + s * a.C + c);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += part[k];
        }
        add_scaled<N>(a.dweight + token * a.C + c, sum, a.scale);
    }
}

template <class T, int N> alibi_status scatter_rows(struct context *c, struct scatter<T> a)
{
    const dim3 block(THREADS);
    const int64_t cuts = (a.rows - 1) / SEGMENT;

    TRY_RETURN(launch(c, "embedding", segment_kernel<T, N>, dim3((unsigned)a.rows), block, 0, a));
    if (cuts == 0)
        return ALIBI_OK;
    return launch(c, "embedding", join_kernel<T, N>, dim3((unsigned)cuts), block, 0, a);
}

template <class T>
alibi_status add_to_weight(struct context *c, struct tensor dweight, struct tensor dy,
                           struct tensor tokens, double scale)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = tensor_count(tokens), C = dweight.shape[1];
    struct sorting s;
    scatter<T> a = { .dweight = (float *)dweight.data,
                     .dy = (const T *)dy.data,
                     .rows = rows,
                     .C = (int)C,
                     .scale = (float)scale };

    TRY_RETURN(sort(c, &s, tokens, dweight.shape[0]));
    TRY_RETURN(cuda_scratch(c, SCRATCH_SUMS, cuda_aside_bytes(rows, C), (void **)&a.aside));
    a.tokens = s.tokens;
    a.order = s.order;
    if (C % N == 0 && aligned(a.dweight, a.aside, a.dy))
        return scatter_rows<T, N>(c, a);
    return scatter_rows<T, 1>(c, a);
}

// ---- gradient of the positions: a block for each, over the batch

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    positions_kernel(float *dtable, const T *dy, int64_t B, int64_t L, int C)
{
    const int64_t l = blockIdx.x;

    for (int c = (int)threadIdx.x * N; c < C; c += THREADS * N) {
        float sum[N] = {};
#pragma unroll 4
        for (int64_t b = 0; b < B; b++) {
            float part[N];
            load<N>(part, dy + (b * L + l) * C + c);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += part[k];
        }
        add_scaled<N>(dtable + l * C + c, sum, 1.0f);
    }
}

template <class T>
alibi_status add_to_table(struct context *c, struct tensor dtable, struct tensor dy, int64_t start)
{
    constexpr int N = pack<T>::N;
    const int64_t B = dy.shape[0], L = dy.shape[1], C = dy.shape[2];
    float *to = (float *)dtable.data + start * C;
    const bool vector = C % N == 0 && aligned(to, dy.data);

    return launch(c, "embedding", vector ? positions_kernel<T, N> : positions_kernel<T, 1>,
                  dim3((unsigned)L), dim3(THREADS), 0, to, (const T *)dy.data, B, L, (int)C);
}

template <class T> alibi_status run_backward(struct context *c, const struct embedding_args *a)
{
    if (tensor_count(a->dy) == 0)
        return ALIBI_OK;
    if (a->dweight.data)
        TRY_RETURN(add_to_weight<T>(c, a->dweight, a->dy, a->tokens, a->scale));
    return a->dtable.data ? add_to_table<T>(c, a->dtable, a->dy, a->start) : ALIBI_OK;
}

} // namespace

alibi_status cuda_embedding_forward(struct device *dev, const struct embedding_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "embedding");
    DISPATCH(a->y.type, T, return run_forward<T>(c, a));
}

alibi_status cuda_embedding_backward(struct device *dev, const struct embedding_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "embedding");
    DISPATCH(a->dy.type, T, return run_backward<T>(c, a));
}

// For any vocabulary.
size_t cuda_sorting_bytes(struct context *c, int64_t rows)
{
    size_t all, temp;

    return sorting_bytes(c, &all, &temp, rows, id_bits(INT32_MAX)) == ALIBI_OK ? all : SIZE_MAX;
}

size_t cuda_aside_bytes(int64_t rows, int64_t C)
{
    const int64_t factors[] = { ceil_div(rows, SEGMENT), C, (int64_t)sizeof(float) };

    return cuda_bytes(factors, 3);
}
