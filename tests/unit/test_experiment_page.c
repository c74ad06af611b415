/* The page of an experiment: claims, and pictures of what was measured */
#include "position/position.h"
#include "unit/report_results.h"

enum { LAYERS = 3, HEADS = 4, BINS = 9 };

/* An experiment of the ordinary results, and room for what a test adds. */
struct sample {
    struct report_experiment x; /* first: who frees it frees it all */
    struct report_section section;
    struct report_claim claim[2];
    struct report_comparison comparison[2];
    struct report_targets targets;
    struct report_targets_model target[2];
    struct report_attention attention;
    struct report_attention_model attends[2];
    struct alibi_attention_result read[2];
    struct alibi_head_attention head[2][LAYERS * HEADS];
    struct report_cost cost[4];
};

static struct report_number number(const char *name, double value, double paper)
{
    struct report_number n = { .value = value, .error = 0.01, .paper = paper, .quantity = ' ' };

    snprintf(n.name, sizeof n.name, "%s", name);
    return n;
}

/* Two claims: the first of two comparisons, which only the second refutes; one of a plain number.
 */
static void add_claims(struct sample *s)
{
    s->comparison[0] = (struct report_comparison){ .left = number("<alibi> at 512", 18, 18.5),
                                                   .right = number("alibi at 128", 20, 20),
                                                   .d = log(0.9),
                                                   .error = 0.001,
                                                   .seeds = 3,
                                                   .verdict = ALIBI_CLAIM_HOLDS };
    s->comparison[1] = s->comparison[0];
    s->comparison[1].left = number("alibi at 1024", 22, 19);
    s->comparison[1].d = log(1.1);
    s->comparison[1].verdict = ALIBI_CLAIM_FAILS;
    s->claim[0] = (struct report_claim){ .claim = { .claim = "It falls & falls.",
                                                    .where = "Figure 1",
                                                    .paper = "It fell.",
                                                    .verdict = ALIBI_CLAIM_FAILS },
                                         .count = 2,
                                         .comparison = s->comparison };
    s->claim[1] = (struct report_claim){ .claim = { .claim = "Below a bound.",
                                                    .where = "",
                                                    .paper = "",
                                                    .verdict = ALIBI_CLAIM_NOT_SHOWN } };
    s->x.claims = 2;
}

/* Contexts 64 to 1024, L = 128. The first model gains from far text, the second breaks, and has
 * no repeats. */
static void add_targets(struct sample *s)
{
    s->targets = (struct report_targets){ .name = "far",
                                          .about = "About <it>.",
                                          .near = 128,
                                          .ceiling_gain = NAN,
                                          .documents = 9,
                                          .blocks = 32,
                                          .block = 64,
                                          .contexts = 5,
                                          .models = 2,
                                          .model = s->target };
    for (int m = 0; m < 2; m++)
        for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++)
            for (int i = 0; i < 5; i++) {
                struct report_targets_model *t = &s->target[m];
                struct alibi_target_context *at = &t->kind[kind].at[i];
                double gain = (m == 0 || i == 0 ? 0.01 : -0.5) * (i - 1) * (kind + 1);
                bool far = i > 1;

                t->method = m;
                t->seeds = 2;
                t->reach = m == 0 ? ALIBI_USES : ALIBI_BREAKS;
                t->home = 1;
                t->far = 4;
                t->falls_to = m == 0 ? 1024 : 128;
                t->share = m == 0 ? 0.75 : NAN;
                t->low[kind][i] = 2.5 - gain;
                t->high[kind][i] = 3.5 - gain;
                t->kind[kind].tokens = m == 1 && kind == ALIBI_REPEATS ? 0 : 1000;
                at->context = 64 << i;
                at->nll = (struct alibi_estimate){ 3 - gain, 0.1 };
                at->gain = (struct alibi_estimate){ gain, i == 1 ? 0 : 0.003 };
                at->swapped = (struct alibi_estimate){ far ? gain / 2 : NAN, far ? 0.002 : NAN };
                at->window = (struct alibi_estimate){ far ? gain / 4 : NAN, far ? 0.002 : NAN };
                at->content = (struct alibi_estimate){ far ? gain / 2 : NAN, far ? 0.002 : NAN };
                at->beyond = (struct alibi_estimate){ far ? gain * 3 / 4 : NAN, 0.002 };
            }
    s->x.targets = 1;
    s->x.target = &s->targets;
}

