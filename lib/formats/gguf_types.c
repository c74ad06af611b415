/* gguf_types.c - the numbers of tensors in GGUF files
 *
 * Q8_0: a block of 32 numbers x is a scale d and 32 signed bytes q, x = d q. As ggml has it,
 *
 *   d = max |x| / 127,   q = x * (1 / d) rounded to the nearest, ties away from 0
 *
 * in fp32, and d is stored in fp16 after q was computed. Bytes are copied, since rows need not be
 * aligned. */
#include <float.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "formats/gguf.h"
#include "ops/bf16.h"
#include "ops/fp16.h"

enum { BLOCK = 32 };

struct q8_block {
    uint16_t scale;
    int8_t at[BLOCK];
};
_Static_assert(sizeof(struct q8_block) == 34, "a block has no padding");

static void decode_f32(float *numbers, const void *bytes, int64_t count)
{
    memcpy(numbers, bytes, (size_t)count * sizeof *numbers);
}

static void encode_f32(void *bytes, const float *numbers, int64_t count)
{
    memcpy(bytes, numbers, (size_t)count * sizeof *numbers);
}

#define HALVES(type)                                                                               \
    static void decode_##type(float *numbers, const void *bytes, int64_t count)                    \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            uint16_t half;                                                                         \
            memcpy(&half, (const char *)bytes + 2 * i, sizeof half);                               \
            numbers[i] = type##_to_float(half);                                                    \
        }                                                                                          \
    }                                                                                              \
    static void encode_##type(void *bytes, const float *numbers, int64_t count)                    \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            uint16_t half = type##_from_float(numbers[i]);                                         \
            memcpy((char *)bytes + 2 * i, &half, sizeof half);                                     \
        }                                                                                          \
    }
HALVES(fp16)
HALVES(bf16)

static void decode_q8_0(float *numbers, const void *bytes, int64_t count)
{
    struct q8_block block;

    for (int64_t b = 0; b < count / BLOCK; b++) {
        memcpy(&block, (const char *)bytes + b * (int64_t)sizeof block, sizeof block);
        for (int i = 0; i < BLOCK; i++)
            numbers[b * BLOCK + i] = (float)block.at[i] * fp16_to_float(block.scale);
    }
}

static void encode_q8_0(void *bytes, const float *numbers, int64_t count)
{
    struct q8_block block;

    for (int64_t b = 0; b < count / BLOCK; b++) {
        const float *x = numbers + b * BLOCK;
        float most = 0, scale, inverse;
        for (int i = 0; i < BLOCK; i++)
            most = fmaxf(most, fabsf(x[i]));
        scale = most / 127;
        inverse = scale > 0 ? 1 / scale : 0;
        block.scale = fp16_from_float(scale);
        for (int i = 0; i < BLOCK; i++) /* 1 / scale may be infinite: such numbers are below fp16 */
            block.at[i] = (int8_t)(isfinite(inverse) ? roundf(x[i] * inverse) : 0);
        memcpy((char *)bytes + b * (int64_t)sizeof block, &block, sizeof block);
    }
}

static const struct gguf_type types[] = {
    { "F32", 0, 1, 4, decode_f32, encode_f32, FLT_MAX },
    { "F16", 1, 1, 2, decode_fp16, encode_fp16, 65519.996 /* 65520 rounds to infinity */ },
    { "BF16", 30, 1, 2, decode_bf16, encode_bf16, 0x1.fep+127 },
    { "Q8_0", 8, BLOCK, sizeof(struct q8_block), decode_q8_0, encode_q8_0, 65504.0 * 127 },
};

/* Types that a file may have and that are not read, so that they can be named. */
static const struct {
    const char *name;
    uint32_t id;
} others[] = {
    { "Q4_0", 2 },    { "Q4_1", 3 },     { "Q5_0", 6 },    { "Q5_1", 7 },     { "Q8_1", 9 },
    { "Q2_K", 10 },   { "Q3_K", 11 },    { "Q4_K", 12 },   { "Q5_K", 13 },    { "Q6_K", 14 },
    { "Q8_K", 15 },   { "IQ2_XXS", 16 }, { "IQ2_XS", 17 }, { "IQ3_XXS", 18 }, { "IQ1_S", 19 },
    { "IQ4_NL", 20 }, { "IQ3_S", 21 },   { "IQ2_S", 22 },  { "IQ4_XS", 23 },  { "I8", 24 },
    { "I16", 25 },    { "I32", 26 },     { "I64", 27 },    { "F64", 28 },     { "IQ1_M", 29 },
    { "TQ1_0", 34 },  { "TQ2_0", 35 },   { "MXFP4", 39 },
};

const struct gguf_type *gguf_type_named(const char *name)
{
    for (int i = 0; i < COUNT(types); i++)
        if (strcasecmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const struct gguf_type *gguf_type_of(uint32_t id, const char **name)
{
    *name = NULL;
    for (int i = 0; i < COUNT(types); i++)
        if (types[i].id == id)
            return &types[i];
    for (int i = 0; i < COUNT(others); i++)
        if (others[i].id == id)
            *name = others[i].name;
    return NULL;
}
