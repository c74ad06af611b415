/* test_unpack.c - plain, gzip and zstd files as streams of bytes; every way a packed file can be
 * broken */
#include "folder.h"

#include <zlib.h>
#include <zstd.h>

#include "formats/formats.h"

enum { ROOM = 1 << 20 };

/* ---- packing */

struct packed {
    char bytes[ROOM];
    size_t length;
};

static void add_plain(struct packed *p, const char *text, size_t length)
{
    memcpy(p->bytes + p->length, text, length);
    p->length += length;
}

static void add_gzip(struct packed *p, const char *text, size_t length)
{
    z_stream z = { 0 };

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)length;
    z.next_out = (Bytef *)p->bytes + p->length;
    z.avail_out = (uInt)(ROOM - p->length);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    p->length = ROOM - z.avail_out;
    deflateEnd(&z);
}

static void add_zstd_with(struct packed *p, const char *text, size_t length, int window_log)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    size_t written;

    assert_non_null(c);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    if (window_log > 0) {
        /* The size is not told beforehand: else the window would shrink to it. */
        ZSTD_inBuffer in = { text, length, 0 };
        ZSTD_outBuffer out = { p->bytes, ROOM, p->length };
        assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log)));
        assert_false(ZSTD_isError(ZSTD_compressStream2(c, &out, &in, ZSTD_e_flush)));
        assert_int_equal(ZSTD_compressStream2(c, &out, &in, ZSTD_e_end), 0);
        p->length = out.pos;
    } else {
        written = ZSTD_compress2(c, p->bytes + p->length, ROOM - p->length, text, length);
        assert_false(ZSTD_isError(written));
        p->length += written;
    }
    ZSTD_freeCCtx(c);
}

static void add_zstd(struct packed *p, const char *text, size_t length)
{
    add_zstd_with(p, text, length, 0);
}

static void add_skippable(struct packed *p, size_t length)
{
    const unsigned char head[8] = {
        0x53, 0x2A, 0x4D, 0x18, (unsigned char)length, (unsigned char)(length >> 8), 0, 0
    };

    add_plain(p, (const char *)head, sizeof head);
    memset(p->bytes + p->length, 'S', length);
    p->length += length;
}

/* ---- unpacking */

static alibi_status drain(struct unpack *u, char *out, size_t step, size_t *total)
{
    size_t got = step;

    *total = 0;
    while (got == step) {
        assert_true(*total + step <= ROOM);
        TRY_RETURN(unpack_read(u, out + *total, step, &got));
        *total += got;
    }
    TRY_RETURN(unpack_read(u, out + *total, 1, &got)); /* the end stays the end */
    assert_int_equal(got, 0);
    return ALIBI_OK;
}

static alibi_status read_file(const char *path, char *out, size_t step, size_t *total)
{
    alibi_status status;
    struct unpack *u = NULL;

    TRY(unpack_open(&u, path, test_call(), NULL));
    TRY(drain(u, out, step, total));
out:
    unpack_close(u);
    return status;
}

static char unpacked[ROOM + 1];
static struct packed packed;

static void assert_unpacks(const char *expected, size_t length, size_t step)
{
    const char *path = within(folder, "packed");
    struct unpack *u = NULL;
    size_t total = 0;

    write_file(path, packed.bytes, packed.length);
    assert_ok(unpack_open(&u, path, test_call(), NULL));
    assert_ok(drain(u, unpacked, step, &total));
    assert_int_equal(total, length);
    if (length > 0)
        assert_memory_equal(unpacked, expected, length);
    assert_int_equal(unpack_position(u), packed.length);
    unpack_close(u);
}

static void assert_refused(const char *part)
{
    char expected[4300];
    const char *path = within(folder, "packed");
    size_t total = 0, before = alibi_memory_now();

    write_file(path, packed.bytes, packed.length);
    snprintf(expected, sizeof expected, "cannot unpack '%s': %s", path, part);
    assert_fails(read_file(path, unpacked, 1000, &total), ALIBI_BAD_INPUT, expected);
    assert_int_equal(alibi_memory_now(), before);
}

static void fill_text(char *text, size_t length)
{
    uint32_t state = 1;

    for (size_t i = 0; i < length; i++) {
        state = state * 1664525 + 1013904223;
        text[i] = (char)('a' + (state >> 24) % 20);
    }
}

/* ---- valid files */

