/* device.c - one opened GPU: its state, its memory, transfers, and the table of operations
 *
 * alibi_cuda_open() makes a fresh `struct context` each time, so several devices, on one GPU or on
 * several, can be open in one process. Nothing here is shared between them.
 *
 * Invariant: `used` is the sum of all device memory that cuda_new() gave out and cuda_free() did
 * not take back. Scratch memory and the workspace of cuBLASLt are part of it. */
#include <stdlib.h>
#include <string.h>

#include "ops/bf16.h"
#include "ops/cuda/cuda.h"

enum { HALF_BYTES = STAGING_BYTES / 2 };

struct cuda_buffer {
    void *at;
    size_t bytes;
};

/* ---- failures and the calling thread */

/* Where fail() reports to: the host of the device that this thread called last. */
static _Thread_local const struct cuda_host *host_of_thread;

/* base.h declares fail(); inside this shared library it forwards to the host's own. */
alibi_status fail(alibi_status status, const char *format, ...)
{
    char line[1024] = "";
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    host_of_thread->fail((int)status, line);
    return status;
}

/* The current device is a property of the thread in CUDA. Other code in the process may change it
 * between two of our calls, so every operation sets it. */
struct context *cuda_of(struct device *dev)
{
    struct context *c = dev->state;

    host_of_thread = c->host;
    (void)cudaSetDevice(c->index);
    return c;
}

/* The runtime keeps an error until it is read, and would blame the next launch for it. */
static void forget_error(void)
{
    (void)cudaGetLastError();
}

alibi_status cuda_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return ALIBI_OK;
    forget_error();
    if (error == cudaErrorMemoryAllocation)
        return fail(ALIBI_MEMORY, "the GPU has no memory left for %s", what);
    return fail(ALIBI_DEVICE, "the GPU failed in %s: %s", what, cudaGetErrorString(error));
}

static double gib(size_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

static alibi_status no_room(size_t bytes, const char *what)
{
    size_t free_bytes = 0, total = 0;

    forget_error();
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess)
        forget_error();
    return fail(
        ALIBI_MEMORY,
        "the GPU has no memory left for %s: it needs %.1f GiB, %.1f GiB of %.1f are free; use "
        "a smaller model, batch or length",
        what, gib(bytes), gib(free_bytes), gib(total));
}

/* ---- memory */

static void count_used(struct context *c, size_t bytes)
{
    c->used += bytes;
    if (c->used > c->peak)
        c->peak = c->used;
}

alibi_status cuda_new(struct context *c, void **out, size_t bytes, const char *what)
{
    void *buffer = NULL;
    cudaError_t error = cudaMalloc(&buffer, bytes > 0 ? bytes : 1); /* empty ones have an address */

    if (error == cudaErrorMemoryAllocation)
        return no_room(bytes, what);
    TRY_RETURN(cuda_check(error, what));
    count_used(c, bytes);
    *out = buffer;
    return ALIBI_OK;
}

bool cuda_try_new(struct context *c, void **out, size_t bytes)
{
    if (cudaMalloc(out, bytes) != cudaSuccess) {
        forget_error();
        return false;
    }
    count_used(c, bytes);
    return true;
}

/* An error of work in flight is not lost: the runtime reports it again at the next call. */
void cuda_free(struct context *c, void *buffer, size_t bytes)
{
    if (buffer == NULL)
        return;
    cudaStreamSynchronize(c->stream);
    cudaFree(buffer);
    c->used -= bytes;
    c->frees++;
}

alibi_status cuda_buffer_new(struct device *dev, void **out, size_t bytes, const char *what)
{
    struct context *c = cuda_of(dev);
    void *buffer = NULL;

    if (c->buffer_count == c->buffer_capacity) {
        size_t capacity = c->buffer_capacity > 0 ? 2 * c->buffer_capacity : 64;
        struct cuda_buffer *grown = realloc(c->buffers, capacity * sizeof *grown);
        if (grown == NULL)
            return fail(ALIBI_MEMORY, "no memory for a list of %zu GPU buffers", capacity);
        c->buffers = grown;
        c->buffer_capacity = capacity;
    }
    TRY_RETURN(cuda_new(c, &buffer, bytes, what));
    c->buffers[c->buffer_count++] = (struct cuda_buffer){ buffer, bytes };
    *out = buffer;
    return ALIBI_OK;
}

