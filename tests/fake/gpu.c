/* gpu.c - libalibi_cuda.so without a GPU: the CPU's operations behind a memory and a stream that
 * pretend not to be the host's; those of the reference, which know bf16, with ALIBI_FAKE_BF16
 *
 * Work in the stream is done as late as it can be (fake.h), that of the device at once: a caller
 * that forgets to wait reads old numbers, or changes what has yet to be sent. A device that waits
 * for a rank that does not answer waits without end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake/fake.h"
#include "ops/backend.h"

static struct ops table;
static struct fake_stream stream;
static bool inside; /* operations go to the stream */
static int64_t marks[DEVICE_MARKS];

static alibi_status link_gpu(struct device *dev, void **out)
{
    (void)dev;
    *out = &stream;
    return ALIBI_OK;
}

/* ALIBI_FAKE_GPU: the place of the GPU; otherwise each process has one of its own. */
static alibi_status address_of_gpu(struct device *dev, char address[DEVICE_ADDRESS_MAX])
{
    const char *place = getenv("ALIBI_FAKE_GPU"), *rank = getenv("OMPI_COMM_WORLD_RANK");

    (void)dev;
    snprintf(address, DEVICE_ADDRESS_MAX, "%s", place ? place : rank ? rank : "0");
    return ALIBI_OK;
}

/* With a workspace its work begins, otherwise the device follows it. */
static alibi_status caller_begins(struct device *dev, const struct caller *caller)
{
    (void)dev;
    inside = caller->workspace != NULL;
    while (!inside && !fake_progress(&stream, stream.queued))
        ;
    return ALIBI_OK;
}

/* With a workspace its work ends, otherwise it follows the device. */
static alibi_status caller_ends(struct device *dev, const struct caller *caller)
{
    (void)dev;
    stream.follows = caller->workspace == NULL;
    inside = false;
    return ALIBI_OK;
}

static alibi_status set_mark(struct device *dev, const struct caller *caller, int mark)
{
    (void)dev;
    (void)caller;
    marks[mark] = stream.queued;
    return ALIBI_OK;
}

static alibi_status ask_mark(struct device *dev, int mark, bool *done)
{
    (void)dev;
    *done = fake_progress(&stream, marks[mark]);
    return ALIBI_OK;
}

/* ---- the operations of an exchange */

static const struct ops *host_ops(void)
{
    return getenv("ALIBI_FAKE_BF16") ? &ops_ref : ops_cpu();
}

static bool copy_now(const struct fake_work *w)
{
    struct device host = { .ops = host_ops() };

    return host.ops->copy(&host, w->to, w->from) == ALIBI_OK;
}

static bool add_now(const struct fake_work *w)
{
    struct device host = { .ops = host_ops() };

    return host.ops->residual_forward(&host, w->to, w->from, w->other, (struct dropout){ 0 }) ==
           ALIBI_OK;
}

static bool clear_now(const struct fake_work *w)
{
    struct device host = { .ops = host_ops() };

    return host.ops->fill(&host, w->to, 0.0) == ALIBI_OK;
}

static void queue(struct fake_work work)
{
    if (fake_queue(&stream, work))
        return;
    fprintf(stderr, "fake GPU: more work than fits after an exchange that may never end\n");
    _exit(99);
}

static alibi_status copy(struct device *dev, struct tensor to, struct tensor from)
{
    if (!inside)
        return host_ops()->copy(dev, to, from);
    queue((struct fake_work){ .run = copy_now, .to = to, .from = from });
    return ALIBI_OK;
}

static alibi_status add(struct device *dev, struct tensor y, struct tensor x, struct tensor branch,
                        struct dropout drop)
{
    if (!inside)
        return host_ops()->residual_forward(dev, y, x, branch, drop);
    queue((struct fake_work){ .run = add_now, .to = y, .from = x, .other = branch });
    return ALIBI_OK;
}

static alibi_status fill(struct device *dev, struct tensor to, double value)
{
    if (!inside)
        return host_ops()->fill(dev, to, value);
    queue((struct fake_work){ .run = clear_now, .to = to }); /* sums begin with 0 */
    return value == 0.0 ? ALIBI_OK : ALIBI_DEVICE;
}

__attribute__((visibility("default"))) cuda_open_function alibi_cuda_open;
__attribute__((visibility("default"))) cuda_close_function alibi_cuda_close;

int alibi_cuda_open(struct device *out, char name[CUDA_NAME_MAX], int64_t gpu,
                    const struct cuda_host *host)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (host->version != CUDA_INTERFACE)
        return ALIBI_DEVICE;
    if (visible && !strchr(visible, ',') && gpu > 0) {
        host->fail(ALIBI_DEVICE, "one GPU is visible, which has number 0");
        return ALIBI_DEVICE;
    }
    table = *host_ops();
    table.traits.own_memory = true;
    table.link = link_gpu;
    table.caller_begins = caller_begins;
    table.caller_ends = caller_ends;
    table.caller_mark = set_mark;
    table.caller_done = ask_mark;
    table.copy = copy;
    table.fill = fill;
    table.residual_forward = add;
    table.address = address_of_gpu;
    snprintf(name, CUDA_NAME_MAX, "a GPU that is not there");
    *out = (struct device){ .ops = &table };
    return ALIBI_OK;
}

void alibi_cuda_close(struct device *dev)
{
    (void)dev;
}
