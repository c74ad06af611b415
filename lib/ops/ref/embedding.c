/* embedding.c
 *
 *   y[b, l] = scale * weight[tokens[b, l]] + table[position] */
#include "ops/ref/ref.h"

alibi_status ref_embedding_forward(struct device *dev, const struct embedding_args *a)
{
    int64_t B = a->y.shape[0], L = a->y.shape[1], C = a->y.shape[2];

    (void)dev;
    for (int64_t row = 0; row < B * L; row++) {
        int64_t token = get_index(a->tokens, row);
        int64_t position =
            ragged_present(a->ragged) ? get_index(a->ragged.length, row) - 1 : a->start + row % L;
        for (int64_t c = 0; c < C; c++) {
            double sum = a->scale * get(a->weight, token * C + c);
            if (present(a->table))
                sum += get(a->table, position * C + c);
            set(a->y, row * C + c, sum);
        }
    }
    return ALIBI_OK;
}

/* A token occurs many times: its rows are summed in double first, then added to the gradient once.
 */
alibi_status ref_embedding_backward(struct device *dev, const struct embedding_args *a)
{
    int64_t B = a->dy.shape[0], L = a->dy.shape[1], C = a->dy.shape[2];
    int64_t count = present(a->dweight) ? tensor_count(a->dweight) : 0;
    double *sum = NULL;

    (void)dev;
    TRY_RETURN(NEW_ZERO_ARRAY(&sum, count, "sums of the embedding's gradient"));
    for (int64_t row = 0; count > 0 && row < B * L; row++)
        for (int64_t c = 0; c < C; c++)
            sum[get_index(a->tokens, row) * C + c] += get(a->dy, row * C + c);
    for (int64_t i = 0; i < count; i++)
        add(a->dweight, i, a->scale * sum[i]);
    mem_free(sum);
    for (int64_t l = 0; present(a->dtable) && l < L; l++)
        for (int64_t c = 0; c < C; c++) {
            double all = 0.0;
            for (int64_t b = 0; b < B; b++)
                all += get(a->dy, (b * L + l) * C + c);
            add(a->dtable, (a->start + l) * C + c, all);
        }
    return ALIBI_OK;
}
