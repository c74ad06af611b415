/* attention.c - the attention of one layer: norms, rotation, scale, cache, the call, and its
 * statistics
 *
 * The record of a call is one bit per tile. It is read when the call has ended, and its memory is
 * used again by the next layer; or all of a pass are read at its end, where it need not wait. */
#include <math.h>
#include <string.h>

#include "model/walk.h"

struct attention_args attention_of(const struct workspace *w, const struct pass *p, int64_t n)
{
    const struct model *m = w->model;
    const struct alibi_config *c = &m->config;
    const struct layer *l = &w->activations.layers[n];
    int kind = pattern_kind(&m->pattern, n);
    const struct position *position = &m->pattern.kind[kind];
    int64_t D = c->width / c->heads, keys = c->heads * D, values = keys + c->kv_heads * D;
    struct attention_args a = {
        .q = tensor_heads(l->qkv, p->B, p->L, 0, c->heads, D),
        .k = tensor_heads(l->qkv, p->B, p->L, keys, c->kv_heads, D),
        .v = tensor_heads(l->qkv, p->B, p->L, values, c->kv_heads, D),
        .y = tensor_heads(l->attended, p->B, p->L, 0, c->heads, D),
        .lse = l->lse,
        .bias = tables_bias(w->tables, m, kind),
        .scale = 1.0 / sqrt((double)D),
        .window = narrower(w->settings.window, position->window),
        .dropout = dropout_within(w, p, w->settings.attention_dropout, weights_place(n)),
        .skip = { .eps = w->settings.skip, .kept = l->kept },
    };

    if (position->method->acts_on == POSITION_ROTATION)
        a.rotation = (struct rotation){ .table = w->tables[kind].rows,
                                        .layout = position->method->layout(position) };
    if (a.bias.kind == BIAS_GATE)
        a.bias.values = gates_of(w, p, n).c;
    return a;
}

struct gate_args gates_of(const struct workspace *w, const struct pass *p, int64_t n)
{
    const struct model *m = w->model;
    const struct layer *l = &w->activations.layers[n];
    int64_t G = position_gates(&m->config, model_position(m, n));
    enum dtype sums = dtype_sums(m->type);
    struct tensor z = tensor_2(l->z.data, m->type, p->B * p->L, G);

    return (struct gate_args){ .c = tensor_4(l->gates.data, sums, 2, p->B, G, p->L),
                               .z = z,
                               .bias = value_of(m, m->blocks[n].gate_bias),
                               .ragged = ragged_none(),
                               .dc = tensor_3(w->activations.dgates.data, sums, p->B, G, p->L),
                               .dz = z, /* the last to read it */
                               .dbias = gradient_of(m, m->blocks[n].gate_bias) };
}

/* Heads from..from+count-1 of a view; absent stays absent. */
static struct tensor some_heads(struct tensor view, int64_t from, int64_t count)
{
    if (view.data)
        view.data = tensor_at(view, from * view.stride[2]);
    view.shape[2] = count;
    return view;
}

static struct tensor scaled_queries(const struct workspace *w, const struct pass *p,
                                    const struct attention_args *a)
{
    return tensor_heads(w->activations.branch, p->B, p->L, 0, a->q.shape[2], a->q.shape[3]);
}

/* The sinks of a layer: its own, or those of a pass that cuts its window. */
static int64_t sinks_of(const struct workspace *w, const struct pass *p, int64_t n)
{
    const struct position *own = model_position(w->model, n);
    bool cut = w->settings.window > 0 && (own->window == 0 || w->settings.window < own->window);

    return cut && !p->cache && own->method->bias != BIAS_GATE && w->settings.sinks > own->sinks
               ? w->settings.sinks
               : own->sinks;
}

/* How many keys a query sees at most; 0: all before it. */
static int64_t keys_seen(const struct workspace *w, const struct pass *p, int64_t n,
                         const struct attention_args *a)
{
    return a->window > 0 ? a->window + sinks_of(w, p, n) : 0;
}

