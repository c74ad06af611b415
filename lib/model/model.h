/* model.h - the transformer
 *
 *   x = embedding(tokens) (+ position rows) (norm)
 *   N times:  x = x + out(attention(norm1(x)));   x = x + down(act(up(norm2(x))))
 *             parallel: both branches read the same x
 *   logits = norm(x) head^T
 *
 * Embedding and output layer may treat frequent and rare ids differently (adaptive.c).
 *
 * One table of parameters drives allocation, initialisation, optimizer and files. The walk through
 * the layers is in forward.c and backward.c; it calls the device's operations and never looks at a
 * number itself. */
#ifndef MODEL_H
#define MODEL_H

#include "ops/ops.h"
#include "position/position.h"

/* ---- parameters (parameters.c) */

enum { PARAMETER_NAME_MAX = 64, CLUSTERS_MAX = ALIBI_LIST_MAX + 1 };

enum parameter_init {
    INIT_ZERO,
    INIT_ONE,
    INIT_NORMAL,    /* N(0, 0.02); by the width N(0, 1 / sqrt(width)), as the next three */
    INIT_EMBEDDING, /* N(0, 0.02), smaller in a wide model whose output layer shares it */
    INIT_EMBEDDED,  /* that times the embedding scale: what adds to the scaled embeddings */
    INIT_RESIDUAL,  /* N(0, 0.02 / sqrt(2 N)): what adds to the residual stream, as GPT-2 */
    INIT_CLUSTER,   /* N(0, 1 / sqrt(columns)): embeddings of a cluster, as fairseq */
    INIT_LOGN,      /* 1 / ln(training length) */
    INIT_POSITION,  /* as the position method says */
    INIT_XAVIER,    /* uniform within sqrt(6 / (rows + columns)): its projection, as fairseq */
};

struct parameter {
    char name[PARAMETER_NAME_MAX];
    int rank;
    int64_t shape[2];
    bool decays; /* weight decay applies: matrices, not norms and biases */
    bool copied; /* passes read it in the type of activations: embeddings, and weights and biases of
                    linear layers */
    enum parameter_init init;
    int64_t offset, count; /* elements within the flat buffers */
    int64_t rows;          /* of value and gradient: shape[0], or more, which are 0 */
    struct tensor
        value; /* what passes read: the master itself, or its copy in the type of activations */
    struct tensor gradient; /* absent in a model that is not trained */
    bool fresh; /* the gradient is 0, whatever its memory holds: the next one is written there */
};

/* Where a block's parameters are; an index into the table, or -1. */
struct block_parameters {
    int norm1, norm1_bias, qkv, qkv_bias, out, out_bias, norm2, norm2_bias, up, up_bias, down,
        down_bias;
    int q_norm, k_norm;  /* S [D] */
    int gate, gate_bias; /* [G, C], S [G]: gates of the first heads, position_gates; -1: none */
    int logn; /* S [position_logn_heads]: factors on the queries of the last heads; -1: none */
};

/* A range of ids with embeddings of their own width (adaptive.c). Cluster 0 is the head, the others
 * are tails. Tied: head and head_projection are embedding and projection. */
struct cluster {
    int64_t first, count, width;
    int embedding, projection; /* [count, width], [C, width] */
    int head, head_projection; /* the same of the output layer. The head has no projection there,
                                  and a row for each tail after those of its ids */
};

struct model {
    struct alibi_config config; /* resolved */
    struct pattern pattern;     /* the position of each layer */
    struct device *device;
    enum dtype type; /* of activations: T of ops.h */

    struct parameter *parameters;
    int count;
    int64_t elements; /* of all parameters: how many numbers are learned */

    /* The flat buffers: first the parameters that decay, of these the copied ones first, then the
     * others; each begins at a multiple of 64 elements. The gaps between them are 0 in every
     * buffer, and stay 0. */
    int64_t span, decaying;   /* elements of a buffer, and of its decaying part */
    int64_t copied;           /* elements at its beginning of which passes read only the copies */
    void *values, *gradients; /* masters and their gradients, in the type of sums: S of ops.h */
    int64_t absent;           /* `values` begins with this element; see model_new_sharded() */
    int64_t slot;             /* see model_add_gradients(); 0: `gradients` is a flat buffer */
    void *copies;             /* of the masters, in T; NULL where T is S */

