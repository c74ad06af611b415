/* Probes: fixed targets are deep inside their documents and the same for every context, and every
 * number is that of a plain loop over the model. */
#include <omp.h>

#include "eval/eval.h"
#include "training.h"

enum { DOCUMENTS = 10, LONG = 9, TEXT_MAX = 400, IDS_MAX = 512, T = 6, L = 8, C = 32 };

static struct device cpu;

/* Nine documents of different lengths and one that is too short for a context of 32; few letters,
 * so that n-grams occur again. */
static alibi_corpus *new_corpus(void)
{
    static char text[DOCUMENTS][TEXT_MAX];
    const char *texts[DOCUMENTS];
    alibi_corpus *c = NULL;

    for (int d = 0; d < DOCUMENTS; d++) {
        int bytes = d < LONG ? 60 + 30 * d : 20;

        for (int i = 0; i < bytes; i++)
            text[d][i] = "abcde "[random_below(7, 0, (uint64_t)(1000 * d + i), 6)];
        text[d][bytes] = 0;
        texts[d] = text[d];
    }
    assert_ok(corpus_from_texts(&c, texts, DOCUMENTS));
    return c;
}

static struct alibi_model new_model(const char *position, const alibi_corpus *c)
{
    struct alibi_config config = tiny_bytes_config(position, 2, L);
    struct alibi_model model = { .tokenizer = tokenizer_share(corpus_tokenizer(c)) };

    assert_ok(model_new(&model.model, &config, &cpu, DTYPE_F32, false));
    randomise(model.model, 5, 0.3);
    return model;
}

static void free_model(struct alibi_model *model)
{
    model_free(model->model);
    alibi_tokenizer_free(model->tokenizer);
}

static struct alibi_targets request(int64_t blocks)
{
    return (struct alibi_targets){
        .contexts = { 3, { 32, 16, 4 } }, .blocks = blocks, .block = T, .gram = 2
    };
}

/* First token and length of document d, its end token included. */
static void document(struct span s, int d, int64_t *first, int64_t *count)
{
    int32_t id, end = alibi_tokenizer_end(corpus_tokenizer(s.corpus));
    int64_t at = 0;

    for (int i = 0; i <= d; i++) {
        *first = at;
        do
            span_read(s, at++, 1, &id);
        while (id != end);
    }
    *count = at - *first;
}

/* ---- which targets */

static void blocks_are_deep_inside_long_documents_and_do_not_overlap(void **state)
{
    alibi_corpus *c = new_corpus();
    struct span s = corpus_span(c, ALIBI_ALL);

    (void)state;
    for (int64_t blocks = 1; blocks < 400; blocks += blocks < 30 ? 1 : 37) {
        struct targets t;
        int64_t first, count, room = 0;

        assert_ok(targets_new(&t, s, C, T, blocks));
        for (int d = 0; d < LONG; d++) {
            document(s, d, &first, &count);
            room += (count - C) / T;
        }
        assert_int_equal(t.count, blocks < room ? blocks : room);
        assert_int_equal(t.documents, blocks < LONG ? blocks : LONG);
        assert_int_equal(t.short_documents, 1);
        for (int64_t k = 0; k < t.count; k++) {
            int inside = 0;

            for (int d = 0; d < LONG; d++) {
                document(s, d, &first, &count);
                inside += t.at[k].start >= first + C && t.at[k].start + T <= first + count;
            }
            assert_int_equal(inside, 1);
            if (k > 0)
                assert_true(t.at[k].start >= t.at[k - 1].start + T);
        }
        mem_free(t.at);
    }
    alibi_corpus_free(c);
}

static void documents_get_equal_numbers_of_blocks_as_far_as_they_have_room(void **state)
{
    alibi_corpus *c = new_corpus();
    struct targets t;
    int64_t per[LONG] = { 0 };

    (void)state;
    /* Documents of 61, 91, ... tokens: room for 4, 9, 14 and more blocks. */
    assert_ok(targets_new(&t, corpus_span(c, ALIBI_ALL), C, T, 4 + 8 * 7));
    for (int64_t k = 0; k < t.count; k++)
        per[t.at[k].document]++;
    assert_int_equal(per[0], 4);
    for (int d = 1; d < LONG; d++)
        assert_int_equal(per[d], 7);
    mem_free(t.at);
    alibi_corpus_free(c);
}

