/* test_file.c - files: reading, writing, replacing, mapping, input of any kind; each system call
 * failing in turn */
#include "folder.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/base.h"

enum { ENOUGH = 1 << 20 };

static void assert_content(const char *path, const char *expected)
{
    char *bytes = NULL;
    size_t length = 0;

    assert_ok(file_read_all(&bytes, &length, path, ENOUGH));
    assert_int_equal(length, strlen(expected));
    assert_string_equal(bytes, expected);
    mem_free(bytes);
}

/* ---- files */

static void what_is_written_is_read_back(void **state)
{
    const char *path = within(folder, "a");
    struct file *f = NULL;
    char buffer[16] = "";
    size_t got = 0;

    (void)state;
    assert_ok(file_create(&f, path));
    assert_ok(file_write(f, "hello ", 6));
    assert_ok(file_write(f, "", 0));
    assert_int_equal(file_size(f), 6);
    assert_ok(file_sync(f));
    assert_ok(file_close(f));
    assert_ok(file_open_append(&f, path));
    assert_int_equal(file_size(f), 6);
    assert_ok(file_write(f, "world", 5));
    assert_int_equal(file_size(f), 11);
    assert_ok(file_close(f));

    assert_ok(file_open_read(&f, path));
    assert_int_equal(file_size(f), 11);
    assert_ok(file_read(f, buffer, 4, &got));
    assert_int_equal(got, 4);
    assert_ok(file_read(f, buffer + 4, 12, &got));
    assert_int_equal(got, 7);
    assert_string_equal(buffer, "hello world");
    assert_ok(file_read(f, buffer, 1, &got));
    assert_int_equal(got, 0);
    assert_ok(file_close(f));
    assert_ok(file_close(NULL));
}

static void creating_truncates_what_was_there(void **state)
{
    const char *path = within(folder, "a");

    struct file *f = NULL;

    (void)state;
    write_file(path, "a longer text", 13);
    assert_ok(file_create(&f, path));
    assert_content(path, "");
    assert_ok(file_write(f, "short", 5));
    assert_ok(file_close(f));
    assert_content(path, "short");
    assert_ok(file_truncate(path, 2));
    assert_content(path, "sh");
}

static void several_writers_fill_a_file_of_a_set_size(void **state)
{
    const char *path = within(folder, "a");
    struct file *one = NULL, *two = NULL;

    (void)state;
    assert_int_equal(file_open_write(&two, path), ALIBI_BAD_INPUT);
    assert_ok(file_create(&one, path));
    assert_ok(file_set_size(one, 7));
    assert_int_equal(file_size(one), 7);
    assert_ok(file_open_write(&two, path));
    assert_int_equal(file_size(two), 7);
    assert_ok(file_write_at(two, "name", 4, 3));
    assert_ok(file_write_at(one, "re", 2, 0));
    assert_ok(file_write_at(one, "-s", 2, 7));
    assert_int_equal(file_size(one), 9);
    assert_ok(file_write_at(one, "-", 1, 2));
    assert_ok(file_close(one));
    assert_ok(file_close(two));
    assert_content(path, "re-name-s");
}

static void missing_files_and_folders_are_bad_input_with_their_path(void **state)
{
    char *path = strdup(within(folder, "none/x"));
    char expected[4200];
    struct file *f = NULL;
    char *bytes = NULL;
    size_t length = 0;
    char **names = NULL;
    int count = 0;
    int64_t space = 0;
    struct lock *l = NULL;

    (void)state;
    snprintf(expected, sizeof expected, "cannot open '%s': No such file or directory", path);
    assert_fails(file_open_read(&f, path), ALIBI_BAD_INPUT, expected);
    assert_fails(file_read_all(&bytes, &length, path, ENOUGH), ALIBI_BAD_INPUT, expected);
    assert_fails(file_open_append(&f, path), ALIBI_BAD_INPUT, expected);
    assert_fails(file_create(&f, path), ALIBI_BAD_INPUT, "cannot create '");
    assert_fails(file_replace(path, "", 0), ALIBI_BAD_INPUT, "its folder does not exist");
    assert_fails(file_truncate(path, 0), ALIBI_BAD_INPUT, "cannot truncate '");
    assert_fails(file_rename(path, path), ALIBI_BAD_INPUT, "cannot rename '");
    assert_fails(folder_list(&names, &count, path), ALIBI_BAD_INPUT, "cannot list folder '");
    assert_fails(folder_sync(path), ALIBI_BAD_INPUT, "cannot open folder '");
    assert_fails(folder_free_space(&space, path), ALIBI_BAD_INPUT, "No such file or directory");
    assert_fails(lock_take(&l, path), ALIBI_BAD_INPUT, "lock': its folder does not exist");
    assert_false(file_exists(path));
    assert_false(folder_exists(path));
    assert_ok(file_remove(path));
    assert_ok(folder_remove(path));
    assert_null(f);
    assert_null(bytes);
    free(path);
}

