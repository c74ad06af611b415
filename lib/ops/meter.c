/* meter.c - energy and clock of a GPU, as NVIDIA's management library (NVML) reads them
 *
 * The library comes with the driver and is loaded when a meter is opened; without it there is no
 * meter. Only functions that read are looked up here: settings of a GPU are never changed. */
#include <math.h>

#include "ops/ops.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"

/* As nvml.h has them. */
typedef void *nvml_device;
enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1 };

struct meter {
    nvml_device device;
    int (*shutdown)(void);
    int (*energy)(nvml_device device, unsigned long long *millijoules);
    int (*clock)(nvml_device device, int kind, unsigned int *megahertz);
};

alibi_status meter_open(struct meter **out, const char *library, const char *address)
{
    alibi_status status;
    const char *name = library ? library : NVML_LIBRARY;
    int (*init)(void), (*find)(const char *address, nvml_device *device);
    struct meter *m = NULL;
    void *module;

    TRY(module_open(&module, name, "it comes with NVIDIA's driver"));
    TRY(NEW_ZERO_ARRAY(&m, 1, "a meter"));
    TRY(module_symbol(&init, module, name, "nvmlInit_v2"));
    TRY(module_symbol(&find, module, name, "nvmlDeviceGetHandleByPciBusId_v2"));
    TRY(module_symbol(&m->energy, module, name, "nvmlDeviceGetTotalEnergyConsumption"));
    TRY(module_symbol(&m->clock, module, name, "nvmlDeviceGetClockInfo"));
    TRY(module_symbol(&m->shutdown, module, name, "nvmlShutdown"));
    if (init() != NVML_SUCCESS)
        TRY(fail(ALIBI_DEVICE, "%s does not start", name));
    if (find(address, &m->device) != NVML_SUCCESS) {
        m->shutdown();
        TRY(fail(ALIBI_DEVICE, "%s does not know a GPU at '%s'", name, address));
    }
    *out = m;
    m = NULL;
out:
    mem_free(m);
    return status;
}

struct meter_reading meter_read(struct meter *m)
{
    struct meter_reading reading = { NAN, NAN };
    unsigned long long millijoules;
    unsigned int megahertz;

    if (m->energy(m->device, &millijoules) == NVML_SUCCESS)
        reading.joules = (double)millijoules / 1e3;
    if (m->clock(m->device, NVML_CLOCK_SM, &megahertz) == NVML_SUCCESS)
        reading.hertz = (double)megahertz * 1e6;
    return reading;
}

void meter_close(struct meter *m)
{
    if (m)
        m->shutdown();
    mem_free(m);
}
