/* The four reports and their conclusions, on ordinary, full, single, empty, missing, infinite and
 * hostile results */
#include <jansson.h>

#include "unit/report_check.h"

/* ---- results to report on */

enum { METHODS = 4, LENGTHS = 3 };

/* A result with room for lists as long as they get. */
struct full {
    struct alibi_compare_result result; /* first: who frees the result frees it all */
    struct alibi_compare_method method[ALIBI_LIST_MAX];
    struct alibi_eval_result by_length[ALIBI_LIST_MAX][ALIBI_LIST_MAX],
        sliding[ALIBI_LIST_MAX][ALIBI_LIST_MAX];
};

/* Copies what a method has, into the room of another. */
static void copy_method(struct alibi_compare_method *to, const struct alibi_compare_method *from)
{
    struct alibi_compare_method room = *to;

    memcpy(room.by_length, from->by_length, ALIBI_LIST_MAX * sizeof *room.by_length);
    memcpy(room.sliding, from->sliding, ALIBI_LIST_MAX * sizeof *room.sliding);
    *to = *from;
    to->by_length = room.by_length;
    to->sliding = room.sliding;
}

static void fill_positions(struct alibi_eval_result *e)
{
    for (int64_t first = 0, last = 0; last < e->length; first = last, last = 2 * last + 1) {
        if (last == first)
            continue;
        e->by_position[e->bins] = (struct alibi_position_loss){ first, last - 1, last - first,
                                                                e->nll + 1.0 / (double)last };
        e->bins++;
    }
}

static struct alibi_eval_result evaluation(int64_t length, double ppl)
{
    struct alibi_eval_result e = {
        .length = length, .stride = length, .ppl = ppl, .nll = log(ppl), .standard_error = 0.002
    };

    e.word_ppl = exp(5.5 * e.nll);
    e.bits_per_byte = e.nll / log(2);
    e.tokens = 40960;
    e.words = 7000;
    e.bytes = 40900;
    e.seconds = 0.5;
    e.tokens_per_s = 81920;
    e.tiles_used = 0.75;
    e.attention_seconds = 0.125;
    e.peak_bytes = 5 << 20;
    fill_positions(&e);
    return e;
}

static struct alibi_eval_result no_evaluation(int64_t length)
{
    return (struct alibi_eval_result){ .length = length,
                                       .nll = NAN,
                                       .standard_error = NAN,
                                       .ppl = NAN,
                                       .word_ppl = NAN,
                                       .bits_per_byte = NAN };
}

static void set_options(struct alibi_compare_result *r)
{
    struct alibi_option_group groups[] = { { .values = &r->config }, { .values = &r->training } };

    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    assert_ok(alibi_options_init(groups, 2));
    r->config.vocab = 257;
    r->training.train_length = 128;
    r->training.seed = 42;
    r->compare.eval_tokens = 50000;
    r->compare.sliding_tokens = 16384;
    r->compare.stream_tokens = 8192;
    r->builtin = (struct alibi_builtin){ 3, 4000000 };
    snprintf(r->tokenizer, sizeof r->tokenizer, "bytes");
}

/* The same with a sliding window: 10% better, on fewer tokens. */
static struct alibi_eval_result sliding(const struct alibi_eval_result *e)
{
    struct alibi_eval_result s = *e;

    s.protocol = ALIBI_SLIDING;
    s.stride = e->length / 2;
    s.ppl = 0.9 * e->ppl;
    s.nll = log(s.ppl);
    s.tokens = e->tokens > 0 ? 16384 : 0;
    return s;
}

static struct alibi_eval_result stream(double ppl, double tiles_used)
{
    struct alibi_eval_result e = evaluation(8192, ppl);

    e.protocol = ALIBI_STREAM;
    e.stride = 0;
    e.tokens = 8192;
    e.tiles_used = tiles_used;
    return e;
}

static void set_device(struct alibi_compare_method *method, const char *device, int precision)
{
    snprintf(method->device, sizeof method->device, "%s", device);
    method->precision = precision;
}

/* Four methods trained at 128: alibi gets 4% better at 1024, sinusoidal 3.1 times worse, learned
 * ends at 128; alibi and rotary can stream. The caller frees. */
static struct alibi_compare_result *new_results(void)
{
    struct full *f = calloc(1, sizeof *f);
    struct alibi_compare_result *r = &f->result;

