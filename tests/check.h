/* check.h - cmocka, and what all tests share: expected failures, skipping, closeness, temporary
 * folders, injected faults */
#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* cmocka's fail_msg calls fail, which is also the name of a function of the library. */
#undef fail
#undef fail_msg
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        print_error("\n");                                                                         \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

#include "alibi.h"

/* ---- status */

/* The call succeeds; if not, its message is shown. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        alibi_status check_status = (call);                                                        \
        if (check_status != ALIBI_OK)                                                              \
            fail_msg("%s: status %d: %s", #call, (int)check_status, alibi_error());                \
    } while (0)

/* The call fails with that status, and with a message of one line that contains `part`. */
#define assert_fails(call, expected, part)                                                         \
    do {                                                                                           \
        alibi_status check_status = (call);                                                        \
        if (check_status != (expected))                                                            \
            fail_msg("%s: status %d, not %d: %s", #call, (int)check_status, (int)(expected),       \
                     alibi_error());                                                               \
        if (strstr(alibi_error(), (part)) == NULL || strchr(alibi_error(), '\n') != NULL)          \
            fail_msg("%s: '%s' is not one line with '%s'", #call, alibi_error(), (part));          \
    } while (0)

/* ---- texts */

/* A corpus of texts in memory, as bytes. Each is a document. */
static inline alibi_status corpus_from_texts(alibi_corpus **out, const char *const *texts,
                                             int count)
{
    size_t bytes[64];

    assert_in_range(count, 1, sizeof bytes / sizeof *bytes);
    for (int i = 0; i < count; i++)
        bytes[i] = strlen(texts[i]);
    return alibi_corpus_texts(out, texts, bytes, count, NULL, NULL);
}

/* ---- calls */

/* The context of calls under test: silent and never stopped, unless a test says otherwise.
 * test_watch() sets its callbacks, and takes back a stop request; all NULL: silent again. */
static struct alibi_stop test_stop;
static struct alibi_call test_context = { .stop = &test_stop };

static inline const struct alibi_call *test_call(void)
{
    return &test_context;
}

static inline void test_watch(void *user, void (*progress)(void *, const struct alibi_progress *),
                              void (*log)(void *, enum alibi_log_level, const char *))
{
    test_stop = (struct alibi_stop){ 0 };
    test_context = (struct alibi_call){ user, progress, log, &test_stop, 0, NULL, NULL };
}

/* ---- skipping */

/* Ends a test that cannot run here. scripts/test.sh counts the reasons, so they are few and short:
 * "no GPU". */
#define skip_because(reason)                                                                       \
    do {                                                                                           \
        printf("skipped: %s\n", (reason));                                                         \
        fflush(stdout);                                                                            \
        skip();                                                                                    \
    } while (0)

/* ---- numbers */

/* |a - b| <= tolerance; a NaN is close to nothing. */
#define assert_close(a, b, tolerance)                                                              \
    do {                                                                                           \
        double check_a = (double)(a), check_b = (double)(b), check_t = (double)(tolerance);        \
        if (!(fabs(check_a - check_b) <= check_t))                                                 \
            fail_msg("%s = %.17g is not within %g of %.17g", #a, check_a, check_t, check_b);       \
    } while (0)

/* The same, relative to the larger of |b| and 1. */
#define assert_close_relative(a, b, tolerance)                                                     \
    assert_close(a, b, (double)(tolerance)*fmax(1.0, fabs((double)(b))))

/* ---- configurations */

/* The default of every option of a model, those of methods that come later included. */
static inline struct alibi_config default_config(void)
{
    struct alibi_config config = { 0 };
    struct alibi_option_group group = { .values = &config };

    group.options = alibi_config_options(&group.count);
    assert_ok(alibi_options_init(&group, 1));
    return config;
}

/* ---- temporary folders */

static inline int remove_entry(const char *path, const struct stat *info, int kind,
                               struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Removes the folder with everything in it, and frees the path. */
static inline void remove_temporary_folder(char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

/* A fresh folder under $TMPDIR or /tmp; end with remove_temporary_folder(). */
static inline char *temporary_folder(void)
{
    const char *root = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    size_t bytes = strlen(root) + sizeof "/alibi-test-XXXXXX";
    char *path = malloc(bytes);

    assert_non_null(path);
    snprintf(path, bytes, "%s/alibi-test-XXXXXX", root);
    assert_non_null(mkdtemp(path));
    return path;
}

/* `folder`/`name`, in one of sixteen buffers that take turns. */
static inline const char *within(const char *folder, const char *name)
{
    static char paths[16][4096];
    static int turn;
    char *path = paths[turn++ % 16];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- files */

static inline void write_file(const char *path, const void *bytes, size_t length)
{
    FILE *f = fopen(path, "wb");

    if (f == NULL)
        fail_msg("cannot create '%s'", path);
    assert_int_equal(length > 0 ? fwrite(bytes, 1, length, f) : 0, length);
    assert_int_equal(fclose(f), 0);
}

/* ---- memory */

/* A copy in a block of its exact size, so that the sanitizer sees a read past its end. The caller
 * frees it. */
static inline char *exact_copy(const char *bytes, size_t length)
{
    char *exact = malloc(length > 0 ? length : 1);

    assert_non_null(exact);
    memcpy(exact, bytes, length);
    return exact;
}

/* ---- faults */

static inline int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* Runs job(subject) again and again, with its first call of that kind ("file", "memory") failing,
 * then its second, and so on. Each failure must have that status and a message with `part`, and
 * must not leak. Some calls may fail without consequence, such as closing a file that was only
 * read; therefore the end is reached when 20 in a row changed nothing. Returns the number of
 * failures. */
static inline int fail_each_call(const char *kind, alibi_status (*job)(void *subject),
                                 void *subject, alibi_status expected, const char *part)
{
    size_t before = alibi_memory_now();
    int descriptors = open_descriptors(), failures = 0;

    for (int n = 1, unharmed = 0; unharmed < 20; n++) {
        alibi_status status;
        assert_ok(alibi_inject_fault(kind, n));
        status = job(subject);
        assert_ok(alibi_inject_fault(kind, 0));
        if (status != ALIBI_OK)
            assert_fails(status, expected, part);
        assert_int_equal(alibi_memory_now(), before);
        assert_int_equal(open_descriptors(), descriptors);
        unharmed = status == ALIBI_OK ? unharmed + 1 : 0;
        failures += status != ALIBI_OK;
    }
    print_message("%d %s faults\n", failures, kind);
    return failures;
}

#endif
