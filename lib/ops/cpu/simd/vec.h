/* vec.h - vectors of SIMD_WIDTH floats, and the few functions of them that the kernels need
 *
 * Written with the compiler's vector types, so one source serves every instruction set. Arithmetic
 * operators work lane by lane, and a scalar operand applies to all lanes. Loads and stores take any
 * address. */
#ifndef VEC_H
#define VEC_H

#include <math.h>
#include <stdint.h>

typedef float vec __attribute__((vector_size(SIMD_WIDTH * 4)));
typedef uint32_t vec_bits __attribute__((vector_size(SIMD_WIDTH * 4)));
typedef int32_t vec_mask
    __attribute__((vector_size(SIMD_WIDTH * 4))); /* lanes 0 or -1, as comparisons give them */
typedef float vec_anywhere __attribute__((vector_size(SIMD_WIDTH * 4), aligned(4), may_alias));

#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE vec vec_load(const float *p)
{
    return *(const vec_anywhere *)p;
}

VEC_INLINE void vec_store(float *p, vec x)
{
    *(vec_anywhere *)p = x;
}

/* x in all lanes; subtracting zero, unlike adding it, is no operation even for -0. */
VEC_INLINE vec vec_all(float x)
{
    return x - (vec){ 0 };
}

/* The ends of rows. Kept out of line: an index that varies puts a vector into memory, and the whole
 * loop around it too. */
__attribute__((noinline, unused)) static vec vec_load_end(const float *p, int64_t n)
{
    vec x = { 0 };

    for (int64_t l = 0; l < n; l++)
        x[l] = p[l];
    return x;
}

__attribute__((noinline, unused)) static void vec_store_end(float *p, vec x, int64_t n)
{
    for (int64_t l = 0; l < n; l++)
        p[l] = x[l];
}

/* The first n lanes, 1 <= n; all of them where n allows it. Missing lanes are 0. */
VEC_INLINE vec vec_load_some(const float *p, int64_t n)
{
    return __builtin_expect(n >= SIMD_WIDTH, 1) ? vec_load(p) : vec_load_end(p, n);
}

VEC_INLINE void vec_store_some(float *p, vec x, int64_t n)
{
    if (__builtin_expect(n >= SIMD_WIDTH, 1))
        vec_store(p, x);
    else
        vec_store_end(p, x, n);
}

VEC_INLINE vec vec_select(vec_mask where, vec yes, vec no)
{
    return (vec)((where & (vec_mask)yes) | (~where & (vec_mask)no));
}

/* Where either is NaN, b. */
VEC_INLINE vec vec_max(vec a, vec b)
{
    return vec_select(a > b, a, b);
}

VEC_INLINE vec vec_min(vec a, vec b)
{
    return vec_select(a < b, a, b);
}

VEC_INLINE vec vec_abs(vec x)
{
    return (vec)((vec_bits)x & 0x7FFFFFFFu);
}

/* Lane numbers, and the lanes `half` further on, cyclically: constants for shuffles. */
#if SIMD_WIDTH == 4
#define VEC_LANES ((vec_mask){ 0, 1, 2, 3 })
#elif SIMD_WIDTH == 8
#define VEC_LANES ((vec_mask){ 0, 1, 2, 3, 4, 5, 6, 7 })
#else
#define VEC_LANES ((vec_mask){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 })
#endif

/* Lanes of a and b by number, those of b from SIMD_WIDTH on; `lanes` is a constant. */
#if defined __clang__ /* which makes one instruction of the loop */
VEC_INLINE vec vec_shuffle(vec a, vec b, vec_mask lanes)
{
    vec x = { 0 };

#pragma clang loop unroll(full)
    for (int l = 0; l < SIMD_WIDTH; l++)
        x[l] = lanes[l] < SIMD_WIDTH ? a[lanes[l]] : b[lanes[l] - SIMD_WIDTH];
    return x;
}
#else
#define vec_shuffle(a, b, lanes) __builtin_shuffle(a, b, lanes)
#endif
#define VEC_ROTATE(x, half) vec_shuffle(x, x, VEC_LANES + (half))

/* The first n lanes, 0 in the others. */
VEC_INLINE vec vec_first(vec x, int64_t n)
{
    return n >= SIMD_WIDTH ? x : (vec)((VEC_LANES < (int32_t)n) & (vec_mask)x);
}

/* The sum and the maximum over the lanes, in halves: always the same order. */
VEC_INLINE float vec_sum(vec x)
{
    if (SIMD_WIDTH > 8)
        x += VEC_ROTATE(x, 8);
    if (SIMD_WIDTH > 4)
        x += VEC_ROTATE(x, 4);
    x += VEC_ROTATE(x, 2);
    x += VEC_ROTATE(x, 1);
    return x[0];
}

