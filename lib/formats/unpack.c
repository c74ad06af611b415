/* unpack.c - a file as a stream of bytes, unpacked if it is gzip (RFC 1952) or zstd (RFC 8878)
 *
 * The first bytes of a file decide, not its name: no UTF-8 text begins like a packed file. A packed
 * file is a sequence of parts (gzip's members, zstd's frames), each with its own checksum. It must
 * end where a part ends.
 *
 * Invariant: input[at..end) was read from the file and not used yet; `within` is true from the
 * first byte of a part to its last. */
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "formats/formats.h"

enum {
    INPUT_BYTES = 1 << 17,
    GZIP_WINDOW_BITS = 15 + 16, /* the largest window; 16: with gzip's header and trailer */
    ZSTD_WINDOW_LOG_MAX = 27,   /* 128 MiB, the default limit of zstd itself */
};

struct method {
    alibi_status (*start)(struct unpack *u); /* NULL: nothing to do */
    void (*stop)(struct unpack *u);          /* after a failed start too */
    /* Moves some bytes from the input, which is not empty unless the file has ended, to
     * room[*used..bytes). */
    alibi_status (*step)(struct unpack *u, char *room, size_t bytes, size_t *used);
};

struct unpack {
    const struct method *method;
    struct file *file;
    char *name; /* for messages */
    char *input;
    size_t at, end;
    int64_t read;    /* bytes of the file so far, including those not used yet */
    bool file_ended; /* the file ends at input[end] */
    bool within;

    z_stream gzip;
    ZSTD_DStream *zstd;
};

int64_t unpack_position(const struct unpack *u)
{
    return u->read - (int64_t)(u->end - u->at);
}

static alibi_status refuse(const struct unpack *u, const char *defect)
{
    return fail(ALIBI_BAD_INPUT, "cannot unpack '%s': %s at byte %lld", u->name, defect,
                (long long)unpack_position(u));
}

static alibi_status no_memory(const struct unpack *u)
{
    return fail(ALIBI_MEMORY, "not enough memory to unpack '%s'", u->name);
}

/* Reads more if all input is used. */
static alibi_status refill(struct unpack *u)
{
    size_t got = 0;

    if (u->at < u->end || u->file_ended)
        return ALIBI_OK;
    TRY_RETURN(file_read(u->file, u->input, INPUT_BYTES, &got));
    u->at = 0;
    u->end = got;
    u->read += (int64_t)got;
    u->file_ended = got < INPUT_BYTES;
    return ALIBI_OK;
}

/* ---- not packed */

static alibi_status step_plain(struct unpack *u, char *room, size_t bytes, size_t *used)
{
    size_t count = bytes - *used < u->end - u->at ? bytes - *used : u->end - u->at;

    memcpy(room + *used, u->input + u->at, count);
    u->at += count;
    *used += count;
    return ALIBI_OK;
}

static const struct method plain = { NULL, NULL, step_plain };

/* ---- gzip */

static void *new_for_zlib(void *user, uInt items, uInt size)
{
    void *p = NULL;

    (void)user;
    return new_array(&p, (int64_t)items, size, false, "unpacking gzip") == ALIBI_OK ? p : NULL;
}

static void free_for_zlib(void *user, void *p)
{
    (void)user;
    mem_free(p);
}

static alibi_status start_gzip(struct unpack *u)
{
    u->gzip = (z_stream){ .zalloc = new_for_zlib, .zfree = free_for_zlib };
    return inflateInit2(&u->gzip, GZIP_WINDOW_BITS) == Z_OK ? ALIBI_OK : no_memory(u);
}

static void stop_gzip(struct unpack *u)
{
    inflateEnd(&u->gzip);
}

static alibi_status step_gzip(struct unpack *u, char *room, size_t bytes, size_t *used)
{
    size_t left = bytes - *used;
    uInt most = left < INPUT_BYTES ? (uInt)left : INPUT_BYTES;
    int result;

    if (!u->within) {
        if ((unsigned char)u->input[u->at] != 0x1F)
            return refuse(u, "the data after the packed text is not gzip");
        if (inflateReset(&u->gzip) != Z_OK)
            return refuse(u, "the stream cannot continue");
        u->within = true;
    }
    u->gzip.next_in = (Bytef *)u->input + u->at;
    u->gzip.avail_in = (uInt)(u->end - u->at);
    u->gzip.next_out = (Bytef *)room + *used;
    u->gzip.avail_out = most;
    result = inflate(&u->gzip, Z_NO_FLUSH);
    u->at = u->end - u->gzip.avail_in;
    *used += most - u->gzip.avail_out;
    if (result == Z_MEM_ERROR)
        return no_memory(u);
    if (result == Z_STREAM_END)
        u->within = false;
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return refuse(u, u->gzip.msg != NULL ? u->gzip.msg : "not gzip");
    else if (u->file_ended && u->at == u->end && u->gzip.avail_out == most)
        return refuse(u, "the file ends within the packed text,");
    return ALIBI_OK;
}

