/* The page of an experiment: claims, and pictures of what was measured */
#include "unit/report_results.h"

/* An experiment of the ordinary results, and room for what a test adds. */
struct sample {
    struct report_experiment x; /* first: who frees it frees it all */
    struct report_section section;
    struct report_claim claim[2];
    struct report_comparison comparison[2];
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
                                       .claim = s->claim };
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
                               "<b class=\"verdict v2\">does not hold</b> 1, ");
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
    free_sample(s);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (text = strstr(text, part); text != NULL; text = strstr(text + 1, part))
        count++;
    return count;
}

/* Lengths 128, 512 and 1024, of which `learned` has only the first. */
static void each_model_has_its_loss_by_position_at_several_lengths(void **state)
{
    struct sample *s = new_sample();
    struct text page = page_of(s);
    const char *figure;

    (void)state;
    assert_lacks(page.data, "model by model");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_model_has_its_loss_by_position_at_several_lengths),
        cmocka_unit_test(losses_by_position_have_the_range_of_the_seeds),
        cmocka_unit_test(a_claim_shows_the_comparison_that_decides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