    int embedding, embedding_norm, embedding_norm_bias, norm, norm_bias, head; /* head ==
                              embedding when tied; with clusters: those of the first */
    int positions[PATTERN_KINDS]; /* of each kind of the pattern; -1: it learns nothing */
    struct cluster cluster[CLUSTERS_MAX];
    int clusters;                    /* 0: embedding and output layer treat all ids alike */
    struct block_parameters *blocks; /* [N] */
    const struct head *head_kind;    /* how the output layer works (head.c) */
};

/* As vectors: a flat buffer in the type of sums, the copies, and the part of a buffer that belongs
 * to the parameter; absent where the buffer is NULL. */
struct tensor model_flat(const struct model *m, void *buffer);
struct tensor model_flat_copies(const struct model *m);
struct tensor model_masters(const struct model *m); /* those that it has: the elements from `absent`
                                                       on */
struct tensor parameter_slice(const struct model *m, const struct parameter *p, void *buffer);

/* config must be resolved. Weights are not set yet: model_init, or a file. */
alibi_status model_new(struct model **out, const struct alibi_config *config, struct device *device,
                       enum dtype type, bool trainable);
/* A model of one of several ranks, which keep the masters of matrices in shards: it has their
 * copies, and the masters that passes read. Where there are no copies it is a model like any other.
 */
alibi_status model_new_sharded(struct model **out, const struct alibi_config *config,
                               struct device *device, enum dtype type);
void model_free(struct model *m);
/* Gradients for a model that was made without. by_layer: the matrices of all layers take turns in a
 * slot, as large as those of one layer, so that `gradients` is a flat buffer with that slot instead
 * of them: a pass hands over each layer's (pass_settings.gradient_done) before the next one's. */
alibi_status model_add_gradients(struct model *m, bool by_layer);
int64_t model_gradients_count(const struct model *m, bool by_layer); /* elements of the buffer */
/* Where the matrices of a layer begin in the flat buffers; those of the next one follow, and after
 * the last, for layer == N, other parameters. */
int64_t model_layer_offset(const struct model *m, int64_t layer);
/* The gradients of `count` numbers from `offset` of the flat buffers on, which must not be of
 * several layers that take turns. */
struct tensor model_gradient_part(const struct model *m, int64_t offset, int64_t count);
alibi_status model_init(struct model *m, uint64_t seed, enum alibi_init_scale scale);
alibi_status model_refresh(struct model *m); /* copies from its masters, after these were set */

/* A model without memory on the device: its table of parameters, and what it would take. */
alibi_status model_outline(struct model **out, const struct alibi_config *config,
                           struct device *device, enum dtype type);

/* The first tensor that the two do not have in common, or that means another thing to the method of
 * the other; NULL: none. */
const char *model_difference(const struct model *a, const struct model *b);

/* The position that a training of `steps` steps has after `done` of them. */
alibi_status model_position_after(const struct model *m, int64_t done, int64_t steps,
                                  char position[ALIBI_NAME_MAX]);
/* The position with another temperature, in the layers that see more keys than in training. */
alibi_status model_tempered(const struct model *m, double temperature,
                            char position[ALIBI_NAME_MAX]);
/* Another position, with the same tensors; otherwise ALIBI_USAGE names the one that differs.
 * The model must have neither workspaces nor caches, which belong to a position. */
alibi_status model_set_position(struct model *m, const char *position);
/* Whether it would succeed for a model of that configuration, which could then read `length`
 * tokens. No model is needed. */
alibi_status model_check_position(const struct alibi_config *config, const char *position,
                                  int64_t length);

size_t model_flat_bytes(const struct model *m, enum dtype type); /* SIZE_MAX: too many */

/* The names of block_parameters.logn and gate_bias. */
void model_logn_name(char name[PARAMETER_NAME_MAX], int64_t layer);
void model_gate_bias_name(char name[PARAMETER_NAME_MAX], int64_t layer);
int64_t config_parameters(
    const struct alibi_config *config); /* how many numbers a model of that configuration learns */
alibi_status config_check_clusters(const struct alibi_config *config); /* adaptive cut-offs */
alibi_status config_write_json(const struct alibi_config *config, struct text *json);
alibi_status config_read_json(struct alibi_config *config, const char *bytes, size_t length,
                              const char *path);

static inline const struct position *model_position(const struct model *m, int64_t layer)
{
    return &m->pattern.kind[pattern_kind(&m->pattern, layer)];
}