static void folder_in_place_of_a_file_is_bad_input(void **state)
{
    struct file *f = NULL;

    (void)state;
    assert_fails(file_open_read(&f, folder), ALIBI_BAD_INPUT, "': it is a folder");
    assert_fails(file_create(&f, folder), ALIBI_BAD_INPUT, "Is a directory");
    assert_fails(file_open_append(&f, folder), ALIBI_BAD_INPUT, "Is a directory");
    assert_fails(file_replace(folder, "x", 1), ALIBI_BAD_INPUT, "Is a directory");
    assert_false(file_exists(folder));
    assert_true(folder_exists(folder));
}

static void file_in_place_of_a_folder_is_bad_input(void **state)
{
    const char *path = within(folder, "a");
    struct file *f = NULL;
    char **names = NULL;
    int count = 0;

    (void)state;
    write_file(path, "x", 1);
    assert_fails(file_open_read(&f, within(folder, "a/b")), ALIBI_BAD_INPUT, "Not a directory");
    assert_fails(folder_list(&names, &count, path), ALIBI_BAD_INPUT, "Not a directory");
    assert_fails(folder_create(path), ALIBI_BAD_INPUT, "it is a file");
    assert_fails(folder_create(within(folder, "a/b")), ALIBI_BAD_INPUT, "it is a file");
    assert_fails(folder_remove(path), ALIBI_BAD_INPUT, "Not a directory");
    assert_false(folder_exists(path));
    assert_true(file_exists(path));
}

static void pipe_is_refused_and_not_waited_for(void **state)
{
    const char *path = within(folder, "pipe");
    struct file *f = NULL;

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(file_open_read(&f, path), ALIBI_BAD_INPUT, "it is not a regular file");
}

/* Permissions do not bind root, so root becomes nobody for a moment. */
static void forbidden_files_are_bad_input(void **state)
{
    char *path = strdup(within(folder, "secret"));
    struct file *f = NULL;
    bool is_root = geteuid() == 0;

    (void)state;
    write_file(path, "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(folder, 0555), 0);
    if (is_root)
        assert_int_equal(seteuid(65534), 0);
    assert_fails(file_open_read(&f, path), ALIBI_BAD_INPUT, "secret': Permission denied");
    assert_fails(file_create(&f, path), ALIBI_IO, "secret': Permission denied");
    assert_fails(file_remove(path), ALIBI_IO, "secret': Permission denied");
    assert_fails(folder_create(within(folder, "new")), ALIBI_IO, "new': Permission denied");
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    free(path);
}

static void hostile_names_cannot_break_the_line(void **state)
{
    struct file *f = NULL;

    (void)state;
    assert_fails(file_open_read(&f, "no\n\033[31m\xff"), ALIBI_BAD_INPUT,
                 "cannot open 'no??[31m?': No such file");
}

static void full_disk_is_an_io_error(void **state)
{
    struct file *f = NULL;

    (void)state;
    assert_ok(file_create(&f, "/dev/full"));
    assert_fails(file_write(f, "x", 1), ALIBI_IO,
                 "cannot write '/dev/full': No space left on device");
    assert_ok(file_close(f));
}

/* Beyond the limit on file sizes the system writes what still fits, and fails the next call. */
static void short_write_is_continued_until_the_reason_is_known(void **state)
{
    struct rlimit before, ten;
    struct file *f = NULL;

    (void)state;
    assert_ok(file_create(&f, within(folder, "a")));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    ten = before;
    ten.rlim_cur = 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &ten), 0);
    assert_fails(file_write(f, "0123456789abcdef", 16), ALIBI_IO, "File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(file_size(f), 10);
    assert_ok(file_close(f));
    assert_content(within(folder, "a"), "0123456789");
}

