/* ops.h - the operations a transformer needs, as one table of functions
 *
 * The model calls this table and nothing else. ref/ fills every entry in plain C; another backend
 * starts as a copy of the reference table and overrides the entries it has faster. An operation
 * with more than a few operands takes one struct of them, the same for forward and backward:
 * members that a direction does not mention are not read by it. These contracts hold for every
 * backend:
 *
 *   - Types: T is the type of activations, F32, F64 or BF16; S = dtype_sums(T) is the type of sums,
 *     statistics, losses and gradients of parameters. Weights and biases of linear layers,
 *     embeddings and activations are T, everything else is S where the contract says S. All tensors
 *     of one call agree in T. (A backend may hand a type that it does not have to the reference.)
 *   - Tensors are contiguous unless the contract says "view": then the last two dimensions' strides
 *     are D and 1, and the others are free.
 *   - Outputs are overwritten, except gradients of parameters (dweight, dbias, dtable, dslopes ...)
 *     and tensors that "accumulate": those are added to. With `first`, dweight is overwritten too,
 *     whatever it held, by what adding to zeros would give (the sign of a 0 may differ).
 *   - A tensor that "may be absent" is then zero-initialised, or tensor_none().
 *   - Results do not depend on the number of threads beyond the order of sums that CBLAS chooses,
 *     and repeat bit for bit for the same number of threads.
 *   - Any dimension may be zero. The caller guarantees shapes; values (token ids, non-finite
 *     numbers) were checked where they entered the program. */
#ifndef OPS_H
#define OPS_H

#include <pthread.h>

#include "base/base.h"
#include "ops/tensor.h"

/* One device with its table of operations. `state` is the backend's own. Work may still be running
 * when an operation has returned; downloads, sums and finish() wait for it, and report its errors.
 */
struct device {
    const struct ops *ops;
    void *state;
    pthread_mutex_t *lock; /* one thread at a time may call the operations; NULL: any number may */
    int autotune;          /* enum alibi_autotune, of training steps */
};

/* How much work at a time keeps a device busy. */
struct device_traits {
    int64_t logits;       /* of the output layer: full speed, and small beside everything else */
    int64_t wave;         /* tiles of 128 x 256 results that it computes at once; 0: it has none */
    int64_t row_multiple; /* of products whose rows vary: fewer shapes to choose kernels for */
    int64_t batch_tokens; /* of a batch of an evaluation */
    int64_t prefill_tokens; /* of a prompt */
    int64_t decode_rows;    /* of a product in decoding: room for that many saves copies; 0: any */
    int warm_up_steps;      /* until its products are tuned, before steps are timed */
    int timed_calls;        /* between two waits, so that waiting does not count */
    bool times_parts;       /* read_parts has something to tell */
    bool own_memory;        /* tensors are not in the host's memory */
};

/* ---- the device as a whole */

typedef alibi_status finish_fn(struct device *dev); /* waits for all work */

/* A caller with a stream of its own, and with memory for the operations if it gives some. */
struct caller {
    void *stream;
    void *workspace; /* may be absent */
    size_t bytes;    /* of it */
};

/* Between caller_begins and caller_ends work is queued as part of the caller's: after what is in
 * its stream already, and before what it queues there later. Operations take scratch memory from
 * its workspace alone; without one, from the device's own. */
typedef alibi_status caller_fn(struct device *dev, const struct caller *caller);

/* A second stream, as that of a caller, for the exchange with devices of other processes. It lives
 * as the device does. */
typedef alibi_status link_fn(struct device *dev, void **stream);
/* Remembers, as mark 0..DEVICE_MARKS-1, the point that a caller's stream has reached: after all
 * work that is in it so far. */
enum { DEVICE_MARKS = 64 };
typedef alibi_status caller_mark_fn(struct device *dev, const struct caller *caller, int mark);
/* Whether all work before the mark is complete, without waiting for it. */
typedef alibi_status caller_done_fn(struct device *dev, int mark, bool *done);

/* The memory of a device in bytes. free: for tensors and workspace, including what the backend
 * holds for itself and would use again, so that a plan that fits once fits again. peak: the most
 * that was used since reset_peak. The host's own memory is not ours to count: total and free are 0
 * there, used and peak are the library's. */
struct device_memory {
    size_t total, free, used, peak;
};
typedef void memory_fn(struct device *dev, struct device_memory *memory);
typedef void reset_peak_fn(struct device *dev);

/* An upper bound on the bytes that the backend takes for itself, beyond the tensors it is handed,
 * for passes over B x L tokens of such heads. Without training: forward passes over them, at once
 * or a few at a time. SIZE_MAX: more than there can be. */
struct workspace_args {
    int64_t B, L, H, D;
    int64_t largest;   /* elements of the largest weight matrix */
    int64_t distances; /* T of the longest table of biases; 0: there is none */
    bool training;
    bool wide; /* products have the fastest of all algorithms, TUNING_WIDE */
};
typedef size_t workspace_fn(struct device *dev, const struct workspace_args *a);

/* Where the time went. From the first call on, the time of each kind of operation is kept, without
 * waiting for any; parts [DEVICE_PARTS_MAX] are zeroed as they are read. parts NULL: times are kept
 * no longer, until the next call. */
