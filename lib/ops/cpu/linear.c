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

/* What the product is then added to. */
static void repeat_bias(float *y, const float *bias, int64_t rows, int64_t out)
{
#pragma omp parallel for if (rows * out >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + r * out, bias, sizeof(float) * (size_t)out);
}

/* A single row, as in decoding, is a product with a vector: it reads the weights once, as they lie.
 * */
alibi_status cpu_linear_forward(struct device *dev, struct tensor y, struct tensor x,
                                struct tensor weight, struct tensor bias)
{
    int64_t rows = x.shape[0], out = weight.shape[0], in = weight.shape[1];
    float beta = present(bias) ? 1.0f : 0.0f;

    if (y.type != DTYPE_F32 || rows == 0 || out == 0 || in == 0)
        return ref_linear_forward(dev, y, x, weight, bias);
    TRY_RETURN(check_sizes(rows, in, out));
    if (present(bias))
        repeat_bias(y.data, bias.data, rows, out);
    if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)out, (int)in, 1.0f, weight.data, (int)in,
                    x.data, 1, beta, y.data, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)out, (int)in, 1.0f,
                    x.data, (int)in, weight.data, (int)in, beta, y.data, (int)out);
    return ALIBI_OK;
}

/* A task owns COLUMNS columns. ROWS rows are summed before they are added to the rest, which keeps
 * long sums exact. */
static void add_column_sums(float *sums, const float *dy, int64_t rows, int64_t out)
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

alibi_status cpu_linear_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                 struct tensor dbias, struct tensor dy, struct tensor x,
                                 struct tensor weight)
{
    int64_t rows = dy.shape[0], out = weight.shape[0], in = weight.shape[1];

    if (dy.type != DTYPE_F32 || rows == 0 || out == 0 || in == 0)
        return ref_linear_backward(dev, dx, dweight, dbias, dy, x, weight);
    TRY_RETURN(check_sizes(rows, in, out));
    if (present(dx))
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)in, (int)out, 1.0f,
                    dy.data, (int)out, weight.data, (int)in, 0.0f, dx.data, (int)in);
    if (present(dweight))
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)rows, 1.0f,
                    dy.data, (int)out, x.data, (int)in, 1.0f, dweight.data, (int)in);
    if (present(dbias))
        add_column_sums(dbias.data, dy.data, rows, out);
    return ALIBI_OK;
}

/* The reference puts the parts of this table together; only the column sums are our own. */
alibi_status cpu_linear_activation_backward(struct device *dev, int kind, struct tensor dup,
                                            struct tensor dup_sums, struct tensor scratch,
                                            struct tensor dweight, struct tensor dbias,
                                            struct tensor dy, struct tensor activated,
                                            struct tensor weight, struct tensor up)
{
    bool ours = dup.type == DTYPE_F32 && present(dup_sums);
    struct tensor rest = ours ? tensor_none() : dup_sums;

    TRY_RETURN(ref_linear_activation_backward(dev, kind, dup, rest, scratch, dweight, dbias, dy,
                                              activated, weight, up));
    if (ours)
        add_column_sums(dup_sums.data, dup.data, dup.shape[0], dup.shape[1]);
    return ALIBI_OK;
}
