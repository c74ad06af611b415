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
 * No sum depends on the order in which thread blocks run: blocks that add to the same place wait
 * for a semaphore, or write partial sums that a second kernel adds in a fixed order. */
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
    SCRATCH_SUMS,       /* partial sums: norms, column sums, norms of gradients */
    SCRATCH_SORT,       /* tokens sorted by id */
    SCRATCH_QUERIES,    /* attention backward: dQ in fp32; then weights and gradients of sinks */
    SCRATCH_ROWS,       /* attention backward: delta, one number per query and head */
    SCRATCH_NORMS,      /* norms of key tiles, and the largest up to each of them */
    SCRATCH_SEMAPHORES, /* attention: counter of items; backward: who adds to a tile of dQ next */
    SCRATCH_BIAS,       /* attention: tables of biases; backward: partial gradients of the bias */
    SCRATCH_KEPT,       /* which key tiles attention uses */
    SCRATCH_LISTS,      /* the same as lists, see attention.cuh */
    SCRATCH_PARTS,      /* decoding: results over parts of the keys */
    SCRATCH_COUNTERS,   /* decoding: how many parts of a row are done; see cuda_counters() */
    SCRATCH_DECODE,     /* decoding: operands of linear layers, padded to full products */
    SCRATCH_PLACES,
};

enum { SCRATCH_GRAIN = 1 << 20 }; /* a place's size is a multiple of it */

enum {
    PART_EVENTS = 4096,         /* of parts.c, until they are added up */
    BLAS_WORKSPACE = 64 << 20,  /* bytes; larger than the L2 cache, see linear.cu */
    WIDE_WORKSPACE = 256 << 20, /* the same with TUNING_WIDE */
    STAGING_BYTES = 16 << 20,   /* page-locked host memory */
    PLAN_BUCKETS = 256,         /* of the hash table of linear.cu */
    DECODE_ROWS = 32,           /* of every product in decoding */
    REPLAYS = 8,                /* pieces of work that replay.c keeps */
};

/* The autotuner of linear.cu tries a product's algorithms when the product has run `after` times,
 * or with TUNING_WIDE when it first runs, and takes `flops` or more. */
struct autotune {
    enum tuning how;
    int after;
    double flops;
    int tuned; /* products so far */
};
enum { AUTOTUNE_AFTER = 24 };
#define AUTOTUNE_FLOPS 2e9

struct cuda_plan;   /* linear.cu */
struct cuda_parts;  /* parts.c */
struct cuda_buffer; /* device.c */

/* A piece of work, see replay.c. */
struct cuda_replay {
    struct work_key key;
    uint64_t frees;        /* as of context.frees: memory that is gone makes it invalid */
    int64_t calls;         /* under this key */
    int64_t last;          /* number of the last call, of all */
    cudaGraphExec_t graph; /* NULL: not recorded */
};

struct context {
    const struct cuda_host *host;
    int index; /* of the GPU, as the runtime counts */
    char name[CUDA_NAME_MAX];
    int multiprocessors;
    bool mma_sync;           /* attention by mma.sync, not by wgmma */
    size_t shared_per_block; /* at most, with opt-in */
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *workspace; /* of cuBLASLt */
    size_t workspace_bytes;
    struct cuda_plan *plans[PLAN_BUCKETS];
    struct autotune autotune;
    struct {
        struct product_choice *list; /* sorted by product */
        int count, capacity;
        int dropped; /* given ones that cuBLASLt does not offer */
    } choices;
    int64_t lists_from; /* keys from which attention makes lists of them; 0: never */
    struct {
        void *at;
        size_t bytes;
    } scratch[SCRATCH_PLACES];
    struct {
        char *at[2];         /* page-locked host memory, STAGING_BYTES / 2 each, used in turns */
        cudaEvent_t done[2]; /* after the last copy from or to it */
        int next;
    } staging;
    cudaEvent_t joined;              /* a point in one stream that another waits for */
    cudaStream_t side;               /* of link(); NULL: nobody has asked for it */
    cudaEvent_t marks[DEVICE_MARKS]; /* of caller_mark(); NULL: not used yet */
    struct {
        char *at; /* NULL: no caller has given memory */
        size_t bytes, used;
        cudaStream_t before;     /* the device's own stream */
    } borrowed;                  /* between caller_begins and caller_ends */
    struct cuda_buffer *buffers; /* given out and not yet freed, in no order */
    size_t buffer_count, buffer_capacity;
    size_t used, peak;
    uint64_t frees; /* of buffers and scratch memory so far */
    bool chains;    /* the GPU can start a kernel before the last one has ended; see launch.cuh */
    bool chained;   /* the last work in the stream is a kernel that lets others start early */
    bool blas_decodes; /* ALIBI_DECODE, see docs/gpu.md */
    struct {
        struct cuda_replay work[REPLAYS], *recording;
        int64_t calls;
        bool off; /* work could not be recorded once */
    } replay;
    struct cuda_parts *parts; /* NULL: times were never asked for */
    bool timing;              /* they are being kept */
};

/* The state of a device. Makes its GPU the current one of the calling thread: the first call of
 * every operation. */
struct context *cuda_of(struct device *dev);

/* From now on time belongs to the operation `name`, a string literal; after cuda_part_end() to
 * none. Both do nothing unless times are kept. */
void cuda_part(struct context *c, const char *name);
void cuda_part_end(struct context *c);
void cuda_parts_free(struct context *c);
void cuda_plans_free(struct context *c);   /* linear.cu */
void cuda_replays_free(struct context *c); /* replay.c */

