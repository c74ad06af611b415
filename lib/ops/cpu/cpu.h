/* cpu.h - the fast CPU backend
 *
 * linear.c goes through CBLAS; the kernels in simd/ are compiled once per instruction set;
 * dispatch.c joins them into a table. */
#ifndef CPU_H
#define CPU_H

#include "ops/ops.h"
#include "ops/ref/ref.h"

/* The instruction sets that this machine can run, widest first: "avx512", "avx2", "plain"; NULL
 * past the end. */
const char *cpu_set_name(int index);

/* The table of operations with the kernels of that set. False, and *out untouched, if this machine
 * cannot run it. */
bool cpu_ops_for_set(struct ops *out, const char *name);

/* simd/table.c, once per set */
void cpu_override_plain(struct ops *ops);
void cpu_override_avx2(struct ops *ops);
void cpu_override_avx512(struct ops *ops);

/* linear.c */
linear_fn cpu_linear_forward, cpu_linear_backward;
linear_activation_fn cpu_linear_activation_backward;
/* sums[n] += sum over rows of dy[r, n], dy [rows, out]. */
void cpu_add_column_sums(float *sums, const float *dy, int64_t rows, int64_t out);

/* Fewer elementary steps than this are not worth waking other threads for. */
enum { CPU_PARALLEL_MIN = 1 << 15 };

/* blas.c: the kernels of OpenBLAS. The first function gives the name of better ones than those that
 * it chose by itself, on a machine with that vector set, or NULL: its choice is right. The second
 * makes OpenBLAS use others. The third does what the first says, unless the user chose. */
const char *blas_better_kernels(const char *chosen, const char *vector_set);
void blas_use_kernels(const char *name);
void blas_choose_kernels(void);

#endif
