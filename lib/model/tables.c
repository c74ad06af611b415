/* tables.c - the numbers of position methods on the device, for each kind of layer
 *
 * Rows (sinusoids, rotations) are those of the pass, so that they do not grow with the text, and
 * stay for the next one with the same positions; fixed slopes are computed once; trained slopes and
 * the distance table of a learned bias in every pass, from the present weights. A table by buckets
 * ends at their last distance; one by a curve grows with the length, and is computed again only
 * where weights change or it has grown.
 *
 * Slopes are trained as factors f on the fixed ones, m_h = f_h * fixed_h, so that steep and flat
 * heads move at the same relative speed. As a linear layer with the diagonal matrix of fixed slopes
 * for its input, it is exact, forward and backward: each sum has one term that is not 0. */
#include "model/walk.h"

static size_t bytes_of(enum dtype type, int64_t rows, int64_t columns)
{
    const int64_t factors[3] = { rows, columns, (int64_t)dtype_bytes(type) };
    size_t bytes;

    return size_product(&bytes, factors, 3) ? bytes : SIZE_MAX;
}

static alibi_status new_tensor(const struct model *m, struct tensor *t, enum dtype type,
                               int64_t rows, int64_t columns, const char *what)
{
    size_t bytes = bytes_of(type, rows, columns);
    void *data;

    if (bytes == SIZE_MAX)
        return fail(ALIBI_MEMORY, "%s do not fit in memory", what);
    TRY_RETURN(m->device->ops->buffer_new(m->device, &data, bytes, what));
    *t = tensor_2(data, type, rows, columns);
    return ALIBI_OK;
}

static alibi_status make_slopes(struct tables *t, const struct model *m, int kind)
{
    alibi_status status;
    const struct position *p = &m->pattern.kind[kind];
    float *slopes = NULL;
    bool trained = m->positions[kind] >= 0;
    int64_t H = m->config.heads;

    TRY(NEW_ZERO_ARRAY(&slopes, trained ? H * H : H, "slopes"));
    for (int64_t h = 0; h < H; h++)
        slopes[trained ? h * H + h : h] = p->method->slope(&m->config, p, h);
    TRY(new_tensor(m, &t->slopes, dtype_sums(m->type), 1, H, "slopes"));
    t->slopes = tensor_1(t->slopes.data, t->slopes.type, H);
    if (trained)
        TRY(new_tensor(m, &t->fixed, dtype_sums(m->type), H, H, "fixed slopes"));
    TRY(m->device->ops->upload(m->device, t->fixed.data ? t->fixed : t->slopes, slopes));
    if (trained && m->gradients) {
        TRY(new_tensor(m, &t->dbias, dtype_sums(m->type), 1, H, "the gradient of slopes"));
        t->dbias = tensor_1(t->dbias.data, t->dbias.type, H);
    }
out:
    mem_free(slopes);
    return status;
}

static alibi_status make_buckets(struct tables *t, const struct model *m, int kind)
{
    alibi_status status;
    const struct position *p = &m->pattern.kind[kind];
    int32_t *bucket = NULL;
    int64_t T = p->method->distances(p), H = m->config.heads;

    TRY(NEW_ARRAY(&bucket, T, "distance buckets"));
    for (int64_t d = 0; d < T; d++)
        bucket[d] = p->method->bucket(p, d);
    TRY(new_tensor(m, &t->bucket, DTYPE_I32, 1, T, "distance buckets"));
    t->bucket = tensor_1(t->bucket.data, DTYPE_I32, T);
    TRY(m->device->ops->upload(m->device, t->bucket, bucket));
    TRY(new_tensor(m, &t->bias, dtype_sums(m->type), H, T, "the bias by distance"));
    if (m->gradients)
        TRY(new_tensor(m, &t->dbias, dtype_sums(m->type), H, T, "the gradient of the bias"));
out:
    mem_free(bucket);
    return status;
}

alibi_status tables_init(struct tables *t, const struct model *m)
{
    for (int k = 0; k < m->pattern.kinds; k++) {
        enum bias_kind bias = m->pattern.kind[k].method->bias;

        if (bias == BIAS_LINEAR)
            TRY_RETURN(make_slopes(&t[k], m, k));
        if (bias == BIAS_TABLE && !m->pattern.kind[k].method->curve)
            TRY_RETURN(make_buckets(&t[k], m, k));
    }
    return ALIBI_OK;
}