    static const char *const names[METHODS] = { "alibi", "sinusoidal", "rotary", "learned" };
    static const double ppl[METHODS][LENGTHS] = {
        { 3.2, 3.1, 3.072 }, { 3.3, 4.1, 10.23 }, { 3.25, 3.5, 4.5 }, { 3.4, NAN, NAN }
    };
    static const int64_t lengths[LENGTHS] = { 128, 512, 1024 };

    assert_non_null(f);
    r->method = f->method;
    for (int m = 0; m < ALIBI_LIST_MAX; m++) {
        f->method[m].by_length = f->by_length[m];
        f->method[m].sliding = f->sliding[m];
    }
    set_options(r);
    r->text = (struct alibi_corpus_info){ 10, 4000000, 700000, 3999000, 257 };
    r->methods = METHODS;
    for (int m = 0; m < METHODS; m++) {
        struct alibi_compare_method *method = &r->method[m];
        snprintf(method->name, sizeof method->name, "%s", names[m]);
        method->train_tokens_per_s = 41234.5;
        method->train_seconds = 61.25;
        method->train_loss = 1.1;
        method->peak_bytes = (size_t)83 << 20;
        method->parameters = 1800000;
        set_device(method, "cpu", ALIBI_FP32);
        method->lengths = LENGTHS;
        for (int i = 0; i < LENGTHS; i++)
            method->by_length[i] =
                isnan(ppl[m][i]) ? no_evaluation(lengths[i]) : evaluation(lengths[i], ppl[m][i]);
        method->sliding_lengths = LENGTHS;
        for (int i = 0; i < LENGTHS; i++)
            method->sliding[i] = sliding(&method->by_length[i]);
    }
    r->method[0].stream = stream(3.0, 0.31);
    r->method[2].stream = stream(6.0, 1);
    return r;
}

/* Every list full, names as long as they get. */
static struct alibi_compare_result *new_full_results(void)
{
    struct alibi_compare_result *r = new_results();

    r->methods = ALIBI_LIST_MAX;
    for (int m = 0; m < ALIBI_LIST_MAX; m++) {
        if (m != 0)
            copy_method(&r->method[m], &r->method[0]);
        snprintf(r->method[m].name, sizeof r->method[m].name, "method-with-a-very-long-name-%c%c",
                 '0' + m / 10, '0' + m % 10);
        r->method[m].lengths = r->method[m].sliding_lengths = ALIBI_LIST_MAX;
        for (int i = 0; i < ALIBI_LIST_MAX; i++) {
            r->method[m].by_length[i] = evaluation(16 + 100 * i, 3 + 0.1 * m * i);
            r->method[m].sliding[i] = sliding(&r->method[m].by_length[i]);
        }
    }
    return r;
}

static struct alibi_compare_result *new_single_result(void)
{
    struct alibi_compare_result *r = new_results();

    r->methods = 1;
    r->method[0].lengths = 1;
    return r;
}

static struct alibi_compare_result *new_empty_results(void)
{
    struct alibi_compare_result *r = new_results();

    r->methods = 0;
    return r;
}

static struct alibi_compare_result *new_missing_results(void)
{
    struct alibi_compare_result *r = new_results();

    for (int m = 0; m < METHODS; m++) {
        r->method[m].train_tokens_per_s = NAN;
        r->method[m].train_loss = INFINITY;
        set_device(&r->method[m], "", 0);
        r->method[m].peak_bytes = 0;
        r->method[m].sliding_lengths = 0;
        r->method[m].stream = no_evaluation(8192);
        for (int i = 0; i < LENGTHS; i++)
            r->method[m].by_length[i] = no_evaluation(r->method[m].by_length[i].length);
    }
    return r;
}

/* Values that are there and are no numbers. */
static struct alibi_compare_result *new_infinite_results(void)
{
    struct alibi_compare_result *r = new_results();

    for (int i = 0; i < LENGTHS; i++) {
        struct alibi_eval_result *e = &r->method[1].by_length[i];
        e->ppl = e->word_ppl = e->tokens_per_s = INFINITY;
        e->nll = e->bits_per_byte = e->standard_error = NAN;
        e->by_position[0].nll = -INFINITY;
        r->method[1].sliding[i] = *e;
        r->method[2].by_length[i].ppl = r->method[2].sliding[i].ppl = 1e300;
    }
    r->method[2].stream.ppl = INFINITY;
    r->method[2].stream.nll = r->method[2].stream.tiles_used = r->method[2].stream.tokens_per_s =
        NAN;
    return r;
}

