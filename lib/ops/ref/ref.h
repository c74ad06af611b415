/* ref.h - the reference operations: plain scalar C, sums in double, written to be read
 *
 * The contracts are in ops.h. Every operation here serves all floating types with the same loop:
 * elements are read and written as double through the accessors below, each tensor in its own type,
 * and rounded when stored. One thread, one order of sums. */
#ifndef REF_H
#define REF_H

#include "ops/bf16.h"
#include "ops/ops.h"

/* Element i of a tensor, counted from t.data. */
static inline double get(struct tensor t, int64_t i)
{
    switch (t.type) {
    case DTYPE_F32:
        return (double)((const float *)t.data)[i];
    case DTYPE_F64:
        return ((const double *)t.data)[i];
    case DTYPE_I32:
        return (double)((const int32_t *)t.data)[i];
    case DTYPE_BF16:
        return (double)bf16_to_float(((const uint16_t *)t.data)[i]);
    }
    return 0.0;
}

static inline void set(struct tensor t, int64_t i, double x)
{
    switch (t.type) {
    case DTYPE_F32:
        ((float *)t.data)[i] = (float)x;
        break;
    case DTYPE_F64:
        ((double *)t.data)[i] = x;
        break;
    case DTYPE_I32:
        ((int32_t *)t.data)[i] = (int32_t)x;
        break;
    case DTYPE_BF16:
        ((uint16_t *)t.data)[i] = bf16_from_float((float)x);
        break;
    }
}

static inline void add(struct tensor t, int64_t i, double x)
{
    set(t, i, get(t, i) + x);
}

/* Element i of tokens, targets, buckets: I32. */
static inline int64_t get_index(struct tensor t, int64_t i)
{
    return ((const int32_t *)t.data)[i];
}

static inline bool present(struct tensor t)
{
    return t.data != NULL;
}

/* memory.c */
alibi_status ref_finish(struct device *dev);
void ref_memory(struct device *dev, struct device_memory *memory);
void ref_reset_peak(struct device *dev);
size_t ref_workspace(struct device *dev, int64_t B, int64_t L, int64_t H, int64_t D, bool training);
alibi_status ref_read_parts(struct device *dev, struct device_part *parts, int *count);
alibi_status ref_buffer_new(struct device *dev, void **out, size_t bytes, const char *what);
void ref_buffer_free(struct device *dev, void *buffer);
alibi_status ref_upload(struct device *dev, struct tensor dst, const void *host);
alibi_status ref_download(struct device *dev, void *host, struct tensor src);
alibi_status ref_fill(struct device *dev, struct tensor dst, double value);
alibi_status ref_copy(struct device *dev, struct tensor dst, struct tensor src);

/* embedding.c */
alibi_status ref_embedding_forward(struct device *dev, struct tensor y, struct tensor tokens,
                                   struct tensor weight, struct tensor table, int64_t start,
                                   double scale);
alibi_status ref_embedding_backward(struct device *dev, struct tensor dweight, struct tensor dtable,
                                    struct tensor dy, struct tensor tokens, int64_t start,
                                    double scale);

/* linear.c */
alibi_status ref_linear_forward(struct device *dev, struct tensor y, struct tensor x,
                                struct tensor weight, struct tensor bias);
alibi_status ref_linear_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                 struct tensor dbias, struct tensor dy, struct tensor x,
                                 struct tensor weight);
alibi_status ref_linear_activation_forward(struct device *dev, int kind, struct tensor activated,
                                           struct tensor up, struct tensor x, struct tensor weight,
                                           struct tensor bias);
alibi_status ref_linear_activation_backward(struct device *dev, int kind, struct tensor dup,
                                            struct tensor dup_sums, struct tensor scratch,
                                            struct tensor dweight, struct tensor dbias,
                                            struct tensor dy, struct tensor activated,
                                            struct tensor weight, struct tensor up);

/* layernorm.c */
alibi_status ref_layernorm_forward(struct device *dev, struct tensor y, struct tensor mean,
                                   struct tensor rstd, struct tensor sum, struct tensor x,
                                   struct tensor branch, struct dropout drop, struct tensor weight,
                                   struct tensor bias, double eps);
alibi_status ref_layernorm_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                    struct tensor dbias, struct tensor y, struct tensor dy,
                                    struct tensor x, struct tensor weight, struct tensor bias,
                                    struct tensor mean, struct tensor rstd);

/* rmsnorm.c */
alibi_status ref_rmsnorm_forward(struct device *dev, struct tensor y, struct tensor rstd,
                                 struct tensor sum, struct tensor x, struct tensor branch,
                                 struct dropout drop, struct tensor weight, struct tensor bias,
                                 double eps);
alibi_status ref_rmsnorm_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                  struct tensor dbias, struct tensor y, struct tensor dy,
                                  struct tensor x, struct tensor weight, struct tensor bias,
                                  struct tensor rstd);

/* activation.c */
alibi_status ref_activation_forward(struct device *dev, int kind, struct tensor y, struct tensor x);
alibi_status ref_activation_backward(struct device *dev, int kind, struct tensor dx,
                                     struct tensor dy, struct tensor x);

/* residual.c */
alibi_status ref_residual_forward(struct device *dev, struct tensor y, struct tensor x,
                                  struct tensor branch, struct dropout drop);
alibi_status ref_dropout(struct device *dev, struct tensor y, struct tensor x, struct dropout drop);

/* attention.c */
alibi_status ref_attention_forward(struct device *dev, struct tensor y, struct tensor lse,
                                   struct attention a);
alibi_status ref_attention_backward(struct device *dev, struct tensor dq, struct tensor dk,
                                    struct tensor dv, struct tensor dbias, struct tensor dy,
                                    struct tensor y, struct tensor lse, struct attention a);
double ref_bias_at(struct bias bias, int64_t h, int64_t distance);
alibi_status ref_attention_norms(struct device *dev, struct tensor norms, struct tensor k,
                                 int64_t from);

/* rotary.c */
alibi_status ref_rotary(struct device *dev, struct tensor x, struct rotation r, int direction);

/* bucket.c */
alibi_status ref_bucket_forward(struct device *dev, struct tensor table, struct tensor weight,
                                struct tensor bucket);
alibi_status ref_bucket_backward(struct device *dev, struct tensor dweight, struct tensor dtable,
                                 struct tensor bucket);

/* cross_entropy.c */
alibi_status ref_cross_entropy(struct device *dev, struct tensor nll, struct tensor dlogits,
                               struct tensor logits, struct tensor targets, double scale);

/* optimizer.c */
alibi_status ref_adamw(struct device *dev, struct tensor w, struct tensor copy, struct tensor m,
                       struct tensor v, struct tensor gradient, struct adamw a);
alibi_status ref_nesterov(struct device *dev, struct tensor w, struct tensor copy, struct tensor u,
                          struct tensor gradient, struct nesterov n);
alibi_status ref_sum_squares(struct device *dev, double *sum, struct tensor x);
alibi_status ref_sum(struct device *dev, double *sum, struct tensor x);

#endif