static void plain_files_come_as_they_are(void **state)
{
    static char text[300000];

    (void)state;
    fill_text(text, sizeof text);
    for (size_t length = 0; length < 6; length++) {
        packed.length = 0;
        add_plain(&packed, text, length);
        assert_unpacks(text, length, 1);
        assert_unpacks(text, length, 100);
    }
    packed.length = 0;
    add_plain(&packed, text, sizeof text);
    assert_unpacks(text, sizeof text, 999);
    assert_unpacks(text, sizeof text, 400000);
    packed.length = 0;
    add_plain(&packed, text, 1 << 17); /* exactly one block of input */
    assert_unpacks(text, 1 << 17, 1 << 17);
}

static void packed_files_come_unpacked_at_any_step(void **state)
{
    static char text[300000];
    void (*const packers[])(struct packed * p, const char *t, size_t n) = { add_gzip, add_zstd };

    (void)state;
    fill_text(text, sizeof text);
    for (int i = 0; i < 2; i++) {
        packed.length = 0;
        packers[i](&packed, text, 1000);
        for (size_t step = 1; step <= 1001; step += step < 20 ? 1 : 97)
            assert_unpacks(text, 1000, step);
        packed.length = 0;
        packers[i](&packed, text, sizeof text);
        assert_unpacks(text, sizeof text, 4096);
        assert_unpacks(text, sizeof text, 400000);
        packed.length = 0;
        packers[i](&packed, "", 0);
        assert_unpacks("", 0, 1);
    }
}

static void parts_in_a_row_are_one_stream(void **state)
{
    void (*const packers[])(struct packed * p, const char *t, size_t n) = { add_gzip, add_zstd };

    (void)state;
    for (int i = 0; i < 2; i++) {
        packed.length = 0;
        packers[i](&packed, "one ", 4);
        packers[i](&packed, "", 0);
        packers[i](&packed, "two ", 4);
        packers[i](&packed, "three", 5);
        for (size_t step = 1; step < 16; step++)
            assert_unpacks("one two three", 13, step);
    }
}

static void frames_to_be_skipped_are(void **state)
{
    (void)state;
    packed.length = 0;
    add_skippable(&packed, 5);
    add_zstd(&packed, "one ", 4);
    add_skippable(&packed, 300);
    add_skippable(&packed, 0);
    add_zstd(&packed, "two", 3);
    add_skippable(&packed, 1);
    for (size_t step = 1; step < 10; step++)
        assert_unpacks("one two", 7, step);
}

static void windows_up_to_the_bound_are_unpacked(void **state)
{
    (void)state;
    packed.length = 0;
    add_zstd_with(&packed, "text", 4, 27);
    assert_unpacks("text", 4, 3);
}

static void names_do_not_matter(void **state)
{
    size_t total = 0;

    (void)state;
    write_file(within(folder, "plain.gz"), "text", 4);
    assert_ok(read_file(within(folder, "plain.gz"), unpacked, 10, &total));
    assert_int_equal(total, 4);
}

static void a_pipe_is_read_to_its_end(void **state)
{
    size_t total = 0;
    int ends[2], before = dup(STDIN_FILENO);
    const char *path = within(folder, "packed");

    (void)state;
    packed.length = 0;
    add_gzip(&packed, "from a pipe", 11);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], packed.bytes, packed.length), packed.length);
    close(ends[1]);
    assert_true(dup2(ends[0], STDIN_FILENO) >= 0);
    close(ends[0]);
    assert_ok(read_file("-", unpacked, 3, &total));
    assert_int_equal(total, 11);
    assert_memory_equal(unpacked, "from a pipe", 11);
    write_file(path, packed.bytes, packed.length - 1);
    assert_non_null(freopen(path, "r", stdin));
    assert_fails(read_file("-", unpacked, 3, &total), ALIBI_BAD_INPUT,
                 "cannot unpack 'standard input': the file ends within");
    assert_true(dup2(before, STDIN_FILENO) >= 0);
    close(before);
}

/* ---- defects */

static void cut_files_are_refused_at_every_byte(void **state)
{
    void (*const packers[])(struct packed * p, const char *t, size_t n) = { add_gzip, add_zstd };

    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t whole;
        packed.length = 0;
        packers[i](&packed, "some text that is packed", 24);
        whole = packed.length;
        for (packed.length = 4; packed.length < whole; packed.length++) {
            char expected[100];
            snprintf(expected, sizeof expected, "the file ends within the packed text, at byte %zu",
                     packed.length);
            assert_refused(expected);
        }
    }
}

