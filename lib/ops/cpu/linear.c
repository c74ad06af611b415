/* linear.c - matrix products through CBLAS
 *
 *   y = x weight^T + bias,   dx = dy weight,   dweight += dy^T x,   dbias += column sums of dy
 *
 * All matrices are row-major and contiguous. CBLAS threads itself from the same pool, so it is
 * never called from a parallel region. */
#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "ops/cpu/cpu.h"

enum { COLUMNS = 64, ROWS = 64 };

/* CBLAS counts in int. */
static alibi_status check_sizes(int64_t rows, int64_t in, int64_t out)
{
    if (rows > INT_MAX || in > INT_MAX || out > INT_MAX)
        return fail(
            ALIBI_BAD_INPUT,
            "a product of %lld rows from %lld to %lld numbers is beyond CBLAS, which counts to %d",
            (long long)rows, (long long)in, (long long)out, INT_MAX);
    return ALIBI_OK;
}

/* The product is then added to these rows. */
static void repeat_bias(float *y, const float *bias, int64_t rows, int64_t out)
{
#pragma omp parallel for if (rows * out >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + r * out, bias, sizeof(float) * (size_t)out);
}

/* A single row is a product with a vector, which reads the weights once, in their order. */
alibi_status cpu_linear_forward(struct device *dev, const struct linear_args *a)
{
    int64_t rows = a->x.shape[0], out = a->weight.shape[0], in = a->weight.shape[1];
    float beta = present(a->bias) ? 1.0f : 0.0f;

    if (a->y.type != DTYPE_F32 || rows == 0 || out == 0 || in == 0)
        return ref_linear_forward(dev, a);
    TRY_RETURN(check_sizes(rows, in, out));
    TRY_RETURN(norm_before(dev, a->norm));
    if (present(a->bias))
        repeat_bias(a->y.data, a->bias.data, rows, out);
    if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)out, (int)in, 1.0f, a->weight.data, (int)in,
                    a->x.data, 1, beta, a->y.data, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)out, (int)in, 1.0f,
                    a->x.data, (int)in, a->weight.data, (int)in, beta, a->y.data, (int)out);
    return ALIBI_OK;
}

/* A task owns COLUMNS columns. Rows are summed ROWS at a time before they are added to the rest,
 * which keeps long sums exact. */
void cpu_add_column_sums(float *sums, const float *dy, int64_t rows, int64_t out)
{
#pragma omp parallel for if (rows * out >= CPU_PARALLEL_MIN)
    for (int64_t c = 0; c < out; c += COLUMNS) {
        int64_t width = out - c < COLUMNS ? out - c : COLUMNS;
        for (int64_t first = 0; first < rows; first += ROWS) {
            int64_t end = first + ROWS < rows ? first + ROWS : rows;
            float sum[COLUMNS] = { 0 };
            for (int64_t r = first; r < end; r++)
                for (int64_t n = 0; n < width; n++)
                    sum[n] += dy[r * out + c + n];
            for (int64_t n = 0; n < width; n++)
                sums[c + n] += sum[n];
        }
    }
}

alibi_status cpu_linear_backward(struct device *dev, const struct linear_args *a)
{
    int64_t rows = a->dy.shape[0], out = a->weight.shape[0], in = a->weight.shape[1];

    if (a->dy.type != DTYPE_F32 || rows == 0 || out == 0 || in == 0)
        return ref_linear_backward(dev, a);
    TRY_RETURN(check_sizes(rows, in, out));
    if (present(a->dx))
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)in, (int)out, 1.0f,
                    a->dy.data, (int)out, a->weight.data, (int)in, 0.0f, a->dx.data, (int)in);
    if (present(a->dweight))
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)rows, 1.0f,
                    a->dy.data, (int)out, a->x.data, (int)in, a->first ? 0.0f : 1.0f,
                    a->dweight.data, (int)in);
    if (present(a->dbias))
        cpu_add_column_sums(a->dbias.data, a->dy.data, rows, out);
    return ALIBI_OK;
}

/* The reference puts the parts of this table together; only the column sums are our own. */
alibi_status cpu_linear_activation_backward(struct device *dev,
                                            const struct linear_activation_args *a)
{
    struct linear_activation_args rest = *a;

    if (a->dup.type != DTYPE_F32 || !present(a->dup_sums))
        return ref_linear_activation_backward(dev, a);
    rest.dup_sums = tensor_none();
    TRY_RETURN(ref_linear_activation_backward(dev, &rest));
    cpu_add_column_sums(a->dup_sums.data, a->dup.data, a->dup.shape[0], a->dup.shape[1]);
    return ALIBI_OK;
}
