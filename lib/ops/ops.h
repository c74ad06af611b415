/* ops.h - the operations a transformer needs, as one table of functions
 *
 * The model calls this table and nothing else. ref/ fills every entry in plain C; another backend
 * starts as a copy of the reference table and overrides what it has faster. Contracts hold for
 * every backend:
 *
 *   - Types: T is that of activations, F32, F64 or BF16; S = dtype_sums(T) that of sums,
 *     statistics, losses and gradients of parameters. Weights and biases of linear layers,
 *     embeddings and activations are T, everything else is S where the contract says S. All tensors
 *     of one call agree in T. (A backend may hand what it does not have to the reference.)
 *   - Tensors are contiguous unless the contract says "view": then the last two dimensions' strides
 *     are D and 1, others free.
 *   - Outputs are overwritten, except gradients of parameters (dweight, dbias, dtable, dslopes ...)
 *     and what is said to "accumulate": those are added to.
 *   - A tensor that "may be absent" is tensor_none().
 *   - Results do not depend on the number of threads beyond the order of sums that CBLAS chooses,
 *     and repeat bit for bit for the same number.
 *   - Any dimension may be zero. Shapes are the caller's promise; values (token ids, non-finite
 *     numbers) were checked where they entered. */
#ifndef OPS_H
#define OPS_H

#include <pthread.h>

#include "base/base.h"
#include "ops/tensor.h"

/* One device with its table of operations. `state` is the backend's own. Work may still be under
 * way when an operation has returned; downloads, sums and finish() wait for it, and report what
 * went wrong meanwhile. */
struct device {
    const struct ops *ops;
    void *state;
    pthread_mutex_t *lock; /* one thread at a time may call the operations; NULL: any number may */
};

/* How much work at a time keeps a device busy. */
struct device_traits {
    int64_t logits;         /* of the output layer: full speed, and small beside everything else */
    int64_t batch_tokens;   /* of a batch of an evaluation */
    int64_t prefill_tokens; /* of a prompt */
    int warm_up_steps;      /* until its products are tuned, before steps are timed */
    int timed_calls;        /* between two waits, so that waiting does not count */
    bool times_parts;       /* read_parts has something to tell */
};

/* Bias on attention scores, by distance i - j >= 0. The distance is an integer; the bias is formed
 * in the type of the scores. */
enum bias_kind {
    BIAS_NONE,
    BIAS_LINEAR, /* -slopes[h] * distance */
    BIAS_TABLE,  /* table[h][min(distance, T - 1)] */
};

struct bias {
    enum bias_kind kind;
    struct tensor values; /* S; LINEAR: slopes [H]; TABLE: [H, T] */
};

/* Leaving out keys that cannot matter (docs/attention.md has the proof). Keys are taken in tiles of
 * ATTENTION_TILE. A tile is left out of a query tile if a bound on its scores proves for each query
 * i that all tiles left out together have at most eps times the weight of those that were used:
 *
 *   |y_i - exact| <= 2 eps max_j |v_j|,     0 <= exact lse_i - lse_i <= eps
 *
 * beyond rounding. The gradients are those of the attention that was computed. A backend may use
 * all tiles. */
enum { ATTENTION_TILE = 64 };

struct skipping {
    double eps; /* 0: every pair is computed */
    struct tensor
        norms; /* S [B, Hkv, tiles of Lk] from attention_norms; absent: the call finds them */
    struct tensor kept; /* I32 [B, H, tiles of Lq, words of Lk]: bit t % 32 of word t / 32 says that
                           key tile t was used. Forward writes it, where Lk - Lq is a multiple of a
                           tile; backward visits those tiles only; absent: not wanted, and all */
};

/* Turning pairs of a head by angles that grow with the position, see rotary(). Pair n is elements
 * (n, n + D/2) for halves, (2n, 2n + 1) for pairs. */
struct rotation {
    struct tensor table; /* S [P, D]: D/2 cosines then D/2 sines of position p */
    int64_t start;       /* the position of the first row; P >= start + L */
    int layout;          /* enum alibi_rotary_layout */
};

/* One attention call. Queries are the last Lq of Lk positions: query i stands at position Lk - Lq +
 * i and sees keys 0..Lk - Lq + i. Full attention has Lq = Lk, decoding Lq = 1; chunked prefill is
 * between. Query head h reads key/value head h / (H / Hkv). */
struct attention {
    struct tensor q;    /* view [B, Lq, H, D] */
    struct tensor k, v; /* views [B, Lk, Hkv, D] */
    struct bias bias;
    double scale; /* on q . k, 1/sqrt(D) as a rule; the bias is not scaled */
    struct skipping skip;
    struct rotation turned; /* for backward: how q and k were turned before, so that dq and dk are
                               turned back; a table that is absent: not at all */
};