struct logn_args attention_scale(const struct workspace *w, const struct pass *p, int64_t n,
                                 const struct attention_args *a)
{
    const struct model *m = w->model;
    int logn = m->blocks[n].logn;
    int64_t count = value_of(m, logn).shape[0], first = a->q.shape[2] - count;
    struct tensor dq = some_heads(a->dq, first, count);

    return (struct logn_args){ .x = some_heads(a->q, first, count),
                               .y = some_heads(scaled_queries(w, p, a), first, count),
                               .factor = value_of(m, logn),
                               .start = p->start,
                               .window = keys_seen(w, p, n, a),
                               .ragged = p->ragged,
                               .dy = dq,
                               .dx = dq,
                               .dfactor = gradient_of(m, logn) };
}

alibi_status scale_queries(const struct workspace *w, const struct pass *p, int64_t n,
                           struct attention_args *a)
{
    struct device *dev = w->model->device;
    struct logn_args scale = attention_scale(w, p, n, a);
    struct tensor scaled = scaled_queries(w, p, a);
    int64_t others = a->q.shape[2] - scale.x.shape[2];

    if (!w->activations.training) {
        scale.y = scale.x;
        return dev->ops->logn_forward(dev, &scale);
    }
    TRY_RETURN(dev->ops->logn_forward(dev, &scale));
    if (others > 0)
        TRY_RETURN(dev->ops->copy(dev, some_heads(scaled, 0, others), some_heads(a->q, 0, others)));
    a->q = scaled;
    return ALIBI_OK;
}

/* The heads of keys follow those of queries in every row of packed views. */
static struct tensor with_keys(struct tensor q, struct tensor k)
{
    q.shape[2] += k.shape[2];
    return q;
}

/* Each sequence of a step has its own row of angles, as the tokens of one sequence have: the view
 * [B, 1, H, D] becomes [1, B, H, D]. */
static struct tensor rows_to_rotate(const struct pass *p, struct tensor view)
{
    if (ragged_present(p->ragged)) {
        view.stride[1] = view.stride[0];
        view.shape[1] = view.shape[0];
        view.shape[0] = 1;
    }
    return view;
}

alibi_status rotate_heads(struct device *dev, const struct pass *p, struct tensor q,
                          struct tensor k, struct rotation rotation, int direction)
{
    if (!rotation.table.data)
        return ALIBI_OK;
    return dev->ops->rotary(dev, rows_to_rotate(p, with_keys(q, k)), rotation, direction);
}

static struct head_norm_args head_norm(const struct workspace *w, int64_t n,
                                       const struct attention_args *a, struct rotation rotation)
{
    const struct model *m = w->model;
    const struct block_parameters *b = &m->blocks[n];
    struct tensor gradient = with_keys(a->dq, a->dk);

    return (struct head_norm_args){ .x = with_keys(a->q, a->k),
                                    .queries = a->q.shape[2],
                                    .q_weight = value_of(m, b->q_norm),
                                    .k_weight = value_of(m, b->k_norm),
                                    .eps = m->config.norm_eps,
                                    .rotation = rotation,
                                    .dy = gradient,
                                    .dx = gradient,
                                    .dq_weight = gradient_of(m, b->q_norm),
                                    .dk_weight = gradient_of(m, b->k_norm) };
}

alibi_status norm_heads(const struct workspace *w, const struct pass *p, int64_t n,
                        struct attention_args *a)
{
    struct device *dev = w->model->device;
    int64_t H = a->q.shape[2], Hkv = a->k.shape[2], D = a->q.shape[3];
    struct head_norm_args norm = head_norm(w, n, a, a->rotation);

    norm.y = tensor_heads(w->activations.heads, p->B, p->L, 0, H + Hkv, D);
    a->q = some_heads(norm.y, 0, H);
    a->k = some_heads(norm.y, H, Hkv);
    norm.x = rows_to_rotate(p, norm.x);
    norm.y = rows_to_rotate(p, norm.y);
    return dev->ops->head_norm_forward(dev, &norm);
}