/* Head h of the first model gives all weight to the bin h of distances, the second is uniform over
 * the bins. */
static void add_attention(struct sample *s)
{
    s->attention = (struct report_attention){
        .name = "looks", .about = "", .length = 256, .models = 2, .model = s->attends
    };
    for (int m = 0; m < 2; m++) {
        s->read[m] = (struct alibi_attention_result){ .length = 256,
                                                      .near = 64,
                                                      .layers = LAYERS,
                                                      .heads = HEADS,
                                                      .bins = BINS,
                                                      .head = s->head[m] };
        for (int b = 0; b < BINS; b++) {
            for (int h = 0; h < LAYERS * HEADS; h++)
                s->head[m][h].share[b] = m == 1 ? 1.0 / BINS : b == h % HEADS;
            s->read[m].uniform.share[b] = exp2(b) / 512;
        }
        s->attends[m] =
            (struct report_attention_model){ .method = m, .seeds = 1, .seed = { &s->read[m] } };
    }
    s->x.attentions = 1;
    s->x.attention = &s->attention;
}

/* Two models at two lengths. The second needs more memory in training only. */
static void add_costs(struct sample *s)
{
    for (int i = 0; i < 4; i++)
        s->cost[i] = (struct report_cost){ .method = i % 2,
                                           .machine = "a machine",
                                           .length = 128 << i / 2,
                                           .train_seconds = 1e-6 * (1 + i),
                                           .train_error = 0.01,
                                           .train_memory = 0x1p24 * (1 + i % 2),
                                           .eval_seconds = 1e-7,
                                           .eval_error = 0.02,
                                           .eval_memory = 0x1p23 };
    s->x.costs = 4;
    s->x.cost = s->cost;
}

static struct sample *new_sample(void)
{
    struct sample *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->section = (struct report_section){
        .name = "windows", .about = "", .heading = "perplexity", .result = new_results()
    };
    s->x = (struct report_experiment){ .name = "sample",
                                       .title = "A sample",
                                       .about = "",
                                       .tier = "",
                                       .tier_about = "",
                                       .sections = 1,
                                       .section = &s->section,
                                       .claim = s->claim,
                                       .model = { "alibi", "sinusoidal" } };
    return s;
}

static void free_sample(struct sample *s)
{
    free(s->section.result);
    free(s);
}

static struct text page_of(const struct sample *s)
{
    struct text out = { 0 };

    assert_ok(report_experiment_html(&out, &s->x));
    assert_balanced(out.data);
    assert_no_nan(out.data);
    return out;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (text = strstr(text, part); text != NULL; text = strstr(text + 1, part))
        count++;
    return count;
}

/* The card of a claim has the comparison that decides, ours beside the paper's. */
static void a_claim_shows_the_comparison_that_decides(void **state)
{
    struct sample *s = new_sample();
    struct text page;
    const char *card, *folded;

    (void)state;
    add_claims(s);
    page = page_of(s);
    assert_contains(page.data, "Of 2 claims: <b class=\"verdict v1\">holds</b> 0, "
                               "<b class=\"verdict v2\">does not hold</b> 1, "
                               "<b class=\"verdict v0\">not shown</b> 1.");
    card = strstr(page.data, "<section class=\"claim v2\">");
    assert_non_null(card);
    folded = strstr(card, "<details><summary>2 comparisons</summary>");
    assert_non_null(folded);
    card = strstr(card, "<dt>ours</dt><dd>alibi at 1024: 22.0±0.2, against alibi at 128: "
                        "20.0±0.2: <b>10.0 ± 0.1% higher</b>");
    assert_true(card != NULL && card < folded);
    card = strstr(card, "<dt>paper</dt><dd>19.0 against 20.0: <b>5.0% lower</b>. It fell. "
                        "<small>Figure 1</small>");
    assert_true(card != NULL && card < folded);
    assert_contains(folded, "<td>&lt;alibi&gt; at 512</td><td>18.0<small>±0.2</small></td>");
    assert_contains(page.data, "It falls &amp; falls.</h3>");
    text_free(&page);
    s->claim[0].claim.paper = ""; /* a claim of our own: no paper has a number for it */
    s->claim[0].claim.where = "the goal";
    s->comparison[1].left.paper = s->comparison[1].right.paper = NAN;
    page = page_of(s);
    assert_contains(page.data, "<dt>from</dt><dd> <small>the goal</small>");
    assert_lacks(page.data, "<dt>paper</dt>");
    text_free(&page);
    free_sample(s);
}