void cuda_buffer_free(struct device *dev, void *buffer)
{
    struct context *c = cuda_of(dev);

    for (size_t i = 0; i < c->buffer_count; i++)
        if (c->buffers[i].at == buffer) {
            cuda_free(c, buffer, c->buffers[i].bytes);
            c->buffers[i] = c->buffers[--c->buffer_count];
            return;
        }
}

/* The next area of the caller's workspace. */
static alibi_status borrow(struct context *c, size_t bytes, void **out)
{
    size_t rounded = cuda_borrowed_bytes(bytes);

    if (rounded > c->borrowed.bytes - c->borrowed.used)
        return fail(ALIBI_USAGE,
                    "a workspace of %zu bytes is too small for this call; ask for its size first",
                    c->borrowed.bytes);
    *out = c->borrowed.at + c->borrowed.used;
    c->borrowed.used += rounded;
    return ALIBI_OK;
}

/* A place only grows, in multiples of SCRATCH_GRAIN. Growing loses its contents. */
alibi_status cuda_scratch(struct context *c, enum scratch_place place, size_t bytes, void **out)
{
    size_t rounded;

    if (c->borrowed.at != NULL)
        return borrow(c, bytes, out);
    if (bytes > c->scratch[place].bytes) {
        if (!size_add(&rounded, bytes, SCRATCH_GRAIN - 1))
            return no_room(bytes, "scratch memory");
        rounded -= rounded % SCRATCH_GRAIN;
        cuda_free(c, c->scratch[place].at, c->scratch[place].bytes);
        c->scratch[place].at = NULL;
        c->scratch[place].bytes = 0;
        TRY_RETURN(cuda_new(c, &c->scratch[place].at, rounded, "scratch memory"));
        c->scratch[place].bytes = rounded;
    }
    *out = c->scratch[place].at;
    return ALIBI_OK;
}

alibi_status cuda_scratch_for(struct context *c, enum scratch_place place, const int64_t *factors,
                              int count, void **out)
{
    return cuda_scratch(c, place, cuda_bytes(factors, count), out);
}

alibi_status cuda_counters(struct context *c, int64_t count, int **out)
{
    const int64_t factors[] = { count, (int64_t)sizeof(int) };
    const size_t asked = cuda_bytes(factors, 2), before = c->scratch[SCRATCH_COUNTERS].bytes;
    size_t stale = 0;

    TRY_RETURN(cuda_scratch(c, SCRATCH_COUNTERS, asked, (void **)out));
    if (c->borrowed.at != NULL)
        stale = asked;
    else if (c->scratch[SCRATCH_COUNTERS].bytes > before)
        stale = c->scratch[SCRATCH_COUNTERS].bytes;
    return stale == 0 ? ALIBI_OK
                      : cuda_check(cudaMemsetAsync(*out, 0, stale, c->stream), "counters");
}

/* ---- transfers
 *
 * Through page-locked staging memory in two halves: while the GPU copies one half, the host fills
 * or empties the other. When upload returns, the caller may reuse its buffer, although the copy to
 * the GPU may still be in flight. */

/* Converts `count` host numbers to the type of the tensor, and back. */
static void pack(char *staged, enum dtype type, const float *host, size_t count)
{
    if (type == DTYPE_BF16)
        for (size_t i = 0; i < count; i++)
            ((uint16_t *)staged)[i] = bf16_from_float(host[i]);
    else
        memcpy(staged, host, count * sizeof *host);
}

static void unpack(float *host, enum dtype type, const char *staged, size_t count)
{
    if (type == DTYPE_BF16)
        for (size_t i = 0; i < count; i++)
            host[i] = bf16_to_float(((const uint16_t *)staged)[i]);
    else
        memcpy(host, staged, count * sizeof *host);
}

