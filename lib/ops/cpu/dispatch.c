/* dispatch.c - the table of operations for the vector unit found at run time */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cpu/cpu.h"

static bool always(void)
{
    return true;
}

#if defined __x86_64__
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

/* Widest first. The conditions name every feature that CMakeLists.txt lets the compiler use. */
static const struct set {
    const char *name;
    bool (*supported)(void);
    void (*override)(struct ops *ops);
} sets[] = {
#if defined __x86_64__
    { "avx512", has_avx512, cpu_override_avx512 },
    { "avx2", has_avx2, cpu_override_avx2 },
#endif
    { "plain", always, cpu_override_plain },
};

enum { SETS = sizeof sets / sizeof sets[0] };

const char *cpu_set_name(int index)
{
    for (int s = 0; s < SETS; s++)
        if (sets[s].supported() && index-- == 0)
            return sets[s].name;
    return NULL;
}

bool cpu_ops_for_set(struct ops *out, const char *name)
{
    for (int s = 0; s < SETS; s++)
        if (strcmp(sets[s].name, name) == 0 && sets[s].supported()) {
            *out = ops_ref;
            out->name = "cpu";
            out->linear_backward = cpu_linear_backward;
            out->linear_activation_backward = cpu_linear_activation_backward;
            sets[s].override(out);
            return true;
        }
    return false;
}

static struct ops chosen;

/* ALIBI_SIMD may name a lower set; alibi_device_open warns of one that is not there. */
static void choose(void)
{
    const char *wanted = getenv("ALIBI_SIMD");

    blas_choose_kernels();
    if (wanted && *wanted && cpu_ops_for_set(&chosen, wanted))
        return;
    cpu_ops_for_set(&chosen, cpu_set_name(0));
}

const struct ops *ops_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    threads_sleep_when_idle();
    pthread_once(&once, choose);
    return &chosen;
}

bool cpu_set_is_missing(const char *name)
{
    struct ops ops;

    return name != NULL && *name != '\0' && !cpu_ops_for_set(&ops, name);
}
