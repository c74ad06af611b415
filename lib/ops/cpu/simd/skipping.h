/* skipping.h - key tiles that cannot matter
 *
 *   s(i, j) <= reach_i K + b_i         for every key j of a range, with
 *   reach_i = |scale q_i|,  K = max |k_j|,  b_i = max bias(h, i - j)
 *
 *   weight of the range <= w_i * (weight that row i has summed so far)
 *   w_i = g exp(reach_i K + b_i - m_i) / l_i
 *
 * with the running maximum m_i and sum l_i of attention.c. g counts the keys; under a slope they
 * fall geometrically, so no more than 1 / (1 - e^-|slope|) of them count. The sum l e^m only grows,
 * so a bound that holds when a range is skipped holds at the end. A range may be skipped if for
 * every row the bounds of all skipped ranges together stay within eps.
 *
 * Every step here errs upwards: by factors that exceed the rounding of fp32. A norm or score that
 * is not a number makes every comparison false, and nothing is skipped. */
#ifndef SIMD_SKIPPING_H
#define SIMD_SKIPPING_H

#include "ops/cpu/simd/attention.h"

/* The keys of one call. eps == 0: nothing may be skipped, and the other members are not set. */
struct bounds {
    float eps;
    const float
        *norms; /* of tile t of head kv of sequence b at [b * stride_b + kv * stride_kv + t] */
    int64_t stride_b, stride_kv;
    const int32_t *slot; /* the sequence that row b of a ragged call reads; NULL: b */
    float *ahead;        /* [B, Hkv, tiles]: the largest norm of tiles 0..t */
    float *beyond;       /* [H, tiles of T], of a table: its largest entry from t * TILE on */
    float *memory;       /* owned */
};

/* Keys first..last, all before every query of the tile. */
struct key_range {
    int64_t first, last;
    float norm; /* the largest */
};

#define bounds_init SIMD(bounds_init)
#define bounds_fini SIMD(bounds_fini)
#define bounds_tile SIMD(bounds_tile)
#define bounds_rest SIMD(bounds_rest)
#define bounds_reach SIMD(bounds_reach)
#define bounds_bias SIMD(bounds_bias)
#define bounds_count SIMD(bounds_count)
#define bounds_gain SIMD(bounds_gain)

alibi_status bounds_init(struct bounds *b, const struct heads *c);
void bounds_fini(struct bounds *b);

/* Keys first..last as one range: of one tile or two, and of any number. */
struct key_range bounds_tile(const struct bounds *b, int64_t row, int64_t kv, int64_t first,
                             int64_t last);
struct key_range bounds_rest(const struct bounds *b, const struct heads *c, int64_t row, int64_t kv,
                             int64_t first, int64_t last);

/* |scale * q|, rounded up. */
float bounds_reach(const struct heads *c, const float *query);

/* The largest bias at distances near..far, and how many of `keys` keys count at most. */
float bounds_bias(const struct bounds *b, const struct bias *bias, int64_t h, int64_t near,
                  int64_t far);
float bounds_count(const struct bias *bias, int64_t h, int64_t keys);

/* The largest gain x + 1 - gain^2 for a gain of near..far: it is concave, with its top at x / 2. */
float bounds_gain(float x, float near, float far);

/* Rounding of the exponential and of the quotient. */
static const float bound_margin = 1.001f;
/* Rounding of an exponent, relative to the sizes of what it is made of. */
static const float bound_rounding = 0x1p-20f;
/* Smaller exponents are taken as this one: vec_exp_term() makes them 0, and a bound must not. */
static const float bound_lowest = -59.0f;

#endif