/* Piece `k` of a tensor begins at element *from. Returns its element count; 0: past the end. */
static size_t piece(struct tensor t, size_t k, size_t *from)
{
    size_t all = (size_t)tensor_count(t), most = HALF_BYTES / dtype_bytes(t.type);

    *from = k * most;
    return *from >= all ? 0 : all - *from < most ? all - *from : most;
}

static alibi_status wait_for_half(struct context *c, int half)
{
    return cuda_check(cudaEventSynchronize(c->staging.done[half]), "copying between host and GPU");
}

static alibi_status start_copy(struct context *c, int half, void *to, const void *from,
                               size_t bytes)
{
    static const char what[] = "copying between host and GPU";

    c->chained = false;
    TRY_RETURN(cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->stream), what));
    return cuda_check(cudaEventRecord(c->staging.done[half], c->stream), what);
}

alibi_status cuda_upload(struct device *dev, struct tensor dst, const void *host)
{
    struct context *c = cuda_of(dev);
    size_t from, count;

    cuda_part(c, "upload");
    for (size_t k = 0; (count = piece(dst, k, &from)) > 0; k++) {
        int half = c->staging.next;
        c->staging.next ^= 1;
        TRY_RETURN(wait_for_half(c, half));
        pack(c->staging.at[half], dst.type, (const float *)host + from, count);
        TRY_RETURN(start_copy(c, half, tensor_at(dst, (int64_t)from), c->staging.at[half],
                              count * dtype_bytes(dst.type)));
    }
    return ALIBI_OK;
}

/* Piece k arrives in half k % 2 while the host unpacks piece k - 1 from the other half. */
alibi_status cuda_download(struct device *dev, void *host, struct tensor src)
{
    struct context *c = cuda_of(dev);
    size_t from, count, before_from = 0, before = 0;

    cuda_part(c, "download");
    for (size_t k = 0;; k++) {
        int half = (int)(k & 1);
        count = piece(src, k, &from);
        if (count > 0) {
            TRY_RETURN(wait_for_half(c, half));
            TRY_RETURN(start_copy(c, half, c->staging.at[half], tensor_at(src, (int64_t)from),
                                  count * dtype_bytes(src.type)));
        }
        if (before > 0) {
            TRY_RETURN(wait_for_half(c, 1 - half));
            unpack((float *)host + before_from, src.type, c->staging.at[1 - half], before);
        }
        if (count == 0)
            return ALIBI_OK;
        before = count;
        before_from = from;
    }
}

/* ---- the device as a whole */

alibi_status cuda_finish(struct device *dev)
{
    struct context *c = cuda_of(dev);

    cuda_part_end(c);
    return cuda_check(cudaStreamSynchronize(c->stream), "waiting for its work");
}

/* One event serves all: cudaStreamWaitEvent captures the event's current record. */
static alibi_status join(struct context *c, cudaStream_t first, cudaStream_t second)
{
    static const char what[] = "waiting for another stream";

    TRY_RETURN(cuda_check(cudaEventRecord(c->joined, first), what));
    return cuda_check(cudaStreamWaitEvent(second, c->joined, 0), what);
}

/* A call with its own workspace shares nothing with other work of the device, so it needs no order
 * among it: it runs in the caller's stream. Scratch of the device is used in the device's. */
alibi_status cuda_caller_begins(struct device *dev, const struct caller *caller)
{
    struct context *c = cuda_of(dev);

    if (caller->workspace == NULL)
        return join(c, caller->stream, c->stream);
    if ((uintptr_t)caller->workspace % ALIBI_WORKSPACE_ALIGNMENT != 0)
        return fail(ALIBI_USAGE, "a workspace must be aligned to %d bytes",
                    (int)ALIBI_WORKSPACE_ALIGNMENT);
    cuda_part_end(c);
    c->borrowed.before = c->stream;
    c->stream = caller->stream;
    c->borrowed.at = caller->workspace;
    c->borrowed.bytes = caller->bytes;
    c->borrowed.used = 0;
    return ALIBI_OK;
}

alibi_status cuda_caller_ends(struct device *dev, const struct caller *caller)
{
    struct context *c = cuda_of(dev);

    cuda_part_end(c);
    if (caller->workspace == NULL)
        return join(c, c->stream, caller->stream);
    c->stream = c->borrowed.before;
    c->borrowed.at = NULL;
    return ALIBI_OK;
}

