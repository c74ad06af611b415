// linear.cu - matrix products through cuBLASLt, autotuned
//
//   y = x weight^T + bias,   dx = dy weight,   dweight += dy^T x,   dbias += column sums of dy
//
// cuBLASLt stores matrices by columns: D = op(A) op(B) + beta C with D of m x n and inner dimension
// k. Ours are stored by rows, and a matrix [rows, columns] by rows is the same memory as its
// transpose by columns. So each product is computed as its transpose, and no number moves:
//
//                                A                    B                m      n      k
//   y^T       = weight x^T       weight, transposed   x                out    rows   in
//   dx^T      = weight^T dy^T    weight               dy               in     rows   out
//   dweight^T = x^T dy           x                    dy, transposed   in     out    rows
//
// where "transposed" is op on the matrix as cuBLASLt sees it. The bias of a column of y is that of
// a row of y^T, which is what cuBLASLt's epilogue adds. Sums are fp32, without tf32; where a sum is
// split, the parts are added in a fixed order.
//
// Plans. How a product is computed is kept per shape, types and alignments. At first it is the
// algorithm that cuBLASLt ranks first. A large product that has run autotune.after times is
// autotuned: all ALGORITHMS are timed, and the fastest of those that give the first one's bits on
// the operands at hand replaces it. So timing decides the speed, and the results repeat bit for
// bit. Sums that differ by their order alone may still agree after rounding to bf16; among the
// results of a product of autotune.flops some do not: about 2^-24 sqrt(k) / 2^-8 of them differ,
// which is 15,000 / sqrt(k) of the 10^9 / k that there are at least.
//
// Choices. With TUNING_WIDE (ops.h) a large product is autotuned when it first runs, and the
// fastest algorithm is taken whatever its bits, if they repeat. More of them are tried: with a
// larger workspace, and with the sums of few results split in other ways than cuBLASLt proposes. So
// gradients of weights keep all multiprocessors busy: 72 tiles of 128 x 256 results, say, split in
// 11 are 6 full waves on 132 of them. Timing then decides the bits too, so the choice is kept, and
// can be given to another device: a plan that is made later finds it by its key. Bytes that were
// given are only compared with the algorithms that would be tried here, and never handed to
// cuBLASLt.
//
// Decoding. A row must have the same bits whatever else is in the batch. linear_decode.cu does that
// where it can, in bf16 with rows of weights that are aligned to 16 bytes. All other products of
// decoding have exactly DECODE_ROWS rows (padded if there are fewer), one plan per weight, and no
// autotuning. The weights are read once for up to DECODE_ROWS rows.
//
// bf16 products apply GELU (the tanh form) to their fp32 sums before rounding. Its derivative is
// our own kernel, which is faster there, and so is all of GELU in fp32, which is more accurate.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/launch.cuh"

enum {
    ALGORITHMS = 32,   // of cuBLASLt's that the autotuner tries
    SPLIT_BASES = 4,   // of them whose sums are split, with TUNING_WIDE
    SPLITS = 16,       // at most
    SPLIT_TILES = 132, // of a product whose sums are split: as many as run at once, or fewer
    TILE_M = 128,      // of results, as cuBLASLt computes them
    TILE_N = 256,
    CANDIDATES = ALGORITHMS + SPLIT_BASES * (SPLITS - 1),
    TIMED_RUNS = 4,  // of each; the fastest counts
    PLAN_FORMAT = 1, // of struct plan_key and of what is tried, in the choices that are stored
};
static const float TOO_SLOW = 1.2f; // times the fastest: it is tried no more

// The key of a plan. Every byte is set, so keys compare as bytes.
struct plan_key {
    int64_t m, n, k;
    uint8_t transpose_a, transpose_b, type, sums, epilogue, decoding;
    uint8_t align_a, align_b, align_d, align_bias, align_aux;
    uint8_t unused[5];
};
static_assert(sizeof(plan_key) == PRODUCT_BYTES, "a key has no padding");
static_assert(sizeof(cublasLtMatmulAlgo_t) == ALGORITHM_BYTES, "as it is stored");

struct cuda_plan {
    struct cuda_plan *next; // in the same bucket
    struct plan_key key;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithms[CANDIDATES]; // as cuBLASLt ranks them, then with split sums
    int count, chosen;                           // count 0: cuBLASLt cannot compute this product
    int uses;                                    // up to autotune.after
    bool tuned;                                  // or its choice was given
};

