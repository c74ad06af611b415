/* device.c - which device work runs on */
#include "ops/ops.h"

struct device device_default(void)
{
    return (struct device){ .ops = ops_cpu() };
}