static const struct method gzip = { start_gzip, stop_gzip, step_gzip };

/* ---- zstd: its stable interface takes no allocator, so its window is not counted as memory */

static alibi_status start_zstd(struct unpack *u)
{
    u->zstd = ZSTD_createDStream();
    if (u->zstd == NULL ||
        ZSTD_isError(ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX)))
        return no_memory(u);
    return ALIBI_OK;
}

static void stop_zstd(struct unpack *u)
{
    ZSTD_freeDStream(u->zstd);
}

static alibi_status refuse_zstd(const struct unpack *u, size_t result)
{
    switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_memory_allocation:
        return no_memory(u);
    case ZSTD_error_frameParameter_windowTooLarge:
        return refuse(u, "it needs a window of more than 128 MiB");
    case ZSTD_error_prefix_unknown:
        return refuse(u, "the data after the packed text is not zstd");
    default:
        return refuse(u, ZSTD_getErrorName(result));
    }
}

static alibi_status step_zstd(struct unpack *u, char *room, size_t bytes, size_t *used)
{
    ZSTD_inBuffer in = { u->input, u->end, u->at };
    ZSTD_outBuffer out = { room, bytes, *used };
    size_t result = ZSTD_decompressStream(u->zstd, &out, &in);
    bool stuck = in.pos == u->at && out.pos == *used;

    u->at = in.pos;
    *used = out.pos;
    if (ZSTD_isError(result))
        return refuse_zstd(u, result);
    u->within = result != 0;
    if (u->within && stuck && u->file_ended)
        return refuse(u, "the file ends within the packed text,");
    return ALIBI_OK;
}

static const struct method zstd = { start_zstd, stop_zstd, step_zstd };

/* ---- any of them */

static const struct method *recognise(const unsigned char *start, size_t bytes)
{
    if (bytes >= 2 && start[0] == 0x1F && start[1] == 0x8B)
        return &gzip;
    if (bytes >= 4 && memcmp(start, "\x28\xB5\x2F\xFD", 4) == 0)
        return &zstd;
    if (bytes >= 4 && start[0] >> 4 == 0x5 && memcmp(start + 1, "\x2A\x4D\x18", 3) == 0)
        return &zstd; /* a skippable frame, which some packers write first */
    return &plain;
}

alibi_status unpack_open(struct unpack **out, const char *path, const struct alibi_call *call,
                         const struct alibi_stop *unwanted)
{
    alibi_status status;
    struct unpack *u = NULL;

    TRY(NEW_ZERO_ARRAY(&u, 1, "an input file"));
    TRY(text_copy(&u->name, strcmp(path, "-") == 0 ? "standard input" : path));
    TRY(file_open_input(&u->file, path, call, unwanted));
    TRY(NEW_ARRAY(&u->input, INPUT_BYTES, "a block of a file"));
    TRY(refill(u));
    u->method = recognise((const unsigned char *)u->input, u->end);
    if (u->method->start != NULL)
        TRY(u->method->start(u));
    *out = u;
    u = NULL;
out:
    unpack_close(u);
    return status;
}

alibi_status unpack_read(struct unpack *u, void *buffer, size_t bytes, size_t *got)
{
    size_t used = 0;

    while (used < bytes) {
        TRY_RETURN(refill(u));
        if (u->at == u->end && u->file_ended && !u->within)
            break;
        TRY_RETURN(u->method->step(u, buffer, bytes, &used));
    }
    *got = used;
    return ALIBI_OK;
}

void unpack_close(struct unpack *u)
{
    if (u == NULL)
        return;
    if (u->method != NULL && u->method->stop != NULL)
        u->method->stop(u);
    (void)file_close(u->file); /* it was only read, so nothing can be lost */
    mem_free(u->input);
    mem_free(u->name);
    mem_free(u);
}
