/* device.c - opening the device that models run on
 *
 * The CPU is always there. A GPU is driven by libalibi_cuda.so, which is loaded when a GPU is first
 * wanted and then stays loaded: the library itself needs nothing of CUDA. Every open device has a
 * state of its own. Whatever is missing (the shared library, something it needs, a driver, a GPU)
 * is one line that says so. */
#include <dlfcn.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "ops/backend.h"

#define CUDA_LIBRARY "libalibi_cuda.so"

static const struct alibi_option options[] = {
    { .name = "device",
      .type = ALIBI_OPTION_CHOICE,
      .offset = offsetof(struct alibi_compute, device),
      .choices = "auto|cpu|cuda",
      .initial = "auto",
      .value = "NAME",
      .help = "where to run; auto: an NVIDIA GPU if one can be used" },
    { .name = "gpu",
      .type = ALIBI_OPTION_INT,
      .offset = offsetof(struct alibi_compute, gpu),
      .max = 1023,
      .initial = "0",
      .value = "N",
      .help = "which GPU of several, from 0" },
    { .name = "precision",
      .type = ALIBI_OPTION_CHOICE,
      .offset = offsetof(struct alibi_compute, precision),
      .choices = "auto|fp32|bf16",
      .initial = "auto",
      .value = "NAME",
      .help = "numbers of activations and products; auto: bf16 on a GPU, fp32 on the CPU" },
    { .name = "autotune",
      .type = ALIBI_OPTION_CHOICE,
      .offset = offsetof(struct alibi_compute, autotune),
      .choices = "same-bits|wide",
      .initial = "same-bits",
      .value = "NAME",
      .help = "training on a GPU: same-bits: of the algorithms for a product that give the same "
              "results the fastest; wide: the fastest of all, which checkpoints keep and another "
              "run may choose differently" },
};
enum { OPTIONS = sizeof options / sizeof options[0] };

const struct alibi_option *alibi_compute_options(int *count)
{
    *count = OPTIONS;
    return options;
}

/* ---- opening */

/* The backend's library stays loaded even if nobody has a device open, because the CUDA runtime
 * does not survive being unloaded. */
static alibi_status open_gpu(alibi_device *d, const struct alibi_compute *compute)
{
    static const struct cuda_host host = { CUDA_INTERFACE, module_fail };
    cuda_open_function *open = NULL;
    cuda_close_function *close = NULL;
    pthread_mutexattr_t recursive;
    void *library;

    TRY_RETURN(module_load(&library, CUDA_LIBRARY, false, "nvcc"));
    TRY_RETURN(module_symbol(&open, library, CUDA_LIBRARY, CUDA_OPEN_SYMBOL));
    TRY_RETURN(module_symbol(&close, library, CUDA_LIBRARY, CUDA_CLOSE_SYMBOL));
    TRY_RETURN((alibi_status)open(&d->device, d->name, compute->gpu, &host));
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&d->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    d->device.lock = &d->lock;
    d->close = close;
    d->gpu = true;
    d->type = compute->precision == ALIBI_FP32 ? DTYPE_F32 : DTYPE_BF16;
    return ALIBI_OK;
}

/* Whether the machine has NVIDIA's driver. Without one nobody expects a GPU to be used. */
static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

    return driver != NULL && dlclose(driver) == 0;
}

static alibi_status open_any(alibi_device *d, const struct alibi_compute *compute,
                             const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;

    if (compute->device != ALIBI_DEVICE_CPU)
        status = open_gpu(d, compute);
    if (d->gpu)
        return ALIBI_OK;
    if (compute->device == ALIBI_DEVICE_CUDA)
        return fail_context(status, "device cuda");
    if (compute->precision == ALIBI_BF16)
        return status == ALIBI_OK ? fail(ALIBI_USAGE, "precision bf16 needs a GPU")
                                  : fail_context(ALIBI_USAGE, "precision bf16 needs a GPU");
    if (status != ALIBI_OK && has_driver())
        call_note(call, "no GPU is used (%s): running on the CPU", alibi_error());
    d->device.ops = ops_cpu();
    if (cpu_set_is_missing(getenv("ALIBI_SIMD")))
        call_warn(call, "ALIBI_SIMD is '%s', which this machine does not have: the widest is used",
                  getenv("ALIBI_SIMD"));
    memcpy(d->name, "cpu", sizeof "cpu");
    return ALIBI_OK;
}

