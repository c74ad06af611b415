// linear_decode.cu - linear layers of few rows in bf16: decoding
//
//   y = x weight^T + bias,   activated = act(y before it is rounded)
//   x = norm(sum),   sum = stream + branch          if the norm before the layer is computed here
//
// Few rows have little to compute: the time is that of reading the weights, and of everything that
// keeps a kernel from doing so. So the weights are on their way before the kernel before this one
// has ended (launch.cuh, chain()), and they go from memory to registers, with nothing in between.
//
//   block    OUTPUTS outputs, for up to 32 rows; its warps divide the inputs
//   warp     a share of the inputs, STEP at a time; the weights of the next AHEAD steps are in
//            registers or under way
//   mma      m16n8k16: 16 outputs by 8 rows, so 8 rows cost what one does
//
//   load the first AHEAD steps of weights -> wait for x -> mma, step by step, each loading the
//   weights of AHEAD steps later -> sums of the warps to shared memory -> their sum in the order of
//   the inputs, bias, activation
//
// A product does not depend on the order of its inputs as long as both operands have the same. Lane
// 4 g + t takes 16 bytes at once, the inputs 8 t .. 8 t + 7 of a step, of outputs g and g + 8 and
// of row g: the halves of these are the operands of two mma.
//
// The shares depend on the number of inputs only, and rows do not mix: a row has the same bits in
// any batch.
//
// The norm before the layer has so little to do that a kernel of its own is mostly latency. With
// PARTS > 0 every block computes it, between the wait and the first mma:
//
//   each warp takes whole rows: sum to shared memory, mean and rstd -> barrier -> each warp
//   normalises its share of the inputs of all rows, in place; the norm's weights for them are in
//   registers since before the wait -> operands of mma from shared memory
//
// The blocks of the first outputs store the norm's results. A lane adds what PARTS threads of
// norm.cu have, in their order, so the bits are those of the norm's own kernel: which of the two
// computes it may depend on the number of rows.
#include "ops/cuda/activation.cuh"
#include "ops/cuda/norm.cuh"

namespace
{

enum {
    OUTPUTS = 16,    // of a block
    ROWS = 8,        // of a tile
    STEP = 32,       // inputs
    AHEAD = 8,       // steps
    MOST_WARPS = 12, // of a block, if each has AHEAD steps or more
    COLUMN = 20,     // floats from row to row of a warp's sums: no bank conflicts when written
    PACK = 8,        // inputs in 16 bytes
    PART = 32 * NORM_HELD * PACK, // inputs of a row per part of the norm
    MOST_PARTS = 2,
    NORM_NUMBERS = 1 << 14, // at most, in all rows: every block computes the norms of its rows
    NORM_TOGETHER = 4,      // rows
};

enum { NO_ACTIVATION = -1 };

struct few_rows {
    bf16 *y, *activated;
    const bf16 *x, *weight, *bias; // bias may be absent
    int rows, in, out;
    int activation;                 // enum alibi_activation, or NO_ACTIVATION
    struct norm_forward<bf16> norm; // with PARTS > 0: x is its y
    int row_packs;                  // 16 bytes from row to row of the normalised inputs
};

template <int PARTS>
constexpr int most_warps = PARTS > 0 ? PART / STEP / AHEAD *PARTS : (int)MOST_WARPS;

template <int TILES, int PARTS> using warp_sums = float[most_warps<PARTS>][TILES * ROWS][COLUMN];

typedef bits<bf16, PACK> packed;

// A step of weights: of outputs g and g + 8. Zeros where there is no input or no output.
struct weights {
    uint4 of[2];

    __device__ __forceinline__ void load(const struct few_rows &p, int step, int end)
    {
        const int lane = (int)threadIdx.x % 32, k = step * STEP + lane % 4 * 8,
                  first = (int)blockIdx.x * OUTPUTS + lane / 4;

#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int o = first + 8 * n;
            of[n] = make_uint4(0, 0, 0, 0);
            if (step < end && k < p.in && o < p.out)
                of[n] = load_once(p.weight + (int64_t)o * p.in + k);
        }
    }
};

// ---- the norm before the layer