static struct alibi_compare_result *new_hostile_results(void)
{
    struct alibi_compare_result *r = new_results();

    snprintf(r->method[0].name, sizeof r->method[0].name, "<script>alert(1)</script>");
    snprintf(r->method[1].name, sizeof r->method[1].name, "a,\"b\"&'c'\n");
    snprintf(r->method[2].name, sizeof r->method[2].name, "\x1b[31m\xff\xc3");
    snprintf(r->method[3].name, sizeof r->method[3].name, "100%%s%%n");
    set_device(&r->method[0], "<b>GPU</b>", ALIBI_BF16);
    set_device(&r->method[1], "a \"quick\", hot one\x1b\xff", ALIBI_BF16);
    return r;
}

static struct alibi_compare_result *(*const all_results[])(void) = {
    new_results,         new_full_results,     new_single_result,  new_empty_results,
    new_missing_results, new_infinite_results, new_hostile_results
};

enum { ALL_RESULTS = sizeof all_results / sizeof *all_results };

/* ---- helpers */

static alibi_status text_80(struct text *out, const struct alibi_compare_result *r)
{
    return report_text(out, r, 80, false);
}

static alibi_status text_colour(struct text *out, const struct alibi_compare_result *r)
{
    return report_text(out, r, 120, true);
}

static alibi_status (*const all_reports[])(struct text *, const struct alibi_compare_result *) = {
    text_80, text_colour, report_json, report_csv, report_html
};

enum { ALL_REPORTS = sizeof all_reports / sizeof *all_reports };

/* ---- conclusions */

static void assert_conclusion(const struct alibi_compare_result *r, const char *headline,
                              const char *detail)
{
    struct view v;
    struct text out = { 0 };

    view_init(&v, r);
    append_headline(&out, &v);
    assert_string_equal(out.data, headline);
    out.length = 0;
    assert_ok(text_append(&out, "%s", ""));
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

/* 0.1% of noise spans little of the axis. */
static void noise_is_not_drawn_as_a_slope(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct curves *c = NULL;
    struct axis x, y;
    struct view v;

    (void)state;
    for (int m = 0; m < METHODS; m++)
        for (int i = 0; i < LENGTHS; i++)
            r->method[m].by_length[i].ppl = 149 + 0.05 * i;
    view_init(&v, r);
    assert_ok(curves_by_length(&c, &v, CURVE_PPL));
    assert_true(chart_axes(&c->chart, &x, &y));
    assert_true(y.from < 149 / 1.09 && y.to > 149 * 1.09);
    mem_free(c);
    free(r);
}

static void one_model_is_spoken_of_as_one(void **state)
{
    struct alibi_compare_result *r = new_single_result();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r));
    assert_contains(out.data, "1 model, ");
    assert_contains(out.data, "with seed 42, tested on text it has not seen.");
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

/* ---- the report for a terminal */

static void table_shows_lengths_costs_and_the_best(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_text(&out, r, 80, false));
    assert_contains(out.data, "method      [128]   512   1024   tok/s    memory  params\n"
                              "alibi      3.200* 3.100* 3.072*  41.2K  83.0 MiB   1.80M\n"
                              "sinusoidal 3.300  4.100   10.2   41.2K  83.0 MiB   1.80M\n"
                              "rotary     3.250  3.500  4.500   41.2K  83.0 MiB   1.80M\n"
                              "learned    3.400      –      –   41.2K  83.0 MiB   1.80M\n");
    assert_contains(
        out.data, "The same with a sliding window: past the first, every token has at least half\n"
                  "the window as context\n\n"
                  "method      [128]   512   1024\n"
                  "alibi      2.880* 2.790* 2.765*\n"
                  "sinusoidal 2.970  3.690  9.207\n"
                  "rotary     2.925  3.150  4.050\n"
                  "learned    3.060      –      –\n");
    assert_contains(out.data,
                    "As one stream of 8192 tokens, each with all before it as context; tiles: the\n"
                    "share of attention that was computed\n\n"
                    "method     perplexity  tiles  tok/s\n"
                    "alibi           3.000*   31%  81.9K\n"
                    "sinusoidal          –      –      –\n"
                    "rotary          6.000   100%  81.9K\n"
                    "learned             –      –      –\n");
    assert_contains(out.data, "learned, to 128");
    assert_contains(out.data, "┊ trained at 128");
    assert_contains(out.data, "is 4% better at 1024");
    assert_lacks(out.data, "\x1b");
    text_free(&out);
    free(r);
}