static void reading_all_respects_the_limit_and_ends_with_a_zero(void **state)
{
    const char *path = within(folder, "a");
    char *bytes = NULL;
    size_t length = 0;

    (void)state;
    write_file(path, "12345", 5);
    assert_ok(file_read_all(&bytes, &length, path, 5));
    assert_int_equal(bytes[5], 0);
    mem_free(bytes);
    bytes = NULL;
    assert_fails(file_read_all(&bytes, &length, path, 4), ALIBI_BAD_INPUT,
                 "it has 5 bytes, at most 4 are allowed");
    assert_null(bytes);
}

static void renaming_and_removing(void **state)
{
    const char *a = within(folder, "a"), *b = within(folder, "b");

    (void)state;
    write_file(a, "x", 1);
    assert_ok(file_rename(a, b));
    assert_false(file_exists(a));
    assert_content(b, "x");
    assert_ok(file_remove(b));
    assert_false(file_exists(b));
}

/* ---- replacing */

static void replacing_leaves_the_new_content_and_nothing_else(void **state)
{
    const char *path = within(folder, "a");
    char **names = NULL;
    int count = 0;

    (void)state;
    assert_ok(file_replace(path, "old", 3));
    assert_ok(file_replace(path, "new", 3));
    assert_content(path, "new");
    assert_ok(folder_list(&names, &count, folder));
    assert_int_equal(count, 1);
    names_free(names, count);
}

/* A run and `alibi report --watch` write the same pages. */
static void two_processes_replace_a_file_and_neither_fails(void **state)
{
    enum { TIMES = 300 };
    char *path = strdup(within(folder, "a"));
    static char bytes[2][4096];
    alibi_status status = ALIBI_OK;
    pid_t child = fork();
    int which = child == 0, ended = -1;

    (void)state;
    memset(bytes[which], "xy"[which], sizeof bytes[which]);
    for (int i = 0; i < TIMES && status == ALIBI_OK; i++)
        status = file_replace_shared(path, bytes[which], sizeof bytes[which]);
    if (child == 0)
        _exit(status == ALIBI_OK ? 0 : 1);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_ok(status);
    assert_int_equal(ended, 0);
    free(path);
}

static void replacing_works_with_a_bare_name(void **state)
{
    char *before = getcwd(NULL, 0);

    (void)state;
    assert_int_equal(chdir(folder), 0);
    assert_ok(file_replace("bare", "x", 1));
    assert_int_equal(chdir(before), 0);
    assert_content(within(folder, "bare"), "x");
    free(before);
}

/* Whichever call fails, the file has its old or its new content, complete, and no temporary file
 * remains. */
static void failing_replacement_keeps_old_or_new_content_whole(const char *kind)
{
    char *path = strdup(within(folder, "a"));
    size_t before = alibi_memory_now();
    int descriptors = open_descriptors();
    alibi_status status;
    int64_t n = 0;
    bool renamed = false;

    do {
        char *bytes = NULL;
        size_t length = 0;
        write_file(path, "the old text", 12);
        assert_ok(alibi_inject_fault(kind, ++n));
        status = file_replace(path, "new", 3);
        assert_ok(alibi_inject_fault(kind, 0));
        assert_ok(file_read_all(&bytes, &length, path, ENOUGH));
        renamed = renamed || length == 3;
        if (status == ALIBI_OK || renamed)
            assert_string_equal(bytes, "new");
        else
            assert_string_equal(bytes, "the old text");
        mem_free(bytes);
        assert_false(file_exists(within(folder, "a.tmp")));
        assert_int_equal(alibi_memory_now(), before);
        assert_int_equal(open_descriptors(), descriptors);
    } while (status != ALIBI_OK);
    assert_true(n > 4);
    free(path);
}

static void replacement_survives_every_failing_file_call(void **state)
{
    (void)state;
    failing_replacement_keeps_old_or_new_content_whole("file");
}

