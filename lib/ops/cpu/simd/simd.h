/* simd.h - the kernels that are compiled once per instruction set
 *
 * Every file of this folder is compiled with SIMD_NAME (plain, avx2, avx512) and SIMD_WIDTH (floats
 * in a vector), and what it exports carries that name: SIMD(fill) is cpu_fill_avx2. Contracts are
 * those of ops.h; other types than F32 go to the reference.
 *
 * Work is cut into pieces that depend on shapes only, never on the number of threads, so every
 * result has the same bits on any number of them. */
#ifndef SIMD_H
#define SIMD_H

#include "ops/cpu/cpu.h"
#include "ops/ops.h"

#define SIMD_JOIN(name, set) cpu_##name##_##set
#define SIMD_NAMED(name, set) SIMD_JOIN(name, set)
#define SIMD(name) SIMD_NAMED(name, SIMD_NAME)

/* One file per operation. */
fill_fn SIMD(fill);
copy_fn SIMD(copy);
cache_append_fn SIMD(cache_append);
embedding_fn SIMD(embedding_forward), SIMD(embedding_backward);
linear_fn SIMD(linear_forward);
norm_fn SIMD(norm_forward), SIMD(norm_backward);
activation_forward_fn SIMD(activation_forward);
activation_backward_fn SIMD(activation_backward);
residual_fn SIMD(residual_forward);
dropout_fn SIMD(dropout);
rotary_fn SIMD(rotary);
logn_fn SIMD(logn_forward), SIMD(logn_backward);
head_norm_fn SIMD(head_norm_forward), SIMD(head_norm_backward);
gate_fn SIMD(gate_forward), SIMD(gate_backward);
attention_fn SIMD(attention_forward), SIMD(attention_backward);
attention_norms_fn SIMD(attention_norms);
sinks_fn SIMD(sinks_forward), SIMD(sinks_backward);
cross_entropy_fn SIMD(cross_entropy);
log_softmax_fn SIMD(log_softmax);
adamw_fn SIMD(adamw);
nesterov_fn SIMD(nesterov);
sum_fn SIMD(sum), SIMD(sum_squares);

/* Elements first..first + n - 1 of y = x + dropout(branch), on the calling thread; y may be x
 * (residual.c, for norm.c). */
void SIMD(residual_range)(float *y, const float *x, const float *branch, struct dropout drop,
                          int64_t first, int64_t n);

/* The D numbers of head h at row l of a view [B, L, H, D]. */
static inline float *head_of(struct tensor t, int64_t b, int64_t l, int64_t h)
{
    return (float *)t.data + b * t.stride[0] + l * t.stride[1] + h * t.stride[2];
}

/* The position of row b, l of a call whose rows begin at `start` or are ragged. */
static inline int64_t position_of(struct ragged ragged, int64_t start, int64_t b, int64_t l)
{
    return ragged_present(ragged) ? ((const int32_t *)ragged.length.data)[b] - 1 : start + l;
}

#endif
