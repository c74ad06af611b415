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

/* The norm before a linear layer, if there is one, by the device's own table. */
static inline alibi_status norm_before(struct device *dev, const struct norm_args *norm)
{
    return norm ? dev->ops->norm_forward(dev, norm) : ALIBI_OK;
}

/* The first of the D numbers of head h at row l of a view [B, L, H, D]. */
static inline int64_t head_at(struct tensor t, int64_t b, int64_t l, int64_t h)
{
    return b * t.stride[0] + l * t.stride[1] + h * t.stride[2];
}

/* sums[n] += sum over rows of x[r, n]: the gradient of a bias (linear.c). */
void ref_add_column_sums(struct tensor sums, struct tensor x);

/* The bias on the score of a query at that position and key j; `row`: the sequence of keys that it
 * reads. */
double ref_bias_at(struct bias bias, int64_t row, int64_t h, int64_t position, int64_t j);

/* The host's backends take sequences that are packed, or have slopes of their own, one at a time:
 * this calls `run` for each of them. */
bool ref_attention_is_apart(const struct attention_args *a);
alibi_status ref_attention_each(struct device *dev, const struct attention_args *a,
                                attention_fn *run);

/* The factor on q . k at that distance. */
double ref_gain_at(struct bias bias, int64_t distance);

/* The score of query i and a sink that it sees. */
double ref_sink_score(const struct sinks_args *a, int64_t b, int64_t h, int64_t i, int64_t j);

/* One file per operation. */
finish_fn ref_finish;
caller_fn ref_caller;
memory_fn ref_memory;
reset_peak_fn ref_reset_peak;
workspace_fn ref_workspace;
read_parts_fn ref_read_parts;
buffer_new_fn ref_buffer_new;
buffer_free_fn ref_buffer_free;
upload_fn ref_upload;
download_fn ref_download;
fill_fn ref_fill;
copy_fn ref_copy;
embedding_fn ref_embedding_forward, ref_embedding_backward;
linear_fn ref_linear_forward, ref_linear_backward;
linear_activation_fn ref_linear_activation_forward, ref_linear_activation_backward;
norm_fn ref_norm_forward, ref_norm_backward;
activation_forward_fn ref_activation_forward;
activation_backward_fn ref_activation_backward;
residual_fn ref_residual_forward;
dropout_fn ref_dropout;
rotary_fn ref_rotary;
logn_fn ref_logn_forward, ref_logn_backward;
head_norm_fn ref_head_norm_forward, ref_head_norm_backward;
gate_fn ref_gate_forward, ref_gate_backward;
attention_fn ref_attention_forward, ref_attention_backward;
attention_workspace_fn ref_attention_workspace;
attention_norms_fn ref_attention_norms;
cache_append_fn ref_cache_append;
sinks_fn ref_sinks_forward, ref_sinks_backward;
bucket_forward_fn ref_bucket_forward;
bucket_backward_fn ref_bucket_backward;
curve_fn ref_curve_forward, ref_curve_backward;
cross_entropy_fn ref_cross_entropy;
log_softmax_fn ref_log_softmax;
adamw_fn ref_adamw;
nesterov_fn ref_nesterov;
sum_fn ref_sum, ref_sum_squares;

#endif
