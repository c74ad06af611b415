/* position.h - position methods, as data that the model reads
 *
 * A method says where it acts, what it learns, which options it has, and how to compute it. Adding
 * one is one file, one row in position.c and one section in docs/positions.md. The position of a
 * model is a pattern: a method with its options for each layer. */
#ifndef POSITION_H
#define POSITION_H

#include "base/base.h"
#include "ops/ops.h"

enum position_place {
    POSITION_NOWHERE,
    POSITION_EMBEDDING, /* adds a row to each embedding, once */
    POSITION_ROTATION,  /* rotates queries and keys in its layers */
    POSITION_SCORES,    /* biases the scores in its layers, by distance or by gates */
};

enum { POSITION_OWN_BYTES = 96 };

/* The position of a layer: a method with its options. */
struct position {
    const struct position_method *method;
    int64_t window; /* a query sees at most this many keys, its own the last; 0: all before it */
    int64_t sinks;  /* with a window: a query also sees this many first keys */
    double temperature; /* c: queries are multiplied by 1 + c ln(max(1, n / training length)) for
                           the n keys that they see, except in training */
    bool logn;          /* queries are multiplied by s_h ln(n), s_h learned */
    _Alignas(8) char own[POSITION_OWN_BYTES]; /* the struct of the method's options */
};

struct position_method {
    const char *name;
    const char *summary;
    enum position_place acts_on;

    /* The method's own options, with offsets in a struct of its file, which fits `own`. defaults:
     * copies those that are also options of the model; NULL: none are. */
    const struct alibi_option *options;
    int option_count;
    void (*defaults)(const struct alibi_config *c, void *own);

    /* ALIBI_USAGE names an option that does not fit the model. NULL: nothing to check. */
    alibi_status (*check)(const struct alibi_config *c, const struct position *p);

    /* The longest input it is defined for; NULL: any. */
    int64_t (*longest)(const struct position *p);

    /* The tensor that it learns, [shape[0], shape[1]], shared by all its layers. NULL, or no rows:
     * it learns nothing. */
    void (*parameter_shape)(const struct alibi_config *c, const struct position *p,
                            int64_t shape[2]);

    /* EMBEDDING without a parameter: C numbers. ROTATION: D/2 cosines, then D/2 sines. NULL: the
     * parameter is the table. */
    void (*row)(const struct alibi_config *c, const struct position *p, int64_t position,
                float *row);
    /* ROTATION: enum alibi_rotary_layout. */
    int (*layout)(const struct position *p);

    /* ROTATION: tau of BIAS_GAIN; NULL, or 0: scores have no factor. */
    double (*tau)(const struct position *p);

    /* The share of the training steps after which its layers have no position; NULL: all. */
    double (*until)(const struct position *p);

    /* SCORES. LINEAR: the slope of head h; a parameter [1, H] holds factors on the slopes, which
     * start at 1 and are never below 0. TABLE with buckets: the bias is weight[bucket(distance)][h]
     * for distances below `distances`, and that of the last one beyond. TABLE with a curve: it is
     * the curve of ops.h by the two numbers of the head, a parameter [2, H]. GATE: each layer
     * learns its own matrix and bias for the gates; `initial` initialises that bias. */
    enum bias_kind bias;
    float (*slope)(const struct alibi_config *c, const struct position *p, int64_t h);
    /* The number of heads without a bias, which are the last ones; NULL: none. */
    int64_t (*free_heads)(const struct alibi_config *c, const struct position *p);
    int64_t (*distances)(const struct position *p);
    int32_t (*bucket)(const struct position *p, int64_t distance);
    enum curve_kind (*curve)(const struct position *p);
    /* The initial numbers of head h, if not 0; uniform: a random number in 0..1. */
    double (*initial)(const struct alibi_config *c, const struct position *p, int64_t row,
                      int64_t h, double uniform);
    /* The name of a row of these numbers, and the value as in the equation; NULL: the number
     * itself. */
    const char *(*number)(const struct position *p, int64_t row);
    double (*shown)(const struct position *p, int64_t row, double weight);
};

extern const struct position_method position_none, position_learned, position_sinusoidal,
    position_rotary, position_t5, position_alibi, position_kerple, position_bam, position_fox;