alibi_status cuda_caller_mark(struct device *dev, const struct caller *caller, int mark)
{
    static const char what[] = "marking a point in a stream";
    struct context *c = cuda_of(dev);

    if (c->marks[mark] == NULL)
        TRY_RETURN(
            cuda_check(cudaEventCreateWithFlags(&c->marks[mark], cudaEventDisableTiming), what));
    return cuda_check(cudaEventRecord(c->marks[mark], caller->stream), what);
}

alibi_status cuda_caller_done(struct device *dev, int mark, bool *done)
{
    cudaError_t error = cudaEventQuery(cuda_of(dev)->marks[mark]);

    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady)
        return cuda_check(error, "asking a stream for its work");
    (void)cudaGetLastError(); /* otherwise the next launch seems to have failed with it */
    return ALIBI_OK;
}

alibi_status cuda_link(struct device *dev, void **stream)
{
    struct context *c = cuda_of(dev);

    if (c->side == NULL)
        TRY_RETURN(cuda_check(cudaStreamCreateWithFlags(&c->side, cudaStreamNonBlocking),
                              "creating a stream"));
    *stream = c->side;
    return ALIBI_OK;
}

/* Scratch and workspace count as free: the backend holds them for itself and uses them again. */
void cuda_memory(struct device *dev, struct device_memory *memory)
{
    struct context *c = cuda_of(dev);

    *memory = (struct device_memory){ .used = c->used, .peak = c->peak };
    if (cudaMemGetInfo(&memory->free, &memory->total) != cudaSuccess) {
        forget_error();
        return;
    }
    memory->free += c->workspace_bytes;
    for (int place = 0; place < SCRATCH_PLACES; place++)
        memory->free += c->scratch[place].bytes;
}

void cuda_reset_peak(struct device *dev)
{
    struct context *c = cuda_of(dev);

    c->peak = c->used;
}

alibi_status cuda_address(struct device *dev, char address[DEVICE_ADDRESS_MAX])
{
    return cuda_check(cudaDeviceGetPCIBusId(address, DEVICE_ADDRESS_MAX, cuda_of(dev)->index),
                      "asking for its address");
}

/* ---- opening and closing */

/* A driver runs programs of any toolkit of its own major version or an older one. */
static alibi_status check_driver(void)
{
    int version = 0, needed = CUDART_VERSION / 1000 * 1000;

    TRY_RETURN(cuda_check(cudaDriverGetVersion(&version), "asking for the driver's version"));
    if (version == 0)
        return fail(ALIBI_DEVICE, "no NVIDIA driver is loaded");
    if (version < needed)
        return fail(ALIBI_DEVICE, "the driver is too old: it has CUDA %d.%d, %d.%d is needed",
                    version / 1000, version % 1000 / 10, needed / 1000, needed % 1000 / 10);
    return ALIBI_OK;
}

static alibi_status check_visible(int64_t gpu)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        forget_error();
        return fail(ALIBI_DEVICE, "no GPU is visible");
    }
    TRY_RETURN(cuda_check(error, "counting the GPUs"));
    if (gpu < 0 || gpu >= count)
        return fail(ALIBI_DEVICE, "there is no GPU %lld: %d are visible, numbered from 0",
                    (long long)gpu, count);
    return ALIBI_OK;
}

/* ALIBI_DECODE of the environment, see docs/gpu.md. */
static bool decodes_by(const char *way)
{
    const char *text = getenv("ALIBI_DECODE");

    return text != NULL && strcmp(text, way) == 0;
}

