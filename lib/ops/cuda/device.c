/* device.c - the GPU itself: opening it, its memory, and the ways in and out of it
 *
 * There is one GPU per process (CUDA_VISIBLE_DEVICES chooses among several), opened once and kept.
 * Invariant: `used` is the sum of all device memory that cuda_new gave and cuda_free did not take
 * back; scratch and the products' workspace are in it. */
#include <stdlib.h>
#include <string.h>

#include "ops/bf16.h"
#include "ops/cuda/cuda.h"

enum { HALF_BYTES = STAGING_BYTES / 2 };

struct cuda_buffer {
    void *at;
    size_t bytes;
};

static struct cuda gpu;
static struct cuda_host library;

/* ---- failures */

/* The library's own fail() is behind `library`; here is what the shared headers promise. */
alibi_status fail(alibi_status status, const char *format, ...)
{
    char line[1024] = "";
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    library.fail((int)status, line);
    return status;
}

/* The runtime remembers an error until somebody asks for it, and would blame the next launch. */
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
        return fail(ALIBI_MEMORY, "the GPU has no room for %s", what);
    return fail(ALIBI_DEVICE, "the GPU failed (%s): %s", what, cudaGetErrorString(error));
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
    return fail(ALIBI_MEMORY, "the GPU has no room for %s: %.1f GiB wanted, %.1f GiB of %.1f free",
                what, gib(bytes), gib(free_bytes), gib(total));
}

/* ---- memory */

alibi_status cuda_new(struct cuda *c, void **out, size_t bytes, const char *what)
{
    void *buffer = NULL;
    cudaError_t error =
        cudaMalloc(&buffer, bytes > 0 ? bytes : 1); /* an empty buffer has an address too */

    if (error == cudaErrorMemoryAllocation)
        return no_room(bytes, what);
    TRY_RETURN(cuda_check(error, what));
    c->used += bytes;
    if (c->used > c->peak)
        c->peak = c->used;
    *out = buffer;
    return ALIBI_OK;
}

/* An error of work under way is not lost: the runtime repeats it at the next call that can report
 * it. */
void cuda_free(struct cuda *c, void *buffer, size_t bytes)
{
    if (buffer == NULL)
        return;
    cudaStreamSynchronize(c->stream);
    cudaFree(buffer);
    c->used -= bytes;
}

static alibi_status reserve_buffer(struct cuda *c)
{
    size_t capacity = c->buffer_capacity > 0 ? 2 * c->buffer_capacity : 64;
    struct cuda_buffer *grown;

    if (c->buffer_count < c->buffer_capacity)
        return ALIBI_OK;
    grown = realloc(c->buffers, capacity * sizeof *grown);
    if (grown == NULL)
        return fail(ALIBI_MEMORY, "not enough memory for the list of %zu buffers on the GPU",
                    capacity);
    c->buffers = grown;
    c->buffer_capacity = capacity;
    return ALIBI_OK;
}

alibi_status cuda_buffer_new(struct device *dev, void **out, size_t bytes, const char *what)
{
    struct cuda *c = cuda_of(dev);
    void *buffer = NULL;

    TRY_RETURN(reserve_buffer(c));
    TRY_RETURN(cuda_new(c, &buffer, bytes, what));
    c->buffers[c->buffer_count++] = (struct cuda_buffer){ buffer, bytes };
    *out = buffer;
    return ALIBI_OK;
}

void cuda_buffer_free(struct device *dev, void *buffer)
{
    struct cuda *c = cuda_of(dev);

    for (size_t i = 0; i < c->buffer_count; i++)
        if (c->buffers[i].at == buffer) {
            cuda_free(c, buffer, c->buffers[i].bytes);
            c->buffers[i] = c->buffers[--c->buffer_count];
            return;
        }
}

static alibi_status grow_scratch(struct cuda *c, enum scratch_place place, size_t bytes)
{
    size_t rounded;

    if (!size_add(&rounded, bytes, SCRATCH_GRAIN - 1))
        return no_room(bytes, "scratch memory");
    rounded -= rounded % SCRATCH_GRAIN;
    cuda_free(c, c->scratch[place].at, c->scratch[place].bytes);
    c->scratch[place].at = NULL;
    c->scratch[place].bytes = 0;
    TRY_RETURN(cuda_new(c, &c->scratch[place].at, rounded, "scratch memory"));
    c->scratch[place].bytes = rounded;
    return ALIBI_OK;
}

alibi_status cuda_scratch(struct cuda *c, enum scratch_place place, size_t bytes, void **out)
{
    if (bytes > c->scratch[place].bytes)
        TRY_RETURN(grow_scratch(c, place, bytes));
    *out = c->scratch[place].at;
    return ALIBI_OK;
}

alibi_status cuda_scratch_for(struct cuda *c, enum scratch_place place, const int64_t *factors,
                              int count, void **out)
{
    return cuda_scratch(c, place, cuda_bytes(factors, count), out);
}

/* What this room holds for itself and uses again. */
static size_t held(const struct cuda *c)
{
    size_t bytes = BLAS_WORKSPACE;

    for (int place = 0; place < SCRATCH_PLACES; place++)
        bytes += c->scratch[place].bytes;
    return bytes;
}

/* ---- in and out
 *
 * Through page-locked staging memory in two halves: while the GPU copies one, the host fills or
 * empties the other. What leaves the host has left it when upload returns, though the copy may
 * still be under way. */

/* `count` numbers from `host`, as they lie in a tensor of that type. */
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

