// embedding.cu
//
//   y[b, l] = scale * weight[tokens[b, l]] + table[start + l]
//
// Backward without two blocks adding to one place: the rows of dy are sorted by token, and the
// sorted rows cut into segments, at every new token and at every multiple of SEGMENT. A block adds
// the rows of a segment in their order. Where a token's run began it adds them to dweight; a
// segment that goes on with a run from before leaves its sum aside, and such sums are added to
// dweight in their order afterwards. So a frequent token does not wait for one block.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/sort.h"

enum { THREADS = 128, SEGMENT = 64 };

// ---- forward

template <class T> struct lookup {
    T *y;
    const int32_t *tokens;
    const T *weight;
    const float *table; // from position `start` on; may be absent
    int64_t L;
    int C;
    float scale;
};

template <class T, int N>
static __global__ void __launch_bounds__(THREADS) lookup_kernel(struct lookup<T> a)
{
    const int64_t row = blockIdx.x, token = a.tokens[row], l = row % a.L;

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

template <class T>
static alibi_status run_forward(struct cuda *c, struct tensor y, struct tensor tokens,
                                struct tensor weight, struct tensor table, int64_t start,
                                double scale)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = y.shape[0] * y.shape[1], C = y.shape[2];
    const float *positions = table.data ? (const float *)table.data + start * C : NULL;
    const struct lookup<T> a = {
        (T *)y.data, (const int32_t *)tokens.data, (const T *)weight.data, positions, y.shape[1],
            (int)C, (float)scale
    };
    const bool vector = C % N == 0 && aligned(a.y, a.weight, a.table);

    if (rows == 0 || C == 0)
        return ALIBI_OK;
    return launch(c, "embedding", vector ? lookup_kernel<T, N> : lookup_kernel<T, 1>,
                  dim3((unsigned)rows), dim3(THREADS), 0, a);
}

alibi_status cuda_embedding_forward(struct device *dev, const struct embedding_args *a)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "embedding");
    TRY_RETURN(cuda_refuse_ragged(a->ragged));
    DISPATCH(a->y.type, T,
             return run_forward<T>(c, a->y, a->tokens, a->weight, a->table, a->start, a->scale));
}

// ---- the order of the tokens

