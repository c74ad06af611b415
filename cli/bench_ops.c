/* bench_ops.c - `alibi bench ops`: every operation alone */
#include <string.h>

#include "cli.h"

enum { OPS_MAX = 64 };

/* An empty list asks for all; a name asks for the operations that begin with it. */
static bool is_wanted(const struct alibi_name_list *names, const char *operation)
{
    for (int i = 0; i < names->count; i++)
        if (strncmp(operation, names->at[i], strlen(names->at[i])) == 0)
            return true;
    return names->count == 0;
}

static void print_row(const struct alibi_bench_op *r, const struct alibi_device_info *device)
{
    printf("%-26s %s %-47s %9.3f ms %8.1f GB/s", r->operation,
           alibi_precision_name(device->precision), r->sizes, 1e3 * r->seconds, r->gbytes);
    if (r->gflops > 0)
        printf(" %9.1f GFLOP/s", r->gflops);
    putchar('\n');
    cli_flush();
}

static void print_json(const struct alibi_bench_op *r, const struct alibi_device_info *device)
{
    cli_json_open(NULL, '{');
    cli_json_device(device);
    cli_json_text("operation", r->operation);
    cli_json_text("sizes", r->sizes);
    cli_json_real("seconds", r->seconds);
    cli_json_real("gbytes_per_s", r->gbytes);
    if (r->gflops > 0)
        cli_json_real("gflops", r->gflops);
    cli_json_close('}');
}

alibi_status cli_bench_ops(alibi_device *used, const struct alibi_name_list *names, int64_t repeats,
                           bool json)
{
    struct alibi_bench_op rows[OPS_MAX];
    struct alibi_device_info device;
    int count = 0;

    alibi_device_get_info(used, &device);
    for (int i = 0; i < alibi_bench_op_count() && count < OPS_MAX; i++) {
        TRY_RETURN(alibi_bench_op(used, i, 0, &rows[count], cli_call()));
        if (!is_wanted(names, rows[count].operation))
            continue;
        TRY_RETURN(alibi_bench_op(used, i, repeats, &rows[count], cli_call()));
        if (!json)
            print_row(&rows[count], &device);
        count++;
    }
    if (count == 0)
        return cli_fail(ALIBI_USAGE, "--operations: no operation begins with '%s'", names->at[0]);
    if (!json)
        return ALIBI_OK;
    cli_json_open(NULL, '[');
    for (int i = 0; i < count; i++)
        print_json(&rows[i], &device);
    cli_json_close(']');
    return ALIBI_OK;
}
