/* fuzz_shards.c - any bytes as a token shard
 *
 * The first eight bytes say how long the file claims to be, the rest is what of it is there. A
 * header that is accepted for what is there leaves every token within it, and comes back from being
 * written. */
#include "fuzz.h"

static volatile uint32_t sum; /* so that the compiler keeps the reading */

/* Reads every token to its last byte, which the sanitizer watches. */
static void read_tokens(const struct shard_header *h, const char *bytes, size_t size)
{
    require(h->count >= 0 && (size_t)h->count * (size_t)h->width + SHARD_HEADER_BYTES == size);
    for (int64_t i = 0; i < h->count * h->width; i++)
        sum += (unsigned char)bytes[SHARD_HEADER_BYTES + i];
}

static void check_header(const struct shard_header *h, const char *bytes, int64_t file_bytes)
{
    char written[SHARD_HEADER_BYTES];
    struct shard_header again = { 0 };

    require(h->width == 2 || h->width == 4);
    require(h->count >= 0 && h->count <= SHARD_TOKENS_MAX);
    shard_header_format(h, written);
    require(memcmp(written, bytes, 3 * sizeof(int32_t)) == 0);
    require(shard_header_parse(&again, written, sizeof written, file_bytes, "fuzz.bin") ==
            ALIBI_OK);
    require(again.width == h->width && again.count == h->count);
}

static void check(const char *bytes, size_t size, int64_t file_bytes)
{
    struct shard_header h = { 0 };
    alibi_status status = shard_header_parse(&h, bytes, size, file_bytes, "fuzz.bin");

    if (status != ALIBI_OK) {
        check_refusal(status, "'fuzz.bin'");
        return;
    }
    check_header(&h, bytes, file_bytes);
    if (file_bytes == (int64_t)size)
        read_tokens(&h, bytes, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return check_claimed(data, size, check);
}
