/* test_comm.c - ranks: how flat buffers are divided, and what one process alone does;
 * tests/cli/test_cluster.sh tests several */
#include "check.h"
#include "comm/comm.h"

static void blocks_cover_a_buffer_of_any_length(void **state)
{
    static const int64_t spans[] = { 0, 1, 63, 64, 65, 32768, 32769, 1000003, INT64_C(1300000000) };

    (void)state;
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        int64_t next = 0;
        for (int b = 0; b < COMM_BLOCKS; b++) {
            struct range block = comm_block(spans[i], b);
            assert_int_equal(block.first, next);
            assert_true(block.count >= 0);
            assert_true(block.count == 0 || block.first % COMM_ALIGN == 0);
            next += block.count;
        }
        assert_int_equal(next, spans[i]);
    }
}

static void alone_there_is_one_rank_with_everything(void **state)
{
    struct range all = comm_stretch(NULL, 100000, 0);
    bool stop = true;

    (void)state;
    assert_int_equal(comm_rank(NULL), 0);
    assert_int_equal(comm_size(NULL), 1);
    assert_int_equal(comm_shard(NULL, 100000, 100000), 100000);
    assert_int_equal(comm_shard(NULL, 100000, 777), 777);
    assert_int_equal(all.first, 0);
    assert_int_equal(all.count, 100000);
    assert_ok(comm_agree(NULL, ALIBI_OK));
    assert_fails(comm_agree(NULL, fail(ALIBI_IO, "the disk is full")), ALIBI_IO,
                 "the disk is full");
    assert_ok(comm_any(NULL, &stop));
    assert_true(stop);
    assert_ok(comm_same(NULL, "x", 1, "letter"));
}

static void a_process_without_a_launcher_connects_with_nobody(void **state)
{
    alibi_comm *c = NULL;
    struct alibi_comm_info info;

    (void)state;
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_RANK");
    unsetenv("PMI_RANK");
    assert_ok(alibi_comm_open(&c));
    alibi_comm_get_info(c, &info);
    assert_int_equal(info.rank, 0);
    assert_int_equal(info.size, 1);
    assert_false(info.agreed);
    assert_fails(alibi_comm_agree(c, ALIBI_USAGE, "no"), ALIBI_USAGE, "");
    alibi_comm_free(c, ALIBI_OK);
    alibi_comm_free(NULL, ALIBI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_cover_a_buffer_of_any_length),
        cmocka_unit_test(alone_there_is_one_rank_with_everything),
        cmocka_unit_test(a_process_without_a_launcher_connects_with_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