enum { DEVICE_PARTS_MAX = 32 };
struct device_part {
    const char *name; /* "attention forward" */
    double seconds;
    int64_t calls;
};
typedef alibi_status read_parts_fn(struct device *dev, struct device_part *parts, int *count);

/* Where a GPU is on the PCI bus, as its driver writes it: "0000:01:00.0". The same in all processes
 * of a machine. */
enum { DEVICE_ADDRESS_MAX = 32 };
typedef alibi_status address_fn(struct device *dev, char address[DEVICE_ADDRESS_MAX]);

/* ---- the algorithms of matrix products
 *
 * A device may have several algorithms for a product, which round differently, and find out by
 * timing them which is the fastest. */
enum tuning {
    TUNING_SAME_BITS, /* among those that give the same bits: what was timed changes no result */
    TUNING_WIDE,      /* a product that runs for the first time gets the fastest of all */
    TUNING_FIXED,     /* products keep what was chosen for them; others as with SAME_BITS */
};

/* The choices of TUNING_WIDE. The bytes are the device's own. */
enum { PRODUCT_BYTES = 40, ALGORITHM_BYTES = 64, CHOICES_BY_MAX = 192 };
struct product_choice {
    unsigned char product[PRODUCT_BYTES], algorithm[ALGORITHM_BYTES];
};
struct choices {
    char by[CHOICES_BY_MAX]; /* who can use them: the device, its library and their version */
    int count;
    struct product_choice *list; /* sorted, so that the same choices are the same bytes */
    int dropped;                 /* of those that were set, algorithms that are not there any more:
                                    their products have other bits than before */
};
/* SAME_BITS and WIDE forget all choices. */
typedef void tune_fn(struct device *dev, enum tuning how);
typedef void get_choices_fn(struct device *dev, struct choices *out); /* until the next product */
/* Replaces all choices by these, which are of a device with the same `by`, and implies
 * TUNING_FIXED. */
typedef alibi_status set_choices_fn(struct device *dev, const struct choices *given);

/* ---- work that repeats
 *
 * A step of decoding calls the same operations with the same tensors again and again: tokens and
 * lengths are numbers in device memory. A device may record the calls of such a piece of work and
 * run them as one from then on. The caller promises that the work of a key is always the same,
 * unless a buffer of the device was freed since, and that it neither moves numbers between host and
 * device nor makes or frees buffers. */
struct work_key {
    const void *workspace, *cache;
    int64_t rows;
};
enum replay {
    REPLAY_NONE,   /* call the operations */
    REPLAY_RECORD, /* call them, then replay_end(), which runs them */
    REPLAY_DONE,   /* nothing is left to do */
};
typedef alibi_status replay_fn(struct device *dev, struct work_key key, enum replay *how);
/* `status`: that of the operations. *how is REPLAY_NONE if they could not be recorded. */
typedef alibi_status replay_end_fn(struct device *dev, alibi_status status, enum replay *how);

/* ---- operands that several operations share */

/* A random mask, keyed so that forward and backward draw the same one: element i is dropped if its
 * 32-bit uniform number is below p; the others are divided by 1 - p. dropout.h computes it. Four
 * elements share one block of random numbers: neighbours, except in attention. */
struct dropout {
    double p; /* 0: none; below 1 */
    uint64_t seed, stream;
};

/* Decoding several sequences of different lengths in one call. Row b of the call is the newest
 * token of the sequence in slot[b] of a cache; with it that sequence has length[b] tokens, so the
 * row's position is length[b] - 1. Both I32 [B]; slots are distinct, lengths are at least 1. For
 * attention slots may repeat, or be absent: then slot[b] is b.
 * Absent: all rows of the call have the same positions. A row's result has the same bits as in a
 * call of that row alone. */
struct ragged {
    struct tensor slot, length; /* slot is read by operations on a cache only */
};

static inline struct ragged ragged_none(void)
{
    return (struct ragged){ .slot = tensor_none(), .length = tensor_none() };
}

static inline bool ragged_present(struct ragged r)
{
    return r.length.data != NULL;
}

/* Sequences of different lengths, one after another in views [1, total, H, D]: sequence b has the
 * queries q[b]..q[b + 1] - 1 and the keys k[b]..k[b + 1] - 1, at least as many. Both I32 [B + 1],
 * ascending, from 0 to at most the total. Absent: the views are [B, L, H, D]. A sequence's result
 * is that of a call of it alone. */
struct packed {
    struct tensor q, k;
    int64_t Lq, Lk; /* of the longest sequence */
};

static inline bool packed_present(struct packed p)
{
    return p.q.data != NULL;
}

/* ---- memory */

typedef alibi_status buffer_new_fn(struct device *dev, void **out, size_t bytes, const char *what);
typedef void buffer_free_fn(struct device *dev, void *buffer);

/* Between host floats (32-bit ids for I32) and a contiguous tensor of any type. */
typedef alibi_status upload_fn(struct device *dev, struct tensor dst, const void *host);
typedef alibi_status download_fn(struct device *dev, void *host, struct tensor src);

/* dst = value everywhere; contiguous. */
typedef alibi_status fill_fn(struct device *dev, struct tensor dst, double value);

/* dst = src; views of the same shape [B, L, H, D], of any two floating types. */
typedef alibi_status copy_fn(struct device *dev, struct tensor dst, struct tensor src);

