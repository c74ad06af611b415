/* bench_attention.c - `alibi bench attention`: attention alone, by length, on random numbers or on
 * the operands in the layers of a model */
#include <stdlib.h>

#include "cli.h"

static void print_head(const struct alibi_bench_attention *how,
                       const struct alibi_device_info *device)
{
    const char *unit = device->gpu ? "TFLOP/s" : "GFLOP/s";

    printf(
        "batch %lld, %lld heads (%lld for keys) of %lld, bias %s, skip %.3g, |q||k|/sqrt(d) about %g, %s on %s\n",
        (long long)how->batch, (long long)how->heads, (long long)how->kv_heads,
        (long long)how->head_width, how->alibi ? "alibi" : "none", how->skip, how->score,
        alibi_precision_name(device->precision), device->name);
    printf("%8s %11s %9s", "length", "forward ms", unit);
    if (how->backward)
        printf(" %11s %9s", "backward ms", unit);
    if (how->decode)
        printf(" %10s", "decode us");
    printf(" %10s %10s", "tiles used", "peak");
    printf(how->verify ? " %10s\n" : "\n", "skipped");
}

static void print_row(const struct alibi_bench_attention *how,
                      const struct alibi_bench_attention_result *r, double unit)
{
    char peak[CLI_SHORT];

    printf("%8lld %11.3f %9.1f", (long long)r->length, 1e3 * r->forward_seconds,
           unit * r->forward_gflops);
    if (how->backward)
        printf(" %11.3f %9.1f", 1e3 * r->backward_seconds, unit * r->backward_gflops);
    if (how->decode)
        printf(" %10.1f", 1e6 * r->decode_seconds);
    printf(" %9.1f%% %10s", 100 * r->used, cli_short_bytes(peak, r->peak_bytes));
    if (how->verify)
        printf(" %10.2e", r->skipped_weight);
    putchar('\n');
    cli_flush();
}

static void json_times(const struct alibi_bench_attention *how,
                       const struct alibi_bench_attention_result *r)
{
    cli_json_real("forward_seconds", r->forward_seconds);
    cli_json_real("forward_gflops", r->forward_gflops);
    if (how->backward) {
        cli_json_real("backward_seconds", r->backward_seconds);
        cli_json_real("backward_gflops", r->backward_gflops);
    }
    if (how->decode)
        cli_json_real("decode_seconds", r->decode_seconds);
    cli_json_real("tiles_used", r->used);
    if (how->verify)
        cli_json_real("skipped_weight", r->skipped_weight);
}

static void print_json(const struct alibi_bench_attention *how,
                       const struct alibi_device_info *device,
                       const struct alibi_bench_attention_result *r)
{
    cli_json_open(NULL, '{');
    cli_json_device(device);
    cli_json_int("length", r->length);
    cli_json_int("batch", how->batch);
    cli_json_int("heads", how->heads);
    cli_json_int("kv_heads", how->kv_heads);
    cli_json_int("head_width", how->head_width);
    cli_json_text("bias", how->alibi ? "alibi" : "none");
    cli_json_real("skip", how->skip);
    cli_json_real("score", how->score);
    json_times(how, r);
    cli_json_int("forward_peak_bytes", (int64_t)r->forward_peak_bytes);
    cli_json_int("peak_bytes", (int64_t)r->peak_bytes);
    cli_json_close('}');
}

alibi_status cli_bench_attention(alibi_device *used, const struct alibi_bench_attention *how,
                                 const struct alibi_int_list *lengths, bool json)
{
    struct alibi_bench_attention_result rows[ALIBI_LIST_MAX];
    struct alibi_device_info device;

    alibi_device_get_info(used, &device);
    for (int i = 0; i < lengths->count; i++) {
        TRY_RETURN(alibi_bench_attention(used, how, lengths->at[i], &rows[i], cli_call()));
        if (json)
            continue;
        if (i == 0)
            print_head(how, &device);
        print_row(how, &rows[i], device.gpu ? 1e-3 : 1);
    }
    if (!json)
        return ALIBI_OK;
    cli_json_open(NULL, '[');
    for (int i = 0; i < lengths->count; i++)
        print_json(how, &device, &rows[i]);
    cli_json_close(']');
    return ALIBI_OK;
}