static void a_swapped_context_is_that_of_another_document(void **state)
{
    alibi_corpus *c = new_corpus();
    struct targets t;

    (void)state;
    assert_ok(targets_new(&t, corpus_span(c, ALIBI_ALL), C, T, 40));
    assert_true(t.swappable);
    for (int64_t k = 0; k < t.count; k++) {
        int64_t other = 0;

        while (t.at[other].start != t.at[k].other)
            other++;
        assert_int_not_equal(t.at[other].document, t.at[k].document);
    }
    mem_free(t.at);
    alibi_corpus_free(c);
}

static void a_single_document_swaps_with_its_own_distant_text_or_not_at_all(void **state)
{
    const char *text = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuv";
    alibi_corpus *c = NULL;
    struct targets t;

    (void)state;
    assert_ok(corpus_from_texts(&c, &text, 1));
    assert_ok(targets_new(&t, corpus_span(c, ALIBI_ALL), 12, 4, 2));
    assert_true(t.swappable && t.at[0].other == t.at[1].start);
    mem_free(t.at);
    assert_ok(targets_new(&t, corpus_span(c, ALIBI_ALL), 50, 4, 2));
    assert_false(t.swappable);
    mem_free(t.at);
    alibi_corpus_free(c);
}

/* The definition, n-gram by n-gram. */
static bool repeats_far(const int32_t *ids, int64_t at, int64_t gram, int64_t far_end)
{
    bool far = false, near = false;

    for (int64_t j = gram - 1; j < at; j++) {
        bool same = true;

        for (int64_t g = 0; g < gram; g++)
            same = same && ids[j - g] == ids[at - g];
        far = far || (same && j < far_end);
        near = near || (same && j >= far_end);
    }
    return far && !near;
}

static void repeats_are_those_of_the_definition(void **state)
{
    alibi_corpus *c = new_corpus();
    struct span s = corpus_span(c, ALIBI_ALL);
    int32_t ids[C + T];
    bool repeats[T];
    int64_t seen = 0;

    (void)state;
    for (int64_t from = 0; from + C + T <= s.count; from += 5)
        for (int64_t gram = 1; gram <= 4; gram++) {
            span_read(s, from, C + T, ids);
            targets_mark(ids, C, L, T, gram, repeats);
            for (int64_t i = 0; i < T; i++) {
                assert_int_equal(repeats[i], repeats_far(ids, C + i, gram, C - L));
                seen += repeats[i];
            }
        }
    assert_true(seen > 100);
    alibi_corpus_free(c);
}

/* ---- the numbers */

enum how { OWN, SWAPPED, WINDOW };

/* The mean loss of a kind of targets with c tokens before each block, those beyond L from the other
 * block if swapped, with attention cut to L keys if WINDOW, by one pass per block. */
static double mean_loss(const struct alibi_model *model, struct span s, const struct targets *t,
                        int64_t c, enum how how, int kind)
{
    const struct pass_settings settings = { .window = how == WINDOW ? L : 0 };
    struct workspace *w = NULL;
    int32_t ids[IDS_MAX], wanted[IDS_MAX];
    float nll[IDS_MAX];
    bool repeats[T];
    double sum = 0, tokens = 0;

    for (int64_t k = 0; k < t->count; k++) {
        span_read(s, t->at[k].start - C, C + T, ids);
        targets_mark(ids, C, L, T, 2, repeats);
        span_read(s, t->at[k].start - c, c + T, ids);
        for (int64_t i = 0; how == SWAPPED && i < c - L; i++)
            span_read(s, t->at[k].other - c + i, 1, &ids[i]);
        memcpy(wanted, ids + 1, sizeof wanted - sizeof *wanted);
        assert_ok(workspace_new(&w, model->model, &settings));
        assert_ok(model_loss(w, ids, wanted, 1, c + T - 1, nll));
        workspace_free(w);
        for (int64_t i = 0; i < T; i++)
            if (kind == ALIBI_ALL_TARGETS || repeats[i] == (kind == ALIBI_REPEATS)) {
                sum += nll[c - 1 + i];
                tokens++;
            }
    }
    return sum / tokens;
}

