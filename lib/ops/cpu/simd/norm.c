/* norm.c - layer norm and RMS norm
 *
 *   y = n * weight + bias,   n = (x - mean) * rstd,   rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 *
 * RMS norm is the same with 0 for the mean. Backward, with g = dy * weight:
 *
 *   dx += rstd * (g - mean(g) - n * mean(g * n)),   dweight += sum of dy * n,   dbias += sum of dy
 *
 * where RMS norm has no mean(g). The norm is of x, or of sum = x + dropout(branch): a row of the
 * sum is normalized while it is in the cache. Rows are cut into pieces by their number alone; each
 * piece sums its own dweight and dbias on the way, and the pieces are added in order. */
#include "ops/cpu/simd/simd.h"
#include "ops/cpu/simd/vec.h"

#define add_branch SIMD(residual_range)

enum { PIECES = 32, PIECE_MIN = 16 };

struct norm {
    bool centred; /* layer norm */
    int64_t rows, C;
    const float *x;             /* the rows to normalize */
    const float *weight, *bias; /* bias may be NULL */
    float *mean, *rstd;         /* mean is NULL for RMS norm */
    float *y;                   /* backward: may be NULL */
    struct { /* forward: x is to become from + drop(branch) first, where branch is not NULL */
        float *sum;
        const float *from, *branch;
        struct dropout drop;
    } residual;
    const float *dy; /* backward */
    float *dx;
    float *sums; /* [pieces, 2, C]: dweight, dbias of each piece */
};

/* ---- forward */

static float row_mean(const float *x, int64_t C)
{
    vec sum = { 0 };

    for (int64_t c = 0; c < C; c += SIMD_WIDTH)
        sum += vec_load_some(x + c, C - c);
    return vec_sum(sum) / (float)C;
}

static float row_variance(const float *x, float mean, int64_t C)
{
    vec sum = { 0 };

    for (int64_t c = 0; c < C; c += SIMD_WIDTH) {
        vec d = vec_first(vec_load_some(x + c, C - c) - mean, C - c);
        sum += d * d;
    }
    return vec_sum(sum) / (float)C;
}

/* Never inlined: both directions must give the same bits, so both run the same instructions. */
__attribute__((noinline)) static void normalize_row(const struct norm *n, int64_t r, float mean,
                                                    float rstd)
{
    const float *x = n->x + r * n->C;
    float *y = n->y + r * n->C;

    for (int64_t c = 0; c < n->C; c += SIMD_WIDTH) {
        int64_t left = n->C - c;
        vec bias = n->bias ? vec_load_some(n->bias + c, left) : (vec){ 0 };
        vec normal = (vec_load_some(x + c, left) - mean) * rstd;
        vec_store_some(y + c, normal * vec_load_some(n->weight + c, left) + bias, left);
    }
}

static void forward(const struct norm *n, float eps)
{
#pragma omp parallel for if (n->rows * n->C >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < n->rows; r++) {
        const float *x = n->x + r * n->C;
        if (n->residual.branch)
            add_branch(n->residual.sum, n->residual.from, n->residual.branch, n->residual.drop,
                       r * n->C, n->C);
        float mean = n->centred ? row_mean(x, n->C) : 0.0f;
        float rstd = 1.0f / sqrtf(row_variance(x, mean, n->C) + eps);
        normalize_row(n, r, mean, rstd);
        n->rstd[r] = rstd;
        if (n->centred)
            n->mean[r] = mean;
    }
}

/* ---- backward */

struct row_sums {
    float g, gn; /* of g and of g * n */
};

/* Sums along the row, and the row's share of dweight and dbias. */
static struct row_sums sum_row(const struct norm *n, int64_t r, float mean, float rstd,
                               float *dweight, float *dbias)
{
    const float *x = n->x + r * n->C, *dy = n->dy + r * n->C;
    vec g_sum = { 0 }, gn_sum = { 0 };

    for (int64_t c = 0; c < n->C; c += SIMD_WIDTH) {
        int64_t left = n->C - c;
        vec d = vec_load_some(dy + c, left), normal = (vec_load_some(x + c, left) - mean) * rstd;
        vec g = d * vec_load_some(n->weight + c, left);
        g_sum += g;
        gn_sum += g * normal;
        vec_store_some(dweight + c, vec_load_some(dweight + c, left) + d * normal, left);
        vec_store_some(dbias + c, vec_load_some(dbias + c, left) + d, left);
    }
    return (struct row_sums){ vec_sum(g_sum), vec_sum(gn_sum) };
}

