/* ops.c - `alibi bench ops`: every operation alone, at the realistic sizes of its cases */
#include <string.h>

#include "bench/bench.h"
#include "bench/cases.h"

struct bench {
    struct device *device;
    struct op_case c;
    struct tensor tensors[CASE_OPERANDS];
};

/* Entry `index` of all operations, sizes and directions; false: there are fewer. */
static bool find(struct op_case *c, int *direction, int index, enum dtype type)
{
    for (int o = 0; o < operation_count; o++)
        for (int i = 0; i < operations[o].bench_count; i++) {
            const struct operation *operation = &operations[o];
            if (!case_make(c, operation, operation->bench[i], operation->bench_option, 0, type))
                continue;
            for (*direction = 0; *direction < 2; (*direction)++)
                if (c->directions[*direction] && index-- == 0)
                    return true;
        }
    return false;
}

static alibi_status bench_init(struct bench *b)
{
    struct device *dev = b->device;
    alibi_status status = ALIBI_OK;

    for (int i = 0; i < b->c.count; i++) {
        const struct operand *o = &b->c.operands[i];
        int64_t count = tensor_count(o->shape);
        double *values = NULL;
        int32_t *host = NULL; /* ids, or floats of the same size */

        b->tensors[i] = o->shape;
        TRY(dev->ops->buffer_new(dev, &b->tensors[i].data,
                                 (size_t)count * dtype_bytes(o->shape.type), "operands"));
        status = NEW_ARRAY(&values, count, "operands");
        if (status == ALIBI_OK)
            status = NEW_ARRAY(&host, count, "operands");
        if (status == ALIBI_OK) {
            case_draw(&b->c, i, o->role[0] == OUT ? OUT : IN, values);
            for (int64_t n = 0; n < count; n++) {
                float x = (float)values[n];
                if (o->shape.type == DTYPE_I32)
                    host[n] = (int32_t)values[n];
                else
                    memcpy(&host[n], &x, sizeof x);
            }
            status = dev->ops->upload(dev, b->tensors[i], host);
        }
        mem_free(values);
        mem_free(host);
        TRY(status);
    }
out:
    return status;
}

static void bench_fini(struct bench *b)
{
    for (int i = 0; i < b->c.count; i++)
        b->device->ops->buffer_free(b->device, b->tensors[i].data);
}

/* The median of `repeats` calls; one call more to warm up. */
static alibi_status time_calls(struct bench *b, int direction, int64_t repeats, double *seconds,
                               const struct alibi_call *call)
{
    struct device *dev = b->device;
    int times = dev->ops->traits.timed_calls;
    double *all = NULL;
    alibi_status status;

    TRY(NEW_ARRAY(&all, repeats, "times"));
    TRY(case_run(&b->c, direction, dev, b->tensors));
    TRY(dev->ops->finish(dev));
    for (int64_t i = 0; i < repeats; i++) {
        double begin = clock_seconds();
        if (call_stopped(call))
            TRY(fail(ALIBI_INTERRUPTED, "bench: stopped after %lld of %lld repeats", (long long)i,
                     (long long)repeats));
        for (int n = 0; n < times; n++)
            TRY(case_run(&b->c, direction, dev, b->tensors));
        TRY(dev->ops->finish(dev));
        all[i] = (clock_seconds() - begin) / times;
    }
    *seconds = bench_median(all, repeats);
out:
    mem_free(all);
    return status;
}

/* Bytes of the operands, those that are read and written twice. */
static double traffic(const struct op_case *c, int direction)
{
    double bytes = 0;

    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        double passes = o->role[direction] == UNUSED ? 0 : o->role[direction] == ADDED ? 2 : 1;
        bytes += passes * (double)tensor_count(o->shape) * (double)dtype_bytes(o->shape.type);
    }
    return bytes;
}

int alibi_bench_op_count(void)
{
    struct op_case c;
    int direction, count = 0;

    while (find(&c, &direction, count, DTYPE_F32))
        count++;
    return count;
}

alibi_status alibi_bench_op(alibi_device *device, int index, int64_t repeats,
                            struct alibi_bench_op *result, const struct alibi_call *call)
{
    struct bench b = { .device = &device->device };
    struct alibi_bench_op r = { 0 };
    alibi_status status;
    int direction;

    if (!find(&b.c, &direction, index, device->type) || repeats < 0)
        return fail(ALIBI_USAGE, "there is no operation %d to time %lld times; there are %d", index,
                    (long long)repeats, alibi_bench_op_count());
    case_name(&b.c, direction, r.operation);
    memcpy(r.sizes, b.c.text, sizeof r.sizes);
    if (repeats > 0) {
        TRY(bench_init(&b));
        if (direction == 1 && b.c.directions[0])
            TRY(case_run(&b.c, 0, b.device, b.tensors)); /* backward reads what forward wrote */
        TRY(time_calls(&b, direction, repeats, &r.seconds, call));
        r.gflops = 1e-9 * b.c.flops[direction] / r.seconds;
        r.gbytes = 1e-9 * traffic(&b.c, direction) / r.seconds;
    }
    *result = r;
    status = ALIBI_OK;
out:
    bench_fini(&b);
    return status;
}
