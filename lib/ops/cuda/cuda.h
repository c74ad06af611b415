/* cuda.h - what the files of this room share
 *
 * The operations of ops.h on an NVIDIA GPU; T is F32 or BF16. This room is a shared library of its
 * own, libalibi_cuda.so, which lib/ops/device.c loads when a GPU is wanted. The rest of the library
 * needs nothing of CUDA. This room calls back through `struct cuda_host` (backend.h) only.
 *
 * C files use the runtime's C interface. .cu files hold the kernels, one file per operation, and
 * export the functions of the table at the end of this file.
 *
 * Order and determinism: all work of a device goes through one stream, in the order of the calls.
 * No sum depends on the order in which thread blocks run: blocks that add to the same place take
 * turns, or write partial sums that a second kernel adds in a fixed order. */
#ifndef CUDA_H
#define CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "ops/backend.h"

/* The symbols of the shared library. */
#define EXPORTED __attribute__((visibility("default")))
EXPORTED cuda_open_function alibi_cuda_open;
EXPORTED cuda_close_function alibi_cuda_close;
/* For tests: when the autotuner tries a product's algorithms (after < 0: unchanged), and how many
 * products it has tuned on this device so far. */
EXPORTED void alibi_cuda_autotune(struct device *dev, int after, double flops, int *tuned);

/* ---- state */

/* Memory that an operation needs while it runs, kept for the next call. One place per purpose, so
 * that two purposes within one operation cannot collide. */
enum scratch_place {
    SCRATCH_SUMS,    /* partial sums: norms, column sums, norms of gradients */
    SCRATCH_SORT,    /* tokens sorted by id */
    SCRATCH_QUERIES, /* attention backward: dQ in fp32 */
    SCRATCH_ROWS,    /* attention backward: delta, one number per query and head */
    SCRATCH_NORMS,   /* norms of key tiles */
    SCRATCH_TURNS,   /* attention backward: whose turn it is to add to a tile of dQ; the ticket */
    SCRATCH_BIAS,    /* attention backward: partial gradients of the bias */
    SCRATCH_KEPT,    /* which key tiles attention uses */
    SCRATCH_PARTS,   /* decoding: results over parts of the keys */
    SCRATCH_PLACES,
};

enum { SCRATCH_GRAIN = 1 << 20 }; /* a place's size is a multiple of it */

enum {
    PART_EVENTS = 4096,        /* of parts.c, until they are added up */
    BLAS_WORKSPACE = 64 << 20, /* bytes; larger than the L2 cache, see linear.c */
    STAGING_BYTES = 16 << 20,  /* page-locked host memory */
    PLAN_BUCKETS = 256,        /* of the hash table of linear.c */
};

/* The autotuner of linear.c tries a product's algorithms when the product has run `after` times and
 * takes `flops` or more. */
struct autotune {
    int after;
    double flops;
    int tuned; /* products so far */
};
enum { AUTOTUNE_AFTER = 24 };
#define AUTOTUNE_FLOPS 2e9

struct cuda_plan;   /* linear.c */
struct cuda_parts;  /* parts.c */
struct cuda_buffer; /* device.c */

struct cuda {
    const struct cuda_host *host;
    int index; /* of the GPU, as the runtime counts */
    int multiprocessors, major;
    size_t shared_per_block; /* at most, with opt-in */
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *workspace; /* [BLAS_WORKSPACE] */
    struct cuda_plan *plans[PLAN_BUCKETS];
    struct autotune autotune;
    struct {
        void *at;
        size_t bytes;
    } scratch[SCRATCH_PLACES];
    struct {
        char *at[2];         /* page-locked host memory, STAGING_BYTES / 2 each, used in turns */
        cudaEvent_t done[2]; /* after the last copy from or to it */
        int next;
    } staging;
    struct cuda_buffer *buffers; /* given out and not yet freed, in no order */
    size_t buffer_count, buffer_capacity;
    size_t used, peak;
    struct cuda_parts *parts; /* NULL: nobody asked for times */
};

