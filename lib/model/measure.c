/* measure.c - a device's time and memory, whether it is the host or not */
#include "model/model.h"

alibi_status device_finish(struct device *dev)
{
    return dev->ops->finish ? dev->ops->finish(dev) : ALIBI_OK;
}

size_t device_peak(struct device *dev)
{
    struct device_memory memory = { 0 };

    if (!dev->ops->memory)
        return alibi_memory_peak();
    dev->ops->memory(dev, &memory);
    return memory.peak;
}

void device_reset_peak(struct device *dev)
{
    if (dev->ops->reset_peak)
        dev->ops->reset_peak(dev);
    else
        alibi_memory_reset_peak();
}