alibi_status norm_heads_backward(const struct workspace *w, int64_t n,
                                 const struct attention_args *a, struct rotation rotation)
{
    struct device *dev = w->model->device;
    struct head_norm_args norm = head_norm(w, n, a, rotation);

    return dev->ops->head_norm_backward(dev, &norm);
}

/* Past the training length queries get the temperature of the position, in place: nothing needs
 * them as they were. */
static alibi_status temper_queries(const struct workspace *w, const struct pass *p, int64_t n,
                                   struct attention_args *a)
{
    const struct model *m = w->model;
    const struct logn_args temper = { .y = a->q,
                                      .x = a->q,
                                      .temperature = model_position(m, n)->temperature,
                                      .length = m->config.train_length,
                                      .start = p->start,
                                      .window = keys_seen(w, p, n, a),
                                      .ragged = p->ragged };
    bool longer = ragged_present(p->ragged) || p->start + p->L > temper.length;

    if (w->activations.training || temper.temperature == 0 || !longer ||
        (temper.window > 0 && temper.window <= temper.length))
        return ALIBI_OK;
    return m->device->ops->logn_forward(m->device, &temper);
}

/* ---- sinks */

/* Rows from..from+count-1 of a view. */
static struct tensor some_rows(struct tensor view, int64_t from, int64_t count)
{
    if (view.data)
        view.data = tensor_at(view, from * view.stride[1]);
    view.shape[1] = count;
    return view;
}

/* One sequence of a view, or one row of a batch. */
static struct tensor one_of(struct tensor view, int64_t b)
{
    view.data = tensor_at(view, b * view.stride[0]);
    view.shape[0] = 1;
    return view;
}

int64_t attention_farthest(const struct workspace *w, const struct pass *p, int64_t n)
{
    int64_t own = narrower(w->settings.window, model_position(w->model, n)->window);
    int64_t window = narrower(own, p->cache ? cache_window(p->cache, n) : 0);
    int64_t sinks = sinks_of(w, p, n);

    return sinks > 0 ? window + sinks - 1 : 0;
}

struct sinks_args attention_sinks(const struct workspace *w, const struct pass *p, int64_t n,
                                  const struct attention_args *a)
{
    struct sinks_args s = { .q = a->q,
                            .k = a->k,
                            .v = a->v,
                            .bias = a->bias,
                            .scale = a->scale,
                            .window = a->window,
                            .sinks = sinks_of(w, p, n),
                            .start = p->start,
                            .ragged = p->ragged,
                            .rotation = a->rotation,
                            .farthest = w->tables[pattern_kind(&w->model->pattern, n)].farthest,
                            .dropout = a->dropout,
                            .y = a->y,
                            .lse = a->lse,
                            .dy = a->dy,
                            .dq = a->dq,
                            .dk = a->dk,
                            .dv = a->dv,
                            .dbias = a->dbias };
    int64_t count = p->L < s.sinks ? p->L : s.sinks;

    if (s.sinks > 0 && p->cache) {
        struct kv first = cache_sinks(p->cache, n);
        bool ragged = ragged_present(p->ragged);

        s.k = ragged ? first.k : one_of(first.k, p->slot);
        s.v = ragged ? first.v : one_of(first.v, p->slot);
    } else if (s.sinks > 0) {
        s.k = some_rows(s.k, 0, count);
        s.v = some_rows(s.v, 0, count);
        s.dk = some_rows(s.dk, 0, count);
        s.dv = some_rows(s.dv, 0, count);
    }
    return s;
}

/* New keys that will be sinks are kept apart: the window moves on from them. */
static alibi_status keep_sinks(const struct workspace *w, const struct pass *p, int64_t n,
                               const struct attention_args *a)
{
    struct device *dev = w->model->device;
    int64_t sinks = model_position(w->model, n)->sinks;

    for (int64_t b = 0; b < p->B && sinks > 0; b++) {
        int64_t slot = p->slots ? p->slots[b] : p->slot;
        int64_t start = p->slots ? p->lengths[b] - 1 : p->start, left = sinks - start;
        int64_t count = left < p->L ? left : p->L;
        struct kv kept = cache_sinks(p->cache, n);

        if (count <= 0)
            continue;
        TRY_RETURN(dev->ops->copy(dev, some_rows(one_of(kept.k, slot), start, count),
                                  some_rows(one_of(a->k, b), 0, count)));
        TRY_RETURN(dev->ops->copy(dev, some_rows(one_of(kept.v, slot), start, count),
                                  some_rows(one_of(a->v, b), 0, count)));
    }
    return ALIBI_OK;
}