/* Rows that are computed. Embeddings get theirs once, from the first kind. */
static bool has_rows(const struct model *m, int kind)
{
    const struct position_method *method = m->pattern.kind[kind].method;

    return method->row && (kind == 0 || method->acts_on != POSITION_EMBEDDING);
}

void tables_fini(struct tables *t, const struct model *m)
{
    const struct ops *ops = m->device->ops;

    for (int k = 0; k < m->pattern.kinds; k++, t++) {
        if (has_rows(m, k)) /* the rows of learned positions are their parameter */
            ops->buffer_free(m->device, t->rows.data);
        ops->buffer_free(m->device, t->farthest.data);
        ops->buffer_free(m->device, t->slopes.data);
        ops->buffer_free(m->device, t->fixed.data);
        ops->buffer_free(m->device, t->bucket.data);
        ops->buffer_free(m->device, t->bias.data);
        ops->buffer_free(m->device, t->dbias.data);
    }
}

/* ---- slopes that are trained */

/* Forward: the slopes. Backward: their gradient to the factors. */
static struct linear_args factors_on_slopes(const struct tables *t, const struct model *m, int kind)
{
    int64_t H = m->config.heads;

    return (struct linear_args){ .y = tensor_2(t->slopes.data, t->slopes.type, H, 1),
                                 .x = t->fixed,
                                 .weight = value_of(m, m->positions[kind]),
                                 .dy = tensor_2(t->dbias.data, t->dbias.type, H, 1),
                                 .dweight = gradient_of(m, m->positions[kind]) };
}

alibi_status model_slopes(const struct model *m, int kind, float *slopes)
{
    alibi_status status = ALIBI_OK;
    const struct position *p = &m->pattern.kind[kind];
    int parameter = m->positions[kind];
    float *factors = NULL;
    int64_t H = m->config.heads;

    for (int64_t h = 0; h < H; h++)
        slopes[h] = p->method->slope(&m->config, p, h);
    if (parameter < 0)
        return ALIBI_OK;
    TRY(NEW_ARRAY(&factors, H, "slopes"));
    device_lock(m->device);
    status = m->device->ops->download(m->device, factors, value_of(m, parameter));
    device_unlock(m->device);
    for (int64_t h = 0; status == ALIBI_OK && h < H; h++)
        slopes[h] *= factors[h];
out:
    mem_free(factors);
    return status;
}

alibi_status model_limit_slopes(struct model *m)
{
    for (int k = 0; k < m->pattern.kinds; k++) {
        struct tensor factors = value_of(m, m->positions[k]);

        if (m->pattern.kind[k].method->bias == BIAS_LINEAR && factors.data)
            TRY_RETURN(m->device->ops->activation_forward(m->device, ALIBI_RELU, factors, factors));
    }
    return ALIBI_OK;
}

/* ---- rows, and tables by a curve */

static int64_t row_capacity(int64_t length)
{
    int64_t capacity = 64;

    while (capacity < length)
        capacity *= 2;
    return capacity;
}

static int64_t row_columns(const struct model *m, int kind)
{
    bool rotates = m->pattern.kind[kind].method->acts_on == POSITION_ROTATION;

    return rotates ? m->config.width / m->config.heads : m->config.width;
}

/* Computes the rows of the positions first + i, or lengths[i] - 1, on the host, a bounded number at
 * a time. */
static alibi_status fill_rows(const struct model *m, int kind, struct tensor rows, int64_t first,
                              const int32_t *lengths)
{
    enum { PIECE = 1024, PARALLEL_MIN = 4 };
    alibi_status status;
    const struct position *p = &m->pattern.kind[kind];
    float *piece = NULL;
    int64_t columns = rows.shape[1], most = rows.shape[0] < PIECE ? rows.shape[0] : PIECE;

    TRY(NEW_ARRAY(&piece, most * columns, "position rows"));
    for (int64_t from = 0; from < rows.shape[0]; from += PIECE) {
        int64_t count = rows.shape[0] - from < PIECE ? rows.shape[0] - from : PIECE;
#pragma omp parallel for schedule(static) if (count >= PARALLEL_MIN)
        for (int64_t i = from; i < from + count; i++)
            p->method->row(&m->config, p, lengths ? lengths[i] - 1 : first + i,
                           piece + (i - from) * columns);
        TRY(m->device->ops->upload(m->device, tensor_rows(rows, from, count), piece));
    }
out:
    mem_free(piece);
    return status;
}