/* ---- embedding
 *
 *   y[b, l] = scale * weight[tokens[b, l]] + table[position],     position = start + l
 *
 * With ragged, L is 1 and the position is length[b] - 1. Backward: dweight and dtable accumulate;
 * it does not read weight and table. Without a table this is also how rows are gathered. */
struct embedding_args {
    struct tensor y;      /* [B, L, C] */
    struct tensor tokens; /* I32 [B, L], each in 0..V-1 */
    struct tensor weight; /* [V, C] */
    struct tensor table;  /* S [P, C], P greater than every position; may be absent */
    int64_t start;
    struct ragged ragged; /* forward only */
    double scale;
    struct tensor dy, dweight, dtable; /* dweight, dtable S; either may be absent */
};
typedef alibi_status embedding_fn(struct device *dev, const struct embedding_args *a);

/* ---- linear
 *
 *   y = x weight^T + bias
 *   dx = dy weight,   dweight += dy^T x,   dbias += column sums of dy
 *
 * Each of dx, dweight and dbias may be absent; without dweight, backward does not read x.
 *
 * decoding: a row of y has the same bits whatever the number of rows in the call, and few rows
 * stream the weights from memory once for all of them. x and y may have memory for more rows than
 * are in the call, `room` in all: what is in the others does not matter, and is lost. Without
 * decoding a product may take whichever order of sums is fastest for its shape.
 *
 * norm: x is the y of that norm, which is computed first; a device may do both at once. All outputs
 * of the norm are written, as by norm_forward. Its x and branch may be read while results are
 * written, so they share no memory with its y and sum, nor with the y of the layer. */
struct linear_args {
    struct tensor y;      /* [rows, out] */
    struct tensor x;      /* [rows, in] */
    struct tensor weight; /* [out, in] */
    struct tensor bias;   /* [out]; may be absent */
    bool decoding;
    int64_t room;                         /* decoding; 0: no more than there are rows */
    const struct norm_args *norm;         /* forward; NULL: x is there */
    struct tensor dy, dx, dweight, dbias; /* dweight, dbias S */
    bool first;                           /* backward: dweight is overwritten */
};
typedef alibi_status linear_fn(struct device *dev, const struct linear_args *a);

/* ---- linear layers around an activation
 *
 * Forward, through the layer before it:
 *
 *   up = x weight^T + bias,     activated = dropout(act(up))
 *
 * norm as in linear_args: its x and branch share no memory with up and activated either.
 *
 * Backward, through the layer after it, y = activated weight^T + bias:
 *
 *   dup = dropout(dy weight) act'(up),   dup_sums += column sums of dup
 *   dweight += dy^T activated,    dbias += column sums of dy
 *
 * up has F columns, 2F for swiglu. Forward keeps it for backward; in inference it is scratch. dup
 * has the shape of up, and may be up itself or, for kinds other than swiglu, scratch. */
struct linear_activation_args {
    int kind; /* enum alibi_activation */
    struct tensor activated, up;
    struct tensor weight; /* forward: [F or 2F, in]; backward: [out, F] */
    struct tensor x;      /* forward: [rows, in] */
    struct tensor bias;   /* forward; may be absent */
    bool decoding;        /* forward, as in linear_args; x and up have the room */
    int64_t room;
    const struct norm_args *norm; /* forward; NULL: x is there */
    struct dropout dropout;       /* on activated */
    struct tensor dy;             /* backward: [rows, out] */
    struct tensor dup, scratch;   /* scratch [rows, F] */
    struct tensor dup_sums;       /* S, the gradient of the bias in up; may be absent */
    struct tensor dweight, dbias; /* S; dbias may be absent */
    bool first;                   /* backward: dweight is overwritten */
};
typedef alibi_status linear_activation_fn(struct device *dev,
                                          const struct linear_activation_args *a);

/* ---- normalisation over the last dimension, with the residual added first
 *
 *   sum = x + dropout(branch),   y = (sum - mean) * rstd * weight + bias
 *   rstd = 1 / sqrt(mean((sum - mean)^2) + eps)
 *
 * For RMS norm the mean is 0 and the tensor `mean` is not used. Without a branch, sum is absent too
 * and y is the norm of x; y may then be x. With one, sum may be x. The norm is that of sum as it is
 * stored, so the norm of sum alone gives the same bits.
 *
 * Backward is that of y = norm(x): dx accumulates (the residual stream's gradient is already
 * there), and so do dweight and dbias. If y is present it receives forward's result again, bit for
 * bit, so that nobody has to keep it. bias and dbias are absent together. dx_sums += column sums of
 * the new dx, as stored: the gradient of the bias of the layer before, in the order of sums that
 * suits this pass. */
struct norm_args {
    int kind;                   /* enum alibi_norm */
    struct tensor y, sum;       /* [rows, C] */
    struct tensor mean, rstd;   /* S [rows], kept for backward */
    struct tensor x, branch;    /* [rows, C]; branch may be absent */
    struct tensor weight, bias; /* S [C]; bias may be absent */
    struct dropout dropout;     /* on branch */
    double eps;
    struct tensor dy, dx;         /* [rows, C] */
    struct tensor dweight, dbias; /* S [C] */
    struct tensor dx_sums;        /* S [C]; may be absent */
};
typedef alibi_status norm_fn(struct device *dev, const struct norm_args *a);