/* Once, on the page and on the terminal. */
static void a_claim_with_a_factor_says_what_it_is(void **state)
{
    struct sample *s = new_sample();

    (void)state;
    add_claims(s);
    for (int with = 0; with < 2; with++) {
        struct text page, text = { 0 };

        s->comparison[1].left.error = with ? 0.7 : 0.01;
        page = page_of(s);
        assert_ok(report_experiment_text(&text, &s->x, 80, false));
        assert_int_equal(count_of(page.data, "×÷ the same as a factor"), with);
        assert_int_equal(count_of(text.data, "×÷ the same as a factor"), with);
        assert_int_equal(strstr(text.data, "22.0×÷2.0") != NULL, with);
        text_free(&page);
        text_free(&text);
    }
    free_sample(s);
}

/* A missing model has neither a box nor a row; a model with the weights of another has no row for
 * the cost of its training. */
static void an_unfinished_page_shows_only_models_with_results(void **state)
{
    struct sample *s = new_sample();
    struct text page;
    const char *costs;

    (void)state;
    s->x.trainings = METHODS - 1;
    s->x.trained = METHODS - 2;
    s->x.training.models = METHODS;
    s->x.training.done = 1;
    s->x.absent[0] = s->x.untrained[1] = true;
    s->section.result->method[0].seeds = 0;
    page = page_of(s);
    assert_contains(page.data, "Unfinished: 2 of 3 trainings are done, and 1 of 4 models have all");
    assert_lacks(page.data, "id=\"show-0\"");
    assert_contains(page.data, "id=\"show-1\"");
    costs = strstr(page.data, "<h2>What it costs</h2>");
    assert_non_null(costs);
    assert_int_equal(count_of(costs, "<tr><th scope=\"row\">"), METHODS - 2);
    text_free(&page);
    free_sample(s);
}

/* Lengths 128, 512 and 1024, of which `learned` has only the first. */
static void each_model_has_its_loss_by_position_at_several_lengths(void **state)
{
    struct sample *s = new_sample();
    struct text page = page_of(s);
    const char *figure;

    (void)state;
    assert_lacks(page.data, "one by one");
    text_free(&page);
    s->section.windows = true;
    page = page_of(s);
    assert_int_equal(count_of(page.data, ": loss by position</title>"), METHODS);
    figure = strstr(page.data, "<figure class=\"of0\">");
    assert_non_null(figure);
    assert_contains(figure, "id=\"fig-0-position-0-title\">alibi: loss by position</title>");
    assert_contains(figure, "var(--page) 65%)\" data-name=\"128\"");
    assert_contains(figure, "style=\"color:var(--series-0)\" data-name=\"1024\"");
    assert_contains(page.data, "#show-0:not(:checked)) :is(.plot .s0,.of0){display:none}");
    text_free(&page);
    free_sample(s);
}

/* A second seed whose losses are 0.5 higher in windows of 1024. */
static void losses_by_position_have_the_range_of_the_seeds(void **state)
{
    struct sample *s = new_sample();
    struct alibi_compare_method *m = &s->section.result->method[0];
    struct text page;
    char range[64];
    double first = m->seed[0].by_length[2].by_position[0].nll;

    (void)state;
    copy_seed(&m->seed[1], &m->seed[0]);
    m->seeds = 2;
    for (int b = 0; b < m->seed[1].by_length[2].bins; b++)
        m->seed[1].by_length[2].by_position[b].nll += 0.5;
    s->section.windows = true;
    page = page_of(s);
    snprintf(range, sizeof range, ",1,%.3f,(%.3f to %.3f);", first + 0.25, first, first + 0.5);
    assert_contains(page.data, range);
    assert_contains(page.data, "Bands are the range of the seeds.");
    text_free(&page);
    free_sample(s);
}

