/* walk.h - shared by the files of this room: the buffers of a pass and its parts */
#ifndef WALK_H
#define WALK_H

#include "model/model.h"

/* ---- position tables (tables.c): the numbers of position methods, on the device */

/* Tables for the layers of one kind. */
struct tables {
    struct tensor rows;     /* S [P, C] added to embeddings or S [P, D] for rotation: those of the
                               pass, for its positions or for each sequence of a step; P is the most
                               that a pass had. For learned positions it is the parameter */
    int64_t first, filled;  /* rows has positions first..first + filled - 1; of a step: filled 0 */
    struct tensor farthest; /* S [D], rotation of a layer with sinks: see sinks_args */
    int64_t farthest_at;    /* its position; 0: not computed */
    struct tensor slopes;   /* S [H] */
    struct tensor fixed;    /* S [H, H], slopes are trained: the fixed ones on its diagonal */
    struct tensor bucket;   /* I32 [T] */
    struct tensor bias;     /* S [H, T], from the weights of buckets or of a curve */
    struct tensor dbias;    /* like bias, or like slopes that are trained: over all its layers */
};

struct workspace;
struct pass;

/* These functions take the tables of all kinds of the model [PATTERN_KINDS]. */
alibi_status tables_init(struct tables *t, const struct model *m);
void tables_fini(struct tables *t, const struct model *m);
/* Before a pass: rows for its positions, and the bias from the present weights. */
alibi_status tables_prepare(struct workspace *w, const struct pass *p);
size_t tables_bytes(const struct model *m, int64_t length, bool trainable); /* SIZE_MAX: too many */
int64_t tables_distances(const struct model *m,
                         int64_t length); /* T of the longest bias; 0: none */
alibi_status tables_clear_gradient(struct tables *t, const struct model *m);
alibi_status tables_backward(struct tables *t, const struct model *m); /* dbias to the weights */
struct bias tables_bias(const struct tables *t, const struct model *m, int kind);

/* The narrower of two windows; 0: none. */
static inline int64_t narrower(int64_t a, int64_t b)
{
    return a > 0 && (b == 0 || a < b) ? a : b;
}

/* ---- workspace (workspace.c) */

struct layer {
    struct tensor x, middle; /* [rows, C] residual stream before attention, before feed-forward; one
                                tensor in passes of inference over more than one token */
    struct tensor mean1, rstd1, mean2, rstd2; /* S [rows] */
    struct tensor qkv;                        /* [rows, (H + 2 Hkv) D] */
    struct tensor attended;                   /* [rows, C] */
    struct tensor lse;                        /* S [B, H, L] */
    struct tensor z, gates; /* [rows, G], S [2, B, G, L]: what gates are of, and their sums; room
                               for the layer with the most of them. Absent: no layer has any */
    struct tensor kept;     /* I32, the tiles that attention used; in training with skipping */
    struct tensor up, activated; /* [rows, F or 2F], [rows, F] */
};

/* Rows of a pass, listed by the cluster of their ids, from some cluster on (adaptive.c). A
 * cluster's part of the list is padded to a multiple that suits the device. */
struct split {
    int64_t count[CLUSTERS_MAX];     /* rows of each cluster */
    int64_t begin[CLUSTERS_MAX + 1]; /* of its part of the list; the last: the length of the list */
    struct tensor lists;             /* I32: the three that follow, one after the other */
    struct tensor place; /* I32 [rows]: where a row is listed; the length of the list: nowhere */
    struct tensor row;   /* I32 [listed]: the row; padding: row 0 */
    struct tensor id;    /* I32 [listed]: the row's id, counted from its cluster's first */
};

/* The buffers of adaptive.c. W is the width of the first tail. */
struct adaptive {
    struct split input, output;
    struct tensor head_targets; /* I32 [rows] */
    struct tensor head_nll;     /* S [rows] */
    struct tensor tail_nll;     /* S [listed + 1], with a last 0 */
    /* While tokens are embedded: a cluster's rows of embeddings, and all rows projected, or their
     * gradient. */
    struct tensor embedded, dembedded, projected; /* [listed, C] */
    /* In the output layer: rows of the tails, later their gradients, with a last row of 0; a tail's
     * rows projected. */
    struct tensor gathered;        /* [listed + 1, C] */
    struct tensor hidden, dhidden; /* [listed, W] */
    /* Inference: log-probabilities of some rows. */
    struct tensor logp, head_logp; /* S [some, V], [some, first cut-off + tails] */
};

