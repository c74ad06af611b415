/* rounds.c - batches divided among ranks
 *
 * Rank r of N computes batch number r of a round of N batches. Then every rank gets the numbers of
 * all batches and adds them in the order of the batches, as a single process does. The batches are
 * those of a single process too, because the bits of a row may depend on the rows beside it. So
 * results have the same bits for any N. */
#include <string.h>

#include "eval/eval.h"

int64_t rounds_rows(const struct device *dev, int64_t inputs, int64_t left)
{
    int64_t tokens = dev->ops->traits.batch_tokens, rows = inputs < tokens ? tokens / inputs : 1;

    return rows < left ? rows : left;
}

alibi_status rounds_run(const struct rounds *r)
{
    alibi_status status;
    alibi_comm *comm = call_comm(r->call);
    int size = comm_size(comm), rank = comm_rank(comm);
    char *numbers = NULL; /* [size][bytes] */

    status = NEW_ZERO_ARRAY(&numbers, (int64_t)r->bytes * size, "the numbers of a batch");
    TRY(comm_agree(comm, status));
    for (int64_t k = 0, rows; k < r->count;) {
        int64_t next = k;

        for (int i = 0; i < size && next < r->count; i++, next += rows) {
            rows = r->rows(r->user, next);
            if (i != rank)
                continue;
            status = call_stopped(r->call)
                         ? r->stopped(r->user)
                         : r->compute(r->user, next, rows, numbers + (size_t)i * r->bytes);
        }
        TRY(comm_agree(comm, status));
        TRY(comm_collect(comm, numbers, r->bytes));
        for (int i = 0; i < size && k < r->count && status == ALIBI_OK; i++, k += rows) {
            rows = r->rows(r->user, k);
            status = r->add(r->user, k, rows, numbers + (size_t)i * r->bytes);
        }
        TRY(comm_agree(comm, status));
    }
out:
    mem_free(numbers);
    return status;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

alibi_status rounds_check(const alibi_model *model, const alibi_corpus *corpus, const void *request,
                          size_t bytes, const struct alibi_call *call)
{
    alibi_status status;
    alibi_comm *comm = call_comm(call);
    struct text json = { 0 };
    struct alibi_config config = model->model->config;
    struct alibi_option_group group = { .title = "model", .values = &config };
    uint32_t text = corpus_checksum(corpus);
    double skip = call_skip(call);

    if (comm_size(comm) == 1)
        return ALIBI_OK;
    group.options = alibi_config_options(&group.count);
    text_append(&json, "%s", last_name(model->path)); /* ranks may open different checkpoints */
    status = text_status(&json);
    if (status == ALIBI_OK)
        status = options_format(&group, 1, &json);
    TRY(comm_agree(comm, status));
    TRY(comm_same(comm, json.data, json.length, "model"));
    TRY(comm_same(comm, &model->weights, sizeof model->weights, "file of weights"));
    TRY(comm_same(comm, &text, sizeof text, "text"));
    TRY(comm_same(comm, request, bytes, "request"));
    TRY(comm_same(comm, &skip, sizeof skip, "skipping budget"));
out:
    text_free(&json);
    return status;
}