static void every_number_is_that_of_a_plain_loop(void **state)
{
    static const char *const positions[] = { "alibi", "sinusoidal", "rotary" };
    alibi_corpus *c = new_corpus();
    struct span s = corpus_span(c, ALIBI_ALL);

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct alibi_model model = new_model(positions[i], c);
        struct alibi_targets how = request(25);
        static struct alibi_targets_result r;
        struct targets t;

        assert_ok(targets_new(&t, s, C, T, 25));
        assert_ok(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()));
        assert_int_equal(r.request.contexts.count, 4); /* the training length joins them */
        assert_true(r.blocks == 25 && r.documents == LONG && r.units == LONG);
        for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++)
            for (int k = 0; k < 4; k++) {
                const struct alibi_target_context *at = &r.kind[kind].at[k];
                double own = mean_loss(&model, s, &t, at->context, OWN, kind);
                double home = mean_loss(&model, s, &t, L, OWN, kind);

                assert_int_equal(at->context, 4 << k);
                assert_close(at->nll.value, own, 1e-5);
                assert_close(at->gain.value, home - own, 1e-5);
                if (at->context <= L) {
                    assert_true(isnan(at->swapped.value) && isnan(at->window.value));
                    continue;
                }
                assert_close(at->swapped.value,
                             home - mean_loss(&model, s, &t, at->context, SWAPPED, kind), 1e-5);
                assert_close(at->window.value,
                             home - mean_loss(&model, s, &t, at->context, WINDOW, kind), 1e-5);
                assert_close(at->beyond.value, at->gain.value - at->window.value, 1e-9);
                assert_close(at->content.value, at->gain.value - at->swapped.value, 1e-9);
                assert_close(at->step.value, at->gain.value - r.kind[kind].at[k - 1].gain.value,
                             1e-9);
            }
        assert_int_equal(r.kind[ALIBI_REPEATS].tokens + r.kind[ALIBI_OTHERS].tokens, 25 * T);
        mem_free(t.at);
        free_model(&model);
    }
    alibi_corpus_free(c);
}

/* A model whose position has the window and the sinks itself sees the same keys. Gates have none.
 */
static void the_window_control_sees_sinks(void **state)
{
    static const char *const positions[][2] = { { "alibi", "alibi:window=8:sinks=3" },
                                                { "rotary", "rotary:window=8:sinks=3" },
                                                { "t5", "t5:window=8:sinks=3" },
                                                { "fox", "fox:window=8" } };
    alibi_corpus *c = new_corpus();
    struct span s = corpus_span(c, ALIBI_ALL);

    (void)state;
    assert_int_equal(L, 8);
    for (int i = 0; i < 4; i++) {
        struct alibi_model model = new_model(positions[i][0], c),
                           cut = new_model(positions[i][1], c);
        struct alibi_targets how = request(5);
        static struct alibi_targets_result r;
        struct targets t;
        double home, with, without;

        how.sinks = 3;
        assert_ok(targets_new(&t, s, C, T, 5));
        assert_ok(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()));
        home = mean_loss(&model, s, &t, L, OWN, ALIBI_ALL_TARGETS);
        with = mean_loss(&cut, s, &t, C, OWN, ALIBI_ALL_TARGETS);
        without = mean_loss(&model, s, &t, C, WINDOW, ALIBI_ALL_TARGETS);
        assert_close(r.kind[0].at[3].window.value, home - with, 1e-5);
        assert_int_equal(r.request.sinks, i == 3 ? 0 : 3);
        assert_true(fabs(with - without) > 1e-4 || i == 3);
        mem_free(t.at);
        free_model(&model);
        free_model(&cut);
    }
    alibi_corpus_free(c);
}

