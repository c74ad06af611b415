/* learned.c - the numbers that position methods have learned for each head: slopes, numbers of
 * curves, biases of gates, factors of logn. They are read from the checkpoint when training ends,
 * because checkpoints may be deleted, and are stored in result.json. */
#include "experiment/experiment.h"

enum { HEADS_MAX = 65536 };

alibi_status learned_collect(struct learned *out, const char *run, const struct alibi_call *call)
{
    alibi_status status;
    struct learned all = { 0 };
    struct alibi_config config;
    alibi_tokenizer *tokenizer = NULL;
    char *path = NULL;

    TRY(checkpoint_find(&path, run, call));
    if (path == NULL)
        goto out;
    TRY(checkpoint_read_config(path, &config, &tokenizer));
    TRY(learned_read(&all, path, &config));
    learned_fini(out);
    *out = all;
    all = (struct learned){ 0 };
out:
    learned_fini(&all);
    alibi_tokenizer_free(tokenizer);
    mem_free(path);
    return status;
}

void learned_write(struct json_writer *w, const struct learned *l)
{
    bool any = false;

    for (int64_t i = 0; i < l->count; i++)
        any |= l->row[i].trained;
    if (!any)
        return;
    json_write_array(w, "learned");
    for (int64_t i = 0; i < l->count; i++) {
        if (!l->row[i].trained)
            continue;
        json_write_object_line(w, NULL);
        json_write_string(w, "name", l->row[i].name);
        json_write_int(w, "place", l->row[i].place);
        json_write_array_line(w, "heads");
        for (int64_t h = 0; h < l->row[i].heads; h++)
            json_write_real(w, NULL, l->row[i].value[h]);
        json_write_end(w);
        json_write_end(w);
    }
    json_write_end(w);
}

alibi_status learned_load(struct learned *out, const json_t *file, const char *path)
{
    const json_t *list = json_object_get(file, "learned");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *heads = json_object_get(entry, "heads");
        struct learned_row row = { .trained = true, .heads = (int64_t)json_array_size(heads) };
        const char *name;

        TRY_RETURN(json_get_text(entry, "name", &name, path));
        TRY_RETURN(json_get_int(entry, "place", -1, INT32_MAX, &row.place, path));
        if (row.heads < 1 || row.heads > HEADS_MAX)
            return fail(ALIBI_BAD_INPUT, "'%s': '%s' has numbers of %lld heads", path, name,
                        (long long)row.heads);
        snprintf(row.name, sizeof row.name, "%s", name);
        TRY_RETURN(RESERVE_ARRAY(&out->row, &out->capacity, out->count + 1, "numbers per head"));
        TRY_RETURN(NEW_ARRAY(&row.value, row.heads, "numbers per head"));
        for (int64_t h = 0; h < row.heads; h++)
            row.value[h] = json_number_value(json_array_get(heads, (size_t)h));
        out->row[out->count++] = row;
    }
    return ALIBI_OK;
}

/* The same number of all seeds is one row of dots. */
alibi_status learned_view(struct report_experiment *x, const alibi_experiment *e)
{
    for (int m = 0; m < e->models; m++)
        for (int k = 0; k < e->model[m].seeds.count; k++) {
            const struct learned *l = &e->model[m].seed[k].learned;
            bool several = e->model[m].seeds.count > 1;

            for (int64_t i = 0; i < l->count; i++) {
                if (!l->row[i].trained)
                    continue;
                TRY_RETURN(RESERVE_ARRAY(&x->numbers, &x->numbers_room, x->numbers_count + 1,
                                         "the report of an experiment"));
                x->numbers[x->numbers_count++] =
                    (struct report_numbers){ .name = l->row[i].name,
                                             .method = m,
                                             .seed = several ? e->model[m].seeds.at[k] : -1,
                                             .place = l->row[i].place,
                                             .heads = l->row[i].heads,
                                             .value = l->row[i].value };
            }
        }
    return ALIBI_OK;
}