namespace
{

enum epilogue {
    PLAIN,
    BIAS,
    GELU, // aux receives the input of GELU
    GELU_BIAS,
};

struct product {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    enum dtype type, sums; // of A and B; of C and D
    const void *a, *b, *c; // c NULL: beta is 0
    void *d;
    enum epilogue epilogue;
    const void *bias;
    void *aux;
    bool decoding;
};

bool present(struct tensor t)
{
    return t.data != NULL;
}

alibi_status blas_check(cublasStatus_t error, const struct product *p)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return ALIBI_OK;
    return fail(ALIBI_DEVICE,
                "cuBLASLt failed on a product of %lld x %lld by %lld x %lld in %s: %s",
                (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n,
                p->type == DTYPE_BF16 ? "bf16" : "fp32", cublasLtGetStatusName(error));
}

// ---- plans

// The largest power of two up to 16 that divides the address. No kernel needs more, and a tensor
// at another address next time finds the same plan.
uint8_t alignment(const void *p)
{
    uintptr_t bits = (uintptr_t)p | 16;

    return (uint8_t)(bits & -bits);
}

struct plan_key key_of(const struct product *p)
{
    const void *output = (const void *)((uintptr_t)p->c | (uintptr_t)p->d);

    return { .m = p->m,
             .n = p->n,
             .k = p->k,
             .transpose_a = p->transpose_a,
             .transpose_b = p->transpose_b,
             .type = (uint8_t)p->type,
             .sums = (uint8_t)p->sums,
             .epilogue = (uint8_t)p->epilogue,
             .decoding = p->decoding,
             .align_a = alignment(p->a),
             .align_b = alignment(p->b),
             .align_d = alignment(output),
             .align_bias = alignment(p->bias),
             .align_aux = alignment(p->aux),
             .unused = {} };
}

// FNV-1a.
size_t bucket_of(const struct plan_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return (size_t)(hash >> 32) % PLAN_BUCKETS;
}

template <class V>
cublasStatus_t set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t what, V value)
{
    return cublasLtMatmulDescSetAttribute(how, what, &value, sizeof value);
}

// The addresses of this call. The choice of an algorithm depends on their alignment only.
alibi_status set_addresses(struct cuda_plan *plan, const struct product *p)
{
    if (p->epilogue == BIAS || p->epilogue == GELU_BIAS)
        TRY_RETURN(blas_check(set(plan->how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias), p));
    if (p->epilogue >= GELU)
        TRY_RETURN(
            blas_check(set(plan->how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->aux), p));
    return ALIBI_OK;
}

alibi_status describe(struct cuda_plan *plan, const struct product *p)
{
    static const cublasLtEpilogue_t epilogues[] = { CUBLASLT_EPILOGUE_DEFAULT,
                                                    CUBLASLT_EPILOGUE_BIAS,
                                                    CUBLASLT_EPILOGUE_GELU_AUX,
                                                    CUBLASLT_EPILOGUE_GELU_AUX_BIAS };
    const int64_t m = p->m, n = p->n, k = p->k;
    auto layout = [&](cublasLtMatrixLayout_t *out, enum dtype type, int64_t rows, int64_t columns) {
        return blas_check(cublasLtMatrixLayoutCreate(out,
                                                     type == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F,
                                                     (uint64_t)rows, (uint64_t)columns, rows),
                          p);
    };

    TRY_RETURN(blas_check(cublasLtMatmulDescCreate(&plan->how, CUBLAS_COMPUTE_32F, CUDA_R_32F), p));
    TRY_RETURN(blas_check(
        set(plan->how, CUBLASLT_MATMUL_DESC_TRANSA, p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N),
        p));
    TRY_RETURN(blas_check(
        set(plan->how, CUBLASLT_MATMUL_DESC_TRANSB, p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N),
        p));
    TRY_RETURN(
        blas_check(set(plan->how, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[p->epilogue]), p));
    if (p->epilogue >= GELU)
        TRY_RETURN(blas_check(set(plan->how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p->m), p));
    TRY_RETURN(set_addresses(plan, p));
    TRY_RETURN(layout(&plan->a, p->type, p->transpose_a ? k : m, p->transpose_a ? m : k));
    TRY_RETURN(layout(&plan->b, p->type, p->transpose_b ? n : k, p->transpose_b ? k : n));
    return layout(&plan->d, p->sums, m, n);
}

