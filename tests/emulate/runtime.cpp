// runtime.cpp - the CUDA runtime and cuBLASLt of the emulated GPU
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>
#include <cuda_bf16.h>

#include "emulate.h"

// ---- the runtime

static const size_t memory_total = (size_t)4 << 30;
static cudaError_t last_error;

static cudaError_t note(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    if (error == cudaErrorLaunchFailure && emulate::why_broken())
        return emulate::why_broken();
    return error == cudaErrorInvalidConfiguration ? "invalid configuration argument"
           : error == cudaErrorMemoryAllocation   ? "out of memory"
           : error == cudaErrorNotSupported       ? "operation not supported"
                                                  : "unknown error";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    const bool hopper = getenv("ALIBI_EMULATE_HOPPER") != NULL;

    *p = { "emulated GPU", hopper ? 9 : 8, 0, 4, emulate::shared_limit() };
    return cudaSuccess;
}

// On no bus.
cudaError_t cudaDeviceGetPCIBusId(char *, int, int)
{
    return note(cudaErrorNotSupported);
}

cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}

// Memory that nobody has written is NaN in every type: its first 4 MiB, more would take time.
cudaError_t cudaMalloc(void **at, size_t bytes)
{
    const size_t worth_filling = 4 << 20;

    if (bytes > memory_total || posix_memalign(at, 256, bytes) != 0)
        return note(cudaErrorMemoryAllocation);
    memset(*at, 0xff, bytes < worth_filling ? bytes : worth_filling);
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    free(at);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **at, size_t bytes)
{
    return cudaMalloc(at, bytes);
}

cudaError_t cudaFreeHost(void *at)
{
    return cudaFree(at);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = memory_total;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t)
{
    memset(to, byte, bytes);
    return cudaSuccess;
}

// Streams and events are dummy handles.
static char a_handle;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = (cudaStream_t)&a_handle;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return note(emulate::why_broken() ? cudaErrorLaunchFailure : cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = (cudaEvent_t)&a_handle;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}

// Work is done when it is launched.
cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaStreamSynchronize(NULL);
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

// All that is ever timed is a product: what its algorithm is said to take.
static float last_product = 1.0f;

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t, cudaEvent_t)
{
    *milliseconds = last_product;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, enum cudaStreamCaptureMode)
{
    return note(cudaErrorNotSupported);
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *)
{
    return note(cudaErrorNotSupported);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long)
{
    return note(cudaErrorNotSupported);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t)
{
    return note(cudaErrorNotSupported);
}

cudaError_t cudaGraphDestroy(cudaGraph_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t)
{
    return cudaSuccess;
}

// ---- cuBLASLt

// algo.data[0], each faster than the one before. Attribute n of an algorithm is data[n].
enum { FIRST, SAME_BITS, OTHER_ORDER, ALGORITHMS };
enum { SPLITS = 4 };

struct cublasLtDesc {
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_leading;
};

// A matrix by columns.
struct cublasLtLayout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading;
};

struct cublasLtPreference {
    char nothing;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)&a_handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 1;
}

const char *cublasLtGetStatusName(cublasStatus_t)
{
    return "a failure of the emulated cuBLASLt";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t,
                                        cudaDataType_t)
{
    *out = new cublasLtDesc();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    void *const places[] = { &desc->transpose_a, &desc->transpose_b, &desc->epilogue,
                             &desc->bias,        &desc->aux,         &desc->aux_leading };

    memcpy(places[what], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading)
{
    *out = new cublasLtLayout{ type, rows, columns, leading };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = new cublasLtPreference();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *count)
{
    for (*count = 0; *count < ALGORITHMS && *count < most; ++*count) {
        found[*count] = {};
        found[*count].algo.data[0] = (uint64_t)*count;
        found[*count].algo.data[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    const void *value, size_t bytes)
{
    memcpy(&algo->data[what], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    result->workspaceSize = 0;
    return algo->data[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] <= SPLITS ? CUBLAS_STATUS_SUCCESS
                                                                 : CUBLAS_STATUS_NOT_SUPPORTED;
}

static inline float read(const void *matrix, cudaDataType_t type, int64_t place)
{
    return type == CUDA_R_16BF ? __bfloat162float(((const __nv_bfloat16 *)matrix)[place])
                               : ((const float *)matrix)[place];
}

static void write(void *matrix, cudaDataType_t type, int64_t place, float x)
{
    if (type == CUDA_R_16BF)
        ((__nv_bfloat16 *)matrix)[place] = __float2bfloat16_rn(x);
    else
        ((float *)matrix)[place] = x;
}

static float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

// One number of D: alpha and beta as linear.cu uses them. The sum is of so many parts.
static float sum_of(const cublasLtDesc *desc, const void *a, const cublasLtLayout *la,
                    const void *b, const cublasLtLayout *lb, int64_t row, int64_t column,
                    bool backwards, int64_t parts)
{
    const bool ta = desc->transpose_a == CUBLAS_OP_T, tb = desc->transpose_b == CUBLAS_OP_T;
    const int64_t inner = (int64_t)(ta ? la->rows : la->columns);
    float sum = 0.0f, part = 0.0f;

    for (int64_t i = 0; i < inner; i++) {
        const int64_t k = backwards ? inner - 1 - i : i;
        part += read(a, la->type, ta ? row * la->leading + k : k * la->leading + row) *
                read(b, lb->type, tb ? k * lb->leading + column : column * lb->leading + k);
        if (i == inner - 1 || (i + 1) * parts / inner != i * parts / inner) {
            sum += part;
            part = 0.0f;
        }
    }
    return sum;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algorithm, void *, size_t, cudaStream_t)
{
    const float of_product = *(const float *)alpha, of_c = *(const float *)beta;
    const bool backwards = algorithm->data[0] == OTHER_ORDER;
    const int64_t parts = (int64_t)algorithm->data[CUBLASLT_ALGO_CONFIG_SPLITK_NUM];

    last_product = (float)(ALGORITHMS - algorithm->data[0]) - 0.01f * (float)parts;
    for (int64_t column = 0; column < (int64_t)ld->columns; column++)
        for (int64_t row = 0; row < (int64_t)ld->rows; row++) {
            const int64_t place = column * ld->leading + row;
            float x = of_product * sum_of(desc, a, la, b, lb, row, column, backwards, parts);
            if (of_c != 0.0f)
                x += of_c * read(c, lc->type, column * lc->leading + row);
            if (desc->epilogue & CUBLASLT_EPILOGUE_BIAS)
                x += read(desc->bias, ld->type, row);
            if (desc->epilogue & CUBLASLT_EPILOGUE_GELU_AUX) {
                write(desc->aux, ld->type, column * desc->aux_leading + row, x);
                x = gelu(x);
            }
            write(d, ld->type, place, x);
        }
    return CUBLAS_STATUS_SUCCESS;
}