/* ---- the layers of a model */

/* All layers at one length, and the same with skip 0, each [layers + 1]; the last is the sum. */
struct layers_row {
    int64_t length;
    struct alibi_bench_attention_result *layers, *every_pair; /* NULL: the budget is 0 anyway */
};

/* Counts every pair of the mask as computed, so that rates compare as times do. */
static double dense_gflops(const struct alibi_bench_attention_result *r, bool with_backward)
{
    double done = r->forward_gflops * r->forward_seconds, seconds = r->forward_seconds;

    if (with_backward) {
        done += r->backward_gflops * r->backward_seconds;
        seconds += r->backward_seconds;
    }
    return done / r->used / seconds;
}

static double both_seconds(const struct alibi_bench_attention_result *r)
{
    return r->forward_seconds + r->backward_seconds;
}

static void print_layers_head(const struct cli_subject *s, const struct alibi_bench_attention *how,
                              const struct alibi_device_info *device, const char *unit)
{
    const struct alibi_config *c = alibi_model_view_config(s->model);

    printf("attention of '%s', split %s of '%s': all layers (%lld), position %s\n", s->path,
           cli_subject_split_name(s), s->info.name, (long long)c->layers, c->position);
    printf("batch %lld, %lld heads (%lld for keys) of %lld, skip %.3g, %s on %s\n",
           (long long)how->batch, (long long)c->heads, (long long)c->kv_heads,
           (long long)(c->width / c->heads), how->skip, alibi_precision_name(device->precision),
           device->name);
    printf("%8s %11s %9s", "length", "forward ms", unit);
    if (how->skip > 0)
        printf(" %6s", "ratio");
    if (how->backward) {
        printf(" %11s %9s", "both ms", unit);
        if (how->skip > 0)
            printf(" %6s", "ratio");
    }
    if (how->decode)
        printf(" %10s", "decode us");
    printf(" %10s", "tiles used");
    printf(how->verify ? " %10s\n" : "\n", "skipped");
}

static void print_layers_row(const struct alibi_bench_attention *how, const struct layers_row *row,
                             int64_t layers, double unit)
{
    const struct alibi_bench_attention_result *sum = &row->layers[layers];
    const struct alibi_bench_attention_result *every =
        row->every_pair ? &row->every_pair[layers] : NULL;

    printf("%8lld %11.3f %9.1f", (long long)row->length, 1e3 * sum->forward_seconds,
           unit * dense_gflops(sum, false));
    if (every)
        printf(" %6.2f", every->forward_seconds / sum->forward_seconds);
    if (how->backward) {
        printf(" %11.3f %9.1f", 1e3 * both_seconds(sum), unit * dense_gflops(sum, true));
        if (every)
            printf(" %6.2f", both_seconds(every) / both_seconds(sum));
    }
    if (how->decode)
        printf(" %10.1f", 1e6 * sum->decode_seconds);
    printf(" %9.1f%%", 100 * sum->used);
    if (how->verify)
        printf(" %10.2e", sum->skipped_weight);
    putchar('\n');
    cli_flush();
}

/* Layer n, or the sum. */
static void json_layer(const struct alibi_bench_attention *how, const struct layers_row *row,
                       int64_t n)
{
    const struct alibi_bench_attention_result *r = &row->layers[n];

    json_times(how, r);
    cli_json_real("forward_dense_gflops", dense_gflops(r, false));
    if (how->backward)
        cli_json_real("both_dense_gflops", dense_gflops(r, true));
    if (!row->every_pair)
        return;
    cli_json_open("every_pair", '{');
    json_times(how, &row->every_pair[n]);
    cli_json_close('}');
}