static void what_was_not_measured_with_a_sliding_window_is_not_shown(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text text = { 0 }, page = { 0 };

    (void)state;
    for (int m = 0; m < METHODS; m++)
        r->method[m].sliding_lengths = 0;
    assert_ok(report_text(&text, r, 80, false));
    assert_ok(report_html(&page, r));
    assert_lacks(text.data, "sliding");
    assert_lacks(page.data, "fig-sliding");
    text_free(&text);
    text_free(&page);
    free(r);
}

static void what_was_not_read_as_a_stream_is_not_shown(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text text = { 0 }, page = { 0 };

    (void)state;
    for (int m = 0; m < METHODS; m++)
        r->method[m].stream = no_evaluation(8192);
    assert_ok(report_text(&text, r, 80, false));
    assert_ok(report_html(&page, r));
    assert_lacks(text.data, "stream");
    assert_lacks(page.data, "As one stream");
    assert_lacks(page.data, "Without windows");
    text_free(&text);
    text_free(&page);
    free(r);
}

static void best_value_is_bold_in_colour(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_text(&out, r, 80, true));
    assert_contains(out.data, "\x1b[1m3.072*\x1b[0m");
    assert_lacks(out.data, "\x1b[1m4.500");
    text_free(&out);
    free(r);
}

static void no_line_is_wider_than_the_terminal(void **state)
{
    static const int columns[] = { 40, 60, 80, 120 };

    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++)
        for (int i = 0; i < 4; i++)
            for (int colour = 0; colour < 2; colour++) {
                struct alibi_compare_result *r = all_results[k]();
                struct text out = { 0 };
                assert_ok(report_text(&out, r, columns[i], colour != 0));
                if (widest_line(out.data) > columns[i])
                    fail_msg("a line of %d characters for %d columns in:\n%s",
                             widest_line(out.data), columns[i], out.data);
                text_free(&out);
                free(r);
            }
}

static void names_cannot_send_escape_sequences_to_the_terminal(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_text(&out, r, 80, false));
    assert_lacks(out.data, "\x1b");
    assert_contains(out.data, "?[31m??");
    assert_int_equal(utf8_valid_prefix(out.data, out.length), out.length);
    text_free(&out);
    free(r);
}

/* ---- JSON and CSV */

static json_t *parse(const struct alibi_compare_result *r)
{
    struct text out = { 0 };
    json_error_t error;
    json_t *json;

    assert_ok(report_json(&out, r));
    json = json_loadb(out.data, out.length, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL)
        fail_msg("line %d: %s in:\n%s", error.line, error.text, out.data);
    text_free(&out);
    return json;
}

static void assert_keys(const json_t *object, const char *const *keys, int count)
{
    for (int i = 0; i < count; i++)
        if (json_object_get(object, keys[i]) == NULL)
            fail_msg("the key '%s' is missing", keys[i]);
}

static void json_has_every_key(void **state)
{
    static const char *const top[] = { "version", "train", "text", "eval", "methods" };
    static const char *const train[] = { "vocab",        "layers", "width", "heads", "norm",
                                         "train_length", "steps",  "lr",    "seed" };
    static const char *const method[] = {
        "name",       "train_tokens_per_s", "train_seconds", "train_loss", "peak_bytes",
        "parameters", "by_length",          "stream",        "device",     "precision"
    };
    static const char *const length[] = { "length",
                                          "nll",
                                          "standard_error",
                                          "ppl",
                                          "word_ppl",
                                          "bits_per_byte",
                                          "tokens",
                                          "words",
                                          "bytes",
                                          "seconds",
                                          "tokens_per_s",
                                          "tiles_used",
                                          "attention_seconds",
                                          "peak_bytes",
                                          "by_position",
                                          "sliding" };
    static const char *const sliding_keys[] = { "stride", "nll",         "standard_error",
                                                "ppl",    "word_ppl",    "bits_per_byte",
                                                "tokens", "tokens_per_s" };
    static const char *const position[] = { "first", "last", "tokens", "nll" };
    struct alibi_compare_result *r = new_results();
    json_t *json = parse(r), *alibi = json_array_get(json_object_get(json, "methods"), 0), *at;

    (void)state;
    assert_keys(json, top, 5);
    assert_keys(json_object_get(json, "train"), train, 9);
    assert_null(json_object_get(json_object_get(json, "train"), "position"));
    assert_keys(alibi, method, 10);
    assert_keys(json_object_get(alibi, "stream"), length, 15);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(alibi, "stream"), "tokens")), 8192);
    assert_true(json_real_value(json_object_get(json_object_get(alibi, "stream"), "tiles_used")) ==
                0.31);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json, "eval"), "stream_tokens")), 8192);
    at = json_array_get(json_object_get(alibi, "by_length"), 2);
    assert_keys(at, length, 16);
    assert_true(json_real_value(json_object_get(at, "attention_seconds")) == 0.125);
    assert_keys(json_object_get(at, "sliding"), sliding_keys, 8);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(at, "sliding"), "stride")),
                     512);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json, "text"), "text_seed")), 3);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "text"), "tokenizer")), "bytes");
    assert_true(json_is_false(json_object_get(json_object_get(json, "text"), "own_valid")));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json, "eval"), "eval_tokens")), 50000);
    assert_true(json_real_value(json_object_get(at, "ppl")) == 3.072);
    assert_int_equal(json_integer_value(json_object_get(at, "length")), 1024);
    assert_keys(json_array_get(json_object_get(at, "by_position"), 0), position, 4);
    assert_int_equal(json_array_size(json_object_get(at, "by_position")),
                     r->method[0].by_length[2].bins);
    json_decref(json);
    free(r);
}

