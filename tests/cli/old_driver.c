/* old_driver.c - what the CUDA runtime sees of a driver that is too old: a library that knows its
 * version and nothing more
 *
 * test_device.sh builds it as libcuda.so.1 and puts it in the way of a real one. */
#include <stddef.h>
#include <string.h>

int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long flags,
                        int *status);

int cuDriverGetVersion(int *version)
{
    *version = 12020;
    return 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long flags,
                        int *status)
{
    (void)version;
    (void)flags;
    *found = NULL;
    if (strcmp(name, "cuDriverGetVersion") == 0)
        *(int (**)(int *))found = cuDriverGetVersion;
    if (strcmp(name, "cuInit") == 0)
        *(int (**)(unsigned))found = cuInit;
    if (strncmp(name, "cuGetProcAddress", 16) == 0)
        *(int (**)(const char *, void **, int, unsigned long, int *))found = cuGetProcAddress_v2;
    if (status != NULL)
        *status = *found == NULL; /* not found */
    return 0;
}
