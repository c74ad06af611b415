/* linear.c - matrix products through cuBLASLt
 *
 *   y = x weight^T + bias,   dx = dy weight,   dweight += dy^T x,   dbias += column sums of dy
 *
 * cuBLASLt counts matrices by columns: D = op(A) op(B) + beta C with D of m x n, the inner
 * dimension k. Our matrices lie by rows, and M of [rows, columns] by rows is the same memory as M^T
 * of columns x rows by columns. So each product is asked for as its transpose, and no number moves:
 *
 *   y^T       = weight x^T      A = weight, transposed   B = x                 m = out, n = rows, k
 * = in dx^T      = weight^T dy^T   A = weight               B = dy                m = in,  n =
 * rows, k = out dweight^T = x^T dy          A = x                    B = dy, transposed    m = in,
 * n = out,  k = rows
 *
 * where "transposed" is op on the matrix as cuBLASLt sees it. A bias along y's columns is one along
 * the rows of y^T, which is what cuBLASLt adds. Sums are fp32, without tf32; where they are split,
 * the parts are added in a fixed order. How a product is done is kept per shape, types and
 * alignments: at first as the library advises; once it was used so often that trying is worth it,
 * the fastest of the library's ways that give those same bits. Time decides then, and still results
 * repeat bit for bit.
 *
 * bf16 products apply GELU (the tanh form) to their fp32 sums, before rounding. Its derivative, and
 * all of it in fp32, is ours: measured, that is faster there, and here what matters are the digits.
 * */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/cuda.h"

enum epilogue {
    PLAIN,
    BIAS,
    GELU, /* aux gets what GELU is applied to */
    GELU_BIAS,
};

/* Trying all ways costs about as many products as came before it, twice over at most. */
enum { WAYS = 8, TRY_RUNS = 3 };

struct product {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    enum dtype type, sums; /* of A and B; of C and D */
    const void *a, *b, *c; /* c NULL: beta is 0 */
    void *d;
    enum epilogue epilogue;
    const void *bias;
    void *aux;
};

/* What a plan depends on; every byte is set, so keys are compared as bytes. */
struct key {
    int64_t m, n, k;
    uint8_t transpose_a, transpose_b, type, sums, epilogue;
    uint8_t align_a, align_b, align_d, align_bias, align_aux;
    uint8_t unused[6];
};
_Static_assert(sizeof(struct key) == 40, "a key has no holes");

struct cuda_plan {
    struct cuda_plan *next; /* in the same bucket */
    struct key key;
    bool possible; /* else the library has no way to do it, and the rest is not there */
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t ways[WAYS]; /* as the library ranks them */
    int count, chosen;
    int uses; /* up to autotune.after */
};

/* ---- plans */

/* The largest power of two up to 16 that divides the address. No kernel asks for more, and a tensor
 * that lies elsewhere next time gets the same plan. */
static uint8_t alignment(const void *p)
{
    uintptr_t bits = (uintptr_t)p | 16;

    return (uint8_t)(bits & -bits);
}

static struct key key_of(const struct product *p)
{
    const void *output = (const void *)((uintptr_t)p->c | (uintptr_t)p->d);

    return (struct key){ .m = p->m,
                         .n = p->n,
                         .k = p->k,
                         .transpose_a = p->transpose_a,
                         .transpose_b = p->transpose_b,
                         .type = (uint8_t)p->type,
                         .sums = (uint8_t)p->sums,
                         .epilogue = (uint8_t)p->epilogue,
                         .align_a = alignment(p->a),
                         .align_b = alignment(p->b),
                         .align_d = alignment(output),
                         .align_bias = alignment(p->bias),
                         .align_aux = alignment(p->aux) };
}

/* FNV-1a. */
static size_t bucket_of(const struct key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return (size_t)(hash >> 32) % PLAN_BUCKETS;
}

static alibi_status blas_check(cublasStatus_t error, const struct product *p)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return ALIBI_OK;
    return fail(ALIBI_DEVICE,
                "cuBLASLt failed on a product of %lld x %lld by %lld x %lld numbers in %s: %s",
                (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n,
                p->type == DTYPE_BF16 ? "bf16" : "fp32", cublasLtGetStatusName(error));
}