/* ---- activation
 *
 *   gelu tanh   y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   gelu erf    y = x/2 (1 + erf(x / sqrt(2)))
 *   relu        y = max(x, 0)
 *   swiglu      y = silu(g) * u,  silu(g) = g / (1 + e^-g),  a row of x is g[F] then u[F]
 *
 * kind is enum alibi_activation; y [rows, F]; x [rows, F], which y may be, or [rows, 2F] for
 * swiglu. */
typedef alibi_status activation_forward_fn(struct device *dev, int kind, struct tensor y,
                                           struct tensor x);
/* dx has the shape of x and may be x itself (the forward's input is then lost), or dy if that has
 * the same shape. */
typedef alibi_status activation_backward_fn(struct device *dev, int kind, struct tensor dx,
                                            struct tensor dy, struct tensor x);

/* ---- residual and dropout
 *
 *   y = x + dropout(branch)           all of one shape; y may be x */
typedef alibi_status residual_fn(struct device *dev, struct tensor y, struct tensor x,
                                 struct tensor branch, struct dropout drop);
/*   y = dropout(x): dropout alone, and the backward pass of both; y may be x */
typedef alibi_status dropout_fn(struct device *dev, struct tensor y, struct tensor x,
                                struct dropout drop);

/* ---- rotary
 *
 *   (a, b) <- (a cos t - b sin t, a sin t + b cos t)     t = angle of (row, pair)
 *
 * for each pair of a head, in place. Pair n is elements (n, n + D/2) in the layout of halves,
 * (2n, 2n + 1) in the layout of pairs. x view [B, L, H, D]. direction 1 rotates, -1 rotates back:
 * the backward pass. The table has the rows of the call and no others, so it does not grow with the
 * text. */
struct rotation {
    struct tensor table; /* S [at least L, D]: D/2 cosines then D/2 sines for each of the L rows */
    int layout;          /* enum alibi_rotary_layout */
};
typedef alibi_status rotary_fn(struct device *dev, struct tensor x, struct rotation r,
                               int direction);

/* ---- logn: queries by the logarithm of how many keys they see
 *
 *   y[b, l, h] = factor[h] * ln(max(n, 2)) * x[b, l, h]
 *   y[b, l, h] = (1 + temperature * ln(max(1, n / length))) * x[b, l, h]          without a factor
 *
 * n counts the keys that a query at that position sees: all up to its own, or the last `window` of
 * them. Row l is at position start + l. Backward, with a factor: dx = factor[h] * ln(max(n, 2)) *
 * dy, and dfactor accumulates the sums of ln(max(n, 2)) dy . x. */
struct logn_args {
    struct tensor y, x;    /* views [B, L, H, D]; y may be x */
    struct tensor factor;  /* S [H]; may be absent */
    double temperature;    /* without a factor */
    int64_t length;        /* at least 1 */
    int64_t start;         /* position of the first row */
    int64_t window;        /* 0: none */
    struct ragged ragged;  /* L = 1: the position of row b is length[b] - 1; forward only */
    struct tensor dy, dx;  /* views like x; dx may be dy */
    struct tensor dfactor; /* S [H] */
};
typedef alibi_status logn_fn(struct device *dev, const struct logn_args *a);

/* max(n, 2) at a position. */
static inline int64_t logn_keys(int64_t position, int64_t window)
{
    int64_t n = window > 0 && position >= window ? window : position + 1;

    return n < 2 ? 2 : n;
}

/* ---- head norm: queries and keys by the root mean square of each head, then rotated
 *
 *   y[b, l, h] = R(n * weight),     n = x[b, l, h] * rstd
 *   rstd = 1 / sqrt(mean(x[b, l, h]^2) + eps)
 *
 * R is the rotation of row l, if `rotation` has a table. The first `queries` heads have
 * q_weight, the others, those of keys, k_weight. Backward, with g = R^-1(dy) * weight and the mean
 * over the head: dx = rstd * (g - n * mean(g * n)), and the gradients of the weights accumulate the
 * sums of R^-1(dy) * n over their heads and all rows. It computes rstd again. */
struct head_norm_args {
    struct tensor y, x;               /* views [B, L, H, D]; y may be x */
    int64_t queries;                  /* 0 to H */
    struct tensor q_weight, k_weight; /* S [D] */
    double eps;
    struct rotation rotation;
    struct tensor dy, dx;               /* views like x; dx may be dy */
    struct tensor dq_weight, dk_weight; /* S [D] */
};
typedef alibi_status head_norm_fn(struct device *dev, const struct head_norm_args *a);

/* ---- gates
 *
 *   c[b, h, l] = c[b, h, l - 1] + log f,     f = 1 / (1 + e^-(z[b, l, h] + bias[h]))
 *
 * The rows of z are the last L of the Lk positions of c, and the sum continues from the position
 * before them; it begins with 0. c falls without end, and attention needs differences of it, at
 * any distance from the beginning. So it is two numbers, c = values[0] + values[1]: the sum as S
 * has it, and what S does not hold of it, 48 bits in F32. Sums are in double.
 *
 * Backward, for L = Lk:  dz = dc' (1 - f),  dc'[l] = sum of dc[j] over j >= l,   dbias += sums of
 * dz over all rows. */
