/* fault.c - one countdown per kind of fault: it falls by one per call, and the call that takes it
 * from 1 to 0 fails */
#include "base/fault.h"

#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

static const char *const kinds[FAULT_COUNT] = {
    [FAULT_MEMORY] = "memory", [FAULT_FILE] = "file", [FAULT_NAN] = "nan"
};
static _Atomic int64_t countdown[FAULT_COUNT];

bool fault_due(enum fault kind)
{
    int64_t left = atomic_load_explicit(&countdown[kind], memory_order_relaxed);

    while (left > 0)
        if (atomic_compare_exchange_weak(&countdown[kind], &left, left - 1))
            return left == 1;
    return false;
}

bool fault_nan_due(void)
{
    return fault_due(FAULT_NAN);
}

alibi_status alibi_inject_fault(const char *how, int64_t n)
{
    if (n < 0)
        return fail(ALIBI_USAGE, "fault '%s': %lld is not a number of calls", how, (long long)n);
    for (int kind = 0; kind < FAULT_COUNT; kind++)
        if (strcmp(how, kinds[kind]) == 0) {
            atomic_store(&countdown[kind], n);
            return ALIBI_OK;
        }
    return fail(ALIBI_USAGE, "unknown fault '%s': there are memory, file and nan", how);
}
