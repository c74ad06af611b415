/* gpu.c - libalibi_cuda.so without a GPU: the CPU's operations behind a memory and a stream that
 * pretend not to be the host's
 *
 * Work that nccl.c puts into the stream is done when the device waits for the stream, or somebody
 * asks whether it is complete, as late as it can be: a caller that forgets to wait reads old
 * numbers. A device that waits for a rank that does not answer waits without end. */
#include <stdio.h>
#include <stdlib.h>

#include "fake/fake.h"
#include "ops/backend.h"

static struct ops table;
static struct fake_stream stream;

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

static alibi_status stream_follows_device(struct device *dev, const struct caller *caller)
{
    (void)dev;
    ((struct fake_stream *)caller->stream)->follows = true;
    return ALIBI_OK;
}

static alibi_status device_follows_stream(struct device *dev, const struct caller *caller)
{
    struct fake_stream *s = caller->stream;

    (void)dev;
    while (s->work && !s->work(s->user))
        ;
    s->work = NULL;
    s->follows = false;
    return ALIBI_OK;
}

static alibi_status stream_is_done(struct device *dev, const struct caller *caller, bool *done)
{
    struct fake_stream *s = caller->stream;

    (void)dev;
    *done = !s->work || s->work(s->user);
    s->work = *done ? NULL : s->work;
    return ALIBI_OK;
}

__attribute__((visibility("default"))) cuda_open_function alibi_cuda_open;
__attribute__((visibility("default"))) cuda_close_function alibi_cuda_close;

int alibi_cuda_open(struct device *out, char name[CUDA_NAME_MAX], int64_t gpu,
                    const struct cuda_host *host)
{
    (void)gpu;
    if (host->version != CUDA_INTERFACE)
        return ALIBI_DEVICE;
    table = *ops_cpu();
    table.traits.own_memory = true;
    table.link = link_gpu;
    table.caller_done = stream_is_done;
    table.address = address_of_gpu;
    table.caller_begins = device_follows_stream;
    table.caller_ends = stream_follows_device;
    snprintf(name, CUDA_NAME_MAX, "a GPU that is not there");
    *out = (struct device){ .ops = &table };
    return ALIBI_OK;
}

void alibi_cuda_close(struct device *dev)
{
    (void)dev;
}