struct gate_args {
    struct tensor c;      /* S view [2, B, G, Lk], last stride 1; slots and capacity with ragged */
    struct tensor z;      /* [B L, G] */
    struct tensor bias;   /* S [G] */
    struct ragged ragged; /* L = 1: row b is position length[b] - 1 of slot[b]; forward only */
    struct tensor dc;     /* S [B, G, L] */
    struct tensor dz;     /* [B L, G]; may be z */
    struct tensor dbias;  /* S [G] */
};
typedef alibi_status gate_fn(struct device *dev, const struct gate_args *a);

/* ---- attention
 *
 *   s(i, j) = gain(i - j) scale q_i . k_j + bias(h, i, j)
 *   y_i = sum_j softmax_j(s(i, .)) v_j,     lse_i = log sum_j exp(s(i, j))
 *
 * for j <= i, and i - j < window if there is one. gain is 1 except for BIAS_GAIN.
 *
 * Queries are the last Lq of Lk positions: query i is at position Lk - Lq + i and sees the keys
 * 0..Lk - Lq + i, or the last `window` of them. Full attention has Lq = Lk, decoding Lq = 1;
 * chunked prefill is between. Query head h reads key/value head h / (H / Hkv). No buffer of floats
 * grows with Lq * Lk. Tiles of keys outside the window are not visited: a call costs Lq * window.
 *
 * With dropout, for Lq = Lk, the weights are dropped after the softmax:
 *
 *   y_i = sum_j dropout(softmax_j(s(i, .))) v_j
 *
 * so lse and what may be skipped do not change, except that the error of y is within 1 / (1 - p)
 * times the bound. The four weights of queries i, i + 8 and keys j, j + 8 (bit 3 of i and j is
 * clear) share a block of random numbers: in the register layout of tensor cores they belong to one
 * thread in both directions. attention_element() of dropout.h numbers them. */

/* Bias on scores: by the distance i - j >= 0, or by gates that are closed between j and i. The
 * distance is an integer; the bias is formed in the type of the scores. */
enum bias_kind {
    BIAS_NONE,
    BIAS_LINEAR, /* -slopes[h] * distance */
    BIAS_TABLE,  /* table[h][min(distance, T - 1)] */
    BIAS_GATE,   /* c[b, h, i] - c[b, h, j], c from gate_forward; 0 for heads from G on */
    BIAS_GAIN,   /* 1 - gain^2, gain = sqrt(1 + 2 ln(1 + distance / tau)); it has no gradient */
};

struct bias {
    enum bias_kind kind;
    struct tensor values; /* S; LINEAR: slopes [H], or [B, H] of each sequence; TABLE: [H, T];
                             GATE: struct gate_args, c */
    double tau;           /* GAIN: > 0 */
};

/* Skipping keys that cannot matter (docs/attention.md has the proof). Keys are taken in tiles of
 * ATTENTION_TILE. A tile is skipped by a query tile if a bound on its scores proves for each query
 * i that all skipped tiles together have at most eps times the weight of the tiles that were used:
 *
 *   |y_i - exact| <= 2 eps max_j |v_j|,     0 <= exact lse_i - lse_i <= eps
 *
 * beyond rounding. The gradients are those of the attention that was computed. A backend may use
 * all tiles. */
enum { ATTENTION_TILE = 64 };

struct skipping {
    double eps;          /* 0: every pair is computed */
    struct tensor norms; /* S [B, Hkv, tiles of Lk] from attention_norms; absent: the call computes
                            them */
    struct tensor kept;  /* I32 [B, H, tiles of Lq, words of Lk]: bit t % 32 of word t / 32 says
                            that key tile t was used. Forward writes it, if Lk - Lq is a multiple of
                            a tile; backward visits those tiles only. Absent: not recorded, and
                            backward visits all */
};

/* A token of each of several sequences joins their cache, where p = length[b] - 1, and again where
 * p = other[b] - 1, if `other` is present:
 *
 *   k[slot[b], p] = new_k[b, 0],   v[slot[b], p] = new_v[b, 0]
 *   norms[slot[b], h, tile of p] = max |k_j| over the keys j of the tile up to p
 *
 * The norm of the tile's keys before p must be there, as an earlier call left it. The two places of
 * a token are the same, or in different tiles. */
struct cache_append_args {
    struct tensor k, v;         /* views [slots, capacity, Hkv, D] */
    struct tensor norms;        /* S [slots, Hkv, tiles of capacity] */
    struct tensor new_k, new_v; /* views [B, 1, Hkv, D], of the type of k and v */
    struct ragged ragged;
    struct tensor other; /* I32 [B]; may be absent */
};
typedef alibi_status cache_append_fn(struct device *dev, const struct cache_append_args *a);

/* Forward writes y and lse. Backward, for Lq = Lk, reads them and writes dq, dk and dv, which are
 * gradients of q and k before their rotation; dbias accumulates.
 *
 * With ragged, forward decodes: Lq = 1; k and v are the cache's views [slots, capacity, Hkv, D], of
 * which row b reads the first length[b] keys of slot[b]; skip.norms is [slots, Hkv, tiles of
 * capacity]; gates are [2, slots, G, capacity]; skip.kept is absent.
 *
 * With append, the tokens join the cache first; a device may do both at once. append.k, v, norms
 * and ragged are k, v, skip.norms and ragged, and row b of new_k and new_v is the newest token of
 * row b. Slots are distinct. If append.other is another place than the token's, it is in no tile of
 * keys that the row sees.
 *
 * Packed sequences have slopes or no bias, no dropout, and no record of skipping; lse is [1, H,
 * total of the queries]. In backward packed.k is packed.q. Rows that belong to no sequence
 * keep what they have, and must be finite. */