alibi_status alibi_device_open(alibi_device **out, const struct alibi_compute *compute,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_compute copy = *compute;
    struct alibi_option_group group = { "compute", options, OPTIONS, &copy };
    alibi_device *d = NULL;

    TRY(options_check(&group, 1));
    TRY(NEW_ZERO_ARRAY(&d, 1, "a device"));
    TRY(open_any(d, compute, call));
    d->device.autotune = compute->autotune;
    *out = d;
    d = NULL;
out:
    mem_free(d);
    return status;
}

void alibi_device_free(alibi_device *device)
{
    if (!device)
        return;
    if (device->gpu) {
        device->close(&device->device);
        pthread_mutex_destroy(&device->lock);
    }
    mem_free(device);
}

/* The processor's own name for itself, without the blanks that pad it, and the threads in use. Not
 * from /proc/cpuinfo: naming a machine must not be able to fail. */
static void name_processor(char name[ALIBI_DEVICE_NAME_MAX])
{
    char brand[49] = "";
    const char *start = brand;
    int length;

#ifdef __x86_64__
    unsigned int words[12];
    bool known = true;

    for (unsigned int i = 0; i < 3; i++)
        known &= __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                             &words[4 * i + 3]) != 0;
    if (known)
        memcpy(brand, words, sizeof words);
    line_clean(brand);
#endif
    start += strspn(start, " ");
    length = (int)strlen(start);
    while (length > 0 && start[length - 1] == ' ')
        length--;
    if (length == 0) {
        start = "CPU";
        length = 3;
    }
    snprintf(name, ALIBI_DEVICE_NAME_MAX, "%.*s, %d thread%s", length, start, omp_get_max_threads(),
             omp_get_max_threads() == 1 ? "" : "s");
}

void alibi_device_get_info(const alibi_device *device, struct alibi_device_info *info)
{
    struct device d = device->device;
    struct device_memory memory;

    device_memory(&d, &memory);
    *info = (struct alibi_device_info){
        .gpu = device->gpu,
        .total_bytes = memory.total,
        .free_bytes = memory.free,
        .precision = device->type == DTYPE_BF16 ? ALIBI_BF16 : ALIBI_FP32,
    };
    memcpy(info->name, device->name, sizeof info->name);
    if (device->gpu)
        memcpy(info->machine, device->name, sizeof info->machine);
    else
        name_processor(info->machine);
}

const char *alibi_precision_name(int precision)
{
    static const char *const names[] = {
        [ALIBI_FP32] = "fp32", [ALIBI_BF16] = "bf16", [ALIBI_FP16] = "fp16", [ALIBI_Q8_0] = "q8_0"
    };

    return precision > ALIBI_FP32 && precision <= ALIBI_Q8_0 ? names[precision] : "fp32";
}

/* ---- what rooms above ask of a device */

void device_lock(struct device *dev)
{
    if (dev->lock)
        pthread_mutex_lock(dev->lock);
}

void device_unlock(struct device *dev)
{
    if (dev->lock)
        pthread_mutex_unlock(dev->lock);
}

void device_memory(struct device *dev, struct device_memory *memory)
{
    device_lock(dev);
    dev->ops->memory(dev, memory);
    device_unlock(dev);
}

size_t device_peak(struct device *dev)
{
    struct device_memory memory;

    device_memory(dev, &memory);
    return memory.peak;
}

void device_reset_peak(struct device *dev)
{
    device_lock(dev);
    dev->ops->reset_peak(dev);
    device_unlock(dev);
}

void device_tune(struct device *dev, enum tuning how)
{
    if (!dev->ops->tune)
        return;
    device_lock(dev);
    dev->ops->tune(dev, how);
    device_unlock(dev);
}

bool device_tunes_widely(const struct device *dev)
{
    return dev->ops->tune && dev->autotune == ALIBI_AUTOTUNE_WIDE;
}

void device_get_choices(struct device *dev, struct choices *out)
{
    *out = (struct choices){ .count = 0 };
    if (!dev->ops->tune)
        return;
    device_lock(dev);
    dev->ops->get_choices(dev, out);
    device_unlock(dev);
}

alibi_status device_set_choices(struct device *dev, const struct choices *given)
{
    alibi_status status;

    if (!dev->ops->tune)
        return ALIBI_OK;
    device_lock(dev);
    status = dev->ops->set_choices(dev, given);
    device_unlock(dev);
    return status;
}
