/* tensor.h - a view of numbers in some device's memory
 *
 * A tensor is passed by value and owns nothing. Rank at most 4; dimensions beyond the rank are 1.
 * Strides count elements. Only operations look at `data`: for a device other than the CPU it is not
 * an address of this process. */
#ifndef TENSOR_H
#define TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TENSOR_RANK_MAX = 4 };

enum dtype {
    DTYPE_F32,
    DTYPE_F64,  /* for the tests: finite differences need the digits */
    DTYPE_I32,  /* tokens, indices */
    DTYPE_BF16, /* the upper half of an F32, rounded to nearest even: activations and matrices on a
                   GPU */
};

struct tensor {
    void *data; /* NULL: absent, where a contract allows it */
    enum dtype type;
    int rank;
    int64_t shape[TENSOR_RANK_MAX];
    int64_t stride[TENSOR_RANK_MAX];
};

static inline size_t dtype_bytes(enum dtype type)
{
    return type == DTYPE_F64 ? 8 : type == DTYPE_BF16 ? 2 : 4;
}

/* The type of sums, statistics and losses of such numbers, and of the parameters and gradients that
 * belong to them. */
static inline enum dtype dtype_sums(enum dtype type)
{
    return type == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

static inline int64_t tensor_count(struct tensor t)
{
    return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
}

static inline struct tensor tensor_none(void)
{
    return (struct tensor){ .shape = { 0, 1, 1, 1 } };
}

/* Contiguous tensors of rank 1 to 4. */
static inline struct tensor tensor_4(void *data, enum dtype type, int64_t a, int64_t b, int64_t c,
                                     int64_t d)
{
    return (struct tensor){ data, type, 4, { a, b, c, d }, { b * c * d, c * d, d, 1 } };
}

static inline struct tensor tensor_3(void *data, enum dtype type, int64_t a, int64_t b, int64_t c)
{
    return (struct tensor){ data, type, 3, { a, b, c, 1 }, { b * c, c, 1, 1 } };
}

static inline struct tensor tensor_2(void *data, enum dtype type, int64_t rows, int64_t columns)
{
    return (struct tensor){ data, type, 2, { rows, columns, 1, 1 }, { columns, 1, 1, 1 } };
}

static inline struct tensor tensor_1(void *data, enum dtype type, int64_t count)
{
    return (struct tensor){ data, type, 1, { count, 1, 1, 1 }, { 1, 1, 1, 1 } };
}

/* The same numbers from element `offset` on, in another shape given by one of the makers above. */
static inline void *tensor_at(struct tensor t, int64_t offset)
{
    return (char *)t.data + (ptrdiff_t)offset * (ptrdiff_t)dtype_bytes(t.type);
}

/* Elements from..from+count-1 of a vector. */
static inline struct tensor vector_part(struct tensor vector, int64_t from, int64_t count)
{
    return tensor_1(tensor_at(vector, from), vector.type, count);
}

/* Rows from..from+count-1 of a tensor of rank 2. */
static inline struct tensor tensor_rows(struct tensor t, int64_t from, int64_t count)
{
    t.data = tensor_at(t, from * t.stride[0]);
    t.shape[0] = count;
    return t;
}

/* Heads within packed rows: row r of t (rank 2, B*L rows) holds, from column `column` on, H heads
 * of D numbers. The view is [B, L, H, D]. */
static inline struct tensor tensor_heads(struct tensor t, int64_t B, int64_t L, int64_t column,
                                         int64_t H, int64_t D)
{
    int64_t row = t.stride[0];
    return (
        struct tensor){ tensor_at(t, column), t.type, 4, { B, L, H, D }, { L * row, row, D, 1 } };
}

#endif