struct attention_args {
    struct tensor q;    /* view [B, Lq, H, D] */
    struct tensor k, v; /* views [B, Lk, Hkv, D] */
    struct bias bias;
    double scale;   /* on q . k, as a rule 1/sqrt(D); the bias is not scaled */
    int64_t window; /* how many keys a query sees at most, its own the last; 0: all before it */
    struct dropout dropout; /* on the weights; none unless Lq = Lk */
    struct skipping skip;
    struct ragged ragged;
    const struct cache_append_args *append; /* ragged; may be absent */
    struct packed packed;
    struct tensor y;          /* view [B, Lq, H, D] */
    struct tensor lse;        /* S view [B, H, Lq], last stride 1, in the unshifted form above */
    struct tensor dy;         /* view like y */
    struct tensor dq, dk, dv; /* views like q, k, v */
    struct tensor dbias; /* S, like the bias; may be absent. GATE: of c, [B, G, Lk], overwritten
                          */
    struct rotation rotation; /* backward: how q and k were rotated before, so that dq and dk are
                                 rotated back; table absent: they were not */
};
typedef alibi_status attention_fn(struct device *dev, const struct attention_args *a);

/* Bytes of workspace that a call takes from a caller who gives one. Tensors need no data: absent
 * are only those that the call will not have. */
typedef size_t attention_workspace_fn(struct device *dev, const struct attention_args *a,
                                      bool backward);

/* norms[b, h, t] = max |k_j| over the keys j of tile t, for the tiles with keys from..Lk-1; k view
 * [B, Lk, Hkv, D]. A cache that grows computes only the tiles that changed. */
typedef alibi_status attention_norms_fn(struct device *dev, struct tensor norms, struct tensor k,
                                        int64_t from);

/* ---- sinks: the first keys of a sequence, which every query sees although they left its window
 *
 * After attention in a window, for the keys j < sinks at i - j >= window:
 *
 *   s(i, j) = gain(i' - j) scale q'_i . k_j + bias(h, i', j),       i' = min(i, window + sinks - 1)
 *   lse'_i = log(exp(lse_i) + sum_j exp(s(i, j)))
 *   y'_i = exp(lse_i - lse'_i) y_i + sum_j dropout(exp(s(i, j) - lse'_i)) v_j
 *
 * where q'_i is q_i rotated as at position i', if q and k are rotated: the query sees sinks and
 * window as if there had been no text between them, so no distance grows with the text.
 *
 * Backward comes after attention_backward, which reads the y' and lse' of this forward pass: then
 * its gradients are those of its own keys. This one adds those of the sinks to dq, dk, dv and
 * dbias; dq and dk are gradients of q and k as they are here, after their rotation. */
struct sinks_args {
    struct tensor q;    /* view [B, Lq, H, D], as attention read it */
    struct tensor k, v; /* views [B, n, Hkv, D]: the first keys, n <= sinks; ragged: [slots, ..] */
    struct bias bias;   /* by distance, not by gates */
    double scale;
    int64_t window, sinks;    /* window > 0, sinks <= SINKS_MAX */
    int64_t start;            /* position of the first query */
    struct ragged ragged;     /* Lq = 1: the position of query b is length[b] - 1; forward only */
    struct rotation rotation; /* how q and k were rotated: ragged query b by row b of the table;
                                 table absent: they were not */
    struct tensor farthest;   /* with a table S [D]: its row of position window + sinks - 1 */
    struct dropout dropout;   /* on the weights; none unless all keys are here: Lq of them */
    struct tensor y, lse;     /* as attention wrote them; updated in place */
    struct tensor dy;         /* view like y */
    struct tensor dq, dk, dv; /* views like q, k, v; accumulate */
    struct tensor dbias;      /* as in attention; may be absent */
};
enum { SINKS_MAX = 32 };
typedef alibi_status sinks_fn(struct device *dev, const struct sinks_args *a);

/* How many of n first keys are sinks of a query at that position: the others it sees anyway. */
static inline int64_t sinks_seen(int64_t position, int64_t window, int64_t n)
{
    int64_t left = position - window + 1;

    return left < 0 ? 0 : left < n ? left : n;
}

/* The first key that a query at that position sees. */
static inline int64_t attention_first_key(int64_t position, int64_t window)
{
    return window > 0 && position >= window ? position - window + 1 : 0;
}

static inline int64_t attention_tiles(int64_t length)
{
    return (length + ATTENTION_TILE - 1) / ATTENTION_TILE;
}

/* Words of a row of skipping.kept. */
static inline int64_t attention_kept_words(int64_t length)
{
    return (attention_tiles(length) + 31) / 32;
}

/* For a call that recorded skip.kept, with all tensors in this process's memory: the tiles used, of
 * all that the mask leaves; and the largest share of a query's weight that was skipped, in double
 * precision and pair by pair (skipped.c). */