/* Elements of piece `k` of a tensor; 0: past its end. */
static size_t piece(struct tensor t, size_t k, size_t *from)
{
    size_t all = (size_t)tensor_count(t), most = HALF_BYTES / dtype_bytes(t.type);

    *from = k * most;
    return *from >= all ? 0 : all - *from < most ? all - *from : most;
}

static alibi_status wait_for_half(struct cuda *c, int half)
{
    return cuda_check(cudaEventSynchronize(c->staging.done[half]), "copying between host and GPU");
}

static alibi_status start_copy(struct cuda *c, int half, void *to, const void *from, size_t bytes)
{
    static const char what[] = "copying between host and GPU";

    TRY_RETURN(cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->stream), what));
    return cuda_check(cudaEventRecord(c->staging.done[half], c->stream), what);
}

alibi_status cuda_upload(struct device *dev, struct tensor dst, const void *host)
{
    struct cuda *c = cuda_of(dev);
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

/* Piece k arrives in half k % 2 while piece k - 1 is taken from the other. */
alibi_status cuda_download(struct device *dev, void *host, struct tensor src)
{
    struct cuda *c = cuda_of(dev);
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
    struct cuda *c = cuda_of(dev);

    cuda_part_end(c);
    return cuda_check(cudaStreamSynchronize(c->stream), "finishing");
}

void cuda_memory(struct device *dev, struct device_memory *memory)
{
    struct cuda *c = cuda_of(dev);

    *memory = (struct device_memory){ .used = c->used, .peak = c->peak };
    if (cudaMemGetInfo(&memory->free, &memory->total) != cudaSuccess)
        forget_error();
    else
        memory->free += held(c);
}

void cuda_reset_peak(struct device *dev)
{
    struct cuda *c = cuda_of(dev);

    c->peak = c->used;
}

/* ---- opening */

/* Within a major version any driver runs what any toolkit made; an older one does not. */
static alibi_status check_driver(void)
{
    int version = 0, needed = CUDART_VERSION / 1000 * 1000;

    TRY_RETURN(cuda_check(cudaDriverGetVersion(&version), "asking the driver's version"));
    if (version == 0)
        return fail(ALIBI_DEVICE, "no NVIDIA driver is loaded");
    if (version < needed)
        return fail(ALIBI_DEVICE, "the driver is too old (it has CUDA %d.%d, %d.%d is needed)",
                    version / 1000, version % 1000 / 10, needed / 1000, needed % 1000 / 10);
    return ALIBI_OK;
}

static alibi_status check_visible(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        forget_error();
        return fail(ALIBI_DEVICE, "no GPU is visible");
    }
    return cuda_check(error, "counting GPUs");
}

static alibi_status read_properties(struct cuda *c, char name[CUDA_NAME_MAX])
{
    struct cudaDeviceProp p;

    TRY_RETURN(cuda_check(cudaGetDeviceProperties(&p, 0), "asking for its properties"));
    if (p.major < 8)
        return fail(ALIBI_DEVICE, "GPU '%s' has compute capability %d.%d, 8.0 is needed", p.name,
                    p.major, p.minor);
    c->major = p.major;
    c->unordered = getenv("ALIBI_UNORDERED") != NULL;
    c->multiprocessors = p.multiProcessorCount;
    c->shared_per_block = p.sharedMemPerBlockOptin;
    snprintf(name, CUDA_NAME_MAX, "%.*s", CUDA_NAME_MAX - 1, p.name);
    return ALIBI_OK;
}

static alibi_status open_blas(struct cuda *c)
{
    cublasStatus_t error = cublasLtCreate(&c->blas);

    if (error != CUBLAS_STATUS_SUCCESS)
        return fail(ALIBI_DEVICE, "cuBLASLt cannot start: %s", cublasLtGetStatusName(error));
    return cuda_new(c, &c->workspace, BLAS_WORKSPACE, "the workspace of products");
}

static alibi_status open_staging(struct cuda *c)
{
    for (int half = 0; half < 2; half++) {
        TRY_RETURN(cuda_check(cudaMallocHost((void **)&c->staging.at[half], HALF_BYTES),
                              "page-locked host memory"));
        TRY_RETURN(cuda_check(
            cudaEventCreateWithFlags(&c->staging.done[half], cudaEventDisableTiming), "an event"));
    }
    return ALIBI_OK;
}

/* Gives back what an opening that failed had got, so that it may be tried again. */
static void close_device(struct cuda *c)
{
    for (int half = 0; half < 2; half++) {
        if (c->staging.done[half] != NULL)
            cudaEventDestroy(c->staging.done[half]);
        cudaFreeHost(c->staging.at[half]);
    }
    cudaFree(c->workspace);
    if (c->blas != NULL)
        cublasLtDestroy(c->blas);
    if (c->stream != NULL)
        cudaStreamDestroy(c->stream);
    forget_error();
    *c = (struct cuda){ 0 };
}

int alibi_cuda_open(struct device *out, char name[CUDA_NAME_MAX], const struct cuda_host *host)
{
    alibi_status status;

    library = *host;
    if (host->version != CUDA_INTERFACE)
        return fail(ALIBI_DEVICE,
                    "libalibi_cuda.so is of another version (it has interface %d, %d is needed)",
                    CUDA_INTERFACE, host->version);
    TRY_RETURN(check_driver());
    TRY_RETURN(check_visible());
    TRY(read_properties(&gpu, name));
    TRY(cuda_check(cudaSetDevice(0), "choosing it"));
    TRY(cuda_check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "a stream"));
    TRY(open_blas(&gpu));
    TRY(open_staging(&gpu));
    *out = (struct device){ .ops = &cuda_ops, .state = &gpu, .logits = GPU_LOGITS };
out:
    if (status != ALIBI_OK)
        close_device(&gpu);
    return status;
}
