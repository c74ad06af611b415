/* model.h - the transformer
 *
 *   x = embedding(tokens) (+ position rows) (norm)
 *   N times:  x = x + out(attention(norm1(x)));   x = x + down(act(up(norm2(x))))
 *   logits = norm(x) head^T
 *
 * One table of parameters drives allocation, initialisation, optimizer and files. The walk through
 * the layers is in forward.c and backward.c; it calls the device's operations and never looks at a
 * number itself. */
#ifndef MODEL_H
#define MODEL_H

#include "ops/ops.h"
#include "position/position.h"

/* ---- parameters (parameters.c) */

enum { PARAMETER_NAME_MAX = 64 };

enum parameter_init {
    INIT_ZERO,
    INIT_ONE,
    INIT_NORMAL,   /* N(0, 0.02) */
    INIT_EMBEDDED, /* N(0, 0.02 * embedding scale): what adds to the scaled embeddings */
    INIT_RESIDUAL, /* N(0, 0.02 / sqrt(2 N)): what adds to the residual stream, as GPT-2 */
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
    struct tensor
        value; /* what passes read: the master itself, or its copy in the type of activations */
    struct tensor gradient; /* absent in a model that is not trained */
};

/* Where a block's parameters are; an index into the table, or -1. */
struct block_parameters {
    int norm1, norm1_bias, qkv, qkv_bias, out, out_bias, norm2, norm2_bias, up, up_bias, down,
        down_bias;
};

struct model {
    struct alibi_config config; /* resolved */
    const struct position_method *method;
    struct device *device;
    enum dtype type; /* of activations: T of ops.h */

    struct parameter *parameters;
    int count;
    int64_t elements; /* of all parameters: how many numbers are learned */

    /* The flat buffers: first the parameters that decay, then the others; each begins at a multiple
     * of 64 elements. What lies between them is 0 in every buffer, and stays so. */
    int64_t span, decaying;   /* elements of a buffer, and of its decaying part */
    void *values, *gradients; /* masters and their gradients, in the type of sums: S of ops.h */
    void *copies;             /* of the masters, in T; NULL where T is S */

    int embedding, position, embedding_norm, embedding_norm_bias, norm, norm_bias,
        head;                        /* head == embedding when tied */
    struct block_parameters *blocks; /* [N] */

    int recompute;       /* enum alibi_recompute: what a training pass does not keep */
    double skip;         /* what attention may leave out: the budget of ops.h; 0: nothing */
    struct watch *watch; /* counts what was left out, if anyone wants to know */

    struct tables *tables;           /* of the position method (tables.c) */
    struct activations *activations; /* buffers of the last shape used (activations.c) */
};

/* As vectors: a flat buffer in the type of sums, the copies, and the part of a buffer that belongs
 * to the parameter; absent where the buffer is NULL. */
struct tensor model_flat(const struct model *m, void *buffer);
struct tensor model_flat_copies(const struct model *m);
struct tensor parameter_slice(const struct model *m, const struct parameter *p, void *buffer);

/* config must be resolved. Weights are not set yet: model_init, or a file. */
alibi_status model_new(struct model **out, const struct alibi_config *config, struct device *device,
                       enum dtype type, bool trainable);
void model_free(struct model *m);
alibi_status model_init(struct model *m, uint64_t seed);
alibi_status model_refresh(struct model *m); /* copies from masters, after these were set */

/* A model without memory on the device: its table of parameters, and what it would take. */
alibi_status model_outline(struct model **out, const struct alibi_config *config,
                           struct device *device, enum dtype type);

/* What a model takes of the device's memory; SIZE_MAX where it is more than that. */
struct model_bytes {
    size_t master,
        copy;       /* one flat buffer in the type of sums; the copies, 0 where there are none */
    size_t tables;  /* of the position method, for passes of that length */
    size_t kept;    /* activations that the backward pass reads, or that one layer needs */
    size_t passing; /* of the same buffer, what every layer uses again */
};
size_t model_flat_bytes(const struct model *m, enum dtype type);
alibi_status model_measure(struct model *m, int64_t B, int64_t L, bool training,
                           struct model_bytes *bytes);

int64_t config_parameters(
    const struct alibi_config *config); /* how many numbers a model of that configuration learns */
