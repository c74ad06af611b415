/* The HTML page: what it shows, that it loads nothing, and that names cannot become markup */
#include "unit/report_results.h"

static void page_has_headline_figures_tables_and_setting(void **state)
{
    static const char *const parts[] = {
        "alibi 4.0 ± 0.3% lower, rotary 38.5 ± 0.4% higher, sinusoidal 3.10 ± 0.01 times as high.</h1>",
        "id=\"fig-ppl-title\">Perplexity against test length</title>",
        "id=\"fig-sliding-title\">Perplexity against test length, sliding window</title>",
        "Scored on 16.4K tokens of the text, not 41.0K as above",
        "(the early token curse)",
        "<td>3.072</td><td>2.765</td>",
        "each token with all earlier tokens as context",
        "<b>As one stream of 8192 tokens.</b>",
        "<strong>3.000</strong><small>±0.006</small></td>",
        "As one stream of 8192 tokens alibi has the lowest perplexity, 3.000, 50.0 ± 0.1% below the next, rotary with 6.000.",
        "--eval-tokens 50000 --sliding-tokens 16384 --stream-tokens 8192",
        "--text-seed 3 --text-bytes 4000000",
        "alibi compare --recipe recipe.json",
        "id=\"fig-home-title\">Loss by position at length 128</title>",
        "id=\"fig-far-title\">Loss by position at length 1024</title>",
        "trained at 128</text>",
        "<td>1.80M</td><td>83.0 MiB</td>",
        "<strong>3.072</strong><small>±0.006</small>",
        ",1024,3.072,±0.006",
        "class=\"band\"",
        "id=\"fig-ppl-linear-title\"",
        "<footer><p>Text: ",
        "<th scope=\"col\" class=\"trained\">128",
        "<strong>3.072</strong>",
        "<dt>seed</dt><dd>42</dd>",
        "--methods alibi,sinusoidal,rotary,learned",
        "--lengths 128,512,1024",
        "--seed 42",
        "--no-embedding-norm",
        "learned, to 128",
    };
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r, NULL));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(out.data, parts[i]);
    text_free(&out);
    free(r);
}

static void assert_on_page(const struct alibi_compare_result *r, const char *line)
{
    struct text out = { 0 };

    assert_ok(report_html(&out, r, NULL));
    assert_contains(out.data, line);
    assert_balanced(out.data);
    text_free(&out);
}

static void page_has_one_device_for_all_or_one_for_each_method(void **state)
{
    struct alibi_compare_result *r = new_results(), *hostile = new_hostile_results(),
                                *missing = new_missing_results();
    struct text out = { 0 };

    (void)state;
    assert_on_page(r, "<div><dt>device</dt><dd>cpu, fp32</dd></div>\n</dl>\n<h3>Text</h3>");
    r->methods = 3;
    set_device(&r->method[0], "NVIDIA H200", ALIBI_BF16);
    assert_on_page(
        r,
        "<dt>device</dt><dd>alibi: NVIDIA H200, bf16; sinusoidal: cpu, fp32; rotary: cpu, fp32</dd>");
    set_device(&r->method[1], "NVIDIA H200", ALIBI_FP32);
    set_device(&r->method[2], "", 0);
    assert_on_page(
        r,
        "<dt>device</dt><dd>alibi: NVIDIA H200, bf16; sinusoidal: NVIDIA H200, fp32; rotary: not known</dd>");
    assert_on_page(
        hostile,
        ": &lt;b&gt;GPU&lt;/b&gt;, bf16; a,&quot;b&quot;&amp;&#39;c&#39;?: a &quot;quick&quot;, hot one??, bf16; ");
    assert_ok(report_html(&out, missing, NULL));
    assert_lacks(out.data, "<dt>device</dt>");
    text_free(&out);
    free(r);
    free(hostile);
    free(missing);
}

/* The numbers at the y axis of a figure. */
static void y_ticks(char *ticks, size_t size, const char *page, const char *figure)
{
    const char *p = strstr(page, figure), *end;

    assert_non_null(p);
    end = strstr(p, "class=\"axis-title\"");
    assert_non_null(end);
    ticks[0] = '\0';
    for (p = strstr(p, "text-anchor=\"end\">"); p != NULL && p < end;
         p = strstr(p, "text-anchor=\"end\">")) {
        p += strlen("text-anchor=\"end\">");
        snprintf(ticks + strlen(ticks), size - strlen(ticks), "%.*s ", (int)strcspn(p, "<"), p);
    }
}

static void both_perplexity_figures_have_one_scale(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };
    char above[256], below[256];

    (void)state;
    r->method[1].seed[0].sliding[2].ppl =
        93; /* farther than any other: the first figure has room for it too */
    assert_ok(report_html(&out, r, NULL));
    y_ticks(above, sizeof above, out.data, "fig-ppl-title\">");
    y_ticks(below, sizeof below, out.data, "fig-sliding-title\">");
    assert_contains(below, "50 ");
    assert_string_equal(above, below);
    text_free(&out);
    free(r);
}

/* Files cannot be named, so the command says where they go. */
static void the_command_for_a_text_from_files_asks_for_them(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    r->builtin = (struct alibi_builtin){ 0 };
    assert_ok(report_html(&out, r, NULL));
    assert_contains(out.data, "alibi compare FILE... --methods alibi");
    assert_lacks(out.data, "text-seed");
    text_free(&out);
    snprintf(r->tokenizer, sizeof r->tokenizer, "words");
    r->own_valid = true;
    assert_ok(report_html(&out, r, NULL));
    assert_contains(out.data, "<dt>tokenizer</dt><dd>words</dd>");
    assert_contains(out.data,
                    "alibi compare FILE... --tokenizer PATH --valid PATH --recipe recipe.json");
    assert_contains(out.data,
                    "alibi compare FILE... --tokenizer PATH --valid PATH --methods alibi");
    text_free(&out);
    free(r);
}

