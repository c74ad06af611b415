/* test_comm.c - ranks: how flat buffers are divided and added, and what one process alone does;
 * tests/cli/test_cluster.sh, test_ranks.sh and test_nccl.sh test several */
#include "check.h"
#include "comm/ranks.h"
#include "ops/bf16.h"

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

static void shards_cover_a_buffer_of_any_length_once(void **state)
{
    static const int64_t spans[] = { 1, 63, 64, 65, 32768, 32769, 1000003 };
    static const int sizes[] = { 1, 2, 3, 5, 64, 512 };

    (void)state;
    for (size_t i = 0; i < sizeof spans / sizeof spans[0] * 6; i++) {
        int64_t span = spans[i / 6], covered = 0;
        alibi_comm c = { .wire = { .size = sizes[i % 6] } };

        for (c.wire.rank = 0; c.wire.rank < c.wire.size; c.wire.rank++) {
            int64_t shard = comm_shard(&c, span, span), row;
            struct range r;

            for (int64_t at = 0; at < shard; at += r.count) {
                r = comm_stretch(&c, span, at);
                assert_true(r.count > 0 && r.first >= 0 && r.first + r.count <= span);
                assert_int_equal(comm_shard(&c, span, r.first), at);
                assert_int_equal(comm_shard(&c, span, r.first + r.count), at + r.count);
                assert_int_equal(comm_owner(&c, span, r.first, &row), c.wire.rank);
                assert_int_equal(row, r.count);
                assert_int_equal(comm_owner(&c, span, r.first + r.count - 1, &row), c.wire.rank);
                assert_int_equal(row, 1);
                if (c.wire.size > 1) /* a block that no other rank has */
                    assert_int_equal(r.first / comm_block(span, 0).count % c.wire.size,
                                     c.wire.rank);
                covered += r.count;
            }
        }
        assert_int_equal(covered, span);
    }
}

/* ---- a channel, to the rank itself */

static int begin_to_self(const struct rows *rows)
{
    memcpy(rows->receive, rows->send, (size_t)rows->send_counts[0] * sizeof(float));
    return rows->send_counts[0] == rows->receive_counts[0] ? ALIBI_OK : ALIBI_IO;
}

static int wait_for_self(void)
{
    return ALIBI_OK;
}

/* Reduces the numbers from `first` on, of `count`; fresh: into sums that begin there. */
static void reduce(enum dtype wire, int64_t count, int64_t first, bool fresh)
{
    alibi_comm c = { .wire = { .size = 1, .exchange = begin_to_self, .wait = wait_for_self } };
    struct device dev = { .ops = ops_cpu() };
    struct channel *ch = NULL;
    float *numbers = malloc((size_t)count * sizeof *numbers);
    float *sums = malloc((size_t)count * sizeof *sums);
    int64_t some = count - first;

    assert_true(numbers && sums);
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = (float)(i % 1009) * 0.37f - 100.0f;
        sums[i] = 1.5f;
    }
    assert_ok(channel_new(&ch, &c, &dev, wire, ALIBI_COMM_AUTO, NULL));
    assert_ok(channel_reduce(ch, tensor_1(sums, DTYPE_F32, count), fresh, count,
                             tensor_1(numbers + first, DTYPE_F32, some),
                             (struct range){ first, some }));
    memset(numbers, 0, (size_t)count * sizeof *numbers); /* they may change */
    assert_ok(channel_settle(ch));
    channel_free(ch);
    for (int64_t i = 0; i < count; i++) {
        float x = (float)(i % 1009) * 0.37f - 100.0f;
        x = wire == DTYPE_BF16 ? bf16_to_float(bf16_from_float(x)) : x;
        if (sums[i] != (i < first ? 1.5f : fresh ? x : 1.5f + x))
            fail_msg("number %lld is %g", (long long)i, (double)sums[i]);
    }
    free(numbers);
    free(sums);
}

static void a_channel_adds_rounded_numbers_in_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        enum dtype wire = i / 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        reduce(wire, 1, 0, i % 2);
        reduce(wire, 4099, 65, i % 2);
        reduce(wire, (2 << 22) + 3, 1,
               i % 2); /* more than two rows of fp32, more than one of bf16 */
    }
}

static void more_bytes_than_the_wire_can_count_are_refused(void **state)
{
    alibi_comm c = { .wire = { .size = 2 } };
    size_t bytes = (size_t)INT32_MAX + 1;

    (void)state;
    assert_fails(comm_broadcast(&c, NULL, bytes), ALIBI_MEMORY, "2147483648 bytes");
    assert_fails(comm_collect(&c, NULL, bytes), ALIBI_MEMORY, "2147483648 bytes");
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
    assert_ok(comm_collect(NULL, &stop, sizeof stop));
}

static void alone_nobody_tells(void **state)
{
    bool told = false;

    (void)state;
    assert_ok(comm_tell(NULL));
    assert_ok(comm_ask(NULL, &told));
    assert_false(told);
}

static void the_environment_says_how_many_were_launched(void **state)
{
    (void)state;
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_RANK");
    unsetenv("PMI_RANK");
    unsetenv("SLURM_STEP_NUM_TASKS");
    setenv("SLURM_NTASKS", "4", 1); /* a job of four tasks, of which this is none */
    assert_int_equal(alibi_comm_launched(), 0);
    setenv("PMIX_RANK", "2", 1);
    assert_int_equal(alibi_comm_launched(), 4);
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    assert_int_equal(alibi_comm_launched(), 3);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("SLURM_STEP_NUM_TASKS", "2", 1); /* of the step, which is smaller than the job */
    assert_int_equal(alibi_comm_launched(), 2);
    unsetenv("SLURM_NTASKS");
    unsetenv("SLURM_STEP_NUM_TASKS");
    assert_int_equal(alibi_comm_launched(), 1);
    unsetenv("PMIX_RANK");
    setenv("SLURM_STEP_NUM_TASKS", "3", 1); /* by an srun without PMIx */
    assert_int_equal(alibi_comm_launched(), 3);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1); /* a shell */
    assert_int_equal(alibi_comm_launched(), 0);
    unsetenv("SLURM_STEP_NUM_TASKS");
}

static void a_process_without_a_launcher_connects_with_nobody(void **state)
{
    alibi_comm *c = NULL;
    struct alibi_comm_info info;

    (void)state;
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_RANK");
    unsetenv("PMI_RANK");
    unsetenv("SLURM_STEP_NUM_TASKS");
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
        cmocka_unit_test(shards_cover_a_buffer_of_any_length_once),
        cmocka_unit_test(a_channel_adds_rounded_numbers_in_pieces),
        cmocka_unit_test(more_bytes_than_the_wire_can_count_are_refused),
        cmocka_unit_test(alone_there_is_one_rank_with_everything),
        cmocka_unit_test(alone_nobody_tells),
        cmocka_unit_test(the_environment_says_how_many_were_launched),
        cmocka_unit_test(a_process_without_a_launcher_connects_with_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