// Asks cuBLASLt for algorithms that fit `workspace` bytes and the alignments and that add split
// sums in a fixed order. Finding none is no failure: an epilogue may not be available.
alibi_status find_algorithms(struct context *c, struct cuda_plan *plan, const struct product *p,
                             size_t workspace)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS] = {};
    int count = 0;
    cublasStatus_t error = cublasLtMatmulPreferenceCreate(&preference);
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
        if (error == CUBLAS_STATUS_SUCCESS)
            error = cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
    };

    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)plan->key.align_a);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)plan->key.align_b);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)plan->key.align_d);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)plan->key.align_d);
    if (error == CUBLAS_STATUS_SUCCESS) {
        error = cublasLtMatmulAlgoGetHeuristic(c->blas, plan->how, plan->a, plan->b, plan->d,
                                               plan->d, preference, ALGORITHMS, found, &count);
        if (error == CUBLAS_STATUS_NOT_SUPPORTED || error == CUBLAS_STATUS_INVALID_VALUE) {
            error = CUBLAS_STATUS_SUCCESS;
            count = 0;
        }
    }
    plan->count = 0;
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            plan->algorithms[plan->count++] = found[i].algo;
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return blas_check(error, p);
}

// The first algorithms once more, with sums in 2 to SPLITS parts that are added in a fixed order.
void split_sums(struct context *c, struct cuda_plan *plan, const struct product *p)
{
    const uint32_t in_order = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const int bases = plan->count < SPLIT_BASES ? plan->count : (int)SPLIT_BASES;

    if (ceil_div(p->m, TILE_M) * ceil_div(p->n, TILE_N) > SPLIT_TILES)
        return;
    for (int i = 0; i < bases; i++)
        for (int32_t parts = 2; parts <= SPLITS; parts++) {
            cublasLtMatmulAlgo_t *split = &plan->algorithms[plan->count];
            cublasLtMatmulHeuristicResult_t result = {};
            bool fits, known = false;

            *split = plan->algorithms[i];
            fits =
                cublasLtMatmulAlgoConfigSetAttribute(split, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                                     sizeof parts) == CUBLAS_STATUS_SUCCESS &&
                cublasLtMatmulAlgoConfigSetAttribute(split, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                     &in_order,
                                                     sizeof in_order) == CUBLAS_STATUS_SUCCESS &&
                cublasLtMatmulAlgoCheck(c->blas, plan->how, plan->a, plan->b, plan->d, plan->d,
                                        split, &result) == CUBLAS_STATUS_SUCCESS &&
                result.workspaceSize <= c->workspace_bytes;
            for (int k = 0; k < plan->count; k++)
                known = known || memcmp(&plan->algorithms[k], split, sizeof *split) == 0;
            plan->count += fits && !known;
        }
}

// For TUNING_WIDE and stored choices. If memory is short, the smaller workspace stays.
void grow_workspace(struct context *c)
{
    void *larger = NULL;

    if (c->workspace_bytes >= WIDE_WORKSPACE || !cuda_try_new(c, &larger, WIDE_WORKSPACE))
        return;
    cuda_free(c, c->workspace, c->workspace_bytes);
    c->workspace = larger;
    c->workspace_bytes = WIDE_WORKSPACE;
}

// ---- choices, sorted by product

int compare_products(const void *a, const void *b)
{
    return memcmp(((const struct product_choice *)a)->product,
                  ((const struct product_choice *)b)->product, PRODUCT_BYTES);
}

alibi_status reserve_choices(struct context *c, int count)
{
    int capacity = c->choices.capacity > 0 ? c->choices.capacity : 64;
    struct product_choice *grown;

    if (count <= c->choices.capacity)
        return ALIBI_OK;
    while (capacity < count)
        capacity *= 2;
    grown = (struct product_choice *)realloc(c->choices.list, (size_t)capacity * sizeof *grown);
    if (!grown)
        return fail(ALIBI_MEMORY, "no memory for the algorithms of %d matrix products", count);
    c->choices.list = grown;
    c->choices.capacity = capacity;
    return ALIBI_OK;
}

alibi_status keep_choice(struct context *c, const struct cuda_plan *plan)
{
    struct product_choice *choice;

    TRY_RETURN(reserve_choices(c, c->choices.count + 1));
    choice = &c->choices.list[c->choices.count++];
    memcpy(choice->product, &plan->key, PRODUCT_BYTES);
    memcpy(choice->algorithm, &plan->algorithms[plan->chosen], ALGORITHM_BYTES);
    qsort(c->choices.list, (size_t)c->choices.count, sizeof *choice, compare_products);
    return ALIBI_OK;
}

