/* passes.h - passes with a workspace of their own, and a sequence of a KV cache fed on its own */
#ifndef PASSES_H
#define PASSES_H

#include "model/model.h"

static inline alibi_status once_loss(const struct model *m, const int32_t *tokens,
                                     const int32_t *targets, int64_t B, int64_t L, float *nll)
{
    struct workspace *w = NULL;
    alibi_status status = workspace_new(&w, m, &(struct pass_settings){ 0 });

    if (status == ALIBI_OK)
        status = model_loss(w, tokens, targets, B, L, nll);
    workspace_free(w);
    return status;
}

static inline alibi_status once_logits(const struct model *m, const int32_t *tokens, int64_t B,
                                       int64_t L, float *logits)
{
    struct workspace *w = NULL;
    alibi_status status = workspace_new(&w, m, &(struct pass_settings){ 0 });

    if (status == ALIBI_OK)
        status = model_logits(w, tokens, B, L, logits);
    workspace_free(w);
    return status;
}

static inline alibi_status once_gradients(const struct model *m, struct pass_settings settings,
                                          const int32_t *tokens, const int32_t *targets, int64_t B,
                                          int64_t L, double scale, struct dropout drop,
                                          double *loss_sum)
{
    struct workspace *w = NULL;
    alibi_status status = workspace_new(&w, m, &settings);

    if (status == ALIBI_OK)
        status = model_gradients(w, tokens, targets, B, L, scale, drop, loss_sum);
    workspace_free(w);
    return status;
}

/* Appends tokens to slot 0; logits [V] of the last one, unless NULL. */
static inline alibi_status extend(struct workspace *w, struct cache *c, const int32_t *tokens,
                                  int64_t L, float *logits)
{
    alibi_status status = model_extend(w, c, 0, tokens, L);

    return status == ALIBI_OK && logits ? model_read_logits(w, L - 1, 1, logits) : status;
}

#endif