/* Sinusoidal has a perplexity of 10.23 at 1024, and all others of 4.5 at most: what is more
 * than twice the lowest is not needed on the axis, and its label says how far it goes. */
static void a_model_that_breaks_does_not_set_the_scale(void **state)
{
    struct sample *s = new_sample();
    struct text page;
    const char *figure;

    (void)state;
    for (int m = 0; m < METHODS; m++)
        s->x.train_length[m] = 128;
    for (int b = 0; b < s->section.result->method[1].seed[0].by_length[2].bins; b++)
        s->section.result->method[1].seed[0].by_length[2].by_position[b].nll += 20;
    s->section.windows = true;
    page = page_of(s);
    figure = strstr(page.data, "id=\"fig-0-title\"");
    assert_non_null(figure);
    figure = strstr(figure, ">sinusoidal ↑ 10.2</text>");
    assert_non_null(figure);
    figure = strstr(figure, "id=\"fig-0-far-title\"");
    assert_non_null(figure);
    assert_contains(figure, ">sinusoidal ↑ 2");
    text_free(&page);
    free_sample(s);
}

static void targets_show_losses_and_what_far_text_is_worth(void **state)
{
    struct sample *s = new_sample();
    struct text page;
    const char *figure;

    (void)state;
    add_targets(s);
    page = page_of(s);
    assert_contains(page.data, "<h2>far: the same tokens with growing context</h2>");
    assert_contains(page.data, "the last has 63 tokens more than the axis says."); /* of 64 */
    assert_contains(page.data, "About &lt;it&gt;.");
    figure = strstr(page.data, "id=\"fig-targets-0-0-title\">Loss against context</title>");
    assert_non_null(figure);
    assert_contains(figure, ",1024,2.970,(2.470 to 3.470)\""); /* the range of the seeds */
    assert_contains(page.data, "\">Targets that repeat far text</title>");
    figure = strstr(page.data, "id=\"fig-uses-0-0-title\">Use of keys beyond L</title>");
    assert_non_null(figure);
    assert_contains(figure, ",128,0.0000,±0.0000;"); /* L itself uses nothing beyond */
    assert_contains(figure, ",1024,0.0225,±0.0020\"");
    assert_contains(figure, ">sinusoidal ↓ -1.1250</text>"); /* far below: cut, and said */
    figure = strstr(page.data, "id=\"fig-uses-0-1-title\">Use of what far text says</title>");
    assert_non_null(figure);
    assert_contains(figure, ",1024,0.0150,±0.0020\"");
    assert_contains(page.data, "<td>1024</td><td>2.9700<small>±0.1000</small></td>"
                               "<td>0.0300<small>±0.0030</small></td>"
                               "<td>0.0150<small>±0.0020</small></td>"
                               "<td>0.0075<small>±0.0020</small></td></tr>");
    assert_contains(page.data, "<td>64</td><td>3.0100<small>±0.1000</small></td>"
                               "<td>-0.0100<small>±0.0030</small></td><td>–</td><td>–</td>");
    text_free(&page);
    for (int i = 0; i < 5; i++) { /* a model that breaks at L already does not set the scale */
        s->target[1].low[ALIBI_ALL_TARGETS][i] += 5;
        s->target[1].high[ALIBI_ALL_TARGETS][i] += 5;
        s->target[1].kind[ALIBI_ALL_TARGETS].at[i].nll.value += 5;
    }
    page = page_of(s);
    figure = strstr(page.data, "id=\"fig-targets-0-0-title\">Loss against context</title>");
    assert_non_null(figure);
    assert_contains(figure, ">sinusoidal ↑ 9.5");
    text_free(&page);
    s->targets.models = 0; /* none has a value yet */
    page = page_of(s);
    assert_lacks(page.data, "growing context</h2>");
    assert_lacks(page.data, "Verdicts");
    text_free(&page);
    free_sample(s);
}

/* One line per model, before anything else; the rules are beside it. A task that was not learned
 * at L is not scored past it. */