static inline int64_t attention_tiles(int64_t length)
{
    return (length + ATTENTION_TILE - 1) / ATTENTION_TILE;
}

/* Words of a row of skipping.kept. */
static inline int64_t attention_kept_words(int64_t length)
{
    return (attention_tiles(length) + 31) / 32;
}

/* Of a call that recorded skip.kept, all of it in this process's memory: the tiles used, of all
 * that the mask leaves; and the largest share of a query's weight that was left out, in double
 * precision and pair by pair (left_out.c). */
struct skip_count {
    int64_t used, all;
};
struct skip_count attention_count(const struct attention *a);
double attention_left_out(const struct attention *a);

/* A random mask, keyed so that forward and backward draw the same one: element i is dropped if its
 * 32-bit uniform number is below p; kept elements are divided by 1 - p. dropout.h computes it. */
struct dropout {
    double p; /* 0: none */
    uint64_t seed, stream;
};

/* Weight decay is on the first `decaying` elements of a call, and not on those behind them. */
struct adamw {
    double lr, beta1, beta2, eps, weight_decay;
    double gradient_scale; /* factor on the gradient: clipping */
    int64_t step;          /* from 1, for the bias correction */
    int64_t decaying;
};

struct nesterov {
    double lr, previous_lr, momentum, weight_decay, gradient_scale;
    int64_t decaying;
};

/* The memory of a device in bytes. free: for tensors and workspace, including what the backend
 * holds for itself and would use again, so that a plan that fits once fits again. peak: the most
 * that was used since reset_peak. The host's own memory is not ours to count: total and free are 0
 * there, used and peak are the library's. */
struct device_memory {
    size_t total, free, used, peak;
};

/* Where the time went, for benchmarks. */
enum { DEVICE_PARTS_MAX = 32 };
struct device_part {
    const char *name; /* "attention forward" */
    double seconds;
    int64_t calls;
};

struct ops {
    const char *name; /* "ref", "cpu", "cuda" */
    struct device_traits traits;

    /* ---- the device as a whole */

    alibi_status (*finish)(struct device *dev);
    void (*memory)(struct device *dev, struct device_memory *memory);
    void (*reset_peak)(struct device *dev);
    /* At most so many bytes of its own does a backend take for passes over B x L tokens of such
     * heads, beyond the tensors it is handed. Without training: forward passes over them, at once
     * or a few at a time. SIZE_MAX: more than there can be. */
    size_t (*workspace)(struct device *dev, int64_t B, int64_t L, int64_t H, int64_t D,
                        bool training);
    /* From the first call on the time of each kind of operation is kept; parts [DEVICE_PARTS_MAX],
     * zeroed as they are read. */
    alibi_status (*read_parts)(struct device *dev, struct device_part *parts, int *count);

    /* ---- memory */

    alibi_status (*buffer_new)(struct device *dev, void **out, size_t bytes, const char *what);
    void (*buffer_free)(struct device *dev, void *buffer);

    /* Between host floats (32-bit ids for I32) and a contiguous tensor of any type. */
    alibi_status (*upload)(struct device *dev, struct tensor dst, const void *host);
    alibi_status (*download)(struct device *dev, void *host, struct tensor src);

    /* dst = value everywhere; contiguous. */
    alibi_status (*fill)(struct device *dev, struct tensor dst, double value);

    /* dst = src; views of the same shape [B, L, H, D], of any two floating types. */
    alibi_status (*copy)(struct device *dev, struct tensor dst, struct tensor src);

    /* ---- embedding
     *
     *   y[b, l] = scale * weight[tokens[b, l]] + table[start + l]
     *
     * y [B, L, C]; tokens I32 [B, L], each in 0..V-1; weight [V, C]; table S [P, C] with P >= start
     * + L, may be absent. */
    alibi_status (*embedding_forward)(struct device *dev, struct tensor y, struct tensor tokens,
                                      struct tensor weight, struct tensor table, int64_t start,
                                      double scale);
    /* dweight S [V, C], dtable S [P, C] (may be absent) accumulate. */
    alibi_status (*embedding_backward)(struct device *dev, struct tensor dweight,
                                       struct tensor dtable, struct tensor dy, struct tensor tokens,
                                       int64_t start, double scale);

    /* ---- linear
     *
     *   y = x weight^T + bias
     *
     * x [rows, in]; y [rows, out]; weight [out, in]; bias [out], may be absent. */
    alibi_status (*linear_forward)(struct device *dev, struct tensor y, struct tensor x,
                                   struct tensor weight, struct tensor bias);
    /* dx = dy weight; dweight += dy^T x; dbias += column sums of dy. dweight S, dbias S. Each of
     * the three may be absent; without dweight x is not looked at. */
    alibi_status (*linear_backward)(struct device *dev, struct tensor dx, struct tensor dweight,
                                    struct tensor dbias, struct tensor dy, struct tensor x,
                                    struct tensor weight);