static void replacement_survives_every_failing_allocation(void **state)
{
    (void)state;
    failing_replacement_keeps_old_or_new_content_whole("memory");
}

static alibi_status write_abc(struct file *f, const void *user)
{
    (void)user;
    return file_write(f, "abc", 3);
}

static alibi_status write_half(struct file *f, const void *user)
{
    TRY_RETURN(write_abc(f, user));
    return fail(ALIBI_MEMORY, "no more");
}

static void a_writer_that_fails_leaves_the_old_file(void **state)
{
    const char *path = within(folder, "a");

    (void)state;
    write_file(path, "the old text", 12);
    assert_fails(file_replace_with(path, write_half, NULL), ALIBI_MEMORY, "no more");
    assert_content(path, "the old text");
    assert_false(file_exists(within(folder, "a.tmp")));
    assert_ok(file_replace_with(path, write_abc, NULL));
    assert_content(path, "abc");
}

static void what_is_not_a_regular_file_is_written_in_place(void **state)
{
    const char *path = within(folder, "a"), *link = within(folder, "link");
    struct stat info;

    (void)state;
    write_file(path, "the old text", 12);
    assert_int_equal(symlink(path, link), 0);
    assert_ok(file_replace_with(link, write_abc, NULL));
    assert_content(path, "abc");
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_ok(file_replace_with("/dev/null", write_abc, NULL));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

/* The n-th file call of `job` fails, for every n: does one of the messages contain `part`? Shows
 * that the call is made. */
static bool fails_somewhere_with(alibi_status (*job)(void), const char *part)
{
    bool seen = false;

    for (int64_t n = 1; n < 20; n++) {
        assert_ok(alibi_inject_fault("file", n));
        if (job() != ALIBI_OK)
            seen = seen || strstr(alibi_error(), part) != NULL;
        assert_ok(alibi_inject_fault("file", 0));
    }
    return seen;
}

static alibi_status replace_it(void)
{
    return file_replace(within(folder, "a"), "x", 1);
}

static alibi_status create_two(void)
{
    rmdir(within(folder, "p/q"));
    rmdir(within(folder, "p"));
    return folder_create(within(folder, "p/q"));
}

static void what_must_survive_a_power_cut_is_synced(void **state)
{
    char in_folder[4200], in_parent[4200];

    (void)state;
    snprintf(in_folder, sizeof in_folder, "cannot sync folder '%s'", folder);
    snprintf(in_parent, sizeof in_parent, "cannot sync folder '%s/p'", folder);
    assert_true(fails_somewhere_with(replace_it, "a': No space left"));
    assert_true(fails_somewhere_with(replace_it, "cannot sync '"));
    assert_true(fails_somewhere_with(replace_it, in_folder));
    assert_true(fails_somewhere_with(create_two, in_folder));
    assert_true(fails_somewhere_with(create_two, in_parent));
}

static void failing_write_and_sync_read_like_a_full_disk(void **state)
{
    struct file *f = NULL;

    (void)state;
    assert_ok(file_create(&f, within(folder, "a")));
    assert_ok(alibi_inject_fault("file", 1));
    assert_fails(file_write(f, "x", 1), ALIBI_IO, "a': No space left on device");
    assert_ok(alibi_inject_fault("file", 1));
    assert_fails(file_sync(f), ALIBI_IO, "cannot sync '");
    assert_ok(alibi_inject_fault("file", 1));
    assert_fails(file_close(f), ALIBI_IO, "cannot close '");
}

/* ---- everything else, with each call failing in turn */

/* The folder holds the file and the lock. */
static alibi_status read_everything(const char *path, const char *file)
{
    alibi_status status;
    struct file *f = NULL;
    struct mapping *m = NULL;
    char **paths = NULL, buffer[8];
    size_t got = 0, mapped = 0;
    int count = 0;
    int64_t bytes = 0, modified;

    TRY(folder_list_files(&paths, &count, path));
    assert_int_equal(count, 2);
    TRY(file_measure(&bytes, &modified, file));
    TRY(file_open_input(&f, file, NULL, NULL));
    TRY(file_read(f, buffer, sizeof buffer, &got));
    TRY(mapping_open(&m, file));
    assert_memory_equal(mapping_view(m, &mapped), buffer, got);
    assert_int_equal(mapped, bytes);
out:
    mapping_close(m);
    (void)file_close(f);
    names_free(paths, count);
    return status;
}

static alibi_status use_everything(void *subject)
{
    const char *path = subject;
    alibi_status status;
    char *sub = NULL, *a = NULL, *b = NULL, *bytes = NULL;
    char **names = NULL;
    struct file *f = NULL;
    struct lock *l = NULL;
    size_t length = 0;
    int count = 0;
    int64_t space = 0;

    TRY(path_join(&sub, path, "x/y"));
    TRY(path_join(&a, sub, "a"));
    TRY(path_join(&b, sub, "b"));
    TRY(folder_create(sub));
    TRY(lock_take(&l, sub));
    TRY(file_replace_with(a, write_abc, NULL));
    TRY(file_open_append(&f, a));
    status = file_write(f, "def", 3);
    if (status == ALIBI_OK)
        status = file_close(f);
    else
        file_close(f);
    TRY(status);
    TRY(file_rename(a, b));
    TRY(file_truncate(b, 4));
    TRY(file_read_all(&bytes, &length, b, ENOUGH));
    assert_string_equal(bytes, "abcd");
    TRY(folder_list(&names, &count, sub));
    assert_int_equal(count, 2);
    TRY(folder_sync(sub));
    TRY(folder_free_space(&space, sub));
    assert_true(space >= 0);
    TRY(read_everything(path, b));
out:
    lock_release(l);
    if (status == ALIBI_OK)
        status = folder_remove(sub);
    names_free(names, count);
    mem_free(bytes);
    mem_free(sub);
    mem_free(a);
    mem_free(b);
    return status;
}

static void every_failing_file_call_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    assert_true(fail_each_call("file", use_everything, folder, ALIBI_IO, "") > 15);
}