struct activations {
    int64_t B, L; /* of the present layout; 0: none */
    int64_t room; /* rows that they have memory for, see linear_args */
    bool training;
    void *buffer;
    size_t bytes;

    struct tensor tokens, targets, nll; /* [B, L], [rows], [rows] */
    /* I32 [3 + 2 kinds, B], of a ragged pass, which uploads them as one: the tokens, then the two
     * that follow. Absent in training. */
    struct tensor step;
    struct tensor slots;   /* [B] */
    struct tensor lengths; /* [1 + 2 kinds, B], pass.lengths */
    struct tensor embedded, embedded_mean, embedded_rstd;
    struct layer *layers; /* [N]. Without training all are the same buffers; in training the layers
                             share those that are not kept */
    struct tensor x;      /* [rows, C] after the last block */
    struct tensor mean, rstd;
    struct tensor logits; /* of some rows, as a vector */
    struct adaptive adaptive;

    /* [rows, C], reused by every layer: the output of the last norm; the output of a branch before
     * its dropout, and the gradient after it. */
    struct tensor normed, branch;
    /* [rows, (H + Hkv) D]: the normed queries and keys of a layer, rotated; absent without
     * qk_norm. */
    struct tensor heads;

    /* Training. dnorm, the gradient of normed, is needed only when branch no longer is: they share
     * memory. */
    struct tensor dx, dnorm, dqkv, dattended, dactivated;
    struct tensor dblock; /* parallel blocks: dx at the end of the block; otherwise absent */
    struct tensor dgates; /* S [B, G, L] */
};

struct workspace {
    const struct model *model;
    struct pass_settings settings;
    struct tables tables[PATTERN_KINDS];
    struct activations activations;
    struct attention_statistics statistics;
    void *record; /* skipping.kept on the device: of one call, or of all calls of a flowing pass */
    size_t record_bytes;
    int64_t recorded; /* words of calls that are not counted yet */
    bool flowing;     /* the pass does not wait at its layers, see statistics_begin */
    int32_t *lists;   /* of a split, or of rows with a target, on the host */
    int64_t list_capacity;
    int64_t listed; /* rows with a target, if only these have losses; -1: all rows have */
    bool decoding;  /* of the last pass */
};

/* Buffers for B x L tokens; the layout is renewed only if the last one was for another shape. */
alibi_status activations_reserve(struct workspace *w, int64_t B, int64_t L, bool training);

/* Room for `count` entries of w->lists; what was in them is lost. */
alibi_status lists_reserve(struct workspace *w, int64_t needed);

/* ---- the cache, as a pass uses it (cache.c)
 *
 * Layers whose windows are equally wide hold the same positions, and form a store. The positions of
 * a slot are rows one after the other, but where they begin depends on the last of them. */

/* Room for the sequence in `slot` to grow to `length` positions. */
alibi_status cache_reserve(struct cache *c, int64_t slot, int64_t length);
void cache_advance(struct cache *c, int64_t slot, int64_t count);
int cache_stores(const struct cache *c); /* at most PATTERN_KINDS */
int cache_store(const struct cache *c, int64_t layer);
int64_t cache_window(const struct cache *c, int64_t layer); /* what its queries see; 0: all */
/* The row of the newest position of a slot, and its second row, or the same. */
int64_t cache_row(const struct cache *c, int store, int64_t position);
int64_t cache_other_row(const struct cache *c, int store, int64_t position);
/* A position, the start of a tile, from which on the cache has what a pass from `start` on sees. */
int64_t cache_first(const struct cache *c, int64_t layer, int64_t start);

/* Keys and values of a layer: positions from..end-1 of one slot [1, end - from, Hkv, D], of which
 * end - 1 is the newest, and all slots [slots, capacity, Hkv, D]; the largest norm of each tile of
 * keys, for one slot and for all of them; the sums of gates, [2, 1, G, end - from] and [2, slots,
 * G, capacity]. */