/* ---- gates and the cache */

/* Sums of the layer's gates, if it has some: within the pass, or after those in a cache. */
static alibi_status sum_gates(const struct workspace *w, const struct pass *p, int64_t n,
                              struct attention_args *a, const struct kv *cached)
{
    struct device *dev = w->model->device;
    struct gate_args gates;

    if (a->bias.kind != BIAS_GATE)
        return ALIBI_OK;
    gates = gates_of(w, p, n);
    if (cached) {
        gates.c = cached->gates;
        gates.c.shape[2] = gates.z.shape[1];
        gates.ragged = a->ragged;
        a->bias.values = gates.c;
    }
    return dev->ops->gate_forward(dev, &gates);
}

/* A token for each of several sequences, which `rows` is about; with a window it has two places in
 * the cache. It joins the cache in the call of attention, unless it must be there before: with
 * gates the host copies it to its other place, and check_scores() reads norms of keys. */
static alibi_status append_step(struct workspace *w, const struct pass *p, int64_t n,
                                struct attention_args *a, struct kv *all,
                                struct cache_append_args *rows)
{
    struct device *dev = w->model->device;
    int stores = cache_stores(p->cache), store = cache_store(p->cache, n);
    struct tensor lengths = w->activations.lengths;
    bool ring = cache_window(p->cache, n) > 0, mirrors = ring && a->bias.kind == BIAS_GATE;

    *all = cache_all(p->cache, n);
    a->ragged = (struct ragged){ p->ragged.slot, vector_part(lengths, (1 + store) * p->B, p->B) };
    *rows = (struct cache_append_args){ .k = all->k,
                                        .v = all->v,
                                        .norms = all->norms,
                                        .new_k = a->k,
                                        .new_v = a->v,
                                        .ragged = a->ragged };
    if (ring && !mirrors)
        rows->other = vector_part(lengths, (1 + stores + store) * p->B, p->B);
    TRY_RETURN(sum_gates(w, p, n, a, all));
    if (!mirrors && cache_score_limit(p->cache, n) == 0) {
        a->append = rows;
        return ALIBI_OK;
    }
    TRY_RETURN(dev->ops->cache_append(dev, rows));
    for (int64_t b = 0; mirrors && b < p->B; b++) /* all of a row; not in a step that repeats */
        TRY_RETURN(cache_mirror(p->cache, n, p->slots[b], p->lengths[b] - 1, p->lengths[b]));
    return ALIBI_OK;
}

/* Tokens of one sequence. */
static alibi_status append_tokens(struct workspace *w, const struct pass *p, int64_t n,
                                  struct attention_args *a, struct kv *all)
{
    struct device *dev = w->model->device;
    const struct ops *ops = dev->ops;
    int64_t first = cache_first(p->cache, n, p->start), end = p->start + p->L;
    struct kv new = cache_slot(p->cache, n, p->slot, p->start, end);

    *all = cache_slot(p->cache, n, p->slot, first, end);
    TRY_RETURN(ops->copy(dev, new.k, a->k));
    TRY_RETURN(ops->copy(dev, new.v, a->v));
    TRY_RETURN(ops->attention_norms(dev, all->norms, all->k, p->start - first));
    TRY_RETURN(sum_gates(w, p, n, a, all));
    return cache_mirror(p->cache, n, p->slot, p->start, end);
}

/* The new keys and values join the cache, and attention is over what the cache holds. */
static alibi_status append(struct workspace *w, const struct pass *p, int64_t n,
                           struct attention_args *a, struct cache_append_args *rows)
{
    struct kv all;