/* The state of a device. Makes its GPU the current one of the calling thread: the first call of
 * every operation. */
struct cuda *cuda_of(struct device *dev);

/* From now on time belongs to the operation `name`, a string literal; after cuda_part_end() to
 * none. Both do nothing until somebody has asked for times. */
void cuda_part(struct cuda *c, const char *name);
void cuda_part_end(struct cuda *c);
void cuda_parts_free(struct cuda *c);
void cuda_plans_free(struct cuda *c); /* linear.c */

/* The product of the factors; SIZE_MAX, which no device has, if it overflows. */
static inline size_t cuda_bytes(const int64_t *factors, int count)
{
    size_t bytes;

    return size_product(&bytes, factors, count) ? bytes : SIZE_MAX;
}

/* ALIBI_OK; or ALIBI_MEMORY or ALIBI_DEVICE with `what` and the runtime's message. */
alibi_status cuda_check(cudaError_t error, const char *what);
alibi_status cuda_scratch(struct cuda *c, enum scratch_place place, size_t bytes,
                          void **out); /* not cleared */
/* cuda_bytes() of it. */
alibi_status cuda_scratch_for(struct cuda *c, enum scratch_place place, const int64_t *factors,
                              int count, void **out);
alibi_status cuda_new(struct cuda *c, void **out, size_t bytes, const char *what);
void cuda_free(struct cuda *c, void *buffer, size_t bytes); /* waits for work in flight */

/* Scratch memory that passes over so many rows of C numbers take, for workspace.cu: of SCRATCH_SUMS
 * (columns.cu: the most of any pass; norm.cu; embedding.cu), and of SCRATCH_SORT (embedding.cu). */
size_t cuda_column_bytes(int64_t columns);
size_t cuda_norm_bytes(int64_t rows, int64_t C);
size_t cuda_aside_bytes(int64_t rows, int64_t C);
size_t cuda_sorting_bytes(struct cuda *c, int64_t rows);

/* What a bias needs (columns.cu): sums[n] += sum over rows of x[r, n]; y[r, n] += bias[n]. sums is
 * S, the rest T. */
alibi_status cuda_column_sums(struct cuda *c, struct tensor sums, struct tensor x);
alibi_status cuda_add_bias(struct cuda *c, struct tensor y, struct tensor bias);

/* The gradient of an activation (activation.cu) with the column sums of dx, S, which accumulate and
 * may be absent, in the same pass. Aliasing as in activation_backward. */
alibi_status cuda_activation_backward_sums(struct cuda *c, int kind, struct tensor dx,
                                           struct tensor dx_sums, struct tensor dy,
                                           struct tensor x);

/* A number that tells results with different bits apart (fingerprint.cu). Waits. */
alibi_status cuda_fingerprint(struct cuda *c, uint64_t *out, const void *data, size_t bytes);

/* ---- the table: contracts in ops.h */

extern const struct ops cuda_ops;

alibi_status cuda_finish(struct device *dev);
void cuda_memory(struct device *dev, struct device_memory *memory);
void cuda_reset_peak(struct device *dev);
size_t cuda_workspace(struct device *dev, int64_t B, int64_t L, int64_t H, int64_t D,
                      bool training);
alibi_status cuda_read_parts(struct device *dev, struct device_part *parts, int *count);
alibi_status cuda_buffer_new(struct device *dev, void **out, size_t bytes, const char *what);
void cuda_buffer_free(struct device *dev, void *buffer);
alibi_status cuda_upload(struct device *dev, struct tensor dst, const void *host);
alibi_status cuda_download(struct device *dev, void *host, struct tensor src);
alibi_status cuda_fill(struct device *dev, struct tensor dst, double value);
alibi_status cuda_copy(struct device *dev, struct tensor dst, struct tensor src);
alibi_status cuda_embedding_forward(struct device *dev, struct tensor y, struct tensor tokens,
                                    struct tensor weight, struct tensor table, int64_t start,
                                    double scale);