struct kv {
    struct tensor k, v, norms, gates;
};
struct kv cache_slot(const struct cache *c, int64_t layer, int64_t slot, int64_t from, int64_t end);
/* After new positions start..end-1 were written there: they are copied to their other rows, with
 * norms and gates. */
alibi_status cache_mirror(const struct cache *c, int64_t layer, int64_t slot, int64_t start,
                          int64_t end);
struct kv cache_all(const struct cache *c, int64_t layer);
/* The first keys and values of all slots, [slots, sinks, Hkv, D]; the layer has sinks. */
struct kv cache_sinks(const struct cache *c, int64_t layer);

/* The score that a layer's window relies on, 0: none; and the largest norm of all keys that the
 * slot ever had in that layer, forgotten ones included. */
double cache_score_limit(const struct cache *c, int64_t layer);
double *cache_largest_key(struct cache *c, int64_t layer, int64_t slot);

/* ---- the walk (forward.c, attention.c, backward.c) */

/* One pass over [B, L] tokens. Without a cache, attention is within the pass. With one, either B is
 * 1 and the L tokens follow those of `slot`, or the pass is ragged: L is 1, and row b is the next
 * token of the sequence in slots[b]. */
struct pass {
    int64_t B, L;
    int64_t start; /* position of the first token */
    struct cache *cache;
    int64_t slot;
    const int32_t *slots;   /* ragged: on the host, [B] */
    const int32_t *lengths; /* [1 + 2 stores, B]: of the sequences; then for each store 1 + the row
                               of the new position, and then 1 + the other row that it is in */
    struct ragged ragged;   /* slots and the lengths of the sequences, on the device */
    bool decoding; /* results of a row must not depend on the other rows: linear_args.decoding */
    struct dropout drop;
};

/* To activations.x, and its norm to activations.normed if the model has a last one. */
alibi_status forward(struct workspace *w, const struct pass *p, const int32_t *tokens);
/* activations.embedded from the rows `tokens` [B, L] of `weight`, with positions. */
alibi_status embed_rows(struct workspace *w, const struct pass *p, struct tensor tokens,
                        struct tensor weight);
/* Layer n: from x to its norm; from there to middle's norm; from there to activated. In decoding
 * the norm before a linear layer is not run: *due receives it, and the function that runs the layer
 * takes it from there, for linear_args.norm. Otherwise due->x is absent. */
alibi_status enter_block(struct workspace *w, const struct pass *p, int64_t n,
                         struct norm_args *due);
alibi_status attend(struct workspace *w, const struct pass *p, int64_t n, struct norm_args *due);
alibi_status widen(struct workspace *w, const struct pass *p, int64_t n, struct norm_args *due);
alibi_status backward(struct workspace *w, const struct pass *p); /* from activations.dx */
struct dropout dropout_at(struct dropout drop, int64_t place);
/* Dropout with probability p in a training pass, none in any other pass. */
struct dropout dropout_within(const struct workspace *w, const struct pass *pass, double p,
                              int64_t place);

/* The operands of layer n's attention, within the activations of the pass. */
struct attention_args attention_of(const struct workspace *w, const struct pass *p, int64_t n);
/* The gates of layer n, which has some: within the activations of the pass, without a cache. */
struct gate_args gates_of(const struct workspace *w, const struct pass *p, int64_t n);
/* How a layer with logn multiplies its queries a.q, those of its last heads or of all: into the
 * memory of activations.branch, which nobody else uses while attention runs. In training they are
 * kept as they were, for the gradient; the backward pass multiplies again, and takes a.dq to what
 * it was before. */
struct logn_args attention_scale(const struct workspace *w, const struct pass *p, int64_t n,
                                 const struct attention_args *a);
/* Does that, in place outside training: a->q becomes the queries of all heads for attention. */
alibi_status scale_queries(const struct workspace *w, const struct pass *p, int64_t n,
                           struct attention_args *a);