struct sorting {
    int32_t *tokens, *order; // sorted; `order` has the row that each came from
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

// Bits of the numbers 0..V-1.
static int bits_of(int64_t V)
{
    int bits = 1;

    while (bits < 31 && V > (int64_t)1 << bits)
        bits++;
    return bits;
}

// Of `arrays` arrays of `count` ids, each a multiple of 256, so that the next begins at one.
static size_t ids_bytes(int64_t arrays, int64_t count)
{
    const int64_t factors[] = { arrays, ceil_div(count, 256 / (int64_t)sizeof(int32_t)), 256 };

    return cuda_bytes(factors, 3);
}

// Three arrays, then CUB's own memory. *all is SIZE_MAX where that is too much.
static alibi_status sorting_bytes(struct cuda *c, size_t *all, size_t *temp, int64_t count,
                                  int bits)
{
    *all = SIZE_MAX;
    *temp = 0;
    if (count > INT32_MAX)
        return fail(ALIBI_MEMORY, "%lld tokens are too many for one pass", (long long)count);
    TRY_RETURN(cuda_check(
        cuda_sort(NULL, temp, NULL, NULL, NULL, NULL, (int)count, bits, c->stream), "embedding"));
    (void)size_add(all, ids_bytes(3, count), *temp);
    return ALIBI_OK;
}

// For any vocabulary.
size_t cuda_sorting_bytes(struct cuda *c, int64_t rows)
{
    size_t all, temp;

    return sorting_bytes(c, &all, &temp, rows, bits_of(INT32_MAX)) == ALIBI_OK ? all : SIZE_MAX;
}

static alibi_status sorting_new(struct cuda *c, struct sorting *s, int64_t count, int bits)
{
    const size_t bytes = ids_bytes(1, count);
    size_t total;
    void *all;

    *s = sorting{};
    TRY_RETURN(sorting_bytes(c, &total, &s->temp_bytes, count, bits));
    TRY_RETURN(cuda_scratch(c, SCRATCH_SORT, total, &all));
    s->tokens = (int32_t *)all;
    s->order = (int32_t *)((char *)all + bytes);
    s->rows = (int32_t *)((char *)all + 2 * bytes);
    s->temp = (char *)all + 3 * bytes;
    return ALIBI_OK;
}

static alibi_status sort(struct cuda *c, struct sorting *s, struct tensor tokens, int64_t V)
{
    const int64_t count = tensor_count(tokens);
    const int bits = bits_of(V);

    TRY_RETURN(sorting_new(c, s, count, bits));
    TRY_RETURN(each<1>(c, "embedding", iota{ s->rows }, count, false));
    return cuda_check(cuda_sort(s->temp, &s->temp_bytes, (const int32_t *)tokens.data, s->tokens,
                                s->rows, s->order, (int)count, bits, c->stream),
                      "embedding");
}

// ---- gradient of the weights

template <class T> struct scatter {
    float *dweight;
    float *aside; // [rows / SEGMENT, C]: sums of segments that go on with a run
    const T *dy;
    const int32_t *tokens, *order; // sorted
    int64_t rows;
    int C;
    float scale;
};

template <int N>
static __device__ __forceinline__ void add_scaled(float *to, const float (&sum)[N], float scale)
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
static __device__ __forceinline__ void add_rows(float (&sum)[N], const T *x, const int32_t *rows,
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

// A block for each sorted row; those in the middle of a segment leave at once.
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) segment_kernel(struct scatter<T> a)
{
    __shared__ int32_t rows[SEGMENT];
    const int64_t first = blockIdx.x, segment = first / SEGMENT, token = a.tokens[first];
    const bool begins = first == 0 || a.tokens[first - 1] != token;

    if (!begins && first % SEGMENT != 0)
        return;
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

// A block for each multiple of SEGMENT; it acts if that is the first one within its token's run.
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) join_kernel(struct scatter<T> a)
{
    const int64_t segment = (int64_t)blockIdx.x + 1, first = segment * SEGMENT,
                  token = a.tokens[first];
    const bool goes_on = a.tokens[first - 1] == token;
    const bool went_on = segment > 1 && a.tokens[first - SEGMENT - 1] == token;

    if (!goes_on || went_on)
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

template <class T, int N> static alibi_status scatter_rows(struct cuda *c, struct scatter<T> a)
{
    const dim3 block(THREADS);
    const int64_t cuts = (a.rows - 1) / SEGMENT;

    TRY_RETURN(launch(c, "embedding", segment_kernel<T, N>, dim3((unsigned)a.rows), block, 0, a));
    if (cuts == 0)
        return ALIBI_OK;
    return launch(c, "embedding", join_kernel<T, N>, dim3((unsigned)cuts), block, 0, a);
}

size_t cuda_aside_bytes(int64_t rows, int64_t C)
{
    const int64_t factors[] = { ceil_div(rows, SEGMENT), C, (int64_t)sizeof(float) };

    return cuda_bytes(factors, 3);
}

template <class T>
static alibi_status add_to_weight(struct cuda *c, struct tensor dweight, struct tensor dy,
                                  struct tensor tokens, double scale)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = tensor_count(tokens), C = dweight.shape[1];
    struct sorting s;
    struct scatter<T> a = {
        (float *)dweight.data, NULL, (const T *)dy.data, NULL, NULL, rows, (int)C, (float)scale
    };

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
static __global__ void __launch_bounds__(THREADS)
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
static alibi_status add_to_table(struct cuda *c, struct tensor dtable, struct tensor dy,
                                 int64_t start)
{
    constexpr int N = pack<T>::N;
    const int64_t B = dy.shape[0], L = dy.shape[1], C = dy.shape[2];
    float *to = (float *)dtable.data + start * C;
    const bool vector = C % N == 0 && aligned(to, dy.data);

    return launch(c, "embedding", vector ? positions_kernel<T, N> : positions_kernel<T, 1>,
                  dim3((unsigned)L), dim3(THREADS), 0, to, (const T *)dy.data, B, L, (int)C);
}

template <class T>
static alibi_status run_backward(struct cuda *c, struct tensor dweight, struct tensor dtable,
                                 struct tensor dy, struct tensor tokens, int64_t start,
                                 double scale)
{
    if (tensor_count(dy) == 0)
        return ALIBI_OK;
    TRY_RETURN(add_to_weight<T>(c, dweight, dy, tokens, scale));
    return dtable.data ? add_to_table<T>(c, dtable, dy, start) : ALIBI_OK;
}

alibi_status cuda_embedding_backward(struct device *dev, const struct embedding_args *a)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "embedding");
    DISPATCH(
        a->dy.type, T,
        return run_backward<T>(c, a->dweight, a->dtable, a->dy, a->tokens, a->start, a->scale));
}
