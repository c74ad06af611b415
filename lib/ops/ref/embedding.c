/* embedding.c
 *
 *   y[b, l] = scale * weight[tokens[b, l]] + table[start + l] */
#include "ops/ref/ref.h"

alibi_status ref_embedding_forward(struct device *dev, struct tensor y, struct tensor tokens,
                                   struct tensor weight, struct tensor table, int64_t start,
                                   double scale)
{
    int64_t B = y.shape[0], L = y.shape[1], C = y.shape[2];

    (void)dev;
    for (int64_t row = 0; row < B * L; row++) {
        int64_t token = get_index(tokens, row), position = start + row % L;
        for (int64_t c = 0; c < C; c++) {
            double sum = scale * get(weight, token * C + c);
            if (present(table))
                sum += get(table, position * C + c);
            set(y, row * C + c, sum);
        }
    }
    return ALIBI_OK;
}

/* A token occurs many times: its rows are summed in double first, then added to the gradient once.
 * */
static alibi_status add_to_weight(struct tensor dweight, struct tensor dy, struct tensor tokens,
                                  double scale)
{
    int64_t rows = tensor_count(tokens), C = dweight.shape[1], count = tensor_count(dweight);
    double *sum = NULL;

    TRY_RETURN(NEW_ZERO_ARRAY(&sum, count, "sums of the embedding's gradient"));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < C; c++)
            sum[get_index(tokens, row) * C + c] += get(dy, row * C + c);
    for (int64_t i = 0; i < count; i++)
        add(dweight, i, scale * sum[i]);
    mem_free(sum);
    return ALIBI_OK;
}

static void add_to_table(struct tensor dtable, struct tensor dy, int64_t start)
{
    int64_t B = dy.shape[0], L = dy.shape[1], C = dy.shape[2];

    for (int64_t l = 0; l < L; l++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0.0;
            for (int64_t b = 0; b < B; b++)
                sum += get(dy, (b * L + l) * C + c);
            add(dtable, (start + l) * C + c, sum);
        }
}

alibi_status ref_embedding_backward(struct device *dev, struct tensor dweight, struct tensor dtable,
                                    struct tensor dy, struct tensor tokens, int64_t start,
                                    double scale)
{
    (void)dev;
    TRY_RETURN(add_to_weight(dweight, dy, tokens, scale));
    if (present(dtable))
        add_to_table(dtable, dy, start);
    return ALIBI_OK;
}