/* With a block of each document the mean of K independent numbers has the error sd / sqrt(K); and a
 * difference is paired, so its error is that of the differences. */
static void errors_are_those_of_independent_documents(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("rotary", c);
    struct alibi_targets how = request(LONG);
    static struct alibi_targets_result r;
    double nll[LONG], gain[LONG], sums[2] = { 0 }, squares[2] = { 0 };
    struct targets t;

    (void)state;
    assert_ok(targets_new(&t, corpus_span(c, ALIBI_ALL), C, T, LONG));
    assert_ok(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()));
    for (int d = 0; d < LONG; d++) {
        struct targets one = { .at = &t.at[d], .count = 1 };

        nll[d] = mean_loss(&model, corpus_span(c, ALIBI_ALL), &one, C, OWN, ALIBI_ALL_TARGETS);
        gain[d] =
            mean_loss(&model, corpus_span(c, ALIBI_ALL), &one, L, OWN, ALIBI_ALL_TARGETS) - nll[d];
        sums[0] += nll[d] / LONG;
        sums[1] += gain[d] / LONG;
    }
    for (int d = 0; d < LONG; d++) {
        squares[0] += (nll[d] - sums[0]) * (nll[d] - sums[0]);
        squares[1] += (gain[d] - sums[1]) * (gain[d] - sums[1]);
    }
    assert_close(r.kind[0].at[3].nll.error / sqrt(squares[0] / (LONG - 1) / LONG), 1, 0.1);
    assert_close(r.kind[0].at[3].gain.error / sqrt(squares[1] / (LONG - 1) / LONG), 1, 0.1);
    mem_free(t.at);
    free_model(&model);
    alibi_corpus_free(c);
}

/* The losses that experiments keep pair like the probe: the same differences, and errors that
 * differ from those of the bootstrap by its noise. */
static void kept_losses_have_the_gains_and_errors_of_the_probe(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("rotary", c);
    struct alibi_targets how = request(90);
    static struct alibi_targets_result r;
    struct target_losses losses = { 0 };

    (void)state;
    assert_ok(targets_resolve(&how, L));
    assert_ok(NEW_ARRAY(&losses.at, how.contexts.count, "losses"));
    assert_ok(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()));
    assert_ok(probe_losses(&model, c, ALIBI_ALL, &how, &losses, test_call()));
    assert_int_equal(losses.parts, r.units);
    for (int k = 0; k < how.contexts.count; k++)
        for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++) {
            const struct alibi_target_context *at = &r.kind[kind].at[k];
            const struct alibi_eval_result *own = &losses.at[k][TARGETS_OWN][kind];
            const struct alibi_eval_result *home = &losses.at[1][TARGETS_OWN][kind];
            const struct alibi_eval_result *swapped = &losses.at[k][TARGETS_SWAPPED][kind];
            const struct alibi_eval_result *window = &losses.at[k][TARGETS_WINDOW][kind];
            /* The bootstrap of a ratio is not linear: it shows where nine documents have few. */
            double d, error, near = kind == ALIBI_ALL_TARGETS ? 0.12 : 0.3;

            assert_int_equal(own->tokens, r.kind[kind].tokens);
            assert_close(own->nll, at->nll.value, 1e-12);
            assert_close(own->standard_error / at->nll.error, 1, near);
            assert_true(alibi_eval_difference(home, own, &d, &error));
            assert_close(d, at->gain.value, 1e-12);
            if (k != 1)
                assert_close(error / at->gain.error, 1, near);
            assert_int_equal(swapped->tokens > 0, at->context > L);
            if (at->context <= L)
                continue;
            assert_true(alibi_eval_difference(swapped, own, &d, &error));
            assert_close(d, at->content.value, 1e-12);
            assert_close(error / at->content.error, 1, near);
            assert_true(alibi_eval_difference(window, own, &d, &error));
            assert_close(d, at->beyond.value, 1e-12);
        }
    mem_free(losses.at);
    free_model(&model);
    alibi_corpus_free(c);
}

