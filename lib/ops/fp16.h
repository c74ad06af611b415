/* fp16.h - IEEE half precision as files hold it: 11 bits of precision, up to 65504 */
#ifndef FP16_H
#define FP16_H

#include <stdint.h>
#include <string.h>

static inline float fp16_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff;
    uint32_t bits;
    float y;

    if (exponent == 0) { /* zero and subnormals: multiples of 2^-24 */
        y = (float)fraction * 0x1p-24f;
        memcpy(&bits, &y, sizeof bits);
    } else if (exponent == 31) { /* infinity and NaN */
        bits = 0x7f800000 | fraction << 13;
    } else {
        bits = (exponent + 127 - 15) << 23 | fraction << 13;
    }
    bits |= sign;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Rounds to nearest, ties to even; 65520 and more become infinity. */
static inline uint16_t fp16_from_float(float x)
{
    uint32_t bits, magnitude;
    uint16_t sign;

    memcpy(&bits, &x, sizeof bits);
    sign = (uint16_t)(bits >> 16 & 0x8000);
    magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) /* 2^16 and more, infinity, NaN */
        return (uint16_t)(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
    if (magnitude < 0x38800000) { /* below 2^-14: the sum with 0.5 is rounded at 2^-24 */
        float y;
        memcpy(&y, &magnitude, sizeof y);
        y += 0.5f;
        memcpy(&bits, &y, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1); /* a carry reaches the exponent, as it must */
    return (uint16_t)(sign | (magnitude - ((127 - 15) << 23)) >> 13);
}

#endif