    /* A linear layer with its activation:   up = x weight^T + bias,   activated = act(up)
     *
     * activated [rows, F]; up [rows, F] (2F for swiglu) for the backward pass; where nobody wants
     * it, it is scratch. bias may be absent. */
    alibi_status (*linear_activation_forward)(struct device *dev, int kind, struct tensor activated,
                                              struct tensor up, struct tensor x,
                                              struct tensor weight, struct tensor bias);
    /* Back through y = act(up) weight^T + bias:
     *
     *   dup = (dy weight) act'(up),   dweight += dy^T activated,   dbias += column sums of dy,
     * dup_sums += column sums of dup
     *
     * scratch [rows, F]; dup has the shape of up, and may be up itself or, for other kinds than
     * swiglu, scratch. dup_sums S, the gradient of the bias in up, and dbias may be absent. */
    alibi_status (*linear_activation_backward)(struct device *dev, int kind, struct tensor dup,
                                               struct tensor dup_sums, struct tensor scratch,
                                               struct tensor dweight, struct tensor dbias,
                                               struct tensor dy, struct tensor activated,
                                               struct tensor weight, struct tensor up);

    /* ---- layer norm, with the residual before it
     *
     *   sum = x + drop(branch),   y = (sum - mean) * rstd * weight + bias,     rstd = 1 / sqrt(var
     * + eps)
     *
     * x, branch, sum, y [rows, C]; weight, bias S [C], bias may be absent; mean, rstd S [rows] are
     * kept for the backward pass. sum may be x. Where branch is absent so is sum, and y is the norm
     * of x; y may be x then. The norm is that of sum as it is stored, so the norm of sum alone
     * gives the same bits. */
    alibi_status (*layernorm_forward)(struct device *dev, struct tensor y, struct tensor mean,
                                      struct tensor rstd, struct tensor sum, struct tensor x,
                                      struct tensor branch, struct dropout drop,
                                      struct tensor weight, struct tensor bias, double eps);
    /* dx accumulates (the residual stream's gradient is already there). dweight, dbias S. y, which
     * may be absent, gets what forward gave, so that nobody need keep it; dbias and bias are absent
     * together. */
    alibi_status (*layernorm_backward)(struct device *dev, struct tensor dx, struct tensor dweight,
                                       struct tensor dbias, struct tensor y, struct tensor dy,
                                       struct tensor x, struct tensor weight, struct tensor bias,
                                       struct tensor mean, struct tensor rstd);

    /* ---- RMS norm
     *
     *   sum = x + drop(branch),   y = sum * rstd * weight + bias,     rstd = 1 / sqrt(mean(sum^2) +
     * eps)
     *
     * Shapes, absences and types as for layer norm; no mean. */
    alibi_status (*rmsnorm_forward)(struct device *dev, struct tensor y, struct tensor rstd,
                                    struct tensor sum, struct tensor x, struct tensor branch,
                                    struct dropout drop, struct tensor weight, struct tensor bias,
                                    double eps);
    alibi_status (*rmsnorm_backward)(struct device *dev, struct tensor dx, struct tensor dweight,
                                     struct tensor dbias, struct tensor y, struct tensor dy,
                                     struct tensor x, struct tensor weight, struct tensor bias,
                                     struct tensor rstd);

    /* ---- activation
     *
     *   gelu tanh   y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
     *   gelu erf    y = x/2 (1 + erf(x / sqrt(2)))
     *   relu        y = max(x, 0)
     *   swiglu      y = silu(g) * u,  silu(g) = g / (1 + e^-g),  a row of x is g[F] then u[F]
     *
     * kind is enum alibi_activation; y [rows, F]; x [rows, F], or [rows, 2F] for swiglu. */
    alibi_status (*activation_forward)(struct device *dev, int kind, struct tensor y,
                                       struct tensor x);
    /* dx has the shape of x and may be x itself (the forward's input is then lost), or dy where
     * that has the same shape. */
    alibi_status (*activation_backward)(struct device *dev, int kind, struct tensor dx,
                                        struct tensor dy, struct tensor x);

    /* ---- residual and dropout
     *
     *   y = x + drop(branch)           all of one shape; y may be x */
    alibi_status (*residual_forward)(struct device *dev, struct tensor y, struct tensor x,
                                     struct tensor branch, struct dropout drop);
    /*   y = drop(x): dropout alone, and the backward of both; y may be x */
    alibi_status (*dropout)(struct device *dev, struct tensor y, struct tensor x,
                            struct dropout drop);

