/* device.h - the CPU as an open device, without an allocation that an injected fault could hit */
#ifndef DEVICE_H
#define DEVICE_H

#include "ops/ops.h"

static inline alibi_device *test_device(void)
{
    static struct alibi_device cpu;

    cpu.device.ops = ops_cpu();
    memcpy(cpu.name, "cpu", sizeof "cpu");
    return &cpu;
}

#endif