static void the_first_table_has_the_verdicts_and_their_rules(void **state)
{
    struct sample *s = new_sample();
    struct text page, shown = { 0 };
    struct alibi_int_list lengths = { 2, { 128, 1024 } };
    struct report_task_model scores[2] = {
        { .method = 0,
          .seeds = 1,
          .at = { { .score = 1, .seeds = 1 }, { .score = 0.5, .seeds = 1 } } },
        { .method = 1,
          .seeds = 1,
          .at = { { .score = 0.25, .seeds = 1 }, { .score = NAN, .unlearned = 1 } } }
    };
    struct report_task task = { .name = "tasks",
                                .about = "",
                                .task = "passkey",
                                .summary = "",
                                .near = 128,
                                .lengths = &lengths,
                                .models = 2,
                                .model = scores };
    const char *rule;

    (void)state;
    add_targets(s);
    add_claims(s);
    s->x.tasks = 1;
    s->x.task = &task;
    page = page_of(s);
    assert_true(strstr(page.data, "<b>Verdicts.</b>") < strstr(page.data, "<h2>Claims</h2>"));
    assert_contains(page.data, "<td><b class=\"verdict reach2\">uses</b></td><td>3.000</td>"
                               "<td>0.0100</td><td>0.0200</td><td>0.0300</td><td>1024</td>"
                               "<td>0.500</td></tr>");
    assert_contains(page.data, "<td><b class=\"verdict reach0\">breaks</b></td>");
    assert_contains(page.data, "<td>–</td><td>not learned<small>(0.25)</small></td></tr>");
    for (int reach = 0; alibi_reach_name(reach, &rule) != NULL; reach++)
        assert_contains(page.data, rule);
    text_free(&page);
    assert_ok(report_experiment_text(&shown, &s->x, 120, false));
    assert_true(strstr(shown.data, "alibi ") < strstr(shown.data, "\n1. "));
    assert_contains(shown.data, " uses ");
    assert_lacks(shown.data, "uses, to 1024");
    text_free(&shown);
    s->target[0].falls_to = 256;
    assert_ok(report_experiment_text(&shown, &s->x, 120, false));
    assert_contains(shown.data, " uses, to 256 ");
    s->target[0].falls_to = 1024;
    assert_contains(shown.data, "not learned (0.25)\n");
    text_free(&shown);
    free_sample(s);
}

static void a_claim_without_numbers_was_not_measured(void **state)
{
    struct sample *s = new_sample();
    struct text page, shown = { 0 };

    (void)state;
    add_claims(s);
    s->comparison[0].left.value = s->comparison[0].d = NAN;
    s->comparison[0].verdict = s->claim[0].claim.verdict = ALIBI_CLAIM_NOT_MEASURED;
    s->claim[0].count = 1;
    page = page_of(s);
    assert_contains(page.data, "<b class=\"verdict v0\">not shown</b> 1, "
                               "<b class=\"verdict v3\">not measured</b> 1.");
    assert_contains(page.data, "<section class=\"claim v3\">\n<p><b class=\"verdict v3\">not "
                               "measured</b>");
    text_free(&page);
    assert_ok(report_experiment_text(&shown, &s->x, 80, false));
    assert_contains(shown.data, "1. not measured: It falls & falls.");
    assert_contains(shown.data, "2. not shown: Below a bound.");
    text_free(&shown);
    free_sample(s);
}

/* A model that was trained at the longest context has no verdict; the others have their share of
 * its gain, and if it gains nothing the page says that the text cannot tell. */
static void a_ceiling_is_dashed_and_shares_are_of_it(void **state)
{
    struct sample *s = new_sample();
    struct text page;

    (void)state;
    add_targets(s);
    s->target[1].ceiling = true;
    s->target[1].reach = -1;
    s->targets.ceiling_gain = 0.04;
    page = page_of(s);
    assert_contains(page.data, "<td>ceiling</td>");
    assert_contains(page.data, "<td>75%</td>");
    assert_contains(page.data, "style=\"color:var(--quiet)\" data-name=\"sinusoidal\"");
    assert_lacks(page.data, "too little to gain");
    text_free(&page);
    s->targets.ceiling_gain = 0.004;
    page = page_of(s);
    assert_contains(page.data, "It gains 0.0040 nats there: this text has too little to gain");
    text_free(&page);
    free_sample(s);
}

