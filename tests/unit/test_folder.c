/* test_folder.c - folders, paths and locks */
#include "folder.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/base.h"

/* ---- folders and paths */

static void folders_are_created_with_their_parents(void **state)
{
    (void)state;
    assert_ok(folder_create(within(folder, "a/b//c/")));
    assert_true(folder_exists(within(folder, "a/b/c")));
    assert_ok(folder_create(within(folder, "a/b/c")));
    assert_ok(folder_create("/"));
    assert_ok(folder_create("."));
    assert_fails(folder_create(""), ALIBI_BAD_INPUT, "cannot create folder ''");
}

static void listing_is_sorted_and_without_dots(void **state)
{
    const char *const files[] = { "b", "a10", "a1", ".hidden", "Z" };
    const char *const sorted[] = { ".hidden", "Z", "a1", "a10", "b" };
    char **names = NULL;
    int count = -1;

    (void)state;
    assert_ok(folder_list(&names, &count, folder));
    assert_int_equal(count, 0);
    names_free(names, count);
    for (int i = 0; i < 5; i++)
        write_file(within(folder, files[i]), "", 0);
    assert_ok(folder_list(&names, &count, folder));
    assert_int_equal(count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(names[i], sorted[i]);
    names_free(names, count);
}

static void removing_a_folder_takes_its_files_but_nothing_deeper(void **state)
{
    const char *sub = within(folder, "s");

    (void)state;
    assert_ok(folder_create(within(folder, "s/deeper")));
    assert_int_not_equal(folder_remove(sub), ALIBI_OK);
    assert_true(folder_exists(within(folder, "s/deeper")));
    assert_int_equal(rmdir(within(folder, "s/deeper")), 0);
    write_file(within(folder, "s/file"), "x", 1);
    assert_ok(folder_remove(sub));
    assert_false(folder_exists(sub));
}

static void joined_paths_have_one_slash(void **state)
{
    const char *const cases[][3] = {
        { "a", "b", "a/b" }, { "a/", "b", "a/b" }, { "", "b", "b" }, { "/", "b", "/b" }
    };

    (void)state;
    for (int i = 0; i < 4; i++) {
        char *path = NULL;
        assert_ok(path_join(&path, cases[i][0], cases[i][1]));
        assert_string_equal(path, cases[i][2]);
        mem_free(path);
    }
}

/* ---- nested folders */

static void assert_files(const char *path, const char *const *expected, int expected_count)
{
    char **paths = NULL;
    int count = -1;

    assert_ok(folder_list_files(&paths, &count, path));
    assert_int_equal(count, expected_count);
    for (int i = 0; i < count; i++)
        assert_string_equal(paths[i] + strlen(folder) + 1, expected[i]);
    names_free(paths, count);
}

static void files_of_nested_folders_are_listed_in_the_order_of_their_paths(void **state)
{
    const char *const files[] = { "z", "a/2",     "a/10",      "a.txt",      "a/b/c/deep",
                                  "B", ".hidden", "a/.hidden", ".git/config" };
    const char *const sorted[] = { "B", "a.txt", "a/10", "a/2", "a/b/c/deep", "z" };

    (void)state;
    assert_files(folder, NULL, 0);
    assert_ok(folder_create(within(folder, "a/b/c")));
    assert_ok(folder_create(within(folder, ".git")));
    assert_ok(folder_create(within(folder, "empty")));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        write_file(within(folder, files[i]), "", 0);
    assert_files(folder, sorted, 6);
    assert_files(within(folder, "a/"), sorted + 2, 3);
}

static void links_make_no_loops_and_pipes_are_no_files(void **state)
{
    const char *const sorted[] = { "a/file", "a/leads-nowhere", "a/link" };

    (void)state;
    assert_ok(folder_create(within(folder, "a")));
    write_file(within(folder, "a/file"), "x", 1);
    assert_int_equal(symlink("file", within(folder, "a/link")), 0);
    assert_int_equal(symlink("nothing", within(folder, "a/leads-nowhere")), 0);
    assert_int_equal(symlink("..", within(folder, "a/up")), 0);
    assert_int_equal(symlink(".", within(folder, "a/here")), 0);
    assert_int_equal(mkfifo(within(folder, "a/pipe"), 0600), 0);
    assert_files(folder, sorted, 3);
    assert_int_equal(symlink("a", within(folder, "start")), 0);
    assert_files(within(folder, "start"),
                 (const char *const[]){ "start/file", "start/leads-nowhere", "start/link" }, 3);
}

static void folders_deeper_than_the_longest_path_are_refused(void **state)
{
    char *before = getcwd(NULL, 0), **paths = NULL, name[201];
    int count = -1;

    (void)state;
    memset(name, 'd', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(chdir(folder), 0);
    for (int i = 0; i < 25; i++) {
        assert_int_equal(mkdir(name, 0700), 0);
        assert_int_equal(chdir(name), 0);
    }
    assert_fails(folder_list_files(&paths, &count, folder), ALIBI_BAD_INPUT, "cannot list");
    for (int i = 0; i < 25; i++) {
        assert_int_equal(chdir(".."), 0);
        assert_int_equal(rmdir(name), 0);
    }
    assert_int_equal(chdir(before), 0);
    free(before);
}

static void listing_something_else_than_a_folder_fails(void **state)
{
    char **paths = NULL;
    int count = -1;

    (void)state;
    write_file(within(folder, "a"), "x", 1);
    assert_fails(folder_list_files(&paths, &count, within(folder, "a")), ALIBI_BAD_INPUT,
                 "a': Not a directory");
    assert_fails(folder_list_files(&paths, &count, within(folder, "b")), ALIBI_BAD_INPUT,
                 "b': No such file or directory");
    assert_null(paths);
}

/* ---- locks */

static void second_lock_names_the_holder_and_release_frees(void **state)
{
    struct lock *first = NULL, *second = NULL;
    char expected[64];

    (void)state;
    assert_ok(lock_take(&first, folder));
    snprintf(expected, sizeof expected, "' is in use by process %ld", (long)getpid());
    assert_fails(lock_take(&second, folder), ALIBI_IO, expected);
    assert_null(second);
    lock_release(first);
    assert_ok(lock_take(&second, folder));
    lock_release(second);
    lock_release(NULL);
}

static void checking_a_lock_writes_nothing(void **state)
{
    struct lock *l = NULL;
    char *content = NULL, expected[64];
    size_t bytes;
    bool used = true;

    (void)state;
    assert_ok(lock_check(&used, folder));
    assert_false(used);
    assert_false(file_exists(within(folder, "lock")));
    write_file(within(folder, "lock"), "123\n", 4);
    assert_ok(lock_check(&used, folder));
    assert_false(used);
    assert_ok(file_read_all(&content, &bytes, within(folder, "lock"), 64));
    assert_string_equal(content, "123\n");
    mem_free(content);
    assert_ok(lock_take(&l, folder));
    assert_ok(lock_check(&used, folder));
    assert_true(used);
    snprintf(expected, sizeof expected, "is in use by process %ld", (long)getpid());
    assert_non_null(strstr(alibi_error(), expected));
    lock_release(l);
}

static void lock_of_a_process_that_died_is_free(void **state)
{
    struct lock *l = NULL;
    int result = -1;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        result = lock_take(&l, folder) == ALIBI_OK ? 0 : 1;
        _exit(result);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_ok(lock_take(&l, folder));
    lock_release(l);
}

static void lock_without_a_readable_holder_is_still_refused(void **state)
{
    struct lock *first = NULL, *second = NULL;

    (void)state;
    assert_ok(lock_take(&first, folder));
    assert_ok(file_truncate(within(folder, "lock"), 0));
    assert_fails(lock_take(&second, folder), ALIBI_IO, "is in use by another process");
    lock_release(first);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(folders_are_created_with_their_parents),
        TEST(listing_is_sorted_and_without_dots),
        TEST(removing_a_folder_takes_its_files_but_nothing_deeper),
        TEST(joined_paths_have_one_slash),
        TEST(files_of_nested_folders_are_listed_in_the_order_of_their_paths),
        TEST(links_make_no_loops_and_pipes_are_no_files),
        TEST(folders_deeper_than_the_longest_path_are_refused),
        TEST(listing_something_else_than_a_folder_fails),
        TEST(second_lock_names_the_holder_and_release_frees),
        TEST(checking_a_lock_writes_nothing),
        TEST(lock_of_a_process_that_died_is_free),
        TEST(lock_without_a_readable_holder_is_still_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
