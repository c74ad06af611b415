/* backend.h - how the library and a backend in a shared library of its own meet
 *
 * lib/ops/device.c loads libalibi_cuda.so and calls the one symbol it has; the backend calls back
 * through struct cuda_host alone. Nothing here needs CUDA. */
#ifndef BACKEND_H
#define BACKEND_H

#include "ops/ops.h"

enum { CUDA_INTERFACE = 1 }; /* of this header and ops.h: a library of another version is refused */
enum { CUDA_NAME_MAX = sizeof(((struct alibi_device_info *)0)->name) };

struct cuda_host {
    int version;
    void (*fail)(int status, const char *message); /* records the message of fail() */
};

/* alibi_cuda_open: the first GPU that is visible, with its name. Returns an alibi_status;
 * ALIBI_DEVICE comes with one line that says why the GPU cannot be used. */
#define CUDA_OPEN_SYMBOL "alibi_cuda_open"
typedef int cuda_open_function(struct device *out, char name[CUDA_NAME_MAX],
                               const struct cuda_host *host);

#endif
