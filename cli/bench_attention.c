/* bench_attention.c - `alibi bench attention`: attention alone, by length */
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
    fflush(stdout);
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
    cli_json_real("forward_seconds", r->forward_seconds);
    cli_json_real("forward_gflops", r->forward_gflops);
    cli_json_int("forward_peak_bytes", (int64_t)r->forward_peak_bytes);
    if (how->backward) {
        cli_json_real("backward_seconds", r->backward_seconds);
        cli_json_real("backward_gflops", r->backward_gflops);
    }
    if (how->decode)
        cli_json_real("decode_seconds", r->decode_seconds);
    cli_json_real("tiles_used", r->used);
    if (how->verify)
        cli_json_real("skipped_weight", r->skipped_weight);
    cli_json_int("peak_bytes", (int64_t)r->peak_bytes);
    cli_json_close('}');
}

alibi_status cli_bench_attention(alibi_device *used, const struct alibi_bench_attention *how,
                                 const struct alibi_int_list *lengths, bool json)
{
    struct alibi_bench_attention_result rows[ALIBI_LIST_MAX];
    struct alibi_device_info device;
    alibi_status status = ALIBI_OK;

    alibi_device_get_info(used, &device);
    for (int i = 0; i < lengths->count && status == ALIBI_OK; i++) {
        status = alibi_bench_attention(used, how, lengths->at[i], &rows[i], cli_call());
        if (status != ALIBI_OK || json)
            continue;
        if (i == 0)
            print_head(how, &device);
        print_row(how, &rows[i], device.gpu ? 1e-3 : 1);
    }
    if (status != ALIBI_OK || !json)
        return status;
    cli_json_open(NULL, '[');
    for (int i = 0; i < lengths->count; i++)
        print_json(how, &device, &rows[i]);
    cli_json_close(']');
    return ALIBI_OK;
}
