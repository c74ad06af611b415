/* parts.c - where the time of a step goes, by events in the stream
 *
 * Each operation begins with an event; the time until the next event is its time. So timing does
 * not make anything wait, and the parts add up to the whole. Nothing is recorded before the parts
 * are read for the first time, nor after they were read to NULL. */
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/cuda.h"

struct cuda_parts {
    int count; /* of events since the last reading */
    cudaEvent_t event[PART_EVENTS];
    const char *name[PART_EVENTS]; /* of the operation that begins there; NULL: none */
    int sums;
    struct device_part sum[DEVICE_PARTS_MAX];
};

/* The sum of that name; NULL if there are too many names, whose time is then not counted. */
static struct device_part *find_sum(struct cuda_parts *p, const char *name)
{
    for (int i = 0; i < p->sums; i++)
        if (strcmp(p->sum[i].name, name) == 0)
            return &p->sum[i];
    if (p->sums == DEVICE_PARTS_MAX)
        return NULL;
    p->sum[p->sums] = (struct device_part){ .name = name };
    return &p->sum[p->sums++];
}

/* Adds the parts that have ended to the sums. The event that began the last part becomes the
 * first. */
static alibi_status fold(struct cuda_parts *p)
{
    int last = p->count - 1;
    cudaEvent_t first = p->event[0];

    TRY_RETURN(cuda_check(cudaEventSynchronize(p->event[last]), "timing"));
    for (int i = 0; i < last; i++) {
        struct device_part *sum = p->name[i] != NULL ? find_sum(p, p->name[i]) : NULL;
        float milliseconds = 0.0f;
        if (sum == NULL)
            continue;
        TRY_RETURN(cuda_check(cudaEventElapsedTime(&milliseconds, p->event[i], p->event[i + 1]),
                              "timing"));
        sum->seconds += (double)milliseconds / 1000.0;
        sum->calls++;
    }
    p->event[0] = p->event[last];
    p->name[0] = p->name[last];
    p->event[last] = first;
    p->count = 1;
    return ALIBI_OK;
}

static bool record(cudaEvent_t *event, cudaStream_t stream)
{
    return (*event != NULL || cudaEventCreate(event) == cudaSuccess) &&
           cudaEventRecord(*event, stream) == cudaSuccess;
}

/* If an event cannot be created or recorded, one part is not timed. If something is wrong with the
 * GPU, the operation itself reports it; the error of the event must not be mistaken for
 * the operation's. */
static void begin(struct context *c, const char *name)
{
    struct cuda_parts *p = c->parts;

    if (p->count == PART_EVENTS && fold(p) != ALIBI_OK)
        return;
    if (record(&p->event[p->count], c->stream))
        p->name[p->count++] = name;
    else
        (void)cudaGetLastError();
}

void cuda_part(struct context *c, const char *name)
{
    if (c->timing)
        begin(c, name);
}

void cuda_part_end(struct context *c)
{
    if (c->timing)
        begin(c, NULL);
}

alibi_status cuda_read_parts(struct device *dev, struct device_part *parts, int *count)
{
    struct context *c = cuda_of(dev);

    *count = 0;
    if (parts == NULL) {
        cuda_part_end(c);
        c->timing = false;
        return ALIBI_OK;
    }
    if (c->parts == NULL)
        c->parts = calloc(1, sizeof *c->parts);
    if (c->parts == NULL)
        return fail(ALIBI_MEMORY, "no memory for the times of operations");
    c->timing = true;
    cuda_part_end(c);
    if (c->parts->count > 0)
        TRY_RETURN(fold(c->parts));
    *count = c->parts->sums;
    memcpy(parts, c->parts->sum, (size_t)c->parts->sums * sizeof *parts);
    c->parts->sums = 0;
    return ALIBI_OK;
}

void cuda_parts_free(struct context *c)
{
    if (c->parts == NULL)
        return;
    for (int i = 0; i < PART_EVENTS; i++)
        if (c->parts->event[i] != NULL)
            cudaEventDestroy(c->parts->event[i]);
    free(c->parts);
}