static void json_has_null_for_what_is_missing_or_not_finite(void **state)
{
    struct alibi_compare_result *r = new_infinite_results();
    json_t *json = parse(r), *methods = json_object_get(json, "methods");
    json_t *infinite = json_array_get(json_object_get(json_array_get(methods, 1), "by_length"), 0);
    json_t *missing = json_array_get(json_object_get(json_array_get(methods, 3), "by_length"), 1);

    (void)state;
    assert_true(json_is_null(json_object_get(infinite, "ppl")));
    assert_true(json_is_null(json_object_get(infinite, "nll")));
    assert_true(json_is_null(
        json_object_get(json_array_get(json_object_get(infinite, "by_position"), 0), "nll")));
    assert_true(json_is_null(json_object_get(missing, "ppl")));
    assert_int_equal(json_integer_value(json_object_get(missing, "tokens")), 0);
    assert_int_equal(json_integer_value(json_object_get(missing, "length")), 512);
    assert_true(json_is_null(json_object_get(missing, "tiles_used")));
    assert_true(json_is_null(json_object_get(missing, "sliding")));
    assert_true(json_is_null(json_object_get(json_array_get(methods, 3), "stream")));
    assert_true(json_is_null(
        json_object_get(json_object_get(json_array_get(methods, 2), "stream"), "ppl")));
    assert_true(json_is_null(json_object_get(json_object_get(infinite, "sliding"), "ppl")));
    json_decref(json);
    free(r);
}

static void assert_json_device(const json_t *methods, size_t method, const char *device,
                               const char *precision)
{
    const json_t *m = json_array_get(methods, method);

    assert_string_equal(json_string_value(json_object_get(m, "device")), device);
    assert_string_equal(json_string_value(json_object_get(m, "precision")), precision);
}

static void json_names_each_device_or_has_null(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    json_t *json, *methods;

    (void)state;
    set_device(&r->method[2], "", 0);
    json = parse(r);
    methods = json_object_get(json, "methods");
    assert_json_device(methods, 0, "<b>GPU</b>", "bf16");
    assert_json_device(methods, 1, "a \"quick\", hot one??", "bf16");
    assert_true(json_is_null(json_object_get(json_array_get(methods, 2), "device")));
    assert_true(json_is_null(json_object_get(json_array_get(methods, 2), "precision")));
    assert_json_device(methods, 3, "cpu", "fp32");
    json_decref(json);
    free(r);
}

static void json_parses_whatever_the_results(void **state)
{
    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++) {
        struct alibi_compare_result *r = all_results[k]();
        json_t *json = parse(r);
        assert_int_equal(json_array_size(json_object_get(json, "methods")), r->methods);
        json_decref(json);
        free(r);
    }
}

/* Fields of the line at *p, which moves behind it; quotes are understood. */
static int csv_fields(const char **p)
{
    int fields = 1;
    bool quoted = false;

    for (; **p != '\0' && (quoted || strncmp(*p, "\r\n", 2) != 0); (*p)++) {
        quoted ^= **p == '"';
        fields += **p == ',' && !quoted;
    }
    assert_false(quoted);
    assert_memory_equal(*p, "\r\n", 2);
    *p += 2;
    return fields;
}