/* The product of the factors; SIZE_MAX, which no device has, if it overflows. */
static inline size_t cuda_bytes(const int64_t *factors, int count)
{
    size_t bytes;

    return size_product(&bytes, factors, count) ? bytes : SIZE_MAX;
}

/* ALIBI_OK; or ALIBI_MEMORY or ALIBI_DEVICE with `what` and the runtime's message. */
alibi_status cuda_check(cudaError_t error, const char *what);
/* The memory is not cleared. */
alibi_status cuda_scratch(struct context *c, enum scratch_place place, size_t bytes, void **out);
/* The same for cuda_bytes(factors). */
alibi_status cuda_scratch_for(struct context *c, enum scratch_place place, const int64_t *factors,
                              int count, void **out);
/* Numbers that are 0 for the next kernel in the stream, which leaves them so. */
alibi_status cuda_counters(struct context *c, int64_t count, int **out);
/* What one area of a caller's workspace takes of it. */
static inline size_t cuda_borrowed_bytes(size_t bytes)
{
    const size_t grain = ALIBI_WORKSPACE_ALIGNMENT;

    return bytes > SIZE_MAX - grain ? SIZE_MAX : (bytes + grain - 1) / grain * grain;
}
alibi_status cuda_new(struct context *c, void **out, size_t bytes, const char *what);
bool cuda_try_new(struct context *c, void **out, size_t bytes); /* false, no message: no memory */
void cuda_free(struct context *c, void *buffer, size_t bytes);  /* waits for work in flight */

/* Bytes of scratch memory that passes over `rows` rows of C numbers take, for workspace.cu:
 * SCRATCH_SUMS (columns.cu: the most of any pass; norm.cu; embedding.cu), SCRATCH_SORT
 * (embedding.cu), SCRATCH_DECODE (linear.cu). */
size_t cuda_column_bytes(int64_t columns);
size_t cuda_norm_bytes(int64_t rows, int64_t C);
size_t cuda_aside_bytes(int64_t rows, int64_t C);
size_t cuda_sorting_bytes(struct context *c, int64_t rows);
size_t cuda_decode_bytes(int64_t in, int64_t out);

/* A bias and its gradient (columns.cu): y[r, n] += bias[n]; sums[n] += sum over rows of x[r, n].
 * sums is S, the rest T. */
alibi_status cuda_column_sums(struct context *c, struct tensor sums, struct tensor x);
alibi_status cuda_add_bias(struct context *c, struct tensor y, struct tensor bias);

/* Linear layers of few rows (linear_decode.cu), each of which has the same bits in any batch.
 * Whether they are served depends on the weights and the type only. With `activated`, which may be
 * absent, it receives act(y) too; not swiglu. No dimension is 0. With a norm they compute that as
 * well, to the same bits as norm_forward, if cuda_few_rows_norm(). */
bool cuda_few_rows_serve(const struct context *c, struct tensor y, struct tensor weight);
bool cuda_few_rows_norm(const struct norm_args *norm);
alibi_status cuda_few_rows(struct context *c, const struct linear_args *a, struct tensor activated,
                           int activation);

/* The gradient of an activation and, in the same pass, the column sums of dx (activation.cu).
 * dx_sums is S, accumulates, and may be absent. Aliasing as in activation_backward. */
alibi_status cuda_activation_backward_sums(struct context *c, int kind, struct tensor dx,
                                           struct tensor dx_sums, struct tensor dy,
                                           struct tensor x);

/* ---- the table: contracts in ops.h */

extern const struct ops cuda_ops;

finish_fn cuda_finish;
caller_fn cuda_caller_begins, cuda_caller_ends;
link_fn cuda_link;
caller_mark_fn cuda_caller_mark;
caller_done_fn cuda_caller_done;
memory_fn cuda_memory;
reset_peak_fn cuda_reset_peak;
workspace_fn cuda_workspace;
read_parts_fn cuda_read_parts;
address_fn cuda_address;
tune_fn cuda_tune;
get_choices_fn cuda_get_choices;
set_choices_fn cuda_set_choices;
replay_fn cuda_replay;
replay_end_fn cuda_replay_end;
buffer_new_fn cuda_buffer_new;
buffer_free_fn cuda_buffer_free;
upload_fn cuda_upload;
download_fn cuda_download;
fill_fn cuda_fill;
copy_fn cuda_copy;
embedding_fn cuda_embedding_forward, cuda_embedding_backward;
linear_fn cuda_linear_forward, cuda_linear_backward;
linear_activation_fn cuda_linear_activation_forward, cuda_linear_activation_backward;
norm_fn cuda_norm_forward, cuda_norm_backward;
activation_forward_fn cuda_activation_forward;
activation_backward_fn cuda_activation_backward;
residual_fn cuda_residual_forward;
dropout_fn cuda_dropout;
rotary_fn cuda_rotary;
logn_fn cuda_logn_forward, cuda_logn_backward;
head_norm_fn cuda_head_norm_forward, cuda_head_norm_backward;
gate_fn cuda_gate_forward, cuda_gate_backward;
sinks_fn cuda_sinks_forward, cuda_sinks_backward;
attention_fn cuda_attention_forward, cuda_attention_backward;
attention_workspace_fn cuda_attention_workspace;
attention_norms_fn cuda_attention_norms;
cache_append_fn cuda_cache_append;
bucket_forward_fn cuda_bucket_forward;
bucket_backward_fn cuda_bucket_backward;
curve_fn cuda_curve_forward, cuda_curve_backward;
cross_entropy_fn cuda_cross_entropy;
log_softmax_fn cuda_log_softmax;
adamw_fn cuda_adamw;
nesterov_fn cuda_nesterov;
sum_fn cuda_sum, cuda_sum_squares;

#ifdef __cplusplus
}
#endif
#endif