static void contexts_past_the_last_position_are_not_measured(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("learned", c);
    struct alibi_targets how = request(12);
    struct target_losses losses = { 0 };

    (void)state;
    how.block = 4; /* positions end at 8: 4 + 4 - 1 tokens fit, 8 + 4 - 1 do not */
    assert_ok(targets_resolve(&how, L));
    assert_ok(NEW_ARRAY(&losses.at, how.contexts.count, "losses"));
    assert_ok(probe_losses(&model, c, ALIBI_ALL, &how, &losses, test_call()));
    for (int k = 0; k < how.contexts.count; k++)
        assert_int_equal(losses.at[k][TARGETS_OWN][0].tokens, k == 0 ? 12 * 4 : 0);
    mem_free(losses.at);
    free_model(&model);
    alibi_corpus_free(c);
}

static void defaults_follow_the_training_length(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c);
    const struct alibi_targets how = { .blocks = 9, .gram = 2 };
    static struct alibi_targets_result r;

    (void)state;
    assert_ok(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()));
    assert_true(r.request.length == L && r.request.block == L / 4);
    assert_int_equal(r.request.contexts.count, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(r.request.contexts.at[i], L / 2 << i);
    free_model(&model);
    alibi_corpus_free(c);
}

static void a_probe_gives_the_same_bits_again(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c);
    struct alibi_targets how = request(12);
    static struct alibi_targets_result r[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_ok(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r[i], test_call()));
    assert_memory_equal(r[0].kind, r[1].kind, sizeof r[0].kind);
    free_model(&model);
    alibi_corpus_free(c);
}

static void the_verdict_follows_its_rule(void **state)
{
    struct alibi_target_context far = { .gain = { -0.02, 0.004 }, .content = { NAN, NAN } };

    (void)state;
    assert_int_equal(targets_reach(&far, student_t(199)), ALIBI_BREAKS);
    assert_int_equal(targets_reach(&far, student_t(2)), ALIBI_BREAKS); /* 5 errors, and t is 4.3 */
    assert_int_equal(targets_reach(&far, student_t(1)), ALIBI_HOLDS);  /* 12.7 */
    far.gain.error = 0.011;                                            /* not beyond two errors */
    assert_int_equal(targets_reach(&far, student_t(199)), ALIBI_HOLDS);
    far.gain = (struct alibi_estimate){ 0.02, 0.004 };
    assert_int_equal(targets_reach(&far, student_t(199)),
                     ALIBI_HOLDS); /* without the control nothing is proved */
    far.content = far.beyond = (struct alibi_estimate){ 0.006, 0.001 };
    assert_int_equal(targets_reach(&far, student_t(199)), ALIBI_USES);
    far.beyond.error = 0.004; /* a window may have it all */
    assert_int_equal(targets_reach(&far, student_t(199)), ALIBI_HOLDS);
    far.beyond.error = 0.001;
    far.content.value = 0.004; /* too small to count */
    assert_int_equal(targets_reach(&far, student_t(199)), ALIBI_HOLDS);
}

/* Up to the last step that is shown, without a gap; contexts up to L do not count. */
static void the_loss_falls_as_long_as_every_step_is_shown(void **state)
{
    struct alibi_target_context at[] = {
        { .context = 8, .step = { NAN, NAN } },       { .context = 16, .step = { -1, 0.1 } },
        { .context = 32, .step = { 0.02, 0.002 } },   { .context = 64, .step = { 0.001, 0.0004 } },
        { .context = 128, .step = { 0.001, 0.001 } }, { .context = 256, .step = { 0.02, 0.002 } },
    };

    (void)state;
    assert_int_equal(targets_fall(at, 6, 16, 2), 64);
    assert_int_equal(targets_fall(at, 6, 16, 3), 32);
    assert_int_equal(targets_fall(at, 6, 16, 0.5), 256);
    assert_int_equal(targets_fall(at, 2, 16, 2), 16);
    at[2].step.value = NAN;
    assert_int_equal(targets_fall(at, 6, 16, 2), 16);
}

/* ---- failures */