static void every_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    assert_true(fail_each_call("memory", use_everything, folder, ALIBI_MEMORY, "") > 15);
}

/* A caller that asks before overwriting must not be told "no such file" when the disk cannot
 * answer. */
static void unknown_existence_counts_as_existing(void **state)
{
    (void)state;
    assert_ok(alibi_inject_fault("file", 1));
    assert_true(file_exists(within(folder, "none")));
    assert_ok(alibi_inject_fault("file", 1));
    assert_true(folder_exists(within(folder, "none")));
}

/* ---- input of any kind */

static void assert_input(const char *path, const char *expected, int64_t size)
{
    struct file *f = NULL;
    char buffer[64] = "";
    size_t got = 0;

    assert_ok(file_open_input(&f, path, NULL, NULL));
    assert_int_equal(file_size(f), size);
    assert_ok(file_read(f, buffer, sizeof buffer - 1, &got));
    assert_int_equal(got, strlen(expected));
    assert_string_equal(buffer, expected);
    assert_ok(file_close(f));
}

static void regular_files_and_devices_are_input(void **state)
{
    struct file *f = NULL;
    int64_t bytes = -1, modified = -1;

    (void)state;
    write_file(within(folder, "a"), "text", 4);
    assert_input(within(folder, "a"), "text", 4);
    assert_input("/dev/null", "", 0);
    assert_ok(file_measure(&bytes, &modified, within(folder, "a")));
    assert_int_equal(bytes, 4);
    assert_ok(file_measure(&bytes, &modified, "/dev/null"));
    assert_int_equal(bytes, 0);
    assert_fails(file_measure(&bytes, &modified, within(folder, "b")), ALIBI_BAD_INPUT,
                 "cannot open '");
    assert_fails(file_open_input(&f, folder, NULL, NULL), ALIBI_BAD_INPUT, "it is a folder");
    assert_fails(file_open_input(&f, within(folder, "b"), NULL, NULL), ALIBI_BAD_INPUT,
                 "b': No such file or directory");
}