struct product_choice *find_choice(struct context *c, const struct plan_key *key)
{
    struct product_choice wanted;

    if (c->choices.count == 0)
        return NULL;
    memcpy(wanted.product, key, PRODUCT_BYTES);
    return (struct product_choice *)bsearch(&wanted, c->choices.list, (size_t)c->choices.count,
                                            sizeof wanted, compare_products);
}

// True if the stored algorithm is among the plan's. If not, the choice is dropped, and the product
// has other bits from now on.
bool recall_choice(struct context *c, struct cuda_plan *plan, struct product_choice *choice)
{
    struct product_choice *end = c->choices.list + c->choices.count;

    for (int i = 0; i < plan->count; i++)
        if (memcmp(&plan->algorithms[i], choice->algorithm, ALGORITHM_BYTES) == 0) {
            plan->chosen = i;
            plan->tuned = true;
            return true;
        }
    memmove(choice, choice + 1, (size_t)(end - choice - 1) * sizeof *choice);
    c->choices.count--;
    c->choices.dropped++;
    return false;
}

bool is_large(const struct context *c, const struct product *p)
{
    return !p->decoding && 2.0 * (double)p->m * (double)p->n * (double)p->k >= c->autotune.flops;
}

// A TUNING_WIDE product searches the same candidates when its choice is restored. Other products
// keep their default candidates.
alibi_status list_algorithms(struct context *c, struct cuda_plan *plan, const struct product *p)
{
    struct product_choice *choice = find_choice(c, &plan->key);

    if (choice || (c->autotune.how == TUNING_WIDE && is_large(c, p))) {
        grow_workspace(c);
        TRY_RETURN(find_algorithms(c, plan, p, c->workspace_bytes));
        split_sums(c, plan, p);
        if (!choice || recall_choice(c, plan, choice))
            return ALIBI_OK;
    }
    return find_algorithms(c, plan, p, BLAS_WORKSPACE);
}

void free_plan(struct cuda_plan *plan)
{
    if (plan->how)
        cublasLtMatmulDescDestroy(plan->how);
    for (cublasLtMatrixLayout_t layout : { plan->a, plan->b, plan->d })
        if (layout)
            cublasLtMatrixLayoutDestroy(layout);
    free(plan);
}

alibi_status find_plan(struct context *c, struct cuda_plan **out, const struct product *p)
{
    const struct plan_key key = key_of(p);
    struct cuda_plan **bucket = &c->plans[bucket_of(&key)], *plan;
    alibi_status status;

    for (plan = *bucket; plan; plan = plan->next)
        if (memcmp(&plan->key, &key, sizeof key) == 0) {
            *out = plan;
            return ALIBI_OK;
        }
    plan = (struct cuda_plan *)calloc(1, sizeof *plan);
    if (!plan)
        return fail(ALIBI_MEMORY, "no memory for the plan of a matrix product");
    plan->key = key;
    TRY(describe(plan, p));
    TRY(list_algorithms(c, plan, p));
    plan->next = *bucket;
    *out = *bucket = plan;
    return ALIBI_OK;
out:
    free_plan(plan);
    return status;
}

// ---- running a product; no dimension is 0

alibi_status run_algorithm(struct context *c, struct cuda_plan *plan, const struct product *p,
                           void *d, int algorithm)
{
    float one = 1.0f, beta = p->c ? 1.0f : 0.0f;

    c->chained = false;
    return blas_check(cublasLtMatmul(c->blas, plan->how, &one, p->a, plan->a, p->b, plan->b, &beta,
                                     p->c ? p->c : d, plan->d, d, plan->d,
                                     &plan->algorithms[algorithm], c->workspace, c->workspace_bytes,
                                     c->stream),
                      p);
}

// ---- the autotuner

// A fingerprint tells whether two results have the same bits without keeping both:
//
//   sum over words w_i of mix(w_i, i)   modulo 2^64
//
// Integer sums do not depend on their order. mix() is the finalizer of SplitMix64.
enum { FINGERPRINT_THREADS = 256, FINGERPRINT_BLOCKS = 1024 };

