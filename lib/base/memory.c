/* memory.c - all heap memory of the library: blocks and arrays
 *
 * Invariant: `held` is the sum of the sizes of all blocks, headers included; each block's header
 * has its own. */
#include <stdatomic.h>
#include <string.h>

#include "base/os.h"

/* Large blocks have huge pages, where the system has any: weights and KV caches that are read from
 * end to end then miss the TLB 512 times less. A block of few pages could waste most of one. */
enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, HUGE_MIN = 4 * HUGE_PAGE };

/* Precedes every block. It is as wide as the alignment, so the block is aligned too. */
struct header {
    _Alignas(ALIGNMENT) size_t bytes;
};

static _Atomic size_t held, peak;

size_t memory_of_machine(void)
{
    static _Atomic size_t machine; /* asked for once; several threads find the same */
    size_t bytes = atomic_load(&machine);

    if (bytes == 0) {
        bytes = os_memory_bytes();
        atomic_store(&machine, bytes);
    }
    return bytes;
}

const char *short_bytes(char buffer[BYTES_TEXT], size_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    int unit = 0;

    for (; value >= 1023.5; unit++)
        value /= 1024;
    snprintf(buffer, BYTES_TEXT, "%.*f %s", unit > 0 && value < 99.95 ? 1 : 0, value, units[unit]);
    return buffer;
}

alibi_status mem_new(void **out, size_t bytes, const char *what)
{
    size_t most = memory_of_machine(), total, together, now;
    char needed[BYTES_TEXT], used[BYTES_TEXT], all[BYTES_TEXT];
    void *block = NULL;
    struct header *header;

    /* Linux grants memory that it does not have, and kills the process that then uses it. A request
     * that can never fit is refused here, while an error can still be returned. */
    if (!size_add(&together, bytes, atomic_load(&held)) || together > most ||
        !size_add(&total, bytes, sizeof *header) || fault_due(FAULT_MEMORY) ||
        posix_memalign(&block, total < HUGE_MIN ? ALIGNMENT : HUGE_PAGE, total) != 0)
        return fail(ALIBI_MEMORY,
                    "not enough memory for %s: %s needed, %s in use, the machine has %s", what,
                    short_bytes(needed, bytes), short_bytes(used, alibi_memory_now()),
                    short_bytes(all, most));
    if (total >= HUGE_MIN)
        os_prefer_huge_pages(block, total);
    header = block;
    header->bytes = total;
    *out = header + 1;
    now = atomic_fetch_add(&held, total) + total;
    most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now))
        ;
    return ALIBI_OK;
}

alibi_status mem_grow(void **inout, size_t old_bytes, size_t new_bytes, const char *what)
{
    void *grown = NULL;

    TRY_RETURN(mem_new(&grown, new_bytes, what));
    if (*inout != NULL)
        memcpy(grown, *inout, old_bytes < new_bytes ? old_bytes : new_bytes);
    mem_free(*inout);
    *inout = grown;
    return ALIBI_OK;
}

void mem_free(void *p)
{
    struct header *header;

    if (p == NULL)
        return;
    header = (struct header *)p - 1;
    atomic_fetch_sub(&held, header->bytes);
    free(header);
}

static alibi_status array_bytes(size_t *bytes, int64_t count, size_t size, const char *what)
{
    if (count < 0 || !size_multiply(bytes, (size_t)count, size))
        return fail(ALIBI_MEMORY, "not enough memory for %s: %lld elements of %zu bytes needed",
                    what, (long long)count, size);
    return ALIBI_OK;
}

alibi_status new_array(void **out, int64_t count, size_t size, bool zero, const char *what)
{
    size_t bytes = 0;

    TRY_RETURN(array_bytes(&bytes, count, size, what));
    TRY_RETURN(mem_new(out, bytes, what));
    if (zero)
        memset(*out, 0, bytes);
    return ALIBI_OK;
}

alibi_status reserve_array(void **inout, int64_t *capacity, int64_t count, size_t size,
                           const char *what)
{
    int64_t wanted = count / 2 < *capacity ? *capacity * 2 : count;
    size_t bytes = 0;

    if (count <= *capacity)
        return ALIBI_OK;
    TRY_RETURN(array_bytes(&bytes, wanted, size, what));
    TRY_RETURN(mem_grow(inout, (size_t)*capacity * size, bytes, what));
    *capacity = wanted;
    return ALIBI_OK;
}

size_t alibi_memory_now(void)
{
    return atomic_load(&held);
}

size_t alibi_memory_peak(void)
{
    return atomic_load(&peak);
}

void alibi_memory_reset_peak(void)
{
    atomic_store(&peak, atomic_load(&held));
}
