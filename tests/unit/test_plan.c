/* test_plan.c - the plan of a run's memory equals what is allocated, and finds what would fit */
#include "training.h"
#include "passes.h"

/* A device that counts: the CPU's operations, and the bytes in use. */
static struct ops counting;
static size_t in_use, most, offered;

/* Precedes every buffer; as wide as the alignment of buffers. */
enum { HEADER = 64 };

static alibi_status count_new(struct device *dev, void **out, size_t bytes, const char *what)
{
    void *block;

    TRY_RETURN(ops_cpu()->buffer_new(dev, &block, bytes + HEADER, what));
    memcpy(block, &bytes, sizeof bytes);
    in_use += bytes;
    most = in_use > most ? in_use : most;
    *out = (char *)block + HEADER;
    return ALIBI_OK;
}

static void count_free(struct device *dev, void *buffer)
{
    char *block = buffer ? (char *)buffer - HEADER : NULL;
    size_t bytes;

    if (!block)
        return;
    memcpy(&bytes, block, sizeof bytes);
    in_use -= bytes;
    ops_cpu()->buffer_free(dev, block);
}

static void offer(struct device *dev, struct device_memory *memory)
{
    (void)dev;
    *memory = (struct device_memory){ .total = offered, .free = offered };
}

enum { WIDE = 1000 }; /* bytes that other algorithms take */

static size_t workspace(struct device *dev, const struct workspace_args *a)
{
    (void)dev;
    return a->training ? (size_t)(a->B * a->L * a->H * a->D + a->largest + a->distances +
                                  (a->wide ? WIDE : 0))
                       : 0;
}

static void tune(struct device *dev, enum tuning how)
{
    (void)dev;
    (void)how;
}

static struct device counting_device(void)
{
    counting = *ops_cpu();
    counting.buffer_new = count_new;
    counting.buffer_free = count_free;
    in_use = most = 0;
    return (struct device){ .ops = &counting };
}

static struct alibi_config config_of(const char *position)
{
    struct alibi_config c = tiny_config();

    c.vocab = 257;
    c.layers = 3;
    snprintf(c.position, sizeof c.position, "%s", position);
    return c;
}

/* Trains for one step, as the loop does; the most that was in use. */
static size_t allocated(struct alibi_config c, const struct alibi_training *t,
                        struct device *device, enum dtype type)
{
    int32_t tokens[64] = { 0 };
    struct model *m = NULL;
    struct optimizer o;
    double loss, norm;

    c.train_length = t->train_length;
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, device, type, true));
    assert_ok(model_init(m, 1, ALIBI_INIT_GPT2));
    assert_ok(optimizer_init(&o, m, t->optimizer, NULL));
    assert_true(t->batch * t->train_length <= 64);
    assert_ok(once_gradients(
        m, (struct pass_settings){ .skip = t->skip, .recompute = t->recompute }, tokens, tokens,
        t->batch, t->train_length, 1, (struct dropout){ .p = t->dropout }, &loss));
    assert_ok(optimizer_update(&o, t, 1, loss, &norm));
    optimizer_fini(&o);
    model_free(m);
    assert_int_equal(in_use, 0);
    return most;
}

static void check_plan(struct alibi_config c, const struct alibi_training *t, enum dtype type)
{
    struct device device = counting_device();
    struct alibi_plan plan;
    size_t parts;

    assert_ok(plan_training(&plan, &c, t, &device, type, true));
    assert_int_equal(most, 0); /* nothing is allocated to know it */
    parts = plan.weights + plan.gradients + plan.optimizer + plan.activations + plan.passing +
            plan.workspace;
    assert_int_equal(plan.total, parts);
    assert_int_equal(plan.total, allocated(c, t, &device, type));
    assert_true(plan.fits && plan.available == memory_of_machine() - alibi_memory_now());
}

static void the_plan_is_what_training_then_allocates(void **state)
{
    (void)state;
    for (int i = 0; alibi_position_name(i, NULL); i++)
        for (int recompute = 0; recompute < 3; recompute++) {
            struct alibi_training t = tiny_training(10, 10);
            t.recompute = recompute;
            t.optimizer = i % 2 ? ALIBI_ADAMW : ALIBI_NESTEROV;
            t.skip = i % 3 ? t.skip : 0;
            check_plan(config_of(alibi_position_name(i, NULL)), &t, DTYPE_F32);
            check_plan(config_of(alibi_position_name(i, NULL)), &t, DTYPE_BF16);
        }
    for (int recompute = 0; recompute < 3; recompute++) {
        struct alibi_training t = tiny_training(10, 10);
        struct alibi_config c =
            config_of("t5:window=3,alibi:train-slopes:logn,fox:free=0.5,kerple:window=5");

        t.recompute = recompute;
        c.layers = 4;
        check_plan(c, &t, DTYPE_F32);
        check_plan(c, &t, DTYPE_BF16);
        c.qk_norm = true;
        check_plan(c, &t, DTYPE_F32);
        check_plan(c, &t, DTYPE_BF16);
    }
}

