/* replay.c - pieces of work that repeat, recorded as CUDA graphs
 *
 * A step of decoding is dozens of small kernels, and launching them takes longer than running
 * them. The first call under a key runs as always, so that plans, scratch memory and code are
 * there. The second one is captured from the stream instead of run, and from then on the graph is
 * launched as a whole. A graph holds addresses; when memory was freed since, it is recorded again.
 * Within a graph, kernels that follow each other may overlap: see chain() in launch.cuh. */
#include "ops/cuda/cuda.h"

static void forget(struct cuda_replay *r)
{
    if (r->graph != NULL)
        cudaGraphExecDestroy(r->graph);
    *r = (struct cuda_replay){ .calls = 0 };
}

static void give_up(struct context *c, struct cuda_replay *r)
{
    (void)cudaGetLastError();
    forget(r);
    c->replay.off = true;
}

/* The entry of the key; otherwise the least recently used one, emptied. */
static struct cuda_replay *find(struct context *c, struct work_key key)
{
    struct cuda_replay *oldest = &c->replay.work[0];

    for (int i = 0; i < REPLAYS; i++) {
        struct cuda_replay *r = &c->replay.work[i];

        if (r->calls > 0 && r->key.workspace == key.workspace && r->key.cache == key.cache &&
            r->key.rows == key.rows && r->frees == c->frees)
            return r;
        if (r->last < oldest->last)
            oldest = r;
    }
    forget(oldest);
    oldest->key = key;
    oldest->frees = c->frees;
    return oldest;
}

/* Times of operations are taken between them, so while times are asked for nothing is recorded. */
alibi_status cuda_replay(struct device *dev, struct work_key key, enum replay *how)
{
    struct context *c = cuda_of(dev);
    struct cuda_replay *r;

    *how = REPLAY_NONE;
    if (c->replay.off || c->timing)
        return ALIBI_OK;
    r = find(c, key);
    r->last = ++c->replay.calls;
    r->calls++;
    if (r->graph != NULL) {
        *how = REPLAY_DONE;
        return cuda_check(cudaGraphLaunch(r->graph, c->stream), "a recorded step");
    }
    if (r->calls < 2)
        return ALIBI_OK;
    if (cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        give_up(c, r);
        return ALIBI_OK;
    }
    c->replay.recording = r;
    c->chained = false;
    *how = REPLAY_RECORD;
    return ALIBI_OK;
}

alibi_status cuda_replay_end(struct device *dev, alibi_status status, enum replay *how)
{
    struct context *c = cuda_of(dev);
    struct cuda_replay *r = c->replay.recording;
    cudaGraph_t graph = NULL;
    bool recorded = cudaStreamEndCapture(c->stream, &graph) == cudaSuccess && graph != NULL &&
                    cudaGraphInstantiate(&r->graph, graph, 0) == cudaSuccess;

    if (graph != NULL)
        cudaGraphDestroy(graph);
    c->replay.recording = NULL;
    c->chained = false;
    if (status == ALIBI_INTERRUPTED) { /* nothing has run, and nothing is kept */
        forget(r);
        return status;
    }
    if (!recorded || status != ALIBI_OK) {
        give_up(c, r);
        *how = REPLAY_NONE;
        return ALIBI_OK;
    }
    *how = REPLAY_DONE;
    return cuda_check(cudaGraphLaunch(r->graph, c->stream), "a recorded step");
}

void cuda_replays_free(struct context *c)
{
    for (int i = 0; i < REPLAYS; i++)
        forget(&c->replay.work[i]);
}