/* Head h's of `heads` slopes that end at 2^-bias_max (alibi.c). */
float alibi_slope(int64_t heads, double bias_max, int64_t h);

/* A name for a pattern. An option of a preset replaces the value that the pattern writes. An option
 * that the pattern does not write is set in the elements whose method has it. */
struct position_preset {
    const char *name, *summary, *pattern;
};

extern const struct position_preset position_reach, position_hybrid, position_alibi_free,
    position_drope, position_scale_invariant;

const struct position_preset *preset_at(int index);          /* NULL past the end */
const struct position_preset *preset_find(const char *name); /* NULL: none */

/* The number of heads on which logn acts, which are the last ones: those without a bias, or all if
 * each has one. */
static inline int64_t position_logn_heads(const struct alibi_config *c, const struct position *p)
{
    int64_t heads = p->method->free_heads ? p->method->free_heads(c, p) : 0;

    return heads > 0 ? heads : c->heads;
}

/* The number of heads with gates, which are the first ones. */
static inline int64_t position_gates(const struct alibi_config *c, const struct position *p)
{
    return p->method->bias == BIAS_GATE ? c->heads - p->method->free_heads(c, p) : 0;
}

/* Accepts other common names too, such as "rope" for "rotary"; results have the method's own name.
 * ALIBI_USAGE names the nearest method. */
alibi_status position_find(const struct position_method **out, const char *name);
const struct position_method *position_at(int index); /* NULL past the end */

/* ---- patterns (pattern.c) */

enum { PATTERN_KINDS = 16, PATTERN_RUNS = 32 };

/* Runs of layers. After the last run the pattern begins again. Layers with the same method and
 * options are of one kind and share what it learns. */
struct pattern {
    const struct position_preset *preset; /* that it was read from; NULL: none */
    int kinds;
    struct position kind[PATTERN_KINDS];
    int runs;
    struct {
        int64_t layers;
        int kind;
    } run[PATTERN_RUNS];
    int64_t length; /* layers of all runs */
};

/* Reads c->position: "alibi", "alibi:bias-max=16", "3*rotary:window=64,none" or "hybrid:window=32".
 * ALIBI_USAGE names the element, and what may be there instead. */
alibi_status pattern_read(struct pattern *out, const struct alibi_config *c);

/* The canonical name of a pattern, which reads back as that pattern: with the same options of the
 * model, equal patterns have equal names. */
alibi_status pattern_name(char out[ALIBI_NAME_MAX], const struct pattern *p,
                          const struct alibi_config *c);

/* The name of the pattern that is trained after `done` of `steps` steps: layers whose method has
 * ended (`until`) have no position any more. */
alibi_status pattern_name_after(char out[ALIBI_NAME_MAX], const struct pattern *p,
                                const struct alibi_config *c, int64_t done, int64_t steps);

/* The share of a training after which the first layers lose their position; 1: none does. */
double pattern_until(const struct pattern *p);
/* ALIBI_USAGE if a position for tests, which have no steps, has such an end. */
alibi_status pattern_check_endless(const struct pattern *p, const char *name);

/* The name of the pattern with that temperature in all layers that see more keys than in training.
 */
alibi_status pattern_name_tempered(char out[ALIBI_NAME_MAX], const struct pattern *p,
                                   const struct alibi_config *c, double temperature);

/* Appends, as ":share=0.25:spread", the options of methods that layers have in `was` and not in
 * `is`, although the method is the same and `written`, the text of `is`, does not set them. */
alibi_status pattern_dropped(struct text *out, const struct pattern *was, const struct pattern *is,
                             const char *written, int64_t layers);

/* ALIBI_USAGE if the pattern does not fit a model of that configuration. */
alibi_status pattern_check(const struct pattern *p, const struct alibi_config *c);

int pattern_kind(const struct pattern *p, int64_t layer); /* the kind of a layer */

/* The name of the tensor that a kind learns: "position.weight", or "position.2.weight". */
enum { POSITION_WEIGHT_MAX = 32 };
void pattern_weight_name(char out[POSITION_WEIGHT_MAX], int kind);

/* The name as a file name: with letters, digits, dots, dashes and underscores only. */
void pattern_file_name(char out[ALIBI_NAME_MAX], const char *name);

#endif
