/* test_sequence.c - a sequence divided among ranks, which are threads here: their attention is that
 * of the whole sequence; tests/cli/test_split.sh evaluates models so */
#include "ranks.h"

enum { SINKS = 3 };

/* ---- one problem */

struct problem {
    int64_t L, H, Hkv, D, window, G;
    enum bias_kind kind;
    double eps;
    double loud; /* factor on some keys: their norms say that they matter at any distance */
    bool sinks;
    int failing; /* the rank that has failed before; -1: none */
    /* [L, H or Hkv, D]; y and lse [H, L] of the whole sequence, and by ranks */
    float *q, *k, *v, *bias, *y, *lse, *part_y, *part_lse;
    struct sequence_traffic traffic[RANKS_MAX];
    alibi_status status[RANKS_MAX];
};

static float *numbers(int64_t count, uint32_t seed, double scale)
{
    float *x = malloc((size_t)count * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(scale * ((double)(seed >> 8) / (1 << 23) - 1.0));
    }
    return x;
}

static void problem_init(struct problem *p)
{
    int64_t keys = p->L * p->Hkv * p->D;

    p->q = numbers(p->L * p->H * p->D, 1, 1.5);
    p->k = numbers(keys, 2, 1.5);
    p->v = numbers(keys, 3, 1.0);
    for (int64_t l = 5; p->loud > 0 && l < p->L; l += 301)
        for (int64_t n = 0; n < p->D; n++)
            p->k[l * p->Hkv * p->D + n] *= (float)p->loud;
    p->bias = numbers(p->kind == BIAS_TABLE ? p->H * p->L : p->H, 4, 0.0);
    for (int64_t h = 0; h < p->H; h++) {
        if (p->kind != BIAS_TABLE)
            p->bias[h] = 0.5f / (float)(1 << 2 * h);
        for (int64_t d = 0; p->kind == BIAS_TABLE && d < p->L; d++) /* with a step up, far away */
            p->bias[h * p->L + d] = -0.3f * (float)(d % 2000) / (float)(h + 1);
    }
    p->y = numbers(p->L * p->H * p->D, 0, 0.0);
    p->lse = numbers(p->H * p->L, 0, 0.0);
    p->part_y = numbers(p->L * p->H * p->D, 0, 0.0);
    p->part_lse = numbers(p->H * p->L, 0, 0.0);
}

static void problem_fini(struct problem *p)
{
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->bias);
    free(p->y);
    free(p->lse);
    free(p->part_y);
    free(p->part_lse);
}

/* The sums of a part, [2, G, count]: gate g closes by some number of p->bias at each token. */
static void fill_gates(const struct problem *p, struct range part, float *gates)
{
    for (int64_t g = 0; g < p->G; g++) {
        double sum = 0;

        for (int64_t l = 0; l < part.count; l++) {
            int64_t at = g * part.count + l;

            sum -= (double)p->bias[g] * (double)((part.first + l) * 7 % 5);
            gates[at] = (float)sum;
            gates[p->G * part.count + at] = (float)(sum - (double)gates[at]);
        }
    }
}

/* Tokens first..first+count-1, whose lse is [H, count] at `lse`, and their gates at `gates`. */
static struct attention_args part_of(const struct problem *p, struct range part, float *y,
                                     float *lse, float *gates)
{
    int64_t n = part.count, q = part.first * p->H * p->D, k = part.first * p->Hkv * p->D;
    struct attention_args a = { .q = tensor_4(p->q + q, DTYPE_F32, 1, n, p->H, p->D),
                                .k = tensor_4(p->k + k, DTYPE_F32, 1, n, p->Hkv, p->D),
                                .v = tensor_4(p->v + k, DTYPE_F32, 1, n, p->Hkv, p->D),
                                .y = tensor_4(y + q, DTYPE_F32, 1, n, p->H, p->D),
                                .lse = tensor_3(lse, DTYPE_F32, 1, p->H, n),
                                .bias = { .kind = p->kind, .tau = 10.0 },
                                .scale = 0.7,
                                .window = p->window,
                                .skip = { .eps = p->eps } };

    if (p->kind == BIAS_LINEAR)
        a.bias.values = tensor_1(p->bias, DTYPE_F32, p->H);
    if (p->kind == BIAS_TABLE)
        a.bias.values = tensor_2(p->bias, DTYPE_F32, p->H, p->L);
    if (p->kind == BIAS_GATE) {
        fill_gates(p, part, gates);
        a.bias.values = tensor_4(gates, DTYPE_F32, 2, 1, p->G, n);
    }
    return a;
}