alibi_status cuda_embedding_backward(struct device *dev, struct tensor dweight,
                                     struct tensor dtable, struct tensor dy, struct tensor tokens,
                                     int64_t start, double scale);
alibi_status cuda_linear_forward(struct device *dev, struct tensor y, struct tensor x,
                                 struct tensor weight, struct tensor bias);
alibi_status cuda_linear_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                  struct tensor dbias, struct tensor dy, struct tensor x,
                                  struct tensor weight);
alibi_status cuda_linear_activation_forward(struct device *dev, int kind, struct tensor activated,
                                            struct tensor up, struct tensor x, struct tensor weight,
                                            struct tensor bias);
alibi_status cuda_linear_activation_backward(struct device *dev, int kind, struct tensor dup,
                                             struct tensor dup_sums, struct tensor scratch,
                                             struct tensor dweight, struct tensor dbias,
                                             struct tensor dy, struct tensor activated,
                                             struct tensor weight, struct tensor up);
alibi_status cuda_layernorm_forward(struct device *dev, struct tensor y, struct tensor mean,
                                    struct tensor rstd, struct tensor sum, struct tensor x,
                                    struct tensor branch, struct dropout drop, struct tensor weight,
                                    struct tensor bias, double eps);
alibi_status cuda_layernorm_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                     struct tensor dbias, struct tensor y, struct tensor dy,
                                     struct tensor x, struct tensor weight, struct tensor bias,
                                     struct tensor mean, struct tensor rstd);
alibi_status cuda_rmsnorm_forward(struct device *dev, struct tensor y, struct tensor rstd,
                                  struct tensor sum, struct tensor x, struct tensor branch,
                                  struct dropout drop, struct tensor weight, struct tensor bias,
                                  double eps);
alibi_status cuda_rmsnorm_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                   struct tensor dbias, struct tensor y, struct tensor dy,
                                   struct tensor x, struct tensor weight, struct tensor bias,
                                   struct tensor rstd);
alibi_status cuda_activation_forward(struct device *dev, int kind, struct tensor y,
                                     struct tensor x);
alibi_status cuda_activation_backward(struct device *dev, int kind, struct tensor dx,
                                      struct tensor dy, struct tensor x);
alibi_status cuda_residual_forward(struct device *dev, struct tensor y, struct tensor x,
                                   struct tensor branch, struct dropout drop);
alibi_status cuda_dropout(struct device *dev, struct tensor y, struct tensor x,
                          struct dropout drop);
alibi_status cuda_attention_forward(struct device *dev, struct tensor y, struct tensor lse,
                                    struct attention a);
alibi_status cuda_attention_backward(struct device *dev, struct tensor dq, struct tensor dk,
                                     struct tensor dv, struct tensor dbias, struct tensor dy,
                                     struct tensor y, struct tensor lse, struct attention a);
alibi_status cuda_attention_norms(struct device *dev, struct tensor norms, struct tensor k,
                                  int64_t from);
alibi_status cuda_rotary(struct device *dev, struct tensor x, struct rotation r, int direction);
alibi_status cuda_bucket_forward(struct device *dev, struct tensor table, struct tensor weight,
                                 struct tensor bucket);
alibi_status cuda_bucket_backward(struct device *dev, struct tensor dweight, struct tensor dtable,
                                  struct tensor bucket);
alibi_status cuda_cross_entropy(struct device *dev, struct tensor nll, struct tensor dlogits,
                                struct tensor logits, struct tensor targets, double scale);
alibi_status cuda_adamw(struct device *dev, struct tensor w, struct tensor copy, struct tensor m,
                        struct tensor v, struct tensor gradient, struct adamw a);
alibi_status cuda_nesterov(struct device *dev, struct tensor w, struct tensor copy, struct tensor u,
                           struct tensor gradient, struct nesterov n);
alibi_status cuda_sum_squares(struct device *dev, double *sum, struct tensor x);
alibi_status cuda_sum(struct device *dev, double *sum, struct tensor x);

#ifdef __cplusplus
}
#endif
#endif