static cudaDataType_t blas_type(enum dtype type)
{
    return type == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtEpilogue_t blas_epilogue(enum epilogue epilogue)
{
    static const cublasLtEpilogue_t of[] = {
        [PLAIN] = CUBLASLT_EPILOGUE_DEFAULT,
        [BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [GELU] = CUBLASLT_EPILOGUE_GELU_AUX,
        [GELU_BIAS] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
    };

    return of[epilogue];
}

static alibi_status set(struct cuda_plan *plan, cublasLtMatmulDescAttributes_t what,
                        const void *value, size_t bytes, const struct product *p)
{
    return blas_check(cublasLtMatmulDescSetAttribute(plan->how, what, value, bytes), p);
}

/* The addresses are those of this call; the choice of an algorithm depends on their alignment only.
 * */
static alibi_status set_addresses(struct cuda_plan *plan, const struct product *p)
{
    if (p->epilogue == BIAS || p->epilogue == GELU_BIAS)
        TRY_RETURN(set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias, p));
    if (p->epilogue >= GELU)
        TRY_RETURN(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux, p));
    return ALIBI_OK;
}

static alibi_status describe(struct cuda_plan *plan, const struct product *p)
{
    cublasOperation_t a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = blas_epilogue(p->epilogue);

    TRY_RETURN(blas_check(cublasLtMatmulDescCreate(&plan->how, CUBLAS_COMPUTE_32F, CUDA_R_32F), p));
    TRY_RETURN(set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, p));
    TRY_RETURN(set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, p));
    TRY_RETURN(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, p));
    if (p->epilogue >= GELU)
        TRY_RETURN(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->m, sizeof p->m, p));
    return set_addresses(plan, p);
}

static cublasStatus_t new_layout(cublasLtMatrixLayout_t *out, enum dtype type, int64_t rows,
                                 int64_t columns)
{
    return cublasLtMatrixLayoutCreate(out, blas_type(type), (uint64_t)rows, (uint64_t)columns,
                                      rows);
}

static alibi_status lay_out(struct cuda_plan *plan, const struct product *p)
{
    int64_t m = p->m, n = p->n, k = p->k;

    TRY_RETURN(blas_check(
        new_layout(&plan->a, p->type, p->transpose_a ? k : m, p->transpose_a ? m : k), p));
    TRY_RETURN(blas_check(
        new_layout(&plan->b, p->type, p->transpose_b ? n : k, p->transpose_b ? k : n), p));
    return blas_check(new_layout(&plan->d, p->sums, m, n), p);
}

static alibi_status prefer(cublasLtMatmulPreference_t preference,
                           cublasLtMatmulPreferenceAttributes_t what, uint32_t value,
                           const struct product *p)
{
    return blas_check(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value),
                      p);
}

static alibi_status set_preferences(cublasLtMatmulPreference_t preference, const struct key *key,
                                    const struct product *p)
{
    size_t workspace = BLAS_WORKSPACE;

    TRY_RETURN(blas_check(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace),
        p));
    TRY_RETURN(prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, p));
    TRY_RETURN(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->align_a, p));
    TRY_RETURN(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->align_b, p));
    TRY_RETURN(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->align_d, p));
    return prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->align_d, p);
}

/* The ways that the library knows. None is no failure: an epilogue may ask for more than there is.
 * */
static alibi_status find_ways(struct cuda *c, struct cuda_plan *plan, const struct product *p)
{
    alibi_status status;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[WAYS] = { 0 };
    int count = 0;
    cublasStatus_t error;

    TRY(blas_check(cublasLtMatmulPreferenceCreate(&preference), p));
    TRY(set_preferences(preference, &plan->key, p));
    error = cublasLtMatmulAlgoGetHeuristic(c->blas, plan->how, plan->a, plan->b, plan->d, plan->d,
                                           preference, WAYS, found, &count);
    if (error != CUBLAS_STATUS_NOT_SUPPORTED && error != CUBLAS_STATUS_INVALID_VALUE)
        TRY(blas_check(error, p));
    for (int i = 0; error == CUBLAS_STATUS_SUCCESS && i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            plan->ways[plan->count++] = found[i].algo;
    plan->possible = plan->count > 0;
out:
    if (preference != NULL)
        cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static void free_plan(struct cuda_plan *plan)
{
    if (plan->how != NULL)
        cublasLtMatmulDescDestroy(plan->how);
    if (plan->a != NULL)
        cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b != NULL)
        cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d != NULL)
        cublasLtMatrixLayoutDestroy(plan->d);
    free(plan);
}