struct skip_count {
    int64_t used, all;
};
struct skip_count attention_count(const struct attention_args *a);
int64_t attention_all_tiles(const struct attention_args *a); /* skip_count.all; reads no tensor */
double attention_skipped(const struct attention_args *a);

/* A part of a sequence, whose earlier keys are elsewhere: which tiles of them its queries need
 * (needed.c). All in this process's memory, as fp32. */
struct needed_args {
    int64_t first;      /* tiles before the part */
    int64_t Lq, H, Hkv; /* of the part */
    struct bias bias;   /* of NONE and GAIN, and of heads without gates, all tiles in the window are
                           needed */
    int64_t window;     /* as in attention */
    double scale;       /* as in attention */
    double eps;         /* weight of all keys that are not needed, relative to exp(lse) */
    const float *norms; /* [Hkv, first], of attention_norms */
    const float *queries; /* [Lq, H]: norms of the queries */
    const float *lse;     /* [H, Lq]: of some keys of the part, such as the nearest */
    /* GATE: c at the last key of each tile before the part, [G, first], and at the first query of
     * each tile of it, [G, tiles]. */
    const double *key_gates, *query_gates;
    int64_t words; /* of a row of needed */
};
/* Sets bit t % 32 of word t / 32 of row kv of needed [Hkv, words]. */
alibi_status attention_needed(const struct needed_args *a, uint32_t *needed);
/* Whether some tile may not be needed: otherwise norms, queries and lse are not read. */
bool attention_may_skip(const struct bias *bias, double eps);

/* Where the weight of a head goes: sums over queries. Bin 0 is distance 0, bin b > 0 the distances
 * 2^(b-1) .. 2^b - 1. */
enum { REACH_BINS = 64 };
struct head_reach {
    int64_t queries;
    double weight[REACH_BINS];
    double beyond;   /* the weight at distances >= near */
    double distance; /* the weighted mean distance */
    double entropy;  /* of the weights, nats */
};
int reach_bin(int64_t distance);

/* Adds the queries from, from + step, .. of a call that wrote lse to heads [H]; q, k, lse and the
 * bias are fp32 in this process's memory, and so are the rotation's angles if sinks followed; NULL:
 * there are none (reach.c). */
void attention_reach(const struct attention_args *a, const struct sinks_args *sinks, int64_t from,
                     int64_t step, int64_t near, struct head_reach *heads);

/* ---- bias by bucket
 *
 *   table[h, d] = weight[bucket[d], h]
 *
 * table S [H, T]; weight S [buckets, H]; bucket I32 [T]. Backward: dweight accumulates. */
typedef alibi_status bucket_forward_fn(struct device *dev, struct tensor table,
                                       struct tensor weight, struct tensor bucket);
typedef alibi_status bucket_backward_fn(struct device *dev, struct tensor dweight,
                                        struct tensor dtable, struct tensor bucket);

/* ---- bias by curve
 *
 *   table[h, d] = curve(u, v, d),   u = weight[0, h],   v = weight[1, h],   d = 0..T-1
 *
 *   log             -e^u ln(1 + e^v d)
 *   power           -e^u d^p,           p = 2 / (1 + e^-v)
 *   shifted power   -e^u (d + CURVE_SHIFT)^v
 *
 * table S [H, T]; weight S [2, H]. Backward: dweight accumulates. */
enum curve_kind {
    CURVE_LOG,
    CURVE_POWER,
    CURVE_SHIFTED_POWER,
};
#define CURVE_SHIFT 0.01

struct curve_args {
    enum curve_kind kind;
    struct tensor table, weight;
    struct tensor dtable, dweight;
};
typedef alibi_status curve_fn(struct device *dev, const struct curve_args *a);

/* ---- softmax cross-entropy
 *
 *   nll[r] = log sum_v exp(logits[r, v]) - logits[r, target[r]]
 *   dlogits = scale * (softmax - onehot)
 *
 * Only the first `classes` columns take part. The others are padding: they may hold anything, and
 * their gradient is 0. */
struct cross_entropy_args {
    struct tensor nll;     /* S [rows] */
    struct tensor dlogits; /* [rows, V]; absent in evaluation; may be logits */
    struct tensor logits;  /* [rows, V] */
    struct tensor targets; /* I32 [rows]; -1: not scored (nll 0, gradient 0) */
    int64_t classes;       /* 1..V, or 0: V */
    double scale;
};
typedef alibi_status cross_entropy_fn(struct device *dev, const struct cross_entropy_args *a);

/* The columns of logits that take part. */
static inline int64_t cross_entropy_classes(const struct cross_entropy_args *a)
{
    return a->classes > 0 ? a->classes : a->logits.shape[1];
}

/*   y[r, v] = logits[r, v] - log sum_u exp(logits[r, u]) + shift[r]         u, v = 0..n-1 */
struct log_softmax_args {
    struct tensor y;      /* S view [1, rows, 1, n] */
    struct tensor logits; /* [rows, n or more]: further columns are padding */
    struct tensor shift;  /* S view [1, rows, 1, 1]; may be absent */
};
typedef alibi_status log_softmax_fn(struct device *dev, const struct log_softmax_args *a);

/* ---- optimizers
 *
 * All tensors S [count], except copy, which is of any type, receives the new weights and may be
 * absent. One call is meant for all parameters: weight decay applies to the first `decaying`
 * elements, and where gradient and state are 0, as between tensors, a weight of 0 stays 0. */