    TRY_RETURN(keep_sinks(w, p, n, a));
    if (ragged_present(p->ragged))
        TRY_RETURN(append_step(w, p, n, a, &all, rows));
    else
        TRY_RETURN(append_tokens(w, p, n, a, &all));
    a->k = all.k;
    a->v = all.v;
    a->skip.norms = all.norms;
    a->window = narrower(a->window, cache_window(p->cache, n));
    return ALIBI_OK;
}

/* ---- a part of a sequence */

static alibi_status fetch(const struct workspace *w, const struct pass *p, int64_t n,
                          struct attention_args *a, struct tensor first[2])
{
    const struct elsewhere *e = w->settings.elsewhere;

    return e ? e->fetch(e->user, a, a->window > 0 ? sinks_of(w, p, n) : 0, first) : ALIBI_OK;
}

alibi_status attention_idle(struct workspace *w, int64_t n)
{
    const struct model *m = w->model;
    const struct alibi_config *c = &m->config;
    int64_t D = c->width / c->heads;
    struct attention_args a = { .q = tensor_4(NULL, m->type, 1, 0, c->heads, D),
                                .k = tensor_4(NULL, m->type, 1, 0, c->kv_heads, D),
                                .v = tensor_4(NULL, m->type, 1, 0, c->kv_heads, D) };
    int64_t gates = position_gates(c, model_position(m, n));

    if (gates > 0)
        a.bias = (struct bias){ BIAS_GATE, tensor_4(NULL, dtype_sums(m->type), 2, 1, gates, 0), 0 };
    TRY_RETURN(check_stop(w, n));
    return fetch(w, &(struct pass){ 0 }, n, &a, NULL);
}

/* ---- the scores that a window relies on */

/* The largest of the first `tiles` norms of each head; norms [Hkv, tiles of capacity]. NaN wins. */
static alibi_status largest_of(struct device *dev, struct tensor norms, int64_t heads,
                               int64_t stride, int64_t tiles, double *largest)
{
    alibi_status status = ALIBI_OK;
    float *host = NULL;
    double most = 0.0;

    TRY(NEW_ARRAY(&host, tiles, "norms"));
    for (int64_t h = 0; h < heads; h++) {
        struct tensor some = tensor_1(tensor_at(norms, h * stride), norms.type, tiles);

        TRY(dev->ops->download(dev, host, some));
        for (int64_t t = 0; t < tiles; t++)
            most = host[t] > most || isnan(host[t]) ? (double)host[t] : most;
    }
    *largest = most;
out:
    mem_free(host);
    return status;
}

/* |q . k| <= |q| |k|: the queries of this pass with every key that their sequence ever had are
 * within the limit, or the pass fails. */
static alibi_status check_scores(struct workspace *w, const struct pass *p, int64_t layer,
                                 const struct attention_args *a)
{
    alibi_status status = ALIBI_OK;
    struct device *dev = w->model->device;
    double limit = p->cache ? cache_score_limit(p->cache, layer) : 0;
    int64_t H = a->q.shape[2], tiles = attention_tiles(a->q.shape[1]);
    int64_t Hkv = a->k.shape[2], stride = a->skip.norms.shape[2];
    struct tensor norms = tensor_3(NULL, dtype_sums(w->model->type), p->B, H, tiles);

    if (limit <= 0)
        return ALIBI_OK;
    TRY(dev->ops->buffer_new(dev, &norms.data,
                             (size_t)tensor_count(norms) * dtype_bytes(norms.type),
                             "the norms of queries"));
    TRY(dev->ops->attention_norms(dev, norms, a->q, 0));
    for (int64_t b = 0; b < p->B; b++) {
        int64_t slot = p->slots ? p->slots[b] : p->slot;
        int64_t keys = a->k.shape[1];
        struct tensor queries = norms, held = a->skip.norms;
        double q, k, *largest = cache_largest_key(p->cache, layer, slot);

        if (p->slots)
            keys = p->lengths[(1 + cache_store(p->cache, layer)) * p->B + b];
        queries.data = tensor_at(norms, b * norms.stride[0]);
        held.data = tensor_at(held, p->slots ? slot * held.stride[0] : 0);
        TRY(largest_of(dev, queries, H, tiles, tiles, &q));
        TRY(largest_of(dev, held, Hkv, stride, attention_tiles(keys), &k));
        *largest = k > *largest || isnan(k) ? k : *largest;
        if (!(a->scale * q * *largest <= limit))
            TRY(fail(ALIBI_NUMERIC,
                     "scores of layer %lld may reach %.4g, but the window relies on at most %g: "
                     "give a larger window score",
                     (long long)layer, a->scale * q * *largest, limit));
    }
out:
    dev->ops->buffer_free(dev, norms.data);
    return status;
}