void cuda_plans_free(struct cuda *c)
{
    for (int i = 0; i < PLAN_BUCKETS; i++)
        while (c->plans[i] != NULL) {
            struct cuda_plan *next = c->plans[i]->next;
            free_plan(c->plans[i]);
            c->plans[i] = next;
        }
}

static alibi_status new_plan(struct cuda *c, struct cuda_plan **out, const struct key *key,
                             const struct product *p)
{
    alibi_status status;
    struct cuda_plan *plan = calloc(1, sizeof *plan);

    if (plan == NULL)
        return fail(ALIBI_MEMORY, "not enough memory for the plan of a matrix product");
    plan->key = *key;
    TRY(describe(plan, p));
    TRY(lay_out(plan, p));
    TRY(find_ways(c, plan, p));
    *out = plan;
    plan = NULL;
out:
    if (plan != NULL)
        free_plan(plan);
    return status;
}

static alibi_status find_plan(struct cuda *c, struct cuda_plan **out, const struct product *p)
{
    struct key key = key_of(p);
    struct cuda_plan **bucket = &c->plans[bucket_of(&key)], *made = NULL;

    for (struct cuda_plan *plan = *bucket; plan != NULL; plan = plan->next)
        if (memcmp(&plan->key, &key, sizeof key) == 0) {
            *out = plan;
            return ALIBI_OK;
        }
    TRY_RETURN(new_plan(c, &made, &key, p));
    made->next = *bucket;
    *bucket = made;
    *out = made;
    return ALIBI_OK;
}

/* ---- products: no dimension is 0 */

static alibi_status run_way(struct cuda *c, struct cuda_plan *plan, const struct product *p,
                            void *d, int way)
{
    float one = 1.0f, beta = p->c != NULL ? 1.0f : 0.0f;

    return blas_check(cublasLtMatmul(c->blas, plan->how, &one, p->a, plan->a, p->b, plan->b, &beta,
                                     p->c != NULL ? p->c : d, plan->d, d, plan->d, &plan->ways[way],
                                     c->workspace, BLAS_WORKSPACE, c->stream),
                      p);
}

/* Milliseconds of one product, the fastest of some. The workspace is larger than the second-level
 * cache: writing it first leaves the operands in memory, which is where a training step finds most
 * of them. */
static alibi_status time_way(struct cuda *c, struct cuda_plan *plan, const struct product *p,
                             void *d, int way, cudaEvent_t events[2], float *time)
{
    float best = INFINITY, one;

    for (int i = 0; i < TRY_RUNS; i++) {
        TRY_RETURN(cuda_check(cudaMemsetAsync(c->workspace, 0, BLAS_WORKSPACE, c->stream),
                              "timing products"));
        TRY_RETURN(cuda_check(cudaEventRecord(events[0], c->stream), "timing products"));
        TRY_RETURN(run_way(c, plan, p, d, way));
        TRY_RETURN(cuda_check(cudaEventRecord(events[1], c->stream), "timing products"));
        TRY_RETURN(cuda_check(cudaEventSynchronize(events[1]), "timing products"));
        TRY_RETURN(cuda_check(cudaEventElapsedTime(&one, events[0], events[1]), "timing products"));
        best = fminf(best, one);
    }
    *time = best;
    return ALIBI_OK;
}

/* Of all that a product writes. */
static alibi_status fingerprint(struct cuda *c, uint64_t *out, const struct product *p,
                                const void *d)
{
    size_t bytes = (size_t)(p->m * p->n) * dtype_bytes(p->sums);
    uint64_t aux = 0;

    TRY_RETURN(cuda_fingerprint(c, out, d, bytes));
    if (p->aux != NULL)
        TRY_RETURN(cuda_fingerprint(c, &aux, p->aux, bytes));
    *out ^= aux << 1 | aux >> 63;
    return ALIBI_OK;
}

