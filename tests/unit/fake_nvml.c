/* fake_nvml.c - a stand-in for NVIDIA's management library, which test_meter loads
 *
 * It knows the GPUs at "0000:01:00.0" and, without a counter of energy, at "0000:02:00.0". Every
 * reading of energy is 1.5 J more than the one before it. */
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, CLOCK_SM = 1 };

static int users;
static char gpus[2];
static unsigned long long millijoules;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy);
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned int *megahertz);
int fake_nvml_users(void);

int nvmlInit_v2(void)
{
    users++;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    users--;
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(address, i == 0 ? "0000:01:00.0" : "0000:02:00.0") == 0) {
            *device = &gpus[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy)
{
    if (device != &gpus[0])
        return NOT_SUPPORTED;
    *energy = millijoules += 1500;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned int *megahertz)
{
    (void)device;
    *megahertz = kind == CLOCK_SM ? 1455 : 0;
    return SUCCESS;
}

int fake_nvml_users(void)
{
    return users;
}