/* With qk_norm: a->q and a->k become their norms, rotated, in activations.heads. Those of the
 * projection are kept for the gradient; the backward pass norms and rotates again. */
alibi_status norm_heads(const struct workspace *w, const struct pass *p, int64_t n,
                        struct attention_args *a);
/* Without qk_norm: in place, in packed rows. Nothing to do without a table. */
alibi_status rotate_heads(struct device *dev, const struct pass *p, struct tensor q,
                          struct tensor k, struct rotation rotation, int direction);
/* From a.dq and a.dk, the gradients of the norms of a.q and a.k, to those of a.q and a.k; with a
 * rotation from the gradients of the rotated norms. */
alibi_status norm_heads_backward(const struct workspace *w, int64_t n,
                                 const struct attention_args *a, struct rotation rotation);
/* The largest distance at which the queries of a layer see its sinks; 0: it has none. */
int64_t attention_farthest(const struct workspace *w, const struct pass *p, int64_t n);
/* The operand of the operation that follows attention in a layer with sinks; sinks 0: there are
 * none. */
struct sinks_args attention_sinks(const struct workspace *w, const struct pass *p, int64_t n,
                                  const struct attention_args *a);
/* Norms, rotates, scales, appends to the cache or fetches, attends, and counts. */
alibi_status attention_run(struct workspace *w, const struct pass *p, int64_t n);
/* The step of an empty part of a sequence. */
alibi_status attention_idle(struct workspace *w, int64_t n);
/* ALIBI_INTERRUPTED if the pass was asked to stop before layer n. */
alibi_status check_stop(const struct workspace *w, int64_t n);

/* Around a pass with settings.record. The time and the tiles of attention are known layer by layer
 * if the host waits for each. A device that keeps times by itself need not be interrupted: then the
 * records of all layers are counted at the end. A pass over more tokens than fill the device waits
 * all the same, so that its progress can be told. */
alibi_status statistics_begin(struct workspace *w, const struct pass *p);
alibi_status statistics_end(struct workspace *w, alibi_status status); /* of the pass */

/* A norm: its parameters, and the statistics that its backward pass needs. */
struct norm {
    int weight, bias; /* -1: none */
    struct tensor mean, rstd;
};
struct norm embedding_norm(const struct workspace *w);
struct norm attention_norm(const struct workspace *w, int64_t n);
struct norm feed_forward_norm(const struct workspace *w, int64_t n);
struct norm final_norm(const struct workspace *w);
/* y = norm(x), without a branch. */
struct norm_args norm_of(const struct workspace *w, struct norm norm, struct tensor y,
                         struct tensor x);

/* y may be absent; otherwise it receives the norm's output again. sums too: the column sums of the
 * new dx are added to it. */
alibi_status norm_backward(struct workspace *w, struct norm norm, struct tensor dx, struct tensor y,
                           struct tensor dy, struct tensor x, struct tensor sums);

/* ---- the output layer (head.c)
 *
 * One small interface, so that another kind is one more file. It reads the normed residual stream
 * of the last pass, row by row. */

struct head {
    const char *name;
    /* Elements of the scratch buffer activations.logits for a pass over `tokens` tokens. */
    int64_t (*scratch)(const struct model *m, int64_t tokens);
    /* The targets [B, L] of a pass, from the host to the device. */
    alibi_status (*targets)(struct workspace *w, const struct pass *p, const int32_t *targets);
    /* The losses, for head_losses(), from the targets. In training also the gradient of scale *
     * (sum of nll): to the parameters, and to activations.dnorm; dx is scratch. */
    alibi_status (*loss)(struct workspace *w, const struct pass *p, double scale);
    /* Logits [count, V] of rows from.. of x, all of its input or some gathered, on the host. */
    alibi_status (*logits)(struct workspace *w, struct tensor x, int64_t from, int64_t count,
                           bool decoding, float *logits);
};
extern const struct head head_softmax, head_adaptive;

/* Rows from.. of the head's input: the residual stream after the last block, normed if there is a
 * norm. */