static void computing_more_again_keeps_less(void **state)
{
    struct alibi_config c = config_of("alibi");
    struct alibi_training t = tiny_training(10, 10);
    struct device device = counting_device();
    struct alibi_plan plan[3];

    (void)state;
    c.layers = 12;
    for (t.recompute = 0; t.recompute < 3; t.recompute++)
        assert_ok(plan_training(&plan[t.recompute], &c, &t, &device, DTYPE_F32, true));
    assert_true(plan[1].activations < plan[0].activations &&
                plan[2].activations < plan[1].activations);
    assert_true(plan[1].total < plan[0].total && plan[2].total < plan[1].total);
    assert_int_equal(plan[0].weights, plan[2].weights);
}

static void what_attention_uses_takes_memory_only_where_it_may_leave_something_out(void **state)
{
    struct alibi_config c = config_of("alibi");
    struct alibi_training t = tiny_training(10, 10);
    struct device device = counting_device();
    struct alibi_plan with, without;

    (void)state;
    assert_true(t.skip > 0);
    assert_ok(plan_training(&with, &c, &t, &device, DTYPE_F32, true));
    t.skip = 0;
    assert_ok(plan_training(&without, &c, &t, &device, DTYPE_F32, true));
    assert_true(without.activations < with.activations && without.passing == with.passing);
}

/* ---- on a device whose memory is known */

static void total_at(struct alibi_config c, struct alibi_training t, int64_t batch, int64_t length,
                     size_t *total)
{
    struct device device = counting_device();
    struct alibi_plan plan;

    counting.workspace = workspace;
    t.batch = batch;
    t.train_length = length;
    assert_ok(plan_training(&plan, &c, &t, &device, DTYPE_F32, true));
    *total = plan.total;
}

static void other_algorithms_take_memory_where_they_are_asked_for(void **state)
{
    struct alibi_config c = config_of("alibi");
    struct alibi_training t = tiny_training(10, 10);
    struct device device = counting_device();
    struct alibi_plan plain, wide;

    (void)state;
    counting.workspace = workspace;
    assert_ok(plan_training(&plain, &c, &t, &device, DTYPE_F32, false));
    device.autotune = ALIBI_AUTOTUNE_WIDE;
    assert_ok(plan_training(&wide, &c, &t, &device, DTYPE_F32, false));
    assert_int_equal(wide.workspace, plain.workspace); /* a device without a choice */
    counting.tune = tune;
    assert_ok(plan_training(&wide, &c, &t, &device, DTYPE_F32, false));
    assert_int_equal(wide.workspace, plain.workspace + WIDE);
    assert_int_equal(wide.total, plain.total + WIDE);
}

static struct alibi_plan plan_within(struct alibi_config c, struct alibi_training t, size_t bytes)
{
    struct device device = counting_device();
    struct alibi_plan plan;

    counting.workspace = workspace;
    counting.memory = offer;
    offered = bytes;
    assert_ok(plan_training(&plan, &c, &t, &device, DTYPE_F32, true));
    return plan;
}

static void the_largest_batch_and_the_longest_input_are_the_last_that_fit(void **state)
{
    struct alibi_config c = config_of("alibi");
    struct alibi_training t = tiny_training(10, 10);
    struct alibi_plan plan = plan_within(c, t, 1 << 20);
    size_t total;

    (void)state;
    assert_true(plan.fits && plan.available == 1 << 20 &&
                plan.workspace == 2 * 8 * 4 + 257 * 4); /* B L H D, and V C */
    assert_true(plan_within(config_of("kerple"), t, 1 << 20).workspace ==
                plan.workspace + 64); /* and a table of that many distances */
    total_at(c, t, plan.largest_batch, t.train_length, &total);
    assert_true(total <= plan.available);
    total_at(c, t, plan.largest_batch + 1, t.train_length, &total);
    assert_true(total > plan.available);
    total_at(c, t, t.batch, plan.longest_input, &total);
    assert_true(total <= plan.available);
    total_at(c, t, t.batch, plan.longest_input + 1, &total);
    assert_true(total > plan.available);
}

/* A table of positions ends where it was made to end; one that is as long as the training windows
 * grows with them. */
static void positions_that_end_bound_the_longest_input(void **state)
{
    struct alibi_config c = config_of("learned");
    struct alibi_training t = tiny_training(10, 10);

    (void)state;
    assert_true(plan_within(c, t, 1 << 20).longest_input > 100);
    c.max_length = 100;
    assert_int_equal(plan_within(c, t, 1 << 20).longest_input, 100);
}

