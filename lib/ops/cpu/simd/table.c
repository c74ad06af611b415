/* table.c - what this instruction set overrides */
#include "ops/cpu/simd/simd.h"

void SIMD(override)(struct ops *ops)
{
    ops->fill = SIMD(fill);
    ops->copy = SIMD(copy);
    ops->embedding_forward = SIMD(embedding_forward);
    ops->embedding_backward = SIMD(embedding_backward);
    ops->linear_forward = SIMD(linear_forward);
    ops->norm_forward = SIMD(norm_forward);
    ops->norm_backward = SIMD(norm_backward);
    ops->activation_forward = SIMD(activation_forward);
    ops->activation_backward = SIMD(activation_backward);
    ops->residual_forward = SIMD(residual_forward);
    ops->dropout = SIMD(dropout);
    ops->attention_forward = SIMD(attention_forward);
    ops->attention_backward = SIMD(attention_backward);
    ops->attention_norms = SIMD(attention_norms);
    ops->cache_append = SIMD(cache_append);
    ops->sinks_forward = SIMD(sinks_forward);
    ops->sinks_backward = SIMD(sinks_backward);
    ops->rotary = SIMD(rotary);
    ops->logn_forward = SIMD(logn_forward);
    ops->logn_backward = SIMD(logn_backward);
    ops->head_norm_forward = SIMD(head_norm_forward);
    ops->head_norm_backward = SIMD(head_norm_backward);
    ops->gate_forward = SIMD(gate_forward);
    ops->gate_backward = SIMD(gate_backward);
    ops->cross_entropy = SIMD(cross_entropy);
    ops->log_softmax = SIMD(log_softmax);
    ops->adamw = SIMD(adamw);
    ops->nesterov = SIMD(nesterov);
    ops->sum_squares = SIMD(sum_squares);
    ops->sum = SIMD(sum);
}
