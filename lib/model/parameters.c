/* parameters.c - the table of tensors a model learns
 *
 * One walk over the configuration lists every tensor once, in the order in which data flows through
 * the model; initialisation (init.c) and the files follow that list. In the flat buffers the
 * parameters that decay come first, so that one call of the optimizer does them all, and of these
 * the ones that passes read as copies, so that the masters of these can be elsewhere. */
#include <string.h>

#include "model/walk.h"

enum {
    PLACE = 64,  /* elements that offsets are multiples of: a line of memory, whatever the type */
    ALIGNED = 8, /* rows of a cluster's weights, so that its rows of logits are aligned in bf16 */
};

/* The list under construction. With parameters == NULL it only counts. */
struct list {
    struct parameter *parameters;
    int count;
    int64_t elements;
    bool overflow;
};

static int add(struct list *l, int64_t rows, int64_t columns, enum parameter_init init,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

/* rows == 0: a vector of `columns`. Vectors are norms and biases: they do not decay. */
static int add(struct list *l, int64_t rows, int64_t columns, enum parameter_init init,
               const char *format, ...)
{
    const int64_t shape[2] = { rows ? rows : 1, columns };
    size_t count;
    va_list arguments;

    if (!size_product(&count, shape, 2) || count > (size_t)(INT64_MAX / 16) - (size_t)l->elements) {
        l->overflow = true;
        return 0;
    }
    if (l->parameters) {
        struct parameter *p = &l->parameters[l->count];
        *p = (struct parameter){ .rank = rows ? 2 : 1,
                                 .shape = { rows ? rows : columns, rows ? columns : 1 },
                                 .decays = rows != 0,
                                 .init = init,
                                 .count = (int64_t)count,
                                 .rows = rows ? rows : columns };
        va_start(arguments, format);
        vsnprintf(p->name, sizeof p->name, format, arguments);
        va_end(arguments);
    }
    l->elements += (int64_t)count;
    return l->count++;
}

static void add_norm(struct list *l, const struct alibi_config *c, const char *name, int *weight,
                     int *bias)
{
    *weight = add(l, 0, c->width, INIT_ONE, "%s.weight", name);
    *bias = c->biases || c->norm_biases ? add(l, 0, c->width, INIT_ZERO, "%s.bias", name) : -1;
}

/* Passes read it in their own type. */
static int copied(struct list *l, int index)
{
    if (l->parameters)
        l->parameters[index].copied = true;
    return index;
}

static void add_linear(struct list *l, bool biased, int64_t out, int64_t in,
                       enum parameter_init init, const char *name, int *weight, int *bias)
{
    *weight = copied(l, add(l, out, in, init, "%s.weight", name));
    *bias = biased ? copied(l, add(l, 0, out, INIT_ZERO, "%s.bias", name)) : -1;
}

void model_logn_name(char name[PARAMETER_NAME_MAX], int64_t layer)
{
    snprintf(name, PARAMETER_NAME_MAX, "blocks.%lld.attention.logn", (long long)layer);
}

void model_gate_bias_name(char name[PARAMETER_NAME_MAX], int64_t layer)
{
    snprintf(name, PARAMETER_NAME_MAX, "blocks.%lld.attention.gate.bias", (long long)layer);
}

static void add_block(struct list *l, const struct model *m, int64_t n, struct block_parameters *b)
{
    const struct alibi_config *c = &m->config;
    const struct position *position = model_position(m, n);
    int64_t D = c->width / c->heads, gates = position_gates(c, position);
    int64_t qkv = (c->heads + 2 * c->kv_heads) * D;
    int64_t up = c->activation == ALIBI_SWIGLU ? 2 * c->ff_width : c->ff_width; /* and its gate */
    char name[6][PARAMETER_NAME_MAX - 8], logn[PARAMETER_NAME_MAX], bias[PARAMETER_NAME_MAX];
    static const char *const parts[6] = { "norm1", "attention.qkv", "attention.out",
                                          "norm2", "ff.up",         "ff.down" };

    for (int i = 0; i < 6; i++)
        snprintf(name[i], sizeof name[i], "blocks.%lld.%s", (long long)n, parts[i]);
    add_norm(l, c, name[0], &b->norm1, &b->norm1_bias);
    add_linear(l, c->biases || c->qkv_biases, qkv, c->width, INIT_NORMAL, name[1], &b->qkv,
               &b->qkv_bias);
    b->q_norm = c->qk_norm
                    ? add(l, 0, D, INIT_ONE, "blocks.%lld.attention.q_norm.weight", (long long)n)
                    : -1;
    b->k_norm = c->qk_norm
                    ? add(l, 0, D, INIT_ONE, "blocks.%lld.attention.k_norm.weight", (long long)n)
                    : -1;
    b->gate = gates > 0 ? copied(l, add(l, gates, c->width, INIT_ZERO,
                                        "blocks.%lld.attention.gate.weight", (long long)n))
                        : -1;
    model_gate_bias_name(bias, n);
    b->gate_bias = gates > 0 ? add(l, 0, gates, INIT_POSITION, "%s", bias) : -1;
    model_logn_name(logn, n);
    b->logn =
        position->logn ? add(l, 0, position_logn_heads(c, position), INIT_LOGN, "%s", logn) : -1;
    add_linear(l, c->biases, c->width, c->width, INIT_RESIDUAL, name[2], &b->out, &b->out_bias);
    add_norm(l, c, name[3], &b->norm2, &b->norm2_bias);
    add_linear(l, c->biases, up, c->width, INIT_NORMAL, name[4], &b->up, &b->up_bias);
    add_linear(l, c->biases, c->width, c->ff_width, INIT_RESIDUAL, name[5], &b->down,
               &b->down_bias);
}

/* Score biases start from zero, no preference for any distance, and factors on slopes from one, or
 * as their method says; like all biases they do not decay. Rows added to embeddings start as large
 * as the embeddings they are added to. */
static int add_position(struct list *l, const struct model *m, int kind)
{
    const struct position *p = &m->pattern.kind[kind];
    const struct position_method *method = p->method;
    bool bias = method->acts_on == POSITION_SCORES, factors = method->bias == BIAS_LINEAR;
    char name[POSITION_WEIGHT_MAX];
    int64_t shape[2] = { 0 };
    int index;

    if (method->parameter_shape)
        method->parameter_shape(&m->config, p, shape);
    if (shape[0] == 0 || (method->acts_on == POSITION_EMBEDDING && kind > 0))
        return -1;
    pattern_weight_name(name, kind);
    index = add(l, shape[0], shape[1],
                method->initial ? INIT_POSITION
                : factors       ? INIT_ONE
                : bias          ? INIT_ZERO
                                : INIT_EMBEDDED,
                "%s", name);
    if (l->parameters && bias)
        l->parameters[index].decays = false;
    return index;
}

/* ---- clusters */

static void set_clusters(struct model *m)
{
    const struct alibi_config *c = &m->config;
    const struct alibi_int_list *cutoffs = &c->adaptive_cutoffs;
    int64_t width = c->width;

    m->clusters = cutoffs->count > 0 ? cutoffs->count + 1 : 0;
    for (int i = 0; i < m->clusters; i++, width /= c->adaptive_factor) {
        int64_t first = i > 0 ? cutoffs->at[i - 1] : 0;
        int64_t end = i < cutoffs->count ? cutoffs->at[i] : c->vocab;
        m->cluster[i] = (struct cluster){ .first = first, .count = end - first, .width = width };
    }
}

/* Weights of a softmax: their rows in memory are padded. */
static int add_classes(struct list *l, int64_t rows, int64_t columns, enum parameter_init init,
                       const char *place, int cluster)
{
    int index = copied(l, add(l, rows, columns, init, "%s.%d.weight", place, cluster));

    if (l->parameters)
        l->parameters[index].rows = (rows + ALIGNED - 1) / ALIGNED * ALIGNED;
    return index;
}

static int add_projection(struct list *l, const struct model *m, const char *place, int cluster)
{
    return copied(l, add(l, m->config.width, m->cluster[cluster].width, INIT_XAVIER,
                         "%s.%d.projection.weight", place, cluster));
}

/* Rows of the output layer's cluster: the head has one more for each tail. */
static int64_t classes_of(const struct model *m, int cluster)
{
    return m->cluster[cluster].count + (cluster == 0 ? m->clusters - 1 : 0);
}

static void add_cluster_embeddings(struct list *l, struct model *m)
{
    for (int i = 0; i < m->clusters; i++) {
        struct cluster *k = &m->cluster[i];
        int64_t rows = m->config.tied ? classes_of(m, i) : k->count;
        k->embedding = k->head = add_classes(l, rows, k->width, INIT_CLUSTER, "embedding", i);
        k->projection = k->head_projection = add_projection(l, m, "embedding", i);
    }
    m->embedding = m->head = m->cluster[0].embedding;
}

static void add_cluster_heads(struct list *l, struct model *m)
{
    for (int i = 0; i < m->clusters; i++) {
        struct cluster *k = &m->cluster[i];
        k->head = add_classes(l, classes_of(m, i), k->width, INIT_XAVIER, "head", i);
        k->head_projection = i > 0 ? add_projection(l, m, "head", i) : -1;
    }
    m->head = m->cluster[0].head;
}

/* m supplies configuration and method and takes the indices. */
static void list_all(struct list *l, struct model *m)
{
    const struct alibi_config *c = &m->config;
    struct block_parameters unused;

    set_clusters(m);
    if (m->clusters > 0)
        add_cluster_embeddings(l, m);
    else
        m->embedding = m->head =
            copied(l, add(l, c->vocab, c->width, INIT_EMBEDDING, "embedding.weight"));
    for (int k = 0; k < m->pattern.kinds; k++)
        m->positions[k] = add_position(l, m, k);
    m->embedding_norm = m->embedding_norm_bias = m->norm = m->norm_bias = -1;
    if (c->embedding_norm)
        add_norm(l, c, "embedding_norm", &m->embedding_norm, &m->embedding_norm_bias);
    for (int64_t n = 0; n < c->layers; n++)
        add_block(l, m, n, m->blocks ? &m->blocks[n] : &unused);
    if (c->final_norm)
        add_norm(l, c, "norm", &m->norm, &m->norm_bias);
    if (!c->tied && m->clusters > 0)
        add_cluster_heads(l, m);
    else if (!c->tied)
        m->head = copied(l, add(l, c->vocab, c->width, INIT_NORMAL, "head.weight"));
}

int64_t config_parameters(const struct alibi_config *config)
{
    struct model m = { .config = *config };
    struct list l = { 0 };

    if (pattern_read(&m.pattern, config) != ALIBI_OK || config_check_clusters(config) != ALIBI_OK)
        return 0;
    list_all(&l, &m);
    return l.overflow ? INT64_MAX : l.elements;
}

/* ---- making */

/* The elements of a flat buffer that it takes. */
static int64_t placed(const struct parameter *p)
{
    return (p->rows * p->shape[1] + PLACE - 1) / PLACE * PLACE;
}

static int64_t place_some(struct model *m, bool decays, bool copied, int64_t at)
{
    for (int i = 0; i < m->count; i++) {
        struct parameter *p = &m->parameters[i];
        if (p->decays != decays || (decays && p->copied != copied))
            continue;
        p->offset = at;
        at += placed(p);
    }
    return at;
}

struct tensor model_flat(const struct model *m, void *buffer)
{
    return buffer ? tensor_1(buffer, dtype_sums(m->type), m->span) : tensor_none();
}

static struct tensor slice(struct tensor flat, const struct parameter *p)
{
    return flat.data ? tensor_1(tensor_at(flat, p->offset), flat.type, p->count) : flat;
}

/* In the parameter's shape, with the rows that pad it. */
static struct tensor shaped(struct tensor all, const struct parameter *p)
{
    return p->rank == 2 ? tensor_2(all.data, all.type, p->rows, p->shape[1]) : all;
}

struct tensor parameter_slice(const struct model *m, const struct parameter *p, void *buffer)
{
    return slice(model_flat(m, buffer), p);
}

struct tensor model_flat_copies(const struct model *m)
{
    return m->copies ? tensor_1(m->copies, m->type, m->span) : tensor_none();
}

struct tensor model_masters(const struct model *m)
{
    return tensor_1(m->values, dtype_sums(m->type), m->span - m->absent);
}

static alibi_status check_config(const struct alibi_config *c, const struct position *first)
{
    if (c->vocab < 1)
        return fail(ALIBI_USAGE, "a model needs a vocabulary");
    TRY_RETURN(config_check_clusters(c));
    if (first->method->longest && first->method->longest(first) < 1)
        return fail(ALIBI_USAGE, "position '%s' needs max-length or a training length",
                    first->method->name);
    return ALIBI_OK;
}

size_t model_flat_bytes(const struct model *m, enum dtype type)
{
    size_t bytes;

    return size_multiply(&bytes, (size_t)m->span, dtype_bytes(type)) ? bytes : SIZE_MAX;
}

static alibi_status new_flat(struct model *m, void **out, enum dtype type, int64_t count,
                             const char *what)
{
    size_t bytes;

    if (!size_multiply(&bytes, (size_t)count, dtype_bytes(type)))
        return fail(ALIBI_MEMORY, "a model of %lld parameters does not fit",
                    (long long)m->elements);
    TRY_RETURN(m->device->ops->buffer_new(m->device, out, bytes, what));
    return m->device->ops->fill(m->device, tensor_1(*out, type, count), 0.0);
}

/* ---- gradients */

int64_t model_layer_offset(const struct model *m, int64_t layer)
{
    const struct parameter *last = &m->parameters[m->blocks[m->config.layers - 1].down];

    return layer < m->config.layers ? m->parameters[m->blocks[layer].qkv].offset
                                    : last->offset + placed(last);
}

/* The largest layer. */
static int64_t slot_length(const struct model *m)
{
    int64_t most = 0;

    for (int64_t n = 0; n < m->config.layers; n++) {
        int64_t length = model_layer_offset(m, n + 1) - model_layer_offset(m, n);
        most = length > most ? length : most;
    }
    return most;
}

int64_t model_gradients_count(const struct model *m, bool by_layer)
{
    int64_t layers = model_layer_offset(m, m->config.layers) - model_layer_offset(m, 0);

    return by_layer ? m->span - layers + slot_length(m) : m->span;
}

struct tensor model_gradient_part(const struct model *m, int64_t offset, int64_t count)
{
    int64_t first = model_layer_offset(m, 0), end = model_layer_offset(m, m->config.layers);
    int64_t at = offset, layer = m->config.layers - 1;
    struct tensor all =
        tensor_1(m->gradients, dtype_sums(m->type), model_gradients_count(m, m->slot > 0));

    if (m->slot > 0 && offset >= end)
        at = offset - (end - first) + m->slot;
    else if (m->slot > 0 && offset >= first) {
        while (model_layer_offset(m, layer) > offset)
            layer--;
        at = first + offset - model_layer_offset(m, layer);
    }
    return vector_part(all, at, count);
}

alibi_status model_add_gradients(struct model *m, bool by_layer)
{
    alibi_status status;

    device_lock(m->device);
    TRY(new_flat(m, &m->gradients, dtype_sums(m->type), model_gradients_count(m, by_layer),
                 "the gradients"));
    m->slot = by_layer ? slot_length(m) : 0;
    for (int i = 0; i < m->count; i++) {
        struct parameter *p = &m->parameters[i];

        p->gradient = shaped(model_gradient_part(m, p->offset, p->count), p);
    }
out:
    device_unlock(m->device);
    return status;
}

alibi_status model_outline(struct model **out, const struct alibi_config *config,
                           struct device *device, enum dtype type)
{
    alibi_status status;
    struct model *m = NULL;
    struct list counted = { 0 }, listed = { 0 };

    TRY(NEW_ZERO_ARRAY(&m, 1, "a model"));
    m->config = *config;
    m->device = device;
    m->type = type;
    m->head_kind = config->adaptive_cutoffs.count > 0 ? &head_adaptive : &head_softmax;
    TRY(pattern_read(&m->pattern, config));
    TRY(check_config(config, &m->pattern.kind[0]));
    list_all(&counted, m);
    if (counted.overflow)
        TRY(fail(ALIBI_MEMORY, "a model of that size does not fit: its parameters overflow"));
    TRY(NEW_ZERO_ARRAY(&m->blocks, config->layers, "the table of blocks"));
    TRY(NEW_ZERO_ARRAY(&m->parameters, counted.count, "the table of parameters"));
    listed.parameters = m->parameters;
    list_all(&listed, m);
    m->count = listed.count;
    m->elements = listed.elements;
    m->copied = place_some(m, true, true, 0);
    m->decaying = place_some(m, true, false, m->copied);
    m->span = place_some(m, false, false, m->decaying);
    *out = m;
    m = NULL;
out:
    model_free(m);
    return status;
}

/* What passes read of a parameter. */
static struct tensor value_in(const struct model *m, const struct parameter *p)
{
    struct tensor masters = model_masters(m);

    if (p->copied && m->copies)
        return shaped(slice(model_flat_copies(m), p), p);
    return shaped(vector_part(masters, p->offset - m->absent, p->count), p);
}

static alibi_status make(struct model **out, const struct alibi_config *config,
                         struct device *device, enum dtype type, bool trainable, bool sharded)
{
    alibi_status status;
    struct model *m = NULL;
    bool copies = type != dtype_sums(type);

    device_lock(device);
    TRY(model_outline(&m, config, device, type));
    m->absent = sharded && copies ? m->copied : 0;
    TRY(new_flat(m, &m->values, dtype_sums(type), m->span - m->absent, "the weights"));
    if (copies)
        TRY(new_flat(m, &m->copies, type, m->span, "the copies of weights"));
    for (int i = 0; i < m->count; i++)
        m->parameters[i].value = value_in(m, &m->parameters[i]);
    if (trainable)
        TRY(model_add_gradients(m, false));
    *out = m;
    m = NULL;
out:
    model_free(m);
    device_unlock(device);
    return status;
}

alibi_status model_new(struct model **out, const struct alibi_config *config, struct device *device,
                       enum dtype type, bool trainable)
{
    return make(out, config, device, type, trainable, false);
}

alibi_status model_new_sharded(struct model **out, const struct alibi_config *config,
                               struct device *device, enum dtype type)
{
    return make(out, config, device, type, false, true);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    device_lock(m->device);
    m->device->ops->buffer_free(m->device, m->gradients);
    m->device->ops->buffer_free(m->device, m->copies);
    m->device->ops->buffer_free(m->device, m->values);
    device_unlock(m->device);
    mem_free(m->parameters);
    mem_free(m->blocks);
    mem_free(m);
}

const char *model_difference(const struct model *a, const struct model *b)
{
    for (int i = 0; i < a->count || i < b->count; i++) {
        const struct parameter *p = i < a->count ? &a->parameters[i] : NULL;
        const struct parameter *q = i < b->count ? &b->parameters[i] : NULL;

        if (!p || !q || strcmp(p->name, q->name) != 0 ||
            memcmp(p->shape, q->shape, sizeof p->shape) != 0)
            return a->count > b->count || !q ? p->name : q->name;
    }
    for (int k = 0; k < a->pattern.kinds && k < b->pattern.kinds; k++) {
        const struct position *p = &a->pattern.kind[k], *q = &b->pattern.kind[k];

        if (a->positions[k] >= 0 &&
            (p->method != q->method ||
             (p->method->curve && p->method->curve(p) != p->method->curve(q))))
            return a->parameters[a->positions[k]].name;
    }
    return NULL;
}

alibi_status model_position_after(const struct model *m, int64_t done, int64_t steps,
                                  char position[ALIBI_NAME_MAX])
{
    return pattern_name_after(position, &m->pattern, &m->config, done, steps);
}

alibi_status model_tempered(const struct model *m, double temperature,
                            char position[ALIBI_NAME_MAX])
{
    return pattern_name_tempered(position, &m->pattern, &m->config, temperature);
}

alibi_status model_set_position(struct model *m, const char *position)
{
    alibi_status status;
    struct alibi_config config = m->config;
    struct model *other = NULL;
    const char *differing;

    memset(config.position, 0, sizeof config.position);
    snprintf(config.position, sizeof config.position, "%s", position);
    TRY(alibi_config_resolve(&config));
    TRY(model_outline(&other, &config, m->device, m->type));
    differing = model_difference(m, other);
    if (differing)
        TRY(fail(ALIBI_USAGE,
                 "position '%s' cannot become '%s': they do not learn the same, as '%s' shows",
                 m->config.position, config.position, differing));
    m->config = config;
    m->pattern = other->pattern;
    memcpy(m->positions, other->positions, sizeof m->positions);
out:
    model_free(other);
    return status;
}

alibi_status model_check_position(const struct alibi_config *config, const char *position,
                                  int64_t length)
{
    alibi_status status;
    struct device device = { .ops = &ops_ref }; /* never called: an outline has no buffers */
    struct alibi_config known = *config;
    struct model *m = NULL;

    if (known.vocab == 0)
        known.vocab = 1 << 20; /* that of a text which is not read yet: any will do */
    TRY(alibi_config_resolve(&known));
    TRY(model_outline(&m, &known, &device, DTYPE_F32));
    TRY(model_set_position(m, position));
    if (strcmp(known.position, m->config.position) != 0)
        TRY(pattern_check_endless(&m->pattern, position));
    TRY(model_check_length(m, length));
out:
    model_free(m);
    return status;
}

/* Matrices decay, norms and biases do not: these are few numbers, at the end of the buffer. */
alibi_status model_clear_gradients(struct model *m)
{
    alibi_status status;
    struct tensor vectors = model_gradient_part(m, m->decaying, m->span - m->decaying);

    device_lock(m->device);
    status = m->device->ops->fill(m->device, vectors, 0.0);
    for (int i = 0; i < m->count; i++)
        m->parameters[i].fresh = m->parameters[i].decays;
    device_unlock(m->device);
    return status;
}

alibi_status begin_gradient(const struct model *m, int index)
{
    return take_first_gradient(m, index)
               ? m->device->ops->fill(m->device, m->parameters[index].gradient, 0.0)
               : ALIBI_OK;
}

alibi_status model_refresh(struct model *m)
{
    alibi_status status;
    int64_t count = m->span - m->absent;
    struct tensor copies = model_flat_copies(m), masters = model_masters(m);

    if (!m->copies)
        return ALIBI_OK;
    copies = vector_part(copies, m->absent, count);
    device_lock(m->device);
    status = m->device->ops->copy(m->device, tensor_4(copies.data, copies.type, 1, 1, 1, count),
                                  tensor_4(masters.data, masters.type, 1, 1, 1, count));
    device_unlock(m->device);
    return status;
}