static void what_does_not_fit_is_refused_and_told_what_would(void **state)
{
    struct alibi_config c = config_of("alibi");
    struct alibi_training t = tiny_training(10, 10);
    struct alibi_plan plan;
    char expected[160];

    (void)state;
    t.batch = 1000;
    plan = plan_within(c, t, 1 << 20);
    assert_false(plan.fits);
    snprintf(expected, sizeof expected,
             "batch %lld fits at this length; --recompute cheap|block needs less",
             (long long)plan.largest_batch);
    assert_fails(plan_check(&plan, &t, 1), ALIBI_MEMORY, expected);
    assert_fails(plan_check(&plan, &t, 1), ALIBI_MEMORY,
                 "training 1000 x 8 tokens needs 0.0 GiB, 0.0 GiB are free");
    assert_fails(plan_check(&plan, &t, 2), ALIBI_MEMORY,
                 "; --recompute cheap|block or --shard gradients needs less");
    t.recompute = ALIBI_RECOMPUTE_CHEAP;
    assert_fails(plan_check(&plan, &t, 1), ALIBI_MEMORY, "; --recompute block needs less");
    t.recompute = ALIBI_RECOMPUTE_BLOCK;
    assert_fails(plan_check(&plan, &t, 2), ALIBI_MEMORY, "; --shard gradients needs less");
    plan = plan_within(c, t, 1000);
    assert_true(plan.largest_batch == 0 && plan.longest_input == 0);
    assert_fails(plan_check(&plan, &t, 1), ALIBI_MEMORY,
                 "no batch fits at this length, no length at this batch");
}

static void the_cpu_has_the_memory_of_the_machine(void **state)
{
    struct alibi_config c = config_of("alibi");
    struct alibi_training t = tiny_training(10, 10);
    struct alibi_plan plan;

    (void)state;
    assert_ok(alibi_plan_training(test_device(), &c, &t, 1, &plan));
    assert_true(plan.fits && plan.available <= memory_of_machine() &&
                plan.largest_batch > t.batch && plan.total > plan.weights && plan.validation == 0);
    assert_true(plan.parameters > 257 * 4 && plan.batch == t.batch &&
                plan.length == t.train_length);
    size_t without = plan.total;
    t.eval_every = 1;
    assert_ok(alibi_plan_training(test_device(), &c, &t, 1, &plan));
    assert_true(plan.validation > 0 && plan.total == without + plan.validation);
    c.layers = 4096; /* terabytes of weights: refused before anything is allocated */
    c.width = 1 << 16;
    assert_ok(alibi_plan_training(test_device(), &c, &t, 1, &plan));
    assert_false(plan.fits);
    assert_fails(plan_check(&plan, &t, 1), ALIBI_MEMORY, "no batch fits");
    c = config_of("alibi");
    t.batch = 0;
    assert_fails(alibi_plan_training(test_device(), &c, &t, 1, &plan), ALIBI_USAGE, "batch");
}

static void a_gpu_that_is_not_here_can_be_planned_for(void **state)
{
    struct alibi_config c = config_of("alibi");
    struct alibi_training t = tiny_training(10, 10);
    const size_t room = (size_t)4 << 30;
    const enum alibi_autotune same = ALIBI_AUTOTUNE_SAME_BITS;
    struct alibi_plan plan, wide, cpu;

    (void)state;
    t.train_length = 512; /* long enough that sizes are those of numbers, not of alignment */
    assert_ok(alibi_plan_training(test_device(), &c, &t, 1, &cpu));
    assert_ok(alibi_plan_gpu(&c, &t, 1, room, same, &plan));
    assert_true(plan.fits && plan.available == room && plan.workspace > 0 && plan.total <= room);
    assert_ok(alibi_plan_gpu(&c, &t, 1, room, ALIBI_AUTOTUNE_WIDE, &wide));
    assert_true(wide.workspace == plan.workspace + (192 << 20));
    assert_true(plan.gradients == cpu.gradients &&
                plan.optimizer == cpu.optimizer); /* fp32 there as well */
    assert_true(plan.weights > cpu.weights &&
                plan.activations < cpu.activations); /* copies in bf16; half the size */
    t.batch = plan.largest_batch;
    assert_ok(alibi_plan_gpu(&c, &t, 1, room, same, &plan));
    assert_true(plan.fits);
    t.batch++;
    assert_ok(alibi_plan_gpu(&c, &t, 1, room, same, &plan));
    assert_true(!plan.fits || t.batch > 65536);
    assert_ok(alibi_plan_gpu(&c, &t, 1, 1, same, &plan));
    assert_true(!plan.fits && plan.largest_batch == 0);
}

