/* size.h - size arithmetic that cannot wrap
 *
 * The one place where sizes that come from outside are added and multiplied. */
#ifndef SIZE_H
#define SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b (a + b); false, with *out untouched, if that does not fit. */
static inline bool size_multiply(size_t *out, size_t a, size_t b)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

static inline bool size_add(size_t *out, size_t a, size_t b)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

/* a + b; SIZE_MAX, which is more than any memory has, if that does not fit. */
static inline size_t size_sum(size_t a, size_t b)
{
    size_t sum;
    return size_add(&sum, a, b) ? sum : SIZE_MAX;
}

/* The product of `count` numbers, none negative. */
static inline bool size_product(size_t *out, const int64_t *factors, int count)
{
    size_t product = 1;
    for (int i = 0; i < count; i++)
        if (factors[i] < 0 || !size_multiply(&product, product, (size_t)factors[i]))
            return false;
    *out = product;
    return true;
}

#endif