alibi_status config_write_json(const struct alibi_config *config, struct text *json);
alibi_status config_read_json(struct alibi_config *config, const char *bytes, size_t length,
                              const char *path);

/* ALIBI_BAD_INPUT if the method is not defined at that length ("learned positions end at 128 ...").
 * */
alibi_status model_check_length(const struct model *m, int64_t length);
int64_t model_longest(const struct model *m); /* INT64_MAX: any length */

/* ---- numbers that are not finite (guard.c) */

/* ALIBI_NUMERIC names the first tensor of a flat buffer with an element that is not finite, after
 * `what`: "the gradient of 'norm.weight' is not finite". *sum: of all squares; either may be NULL.
 * */
alibi_status model_check_finite(const struct model *m, void *buffer, const char *what, double *sum);

/* ---- the record of attention (record.c) */

/* Of a call that recorded skip.kept, wherever its tensors are: the tiles used, and with `verify`
 * the largest share of a query's weight that was left out. */
alibi_status record_read(struct device *dev, const struct attention_args *a, bool verify,
                         struct skip_count *tiles, double *left_out);

/* ---- what attention leaves out (watch.c) */

/* Passes without gradients add to it as long as it is the model's. Start from {0}; watch_fini. */
struct watch {
    bool record; /* count tiles, take times */
    bool verify; /* find left_out, which costs more than the attention itself; else it stays 0 */
    struct skip_count tiles;
    double seconds;     /* in attention */
    double left_out;    /* the largest share of a query's weight that was left out */
    double score_limit; /* > 0: a pass whose scores may be larger than this, bias apart, fails with
                           ALIBI_NUMERIC */
    double *largest_keys; /* [N] with a limit: the largest norm of all keys so far, those that a
                             cache forgot included */
    void *kept;           /* the record of one call, on the device */
    size_t bytes;
};
void watch_fini(struct watch *w, struct model *m);
alibi_status watch_limit_scores(struct watch *w, const struct model *m,
                                double limit); /* before the first pass */

/* ---- passes. tokens and targets are host arrays [B, L]; target -1 is not scored. */

/* nll [B, L] on the host. Activations of one layer at a time; the logits exist only for some rows
 * at a time. */
alibi_status model_loss(struct model *m, const int32_t *tokens, const int32_t *targets, int64_t B,
                        int64_t L, float *nll);

/* Adds the gradient of scale * (sum of nll) to the gradients, and returns that sum of nll.
 * (drop.seed, drop.stream) key the masks of the whole pass: a caller needs one stream per call. */
alibi_status model_gradients(struct model *m, const int32_t *tokens, const int32_t *targets,
                             int64_t B, int64_t L, double scale, struct dropout drop,
                             double *loss_sum);
alibi_status model_clear_gradients(struct model *m);

/* How many rows the output layer of a batch of `rows` tokens takes at a time. */
int64_t model_head_rows(const struct model *m, int64_t rows);

/* logits [B, L, V] on the host, for tests and small inputs. */
alibi_status model_logits(struct model *m, const int32_t *tokens, int64_t B, int64_t L,
                          float *logits);

/* ---- decoding */

/* Keys and values of the positions so far; grows as needed. */
struct cache;
alibi_status cache_new(struct cache **out, struct model *m, int64_t B);
void cache_free(struct cache *c);
int64_t cache_length(const struct cache *c);

/* Only this many of the last positions need stay; 0: all. Whoever sets it knows that the others
 * have no weight. */
void cache_set_window(struct cache *c, int64_t window);

/* Appends L tokens per row (tokens [B, L]); logits [B, V] of the last one, or NULL. L = 1 decodes,
 * more prefills: the numbers are those of the full forward. */
alibi_status model_extend(struct model *m, struct cache *c, const int32_t *tokens, int64_t L,
                          float *logits);

/* The same with the loss of every token instead: targets and nll as in model_loss, [B, L]. */
alibi_status model_extend_loss(struct model *m, struct cache *c, const int32_t *tokens,
                               const int32_t *targets, int64_t L, float *nll);

/* ---- a model with its tokenizer, as the public interface knows it; lib/checkpoint opens it */

struct alibi_model {
    struct model *model;
    alibi_tokenizer *tokenizer;
    char *path; /* of the checkpoint */
};

#endif
