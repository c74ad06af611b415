/* products.c - the matrix products of a training step and nothing else
 *
 * Same shapes, same weights, same order and number as in the step, through the same linear
 * operations without biases; so the ratio of the two times shows the cost of everything else. All
 * products share their activation buffers, which favours the caches, so the measured rate is rather
 * too high than too low. Operands are random numbers: with equal ones fewer transistors of a GPU
 * switch, its clock rises, and no step can reach the measured rate. */
#include <math.h>

#include "bench/bench.h"

enum { SEED = 1 };

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add(struct products *p, int weight, int64_t rows, int times)
{
    p->list[p->count++] = (struct product){ .weight = weight, .rows = rows, .times = times };
}

static void list_block(struct products *p, const struct block_parameters *b, int64_t rows)
{
    add(p, b->qkv, rows, 1);
    add(p, b->out, rows, 1);
    add(p, b->up, rows, 1);
    add(p, b->down, rows, 1);
}

/* The pieces of a softmax, with a shorter one at the end where they do not divide the rows. */
static void list_softmax(struct products *p, int weight, int64_t rows)
{
    int64_t piece = rows > 0 ? model_head_rows(p->model, weight, rows) : 1;

    add(p, weight, piece, (int)(rows / piece));
    if (rows % piece > 0)
        add(p, weight, rows % piece, 1);
}

/* The rows of cluster k, if ids are as frequent as those of bench_tokens(). */
static int64_t rows_of(const struct model *m, int k, int64_t rows)
{
    double first = (double)m->cluster[k].first + 1, end = first + (double)m->cluster[k].count;

    return (int64_t)((double)rows * log(end / first) / log((double)m->config.vocab + 1));
}

static void list_ends(struct products *p, int64_t rows)
{
    const struct model *m = p->model;

    list_softmax(p, m->head, rows);
    for (int k = 0; k < m->clusters; k++) {
        add(p, m->cluster[k].projection, rows_of(m, k, rows), 1);
        if (k == 0)
            continue;
        add(p, m->cluster[k].head_projection, rows_of(m, k, rows), 1);
        list_softmax(p, m->cluster[k].head, rows_of(m, k, rows));
    }
}

/* Elements of the largest input and output of any product. */
static void largest(const struct products *p, int64_t *in, int64_t *out)
{
    *in = *out = 0;
    for (int i = 0; i < p->count; i++) {
        struct tensor w = p->model->parameters[p->list[i].weight].value;

        *out = larger(*out, p->list[i].rows * w.shape[0]);
        *in = larger(*in, p->list[i].rows * w.shape[1]);
    }
}

/* Draws from a normal distribution. The first DRAWN are made here; they repeat on the device, which
 * doubles what it has: rows of a tile are still different. */
static alibi_status draw(struct device *dev, struct tensor all, uint64_t stream)
{
    enum { DRAWN = 1 << 18 };
    alibi_status status = ALIBI_OK;
    int64_t count = tensor_count(all), done = count < DRAWN ? count : DRAWN;
    float *numbers = NULL;

    TRY(NEW_ARRAY(&numbers, done + 1, "random operands"));
    for (int64_t i = 0; i < done; i++)
        numbers[i] = (float)random_normal(SEED, RANDOM_STREAM(RANDOM_BENCH, stream), (uint64_t)i);
    TRY(dev->ops->upload(dev, vector_part(all, 0, done), numbers));
    for (int64_t more; done < count; done += more) {
        more = count - done < done ? count - done : done;
        TRY(dev->ops->copy(dev, tensor_4(tensor_at(all, done), all.type, 1, 1, 1, more),
                           tensor_4(all.data, all.type, 1, 1, 1, more)));
    }
out:
    mem_free(numbers);
    return status;
}

static alibi_status new_operand(struct products *p, void **out, int64_t count, uint64_t stream)
{
    struct device *dev = p->model->device;
    size_t bytes;

    if (!size_multiply(&bytes, (size_t)count, dtype_bytes(p->model->type)))
        return fail(ALIBI_MEMORY, "benchmark operands of %lld numbers do not fit in memory",
                    (long long)count);
    TRY_RETURN(dev->ops->buffer_new(dev, out, bytes, "benchmark operands"));
    return draw(dev, tensor_1(*out, p->model->type, count), stream);
}

alibi_status products_init(struct products *p, struct model *m, int64_t rows)
{
    int64_t in, out;

    *p = (struct products){ .model = m };
    TRY_RETURN(
        NEW_ARRAY(&p->list, 4 * m->config.layers + 2 + 4 * m->clusters, "the list of products"));
    for (int64_t n = 0; n < m->config.layers; n++)
        list_block(p, &m->blocks[n], rows);
    list_ends(p, rows);
    largest(p, &in, &out);
    TRY_RETURN(new_operand(p, &p->x, in, 1));
    TRY_RETURN(new_operand(p, &p->y, out, 2));
    return new_operand(p, &p->dx, in, 3);
}

void products_fini(struct products *p)
{
    struct device *dev = p->model ? p->model->device : NULL;

    if (!dev)
        return;
    dev->ops->buffer_free(dev, p->x);
    dev->ops->buffer_free(dev, p->y);
    dev->ops->buffer_free(dev, p->dx);
    mem_free(p->list);
}

static alibi_status forward_product(const struct products *p, const struct product *a)
{
    struct device *dev = p->model->device;
    struct tensor w = p->model->parameters[a->weight].value;
    struct tensor x = tensor_2(p->x, w.type, a->rows, w.shape[1]),
                  y = tensor_2(p->y, w.type, a->rows, w.shape[0]);

    for (int i = 0; i < a->times; i++)
        TRY_RETURN(
            dev->ops->linear_forward(dev, &(struct linear_args){ .y = y, .x = x, .weight = w }));
    return ALIBI_OK;
}

static alibi_status backward_products(const struct products *p, const struct product *a)
{
    struct device *dev = p->model->device;
    struct tensor w = p->model->parameters[a->weight].value,
                  dw = p->model->parameters[a->weight].gradient;
    struct tensor x = tensor_2(p->x, w.type, a->rows, w.shape[1]),
                  dx = tensor_2(p->dx, w.type, a->rows, w.shape[1]);
    struct tensor dy = tensor_2(p->y, w.type, a->rows, w.shape[0]);

    for (int i = 0; i < a->times; i++)
        TRY_RETURN(dev->ops->linear_backward(
            dev, &(struct linear_args){
                     .dx = dx, .dweight = dw, .first = i == 0, .dy = dy, .x = x, .weight = w }));
    return ALIBI_OK;
}

alibi_status products_run(struct products *p)
{
    for (int i = 0; i < p->count; i++)
        TRY_RETURN(forward_product(p, &p->list[i]));
    for (int i = p->count - 1; i >= 0; i--)
        TRY_RETURN(backward_products(p, &p->list[i]));
    return ALIBI_OK;
}

double products_flops(const struct products *p)
{
    double flops = 0;

    for (int i = 0; i < p->count; i++) {
        const struct product *a = &p->list[i];
        const struct parameter *w = &p->model->parameters[a->weight];

        flops += 3 * 2 * (double)a->rows * a->times * (double)w->count;
    }
    return flops;
}
