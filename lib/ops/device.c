/* device.c - which device work runs on
 *
 * The CPU is always there. A GPU is reached through libalibi_cuda.so, which is loaded when a GPU is
 * first wanted and then stays: the library itself needs nothing of CUDA. Whatever is missing on the
 * way (the library, what that needs, a driver, a GPU) is one line that says so. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

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
    { .name = "precision",
      .type = ALIBI_OPTION_CHOICE,
      .offset = offsetof(struct alibi_compute, precision),
      .choices = "auto|fp32|bf16",
      .initial = "auto",
      .value = "NAME",
      .help = "numbers of activations and products; auto: bf16 on a GPU, fp32 on the CPU" },
};
enum { OPTIONS = sizeof options / sizeof options[0] };

const struct alibi_option *alibi_compute_options(int *count)
{
    *count = OPTIONS;
    return options;
}

/* ---- the GPU: opened once */

static struct {
    struct device device;     /* ops NULL: not opened */
    char name[CUDA_NAME_MAX]; /* "NVIDIA H200" */
} gpu;

static bool use_gpu;
static enum dtype type = DTYPE_F32;

static void record_failure(int status, const char *message)
{
    fail((alibi_status)status, "%s", message);
}

/* The folder of the file that this code is in: the program, or libalibi.so. The linker knows a
 * program by argv[0], which need not be a path; the kernel knows better. */
static bool own_folder(char folder[PATH_MAX])
{
    Dl_info info;
    struct link_map *map = NULL;
    char *slash;

    if (dladdr1(options, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return false;
    if (realpath(map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe", folder) == NULL)
        return false;
    slash = strrchr(folder, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

/* The library beside us (a build folder), or where an installed program finds it; by its name alone
 * if it is in none of them. */
static void find_library(char path[PATH_MAX])
{
    static const char *const places[] = { "", "/../lib", "/../lib/x86_64-linux-gnu" };
    char folder[PATH_MAX];

    if (own_folder(folder))
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
            if (snprintf(path, PATH_MAX, "%s%s/%s", folder, places[i], CUDA_LIBRARY) < PATH_MAX &&
                file_exists(path))
                return;
    memcpy(path, CUDA_LIBRARY, sizeof CUDA_LIBRARY);
}

/* The loader's words say "NAME: cannot open shared object file: ..." of our library and of what
 * that needs alike. */
static alibi_status loading_failed(const char *words)
{
    const char *missing = words != NULL ? strstr(words, ": cannot open shared object file") : NULL;
    int length = missing != NULL ? (int)(missing - words) : 0;

    if (words == NULL)
        return fail(ALIBI_DEVICE, "%s cannot be loaded", CUDA_LIBRARY);
    if (missing == NULL)
        return fail(ALIBI_DEVICE, "%s cannot be loaded: %s", CUDA_LIBRARY, words);
    if (memmem(words, (size_t)length, CUDA_LIBRARY, strlen(CUDA_LIBRARY)) != NULL)
        return fail(ALIBI_DEVICE, "%s, which is built where nvcc is, is not installed",
                    CUDA_LIBRARY);
    return fail(ALIBI_DEVICE, "%s needs %.*s, which is not installed", CUDA_LIBRARY, length, words);
}

static alibi_status load_library(cuda_open_function **open)
{
    char path[PATH_MAX];
    void *library;
    void *symbol;

    find_library(path);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return loading_failed(dlerror());
    symbol = dlsym(library, CUDA_OPEN_SYMBOL);
    if (symbol == NULL)
        return fail(ALIBI_DEVICE, "%s has no '%s'", path, CUDA_OPEN_SYMBOL);
    memcpy(open, &symbol, sizeof symbol);
    return ALIBI_OK;
}

static alibi_status open_gpu(void)
{
    static const struct cuda_host host = { CUDA_INTERFACE, record_failure };
    cuda_open_function *open = NULL;

    if (gpu.device.ops != NULL)
        return ALIBI_OK;
    TRY_RETURN(load_library(&open));
    return (alibi_status)open(&gpu.device, gpu.name, 0, &host);
}

/* ---- the choice */

static alibi_status choose_cpu(const struct alibi_compute *compute)
{
    if (compute->precision == ALIBI_BF16)
        return fail(ALIBI_USAGE, "precision bf16 needs a GPU");
    use_gpu = false;
    type = DTYPE_F32;
    return ALIBI_OK;
}

static void choose_gpu(const struct alibi_compute *compute)
{
    use_gpu = true;
    type = compute->precision == ALIBI_FP32 ? DTYPE_F32 : DTYPE_BF16;
}

alibi_status alibi_use_device(const struct alibi_compute *compute)
{
    struct alibi_compute copy = *compute;
    struct alibi_option_group group = { "compute", options, OPTIONS, &copy };
    alibi_status status;

    TRY_RETURN(options_check(&group, 1));
    if (compute->device == ALIBI_DEVICE_CPU)
        return choose_cpu(compute);
    status = open_gpu();
    if (status == ALIBI_OK) {
        choose_gpu(compute);
        return ALIBI_OK;
    }
    if (compute->device == ALIBI_DEVICE_CUDA)
        return fail_context(status, "device cuda");
    if (compute->precision == ALIBI_BF16)
        return fail_context(ALIBI_USAGE, "precision bf16 needs a GPU");
    log_note("no GPU is used (%s): running on the CPU", alibi_error());
    return choose_cpu(compute);
}

struct device device_default(void)
{
    return use_gpu ? gpu.device : (struct device){ .ops = ops_cpu(), .logits = CPU_LOGITS };
}

enum dtype device_default_type(void)
{
    return type;
}

void alibi_device_get_info(struct alibi_device_info *info)
{
    struct device_memory memory = { 0 };

    *info = (struct alibi_device_info){ .name = "cpu",
                                        .gpu = use_gpu,
                                        .precision = type == DTYPE_BF16 ? ALIBI_BF16 : ALIBI_FP32 };
    if (!use_gpu)
        return;
    gpu.device.ops->memory(&gpu.device, &memory);
    memcpy(info->name, gpu.name, sizeof info->name);
    info->total_bytes = memory.total;
    info->free_bytes = memory.free;
}

const char *alibi_precision_name(int precision)
{
    return precision == ALIBI_BF16 ? "bf16" : "fp32";
}