// A row in a warp. Of a lane's accesses, i % PARTS = n are those of thread 32 n + lane of norm.cu.
template <int PARTS> struct warp_row {
    packed x[NORM_HELD * PARTS], branch[NORM_HELD * PARTS];

    static __device__ __forceinline__ int column(int i)
    {
        return (i * 32 + (int)threadIdx.x % 32) * PACK;
    }

    __device__ __forceinline__ void read(const struct norm_forward<bf16> &a, int row)
    {
        if (row >= a.rows)
            return;
#pragma unroll
        for (int i = 0; i < NORM_HELD * PARTS; i++) {
            const int64_t at = (int64_t)row * a.C + column(i);
            if (column(i) >= a.C)
                continue;
            x[i] = load_bits<PACK>(a.x + at);
            if (a.branch)
                branch[i] = load_bits<PACK>(a.branch + at);
        }
    }
};

template <int PARTS> __device__ __forceinline__ float row_sum(const float (&sums)[PARTS])
{
    float sum = warp_sum(sums[0]);

#pragma unroll
    for (int part = 1; part < PARTS; part++)
        sum += warp_sum(sums[part]);
    return sum;
}

// The rows first_row.. of the block, as sums, and their statistics. A warp loads its next row while
// it computes one.
template <int PARTS>
__device__ __forceinline__ void measure_rows(const struct few_rows &p, int first_row, int rows,
                                             packed *shared_rows, float2 *statistics)
{
    const struct norm_forward<bf16> &a = p.norm;
    const int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    struct warp_row<PARTS> coming;

    coming.read(a, first_row + warp);
    for (int r = warp; r < rows; r += warps) {
        const int64_t begin = (int64_t)(first_row + r) * a.C;
        packed at[NORM_HELD * PARTS];
        float sums[PARTS] = {}, squares[PARTS] = {}, mean = 0.0f;

#pragma unroll
        for (int i = 0; i < NORM_HELD * PARTS; i++) {
            const int c = coming.column(i);
            if (c >= a.C)
                continue;
            at[i] = coming.x[i];
            if (a.branch) {
                float branch[PACK];
#pragma unroll
                for (int k = 0; k < PACK; k++)
                    branch[k] = coming.branch[i].at(k);
                at[i] = residual_sum(coming.x[i], branch);
                if (blockIdx.x == 0)
                    store_bits<PACK>(a.sum + begin + c, at[i]);
            }
            shared_rows[r * p.row_packs + c / PACK] = at[i];
        }
        if (r + warps < rows)
            coming.read(a, first_row + r + warps);
        if (a.mean) {
#pragma unroll
            for (int i = 0; i < NORM_HELD * PARTS; i++)
                if (coming.column(i) < a.C)
                    add_numbers(sums[i % PARTS], at[i]);
            mean = mean_of_sum(row_sum(sums), a.per_row);
        }
#pragma unroll
        for (int i = 0; i < NORM_HELD * PARTS; i++)
            if (coming.column(i) < a.C)
                add_squares(squares[i % PARTS], at[i], mean);
        const float rstd = rstd_of_squares(row_sum(squares), a.per_row, a.eps);
        if (threadIdx.x % 32 == 0) {
            statistics[r] = make_float2(mean, rstd);
            if (blockIdx.x == 0 && a.mean)
                a.mean[first_row + r] = mean;
            if (blockIdx.x == 0)
                a.rstd[first_row + r] = rstd;
        }
    }
}

// The inputs of a lane among those of its warp: of every row the 16 bytes at column c.
struct norm_part {
    int c;
    bool there;
    float weight[PACK], bias[PACK];

    __device__ __forceinline__ norm_part(const struct norm_forward<bf16> &a, int first, int end)
        : c((first * STEP / PACK + (int)threadIdx.x % 32) * PACK), there(c < a.C && c < end * STEP),
          bias()
    {
        if (!there)
            return;
        load<PACK>(weight, a.weight + c);
        if (a.bias)
            load<PACK>(bias, a.bias + c);
    }

    __device__ __forceinline__ void normalise(const struct few_rows &p, int first_row, int rows,
                                              packed *shared_rows, const float2 *statistics) const
    {
        if (!there)
            return;
        for (int first = 0; first < rows; first += NORM_TOGETHER) {
            packed at[NORM_TOGETHER];
#pragma unroll
            for (int i = 0; i < NORM_TOGETHER; i++)
                if (first + i < rows)
                    at[i] = shared_rows[(first + i) * p.row_packs + c / PACK];
#pragma unroll
            for (int i = 0; i < NORM_TOGETHER; i++) {
                const int r = first + i;
                float y[PACK];
                if (r >= rows)
                    continue;
#pragma unroll
                for (int k = 0; k < PACK; k++)
                    y[k] = output(normalised(at[i].at(k), statistics[r].x, statistics[r].y),
                                  weight[k], bias[k]);
                at[i] = round_to_bits<bf16>(y);
                shared_rows[r * p.row_packs + c / PACK] = at[i];
                if (blockIdx.x == 0)
                    store_bits<PACK>(p.norm.y + (int64_t)(first_row + r) * p.in + c, at[i]);
            }
        }
    }
};

