/* choosing.h - a device that has several algorithms for a product, and says which is the fastest
 *
 * The CPU, whose first linear product of a shape with TUNING_WIDE gets the algorithm that `fastest`
 * says then, as timing would: another one at another time. Algorithm n gives other bits than 0. */
#ifndef CHOOSING_H
#define CHOOSING_H

#include <stdlib.h>

#include "device.h"

enum { CHOOSING_MAX = 64 };

static struct {
    const char *by; /* the name of the device */
    unsigned char fastest;
    unsigned char offered; /* algorithms 0 .. offered - 1 */
    enum tuning how;
    struct product_choice list[CHOOSING_MAX];
    int count, dropped;
    struct ops table;
    struct alibi_device device;
} choosing;

static inline int choosing_order(const void *a, const void *b)
{
    return memcmp(a, b, PRODUCT_BYTES);
}

static inline void choosing_tune(struct device *dev, enum tuning how)
{
    (void)dev;
    if (how != TUNING_FIXED)
        choosing.count = 0;
    choosing.dropped = 0;
    choosing.how = how;
}

static inline void choosing_get(struct device *dev, struct choices *out)
{
    (void)dev;
    *out = (struct choices){ .count = choosing.count,
                             .list = choosing.list,
                             .dropped = choosing.dropped };
    snprintf(out->by, sizeof out->by, "%s", choosing.by);
}

static inline alibi_status choosing_set(struct device *dev, const struct choices *given)
{
    (void)dev;
    assert_true(given->count <= CHOOSING_MAX);
    memcpy(choosing.list, given->list, (size_t)given->count * sizeof *given->list);
    choosing.count = given->count;
    choosing.dropped = 0;
    choosing.how = TUNING_FIXED;
    return ALIBI_OK;
}

static inline int algorithm_of(const struct linear_args *a)
{
    struct product_choice wanted = { .algorithm = { choosing.fastest } }, *found;

    memcpy(wanted.product, a->y.shape, 2 * sizeof *a->y.shape);
    memcpy(wanted.product + 2 * sizeof *a->y.shape, &a->x.shape[1], sizeof *a->x.shape);
    found = bsearch(&wanted, choosing.list, (size_t)choosing.count, sizeof wanted, choosing_order);
    if (!found && choosing.how == TUNING_WIDE) {
        assert_true(choosing.count < CHOOSING_MAX);
        choosing.list[choosing.count++] = wanted;
        qsort(choosing.list, (size_t)choosing.count, sizeof wanted, choosing_order);
        return choosing.fastest;
    }
    if (found && found->algorithm[0] >= choosing.offered) {
        choosing.dropped++;
        memmove(found, found + 1,
                (size_t)(choosing.list + choosing.count - found - 1) * sizeof *found);
        choosing.count--;
        return 0;
    }
    return found ? found->algorithm[0] : 0;
}

static inline alibi_status choosing_linear(struct device *dev, const struct linear_args *a)
{
    TRY_RETURN(ops_cpu()->linear_forward(dev, a));
    ((float *)a->y.data)[0] += 0.001f * (float)algorithm_of(a);
    return ALIBI_OK;
}

/* `fastest` is the algorithm that the first step of the next training finds to be. */
static inline alibi_device *choosing_device(unsigned char fastest)
{
    choosing.by = "a device that chooses, version 1";
    choosing.fastest = fastest;
    choosing.offered = 8;
    choosing.table = *ops_cpu();
    choosing.table.linear_forward = choosing_linear;
    choosing.table.tune = choosing_tune;
    choosing.table.get_choices = choosing_get;
    choosing.table.set_choices = choosing_set;
    choosing.device = *test_device();
    choosing.device.device.ops = &choosing.table;
    choosing.device.device.autotune = ALIBI_AUTOTUNE_WIDE;
    return &choosing.device;
}

#endif