/* The slopes [H] of the heads in layers of that kind, whose method must have slopes: trained or
 * fixed (tables.c). */
alibi_status model_slopes(const struct model *m, int kind, float *slopes);
/* After an update: slopes that it made negative become 0. The caller holds the device. */
alibi_status model_limit_slopes(struct model *m);

/* ALIBI_BAD_INPUT if the method is not defined at that length ("learned positions end at 128 ...").
 * */
alibi_status model_check_length(const struct model *m, int64_t length);
int64_t model_longest(const struct model *m); /* INT64_MAX: any length */

/* ---- numbers that are not finite (guard.c) */

/* `part` is a flat buffer from element `first` on. ALIBI_NUMERIC names its first tensor with an
 * element that is not finite, after `what`: "the gradient of 'norm.weight' is not finite". *sum: of
 * all squares; may be NULL. */
alibi_status model_check_finite(const struct model *m, struct tensor part, int64_t first,
                                const char *what, double *sum);

/* ---- the context of passes (workspace.c)
 *
 * A model is weights, which any number of threads may read. Everything that a pass changes belongs
 * to a workspace, which one user of the model owns: a trainer, an evaluation, a session. */

/* Where attention's weight goes: passes without a cache add every step-th of their queries, from
 * number `from` on. It runs on the CPU, whichever the device. */
struct reach {
    int64_t from, step, near;
    struct head_reach *heads; /* [N, H] */
};

/* For passes over a part of a sequence, model_loss_part(): access to the rest of it. For a whole
 * sequence: an observer of the operands of attention, which does not change them. */
struct elsewhere {
    /* Before the attention of each layer: a->k and a->v become views of earlier keys and values
     * with the own ones after them, likewise sums of gates, and of later parts first[2] the first
     * `sinks` of the sequence. An empty part has no queries, and its tensors no data. */
    alibi_status (*fetch)(void *user, struct attention_args *a, int64_t sinks,
                          struct tensor first[2]);
    void *user;
};

struct pass_settings {
    double skip;    /* attention's skipping budget, see ops.h; 0: every pair is computed */
    int64_t window; /* keys that a query sees in every layer, see ops.h; 0: all before it */
    int64_t sinks;  /* and this many first keys, where this window is the narrower one; without a
                       cache, and not in layers with gates, which close sinks as other keys */
    double attention_dropout;  /* in training: on the weights of attention, */
    double activation_dropout; /* after the activation, */
    double tail_dropout;       /* and on the projected input of each tail of the output layer */
    int recompute;             /* enum alibi_recompute: what a training pass does not keep */
    bool record;               /* inference: count the tiles that attention uses, and its time */
    bool verify; /* with record: find attention_statistics.skipped, which costs more than the
                    attention itself */
    struct reach *reach;                            /* inference; NULL: not measured */
    const struct elsewhere *elsewhere;              /* NULL: passes have whole sequences */
    const struct alibi_stop *stop, *cancel;         /* either stops a pass between two layers with
                                                       ALIBI_INTERRUPTED; may be NULL */
    void (*layer_done)(void *user, int64_t layers); /* after each layer of a forward pass, with how
                                                       many are done; may be NULL */
    alibi_status (*gradient_done)(void *user, int64_t layer); /* after the layer's part of a
                                                                 backward pass: the gradients of its
                                                                 matrices are complete; -1, last:
                                                                 all others are too. May be NULL */
    void *user;
};

struct attention_statistics {
    struct skip_count tiles;
    double seconds;
    double skipped; /* the largest share of a query's weight that was skipped */
};

struct workspace;
alibi_status workspace_new(struct workspace **out, const struct model *m,
                           const struct pass_settings *settings);
void workspace_free(struct workspace *w);
struct attention_statistics workspace_statistics(const struct workspace *w);

/* The bytes of device memory for a model and for passes over [B, L] tokens; SIZE_MAX: too many. */
struct model_bytes {
    size_t master;     /* one flat buffer in the type of sums */
    size_t copy;       /* the copies, 0: there are none */
    size_t tables;     /* of the position method */
    size_t kept;       /* activations that the backward pass reads */
    size_t passing;    /* activations that every layer uses again */
    int64_t distances; /* not bytes: T of the longest table of biases; 0: there is none */
};
alibi_status model_measure(const struct model *m, const struct pass_settings *settings, int64_t B,
                           int64_t L, bool training, struct model_bytes *bytes);