/* ---- the record of what was skipped */

/* Memory of its own on the host, floats or bits, in the shape of another tensor. */
static alibi_status new_host(struct tensor *out, struct tensor like)
{
    const int64_t factors[] = { like.shape[0], like.shape[1], like.shape[2], like.shape[3],
                                (int64_t)sizeof(float) };
    size_t bytes = 0;
    void *data;

    if (!size_product(&bytes, factors, 5))
        return fail(ALIBI_MEMORY, "the record of attention does not fit");
    TRY_RETURN(mem_new(&data, bytes, "the record of attention"));
    *out = tensor_4(data, like.type == DTYPE_I32 ? DTYPE_I32 : DTYPE_F32, like.shape[0],
                    like.shape[1], like.shape[2], like.shape[3]);
    return ALIBI_OK;
}

static alibi_status download(struct device *dev, struct tensor *out, struct tensor contiguous)
{
    TRY_RETURN(new_host(out, contiguous));
    return dev->ops->download(dev, out->data, contiguous);
}

/* A view is first made contiguous on its device. */
static alibi_status download_view(struct device *dev, struct tensor *out, struct tensor view)
{
    alibi_status status;
    struct tensor whole =
        tensor_4(NULL, view.type, view.shape[0], view.shape[1], view.shape[2], view.shape[3]);
    size_t bytes = (size_t)tensor_count(view) *
                   dtype_bytes(view.type); /* no more than the view spans, which exists */

    TRY(dev->ops->buffer_new(dev, &whole.data, bytes, "a contiguous copy of queries or keys"));
    TRY(dev->ops->copy(dev, whole, view));
    TRY(download(dev, out, whole));
out:
    dev->ops->buffer_free(dev, whole.data);
    return status;
}

static alibi_status download_bias(struct device *dev, struct tensor *out, struct bias bias)
{
    struct tensor like = bias.values;

    if (!like.data)
        return ALIBI_OK;
    if (bias.kind != BIAS_GATE)
        return download(dev, out, like);
    TRY_RETURN(download_view(dev, out, gates_as_rows(like)));
    *out = tensor_4(out->data, out->type, 2, like.shape[1], like.shape[2], like.shape[3]);
    return ALIBI_OK;
}

/* The tensors of a call may be in another device's memory and in a type that the host does not
 * compute in, and queries and keys are views. Here they become fp32 tensors of this process;
 * lib/ops/skipped.c counts and verifies. */
alibi_status record_read(struct device *dev, const struct attention_args *a, bool verify,
                         struct skip_count *tiles, double *skipped)
{
    alibi_status status;
    struct attention_args host = *a;

    host.skip.kept.data = host.q.data = host.k.data = host.bias.values.data = NULL;
    TRY(download(dev, &host.skip.kept, a->skip.kept));
    *tiles = attention_count(&host);
    if (!verify)
        goto out;
    TRY(download_view(dev, &host.q, a->q));
    TRY(download_view(dev, &host.k, a->k));
    TRY(download_bias(dev, &host.bias.values, a->bias));
    *skipped = attention_skipped(&host);
out:
    mem_free(host.skip.kept.data);
    mem_free(host.q.data);
    mem_free(host.k.data);
    mem_free(host.bias.values.data);
    return status;
}