static void a_text_without_a_long_document_is_named_with_what_it_takes(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c);
    struct alibi_targets how = request(12);
    static struct alibi_targets_result r;

    (void)state;
    how.contexts = (struct alibi_int_list){ 1, { 1000 } };
    assert_fails(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()), ALIBI_BAD_INPUT,
                 "no document of 1006 tokens, for a context of 1000 and 6 targets: its longest has "
                 "301");
    free_model(&model);
    alibi_corpus_free(c);
}

static void wrong_requests_are_named(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c), learned = new_model("learned", c);
    struct alibi_targets how = request(12), none = { 0 };
    static struct alibi_targets_result r;

    (void)state;
    assert_fails(alibi_probe_targets(&model, c, ALIBI_ALL, &none, &r, test_call()), ALIBI_USAGE,
                 "blocks");
    assert_fails(alibi_probe_targets(&learned, c, ALIBI_ALL, &how, &r, test_call()),
                 ALIBI_BAD_INPUT, "'learned' ends at 8");
    how.gram = 0; /* the tokens are bytes */
    assert_ok(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()));
    assert_int_equal(r.request.gram, 12);
    how.gram = 40;
    assert_fails(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()), ALIBI_USAGE,
                 "does not fit a context of 32");
    how = request(12);
    how.contexts.count = ALIBI_LIST_MAX;
    for (int i = 0; i < ALIBI_LIST_MAX; i++)
        how.contexts.at[i] = 20 + i;
    assert_fails(alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call()), ALIBI_USAGE,
                 "no room for the length 8");
    free_model(&model);
    free_model(&learned);
    alibi_corpus_free(c);
}

static void a_stop_request_ends_a_probe(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c);
    struct alibi_targets how = request(12);
    static struct alibi_targets_result r;
    struct alibi_stop stop = { 0 };

    (void)state;
    alibi_stop_request(&stop);
    assert_fails(
        alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, &(struct alibi_call){ .stop = &stop }),
        ALIBI_INTERRUPTED, "fixed targets: stopped after 0 of");
    free_model(&model);
    alibi_corpus_free(c);
}

static void every_failing_allocation_is_reported_and_nothing_leaks(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c);
    struct alibi_targets how = request(12);
    static struct alibi_targets_result r;
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;

    (void)state;
    for (int64_t n = 1; status != ALIBI_OK; n++) {
        assert_ok(alibi_inject_fault("memory", n));
        status = alibi_probe_targets(&model, c, ALIBI_ALL, &how, &r, test_call());
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_int_equal(alibi_memory_now(), before);
        assert_true(n < 1000);
    }
    free_model(&model);
    alibi_corpus_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_deep_inside_long_documents_and_do_not_overlap),
        cmocka_unit_test(documents_get_equal_numbers_of_blocks_as_far_as_they_have_room),
        cmocka_unit_test(a_swapped_context_is_that_of_another_document),
        cmocka_unit_test(a_single_document_swaps_with_its_own_distant_text_or_not_at_all),
        cmocka_unit_test(repeats_are_those_of_the_definition),
        cmocka_unit_test(every_number_is_that_of_a_plain_loop),
        cmocka_unit_test(the_window_control_sees_sinks),
        cmocka_unit_test(errors_are_those_of_independent_documents),
        cmocka_unit_test(kept_losses_have_the_gains_and_errors_of_the_probe),
        cmocka_unit_test(contexts_past_the_last_position_are_not_measured),
        cmocka_unit_test(defaults_follow_the_training_length),
        cmocka_unit_test(a_probe_gives_the_same_bits_again),
        cmocka_unit_test(the_verdict_follows_its_rule),
        cmocka_unit_test(the_loss_falls_as_long_as_every_step_is_shown),
        cmocka_unit_test(a_text_without_a_long_document_is_named_with_what_it_takes),
        cmocka_unit_test(wrong_requests_are_named),
        cmocka_unit_test(a_stop_request_ends_a_probe),
        cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_leaks),
    };

    omp_set_num_threads(1);
    cpu.ops = ops_cpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
