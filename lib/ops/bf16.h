/* bf16.h - bfloat16: the upper half of a 32-bit float, 8 bits of precision with the range of all 32
 * */
#ifndef BF16_H
#define BF16_H

#include <stdint.h>
#include <string.h>

/* Exact. */
static inline float bf16_to_float(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float wide;

    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* To nearest, ties to even: half of the last place that stays, less 1 where that place is even,
 * carries into it. Numbers that are too large become infinite that way. A NaN stays one: its quiet
 * bit is among those that stay. */
static inline uint16_t bf16_from_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

#endif
