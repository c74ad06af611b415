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

/* memory.c */
alibi_status SIMD(fill)(struct device *dev, struct tensor dst, double value);
alibi_status SIMD(copy)(struct device *dev, struct tensor dst, struct tensor src);

/* embedding.c */
alibi_status SIMD(embedding_forward)(struct device *dev, struct tensor y, struct tensor tokens,
                                     struct tensor weight, struct tensor table, int64_t start,
                                     double scale);
alibi_status SIMD(embedding_backward)(struct device *dev, struct tensor dweight,
                                      struct tensor dtable, struct tensor dy, struct tensor tokens,
                                      int64_t start, double scale);

/* norm.c */
alibi_status SIMD(layernorm_forward)(struct device *dev, struct tensor y, struct tensor mean,
                                     struct tensor rstd, struct tensor sum, struct tensor x,
                                     struct tensor branch, struct dropout drop,
                                     struct tensor weight, struct tensor bias, double eps);
alibi_status SIMD(layernorm_backward)(struct device *dev, struct tensor dx, struct tensor dweight,
                                      struct tensor dbias, struct tensor y, struct tensor dy,
                                      struct tensor x, struct tensor weight, struct tensor bias,
                                      struct tensor mean, struct tensor rstd);
alibi_status SIMD(rmsnorm_forward)(struct device *dev, struct tensor y, struct tensor rstd,
                                   struct tensor sum, struct tensor x, struct tensor branch,
                                   struct dropout drop, struct tensor weight, struct tensor bias,
                                   double eps);
alibi_status SIMD(rmsnorm_backward)(struct device *dev, struct tensor dx, struct tensor dweight,
                                    struct tensor dbias, struct tensor y, struct tensor dy,
                                    struct tensor x, struct tensor weight, struct tensor bias,
                                    struct tensor rstd);

/* activation.c */
alibi_status SIMD(activation_forward)(struct device *dev, int kind, struct tensor y,
                                      struct tensor x);
alibi_status SIMD(activation_backward)(struct device *dev, int kind, struct tensor dx,
                                       struct tensor dy, struct tensor x);

/* residual.c */
alibi_status SIMD(residual_forward)(struct device *dev, struct tensor y, struct tensor x,
                                    struct tensor branch, struct dropout drop);
alibi_status SIMD(dropout)(struct device *dev, struct tensor y, struct tensor x,
                           struct dropout drop);
/* Elements first..first + n - 1 of y = x + drop(branch), on the calling thread; y may be x. */
void SIMD(residual_range)(float *y, const float *x, const float *branch, struct dropout drop,
                          int64_t first, int64_t n);

/* skipping.c, attention.c, attention_backward.c */
alibi_status SIMD(attention_norms)(struct device *dev, struct tensor norms, struct tensor k,
                                   int64_t from);
alibi_status SIMD(attention_forward)(struct device *dev, struct tensor y, struct tensor lse,
                                     struct attention a);
alibi_status SIMD(attention_backward)(struct device *dev, struct tensor dq, struct tensor dk,
                                      struct tensor dv, struct tensor dbias, struct tensor dy,
                                      struct tensor y, struct tensor lse, struct attention a);

/* rotary.c */
alibi_status SIMD(rotary)(struct device *dev, struct tensor x, struct rotation r, int direction);

/* cross_entropy.c */
alibi_status SIMD(cross_entropy)(struct device *dev, struct tensor nll, struct tensor dlogits,
                                 struct tensor logits, struct tensor targets, double scale);

/* optimizer.c */
alibi_status SIMD(adamw)(struct device *dev, struct tensor w, struct tensor copy, struct tensor m,
                         struct tensor v, struct tensor gradient, struct adamw a);
alibi_status SIMD(nesterov)(struct device *dev, struct tensor w, struct tensor copy,
                            struct tensor u, struct tensor gradient, struct nesterov n);
alibi_status SIMD(sum_squares)(struct device *dev, double *sum, struct tensor x);
alibi_status SIMD(sum)(struct device *dev, double *sum, struct tensor x);

#endif
