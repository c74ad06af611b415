// linear_decode.cu - linear layers of few rows in bf16: decoding
//
//   y = x weight^T + bias,   activated = act(y before it is rounded)
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
#include "ops/cuda/activation.cuh"

namespace
{

enum {
    OUTPUTS = 16,    // of a block
    ROWS = 8,        // of a tile
    STEP = 32,       // inputs
    AHEAD = 8,       // steps
    MOST_WARPS = 12, // of a block, if each has AHEAD steps or more
    COLUMN = 20,     // floats from row to row of a warp's sums: no bank conflicts when written
};

enum { NO_ACTIVATION = -1 };

struct few_rows {
    bf16 *y, *activated;
    const bf16 *x, *weight, *bias; // bias may be absent
    int rows, in, out;
    int activation; // enum alibi_activation, or NO_ACTIVATION
};

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

__device__ __forceinline__ uint4 inputs(const struct few_rows &p, int row, int step, int end)
{
    const int k = step * STEP + (int)threadIdx.x % 4 * 8;

    if (row < p.rows && step < end && k < p.in)
        return *reinterpret_cast<const uint4 *>(p.x + (int64_t)row * p.in + k);
    return make_uint4(0, 0, 0, 0);
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

template <int TILES>
__global__ void __launch_bounds__(MOST_WARPS * 32)
    few_rows_kernel(const __grid_constant__ few_rows p)
{
    constexpr int GROUP = AHEAD / TILES; // steps whose inputs are loaded together
    __shared__ float of_warp[MOST_WARPS][TILES * ROWS][COLUMN];
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
    let_next_kernel_start();
    wait_for_kernel_before();

    for (int step = first; step < end; step += AHEAD)
#pragma unroll
        for (int group = 0; group < AHEAD; group += GROUP) {
            uint4 x[GROUP][TILES];
#pragma unroll
            for (int i = 0; i < GROUP; i++)
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    x[i][tile] =
                        inputs(p, first_row + tile * ROWS + lane / 4, step + group + i, end);
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    multiply(sums[tile], w[group + i], x[i][tile]);
                w[group + i].load(p, step + group + i + AHEAD, end);
            }
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

template <int TILES> alibi_status run(struct context *c, const struct few_rows &p)
{
    const int64_t most = ceil_div(ceil_div(p.in, STEP), AHEAD),
                  warps = most < MOST_WARPS ? most : (int64_t)MOST_WARPS;
    const dim3 grid((unsigned)ceil_div(p.out, OUTPUTS), (unsigned)ceil_div(p.rows, TILES * ROWS));

    return chain(c, "linear forward", few_rows_kernel<TILES>, grid, dim3((unsigned)warps * 32), 0,
                 p);
}

} // namespace

bool cuda_few_rows_serve(const struct context *c, struct tensor y, struct tensor weight)
{
    return !c->blas_decodes && y.type == DTYPE_BF16 && weight.shape[1] % 8 == 0 &&
           aligned(weight.data) && y.shape[0] <= INT32_MAX && weight.shape[0] <= INT32_MAX / 2 &&
           weight.shape[1] <= INT32_MAX / 2;
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
                          .activation = activated.data ? activation : (int)NO_ACTIVATION };

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
