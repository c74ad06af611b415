/* weight_index.c - which of several safetensors files has a tensor: model.safetensors.index.json
 *
 *   {"metadata": {...}, "weight_map": {"TENSOR": "FILE", ...}} */
#include <string.h>

#include "base/json.h"
#include "formats/formats.h"

/* A name of a file in the folder of the index, and nowhere else. */
static bool is_plain(const char *file)
{
    return file[0] != '\0' && !strchr(file, '/') && strcmp(file, ".") != 0 &&
           strcmp(file, "..") != 0 && strlen(file) < 256;
}

static alibi_status add_file(struct weight_index *x, const char *file, const char *path)
{
    if (!is_plain(file))
        return fail(ALIBI_BAD_INPUT, "'%s': '%.80s' is not the name of a file next to it", path,
                    file);
    for (int i = 0; i < x->count; i++)
        if (strcmp(x->files[i], file) == 0)
            return ALIBI_OK;
    if (x->count == WEIGHT_FILES_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s' names more than %d files", path, WEIGHT_FILES_MAX);
    TRY_RETURN(text_copy(&x->files[x->count], file));
    x->count++;
    return ALIBI_OK;
}

alibi_status weight_index_parse(struct weight_index **out, const char *bytes, size_t length,
                                const char *path)
{
    alibi_status status;
    struct weight_index *x = NULL;
    json_t *root = NULL, *map, *value;
    const char *name;

    TRY(json_parse(&root, bytes, length, path));
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' has no \"weight_map\" with tensors", path));
    TRY(NEW_ZERO_ARRAY(&x, 1, "an index of tensors"));
    json_object_foreach(map, name, value)
    {
        if (!json_is_string(value))
            TRY(fail(ALIBI_BAD_INPUT, "'%s': the file of tensor '%.80s' is not a text", path,
                     name));
        TRY(add_file(x, json_string_value(value), path));
    }
    *out = x;
    x = NULL;
out:
    json_decref(root);
    weight_index_free(x);
    return status;
}

void weight_index_free(struct weight_index *x)
{
    for (int i = 0; x && i < x->count; i++)
        mem_free(x->files[i]);
    mem_free(x);
}