VEC_INLINE float vec_largest(vec x)
{
    if (SIMD_WIDTH > 8)
        x = vec_max(x, VEC_ROTATE(x, 8));
    if (SIMD_WIDTH > 4)
        x = vec_max(x, VEC_ROTATE(x, 4));
    x = vec_max(x, VEC_ROTATE(x, 2));
    x = vec_max(x, VEC_ROTATE(x, 1));
    return x[0];
}

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln(2)/2, for x <= 88.
 *
 * e^r = 1 + r + r^2 p(r) with p of degree 4, the minimax polynomial: 3e-9 off. Adding 1.5 * 2^23
 * rounds to an integer, which is then in the low bits, here with the exponent's offset 127 in it.
 * ln 2 is split so that n times its high part is exact. Below `lowest`, -87.33 at least, where the
 * result would not be a normal number, it is 0; so -inf gives 0. NaN stays NaN. */
VEC_INLINE vec vec_exp_above(vec x, const float lowest)
{
    const float to_integer = 0x1.8p23f + 127.0f;
    vec clamped = vec_max(vec_all(lowest), x);
    vec shifted = clamped * 0x1.715476p+0f + to_integer;
    vec n = shifted - to_integer;
    vec r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    vec p = 0.00138145986f * r + 0.00836871688f;

    p = p * r + 0.041668388f;
    p = p * r + 0.166665206f;
    p = p * r + 0.499999934f;
    p = (p * r) * r + r + 1.0f;
    return (vec)((vec_bits)(p * (vec)((vec_bits)shifted << 23)) & ~(vec_bits)(x < lowest));
}

VEC_INLINE vec vec_exp_to_88(vec x)
{
    return vec_exp_above(x, -87.33f);
}

/* For terms of a sum that has a term of 1: those below e^-60 are far under its rounding and become
 * 0. Kept, their products with other numbers would be denormal, and an FMA on such takes a hundred
 * times as long on some CPUs. */
VEC_INLINE vec vec_exp_term(vec x)
{
    return vec_exp_above(x, -60.0f);
}

/* e^x for any x: infinity above 88.37. */
VEC_INLINE vec vec_exp(vec x)
{
    const float highest = 88.37f;
    vec y = vec_exp_to_88(vec_min(vec_all(highest), x));

    return vec_select(x > highest, vec_all(INFINITY), y);
}

/* v[l][m] <-> v[m][l]. At each step the rows r and r + half exchange the blocks off the
 * diagonal. */
#define VEC_EXCHANGE(v, half)                                                                      \
    for (int r = 0; r < SIMD_WIDTH; r++)                                                           \
        if (!(r & (half))) {                                                                       \
            vec upper = (v)[r], lower = (v)[r + (half)];                                           \
            (v)[r] = vec_shuffle(                                                                  \
                upper, lower, VEC_LANES + (VEC_LANES & (half)) / (half) * (SIMD_WIDTH - (half)));  \
            (v)[r + (half)] = vec_shuffle(                                                         \
                upper, lower,                                                                      \
                VEC_LANES + (half) + (VEC_LANES & (half)) / (half) * (SIMD_WIDTH - (half)));       \
        }

VEC_INLINE void vec_transpose(vec v[SIMD_WIDTH])
{
#if SIMD_WIDTH > 8
    VEC_EXCHANGE(v, 8)
#endif
#if SIMD_WIDTH > 4
    VEC_EXCHANGE(v, 4)
#endif
    VEC_EXCHANGE(v, 2)
    VEC_EXCHANGE(v, 1)
}

/* Lane l of the result is vec_sum(v[l]), to the bit: each step adds the halves of two vectors and
 * keeps both sums in one. */
#define VEC_FOLD(v, half)                                                                          \
    for (int r = 0; r < (half); r++) {                                                             \
        vec upper = (v)[r], lower = (v)[r + (half)];                                               \
        (v)[r] = vec_shuffle(upper, lower,                                                         \
                             VEC_LANES + (VEC_LANES & (half)) / (half) * (SIMD_WIDTH - (half))) +  \
                 vec_shuffle(upper, lower,                                                         \
                             VEC_LANES + (half) +                                                  \
                                 (VEC_LANES & (half)) / (half) * (SIMD_WIDTH - (half)));           \
    }

VEC_INLINE vec vec_sums(vec v[SIMD_WIDTH])
{
#if SIMD_WIDTH > 8
    VEC_FOLD(v, 8)
#endif
#if SIMD_WIDTH > 4
    VEC_FOLD(v, 4)
#endif
    VEC_FOLD(v, 2)
    VEC_FOLD(v, 1)
    return v[0];
}

#endif
