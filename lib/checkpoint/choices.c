/* choices.c - products.json: the algorithms of matrix products that a run has chosen by their speed
 *
 *   {
 *     "by": the GPU, its library and their version,
 *     "products": [ { "product": ..., "algorithm": ... }, ... ]     bytes of the device, as digits
 *   }
 *
 * Other algorithms round differently, so a run that resumes needs the same ones. */
#include <string.h>

#include "base/json.h"
#include "checkpoint/parts.h"

/* A training step has some ten products, and a vocabulary in clusters a few more. */
enum { CHOICES_MAX = 4096, PRODUCTS_BYTES_MAX = 4 << 20 };

static const char digits[] = "0123456789abcdef";

static void write_bytes(struct json_writer *w, const char *key, const unsigned char *bytes,
                        int count)
{
    char text[2 * ALGORITHM_BYTES + 1] = "";

    for (int i = 0; i < count; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_write_string(w, key, text);
}

alibi_status choices_write_json(const struct choices *choices, struct text *json)
{
    struct json_writer w = json_writer(json);

    json_write_object(&w, NULL);
    json_write_string(&w, "by", choices->by);
    json_write_array(&w, "products");
    for (int i = 0; i < choices->count; i++) {
        json_write_object_line(&w, NULL);
        write_bytes(&w, "product", choices->list[i].product, PRODUCT_BYTES);
        write_bytes(&w, "algorithm", choices->list[i].algorithm, ALGORITHM_BYTES);
        json_write_end(&w);
    }
    json_write_end(&w);
    json_write_end(&w);
    return text_status(json);
}

static alibi_status read_bytes(const json_t *entry, const char *key, unsigned char *bytes,
                               int count, const char *path)
{
    const char *text;

    TRY_RETURN(json_get_text(entry, key, &text, path));
    if (strlen(text) != 2 * (size_t)count || strspn(text, digits) != strlen(text))
        return fail(ALIBI_BAD_INPUT, "'%s': the value of '%s' must have %d hexadecimal digits",
                    path, key, 2 * count);
    for (int i = 0; i < count; i++)
        bytes[i] = (unsigned char)((strchr(digits, text[2 * i]) - digits) << 4 |
                                   (strchr(digits, text[2 * i + 1]) - digits));
    return ALIBI_OK;
}

static alibi_status read_choices(struct choices *out, const json_t *json, const char *path)
{
    const json_t *products = json_object_get(json, "products");
    int64_t count = (int64_t)json_array_size(products);
    const char *by;

    TRY_RETURN(json_get_text(json, "by", &by, path));
    if (strlen(by) >= sizeof out->by)
        return fail(ALIBI_BAD_INPUT, "'%s': the value of 'by' is longer than %d bytes", path,
                    CHOICES_BY_MAX - 1);
    memcpy(out->by, by, strlen(by) + 1);
    if (!json_is_array(products) || count > CHOICES_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s': 'products' must be a list of at most %d", path,
                    CHOICES_MAX);
    TRY_RETURN(NEW_ARRAY(&out->list, count, "the algorithms of matrix products"));
    for (; out->count < count; out->count++) {
        const json_t *entry = json_array_get(products, (size_t)out->count);
        struct product_choice *choice = &out->list[out->count];
        TRY_RETURN(read_bytes(entry, "product", choice->product, PRODUCT_BYTES, path));
        TRY_RETURN(read_bytes(entry, "algorithm", choice->algorithm, ALGORITHM_BYTES, path));
    }
    return ALIBI_OK;
}

alibi_status checkpoint_read_choices(const char *path, struct choices *out)
{
    alibi_status status;
    struct manifest manifest;
    struct choices read = { .count = 0 };
    char *name = NULL, *bytes = NULL;
    size_t length;
    json_t *json = NULL;

    TRY(manifest_read(&manifest, path));
    if (manifest.parts[PART_PRODUCTS].present) {
        TRY(path_join(&name, path, part_names[PART_PRODUCTS]));
        TRY(file_read_all(&bytes, &length, name, PRODUCTS_BYTES_MAX));
        TRY(json_parse(&json, bytes, length, name));
        TRY(read_choices(&read, json, name));
    }
    *out = read;
    read.list = NULL;
out:
    mem_free(read.list);
    json_decref(json);
    mem_free(bytes);
    mem_free(name);
    return status;
}
