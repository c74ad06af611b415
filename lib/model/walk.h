/* walk.h - what the files of this room share: buffers, tables and the parts of a pass */
#ifndef WALK_H
#define WALK_H

#include "model/model.h"

/* ---- position tables (tables.c): what the method computes, on the device */

struct tables {
    struct tensor rows;        /* all in the type of sums. [P, C] added to embeddings or [P, D] for
                                  rotation, P grown as needed; the        parameter for learned */
    struct tensor slopes;      /* [H] */
    struct tensor bucket;      /* I32 [T] */
    struct tensor bias, dbias; /* [H, T], from the bucket weights; its gradient over all layers */
};

alibi_status tables_new(struct tables **out, struct model *m);
void tables_free(struct tables *t, struct model *m);
alibi_status tables_reserve(struct model *m, int64_t length); /* rows for positions 0..length-1 */
size_t tables_bytes(const struct model *m, int64_t length,
                    bool trainable); /* of all that, on the device; SIZE_MAX: more */
alibi_status tables_refresh(
    struct model *m); /* after the weights may have changed: once per pass */
alibi_status tables_clear_gradient(struct model *m);
alibi_status tables_backward(struct model *m); /* dbias into the gradient of the bucket weights */
struct bias tables_bias(const struct model *m);
struct tensor tables_bias_gradient(const struct model *m); /* absent if the bias is not learned */

/* ---- activations (activations.c) */

struct layer {
    struct tensor x, middle; /* [rows, C] residual stream before attention, before feed-forward */
    struct tensor mean1, rstd1, mean2, rstd2; /* [rows], in the type of sums */
    struct tensor qkv;                        /* [rows, (H + 2 Hkv) D] */
    struct tensor attended;                   /* [rows, C] */
    struct tensor lse;                        /* [B, H, L], in the type of sums */
    struct tensor kept; /* I32, what attention used; training in which it may leave something out */
    struct tensor up, activated; /* [rows, F or 2F], [rows, F] */
};

struct activations {
    int64_t B, L;
    bool training;
    int recompute; /* enum alibi_recompute, of training */
    bool records;  /* attention may leave something out: training has room for what it used */
    void *buffer;
    size_t bytes;

    struct tensor tokens, targets, nll; /* [B, L], [rows], [rows] */
    struct tensor embedded, embedded_mean, embedded_rstd;
    struct layer *layers; /* [N]; without training all of them are the same buffers, in training
                             those that are not kept */
    struct tensor x;      /* [rows, C] after the last block */
    struct tensor mean, rstd;
    struct tensor last;   /* [B, C] the last position of each row, for decoding */
    struct tensor logits; /* [some rows, V] */

    /* [rows, C], used again by every layer: what the last norm gave; what a branch adds, before its
     * dropout, and its gradient behind it. */
    struct tensor normed, branch;

    /* Training. dnorm, the gradient of normed, is needed when branch no longer is, and lies in the
     * same place. */
    struct tensor dx, dnorm, dqkv, dattended, dactivated;
};

/* Buffers for B x L tokens, made anew only if the last ones do not serve. */
alibi_status activations_reserve(struct model *m, int64_t B, int64_t L, bool training);
/* Their bytes: what is kept for the backward pass, and the rest; SIZE_MAX both where they do not
 * fit. Those that the model has are void from then on. */
alibi_status activations_measure(struct model *m, int64_t B, int64_t L, bool training, size_t *kept,
                                 size_t *passing);
void activations_free(struct activations *a, struct model *m);

/* ---- what attention leaves out (watch.c) */

/* Attention, with what it left out added to the model's watch if there is one. */
alibi_status watched_attention(struct model *m, int64_t layer, struct attention_args a);

/* ---- the walk (forward.c, backward.c) */

struct pass {
    int64_t B, L;
    int64_t start;       /* position of the first token: what the cache holds already */
    struct cache *cache; /* NULL: attention is over this pass alone */
    struct dropout drop;
};

/* Keys and values of layer n, positions from..from+length-1: what was so far, and where a pass puts
 * its own (cache.c). */
struct tensor cache_keys(const struct cache *c, int64_t layer, int64_t from, int64_t length);
struct tensor cache_values(const struct cache *c, int64_t layer, int64_t from, int64_t length);

/* The largest norm of each tile of the layer's keys; brought up to date by cache_add_norms, with
 * `count` more keys in place. */
struct tensor cache_norms(const struct cache *c, int64_t layer);
alibi_status cache_add_norms(struct cache *c, int64_t layer, int64_t count);

int64_t cache_first(
    const struct cache *c); /* the first position that it holds: 0 without a window */
int64_t cache_rows(const struct cache *c);
alibi_status cache_reserve(struct cache *c, int64_t length);
void cache_advance(struct cache *c, int64_t count);

/* To activations->x, and its norm to activations->normed if the model has a last one. */
alibi_status forward(struct model *m, const struct pass *p, const int32_t *tokens);
alibi_status enter_block(struct model *m, int64_t n); /* layer n from x to its norm */
alibi_status attend(struct model *m, const struct pass *p,
                    int64_t n);                               /* on to middle, and its norm */
alibi_status widen(struct model *m, int64_t n);               /* and on to activated */
alibi_status backward(struct model *m, const struct pass *p); /* from activations->dx */
struct dropout dropout_at(struct dropout drop, int64_t place);
struct attention_args attention_of(const struct model *m, const struct pass *p, int64_t n);

/* A norm: its parameters, and what its backward pass needs to know of the forward pass. */
struct norm {
    int weight, bias; /* -1: none */
    struct tensor mean, rstd;
};

struct norm embedding_norm(const struct model *m);
struct norm attention_norm(const struct model *m, int64_t n);
struct norm feed_forward_norm(const struct model *m, int64_t n);
struct norm final_norm(const struct model *m);

/* y, which may be absent, gets the norm's output once more. */
alibi_status norm_backward(struct model *m, struct norm norm, struct tensor dx, struct tensor y,
                           struct tensor dy, struct tensor x);

static inline struct tensor value_of(const struct model *m, int index)
{
    return index < 0 ? tensor_none() : m->parameters[index].value;
}

static inline struct tensor gradient_of(const struct model *m, int index)
{
    return index < 0 ? tensor_none() : m->parameters[index].gradient;
}

/* Numbers that say where dropout acts: the embedding, then two branches per block. */
static inline int64_t attention_place(int64_t n)
{
    return 1 + 2 * n;
}

static inline int64_t feed_forward_place(int64_t n)
{
    return 2 + 2 * n;
}

#endif