    /* ---- attention
     *
     *   s(i, j) = scale * q_i . k_j + bias(h, i - j)     j <= i
     *   y_i = sum_j softmax_j(s(i, .)) v_j,              lse_i = log sum_j exp(s(i, j))
     *
     * y view [B, Lq, H, D]; lse S [B, H, Lq], in the unshifted form above. No buffer of floats
     * grows with Lq * Lk. */
    alibi_status (*attention_forward)(struct device *dev, struct tensor y, struct tensor lse,
                                      struct attention a);
    /* For Lq = Lk. dq, dk, dv views shaped like q, k, v; dq and dk are gradients of q and k as they
     * were before they were turned. dbias S like bias.values, accumulates, may be absent. For
     * linear bias dbias is the gradient of the slopes. */
    alibi_status (*attention_backward)(struct device *dev, struct tensor dq, struct tensor dk,
                                       struct tensor dv, struct tensor dbias, struct tensor dy,
                                       struct tensor y, struct tensor lse, struct attention a);

    /* norms[b, h, t] = max |k_j| over the keys j of tile t, for the tiles with keys from..Lk-1; k
     * view [B, Lk, Hkv, D]. For a cache that grows: only the tiles that changed are done again. */
    alibi_status (*attention_norms)(struct device *dev, struct tensor norms, struct tensor k,
                                    int64_t from);

    /* ---- rotary
     *
     *   (a, b) <- (a cos t - b sin t, a sin t + b cos t)     for each pair of a head, t = angle of
     * (position, pair)
     *
     * x view [B, L, H, D], in place. direction 1 rotates, -1 rotates back: the backward pass. */
    alibi_status (*rotary)(struct device *dev, struct tensor x, struct rotation r, int direction);

    /* ---- bias by bucket
     *
     *   table[h, d] = weight[bucket[d], h]
     *
     * table S [H, T]; weight S [buckets, H]; bucket I32 [T]. */
    alibi_status (*bucket_forward)(struct device *dev, struct tensor table, struct tensor weight,
                                   struct tensor bucket);
    /* dweight accumulates. */
    alibi_status (*bucket_backward)(struct device *dev, struct tensor dweight, struct tensor dtable,
                                    struct tensor bucket);

    /* ---- softmax cross-entropy
     *
     *   nll[r] = log sum_v exp(logits[r, v]) - logits[r, target[r]],     dlogits = scale * (softmax
     * - onehot)
     *
     * logits [rows, V]; targets I32 [rows], -1: not scored (nll 0, gradient 0); nll S [rows].
     * dlogits may be absent (evaluation) and may be logits. */
    alibi_status (*cross_entropy)(struct device *dev, struct tensor nll, struct tensor dlogits,
                                  struct tensor logits, struct tensor targets, double scale);

    /* ---- optimizer
     *
     * AdamW (Loshchilov, Hutter 2019), g = gradient_scale * gradient, t = step:
     *   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
     *   w = w - lr * weight_decay * w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
     * All S [count]; copy, which may be absent, is of any type and gets the new weights. Meant for
     * all parameters in one call: decay is a matter of the position, and where gradient and state
     * are 0, as between tensors, a weight of 0 stays 0. */
    alibi_status (*adamw)(struct device *dev, struct tensor w, struct tensor copy, struct tensor m,
                          struct tensor v, struct tensor gradient, struct adamw a);
    /* Nesterov momentum as the paper's code has it, r = lr / previous_lr:
     *   w = w - lr * weight_decay * w + momentum^2 r u - (1 + momentum) lr g;  u = momentum r u -
     *   lr g */
    alibi_status (*nesterov)(struct device *dev, struct tensor w, struct tensor copy,
                             struct tensor u, struct tensor gradient, struct nesterov n);

    /* *sum (on the host) = the sum of the squares, in double and in a fixed order; not finite if an
     * element is not. */
    alibi_status (*sum_squares)(struct device *dev, double *sum, struct tensor x);

    /* *sum (on the host) = the sum of the elements, in double and in a fixed order. */
    alibi_status (*sum)(struct device *dev, double *sum, struct tensor x);
};

/* The devices of this process (device.c). The host needs no state. */
extern const struct ops ops_ref;
const struct ops *ops_cpu(
    void); /* the reference with the CPU's overrides for the vector unit found at run time */

/* The public device: a backend's device, and the type of the models on it. */
struct alibi_device {
    struct device device;
    enum dtype type;
    bool gpu;
    char name[ALIBI_DEVICE_NAME_MAX];
    void (*close)(struct device *device);
    pthread_mutex_t lock; /* device.lock, on a GPU */
};

/* Around every pass, and around whatever else calls operations on its own. Nests. */
void device_lock(struct device *dev);
void device_unlock(struct device *dev);

size_t device_peak(struct device *dev); /* bytes: the most in use since reset_peak */

#endif
