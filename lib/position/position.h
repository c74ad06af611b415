/* position.h - position methods, as data that the model reads
 *
 * A method says where it acts, what it learns, and how to compute it. Adding one is one file, one
 * row in position.c and one page in docs/positions.md. */
#ifndef POSITION_H
#define POSITION_H

#include "base/base.h"
#include "ops/ops.h"

enum position_place {
    POSITION_NOWHERE,
    POSITION_EMBEDDING, /* adds a row to each embedding, once */
    POSITION_ROTATION,  /* rotates queries and keys in every layer */
    POSITION_SCORES,    /* biases the scores by distance in every layer */
};

struct position_method {
    const char *name;
    const char *summary;
    enum position_place acts_on;

    /* Options that do not fit the method: ALIBI_USAGE names the option. NULL: nothing to check. */
    alibi_status (*check)(const struct alibi_config *c);

    /* The longest input it is defined for; NULL: any. */
    int64_t (*longest)(const struct alibi_config *c);

    /* What it learns: one tensor [shape[0], shape[1]], shared by all layers, named
     * "position.weight"; NULL, or no rows: nothing. */
    void (*parameter_shape)(const struct alibi_config *c, int64_t shape[2]);

    /* EMBEDDING without a parameter: C numbers. ROTATION: D/2 cosines, then D/2 sines. NULL: the
     * parameter is the table. */
    void (*row)(const struct alibi_config *c, int64_t position, float *row);

    /* SCORES. LINEAR: the slope of head h; a parameter [1, H] holds factors on the slopes, which
     * start at 1 and are never below 0. TABLE: the bias is weight[bucket(distance)][h] for
     * distances below `distances`, and that of the last one beyond. */
    enum bias_kind bias;
    float (*slope)(const struct alibi_config *c, int64_t h);
    int64_t (*distances)(const struct alibi_config *c);
    int32_t (*bucket)(const struct alibi_config *c, int64_t distance);
};

extern const struct position_method position_none, position_learned, position_sinusoidal,
    position_rotary, position_t5, position_alibi;

/* Other names that people use are understood, such as "rope" for "rotary"; what is written down is
 * the method's own name. ALIBI_USAGE names the nearest method. */
alibi_status position_find(const struct position_method **out, const char *name);
const struct position_method *position_at(int index); /* NULL past the end */

#endif
