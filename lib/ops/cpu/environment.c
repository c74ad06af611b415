/* environment.c - settings that the libraries below us read from the environment, before main()
 * begins
 *
 * OpenMP's idle threads spin unless told otherwise. On a machine that does anything else beside us
 * that makes training several times slower, and on an idle one it gains nothing.
 *
 * OpenBLAS picks its kernels by the model of the CPU. One that is newer than the library (Debian
 * 12's is of 2022) gets those of a Pentium 4, which a vector unit of today outruns six times; so
 * the choice is made by what the CPU can do. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cpu/cpu.h"

const char *blas_kernels_for(const char *chosen, const char *vector_set)
{
    if (strcmp(chosen, "Prescott") != 0)
        return NULL;
    if (strcmp(vector_set, "avx512") == 0)
        return "SkylakeX";
    return strcmp(vector_set, "avx2") == 0 ? "Haswell" : NULL;
}

/* True if the variable was not set and now is. */
static bool set_if_unset(const char *name, const char *value)
{
    return value && !getenv(name) && setenv(name, value, 1) == 0;
}

bool alibi_set_environment(void)
{
    bool waiting = !getenv("GOMP_SPINCOUNT") && set_if_unset("OMP_WAIT_POLICY", "passive");
    bool kernels = set_if_unset("OPENBLAS_CORETYPE",
                                blas_kernels_for(openblas_get_corename(), cpu_set_name(0)));

    return waiting || kernels;
}
