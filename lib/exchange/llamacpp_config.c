/* llamacpp_config.c - the configuration of a model in the metadata of a GGUF file
 *
 * The families read and write JSON objects. Metadata is converted to and from such an object. */
#include <math.h>
#include <string.h>

#include "exchange/exchange.h"
#include "formats/gguf.h"

enum { ITEMS_MAX = 4096 };

/* ---- reading */

/* The shortest decimal number that is x in fp32: 1e-5, and not 9.9999997e-06. */
static double shortest(float x)
{
    for (int digits = 0; digits < 9 && x != 0 && isfinite(x); digits++) {
        double scale = pow(10.0, fabs(digits - floor(log10(fabs((double)x)))));
        bool small = digits > floor(log10(fabs((double)x)));
        double y = small ? round((double)x * scale) / scale : round((double)x / scale) * scale;
        if ((float)y == x)
            return y;
    }
    return (double)x;
}

/* NULL: it has no place in JSON (not UTF-8, not finite), or memory is short. */
static json_t *json_item(const struct gguf_value *v, int64_t i)
{
    int64_t whole;
    double real;
    bool flag;
    struct slice text;

    if (gguf_integer(v, i, &whole))
        return json_integer(whole);
    if (gguf_real(v, i, &real))
        return json_real(v->kind == GGUF_F32 ? shortest((float)real) : real);
    if (gguf_flag(v, &flag))
        return json_boolean(flag);
    if (gguf_text(v, &text))
        return json_stringn(text.at, text.bytes);
    return NULL;
}

/* Arrays of texts, or longer ones than any that describes layers, are not a configuration. */
static json_t *json_of(const struct gguf_value *v)
{
    json_t *array;

    if (!v->array)
        return json_item(v, 0);
    if (v->count > ITEMS_MAX || v->kind == GGUF_TEXT)
        return NULL;
    array = json_array();
    for (int64_t i = 0; array && i < v->count; i++)
        if (json_array_append_new(array, json_item(v, i)) != 0)
            break;
    return array;
}

/* The flat object that llamacpp_families.c explains. */
static alibi_status metadata(json_t **out, const struct gguf *g)
{
    alibi_status status = ALIBI_OK;
    json_t *all = json_object();
    char key[256];

    for (int i = 0; all && i < g->pair_count; i++) {
        json_t *value = json_of(&g->pairs[i].value);
        if (g->pairs[i].key.bytes >= sizeof key || !value) {
            json_decref(value);
            continue;
        }
        snprintf(key, sizeof key, "%.*s", (int)g->pairs[i].key.bytes, g->pairs[i].key.at);
        if (json_object_set_new(all, key, value) != 0)
            TRY(fail(ALIBI_MEMORY, "not enough memory for the metadata of a GGUF file"));
    }
    for (int i = 0; all && i < g->tensor_count; i++)
        if (json_object_set_new(all, g->tensors[i].name, json_integer(g->tensors[i].shape[0])) != 0)
            TRY(fail(ALIBI_MEMORY, "not enough memory for the metadata of a GGUF file"));
    if (!all)
        TRY(fail(ALIBI_MEMORY, "not enough memory for the metadata of a GGUF file"));
    *out = all;
    all = NULL;
out:
    json_decref(all);
    return status;
}

alibi_status llamacpp_config(const struct family **family, struct alibi_config *out,
                             const struct gguf *gguf, const char *path)
{
    alibi_status status;
    json_t *all = NULL;
    const char *name;
    long long parts;

    TRY(metadata(&all, gguf));
    name = json_string_value(config_value(all, "general.architecture"));
    parts = (long long)json_integer_value(config_value(all, "split.count"));
    if (parts > 1)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' is one of %lld parts of a model; join them with llama-gguf-split --merge",
                 path, parts));
    if (!name)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' has no \"general.architecture\"", path));
    TRY(family_find(family, llamacpp_family_at, name, "architecture", path));
    TRY(family_read_config(*family, out, all, path));
out:
    json_decref(all);
    return status;
}

/* ---- writing */

/* Numbers of keys that are real are real in the file, also where they are whole. */
static void put_member(struct gguf_writer *w, const struct family *f, const char *name,
                       const json_t *value)
{
    size_t bytes = strlen(f->name);
    enum key_kind kind = json_is_real(value) ? KEY_REAL : KEY_INT;

    if ((strncmp(name, f->name, bytes) != 0 || name[bytes] != '.') &&
        strncmp(name, "alibi.", 6) != 0) /* a tensor */
        return;
    for (int i = 0; i < f->key_count; i++)
        if (strcmp(f->keys[i].name, name) == 0)
            kind = f->keys[i].kind;
    if (kind == KEY_ONLY)
        return;
    if (json_is_string(value))
        gguf_put_text(w, name, json_string_value(value));
    else if (json_is_boolean(value))
        gguf_put_bool(w, name, json_is_true(value));
    else if (kind == KEY_REAL)
        gguf_put_f32(w, name, json_number_value(value));
    else
        gguf_put_u32(w, name, (uint32_t)json_integer_value(value));
}

/* The members of the family's configuration as metadata: those of the architecture, and our own. */
alibi_status llamacpp_put_config(struct gguf_writer *w, const struct family *f,
                                 const struct alibi_config *c)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer writer = json_writer(&json);
    json_t *all = NULL, *value, *inner;
    const char *name, *key;
    char full[128];

    json_write_object(&writer, NULL);
    family_write_config(f, c, &writer);
    json_write_end(&writer);
    TRY(text_status(&json));
    TRY(json_parse(&all, json.data, json.length, f->name));
    json_object_foreach(all, name, value)
    {
        if (!json_is_object(value))
            put_member(w, f, name, value);
        else
            json_object_foreach(value, key, inner)
            {
                snprintf(full, sizeof full, "%s.%s", name, key);
                put_member(w, f, full, inner);
            }
    }
out:
    json_decref(all);
    text_free(&json);
    return status;
}