static alibi_status prepare_rows(struct tables *t, const struct model *m, int kind,
                                 const struct pass *p)
{
    bool step = p->slots != NULL;
    int64_t count = step ? p->B : p->L;

    if (!step && t->first == p->start && t->filled >= count)
        return ALIBI_OK;
    t->filled = 0;
    if (!t->rows.data || t->rows.shape[0] < count) {
        struct tensor rows;

        TRY_RETURN(new_tensor(m, &rows, dtype_sums(m->type), row_capacity(count),
                              row_columns(m, kind), "position rows"));
        m->device->ops->buffer_free(m->device, t->rows.data);
        t->rows = rows;
    }
    TRY_RETURN(
        fill_rows(m, kind, tensor_rows(t->rows, 0, count), p->start, step ? p->lengths : NULL));
    t->first = p->start;
    t->filled = step ? 0 : count;
    return ALIBI_OK;
}

/* Layers of a kind have the same window and sinks, in every pass. */
static alibi_status prepare_farthest(struct workspace *w, const struct pass *p, int64_t layer)
{
    const struct model *m = w->model;
    int kind = pattern_kind(&m->pattern, layer);
    struct tables *t = &w->tables[kind];
    int64_t position = attention_farthest(w, p, layer);

    if (m->pattern.kind[kind].method->acts_on != POSITION_ROTATION || position == 0 ||
        position == t->farthest_at)
        return ALIBI_OK;
    t->farthest_at = 0;
    if (!t->farthest.data)
        TRY_RETURN(new_tensor(m, &t->farthest, dtype_sums(m->type), 1, row_columns(m, kind),
                              "position rows"));
    TRY_RETURN(fill_rows(m, kind, t->farthest, position, NULL));
    t->farthest_at = position;
    return ALIBI_OK;
}

/* Distances of a table by a curve: no more than window and sinks have. */
static int64_t curve_distances(const struct position *p, int64_t length)
{
    return narrower(p->window > 0 ? p->window + p->sinks : 0, row_capacity(length));
}

static struct curve_args curve_of(const struct tables *t, const struct model *m, int kind)
{
    const struct position *p = &m->pattern.kind[kind];

    return (struct curve_args){ .kind = p->method->curve(p),
                                .table = t->bias,
                                .weight = value_of(m, m->positions[kind]),
                                .dtable = t->dbias,
                                .dweight = gradient_of(m, m->positions[kind]) };
}

static alibi_status prepare_curve(struct tables *t, const struct model *m, int kind, int64_t length)
{
    alibi_status status = ALIBI_OK;
    struct device *dev = m->device;
    struct tensor bias = tensor_none(), dbias = tensor_none();
    int64_t H = m->config.heads, T = curve_distances(&m->pattern.kind[kind], length);
    bool grows = !t->bias.data || t->bias.shape[1] < T;
    struct curve_args a;

    if (grows) {
        TRY(new_tensor(m, &bias, dtype_sums(m->type), H, T, "the bias by distance"));
        if (m->gradients)
            TRY(new_tensor(m, &dbias, dtype_sums(m->type), H, T, "the gradient of the bias"));
        dev->ops->buffer_free(dev, t->bias.data);
        dev->ops->buffer_free(dev, t->dbias.data);
        t->bias = bias;
        t->dbias = dbias;
        bias = dbias = tensor_none();
    }
    a = curve_of(t, m, kind);
    if (grows || m->gradients)
        status = dev->ops->curve_forward(dev, &a);
    if (status != ALIBI_OK)
        t->bias.shape[1] = 0; /* so that the next pass does not take it as computed */
out:
    dev->ops->buffer_free(dev, bias.data);
    dev->ops->buffer_free(dev, dbias.data);
    return status;
}

static alibi_status prepare(struct tables *t, const struct model *m, int kind, const struct pass *p)
{
    const struct position_method *method = m->pattern.kind[kind].method;
    struct tensor weight = value_of(m, m->positions[kind]);

    if (has_rows(m, kind))
        TRY_RETURN(prepare_rows(t, m, kind, p));
    else if (method->acts_on == POSITION_EMBEDDING)
        t->rows = weight;
    if (t->fixed.data) {
        struct linear_args a = factors_on_slopes(t, m, kind);

        return m->device->ops->linear_forward(m->device, &a);
    }
    if (method->bias != BIAS_TABLE)
        return ALIBI_OK;
    if (method->curve)
        return prepare_curve(t, m, kind, p->start + p->L);
    return m->device->ops->bucket_forward(m->device, t->bias, weight, t->bucket);
}

