/* numbers.c - lists of numbers in order; Student's t and Wilson's interval, by which every room
 * decides that two numbers differ */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"

static int ascending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

void list_sort(struct alibi_int_list *list)
{
    int kept = 0;

    qsort(list->at, (size_t)list->count, sizeof list->at[0], ascending);
    for (int i = 0; i < list->count; i++)
        if (kept == 0 || list->at[i] != list->at[kept - 1])
            list->at[kept++] = list->at[i];
    list->count = kept;
}

/* From 10 on Fisher's expansion in 1/n around the normal quantile, to four digits. */
double student_t(int64_t n)
{
    static const double few[] = { INFINITY, 12.7062, 4.3027, 3.1824, 2.7764,
                                  2.5706,   2.4469,  2.3646, 2.3060, 2.2622 };
    const double z = 1.959964, z2 = z * z, x = 1 / (double)n;

    if (n < 10)
        return few[n > 0 ? n : 0];
    return z * (1 + x * ((z2 + 1) / 4 +
                         x * ((5 * z2 * z2 + 16 * z2 + 3) / 96 +
                              x * (3 * z2 * z2 * z2 + 19 * z2 * z2 + 17 * z2 - 15) / 384)));
}

void wilson_interval(double share, double n, double *low, double *high)
{
    static const double z = 1.959963984540054;
    double middle = share + z * z / (2 * n);
    double half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n));

    *low = fmax(0, (middle - half) / (1 + z * z / n));
    *high = fmin(1, (middle + half) / (1 + z * z / n));
}
