/* folder.h - a fresh folder for each test, removed when the test ends:
 *
 *   cmocka_unit_test_setup_teardown(test, make_folder, drop_folder) */
#ifndef FOLDER_H
#define FOLDER_H

#include "check.h"

static char *folder;

static inline int make_folder(void **state)
{
    (void)state;
    folder = temporary_folder();
    return 0;
}

static inline int drop_folder(void **state)
{
    (void)state;
    assert_int_equal(alibi_inject_fault("file", 0), ALIBI_OK);
    assert_int_equal(alibi_inject_fault("memory", 0), ALIBI_OK);
    remove_temporary_folder(folder);
    return 0;
}

#endif