alibi_status tables_prepare(struct workspace *w, const struct pass *p)
{
    const struct model *m = w->model;

    for (int k = 0; k < m->pattern.kinds; k++)
        TRY_RETURN(prepare(&w->tables[k], m, k, p));
    for (int64_t n = 0; n < m->config.layers; n++)
        TRY_RETURN(prepare_farthest(w, p, n));
    return ALIBI_OK;
}

/* ---- sizes, gradients, views */

/* T of the table of a kind. */
static int64_t distances_of_kind(const struct position *p, int64_t length)
{
    if (p->method->bias != BIAS_TABLE)
        return 0;
    return p->method->curve ? curve_distances(p, length) : p->method->distances(p);
}

static size_t bytes_of_kind(const struct model *m, int kind, int64_t length, bool trainable)
{
    const struct position *p = &m->pattern.kind[kind];
    enum dtype sums = dtype_sums(m->type);
    int64_t H = m->config.heads;
    size_t bytes = 0;

    if (p->method->bias == BIAS_LINEAR)
        bytes = size_sum(bytes, bytes_of(sums, 1, H));
    if (p->method->bias == BIAS_LINEAR && m->positions[kind] >= 0)
        bytes = size_sum(bytes, bytes_of(sums, trainable ? H + 1 : H, H));
    if (p->method->bias == BIAS_TABLE) {
        int64_t T = distances_of_kind(p, length);

        bytes = size_sum(bytes, bytes_of(DTYPE_I32, 1, p->method->curve ? 0 : T));
        bytes = size_sum(bytes, bytes_of(sums, trainable ? 2 * H : H, T));
    }
    if (has_rows(m, kind))
        bytes = size_sum(bytes, bytes_of(sums, row_capacity(length), row_columns(m, kind)));
    if (p->method->acts_on == POSITION_ROTATION && p->sinks > 0)
        bytes = size_sum(bytes, bytes_of(sums, 1, row_columns(m, kind)));
    return bytes;
}

int64_t tables_distances(const struct model *m, int64_t length)
{
    int64_t most = 0;

    for (int k = 0; k < m->pattern.kinds; k++) {
        int64_t T = distances_of_kind(&m->pattern.kind[k], length);
        most = T > most ? T : most;
    }
    return most;
}

size_t tables_bytes(const struct model *m, int64_t length, bool trainable)
{
    size_t bytes = 0;

    for (int k = 0; k < m->pattern.kinds; k++)
        bytes = size_sum(bytes, bytes_of_kind(m, k, length, trainable));
    return bytes;
}

alibi_status tables_clear_gradient(struct tables *t, const struct model *m)
{
    for (int k = 0; k < m->pattern.kinds; k++)
        if (t[k].dbias.data)
            TRY_RETURN(m->device->ops->fill(m->device, t[k].dbias, 0.0));
    return ALIBI_OK;
}

static alibi_status back(struct tables *t, const struct model *m, int kind)
{
    if (!t->dbias.data)
        return ALIBI_OK;
    if (t->fixed.data) {
        struct linear_args a = factors_on_slopes(t, m, kind);

        return m->device->ops->linear_backward(m->device, &a);
    }
    if (m->pattern.kind[kind].method->curve) {
        struct curve_args a = curve_of(t, m, kind);

        return m->device->ops->curve_backward(m->device, &a);
    }
    return m->device->ops->bucket_backward(m->device, gradient_of(m, m->positions[kind]), t->dbias,
                                           t->bucket);
}

alibi_status tables_backward(struct tables *t, const struct model *m)
{
    for (int k = 0; k < m->pattern.kinds; k++)
        TRY_RETURN(back(&t[k], m, k));
    return ALIBI_OK;
}

struct bias tables_bias(const struct tables *t, const struct model *m, int kind)
{
    const struct position *p = &m->pattern.kind[kind];
    enum bias_kind bias = p->method->bias;
    struct tensor values = bias == BIAS_LINEAR  ? t[kind].slopes
                           : bias == BIAS_TABLE ? t[kind].bias
                                                : tensor_none();

    if (p->method->tau && p->method->tau(p) > 0)
        return (struct bias){ .kind = BIAS_GAIN, .tau = p->method->tau(p) };
    return (struct bias){ .kind = bias, .values = values };
}