static void ranks_share_the_moments_and_a_link(void **state)
{
    struct alibi_config c = tiny_config();
    struct alibi_training t = tiny_training(10, 10);
    struct alibi_plan one, four, sharded;
    struct alibi_cluster_plan p;

    (void)state;
    c.vocab = 257;
    c.layers = 4;
    t.accumulate = 8;
    assert_ok(alibi_plan_training(test_device(), &c, &t, 1, &one));
    assert_ok(alibi_plan_training(test_device(), &c, &t, 4, &four));
    assert_int_equal(four.optimizer, one.optimizer / 4);
    assert_int_equal(four.gradients, one.gradients + one.gradients / 4); /* with those of all */
    assert_int_equal(four.workspace - one.workspace, 2 << 24);

    /* 1 Gbit/s sends as many bytes as 8 bits: gradients and weights, 3/4 of them each. */
    assert_ok(alibi_plan_cluster(&four, &t, 4, 1, 2, &p));
    assert_int_equal(p.passes, 2);
    assert_close(p.bytes, 2 * 0.75 * 4 * (double)four.parameters, 0);
    assert_close(p.step_seconds, 4 + p.bytes / 125e6, 1e-12);
    assert_close(p.share, 4 / p.step_seconds, 1e-12);
    t.deterministic_sum = true; /* gradients twice */
    assert_ok(alibi_plan_cluster(&four, &t, 4, 1, 2, &p));
    assert_close(p.bytes, 3 * 0.75 * 4 * (double)four.parameters, 0);
    t.wire = ALIBI_WIRE_BF16;
    assert_ok(alibi_plan_cluster(&four, &t, 4, 1, 2, &p));
    assert_close(p.bytes, 2 * 0.75 * 4 * (double)four.parameters, 0);
    t.shard = ALIBI_SHARD_GRADIENTS; /* of one layer, and of the rest */
    assert_ok(alibi_plan_training(test_device(), &c, &t, 4, &sharded));
    assert_true(sharded.gradients < four.gradients);
    t.deterministic_sum = false; /* sharding implies it */
    assert_ok(alibi_plan_cluster(&four, &t, 4, 1, 2, &p));
    assert_int_equal(p.exchanges, 2);
    assert_close(p.bytes, 2 * 0.75 * 4 * (double)four.parameters, 0);
    assert_ok(alibi_plan_training(test_device(), &c, &t, 1, &sharded));
    assert_int_equal(sharded.gradients, 2 * one.gradients); /* nobody to share them with */
    /* In bf16 also the masters of matrices, and ranks exchange copies. */
    t.shard = ALIBI_SHARD_OPTIMIZER;
    c.width = 64;
    c.ff_width = 256;
    assert_ok(alibi_plan_gpu(&c, &t, 1, 1 << 30, ALIBI_AUTOTUNE_SAME_BITS, &one));
    assert_ok(alibi_plan_gpu(&c, &t, 4, 1 << 30, ALIBI_AUTOTUNE_SAME_BITS, &four));
    assert_true(one.weights >= 6 * (size_t)one.parameters);
    assert_true(four.weights >= 3 * (size_t)one.parameters && four.weights < one.weights * 7 / 10);
    assert_ok(alibi_plan_cluster(&four, &t, 4, 1, 2, &p));
    assert_close(p.bytes, 0.75 * (2 + 2) * (double)four.parameters, 0);
    assert_ok(alibi_plan_cluster(&one, &t, 1, 1, 2, &p));
    assert_close(p.bytes, 0, 0);
    assert_close(p.share, 1, 0);
    assert_fails(alibi_plan_cluster(&one, &t, 3, 1, 2, &p), ALIBI_USAGE, "3 ranks cannot divide");
    assert_fails(alibi_plan_cluster(&one, &t, 513, 1, 2, &p), ALIBI_USAGE, "1 to 512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_the_moments_and_a_link),
        cmocka_unit_test(the_plan_is_what_training_then_allocates),
        cmocka_unit_test(computing_more_again_keeps_less),
        cmocka_unit_test(what_attention_uses_takes_memory_only_where_it_may_leave_something_out),
        cmocka_unit_test(other_algorithms_take_memory_where_they_are_asked_for),
        cmocka_unit_test(the_largest_batch_and_the_longest_input_are_the_last_that_fit),
        cmocka_unit_test(positions_that_end_bound_the_longest_input),
        cmocka_unit_test(what_does_not_fit_is_refused_and_told_what_would),
        cmocka_unit_test(the_cpu_has_the_memory_of_the_machine),
        cmocka_unit_test(a_gpu_that_is_not_here_can_be_planned_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
