/* The conclusions of a report: which methods hold, which break, which are level */
#include "unit/report_results.h"

static void assert_conclusion(const struct alibi_compare_result *r, const char *headline,
                              const char *detail)
{
    struct view v;
    struct text out = { 0 };

    view_init(&v, r);
    append_headline(&out, &v);
    assert_string_equal(out.data, headline);
    out.length = 0;
    text_append(&out, "%s", "");
    append_detail(&out, &v);
    assert_string_equal(out.data, detail);
    text_free(&out);
}

static void conclusion_says_who_holds_and_who_breaks(void **state)
{
    struct alibi_compare_result *r = new_results();

    (void)state;
    assert_conclusion(
        r,
        "alibi, trained at 128, is 4% better at 1024 than at 128; sinusoidal is 3.1 times worse at 1024.",
        "At 1024 alibi has the lowest perplexity, 3.072, 32% below the next, rotary with 4.500. "
        "learned has no value past 128. With a sliding window, where tokens past the first window have at "
        "least half of it as context, alibi is 4% better at 1024 than at 128. As one stream of 8192 tokens alibi has "
        "the lowest perplexity, 3.000, 50% below the next, rotary with 6.000.");
    r->method[2].stream.ppl = 3.001;
    r->method[0].sliding[2].ppl = r->method[0].sliding[0].ppl;
    r->method[3].by_length[1] = r->method[3].by_length[2] = evaluation(1024, 1e6);
    assert_conclusion(
        r,
        "alibi, trained at 128, is 4% better at 1024 than at 128; learned is 294K times worse at 1024.",
        "At 1024 alibi has the lowest perplexity, 3.072, 32% below the next, rotary with 4.500. With a sliding "
        "window, where tokens past the first window have at least half of it as context, alibi is as good at 1024 as at 128. "
        "As one stream of 8192 tokens the best two, alibi and rotary, are level: 3.000 and 3.001.");
    free(r);
}

static void differences_within_the_error_are_none(void **state)
{
    struct alibi_compare_result *r = new_results();

    (void)state;
    r->methods = 2;
    copy_method(&r->method[1], &r->method[0]);
    snprintf(r->method[1].name, sizeof r->method[1].name, "other");
    r->method[0].by_length[0].standard_error = 0.1;
    r->method[1].by_length[2].standard_error = 0.1;
    r->method[1].by_length[2].ppl = 3.3;
    for (int m = 0; m < 2; m++) {
        r->method[m].sliding_lengths = 0;
        r->method[m].stream = no_evaluation(8192);
    }
    r->method[1].by_length[1].ppl = 4;
    assert_conclusion(r, "alibi and other, trained at 128, are as good at 1024 as at 128.",
                      "At 1024 the best two, alibi and other, are level: 3.072 and 3.300.");
    r->method[1].by_length[1].ppl = r->method[0].by_length[1].ppl;
    assert_conclusion(
        r, "alibi and other, trained at 128, are as good at 1024 as at 128.",
        "The methods are level at every length: this comparison does not tell them apart; train longer.");
    free(r);
}

static void every_method_that_holds_is_named(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct view v;
    struct text out = { 0 };

    (void)state;
    r->method[2].by_length[2].ppl = r->method[2].by_length[0].ppl;
    view_init(&v, r);
    append_headline(&out, &v);
    assert_string_equal(out.data,
                        "alibi and rotary, trained at 128, are at least as good at 1024 as at 128; "
                        "sinusoidal is 3.1 times worse at 1024.");
    r->method[2].by_length[2].ppl = 3;
    r->method[1].by_length[2].ppl = 3;
    out.length = 0;
    append_headline(&out, &v);
    assert_string_equal(
        out.data, "alibi, sinusoidal and rotary, trained at 128, are better at 1024 than at 128.");
    out.length = 0;
    append_detail(&out, &v);
    assert_contains(out.data,
                    "context, alibi, sinusoidal and rotary are not all as good at 1024 as at 128.");
    text_free(&out);
    free(r);
}

static void sentences_are_one_space_apart(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    r->methods = 2;
    copy_method(&r->method[1], &r->method[3]);
    r->method[0].sliding_lengths = r->method[1].sliding_lengths = 0;
    assert_conclusion(r, "alibi, trained at 128, is 4% better at 1024 than at 128.",
                      "learned has no value past 128.");
    assert_ok(report_text(&out, r, 200, false));
    assert_contains(out.data, "at 128. learned has");
    text_free(&out);
    free(r);
}

static void one_length_and_no_length_have_a_conclusion(void **state)
{
    struct alibi_compare_result *single = new_single_result(), *missing = new_missing_results(),
                                *empty = new_empty_results();

    (void)state;
    assert_conclusion(single, "alibi has perplexity 3.200 at 128.", "");
    assert_conclusion(missing, "No method has a perplexity.", "");
    assert_conclusion(empty, "No method has a perplexity.", "");
    free(single);
    free(missing);
    free(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conclusion_says_who_holds_and_who_breaks),
        cmocka_unit_test(differences_within_the_error_are_none),
        cmocka_unit_test(every_method_that_holds_is_named),
        cmocka_unit_test(sentences_are_one_space_apart),
        cmocka_unit_test(one_length_and_no_length_have_a_conclusion),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