static void every_flipped_bit_is_found_or_harmless(void **state)
{
    static const char text[] = "some text that is packed, some text that is packed";
    void (*const packers[])(struct packed * p, const char *t, size_t n) = { add_gzip, add_zstd };
    size_t before = alibi_memory_now();
    int found = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        packed.length = 0;
        packers[i](&packed, text, strlen(text));
        for (size_t bit = 0; bit < 8 * packed.length; bit++) {
            size_t total = 0;
            alibi_status status;
            packed.bytes[bit / 8] = (char)(packed.bytes[bit / 8] ^ 1 << bit % 8);
            write_file(within(folder, "packed"), packed.bytes, packed.length);
            status = read_file(within(folder, "packed"), unpacked, 7, &total);
            assert_true(status == ALIBI_OK || status == ALIBI_BAD_INPUT);
            found += status != ALIBI_OK;
            /* The first bytes make it a plain file; gzip's header has a time and a system that mean
             * nothing. */
            if (status == ALIBI_OK && bit / 8 >= 10)
                assert_memory_equal(unpacked, text, strlen(text));
            packed.bytes[bit / 8] = (char)(packed.bytes[bit / 8] ^ 1 << bit % 8);
        }
    }
    assert_true(found > 400);
    assert_int_equal(alibi_memory_now(), before);
}

static void each_defect_is_named_with_its_place(void **state)
{
    (void)state;
    packed.length = 0;
    add_gzip(&packed, "abcdef", 6);
    packed.bytes[packed.length - 5] ^= 1;
    assert_refused("incorrect data check at byte ");
    packed.bytes[packed.length - 5] ^= 1;
    packed.bytes[packed.length - 1] ^= 1;
    assert_refused("incorrect length check at byte ");
    packed.bytes[packed.length - 1] ^= 1;
    packed.bytes[2] = 7;
    assert_refused("unknown compression method at byte ");

    packed.length = 0;
    add_zstd(&packed, "abcdef", 6);
    packed.bytes[packed.length - 1] ^= 1;
    assert_refused("Restored data doesn't match checksum at byte ");
    packed.length = 0;
    add_zstd_with(&packed, "abcdef", 6, 28);
    assert_refused("it needs a window of more than 128 MiB at byte ");
}

static void what_follows_the_packed_text_is_named(void **state)
{
    char expected[100];

    (void)state;
    packed.length = 0;
    add_gzip(&packed, "abcdef", 6);
    snprintf(expected, sizeof expected, "the data after the packed text is not gzip at byte %zu",
             packed.length);
    add_plain(&packed, "garbage", 7);
    assert_refused(expected);
    packed.length -= 7;
    add_plain(&packed, "\x1F\x8C garbage", 10);
    assert_refused("incorrect header check at byte ");
    packed.length = 0;
    add_zstd(&packed, "abcdef", 6);
    add_plain(&packed, "garbage", 7);
    assert_refused("the data after the packed text is not zstd at byte ");
    packed.length = 0;
    add_zstd(&packed, "abcdef", 6);
    add_gzip(&packed, "abcdef", 6);
    assert_refused("the data after the packed text is not zstd at byte ");
}

static void folders_and_missing_files_are_refused(void **state)
{
    struct unpack *u = NULL;

    (void)state;
    assert_fails(unpack_open(&u, folder, test_call(), NULL), ALIBI_BAD_INPUT, "it is a folder");
    assert_fails(unpack_open(&u, within(folder, "none"), test_call(), NULL), ALIBI_BAD_INPUT,
                 "none': No such file or directory");
    assert_null(u);
    unpack_close(NULL);
}

/* ---- faults */

static alibi_status read_in_small_steps(void *path)
{
    size_t total = 0;

    return read_file(path, unpacked, 7, &total);
}

static void failing_calls_and_allocations_are_reported(void **state)
{
    void (*const packers[])(struct packed * p, const char *t, size_t n) = { add_plain, add_gzip,
                                                                            add_zstd };
    char *path = strdup(within(folder, "packed"));

    (void)state;
    for (int i = 0; i < 3; i++) {
        packed.length = 0;
        packers[i](&packed, "some text", 9);
        write_file(path, packed.bytes, packed.length);
        assert_true(fail_each_call("file", read_in_small_steps, path, ALIBI_IO, "") >= 3);
        assert_true(fail_each_call("memory", read_in_small_steps, path, ALIBI_MEMORY, "") >= 3);
    }
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plain_files_come_as_they_are),
        TEST(packed_files_come_unpacked_at_any_step),
        TEST(parts_in_a_row_are_one_stream),
        TEST(frames_to_be_skipped_are),
        TEST(windows_up_to_the_bound_are_unpacked),
        TEST(names_do_not_matter),
        TEST(a_pipe_is_read_to_its_end),
        TEST(cut_files_are_refused_at_every_byte),
        TEST(every_flipped_bit_is_found_or_harmless),
        TEST(each_defect_is_named_with_its_place),
        TEST(what_follows_the_packed_text_is_named),
        TEST(folders_and_missing_files_are_refused),
        TEST(failing_calls_and_allocations_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