static alibi_status attend(const struct problem *p, struct device *dev, int64_t start,
                           const struct attention_args *a, struct tensor k, struct tensor v)
{
    struct sinks_args s = { .q = a->q,
                            .k = k,
                            .v = v,
                            .bias = a->bias,
                            .scale = a->scale,
                            .window = a->window,
                            .sinks = SINKS,
                            .start = start,
                            .y = a->y,
                            .lse = a->lse };

    TRY_RETURN(dev->ops->attention_forward(dev, a));
    return p->sinks ? dev->ops->sinks_forward(dev, &s) : ALIBI_OK;
}

static struct tensor first_rows(struct tensor view)
{
    view.shape[1] = view.shape[1] < SINKS ? view.shape[1] : SINKS;
    return view;
}

/* ---- ranks */

static alibi_status attend_part(struct problem *p, struct device *dev, struct sequence *s,
                                struct range part, float *lse)
{
    float *gates = lse + p->H * p->L; /* room for both */
    struct attention_args a = part_of(p, part, p->part_y, lse, gates);
    struct tensor first[2] = { first_rows(a.k), first_rows(a.v) };

    TRY_RETURN(sequence_fetch(s, &a, p->sinks ? SINKS : 0, first));
    return part.count > 0 ? attend(p, dev, part.first, &a, first[0], first[1]) : ALIBI_OK;
}

static alibi_status run_rank(struct problem *p, alibi_comm *c, float *lse)
{
    struct device dev = { .ops = ops_cpu() };
    struct range part = sequence_part(p->L, c->wire.rank, c->wire.size);
    struct sequence *s = NULL;
    alibi_status status;

    TRY(sequence_new(&s, c, &dev, NULL));
    for (int layer = 0; layer < 2; layer++) { /* the second one uses the memory of the first */
        sequence_begin(s, p->L);
        status = c->wire.rank == p->failing ? fail(ALIBI_NUMERIC, "no number")
                                            : attend_part(p, &dev, s, part, lse);
        TRY(sequence_end(s, status));
    }
    p->traffic[c->wire.rank] = sequence_traffic(s);
    for (int64_t h = 0; h < p->H; h++)
        memcpy(p->part_lse + h * p->L + part.first, lse + h * part.count,
               (size_t)part.count * sizeof *lse);
out:
    sequence_free(s);
    return status;
}

static void run_thread(alibi_comm *c, void *user)
{
    struct problem *p = user;
    float *lse = calloc((size_t)(3 * p->H * p->L), sizeof *lse);

    p->status[c->wire.rank] = run_rank(p, c, lse);
    free(lse);
}

static void run_ranks(struct problem *p, int size)
{
    run_as_ranks(size, run_thread, p);
}

static struct sequence_traffic traffic_of(const struct problem *p, int size)
{
    struct sequence_traffic sum = { 0 };

    for (int r = 0; r < size; r++) {
        sum.sent += p->traffic[r].sent;
        sum.all += p->traffic[r].all;
    }
    return sum;
}

/* The ranks' attention against that of the whole sequence, every pair of it. Without a budget both
 * have the same bits, unless the last part has so few queries that attention takes them one by
 * one, or sums of gates begin elsewhere. */