// ---- the product

// The inputs of a lane, from memory; with PARTS > 0 from shared memory.
template <int PARTS>
__device__ __forceinline__ uint4 inputs(const struct few_rows &p, int first_row, int row, int step,
                                        int end)
{
    const int k = step * STEP + (int)threadIdx.x % 4 * 8;

    if (first_row + row >= p.rows || step >= end || k >= p.in)
        return make_uint4(0, 0, 0, 0);
    if constexpr (PARTS > 0)
        return dynamic_shared<uint4>()[row * p.row_packs + k / PACK];
    else
        return *reinterpret_cast<const uint4 *>(p.x + (int64_t)(first_row + row) * p.in + k);
}

__device__ __forceinline__ void multiply(float (&sums)[4], const struct weights &w, uint4 x)
{
    const uint32_t first[4] = { w.of[0].x, w.of[1].x, w.of[0].y, w.of[1].y },
                   second[4] = { w.of[0].z, w.of[1].z, w.of[0].w, w.of[1].w };

    mma(sums, first, x.x, x.y);
    mma(sums, second, x.z, x.w);
}

__device__ __forceinline__ float activate(float x, int kind)
{
    return kind == ALIBI_GELU_TANH  ? gelu_tanh<bf16>::value(x)
           : kind == ALIBI_GELU_ERF ? gelu_erf<bf16>::value(x)
                                    : relu<bf16>::value(x);
}

template <int TILES, int PARTS>
__global__ void __launch_bounds__(most_warps<PARTS> * 32)
    few_rows_kernel(const __grid_constant__ few_rows p)
{
    constexpr int GROUP = AHEAD / TILES; // steps whose inputs are loaded together
    __shared__ warp_sums<TILES, PARTS> of_warp;
    const int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32,
              lane = (int)threadIdx.x % 32, first_row = (int)blockIdx.y * TILES * ROWS;
    const int steps = (int)ceil_div(p.in, STEP), share = (int)ceil_div(steps, warps),
              first = warp * share, end = min(first + share, steps);
    const int o = (int)blockIdx.x * OUTPUTS + (int)threadIdx.x % OUTPUTS; // that it finishes
    struct weights w[AHEAD];
    float sums[TILES][4] = {};

#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        w[i].load(p, first + i, end);
    const float bias = p.bias && o < p.out ? to_float(p.bias[o]) : 0.0f;
    if constexpr (PARTS > 0) {
        const int rows = min(p.rows - first_row, TILES * ROWS);
        packed *const shared_rows = dynamic_shared<packed>();
        float2 *const statistics = (float2 *)(shared_rows + rows * p.row_packs);
        const struct norm_part mine(p.norm, first, end);

        let_next_kernel_start();
        wait_for_kernel_before();
        measure_rows<PARTS>(p, first_row, rows, shared_rows, statistics);
        __syncthreads();
        mine.normalise(p, first_row, rows, shared_rows, statistics);
        __syncwarp();
    } else {
        let_next_kernel_start();
        wait_for_kernel_before();
    }

    for (int step = first; step < end; step += AHEAD) {
#pragma unroll
        for (int group = 0; group < AHEAD; group += GROUP) {
            uint4 x[GROUP][TILES];
#pragma unroll
            for (int i = 0; i < GROUP; i++)
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    x[i][tile] =
                        inputs<PARTS>(p, first_row, tile * ROWS + lane / 4, step + group + i, end);
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    multiply(sums[tile], w[group + i], x[i][tile]);
                if constexpr (PARTS == 0)
                    w[group + i].load(p, step + group + i + AHEAD, end);
            }
        }
        if (PARTS > 0) // a share has no more than AHEAD
            break;
    }

    // Element i of sums: output lane / 4 + 8 (i / 2), row 2 (lane % 4) + i % 2 of the tile.
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            of_warp[warp][tile * ROWS + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sums[tile][i];
    __syncthreads();

    for (int n = (int)threadIdx.x; n < TILES * ROWS * OUTPUTS; n += (int)blockDim.x) {
        const int row = first_row + n / OUTPUTS;
        const int64_t to = (int64_t)row * p.out + o;
        float sum = 0.0f;

        if (row >= p.rows || o >= p.out)
            continue;
        for (int from = 0; from < warps; from++)
            sum += of_warp[from][n / OUTPUTS][n % OUTPUTS];
        sum += bias;
        p.y[to] = from_float<bf16>(sum);
        if (p.activation != NO_ACTIVATION)
            p.activated[to] = from_float<bf16>(activate(sum, p.activation));
    }
}

