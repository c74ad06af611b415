/* backend.h - the interface between the library and a backend in a shared library of its own
 *
 * lib/ops/device.c loads libalibi_cuda.so and calls its two symbols. The backend calls back through
 * struct cuda_host only. Nothing here needs CUDA. */
#ifndef BACKEND_H
#define BACKEND_H

#include "ops/ops.h"

/* Version of this header and ops.h. A library of another version is refused. */
enum { CUDA_INTERFACE = 28 };
enum { CUDA_NAME_MAX = sizeof(((struct alibi_device_info *)0)->name) };

struct cuda_host {
    int version;
    void (*fail)(int status, const char *message); /* records the message, as fail() does */
};

/* Opens GPU number `gpu` of those that are visible (CUDA_VISIBLE_DEVICES), with a state of its own:
 * stream, workspace, cuBLASLt handle, autotune cache, buffers. The same GPU may be opened several
 * times. Returns an alibi_status; ALIBI_DEVICE comes with one line that says why the GPU cannot be
 * used. `host` must outlive the device.
 *
 * Operations on one device must not overlap. Different devices are independent, and any thread may
 * call any of them. */
#define CUDA_OPEN_SYMBOL "alibi_cuda_open"
typedef int cuda_open_function(struct device *out, char name[CUDA_NAME_MAX], int64_t gpu,
                               const struct cuda_host *host);

/* Waits for the device's work and frees everything it holds, buffers that were not freed too. */
#define CUDA_CLOSE_SYMBOL "alibi_cuda_close"
typedef void cuda_close_function(struct device *dev);

#endif