/* The fastest of those that give the first one's bits. */
static alibi_status choose_way(struct cuda *c, struct cuda_plan *plan, const struct product *p,
                               void *d, cudaEvent_t events[2])
{
    uint64_t first, other;
    float best, time;

    TRY_RETURN(run_way(c, plan, p, d, 0));
    TRY_RETURN(fingerprint(c, &first, p, d));
    TRY_RETURN(time_way(c, plan, p, d, 0, events, &best));
    for (int way = 1; way < plan->count; way++) {
        TRY_RETURN(run_way(c, plan, p, d, way));
        TRY_RETURN(fingerprint(c, &other, p, d));
        TRY_RETURN(time_way(c, plan, p, d, way, events, &time));
        if (other == first && time < best) {
            best = time;
            plan->chosen = way;
        }
    }
    return ALIBI_OK;
}

/* Tries all ways on the operands at hand. What is written there is overwritten afterwards; a
 * product that adds to its result needs another place, and if there is none, all stays as it is. */
static alibi_status try_ways(struct cuda *c, struct cuda_plan *plan, const struct product *p)
{
    alibi_status status = ALIBI_OK;
    cudaEvent_t events[2] = { NULL, NULL };
    void *aside = NULL;

    if (p->c != NULL &&
        cudaMalloc(&aside, (size_t)(p->m * p->n) * dtype_bytes(p->sums)) != cudaSuccess) {
        cudaGetLastError(); /* it is not an error to anybody else */
        return ALIBI_OK;
    }
    for (int i = 0; i < 2; i++)
        TRY(cuda_check(cudaEventCreate(&events[i]), "timing products"));
    TRY(choose_way(c, plan, p, aside != NULL ? aside : p->d, events));
    c->autotune.tuned++;
out:
    for (int i = 0; i < 2; i++)
        if (events[i] != NULL)
            cudaEventDestroy(events[i]);
    cudaFree(aside);
    return status;
}

static bool is_worth_trying(struct cuda *c, struct cuda_plan *plan, const struct product *p)
{
    if (plan->count < 2 || plan->uses > c->autotune.after ||
        2.0 * (double)p->m * (double)p->n * (double)p->k < c->autotune.flops)
        return false;
    return plan->uses++ == c->autotune.after;
}

/* *done is false, and nothing happened, where cuBLASLt has no way to do it. */
static alibi_status try_product(struct cuda *c, const struct product *p, bool *done)
{
    struct cuda_plan *plan = NULL;

    TRY_RETURN(find_plan(c, &plan, p));
    *done = plan->possible;
    if (!plan->possible)
        return ALIBI_OK;
    TRY_RETURN(set_addresses(plan, p));
    if (is_worth_trying(c, plan, p))
        TRY_RETURN(try_ways(c, plan, p));
    return run_way(c, plan, p, p->d, plan->chosen);
}

static alibi_status multiply(struct cuda *c, const struct product *p)
{
    bool done = false;

    TRY_RETURN(try_product(c, p, &done));
    return done ? ALIBI_OK : blas_check(CUBLAS_STATUS_NOT_SUPPORTED, p);
}

static struct product forward_product(struct tensor y, struct tensor x, struct tensor weight)
{
    return (struct product){ .transpose_a = true,
                             .m = weight.shape[0],
                             .n = x.shape[0],
                             .k = weight.shape[1],
                             .type = x.type,
                             .sums = y.type,
                             .a = weight.data,
                             .b = x.data,
                             .d = y.data };
}

static struct product input_product(struct tensor dx, struct tensor dy, struct tensor weight)
{
    return (struct product){ .m = weight.shape[1],
                             .n = dy.shape[0],
                             .k = weight.shape[0],
                             .type = dy.type,
                             .sums = dx.type,
                             .a = weight.data,
                             .b = dy.data,
                             .d = dx.data };
}

static struct product weight_product(struct tensor dweight, struct tensor dy, struct tensor x)
{
    return (struct product){ .transpose_b = true,
                             .m = dweight.shape[1],
                             .n = dweight.shape[0],
                             .k = dy.shape[0],
                             .type = dy.type,
                             .sums = dweight.type,
                             .a = x.data,
                             .b = dy.data,
                             .c = dweight.data,
                             .d = dweight.data };
}

static bool present(struct tensor t)
{
    return t.data != NULL;
}

/* ---- the operations */