/* AdamW (Loshchilov, Hutter 2019), g = gradient_scale * gradient, t = step:
 *
 *   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   w = w - lr * weight_decay * w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) */
struct adamw_args {
    struct tensor w, copy, m, v, gradient;
    double lr, beta1, beta2, eps, weight_decay;
    double gradient_scale; /* clipping */
    int64_t step;          /* from 1 */
    int64_t decaying;
};
typedef alibi_status adamw_fn(struct device *dev, const struct adamw_args *a);

/* Nesterov momentum as in the paper's code, r = lr / previous_lr:
 *
 *   w = w - lr * weight_decay * w + momentum^2 r u - (1 + momentum) lr g;  u = momentum r u - lr g
 */
struct nesterov_args {
    struct tensor w, copy, u, gradient;
    double lr, previous_lr, momentum, weight_decay, gradient_scale;
    int64_t decaying;
};
typedef alibi_status nesterov_fn(struct device *dev, const struct nesterov_args *a);

/* *sum (on the host) = the sum of the elements, or of their squares, in double and in a fixed
 * order. It is not finite if an element is not. */
typedef alibi_status sum_fn(struct device *dev, double *sum, struct tensor x);

/* ---- the table */

struct ops {
    const char *name; /* "ref", "cpu", "cuda" */
    struct device_traits traits;

    finish_fn *finish;
    caller_fn *caller_begins, *caller_ends;
    link_fn *link; /* NULL: the host itself */
    caller_mark_fn *caller_mark;
    caller_done_fn *caller_done;
    memory_fn *memory;
    reset_peak_fn *reset_peak;
    workspace_fn *workspace;
    read_parts_fn *read_parts;
    address_fn *address; /* NULL: it has none */
    tune_fn *tune;       /* NULL: a product has one algorithm */
    get_choices_fn *get_choices;
    set_choices_fn *set_choices;
    replay_fn *replay; /* NULL: nothing is recorded */
    replay_end_fn *replay_end;
    buffer_new_fn *buffer_new;
    buffer_free_fn *buffer_free;
    upload_fn *upload;
    download_fn *download;
    fill_fn *fill;
    copy_fn *copy;
    embedding_fn *embedding_forward, *embedding_backward;
    linear_fn *linear_forward, *linear_backward;
    linear_activation_fn *linear_activation_forward, *linear_activation_backward;
    norm_fn *norm_forward, *norm_backward;
    activation_forward_fn *activation_forward;
    activation_backward_fn *activation_backward;
    residual_fn *residual_forward;
    dropout_fn *dropout;
    rotary_fn *rotary;
    logn_fn *logn_forward, *logn_backward;
    head_norm_fn *head_norm_forward, *head_norm_backward;
    gate_fn *gate_forward, *gate_backward;
    attention_fn *attention_forward, *attention_backward;
    attention_workspace_fn *attention_workspace;
    attention_norms_fn *attention_norms;
    cache_append_fn *cache_append;
    sinks_fn *sinks_forward, *sinks_backward;
    bucket_forward_fn *bucket_forward;
    bucket_backward_fn *bucket_backward;
    curve_fn *curve_forward, *curve_backward;
    cross_entropy_fn *cross_entropy;
    log_softmax_fn *log_softmax;
    adamw_fn *adamw;
    nesterov_fn *nesterov;
    sum_fn *sum, *sum_squares;
};

/* The devices of this process (device.c). The host needs no state. */
extern const struct ops ops_ref;
/* The reference with the CPU's overrides, for the widest vector set that this machine has, or the
 * one that ALIBI_SIMD names. */
const struct ops *ops_cpu(void);
bool cpu_set_is_missing(const char *name); /* "avx512": NULL and "" are not missing */

/* The public device: a backend's device, and the type of the models on it. */
struct alibi_device {
    struct device device;
    enum dtype type;
    bool gpu;
    char name[ALIBI_DEVICE_NAME_MAX];
    void (*close)(struct device *device);
    pthread_mutex_t lock; /* device.lock, on a GPU */
};

/* Energy and clock of a GPU (meter.c). `library` may be NULL: NVIDIA's. ALIBI_DEVICE: it is not
 * there, or does not know the GPU. */
struct meter;
struct meter_reading {
    double joules; /* since some time in the past; NAN: it does not tell */
    double hertz;  /* of its multiprocessors, now; NAN: it does not tell */
};
alibi_status meter_open(struct meter **out, const char *library, const char *address);
struct meter_reading meter_read(struct meter *m);
void meter_close(struct meter *m); /* NULL is fine */

/* Around every pass, and around whatever else calls operations on its own. Nests. */
void device_lock(struct device *dev);
void device_unlock(struct device *dev);

/* Under the lock: the memory of the device, the most bytes in use since the last reset, the reset.
 */
void device_memory(struct device *dev, struct device_memory *memory);
size_t device_peak(struct device *dev);
void device_reset_peak(struct device *dev);

/* The algorithms of matrix products, under the lock. A device that has one for each has no
 * choices. */
void device_tune(struct device *dev, enum tuning how);
bool device_tunes_widely(const struct device *dev); /* it has choices, and --autotune wide */
void device_get_choices(struct device *dev, struct choices *out);
alibi_status device_set_choices(struct device *dev, const struct choices *given);

#endif