static void csv_has_a_line_per_method_and_length(void **state)
{
    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++) {
        struct alibi_compare_result *r = all_results[k]();
        struct text out = { 0 };
        const char *p;
        int lines = 0, expected = 1, columns;
        assert_ok(report_csv(&out, r));
        p = out.data;
        columns = csv_fields(&p);
        assert_int_equal(columns, 41);
        for (lines = 1; *p != '\0'; lines++)
            assert_int_equal(csv_fields(&p), columns);
        for (int m = 0; m < r->methods; m++)
            expected += r->method[m].lengths;
        assert_int_equal(lines, expected);
        text_free(&out);
        free(r);
    }
}

static void csv_quotes_what_needs_quotes(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_csv(&out, r));
    assert_contains(out.data, "\r\n\"a,\"\"b\"\"&'c'?\",128,512,");
    assert_contains(
        out.data,
        "\r\n100%s%n,128,512,,,,,,0,0,0,,,,,,41234.5,61.25,1.1,87031808,1800000,cpu,fp32,,,,,,,,,,,,,,,,,,\r\n");
    assert_contains(out.data, ",1800000,<b>GPU</b>,bf16,512,");
    assert_contains(out.data, ",1800000,\"a \"\"quick\"\", hot one??\",bf16,512,");
    assert_contains(out.data, ",8192,0.5,81920,0.31,0.125\r\n");
    text_free(&out);
    free(r);
}

static void csv_leaves_a_device_that_is_not_known_empty(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    set_device(&r->method[0], "", 0);
    assert_ok(report_csv(&out, r));
    assert_contains(out.data, ",peak_bytes,parameters,device,precision,sliding_stride,");
    assert_contains(out.data, ",1800000,,,512,");
    assert_contains(out.data, ",1800000,cpu,fp32,512,");
    text_free(&out);
    free(r);
}

/* ---- the page */

static void page_has_headline_figures_tables_and_setting(void **state)
{
    static const char *const parts[] = {
        "<h1>alibi, trained at 128, is 4% better at 1024 than at 128; sinusoidal is 3.1 times worse at 1024.</h1>",
        "id=\"fig-ppl-title\">Perplexity against test length</title>",
        "id=\"fig-sliding-title\">Perplexity against test length, sliding window</title>",
        "Scored on 16.4K tokens of the text, not 41.0K as above",
        "(the early token curse)",
        "<td>3.072</td><td>2.765</td>",
        "each token with all that came before it as context",
        "<b>As one stream of 8192 tokens.</b>",
        "<strong>3.000</strong></td><td>31%</td><td>0.12</td><td>0.50</td><td>81.9K</td>",
        "As one stream of 8192 tokens alibi has the lowest perplexity, 3.000, 50% below the next, rotary with 6.000.",
        "--eval-tokens 50000 --sliding-tokens 16384 --stream-tokens 8192",
        "--text-seed 3 --text-bytes 4000000",
        "alibi compare --recipe recipe.json",
        "id=\"fig-home-title\">Loss by position at length 128</title>",
        "id=\"fig-far-title\">Loss by position at length 1024</title>",
        "id=\"fig-speed-title\"",
        "id=\"fig-memory-title\"",
        "trained at 128</text>",
        "<b>Training speed.</b>",
        "<b>Peak memory.</b>",
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
    assert_ok(report_html(&out, r));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(out.data, parts[i]);
    text_free(&out);
    free(r);
}

static void assert_on_page(const struct alibi_compare_result *r, const char *line)
{
    struct text out = { 0 };

    assert_ok(report_html(&out, r));
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
    assert_ok(report_html(&out, missing));
    assert_lacks(out.data, "<dt>device</dt>");
    text_free(&out);
    free(r);
    free(hostile);
    free(missing);
}

/* The numbers beside the y axis of a figure. */
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
    r->method[1].sliding[2].ppl =
        93; /* farther than any other: the first figure has room for it too */
    assert_ok(report_html(&out, r));
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
    assert_ok(report_html(&out, r));
    assert_contains(out.data, "alibi compare FILE... --methods alibi");
    assert_lacks(out.data, "text-seed");
    text_free(&out);
    snprintf(r->tokenizer, sizeof r->tokenizer, "words");
    r->own_valid = true;
    assert_ok(report_html(&out, r));
    assert_contains(out.data, "<dt>tokenizer</dt><dd>words</dd>");
    assert_contains(out.data,
                    "alibi compare FILE... --tokenizer PATH --valid PATH --recipe recipe.json");
    assert_contains(out.data,
                    "alibi compare FILE... --tokenizer PATH --valid PATH --methods alibi");
    text_free(&out);
    free(r);
}

