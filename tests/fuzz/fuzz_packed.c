/* fuzz_packed.c - any bytes as a file of text: packed by gzip or zstd, plain, or known not to be
 * text
 *
 * The bytes that are unpacked, and a refusal, do not depend on how many are asked for at once. */
#include <stdio.h>
#include <unistd.h>

#include "fuzz.h"

enum { MOST = 1 << 14 /* a few bytes may stand for megabytes */, FEW = 61 };

struct unpacked {
    alibi_status status;
    size_t bytes;
    char at[MOST];
};

/* Unpacks at most MOST bytes, `step` at a time. */
static void unpack(struct unpacked *out, const char *path, size_t step)
{
    struct unpack *u = NULL;
    size_t got = step;

    out->bytes = 0;
    out->status = unpack_open(&u, path, NULL, NULL);
    while (out->status == ALIBI_OK && got == step && out->bytes + step <= MOST) {
        out->status = unpack_read(u, out->at + out->bytes, step, &got);
        require(out->status != ALIBI_OK || got <= step);
        if (out->status == ALIBI_OK)
            out->bytes += got;
    }
    if (out->status != ALIBI_OK)
        check_refusal(out->status, path);
    unpack_close(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *file;
    static char path[32];
    static struct unpacked whole, parts;

    if (file == NULL) {
        file = tmpfile();
        require(file != NULL);
        snprintf(path, sizeof path, "/dev/fd/%d", fileno(file));
    }
    require(pwrite(fileno(file), data, size, 0) == (ssize_t)size);
    require(ftruncate(fileno(file), (off_t)size) == 0);
    unpack(&whole, path, MOST);
    unpack(&parts, path, FEW);
    /* Small steps give what comes before a defect too, and end before MOST. */
    require(whole.bytes == 0 || memcmp(whole.at, parts.at, parts.bytes) == 0);
    if (whole.status == ALIBI_OK && whole.bytes < MOST)
        require(parts.bytes == whole.bytes ||
                (parts.bytes + FEW > MOST && whole.bytes > parts.bytes));
    require(whole.status == parts.status || (whole.bytes == 0 && parts.bytes + FEW > MOST));
    if (whole.bytes > 0 && foreign_refuse(whole.at, whole.bytes, "fuzz.txt") != ALIBI_OK)
        check_refusal(ALIBI_BAD_INPUT, "'fuzz.txt'");
    require(alibi_memory_now() == 0);
    return 0;
}
