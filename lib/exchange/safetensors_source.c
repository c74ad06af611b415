/* safetensors_source.c - tensors of safetensors files: of one, or of several that an index names */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "exchange/exchange.h"

enum { INDEX_BYTES_MAX = 64 << 20, READ_BYTES = 1 << 20 };

static const char index_name[] = NAME_WEIGHTS ".index.json";

struct files_source {
    struct tensor_source base;
    struct file **files;
    int file_count;
    struct safetensors **headers; /* [file_count], which own the names */
    int *file_of;                 /* [base.count] */
    char *block;                  /* READ_BYTES, of a type other than F32 */
};

static void free_files(struct tensor_source *s)
{
    struct files_source *f = (struct files_source *)s;

    for (int i = 0; i < f->file_count; i++) {
        file_close(f->files[i]);
        safetensors_free(f->headers[i]);
    }
    mem_free(f->files);
    mem_free(f->headers);
    mem_free(f->file_of);
    mem_free(f->block);
    mem_free(s->tensors);
    mem_free(f);
}

static alibi_status read_rows(struct tensor_source *s, int tensor, int64_t row, int64_t rows,
                              float *values)
{
    struct files_source *f = (struct files_source *)s;
    const struct safetensor *t = &s->tensors[tensor];
    int64_t size = (int64_t)safetensor_type_bytes(t->type), most = READ_BYTES / size;
    int64_t columns = tensor_source_columns(t), left = rows * columns;
    int64_t at = t->begin + row * columns * size;
    struct file *file = f->files[f->file_of[tensor]];

    if (strcmp(t->type, "F32") == 0)
        return file_read_at(file, values, (size_t)left * sizeof *values, at);
    for (; left > 0; left -= most, values += most, at += most * size) {
        int64_t some = left < most ? left : most;
        TRY_RETURN(file_read_at(file, f->block, (size_t)(some * size), at));
        weights_unpack(values, f->block, some, t->type);
    }
    return ALIBI_OK;
}

static alibi_status add_file(struct files_source *f, const char *path)
{
    const struct safetensors *header;
    int count = f->base.count;

    TRY_RETURN(file_open_read(&f->files[f->file_count], path));
    f->file_count++;
    TRY_RETURN(safetensors_open(&f->headers[f->file_count - 1], path));
    header = f->headers[f->file_count - 1];
    if (header->count > INT_MAX - count)
        return fail(ALIBI_BAD_INPUT, "'%s' and the files before it have too many tensors", path);
    TRY_RETURN(mem_grow((void **)&f->base.tensors, (size_t)count * sizeof *f->base.tensors,
                        (size_t)(count + header->count) * sizeof *f->base.tensors,
                        "a list of tensors"));
    TRY_RETURN(mem_grow((void **)&f->file_of, (size_t)count * sizeof *f->file_of,
                        (size_t)(count + header->count) * sizeof *f->file_of, "a list of tensors"));
    for (int i = 0; i < header->count; i++) {
        f->base.tensors[count + i] = header->tensors[i];
        f->file_of[count + i] = f->file_count - 1;
    }
    f->base.count += header->count;
    return ALIBI_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensor *s = *(const struct safetensor *const *)a,
                            *t = *(const struct safetensor *const *)b;
    int order = strcmp(s->name, t->name);

    return order != 0 ? order : s < t ? -1 : s > t;
}

/* Two files must not have a tensor in common. */
static alibi_status check_distinct(const struct files_source *f, char *const *paths)
{
    alibi_status status;
    const struct safetensor **sorted = NULL;
    int count = f->base.count;

    TRY(NEW_ARRAY(&sorted, count, "a list of tensors"));
    for (int i = 0; i < count; i++)
        sorted[i] = &f->base.tensors[i];
    if (count > 0)
        qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
    for (int i = 1; i < count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            TRY(fail(ALIBI_BAD_INPUT, "'%s': tensor '%s' is in another file as well",
                     paths[f->file_of[sorted[i] - f->base.tensors]], sorted[i]->name));
out:
    mem_free(sorted);
    return status;
}

static alibi_status open_files(struct tensor_source **out, char *const *paths, int count)
{
    alibi_status status;
    struct files_source *f = NULL;

    TRY(NEW_ZERO_ARRAY(&f, 1, "a source of tensors"));
    f->base.free = free_files;
    f->base.read = read_rows;
    f->base.types = "F32, BF16 and F16";
    TRY(NEW_ARRAY(&f->block, READ_BYTES, "a block of weights"));
    TRY(NEW_ZERO_ARRAY(&f->files, count, "a source of tensors"));
    TRY(NEW_ZERO_ARRAY(&f->headers, count, "a source of tensors"));
    for (int i = 0; i < count; i++)
        TRY(add_file(f, paths[i]));
    TRY(check_distinct(f, paths));
    *out = &f->base;
    f = NULL;
out:
    if (f)
        free_files(&f->base);
    return status;
}

alibi_status safetensors_source_file(struct tensor_source **out, const char *path)
{
    char *paths[] = { (char *)path };

    return open_files(out, paths, 1);
}

static alibi_status open_index(struct tensor_source **out, const char *folder, const char *path)
{
    alibi_status status;
    struct weight_index *index = NULL;
    char **paths = NULL, *bytes = NULL;
    size_t length = 0;
    int count = 0;

    TRY(file_read_all(&bytes, &length, path, INDEX_BYTES_MAX));
    TRY(weight_index_parse(&index, bytes, length, path));
    TRY(NEW_ZERO_ARRAY(&paths, index->count, "an index of tensors"));
    for (; count < index->count; count++)
        TRY(path_join(&paths[count], folder, index->files[count]));
    TRY(open_files(out, paths, count));
out:
    mem_free(bytes);
    weight_index_free(index);
    names_free(paths, count);
    return status;
}

/* Pickled weights run code when they are loaded. */
static alibi_status fail_without_weights(const char *folder)
{
    static const char *const pickled[] = { "pytorch_model.bin", "pytorch_model.bin.index.json" };
    bool has = false;

    for (int i = 0; i < 2 && !has; i++)
        TRY_RETURN(folder_has(&has, folder, pickled[i]));
    if (has)
        return fail(
            ALIBI_BAD_INPUT,
            "'%s' has its weights as pickled .bin files, which run code when they are read; "
            "save the model as safetensors with transformers' save_pretrained() first",
            folder);
    return fail(ALIBI_BAD_INPUT, "'%s' has no weights: neither " NAME_WEIGHTS " nor %s", folder,
                index_name);
}

alibi_status safetensors_source_folder(struct tensor_source **out, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    bool index, one;

    TRY(folder_has(&index, folder, index_name));
    TRY(folder_has(&one, folder, NAME_WEIGHTS));
    TRY(path_join(&path, folder, index ? index_name : NAME_WEIGHTS));
    status = index ? open_index(out, folder, path)
             : one ? safetensors_source_file(out, path)
                   : fail_without_weights(folder);
out:
    mem_free(path);
    return status;
}