static struct sequence_traffic compare(struct problem p, int size)
{
    struct device dev = { .ops = ops_cpu() };
    struct attention_args whole;
    float *gates = numbers(2 * p.H * p.L, 0, 0.0);
    bool few = sequence_part(p.L, size - 1, size).count <= 4;
    double worst_y = 0, worst_lse = 0;

    problem_init(&p);
    p.failing = -1;
    whole = part_of(&p, (struct range){ 0, p.L }, p.y, p.lse, gates);
    whole.skip.eps = 0;
    assert_ok(attend(&p, &dev, 0, &whole, first_rows(whole.k), first_rows(whole.v)));
    run_ranks(&p, size);
    for (int r = 0; r < size; r++)
        assert_int_equal(p.status[r], ALIBI_OK);
    for (int64_t i = 0; i < p.L * p.H * p.D; i++)
        worst_y = fmax(worst_y, fabs((double)p.y[i] - (double)p.part_y[i]));
    for (int64_t i = 0; i < p.L * p.H; i++)
        worst_lse = fmax(worst_lse, fabs((double)p.lse[i] - (double)p.part_lse[i]));
    problem_fini(&p);
    free(gates);
    print_message("L=%lld H=%lld/%lld D=%lld window %lld bias %d eps %g ranks %d: y off by %.1e, "
                  "lse by %.1e, sent %lld of %lld\n",
                  (long long)p.L, (long long)p.H, (long long)p.Hkv, (long long)p.D,
                  (long long)p.window, (int)p.kind, p.eps, size, worst_y, worst_lse,
                  (long long)traffic_of(&p, size).sent, (long long)traffic_of(&p, size).all);
    if (p.eps == 0 && !few && p.kind != BIAS_GATE && (worst_y > 0 || worst_lse > 0))
        fail_msg("other bits");
    /* |v| <= 1 in each number; fp32 itself is off by some 1e-6 */
    if (!(worst_y <= 2 * p.eps * sqrt((double)p.D) + 2e-6 && worst_lse <= p.eps + 1e-5))
        fail_msg("off by more than the budget");
    return traffic_of(&p, size);
}

/* ---- tests */

static void parts_are_whole_tiles_that_cover_the_sequence(void **state)
{
    static const int64_t lengths[] = { 1, 63, 64, 65, 128, 1000, 65536 };

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int size = 1; size <= RANKS_MAX; size++) {
            int64_t next = 0;
            for (int r = 0; r < size; r++) {
                struct range part = sequence_part(lengths[i], r, size);
                assert_int_equal(part.first, next);
                assert_true(part.count >= 0 && part.first % ATTENTION_TILE == 0);
                next += part.count;
            }
            assert_int_equal(next, lengths[i]);
        }
}

static void without_a_budget_ranks_have_the_bits_of_one_process(void **state)
{
    static const int64_t lengths[] = { 1, 65, 129, 1000 };

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int size = 2; size <= 4; size++) {
            struct problem p = { .L = lengths[i], .H = 4, .Hkv = 2, .D = 5, .kind = BIAS_LINEAR };
            struct sequence_traffic t = compare(p, size);
            assert_int_equal(t.sent, t.all);
        }
    compare((struct problem){ .L = 700, .H = 3, .Hkv = 3, .D = 8, .kind = BIAS_TABLE }, 3);
    compare((struct problem){ .L = 700, .H = 3, .Hkv = 1, .D = 8, .kind = BIAS_NONE }, 3);
    compare((struct problem){ .L = 700, .H = 3, .Hkv = 1, .D = 7, .kind = BIAS_GAIN }, 3);
    compare((struct problem){ .L = 500, .H = 2, .Hkv = 2, .D = 600, .kind = BIAS_NONE }, 8);
    compare((struct problem){ .L = 700, .H = 4, .Hkv = 2, .D = 8, .kind = BIAS_GATE, .G = 3 }, 3);
    compare((struct problem){ .L = 100, .H = 2, .Hkv = 2, .D = 8, .kind = BIAS_GATE, .G = 2 }, 4);
}