// Rows begin 64 bytes after multiples of 128: no bank conflicts when operands are read, by 8 lanes
// at a time from two rows.
constexpr int row_packs(int in)
{
    return (in + 8 * PACK - 1) / (8 * PACK) * 8 + 4;
}

// Rows of packs, and their means and rstds.
constexpr size_t normed_bytes(int rows, int in)
{
    return rows * (row_packs(in) * sizeof(packed) + sizeof(float2));
}

static_assert(sizeof(warp_sums<4, MOST_PARTS>) + normed_bytes(32, NORM_NUMBERS / 32) <= 99 << 10,
              "every GPU has that much shared memory");

template <int TILES, int PARTS> alibi_status run(struct context *c, const struct few_rows &p)
{
    const int64_t most = ceil_div(ceil_div(p.in, STEP), AHEAD),
                  warps = most < MOST_WARPS ? most : (int64_t)MOST_WARPS,
                  rows = p.rows < TILES * ROWS ? p.rows : (int64_t)TILES * ROWS;
    const dim3 grid((unsigned)ceil_div(p.out, OUTPUTS), (unsigned)ceil_div(p.rows, TILES * ROWS));

    return chain(c, "linear forward", few_rows_kernel<TILES, PARTS>, grid,
                 dim3((unsigned)warps * 32), PARTS > 0 ? normed_bytes(rows, p.in) : 0, p);
}

template <int TILES> alibi_status run(struct context *c, const struct few_rows &p)
{
    if (!p.norm.y)
        return run<TILES, 0>(c, p);
    return p.in <= PART ? run<TILES, 1>(c, p) : run<TILES, MOST_PARTS>(c, p);
}

} // namespace

bool cuda_few_rows_serve(const struct context *c, struct tensor y, struct tensor weight)
{
    return !c->blas_decodes && y.type == DTYPE_BF16 && weight.shape[1] % 8 == 0 &&
           aligned(weight.data) && y.shape[0] <= INT32_MAX && weight.shape[0] <= INT32_MAX / 2 &&
           weight.shape[1] <= INT32_MAX / 2;
}

bool cuda_few_rows_norm(const struct norm_args *norm)
{
    const struct norm_forward<bf16> a = norm_forward_of<bf16>(norm);

    return norm->x.shape[1] <= MOST_PARTS * PART && tensor_count(norm->x) <= NORM_NUMBERS &&
           norm->dropout.p == 0 && takes_packs(a);
}

// x is copied if it is not aligned: how a row is computed must not depend on that.
alibi_status cuda_few_rows(struct context *c, const struct linear_args *a, struct tensor activated,
                           int activation)
{
    struct few_rows p = { .y = (bf16 *)a->y.data,
                          .activated = (bf16 *)activated.data,
                          .x = (const bf16 *)a->x.data,
                          .weight = (const bf16 *)a->weight.data,
                          .bias = (const bf16 *)a->bias.data,
                          .rows = (int)a->x.shape[0],
                          .in = (int)a->weight.shape[1],
                          .out = (int)a->weight.shape[0],
                          .activation = activated.data ? activation : (int)NO_ACTIVATION,
                          .norm = {},
                          .row_packs = row_packs((int)a->weight.shape[1]) };

    if (a->norm)
        p.norm = norm_forward_of<bf16>(a->norm);
    if (!aligned(p.x)) {
        const size_t bytes = (size_t)tensor_count(a->x) * sizeof(bf16);
        void *copy;

        TRY_RETURN(cuda_scratch(c, SCRATCH_DECODE, bytes, &copy));
        c->chained = false;
        TRY_RETURN(
            cuda_check(cudaMemcpyAsync(copy, p.x, bytes, cudaMemcpyDeviceToDevice, c->stream),
                       "linear forward"));
        p.x = (const bf16 *)copy;
    }
    if (p.rows <= ROWS)
        return run<1>(c, p);
    return p.rows <= 2 * ROWS ? run<2>(c, p) : run<4>(c, p);
}