/* For a call that recorded skip.kept, on any device: the tiles that it used, and with `verify` the
 * largest share of a query's weight that it skipped (attention.c). */
alibi_status record_read(struct device *dev, const struct attention_args *a, bool verify,
                         struct skip_count *tiles, double *skipped);

/* ---- passes. tokens and targets are host arrays [B, L]; target -1 is not scored. */

/* nll [B, L] on the host. Memory is that of one layer's activations, and of the logits of some rows
 * at a time. */
alibi_status model_loss(struct workspace *w, const int32_t *tokens, const int32_t *targets,
                        int64_t B, int64_t L, float *nll);

/* The same for the L tokens from `start` on of one sequence. L may be 0: then only
 * settings.elsewhere is called, as often as by the others. */
alibi_status model_loss_part(struct workspace *w, const int32_t *tokens, const int32_t *targets,
                             int64_t start, int64_t L, float *nll);

/* Adds the gradient of scale * (sum of nll) to the gradients, and returns that sum of nll.
 * `drop` is on the embedding and on each residual branch; (drop.seed, drop.stream) key the masks of
 * the whole pass, those of the settings too: a caller needs one stream per call. */
alibi_status model_gradients(struct workspace *w, const int32_t *tokens, const int32_t *targets,
                             int64_t B, int64_t L, double scale, struct dropout drop,
                             double *loss_sum);
/* The next pass begins with gradients of 0. The memory of matrices is not cleared: their first
 * gradient overwrites it, so until the end of that pass it holds nothing. */
alibi_status model_clear_gradients(struct model *m);

/* How many of `rows` rows a softmax of the output layer takes at a time; weight: the parameter. */
int64_t model_head_rows(const struct model *m, int weight, int64_t rows);

/* logits [B, L, V] on the host, for tests and small inputs. With clusters: log-probabilities. */
alibi_status model_logits(struct workspace *w, const int32_t *tokens, int64_t B, int64_t L,
                          float *logits);

/* ---- decoding */

/* The keys and values of several sequences, each in a slot 0..slots-1. It grows on demand. With a
 * window only the last `positions` of a sequence stay; that is right as long as no score, without
 * its bias, is larger than `score` in size, and a pass with a larger one fails with ALIBI_NUMERIC.
 * positions 0: no window. */
struct cache;
struct cache_window {
    int64_t positions;
    double score;
};
alibi_status cache_new(struct cache **out, const struct model *m, int64_t slots,
                       struct cache_window window);
void cache_free(struct cache *c);
void cache_clear(struct cache *c, int64_t slot);
/* Drops the last token of a slot, which the last pass has appended. */
void cache_drop_last(struct cache *c, int64_t slot);
int64_t cache_length(const struct cache *c,
                     int64_t slot); /* tokens so far, dropped ones included */

/* Appends L tokens to one sequence. The numbers are those of a full forward pass. A failure leaves
 * the sequence as long as it was. */
alibi_status model_extend(struct workspace *w, struct cache *c, int64_t slot, const int32_t *tokens,
                          int64_t L);
/* The same with losses: targets and nll as in model_loss, [L]. */
alibi_status model_extend_loss(struct workspace *w, struct cache *c, int64_t slot,
                               const int32_t *tokens, const int32_t *targets, int64_t L,
                               float *nll);

/* Appends one token to each of `count` different sequences in one pass. A sequence gets the same
 * bits as if it were alone. */
alibi_status model_step(struct workspace *w, struct cache *c, const int32_t *slots,
                        const int32_t *tokens, int64_t count);

/* The logits [count, V] after rows from.. of the workspace's last pass: its tokens for
 * model_extend, its sequences for model_step. */
alibi_status model_read_logits(struct workspace *w, int64_t from, int64_t count, float *logits);
/* Those after the listed rows of model_loss(), at once: each read waits for the device. */
alibi_status model_read_listed(struct workspace *w, const int32_t *list, int64_t count,
                               float *logits);

/* ---- a model with its tokenizer, as the public interface knows it; lib/checkpoint opens it */

struct alibi_model {
    struct model *model;
    alibi_tokenizer *tokenizer;
    char *path;                   /* of the checkpoint */
    uint32_t weights;             /* checksum of their file, as its manifest has it */
    char trained[ALIBI_NAME_MAX]; /* the position of its training; "": that of the model */
};

#endif