__device__ __forceinline__ uint64_t mix(uint64_t word, uint64_t place)
{
    uint64_t x = word ^ (place * 0x9e3779b97f4a7c15u);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

__global__ void __launch_bounds__(FINGERPRINT_THREADS)
    fingerprint_kernel(unsigned long long *sum, const uint16_t *words, int64_t count)
{
    uint64_t mine = 0;

    for (int64_t i = (int64_t)blockIdx.x * FINGERPRINT_THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * FINGERPRINT_THREADS)
        mine += mix(words[i], (uint64_t)i);
    for (int step = 16; step > 0; step /= 2)
        mine += __shfl_xor_sync(0xffffffffu, mine, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, (unsigned long long)mine);
}

// Fingerprint of D and, if present, aux. Synchronises.
alibi_status fingerprint(struct context *c, uint64_t *out, const struct product *p, const void *d)
{
    const int64_t words = p->m * p->n * (int64_t)dtype_bytes(p->sums) / 2;
    const void *results[] = { d, p->aux };
    unsigned long long *sums, host[2] = {};

    TRY_RETURN(cuda_scratch(c, SCRATCH_SUMS, sizeof host, (void **)&sums));
    TRY_RETURN(cuda_check(cudaMemsetAsync(sums, 0, sizeof host, c->stream), "autotuning"));
    for (int i = 0; i < 2; i++)
        if (results[i])
            TRY_RETURN(launch(c, "autotuning", fingerprint_kernel, FINGERPRINT_BLOCKS,
                              FINGERPRINT_THREADS, 0, sums + i, (const uint16_t *)results[i],
                              words));
    TRY_RETURN(cuda_check(
        cudaMemcpyAsync(host, sums, sizeof host, cudaMemcpyDeviceToHost, c->stream), "autotuning"));
    TRY_RETURN(cuda_check(cudaStreamSynchronize(c->stream), "autotuning"));
    *out = host[0] ^ (host[1] << 1 | host[1] >> 63);
    return ALIBI_OK;
}

// Milliseconds of one product. Clearing BLAS_WORKSPACE, which is larger than the L2 cache, evicts
// the operands: a training step finds most of them in memory too. *works is false if cuBLASLt
// refuses an algorithm that it has offered.
alibi_status time_algorithm(struct context *c, struct cuda_plan *plan, const struct product *p,
                            void *d, int algorithm, cudaEvent_t events[2], float *time, bool *works)
{
    TRY_RETURN(
        cuda_check(cudaMemsetAsync(c->workspace, 0, BLAS_WORKSPACE, c->stream), "autotuning"));
    TRY_RETURN(cuda_check(cudaEventRecord(events[0], c->stream), "autotuning"));
    *works = run_algorithm(c, plan, p, d, algorithm) == ALIBI_OK;
    TRY_RETURN(cuda_check(cudaEventRecord(events[1], c->stream), "autotuning"));
    TRY_RETURN(cuda_check(cudaEventSynchronize(events[1]), "autotuning"));
    return cuda_check(cudaEventElapsedTime(time, events[0], events[1]), "autotuning");
}

// Chooses the fastest algorithm among those with the first one's bits; with TUNING_WIDE, of all
// whose bits repeat. The algorithms take turns, so that a clock that changes slowly is the same for
// all. The time of a first run may include loading the kernel, so it rules nothing out. They run on
// the operands at hand; the product overwrites its output afterwards. A product that adds to its
// output writes to memory of its own here; if there is none, the first algorithm stays.
alibi_status autotune(struct context *c, struct cuda_plan *plan, const struct product *p)
{
    const size_t bytes = (size_t)(p->m * p->n) * dtype_bytes(p->sums);
    const bool wide = c->autotune.how == TUNING_WIDE;
    alibi_status status = ALIBI_OK;
    cudaEvent_t events[2] = { NULL, NULL };
    void *trial = NULL, *d = p->d;
    float best[CANDIDATES] = {}, fastest = INFINITY, time;
    uint64_t first[CANDIDATES] = {}, bits;
    bool fits[CANDIDATES] = {};

    if (p->c) {
        if (!cuda_try_new(c, &trial, bytes))
            return wide ? keep_choice(c, plan) : ALIBI_OK;
        d = trial;
    }
    for (int i = 0; i < 2; i++)
        TRY(cuda_check(cudaEventCreate(&events[i]), "autotuning"));
    for (int run = 0; run < TIMED_RUNS; run++)
        for (int i = 0; i < plan->count; i++) {
            if ((run > 0 && !fits[i]) || (run > 1 && best[i] > TOO_SLOW * fastest))
                continue;
            TRY(time_algorithm(c, plan, p, d, i, events, &time, &fits[i]));
            TRY(fingerprint(c, &bits, p, d));
            if (run == 0)
                first[i] = bits;
            best[i] = run == 0 ? time : fminf(best[i], time);
            fits[i] = fits[i] && bits == first[wide ? i : 0];
            if (fits[i])
                fastest = fminf(fastest, best[i]);
        }
    for (int i = 0; i < plan->count; i++)
        if (fits[i] && (!fits[plan->chosen] || best[i] < best[plan->chosen]))
            plan->chosen = i;
    if (wide)
        TRY(keep_choice(c, plan));
    c->autotune.tuned++;
out:
    for (int i = 0; i < 2; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    cuda_free(c, trial, bytes);
    return status;
}

// True once: when the product is due.
bool is_worth_tuning(struct context *c, struct cuda_plan *plan, const struct product *p)
{
    if (plan->tuned || !is_large(c, p))
        return false;
    plan->tuned =
        c->autotune.how == TUNING_WIDE || (plan->count > 1 && plan->uses++ == c->autotune.after);
    return plan->tuned;
}

// *done is false, and nothing happened, if cuBLASLt cannot compute it.
alibi_status try_product(struct context *c, const struct product *p, bool *done)
{
    struct cuda_plan *plan = NULL;

    TRY_RETURN(find_plan(c, &plan, p));
    *done = plan->count > 0;
    if (!*done)
        return ALIBI_OK;
    TRY_RETURN(set_addresses(plan, p));
    if (is_worth_tuning(c, plan, p))
        TRY_RETURN(autotune(c, plan, p));
    return run_algorithm(c, plan, p, p->d, plan->chosen);
}

alibi_status multiply(struct context *c, const struct product *p)
{
    bool done = false;

    TRY_RETURN(try_product(c, p, &done));
    return done ? ALIBI_OK : blas_check(CUBLAS_STATUS_NOT_SUPPORTED, p);
}

// ---- forward

struct product forward_product(struct tensor y, struct tensor x, struct tensor weight)
{
    return { .transpose_a = true,
             .m = weight.shape[0],
             .n = x.shape[0],
             .k = weight.shape[1],
             .type = x.type,
             .sums = y.type,
             .a = weight.data,
             .b = x.data,
             .d = y.data };
}

// y = x weight^T + bias. If cuBLASLt has no epilogue for the bias here, it is added afterwards.
alibi_status forward(struct context *c, struct tensor y, struct tensor x, struct tensor weight,
                     struct tensor bias, bool decoding)
{
    struct product p = forward_product(y, x, weight);
    bool done = false;

    p.decoding = decoding;
    if (!present(bias))
        return multiply(c, &p);
    p.epilogue = BIAS;
    p.bias = bias.data;
    TRY_RETURN(try_product(c, &p, &done));
    if (done)
        return ALIBI_OK;
    p.epilogue = PLAIN;
    p.bias = NULL;
    TRY_RETURN(multiply(c, &p));
    return cuda_add_bias(c, y, bias);
}

// DECODE_ROWS rows at a time. A batch that has no room for that many, or is not aligned like
// scratch memory, goes through scratch memory: the plan, and with it the bits, must not depend on
// either. Rows do not mix in a product, so the padding may hold anything.
alibi_status forward_decoding(struct context *c, const struct linear_args *a)
{
    const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
    struct tensor x32, y32;
    void *scratch;

    TRY_RETURN(cuda_scratch(c, SCRATCH_DECODE, cuda_decode_bytes(in, out), &scratch));
    x32 = tensor_2(scratch, a->x.type, DECODE_ROWS, in);
    y32 = tensor_2(tensor_at(x32, DECODE_ROWS * ceil_div(in, 8) * 8), a->y.type, DECODE_ROWS, out);
    for (int64_t first = 0; first < rows; first += DECODE_ROWS) {
        const int64_t count = rows - first < DECODE_ROWS ? rows - first : (int64_t)DECODE_ROWS;
        struct tensor x = tensor_rows(a->x, first, count), y = tensor_rows(a->y, first, count);

        if ((count == DECODE_ROWS || first + DECODE_ROWS <= a->room) && aligned(x.data, y.data)) {
            x.shape[0] = y.shape[0] = DECODE_ROWS;
            TRY_RETURN(forward(c, y, x, a->weight, a->bias, true));
            continue;
        }
        TRY_RETURN(
            cuda_check(cudaMemcpyAsync(x32.data, x.data, (size_t)(count * in) * dtype_bytes(x.type),
                                       cudaMemcpyDeviceToDevice, c->stream),
                       "linear forward"));
        TRY_RETURN(forward(c, y32, x32, a->weight, a->bias, true));
        TRY_RETURN(cuda_check(cudaMemcpyAsync(y.data, y32.data,
                                              (size_t)(count * out) * dtype_bytes(y.type),
                                              cudaMemcpyDeviceToDevice, c->stream),
                              "linear forward"));
    }
    return ALIBI_OK;
}

// Runs the norm before the layer, unless the layer's kernel will.
alibi_status norm_first(struct device *dev, struct linear_args *a)
{
    const struct context *c = cuda_of(dev);
    const struct norm_args *norm = a->norm;

    if (!norm || (a->decoding && tensor_count(a->x) > 0 && tensor_count(a->y) > 0 &&
                  cuda_few_rows_serve(c, a->y, a->weight) && cuda_few_rows_norm(norm)))
        return ALIBI_OK;
    a->norm = NULL;
    return cuda_norm_forward(dev, norm);
}

// Both y and activated by one kernel. *done is false, and nothing happened, if none can do that.
// For its epilogue with GELU, cuBLASLt needs rows of y that begin at multiples of 16 bytes.
alibi_status try_fused(struct context *c, const struct linear_args *a, struct tensor activated,
                       int kind, bool *done)
{
    struct product p = forward_product(activated, a->x, a->weight);

    if (tensor_count(a->x) == 0 || tensor_count(a->y) == 0 || a->y.type != DTYPE_BF16)
        return ALIBI_OK;
    cuda_part(c, "linear forward");
    if (a->decoding && kind != ALIBI_SWIGLU && cuda_few_rows_serve(c, a->y, a->weight)) {
        *done = true;
        return cuda_few_rows(c, a, activated, kind);
    }
    if (a->decoding || kind != ALIBI_GELU_TANH || a->y.shape[1] % 8 != 0 ||
        !aligned(a->y.data, activated.data))
        return ALIBI_OK;
    p.epilogue = present(a->bias) ? GELU_BIAS : GELU;
    p.bias = a->bias.data;
    p.aux = a->y.data;
    return try_product(c, &p, done);
}

// ---- backward

alibi_status input_gradient(struct device *dev, struct tensor dx, struct tensor dy,
                            struct tensor weight)
{
    const struct product p = { .m = weight.shape[1],
                               .n = dy.shape[0],
                               .k = weight.shape[0],
                               .type = dy.type,
                               .sums = dx.type,
                               .a = weight.data,
                               .b = dy.data,
                               .d = dx.data };

    if (p.m == 0 || p.n == 0)
        return ALIBI_OK;
    if (p.k == 0)
        return cuda_fill(dev, dx, 0.0);
    cuda_part(cuda_of(dev), "linear input gradient");
    return multiply(cuda_of(dev), &p);
}

// first: dweight is written and not read, which saves clearing it before and reading it here.
alibi_status parameter_gradients(struct device *dev, struct tensor dweight, bool first,
                                 struct tensor dbias, struct tensor dy, struct tensor x)
{
    struct context *c = cuda_of(dev);
    const struct product p = { .transpose_b = true,
                               .m = dweight.shape[1],
                               .n = dweight.shape[0],
                               .k = dy.shape[0],
                               .type = dy.type,
                               .sums = dweight.type,
                               .a = x.data,
                               .b = dy.data,
                               .c = first ? NULL : dweight.data,
                               .d = dweight.data };

    if (present(dweight) && p.m > 0 && p.n > 0) {
        cuda_part(c, "linear weight gradient");
        if (p.k > 0)
            TRY_RETURN(multiply(c, &p));
        else if (first)
            TRY_RETURN(cuda_fill(dev, dweight, 0.0));
    }
    if (!present(dbias))
        return ALIBI_OK;
    cuda_part(c, "linear bias gradient");
    return cuda_column_sums(c, dbias, dy);
}

} // namespace

void cuda_plans_free(struct context *c)
{
    for (int i = 0; i < PLAN_BUCKETS; i++)
        while (c->plans[i]) {
            struct cuda_plan *next = c->plans[i]->next;
            free_plan(c->plans[i]);
            c->plans[i] = next;
        }
}

// Products that were chosen by their speed alone get their bits back.
void cuda_tune(struct device *dev, enum tuning how)
{
    struct context *c = cuda_of(dev);

    if (how == TUNING_WIDE || (how == TUNING_SAME_BITS && c->choices.count > 0)) {
        cuda_plans_free(c);
        c->choices.count = 0;
    }
    c->choices.dropped = 0;
    c->autotune.how = how;
}

void cuda_get_choices(struct device *dev, struct choices *out)
{
    struct context *c = cuda_of(dev);

    *out = {
        .by = {}, .count = c->choices.count, .list = c->choices.list, .dropped = c->choices.dropped
    };
    snprintf(out->by, sizeof out->by, "%s, cuBLASLt %zu, format %d", c->name, cublasLtGetVersion(),
             (int)PLAN_FORMAT);
}

alibi_status cuda_set_choices(struct device *dev, const struct choices *given)
{
    struct context *c = cuda_of(dev);

    TRY_RETURN(reserve_choices(c, given->count));
    cuda_plans_free(c);
    if (given->count > 0)
        memcpy(c->choices.list, given->list, (size_t)given->count * sizeof *given->list);
    qsort(c->choices.list, (size_t)given->count, sizeof *given->list, compare_products);
    c->choices.count = given->count;
    c->choices.dropped = 0;
    c->autotune.how = TUNING_FIXED;
    return ALIBI_OK;
}

// Bytes of both padded operands in fp32, each 16-byte aligned.
size_t cuda_decode_bytes(int64_t in, int64_t out)
{
    const int64_t factors[] = { DECODE_ROWS, ceil_div(in, 8) + ceil_div(out, 8), 8,
                                (int64_t)sizeof(float) };

    return cuda_bytes(factors, 4);
}

// ---- the operations

alibi_status cuda_linear_forward(struct device *dev, const struct linear_args *args)
{
    struct context *c = cuda_of(dev);
    struct linear_args a = *args;

    TRY_RETURN(norm_first(dev, &a));
    if (tensor_count(a.y) == 0)
        return ALIBI_OK;
    cuda_part(c, "linear forward");
    if (a.x.shape[1] == 0) { // no inputs: only the bias
        TRY_RETURN(cuda_fill(dev, a.y, 0.0));
        return present(a.bias) ? cuda_add_bias(c, a.y, a.bias) : ALIBI_OK;
    }
    if (!a.decoding)
        return forward(c, a.y, a.x, a.weight, a.bias, false);
    return cuda_few_rows_serve(c, a.y, a.weight) ? cuda_few_rows(c, &a, tensor_none(), 0)
                                                 : forward_decoding(c, &a);
}

alibi_status cuda_linear_backward(struct device *dev, const struct linear_args *a)
{
    if (present(a->dx))
        TRY_RETURN(input_gradient(dev, a->dx, a->dy, a->weight));
    return parameter_gradients(dev, a->dweight, a->first, a->dbias, a->dy, a->x);
}

alibi_status cuda_linear_activation_forward(struct device *dev,
                                            const struct linear_activation_args *a)
{
    struct context *c = cuda_of(dev);
    struct linear_args linear = { .y = a->up,
                                  .x = a->x,
                                  .weight = a->weight,
                                  .bias = a->bias,
                                  .decoding = a->decoding,
                                  .room = a->room,
                                  .norm = a->norm };
    bool done = false;

    TRY_RETURN(norm_first(dev, &linear));
    TRY_RETURN(try_fused(c, &linear, a->activated, a->kind, &done));
    if (!done) {
        TRY_RETURN(cuda_linear_forward(dev, &linear));
        TRY_RETURN(cuda_activation_forward(dev, a->kind, a->activated, a->up));
    }
    return a->dropout.p > 0 ? cuda_dropout(dev, a->activated, a->activated, a->dropout) : ALIBI_OK;
}

alibi_status cuda_linear_activation_backward(struct device *dev,
                                             const struct linear_activation_args *a)
{
    struct context *c = cuda_of(dev);

    TRY_RETURN(input_gradient(dev, a->scratch, a->dy, a->weight));
    if (a->dropout.p > 0)
        TRY_RETURN(cuda_dropout(dev, a->scratch, a->scratch, a->dropout));
    cuda_part(c, "activation");
    TRY_RETURN(cuda_activation_backward_sums(c, a->kind, a->dup, a->dup_sums, a->scratch, a->up));
    return parameter_gradients(dev, a->dweight, a->first, a->dbias, a->dy, a->activated);
}