static void add_input_gradient(const struct norm *n, int64_t r, float mean, float rstd,
                               float g_mean, float gn_mean)
{
    const float *x = n->x + r * n->C, *dy = n->dy + r * n->C;
    float *dx = n->dx + r * n->C;

    for (int64_t c = 0; c < n->C; c += SIMD_WIDTH) {
        int64_t left = n->C - c;
        vec normal = (vec_load_some(x + c, left) - mean) * rstd;
        vec g = vec_load_some(dy + c, left) * vec_load_some(n->weight + c, left);
        vec_store_some(dx + c, vec_load_some(dx + c, left) + rstd * (g - g_mean - normal * gn_mean),
                       left);
    }
}

static void backward_piece(const struct norm *n, int64_t first, int64_t end, float *dweight,
                           float *dbias)
{
    for (int64_t c = 0; c < n->C; c++)
        dweight[c] = dbias[c] = 0.0f;
    for (int64_t r = first; r < end; r++) {
        float mean = n->centred ? n->mean[r] : 0.0f, rstd = n->rstd[r];
        struct row_sums sum = sum_row(n, r, mean, rstd, dweight, dbias);
        float g_mean = n->centred ? sum.g / (float)n->C : 0.0f;
        add_input_gradient(n, r, mean, rstd, g_mean, sum.gn / (float)n->C);
        if (n->y)
            normalize_row(n, r, mean, rstd);
    }
}

/* out[c] += the sum of column c of the pieces, which are `apart` numbers from each other. */
static void add_pieces(float *out, const float *sums, int64_t pieces, int64_t apart, int64_t C)
{
    for (int64_t p = 0; p < pieces; p++)
        for (int64_t c = 0; c < C; c++)
            out[c] += sums[p * apart + c];
}

static alibi_status backward(struct norm *n, float *dweight, float *dbias)
{
    int64_t wanted = (n->rows + PIECE_MIN - 1) / PIECE_MIN,
            pieces = wanted < PIECES ? wanted : PIECES, C = n->C;

    if (n->rows == 0)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&n->sums, pieces * 2 * C, "the gradients of a norm's parameters"));
#pragma omp parallel for if (n->rows * C >= CPU_PARALLEL_MIN)
    for (int64_t p = 0; p < pieces; p++)
        backward_piece(n, p * n->rows / pieces, (p + 1) * n->rows / pieces, n->sums + p * 2 * C,
                       n->sums + (p * 2 + 1) * C);
    add_pieces(dweight, n->sums, pieces, 2 * C, C);
    if (dbias)
        add_pieces(dbias, n->sums + C, pieces, 2 * C, C);
    mem_free(n->sums);
    return ALIBI_OK;
}

/* ---- operations */

static struct norm norm_of(const struct norm_args *a)
{
    return (struct norm){
        .centred = a->kind == ALIBI_LAYERNORM,
        .rows = a->x.shape[0],
        .C = a->x.shape[1],
        .x = a->x.data,
        .weight = a->weight.data,
        .bias = a->bias.data,
        .mean = a->mean.data,
        .rstd = a->rstd.data,
        .y = a->y.data,
    };
}

alibi_status SIMD(norm_forward)(struct device *dev, const struct norm_args *a)
{
    struct norm n = norm_of(a);

    if (a->x.type != DTYPE_F32)
        return ref_norm_forward(dev, a);
    if (present(a->branch)) {
        n.x = n.residual.sum = a->sum.data;
        n.residual.from = a->x.data;
        n.residual.branch = a->branch.data;
        n.residual.drop = a->dropout;
    }
    forward(&n, (float)a->eps);
    return ALIBI_OK;
}

alibi_status SIMD(norm_backward)(struct device *dev, const struct norm_args *a)
{
    struct norm n = norm_of(a);

    if (a->x.type != DTYPE_F32)
        return ref_norm_backward(dev, a);
    n.dy = a->dy.data;
    n.dx = a->dx.data;
    TRY_RETURN(backward(&n, a->dweight.data, a->dbias.data));
    if (present(a->dx_sums)) /* as a linear layer sums the gradient of its bias, to the bit */
        cpu_add_column_sums(a->dx_sums.data, n.dx, n.rows, n.C);
    return ALIBI_OK;
}