/* The first model has 0.1 nats above Bayes' loss in the last bin, the second has not learned it. */
static void the_chain_is_drawn_against_bayes(void **state)
{
    struct sample *s = new_sample();
    struct alibi_int_list lengths = { 2, { 128, 1024 } };
    static struct report_task_model models[2];
    struct report_task task = { .name = "tasks",
                                .about = "",
                                .task = "markov",
                                .summary = "",
                                .chain = true,
                                .near = 128,
                                .lengths = &lengths,
                                .models = 2,
                                .model = models };
    struct text page, shown = { 0 };
    const char *figure;

    (void)state;
    for (int m = 0; m < 2; m++) {
        models[m] =
            (struct report_task_model){ .method = m, .seeds = 2, .length = 1024, .bins = 3 };
        for (int b = 0; b < 3; b++)
            models[m].position[b] = (struct report_position){ .first = b == 0 ? 0 : 8 << b,
                                                              .last = 8 << b,
                                                              .nll = 1.5 - 0.2 * b + (b == 2) * 0.1,
                                                              .bayes = 1.5 - 0.2 * b,
                                                              .low = -0.05,
                                                              .high = 0.25 };
        for (int i = 0; i < 2; i++)
            models[m].at[i] = (struct report_score){ .score = 0.99, .seeds = 2 };
    }
    models[1].at[1] = (struct report_score){ .score = NAN, .unlearned = 2 };
    s->x.tasks = 1;
    s->x.task = &task;
    page = page_of(s);
    figure = strstr(page.data, "id=\"fig-chain-0-0-title\">Loss by position</title>");
    assert_non_null(figure);
    assert_contains(figure, "data-name=\"Bayes\"");
    assert_contains(figure, "alibi: 1.5000 at 3, 1.2000 at 33. sinusoidal: no values.");
    figure = strstr(page.data, "id=\"fig-chain-0-1-title\">Loss above");
    assert_non_null(figure);
    assert_contains(figure, ",33,0.1000,(-0.0500 to 0.2500)\"");
    text_free(&page);
    assert_ok(report_experiment_text(&shown, &s->x, 120, false));
    assert_contains(shown.data, "loss of markov by position in windows of 1024 tokens");
    assert_contains(shown.data, "32 to 32  1.1000  1.2000");
    text_free(&shown);
    free_sample(s);
}

/* A column of what was not learned at L has no score. */
static void needles_are_a_map_by_length_and_depth(void **state)
{
    struct sample *s = new_sample();
    struct alibi_int_list lengths = { 2, { 128, 1024 } };
    struct report_task_model model = {
        .method = 0,
        .seeds = 1,
        .at = { { .score = 0.5, .seeds = 1, .depth = { 0.25, 0.75 } },
                { .score = NAN, .unlearned = 1, .depth = { NAN, NAN } } }
    };
    struct report_task task = { .name = "tasks",
                                .about = "",
                                .task = "passkey",
                                .summary = "",
                                .has_depth = true,
                                .near = 128,
                                .cases = 40,
                                .depths = 2,
                                .lengths = &lengths,
                                .models = 1,
                                .model = &model };
    struct text page;

    (void)state;
    s->x.tasks = 1;
    s->x.task = &task;
    page = page_of(s);
    assert_contains(page.data, "<tr><th scope=\"row\">50–100%</th><td class=\"score\" "
                               "style=\"--score:75%\">0.75</td><td class=\"unlearned\"></td>");
    assert_contains(page.data, "A column has 40 windows");
    text_free(&page);
    free_sample(s);
}