static void print_layers_json(const struct cli_subject *s, const struct alibi_bench_attention *how,
                              const struct layers_row *row)
{
    const struct alibi_config *c = alibi_model_view_config(s->model);

    cli_json_open(NULL, '{');
    cli_json_subject(s);
    cli_json_int("length", row->length);
    cli_json_int("batch", how->batch);
    cli_json_int("layers", c->layers);
    cli_json_int("heads", c->heads);
    cli_json_int("kv_heads", c->kv_heads);
    cli_json_int("head_width", c->width / c->heads);
    cli_json_text("position", c->position);
    cli_json_real("skip", how->skip);
    json_layer(how, row, c->layers);
    cli_json_open("by_layer", '[');
    for (int64_t n = 0; n < c->layers; n++) {
        cli_json_open(NULL, '{');
        cli_json_int("layer", n);
        json_layer(how, row, n);
        cli_json_close('}');
    }
    cli_json_close(']');
    cli_json_close('}');
}

static alibi_status measure_layers(const struct cli_subject *s,
                                   const struct alibi_bench_attention *how, struct layers_row *row)
{
    size_t count = (size_t)alibi_model_view_config(s->model)->layers + 1;

    row->layers = calloc(count, sizeof *row->layers);
    row->every_pair = how->skip > 0 ? calloc(count, sizeof *row->every_pair) : NULL;
    if (!row->layers || (how->skip > 0 && !row->every_pair))
        return cli_fail(ALIBI_MEMORY, "not enough memory for the times of %zu layers", count - 1);
    return alibi_bench_model_attention(s->model, s->corpus, cli_subject_split(s), how, row->length,
                                       row->layers, row->every_pair, cli_call());
}

alibi_status cli_bench_model_attention(const struct cli_subject *s,
                                       const struct alibi_bench_attention *how,
                                       const struct alibi_int_list *lengths, bool json)
{
    struct layers_row rows[ALIBI_LIST_MAX] = { 0 };
    const struct alibi_config *c = alibi_model_view_config(s->model);
    const struct alibi_int_list own = { 2, { c->train_length, 4 * c->train_length } };
    struct alibi_device_info device;
    const char *unit;
    alibi_status status = ALIBI_OK;
    int done = 0;

    alibi_device_get_info(s->device, &device);
    unit = device.gpu ? "TFLOP/s" : "GFLOP/s";
    if (lengths->count == 0)
        lengths = &own;
    if (lengths->at[0] == 0)
        return cli_fail(ALIBI_USAGE,
                        "the model does not record its training length; give --lengths");
    while (done < lengths->count) {
        rows[done].length = lengths->at[done];
        status = measure_layers(s, how, &rows[done]);
        if (status != ALIBI_OK)
            break;
        if (++done < lengths->count)
            cli_catch_signals(); /* from now on there is something to lose */
        if (json)
            continue;
        cli_terminal_clear();
        if (done == 1)
            print_layers_head(s, how, &device, unit);
        print_layers_row(how, &rows[done - 1], c->layers, device.gpu ? 1e-3 : 1);
    }
    cli_terminal_clear();
    if (status != ALIBI_OK)
        cli_fail_later(status, done, lengths->count);
    if (done > 0 && json) {
        cli_json_open(NULL, '[');
        for (int i = 0; i < done; i++)
            print_layers_json(s, how, &rows[i]);
        cli_json_close(']');
    } else if (done > 0) {
        printf("%s: as if every pair were computed%s%s\n", unit,
               how->backward ? "; both: with the backward pass" : "",
               how->skip > 0 ? "; ratio: of the time with --skip 0 to this" : "");
    }
    for (int i = 0; i < lengths->count; i++) {
        free(rows[i].layers);
        free(rows[i].every_pair);
    }
    return status;
}