static void a_window_bounds_what_travels_and_sinks_travel_alone(void **state)
{
    struct problem p = { .L = 1500, .H = 2, .Hkv = 2, .D = 8, .window = 70, .kind = BIAS_LINEAR };
    struct sequence_traffic t = compare(p, 4), with_sinks;

    (void)state;
    assert_int_equal(t.sent, 2 * 3 * 2 * 2 * 2 * 64 * 8 * 4); /* two tiles before each part */
    p.sinks = true;
    with_sinks = compare(p, 4);
    assert_int_equal(with_sinks.sent - t.sent, 2 * 3 * 2 * 2 * 64 * 8 * 4);
    p.window = 1400; /* sinks are among the other keys, or just before them */
    compare(p, 4);
    p.window = 1;
    compare(p, 3);
    p.kind = BIAS_NONE;
    compare(p, 2);
}

static void tiles_that_are_not_sent_have_no_more_weight_than_the_budget(void **state)
{
    static const double budgets[] = { 0x1p-24, 1e-3, 0.1 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct problem p = {
            .L = 2500, .H = 4, .Hkv = 2, .D = 8, .kind = BIAS_LINEAR, .eps = budgets[i]
        };
        struct sequence_traffic t = compare(p, 4), loud;

        assert_true(t.sent < t.all * 7 / 10);
        p.loud = 30;
        loud = compare(p, 4);
        assert_true(loud.sent > t.sent && loud.sent < loud.all);
        p.window = 800;
        compare(p, 3);
        p.kind = BIAS_TABLE;
        p.window = 0;
        p.loud = 0;
        t = compare(p, 3);
        assert_true(t.sent < t.all);
        p.kind = BIAS_GATE;
        p.G = p.H;
        t = compare(p, 4);
        assert_true(t.sent < t.all);
        p.kind = BIAS_LINEAR;
        p.D = 1; /* q . k is |q| |k| for half of the keys: the bound is nearly reached */
        p.loud = 6;
        t = compare(p, 4);
        assert_true(t.sent < t.all);
    }
}

static void a_rank_that_fails_ends_all(void **state)
{
    for (int failing = 0; failing < 3; failing++) {
        struct problem p = { .L = 300, .H = 2, .Hkv = 2, .D = 4, .kind = BIAS_LINEAR };

        (void)state;
        problem_init(&p);
        p.failing = failing;
        run_ranks(&p, 3);
        for (int r = 0; r < 3; r++)
            assert_int_equal(p.status[r], ALIBI_NUMERIC);
        problem_fini(&p);
    }
}

/* ---- an exchange that fails: nobody knows where the others are */

static _Thread_local alibi_comm *own_comm;

static int get_no_answer(void *all, int bytes)
{
    (void)all;
    (void)bytes;
    return ALIBI_USAGE;
}

static int break_exchange(const struct rows *rows)
{
    (void)rows;
    own_comm->wire.all_gather = get_no_answer;
    return ALIBI_IO;
}

static void run_broken_thread(alibi_comm *c, void *user)
{
    own_comm = c;
    c->wire.exchange = break_exchange;
    run_thread(c, user);
}

static void an_exchange_that_fails_is_not_agreed_on(void **state)
{
    struct problem p = { .L = 300, .H = 2, .Hkv = 2, .D = 4, .kind = BIAS_LINEAR, .failing = -1 };

    (void)state;
    problem_init(&p);
    run_as_ranks(3, run_broken_thread, &p);
    for (int r = 0; r < 3; r++)
        assert_int_equal(p.status[r], ALIBI_IO);
    problem_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_whole_tiles_that_cover_the_sequence),
        cmocka_unit_test(without_a_budget_ranks_have_the_bits_of_one_process),
        cmocka_unit_test(a_window_bounds_what_travels_and_sinks_travel_alone),
        cmocka_unit_test(tiles_that_are_not_sent_have_no_more_weight_than_the_budget),
        cmocka_unit_test(a_rank_that_fails_ends_all),
        cmocka_unit_test(an_exchange_that_fails_is_not_agreed_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