static void page_loads_nothing(void **state)
{
    static const char *const loads[] = { "http://", "https://", "src=",    "href=", "url(",
                                         "@import", "<link",    "<iframe", "fetch(" };
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_html(&out, r));
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
    assert_ok(report_html(&out, r));
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
        assert_ok(report_html(&out, r));
        assert_balanced(out.data);
        text_free(&out);
        free(r);
    }
}

/* ---- all reports */

static void no_report_says_nan_or_inf(void **state)
{
    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++)
        for (int i = 0; i < ALL_REPORTS; i++) {
            struct alibi_compare_result *r = all_results[k]();
            struct text out = { 0 };
            assert_ok(all_reports[i](&out, r));
            assert_no_nan(out.data);
            text_free(&out);
            free(r);
        }
}

static void same_results_give_the_same_bytes(void **state)
{
    struct alibi_compare_result *r = new_results();

    (void)state;
    for (int i = 0; i < ALL_REPORTS; i++) {
        struct text a = { 0 }, b = { 0 };
        assert_ok(all_reports[i](&a, r));
        assert_ok(all_reports[i](&b, r));
        assert_string_equal(a.data, b.data);
        text_free(&a);
        text_free(&b);
    }
    free(r);
}

static void failing_memory_is_reported_and_leaks_nothing(void **state)
{
    struct alibi_compare_result *r = new_results();
    size_t before = alibi_memory_now();

    (void)state;
    for (int i = 0; i < ALL_REPORTS; i++) {
        alibi_status status = ALIBI_MEMORY;
        int64_t n;
        for (n = 1; status != ALIBI_OK; n++) {
            struct text out = { 0 };
            assert_ok(alibi_inject_fault("memory", n));
            status = all_reports[i](&out, r);
            assert_ok(alibi_inject_fault("memory", 0));
            assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
            text_free(&out);
            assert_int_equal(alibi_memory_now(), before);
        }
        assert_true(n > 4); /* faults were met on the way */
    }
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conclusion_says_who_holds_and_who_breaks),
        cmocka_unit_test(differences_within_the_error_are_none),
        cmocka_unit_test(every_method_that_holds_is_named),
        cmocka_unit_test(sentences_are_one_space_apart),
        cmocka_unit_test(noise_is_not_drawn_as_a_slope),
        cmocka_unit_test(one_model_is_spoken_of_as_one),
        cmocka_unit_test(one_length_and_no_length_have_a_conclusion),
        cmocka_unit_test(table_shows_lengths_costs_and_the_best),
        cmocka_unit_test(what_was_not_measured_with_a_sliding_window_is_not_shown),
        cmocka_unit_test(what_was_not_read_as_a_stream_is_not_shown),
        cmocka_unit_test(best_value_is_bold_in_colour),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(names_cannot_send_escape_sequences_to_the_terminal),
        cmocka_unit_test(json_has_every_key),
        cmocka_unit_test(json_has_null_for_what_is_missing_or_not_finite),
        cmocka_unit_test(json_names_each_device_or_has_null),
        cmocka_unit_test(json_parses_whatever_the_results),
        cmocka_unit_test(csv_has_a_line_per_method_and_length),
        cmocka_unit_test(csv_quotes_what_needs_quotes),
        cmocka_unit_test(csv_leaves_a_device_that_is_not_known_empty),
        cmocka_unit_test(page_has_headline_figures_tables_and_setting),
        cmocka_unit_test(page_has_one_device_for_all_or_one_for_each_method),
        cmocka_unit_test(both_perplexity_figures_have_one_scale),
        cmocka_unit_test(the_command_for_a_text_from_files_asks_for_them),
        cmocka_unit_test(page_loads_nothing),
        cmocka_unit_test(page_escapes_names),
        cmocka_unit_test(page_is_well_formed_whatever_the_results),
        cmocka_unit_test(no_report_says_nan_or_inf),
        cmocka_unit_test(same_results_give_the_same_bytes),
        cmocka_unit_test(failing_memory_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