/* Counts the records that a flowing pass has left on the device. */
static alibi_status count_records(struct workspace *w)
{
    alibi_status status = ALIBI_OK;
    struct device *dev = w->model->device;
    int32_t *words = NULL;

    if (w->recorded == 0)
        return ALIBI_OK;
    TRY(NEW_ARRAY(&words, w->recorded, "the record of attention"));
    TRY(dev->ops->download(dev, words, tensor_1(w->record, DTYPE_I32, w->recorded)));
    for (int64_t i = 0; i < w->recorded; i++)
        w->statistics.tiles.used += __builtin_popcount((uint32_t)words[i]);
    w->recorded = 0;
out:
    mem_free(words);
    return status;
}

/* Memory for the record of this call, kept for the next; in a flowing pass for all its layers. */
static alibi_status reserve_record(struct workspace *w, struct attention_args *a)
{
    struct device *dev = w->model->device;
    int64_t B = a->q.shape[0], H = a->q.shape[2];
    int64_t tiles = attention_tiles(a->q.shape[1]), words = attention_kept_words(a->k.shape[1]);
    const int64_t factors[6] = {
        B, H, tiles, words, (int64_t)sizeof(int32_t), w->flowing ? w->model->config.layers : 1
    };
    size_t bytes = 0, all = 0;
    void *larger = NULL;

    if (!size_product(&bytes, factors, 5) || !size_product(&all, factors, 6))
        return fail(ALIBI_MEMORY, "the record of attention over %lld keys does not fit",
                    (long long)a->k.shape[1]);
    if ((size_t)w->recorded * sizeof(int32_t) + bytes > w->record_bytes) {
        TRY_RETURN(count_records(w));
        TRY_RETURN(dev->ops->buffer_new(dev, &larger, all, "the record of attention"));
        dev->ops->buffer_free(dev, w->record);
        w->record = larger;
        w->record_bytes = all;
    }
    a->skip.kept = tensor_4((int32_t *)w->record + w->recorded, DTYPE_I32, B, H, tiles, words);
    return ALIBI_OK;
}

alibi_status statistics_begin(struct workspace *w, const struct pass *p)
{
    struct device *dev = w->model->device;
    const struct device_traits *t = &dev->ops->traits;
    struct device_part unread[DEVICE_PARTS_MAX];
    int count;

    w->recorded = 0;
    w->flowing = w->settings.record && !w->settings.verify && t->times_parts &&
                 p->B * p->L <= t->batch_tokens;
    return w->flowing ? dev->ops->read_parts(dev, unread, &count) : ALIBI_OK;
}

alibi_status statistics_end(struct workspace *w, alibi_status status)
{
    struct device *dev = w->model->device;
    struct device_part parts[DEVICE_PARTS_MAX];
    int count = 0, none;

    if (!w->flowing)
        return status;
    if (status == ALIBI_OK)
        status = dev->ops->read_parts(dev, parts, &count);
    for (int i = 0; i < count; i++)
        if (strncmp(parts[i].name, "attention", strlen("attention")) == 0)
            w->statistics.seconds += parts[i].seconds;
    if (status == ALIBI_OK)
        status = count_records(w);
    w->flowing = false;
    (void)dev->ops->read_parts(dev, NULL, &none); /* it has nothing that can fail */
    return status;
}

/* Attention with its time and its tiles added to the statistics. The clock starts when earlier work
 * has ended, and stops when attention has. A call whose first query is inside a tile has no
 * record. */
