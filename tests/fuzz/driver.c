/* driver.c - runs a target on its seeds and on changed ones, without libFuzzer
 *
 *   fuzz_NAME [RUNS [FIRST]]      default: the seeds, then changes 0..RUNS-1; with FIRST: only
 * FIRST..FIRST+RUNS-1
 *
 * Change n is the same on every machine: a seed, with one to eight edits drawn from n. So a number
 * is all that is needed to see a failure again. */
#include <signal.h>
#include <unistd.h>

#include "fuzz.h"

enum { RUNS = 20000, INPUT_MAX = 1 << 14, SEEDS_MAX = 64, EDITS_MAX = 8 };

static struct slice
    seeds[SEEDS_MAX]; /* not the library's memory, which the targets want to see empty */
static int seed_count;
static volatile long now = -1; /* the change that is being tried */

/* ---- seeds */

static void keep_seed(const char *folder, const char *name)
{
    char path[4096], *bytes = NULL, *kept;
    size_t length = 0;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    require(file_read_all(&bytes, &length, path, INPUT_MAX / 2) == ALIBI_OK &&
            seed_count < SEEDS_MAX);
    kept = malloc(length + 1);
    require(kept != NULL);
    memcpy(kept, bytes, length);
    mem_free(bytes);
    seeds[seed_count++] = (struct slice){ kept, length };
}

static void read_seeds(const char *folder)
{
    char **names = NULL;
    int count = 0;

    if (folder_list(&names, &count, folder) != ALIBI_OK || count == 0) {
        fprintf(stderr, "no seeds in '%s': %s\n", folder, alibi_error());
        exit(1);
    }
    for (int i = 0; i < count; i++)
        keep_seed(folder, names[i]);
    names_free(names, count);
}

/* ---- changes */

struct input {
    char at[INPUT_MAX];
    size_t bytes;
};

static void replace(struct input *in, size_t at, size_t bytes, const char *by, size_t by_bytes)
{
    if (in->bytes - bytes + by_bytes > INPUT_MAX)
        return;
    memmove(in->at + at + by_bytes, in->at + at + bytes, in->bytes - at - bytes);
    memmove(in->at + at, by, by_bytes);
    in->bytes += by_bytes - bytes;
}

/* One of: another byte, a flipped bit, a part removed, a part doubled, a part of another seed put
 * in, another number. */
static void edit(struct input *in, struct random4 r)
{
    static const char telling[] = "{}[]:,\"\\@\f\n 0129-.eu\xC3\xA9\xFF";
    struct slice other = seeds[r.at[3] % (uint32_t)seed_count];
    size_t at = in->bytes > 0 ? r.at[1] % in->bytes : 0;
    size_t bytes = in->bytes > 0 ? 1 + r.at[2] % 16 % (in->bytes - at) : 0;
    size_t from = other.bytes > 0 ? r.at[2] % other.bytes : 0;
    char copy[16];

    switch (r.at[0] % 6) {
    case 0:
        replace(in, at, bytes > 0, &telling[r.at[2] % (sizeof telling - 1)], 1);
        break;
    case 1:
        if (in->bytes > 0)
            in->at[at] = (char)(in->at[at] ^ 1 << r.at[2] % 8);
        break;
    case 2:
        replace(in, at, bytes, "", 0);
        break;
    case 3:
        memcpy(copy, in->at + at, bytes);
        replace(in, at, 0, copy, bytes);
        break;
    case 4:
        replace(in, at, 0, other.at + from,
                1 + r.at[1] % 32 % (other.bytes - from + (other.bytes == 0)));
        break;
    default:
        while (at < in->bytes && (in->at[at] < '0' || in->at[at] > '9'))
            at++;
        if (at < in->bytes)
            in->at[at] = (char)('0' + r.at[2] % 10);
    }
}

static void change(struct input *in, uint64_t number)
{
    struct random4 first = random_block(number, 0, 0);
    struct slice seed = seeds[first.at[0] % (uint32_t)seed_count];
    uint64_t edits = 1 + first.at[1] % EDITS_MAX;

    memcpy(in->at, seed.at, seed.bytes);
    in->bytes = seed.bytes;
    for (uint64_t i = 1; i <= edits; i++)
        edit(in, random_block(number, 0, i));
}

/* ---- runs */

/* From a block of the exact size, so that the sanitizer sees a read beyond it. */
static void run(const char *bytes, size_t length)
{
    uint8_t *exact = malloc(length > 0 ? length : 1);

    require(exact != NULL);
    memcpy(exact, bytes, length);
    LLVMFuzzerTestOneInput(exact, length);
    free(exact);
}

static void tell(int signal_number)
{
    char line[100];
    int length = snprintf(line, sizeof line, "[  FAILED  ] 1 test: change %ld (signal %d)\n", now,
                          signal_number);

    if (write(STDOUT_FILENO, line, (size_t)length) == length)
        _exit(1);
    _exit(2);
}

/* The sanitizers end by abort(), so that tell() is called. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "abort_on_error=1:handle_abort=0";
}

const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "abort_on_error=1:handle_abort=0:print_stacktrace=1";
}

int main(int argc, char **argv)
{
    static struct input in;
    long runs = argc > 1 ? strtol(argv[1], NULL, 10) : RUNS;
    long first = argc > 2 ? strtol(argv[2], NULL, 10) : 0;

    signal(SIGABRT, tell);
    read_seeds(FUZZ_SEEDS);
    for (int i = 0; i < seed_count && argc < 3; i++)
        run(seeds[i].at, seeds[i].bytes);
    for (long n = first; n < first + runs; n++) {
        now = n;
        change(&in, (uint64_t)n);
        run(in.at, in.bytes);
    }
    for (int i = 0; i < seed_count; i++)
        free((char *)seeds[i].at);
    printf("%d seeds, %ld changes of them\n[  PASSED  ] 1 test(s).\n", argc < 3 ? seed_count : 0,
           runs);
    return 0;
}