static void attention_is_a_map_of_heads_and_a_mean(void **state)
{
    struct sample *s = new_sample();
    struct text page;
    const char *map;

    (void)state;
    add_attention(s);
    page = page_of(s);
    map = strstr(page.data, "<figure class=\"of0\">");
    assert_non_null(map);
    assert_contains(map, "data-columns=\"0,1,2–3,4–7,8–15,16–31,32–63,64–127,128–255\"");
    assert_contains(map, "data-rows=\"1000,0,0,0,0,0,0,0,0;0,1000,0,");
    /* Rows of 14 pixels: head 2 of layer 1, and head 1 of layer 2 after a gap. */
    assert_contains(map, "fill-opacity=\"0.95\" d=\"M0,0h1v14h-1zM1,14h1v14h-1z");
    assert_contains(map, "zM0,59h1v14h-1z");
    map = strstr(page.data, "<figure class=\"of1\">");
    assert_non_null(map);
    assert_contains(map, "fill-opacity=\"0.43\" d=\"M0,0h9v14h-9z"); /* one for the whole row */
    assert_contains(page.data, "data-name=\"uniform\"");
    assert_contains(page.data, ",2–3,25%,;"); /* a fourth of the heads */
    text_free(&page);
    s->attends[0].seeds = s->attends[1].seeds = 0;
    page = page_of(s);
    assert_lacks(page.data, "attention by distance");
    text_free(&page);
    free_sample(s);
}

static void costs_are_drawn_where_they_say_something(void **state)
{
    struct sample *s = new_sample();
    struct text page;

    (void)state;
    add_costs(s);
    page = page_of(s);
    assert_contains(page.data, "id=\"fig-cost-0-title\">Speed of training</title>");
    assert_contains(page.data, ",128,1.00M,±10.0K;");
    assert_contains(page.data, "\">Memory of training</title>");
    assert_lacks(page.data, "\">Memory of evaluation</title>");
    text_free(&page);
    for (int i = 0; i < 4; i++)
        s->cost[i].length = 128;
    page = page_of(s);
    assert_lacks(page.data, "fig-cost-");
    assert_contains(page.data, "<td>1.00M ±1.0%</td>");
    text_free(&page);
    free_sample(s);
}

/* The first model costs little more after 4096 tokens than after 1024; the second has a value for
 * the longer context only. */
static void streams_show_what_a_token_costs(void **state)
{
    struct sample *s = new_sample();
    struct alibi_int_list lengths = { 2, { 1024, 4096 } };
    struct report_stream_model models[2] = {
        { .method = 0,
          .at = { { 2, 2e-6, 0.01, 100e-6, 0.01, 0x1p20 },
                  { 2, 3e-6, 0.01, 150e-6, 0.02, 0x1p21 } } },
        { .method = 1, .at = { { 0 }, { 1, 4e-6, 0.01, 400e-6, 0.02, 0x1p22 } } },
    };
    struct report_stream stream = { .name = "cost",
                                    .about = "",
                                    .machine = "a machine",
                                    .lengths = &lengths,
                                    .models = 2,
                                    .model = models };
    struct text page, shown = { 0 };

    (void)state;
    add_targets(s);
    s->x.streams = 1;
    s->x.stream = &stream;
    page = page_of(s);
    assert_contains(page.data, "<td>4096</td><td>150 ±3</td><td>3.00 ±0.03</td><td>2.00 MiB</td>"
                               "<td>0.50 KiB</td></tr>");
    assert_contains(page.data, "<td>1.5 times</td></tr>");
    assert_contains(page.data, "<td>–</td></tr>"); /* no ratio of the second */
    assert_contains(page.data, "sinusoidal: 400 at 4096.");
    assert_contains(page.data, "\">Time to decode a token</title>");
    assert_contains(page.data, "\">KV cache per token of context</title>");
    assert_contains(page.data, ">KiB</text>");
    assert_contains(page.data, ",4096,0.5"); /* of 2 MiB */
    text_free(&page);
    assert_ok(report_experiment_text(&shown, &s->x, 120, false));
    assert_contains(shown.data, "cost: the cost of a token by context, on a machine\n");
    text_free(&shown);
    free_sample(s);
}