static alibi_status product_with_bias(struct cuda *c, struct product p, struct tensor y,
                                      struct tensor bias)
{
    bool done = false;

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

/* Without inputs there is only the bias. */
static alibi_status bias_alone(struct device *dev, struct tensor y, struct tensor bias)
{
    TRY_RETURN(cuda_fill(dev, y, 0.0));
    return present(bias) ? cuda_add_bias(cuda_of(dev), y, bias) : ALIBI_OK;
}

alibi_status cuda_linear_forward(struct device *dev, const struct linear_args *a)
{
    struct cuda *c = cuda_of(dev);
    struct product p = forward_product(a->y, a->x, a->weight);

    if (p.m == 0 || p.n == 0)
        return ALIBI_OK;
    cuda_part(c, "linear forward");
    if (p.k == 0)
        return bias_alone(dev, a->y, a->bias);
    return present(a->bias) ? product_with_bias(c, p, a->y, a->bias) : multiply(c, &p);
}

static alibi_status input_gradient(struct device *dev, struct tensor dx, struct tensor dy,
                                   struct tensor weight)
{
    struct product p = input_product(dx, dy, weight);

    if (p.m == 0 || p.n == 0)
        return ALIBI_OK;
    if (p.k == 0)
        return cuda_fill(dev, dx, 0.0);
    cuda_part(cuda_of(dev), "linear input gradient");
    return multiply(cuda_of(dev), &p);
}

static alibi_status parameter_gradients(struct cuda *c, struct tensor dweight, struct tensor dbias,
                                        struct tensor dy, struct tensor x)
{
    struct product p = weight_product(dweight, dy, x);

    if (present(dweight) && p.m > 0 && p.n > 0 && p.k > 0) {
        cuda_part(c, "linear weight gradient");
        TRY_RETURN(multiply(c, &p));
    }
    if (!present(dbias))
        return ALIBI_OK;
    cuda_part(c, "linear bias gradient");
    return cuda_column_sums(c, dbias, dy);
}

alibi_status cuda_linear_backward(struct device *dev, const struct linear_args *a)
{
    if (present(a->dx))
        TRY_RETURN(input_gradient(dev, a->dx, a->dy, a->weight));
    return parameter_gradients(cuda_of(dev), a->dweight, a->dbias, a->dy, a->x);
}

/* Whether GELU may be part of a bf16 product of so many columns: cuBLASLt wants rows of `up` that
 * begin at 16 bytes. */
static bool can_fuse(int kind, struct tensor activated, struct tensor up)
{
    return kind == ALIBI_GELU_TANH && up.type == DTYPE_BF16 && up.shape[1] % 8 == 0 &&
           alignment(up.data) == 16 && alignment(activated.data) == 16;
}

static alibi_status try_fused_forward(struct cuda *c, struct tensor activated, struct tensor up,
                                      struct tensor x, struct tensor weight, struct tensor bias,
                                      bool *done)
{
    struct product p = forward_product(activated, x, weight);

    if (p.m == 0 || p.n == 0 || p.k == 0)
        return ALIBI_OK;
    cuda_part(c, "linear forward");
    p.epilogue = present(bias) ? GELU_BIAS : GELU;
    p.bias = bias.data;
    p.aux = up.data;
    return try_product(c, &p, done);
}

alibi_status cuda_linear_activation_forward(struct device *dev,
                                            const struct linear_activation_args *a)
{
    bool done = false;

    if (can_fuse(a->kind, a->activated, a->up) && !a->decoding)
        TRY_RETURN(
            try_fused_forward(cuda_of(dev), a->activated, a->up, a->x, a->weight, a->bias, &done));
    if (done)
        return ALIBI_OK;
    TRY_RETURN(cuda_linear_forward(dev, &(struct linear_args){ .y = a->up,
                                                               .x = a->x,
                                                               .weight = a->weight,
                                                               .bias = a->bias,
                                                               .decoding = a->decoding }));
    return cuda_activation_forward(dev, a->kind, a->activated, a->up);
}

alibi_status cuda_linear_activation_backward(struct device *dev,
                                             const struct linear_activation_args *a)
{
    struct cuda *c = cuda_of(dev);

    TRY_RETURN(input_gradient(dev, a->scratch, a->dy, a->weight));
    cuda_part(c, "activation");
    TRY_RETURN(cuda_activation_backward_sums(c, a->kind, a->dup, a->dup_sums, a->scratch, a->up));
    return parameter_gradients(c, a->dweight, a->dbias, a->dy, a->activated);
}