/* The writer starts late and writes in two parts; the reader waits for both. */
static void pipes_are_waited_for(void **state)
{
    const char *path = within(folder, "pipe");
    pid_t child;
    int result = -1;

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    child = fork();
    if (child == 0) {
        FILE *f;
        usleep(20000);
        f = fopen(path, "w");
        if (f == NULL || fputs("one ", f) < 0 || fflush(f) != 0)
            _exit(1);
        usleep(20000);
        _exit(fputs("two", f) < 0 || fclose(f) != 0);
    }
    assert_input(path, "one two", 0);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

static void a_dash_is_standard_input_which_stays_open(void **state)
{
    int before = dup(STDIN_FILENO), ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "hello", 5), 5);
    close(ends[1]);
    assert_true(dup2(ends[0], STDIN_FILENO) >= 0);
    close(ends[0]);
    assert_input("-", "hello", 0);
    assert_input("-", "", 0);
    assert_true(dup2(before, STDIN_FILENO) >= 0);
    close(before);
}

/* ---- mapped files */

static void a_mapped_file_is_its_bytes(void **state)
{
    struct mapping *m = NULL;
    size_t bytes = 1;
    int descriptors = open_descriptors();

    (void)state;
    write_file(within(folder, "a"), "mapped\0text", 11);
    write_file(within(folder, "empty"), "", 0);
    assert_ok(mapping_open(&m, within(folder, "a")));
    assert_int_equal(open_descriptors(), descriptors);
    assert_memory_equal(mapping_view(m, &bytes), "mapped\0text", 11);
    assert_int_equal(bytes, 11);
    assert_int_equal(unlink(within(folder, "a")), 0);
    assert_memory_equal(mapping_view(m, &bytes), "mapped\0text", 11);
    mapping_close(m);
    assert_ok(mapping_open(&m, within(folder, "empty")));
    assert_non_null(mapping_view(m, &bytes));
    assert_int_equal(bytes, 0);
    mapping_close(m);
    mapping_close(NULL);
}

static void only_regular_files_are_mapped(void **state)
{
    struct mapping *m = NULL;

    (void)state;
    assert_int_equal(mkfifo(within(folder, "pipe"), 0600), 0);
    assert_fails(mapping_open(&m, folder), ALIBI_BAD_INPUT, "it is a folder");
    assert_fails(mapping_open(&m, within(folder, "pipe")), ALIBI_BAD_INPUT,
                 "it is not a regular file");
    assert_fails(mapping_open(&m, "/dev/zero"), ALIBI_BAD_INPUT, "it is not a regular file");
    assert_fails(mapping_open(&m, within(folder, "none")), ALIBI_BAD_INPUT,
                 "none': No such file or directory");
    assert_null(m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read_back),
        TEST(creating_truncates_what_was_there),
        TEST(several_writers_fill_a_file_of_a_set_size),
        TEST(missing_files_and_folders_are_bad_input_with_their_path),
        TEST(folder_in_place_of_a_file_is_bad_input),
        TEST(file_in_place_of_a_folder_is_bad_input),
        TEST(pipe_is_refused_and_not_waited_for),
        TEST(forbidden_files_are_bad_input),
        TEST(hostile_names_cannot_break_the_line),
        TEST(full_disk_is_an_io_error),
        TEST(short_write_is_continued_until_the_reason_is_known),
        TEST(reading_all_respects_the_limit_and_ends_with_a_zero),
        TEST(renaming_and_removing),
        TEST(replacing_leaves_the_new_content_and_nothing_else),
        TEST(two_processes_replace_a_file_and_neither_fails),
        TEST(replacing_works_with_a_bare_name),
        TEST(replacement_survives_every_failing_file_call),
        TEST(replacement_survives_every_failing_allocation),
        TEST(a_writer_that_fails_leaves_the_old_file),
        TEST(what_is_not_a_regular_file_is_written_in_place),
        TEST(what_must_survive_a_power_cut_is_synced),
        TEST(failing_write_and_sync_read_like_a_full_disk),
        TEST(every_failing_file_call_is_reported_and_leaks_nothing),
        TEST(every_failing_allocation_is_reported_and_leaks_nothing),
        TEST(unknown_existence_counts_as_existing),
        TEST(regular_files_and_devices_are_input),
        TEST(pipes_are_waited_for),
        TEST(a_dash_is_standard_input_which_stays_open),
        TEST(a_mapped_file_is_its_bytes),
        TEST(only_regular_files_are_mapped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