static alibi_status measured(struct workspace *w, const struct pass *p, struct attention_args *a)
{
    struct device *dev = w->model->device;
    struct attention_statistics *s = &w->statistics;
    bool recorded = a->skip.eps > 0 && (a->k.shape[1] - a->q.shape[1]) % ATTENTION_TILE == 0;
    struct skip_count tiles;
    double begin, skipped = 0.0;

    if (recorded)
        TRY_RETURN(reserve_record(w, a));
    if (recorded && w->settings.elsewhere) { /* tiles that were not fetched are skipped ones */
        struct attention_args whole = *a;

        whole.k.shape[1] = p->start + p->L;
        s->tiles.all += attention_all_tiles(&whole) - attention_all_tiles(a);
    }
    if (w->flowing) {
        TRY_RETURN(dev->ops->attention_forward(dev, a));
        s->tiles.all += recorded ? attention_all_tiles(a) : 0;
        w->recorded += recorded ? tensor_count(a->skip.kept) : 0;
        return ALIBI_OK;
    }
    TRY_RETURN(dev->ops->finish(dev));
    begin = clock_seconds();
    TRY_RETURN(dev->ops->attention_forward(dev, a));
    TRY_RETURN(dev->ops->finish(dev));
    s->seconds += clock_seconds() - begin;
    if (!recorded)
        return ALIBI_OK;
    TRY_RETURN(record_read(dev, a, w->settings.verify, &tiles, &skipped));
    s->tiles.used += tiles.used;
    s->tiles.all += tiles.all;
    s->skipped = skipped > s->skipped ? skipped : s->skipped;
    return ALIBI_OK;
}

/* Queries, keys, bias, log-sum-exp and angles on the host. */
static alibi_status add_reach(struct workspace *w, const struct pass *p,
                              const struct attention_args *a, int64_t n)
{
    alibi_status status;
    struct sinks_args sinks;
    struct device *dev = w->model->device;
    const struct reach *reach = w->settings.reach;
    struct attention_args host = *a;
    struct tensor farthest = tensor_none();

    host.rotation.table.data = host.q.data = host.k.data = host.lse.data = host.bias.values.data =
        NULL;
    TRY(download_view(dev, &host.q, a->q));
    TRY(download_view(dev, &host.k, a->k));
    TRY(download(dev, &host.lse, a->lse));
    TRY(download_bias(dev, &host.bias.values, a->bias));
    sinks = attention_sinks(w, p, n, &host);
    if (a->rotation.table.data && sinks.sinks > 0) {
        TRY(download(dev, &host.rotation.table, a->rotation.table));
        TRY(download(dev, &farthest, sinks.farthest));
        sinks.rotation = host.rotation;
        sinks.farthest = farthest;
    }
    attention_reach(&host, sinks.sinks > 0 ? &sinks : NULL, reach->from, reach->step, reach->near,
                    reach->heads + n * w->model->config.heads);
out:
    mem_free(farthest.data);
    mem_free(host.rotation.table.data);
    mem_free(host.q.data);
    mem_free(host.k.data);
    mem_free(host.lse.data);
    mem_free(host.bias.values.data);
    return status;
}

alibi_status attention_run(struct workspace *w, const struct pass *p, int64_t n)
{
    struct device *dev = w->model->device;
    struct attention_args a = attention_of(w, p, n);
    struct tensor first[2] = { tensor_none(), tensor_none() };
    struct cache_append_args rows;
    struct sinks_args sinks;

    if (w->model->config.qk_norm)
        TRY_RETURN(norm_heads(w, p, n, &a));
    else
        TRY_RETURN(rotate_heads(dev, p, a.q, a.k, a.rotation, 1));
    if (w->model->blocks[n].logn >= 0)
        TRY_RETURN(scale_queries(w, p, n, &a));
    TRY_RETURN(temper_queries(w, p, n, &a));
    if (p->cache)
        TRY_RETURN(append(w, p, n, &a, &rows));
    else
        TRY_RETURN(sum_gates(w, p, n, &a, NULL));
    TRY_RETURN(check_scores(w, p, n, &a));
    TRY_RETURN(fetch(w, p, n, &a, first));
    if (w->settings.record && !w->activations.training)
        TRY_RETURN(measured(w, p, &a));
    else
        TRY_RETURN(dev->ops->attention_forward(dev, &a));
    sinks = attention_sinks(w, p, n, &a);
    if (first[0].data) {
        sinks.k = first[0];
        sinks.v = first[1];
    }
    if (sinks.sinks > 0)
        TRY_RETURN(dev->ops->sinks_forward(dev, &sinks));
    return w->settings.reach && !p->cache ? add_reach(w, p, &a, n) : ALIBI_OK;
}