/* An embedding with more rows than the tokenizer has ids. */
static void the_command_names_a_padded_vocabulary(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r, NULL));
    assert_lacks(out.data, "--vocab");
    text_free(&out);
    r->config.vocab = 320;
    assert_ok(report_html(&out, r, NULL));
    assert_contains(out.data, "--vocab 320");
    text_free(&out);
    free(r);
}

/* Steps 1..100 with two seeds of the first method, and a validation. */
static struct report_training new_training(void)
{
    struct report_training t = { .logs = 2, .models = 8, .done = 1, .refresh = 7 };

    t.log = calloc(2, sizeof *t.log);
    assert_non_null(t.log);
    for (int k = 0; k < 2; k++) {
        t.log[k].steps = 300;
        for (int64_t step = 1; step <= 100; step++) {
            report_bins_add(&t.log[k].train, step, 100, 3 + k);
            t.log[k].step = step;
        }
    }
    report_bins_add(&t.log[0].valid, 100, 100, 3.25);
    report_bins_add(&t.log[0].valid, 101, 100, 9.75); /* beyond the last step */
    return t;
}

static void logs_become_curves_with_the_range_of_the_seeds(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct report_training t = new_training();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r, &t));
    assert_contains(out.data, "id=\"fig-train-title\">Training loss</title>");
    assert_contains(out.data, ",2,3.500,(3.000 to 4.000);");
    assert_contains(out.data, "id=\"fig-valid-title\">Validation loss</title>");
    assert_contains(out.data, ",100,3.250,\"");
    assert_lacks(out.data, "9.75");
    assert_balanced(out.data);
    text_free(&out);
    assert_ok(report_html(&out, r, NULL));
    assert_lacks(out.data, "fig-train");
    text_free(&out);
    free(t.log);
    free(r);
}

static void only_the_page_of_unfinished_work_loads_itself_again(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct report_training t = new_training();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r, &t));
    assert_contains(out.data, "<meta http-equiv=\"refresh\" content=\"7\">");
    assert_contains(out.data,
                    "Unfinished: 1 of 8 models are done; alibi is at step 100 of 300; alibi is");
    text_free(&out);
    t.done = t.models;
    t.refresh = 0;
    assert_ok(report_html(&out, r, &t));
    assert_lacks(out.data, "refresh");
    assert_lacks(out.data, "Unfinished");
    text_free(&out);
    free(t.log);
    free(r);
}

static void a_run_has_a_page_of_its_own(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    struct report_training t = new_training();
    struct text out = { 0 };

    (void)state;
    t.logs = t.models = 1;
    t.done = 0;
    assert_ok(report_run_html(&out, r, &t));
    assert_contains(out.data, "&lt;/script&gt; after 100 steps</h1>");
    assert_contains(out.data, "id=\"fig-train-title\"");
    assert_contains(out.data, "<dt>seed</dt><dd>42</dd>");
    assert_lacks(out.data, "fig-ppl");
    assert_balanced(out.data);
    text_free(&out);
    t.logs = 0;
    assert_ok(report_run_html(&out, r, &t));
    assert_contains(out.data, "after 0 steps</h1>");
    assert_balanced(out.data);
    text_free(&out);
    free(t.log);
    free(r);
}

static void page_loads_nothing(void **state)
{
    static const char *const loads[] = { "http://", "https://", "src=",    "href=", "url(",
                                         "@import", "<link",    "<iframe", "fetch(" };
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r, NULL));
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        assert_lacks(out.data, loads[i]);
    assert_contains(out.data, "default-src 'none'");
    text_free(&out);
    free(r);
}

static void page_escapes_names(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r, NULL));
    assert_lacks(out.data, "<script>alert");
    assert_lacks(out.data, "\x1b");
    assert_contains(out.data, "&lt;script&gt;alert(1)&lt;/script&gt;");
    assert_contains(out.data, "data-name=\"a,&quot;b&quot;&amp;&#39;c&#39;?\"");
    assert_contains(out.data, "100%s%n");
    text_free(&out);
    free(r);
}

static void page_is_well_formed_whatever_the_results(void **state)
{
    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++) {
        struct alibi_compare_result *r = all_results[k]();
        struct text out = { 0 };
        assert_ok(report_html(&out, r, NULL));
        assert_balanced(out.data);
        text_free(&out);
        free(r);
    }
}

static void one_model_is_spoken_of_as_one(void **state)
{
    struct alibi_compare_result *r = new_single_result();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r, NULL));
    assert_contains(out.data, "1 model, ");
    assert_contains(out.data, "with seed 42, tested on text it has not seen.");
    text_free(&out);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_model_is_spoken_of_as_one),
        cmocka_unit_test(page_has_headline_figures_tables_and_setting),
        cmocka_unit_test(page_has_one_device_for_all_or_one_for_each_method),
        cmocka_unit_test(both_perplexity_figures_have_one_scale),
        cmocka_unit_test(the_command_for_a_text_from_files_asks_for_them),
        cmocka_unit_test(the_command_names_a_padded_vocabulary),
        cmocka_unit_test(logs_become_curves_with_the_range_of_the_seeds),
        cmocka_unit_test(only_the_page_of_unfinished_work_loads_itself_again),
        cmocka_unit_test(a_run_has_a_page_of_its_own),
        cmocka_unit_test(page_loads_nothing),
        cmocka_unit_test(page_escapes_names),
        cmocka_unit_test(page_is_well_formed_whatever_the_results),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