static alibi_status read_properties(struct context *c, char name[CUDA_NAME_MAX])
{
    struct cudaDeviceProp p;

    TRY_RETURN(cuda_check(cudaGetDeviceProperties(&p, c->index), "reading its properties"));
    if (p.major < 8)
        return fail(ALIBI_DEVICE, "GPU '%s' has compute capability %d.%d, 8.0 is needed", p.name,
                    p.major, p.minor);
    c->mma_sync = p.major != 9 || getenv("ALIBI_MMA_SYNC") != NULL; /* for tests, see docs/gpu.md */
    c->chains = p.major >= 9 && !decodes_by("unchained");
    c->blas_decodes = decodes_by("blas");
    c->multiprocessors = p.multiProcessorCount;
    c->shared_per_block = p.sharedMemPerBlockOptin;
    snprintf(name, CUDA_NAME_MAX, "%.*s", CUDA_NAME_MAX - 1, p.name);
    memcpy(c->name, name, sizeof c->name);
    return ALIBI_OK;
}

static alibi_status open_queues(struct context *c)
{
    cublasStatus_t error;

    TRY_RETURN(cuda_check(cudaSetDevice(c->index), "selecting it"));
    TRY_RETURN(cuda_check(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                          "creating a stream"));
    TRY_RETURN(cuda_check(cudaEventCreateWithFlags(&c->joined, cudaEventDisableTiming),
                          "creating an event"));
    error = cublasLtCreate(&c->blas);
    if (error != CUBLAS_STATUS_SUCCESS)
        return fail(ALIBI_DEVICE, "cuBLASLt cannot start: %s", cublasLtGetStatusName(error));
    TRY_RETURN(cuda_new(c, &c->workspace, BLAS_WORKSPACE, "the workspace of cuBLASLt"));
    c->workspace_bytes = BLAS_WORKSPACE;
    for (int half = 0; half < 2; half++) {
        TRY_RETURN(cuda_check(cudaMallocHost((void **)&c->staging.at[half], HALF_BYTES),
                              "allocating page-locked host memory"));
        TRY_RETURN(
            cuda_check(cudaEventCreateWithFlags(&c->staging.done[half], cudaEventDisableTiming),
                       "creating an event"));
    }
    return ALIBI_OK;
}

/* Also closes a device whose opening failed half-way. */
static void close_state(struct context *c)
{
    if (c->stream != NULL)
        cudaStreamSynchronize(c->stream);
    cuda_parts_free(c);
    cuda_plans_free(c);
    free(c->choices.list);
    cuda_replays_free(c);
    for (size_t i = 0; i < c->buffer_count; i++)
        cudaFree(c->buffers[i].at);
    free(c->buffers);
    for (int place = 0; place < SCRATCH_PLACES; place++)
        cudaFree(c->scratch[place].at);
    for (int half = 0; half < 2; half++) {
        if (c->staging.done[half] != NULL)
            cudaEventDestroy(c->staging.done[half]);
        cudaFreeHost(c->staging.at[half]);
    }
    if (c->side != NULL) {
        cudaStreamSynchronize(c->side);
        cudaStreamDestroy(c->side);
    }
    for (int mark = 0; mark < DEVICE_MARKS; mark++)
        if (c->marks[mark] != NULL)
            cudaEventDestroy(c->marks[mark]);
    if (c->joined != NULL)
        cudaEventDestroy(c->joined);
    cudaFree(c->workspace);
    if (c->blas != NULL)
        cublasLtDestroy(c->blas);
    if (c->stream != NULL)
        cudaStreamDestroy(c->stream);
    forget_error();
    free(c);
}

/* Keys from which attention with slopes skips, by lists. At 4096 a forward and a backward pass
 * together gain a fifth; at 1024 deciding costs more than it saves. */
enum { LISTS_FROM = 2048 };

/* ALIBI_LISTS_FROM of the environment: another number, for measurements and tests; 0: never. */
static int64_t lists_from(void)
{
    const char *text = getenv("ALIBI_LISTS_FROM");
    long long keys = text ? atoll(text) : LISTS_FROM;

    return keys > 0 ? keys : 0;
}