/* Two trainings of one model, and a layer of another: a figure for each name. */
static void learned_numbers_are_dots(void **state)
{
    static const double slopes[] = { 0.5, 0.25, 0.03125 }, factor[] = { 0.2, NAN };
    struct sample *s = new_sample();
    struct report_numbers numbers[] = {
        { .name = "slopes", .seed = 1, .place = -1, .heads = 3, .value = slopes },
        { .name = "slopes", .seed = 7, .place = -1, .heads = 3, .value = slopes },
        { .name = "logn", .method = 1, .seed = -1, .place = 3, .heads = 2, .value = factor },
    };
    struct text page;
    const char *figure;

    (void)state;
    s->x.numbers = numbers;
    s->x.numbers_count = 3;
    page = page_of(s);
    figure = strstr(page.data, "id=\"fig-numbers-0-title\">Slopes of each head</title>");
    assert_non_null(figure);
    assert_contains(figure, ">slope, log scale</text>");
    assert_contains(figure, "<title>3: 0.03125</title>");
    assert_contains(figure, ">alibi (seed 1)</text>");
    assert_contains(figure, ">alibi (seed 7)</text>");
    figure = strstr(figure, "id=\"fig-numbers-1-title\">logn");
    assert_non_null(figure);
    assert_contains(figure, ">sinusoidal 4</text>");
    assert_int_equal(count_of(page.data, "<circle class=\"dot\""), 7);
    text_free(&page);
    free_sample(s);
}

/* The name of a number in results.json is not for a figure, whatever the method. */
static void learned_numbers_are_called_by_words(void **state)
{
    static const char *const more[] = { "kerple:power", NULL };
    static const double values[] = { 0.5, 0.25 };
    struct sample *s = new_sample();
    struct alibi_config config = s->section.result->config;
    const char *position;
    int learned = 0;

    (void)state;
    for (int i = 0, k = 0; (position = alibi_position_name(i, NULL)) || (position = more[k++]); i++)
        for (int64_t row = 0; row < 2; row++) {
            struct pattern pattern;
            struct report_numbers numbers = {
                .seed = -1, .place = -1, .heads = 2, .value = values
            };
            char raw[64];
            struct text page;

            snprintf(config.position, sizeof config.position, "%s", position);
            assert_ok(pattern_read(&pattern, &config));
            if (!pattern.kind[0].method->number)
                continue;
            numbers.name = pattern.kind[0].method->number(&pattern.kind[0], row);
            s->x.numbers = &numbers;
            s->x.numbers_count = 1;
            page = page_of(s);
            snprintf(raw, sizeof raw, ">%s", numbers.name);
            assert_contains(page.data, "id=\"fig-numbers-0-title\">");
            assert_lacks(page.data, raw);
            text_free(&page);
            learned++;
        }
    assert_true(learned >= 8);
    free_sample(s);
}

static void a_failure_leaks_nothing(void **state)
{
    struct sample *s = new_sample();
    alibi_status status = ALIBI_MEMORY;
    size_t before = alibi_memory_now();
    int64_t n;

    (void)state;
    add_claims(s);
    add_targets(s);
    add_attention(s);
    add_costs(s);
    s->section.windows = true;
    for (n = 1; status != ALIBI_OK; n++) {
        struct text out = { 0 };
        assert_ok(alibi_inject_fault("memory", n));
        status = report_experiment_html(&out, &s->x);
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        text_free(&out);
        assert_int_equal(alibi_memory_now(), before);
    }
    assert_true(n > 20);
    free_sample(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unfinished_page_shows_only_models_with_results),
        cmocka_unit_test(a_model_that_breaks_does_not_set_the_scale),
        cmocka_unit_test(targets_show_losses_and_what_far_text_is_worth),
        cmocka_unit_test(the_first_table_has_the_verdicts_and_their_rules),
        cmocka_unit_test(a_claim_without_numbers_was_not_measured),
        cmocka_unit_test(a_ceiling_is_dashed_and_shares_are_of_it),
        cmocka_unit_test(the_chain_is_drawn_against_bayes),
        cmocka_unit_test(needles_are_a_map_by_length_and_depth),
        cmocka_unit_test(attention_is_a_map_of_heads_and_a_mean),
        cmocka_unit_test(costs_are_drawn_where_they_say_something),
        cmocka_unit_test(streams_show_what_a_token_costs),
        cmocka_unit_test(learned_numbers_are_dots),
        cmocka_unit_test(learned_numbers_are_called_by_words),
        cmocka_unit_test(a_failure_leaks_nothing),
        cmocka_unit_test(each_model_has_its_loss_by_position_at_several_lengths),
        cmocka_unit_test(losses_by_position_have_the_range_of_the_seeds),
        cmocka_unit_test(a_claim_shows_the_comparison_that_decides),
        cmocka_unit_test(a_claim_with_a_factor_says_what_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