struct tensor head_input(const struct workspace *w, int64_t from, int64_t count);
/* The losses of a pass [B, L], on the host; 0 without a target. */
alibi_status head_losses(struct workspace *w, float *nll);
/* In inference: the listed ones of the rows of the input. The list takes the memory of the tokens,
 * and the rows that of the last branch, which nobody reads any more. */
alibi_status head_gather(struct workspace *w, const int32_t *list, int64_t count,
                         struct tensor *rows);
/* y[i] = scale * x[index[i]]; y [n, C], x [any, C] */
alibi_status rows_gather(const struct model *m, struct tensor y, struct tensor x,
                         struct tensor index, double scale);

/* A softmax over the first `classes` rows of a weight matrix, for all rows of x. In training dx is
 * overwritten, and the weights' gradient is added to. */
struct softmax_layer {
    struct tensor x, dx; /* [rows, in] */
    int weight;          /* [classes and padding, in] */
    int64_t classes;
    struct tensor targets, nll; /* I32 [rows], S [rows] */
};
alibi_status softmax_loss(struct workspace *w, const struct softmax_layer *s, double scale);

/* ---- clusters of the vocabulary (adaptive.c) */

/* The most entries that a split of `rows` rows lists. */
int64_t split_listed(const struct model *m, int64_t rows);

/* To activations.embedded; and from dy, the gradient of that, to the parameters. */
alibi_status adaptive_embed(struct workspace *w, const struct pass *p, const int32_t *tokens);
alibi_status adaptive_embed_back(struct workspace *w, struct tensor dy);

/* ---- parameters of a model, by index */

static inline struct tensor value_of(const struct model *m, int index)
{
    return index < 0 ? tensor_none() : m->parameters[index].value;
}

static inline struct tensor gradient_of(const struct model *m, int index)
{
    return index < 0 ? tensor_none() : m->parameters[index].gradient;
}

/* A branch ends with a bias, whose gradient is the sum over the rows of the gradient that enters
 * it. If that is the stream's as the norm before in the walk back has left it, the norm sums it
 * where it makes it: this is the gradient of the bias, for that norm. Absent: the branch sums. */
static inline struct tensor entering_sums(const struct model *m, const struct pass *p, int bias)
{
    return p->drop.p > 0 || m->config.parallel ? tensor_none() : gradient_of(m, bias);
}

/* True once for each matrix after gradients were cleared: the caller then writes the first one. */
static inline bool take_first_gradient(const struct model *m, int index)
{
    bool fresh = m->parameters[index].fresh;

    m->parameters[index].fresh = false;
    return fresh;
}

/* Clears the gradient if it is still to be written: for what only adds to it, and for parameters
 * that a pass has not used (parameters.c). */
alibi_status begin_gradient(const struct model *m, int index);

/* The gates of the layer that has most. */
static inline int64_t most_gates(const struct model *m)
{
    int64_t most = 0;

    for (int k = 0; k < m->pattern.kinds; k++) {
        int64_t gates = position_gates(&m->config, &m->pattern.kind[k]);

        most = gates > most ? gates : most;
    }
    return most;
}

/* Sums of gates [2, B, G, L], of one sequence or contiguous, as a view that can be copied. */
static inline struct tensor gates_as_rows(struct tensor gates)
{
    return (struct tensor){ gates.data,
                            gates.type,
                            4,
                            { 2, gates.shape[1] * gates.shape[2], 1, gates.shape[3] },
                            { gates.stride[0], gates.stride[2], gates.shape[3], 1 } };
}

/* Numbers of the places where dropout acts: the embedding is 0, two branches per block follow it,
 * the tails of the output layer precede it. */
static inline int64_t tail_place(int64_t cluster)
{
    return -cluster;
}

static inline int64_t attention_place(int64_t n)
{
    return 1 + 2 * n;
}

static inline int64_t feed_forward_place(int64_t n)
{
    return 2 + 2 * n;
}

/* Within a branch, beyond all of these: the weights of attention, and the activations. */
enum { PLACES_WITHIN = 1 << 30 };

static inline int64_t weights_place(int64_t n)
{
    return PLACES_WITHIN + 2 * n;
}

static inline int64_t activated_place(int64_t n)
{
    return PLACES_WITHIN + 1 + 2 * n;
}

#endif