int alibi_cuda_open(struct device *out, char name[CUDA_NAME_MAX], int64_t gpu,
                    const struct cuda_host *host)
{
    alibi_status status;
    struct context *c = NULL;

    host_of_thread = host;
    if (host->version != CUDA_INTERFACE)
        return fail(ALIBI_DEVICE,
                    "libalibi_cuda.so is of another version: it has interface %d, %d is needed",
                    CUDA_INTERFACE, host->version);
    TRY(check_driver());
    TRY(check_visible(gpu));
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return fail(ALIBI_MEMORY, "no memory for the state of a GPU");
    c->host = host;
    c->index = (int)gpu;
    c->autotune = (struct autotune){ .after = AUTOTUNE_AFTER, .flops = AUTOTUNE_FLOPS };
    c->lists_from = lists_from();
    TRY(read_properties(c, name));
    TRY(open_queues(c));
    *out = (struct device){ .ops = &cuda_ops, .state = c };
    c = NULL;
out:
    if (c != NULL)
        close_state(c);
    return status;
}

void alibi_cuda_close(struct device *dev)
{
    close_state(cuda_of(dev));
}

void alibi_cuda_autotune(struct device *dev, int after, double flops, int *tuned)
{
    struct context *c = cuda_of(dev);

    if (after >= 0) {
        c->autotune.after = after;
        c->autotune.flops = flops;
    }
    *tuned = c->autotune.tuned;
}

/* ---- the table of operations: contracts in ops.h */

const struct ops cuda_ops = {
    .name = "cuda",
    .traits = { .logits = 1 << 29,
                .wave = 132, /* an H100's or H200's: results depend on it, so not the GPU's own */
                .row_multiple = 128,
                .batch_tokens = 32768,
                .prefill_tokens = 4096,
                .decode_rows = DECODE_ROWS,
                .warm_up_steps = 8, /* the autotuner tries products within these */
                .timed_calls = 10,
                .times_parts = true,
                .own_memory = true },
    .finish = cuda_finish,
    .caller_begins = cuda_caller_begins,
    .caller_ends = cuda_caller_ends,
    .link = cuda_link,
    .caller_mark = cuda_caller_mark,
    .caller_done = cuda_caller_done,
    .memory = cuda_memory,
    .reset_peak = cuda_reset_peak,
    .workspace = cuda_workspace,
    .read_parts = cuda_read_parts,
    .address = cuda_address,
    .tune = cuda_tune,
    .get_choices = cuda_get_choices,
    .set_choices = cuda_set_choices,
    .replay = cuda_replay,
    .replay_end = cuda_replay_end,
    .buffer_new = cuda_buffer_new,
    .buffer_free = cuda_buffer_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .fill = cuda_fill,
    .copy = cuda_copy,
    .embedding_forward = cuda_embedding_forward,
    .embedding_backward = cuda_embedding_backward,
    .linear_forward = cuda_linear_forward,
    .linear_backward = cuda_linear_backward,
    .linear_activation_forward = cuda_linear_activation_forward,
    .linear_activation_backward = cuda_linear_activation_backward,
    .norm_forward = cuda_norm_forward,
    .norm_backward = cuda_norm_backward,
    .activation_forward = cuda_activation_forward,
    .activation_backward = cuda_activation_backward,
    .residual_forward = cuda_residual_forward,
    .dropout = cuda_dropout,
    .attention_forward = cuda_attention_forward,
    .attention_backward = cuda_attention_backward,
    .attention_workspace = cuda_attention_workspace,
    .attention_norms = cuda_attention_norms,
    .cache_append = cuda_cache_append,
    .rotary = cuda_rotary,
    .logn_forward = cuda_logn_forward,
    .logn_backward = cuda_logn_backward,
    .head_norm_forward = cuda_head_norm_forward,
    .head_norm_backward = cuda_head_norm_backward,
    .gate_forward = cuda_gate_forward,
    .gate_backward = cuda_gate_backward,
    .sinks_forward = cuda_sinks_forward,
    .sinks_backward = cuda_sinks_backward,
    .bucket_forward = cuda_bucket_forward,
    .bucket_backward = cuda_bucket_backward,
    .curve_forward = cuda_curve_forward,
    .curve_backward = cuda_curve_backward,
    .cross_entropy = cuda_cross_entropy,
    .log_softmax = cuda_log_softmax,
    .adamw = cuda_adamw,
    .nesterov = cuda_nesterov,
    .sum_squares = cuda_sum_squares,
    .sum = cuda_sum,
};
