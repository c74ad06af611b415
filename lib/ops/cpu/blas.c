/* blas.c - which kernels OpenBLAS uses
 *
 * OpenBLAS picks its kernels by the model of the CPU. A CPU that is newer than the library (Debian
 * 12's is of 2022) gets those of a Pentium 4, which a vector unit of today outruns six times; so
 * the choice is made by what the CPU can do. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cpu/cpu.h"

/* OpenBLAS calls these when it is loaded and unloaded. A build for one kind of CPU has none. */
extern void gotoblas_dynamic_init(void) __attribute__((weak));
extern void gotoblas_dynamic_quit(void) __attribute__((weak));

const char *blas_better_kernels(const char *chosen, const char *vector_set)
{
    if (strcmp(chosen, "Prescott") != 0)
        return NULL;
    if (strcmp(vector_set, "avx512") == 0)
        return "SkylakeX";
    return strcmp(vector_set, "avx2") == 0 ? "Haswell" : NULL;
}

void blas_use_kernels(const char *name)
{
    if (!gotoblas_dynamic_init || !gotoblas_dynamic_quit ||
        setenv("OPENBLAS_CORETYPE", name, 1) != 0)
        return;
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv("OPENBLAS_CORETYPE");
}

void blas_choose_kernels(void)
{
    const char *better = blas_better_kernels(openblas_get_corename(), cpu_set_name(0));

    if (better && !getenv("OPENBLAS_CORETYPE"))
        blas_use_kernels(better);
}
