/* config.c - the configuration of a model of another program, through the keys of its family
 *
 * Members that no key names, such as dropout or the ids of special tokens, say nothing about the
 * function that the model computes, and are not read. */
#include <string.h>

#include "exchange/exchange.h"

/* ---- reading */

const json_t *config_value(const json_t *config, const char *name)
{
    const char *dot = strchr(name, '.');
    const json_t *value = json_object_get(config, name);
    char first[64];

    if (!value && dot) {
        snprintf(first, sizeof first, "%.*s", (int)(dot - name), name);
        config = json_object_get(config, first);
        value = config ? config_value(config, dot + 1) : NULL;
    }
    return json_is_null(value) ? NULL : value;
}

/* Equal as far as a configuration goes: 1 is 1.0. */
static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) == 1;
}

static alibi_status refuse(const struct config_key *k, const json_t *value, const char *path)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    alibi_status status;

    if (k->kind == KEY_ONLY)
        status = fail(ALIBI_BAD_INPUT, "'%s': \"%s\" is %.80s; the model has only %s", path,
                      k->name, text ? text : "?", k->only);
    else
        status = fail(ALIBI_BAD_INPUT, "'%s': \"%s\" is %.80s, which is not supported", path,
                      k->name, text ? text : "?");
    free(text);
    return status;
}

static alibi_status set_choice(int *at, const struct config_key *k, const json_t *value,
                               const char *path)
{
    const char *text = json_string_value(value);

    for (const struct key_choice *c = k->choices; text && c->text; c++)
        if (strcmp(c->text, text) == 0) {
            *at = c->value;
            return ALIBI_OK;
        }
    return refuse(k, value, path);
}

static alibi_status set_key(struct alibi_config *c, const struct config_key *k, const json_t *value,
                            const char *path)
{
    void *at = (char *)c + k->offset;
    bool fits = false;

    switch (k->kind) {
    case KEY_INT:
        fits = json_is_integer(value) && json_integer_value(value) >= 0;
        *(int64_t *)at = json_integer_value(value);
        break;
    case KEY_REAL:
        fits = json_is_number(value);
        *(double *)at = json_number_value(value);
        break;
    case KEY_FLAG:
        fits = json_is_boolean(value);
        *(bool *)at = json_is_true(value);
        break;
    case KEY_CHOICE:
        return set_choice(at, k, value, path);
    case KEY_ONLY:
    case KEY_SAID:
        return ALIBI_OK;
    }
    return fits ? ALIBI_OK : refuse(k, value, path);
}

static alibi_status read_key(struct alibi_config *c, const struct config_key *k,
                             const json_t *config, const char *path)
{
    alibi_status status = ALIBI_OK;
    const json_t *value = config_value(config, k->name);
    json_t *standard = NULL, *only = NULL;

    if (!value && k->other)
        value = config_value(config, k->other);
    if (!value && !k->standard)
        return fail(ALIBI_BAD_INPUT, "'%s' has no \"%s\"", path, k->name);
    if (!value)
        value = standard = json_loads(k->standard, JSON_DECODE_ANY, NULL);
    if (k->only)
        only = json_loads(k->only, JSON_DECODE_ANY, NULL);
    if (!value || (k->only && !only))
        TRY(fail(ALIBI_MEMORY, "not enough memory for '%s'", path));
    if (k->kind == KEY_ONLY && !same_value(value, only))
        TRY(refuse(k, value, path));
    if (!json_is_null(value))
        TRY(set_key(c, k, value, path));
out:
    json_decref(standard);
    json_decref(only);
    return status;
}

alibi_status family_read_config(const struct family *f, struct alibi_config *out,
                                const json_t *config, const char *path)
{
    struct alibi_config c;
    struct alibi_option_group group = { .values = &c };
    alibi_status status;

    memset(&c, 0, sizeof c);
    group.options = alibi_config_options(&group.count);
    TRY_RETURN(alibi_options_init(&group, 1));
    c.embedding_scale = 1.0;
    for (int i = 0; i < f->key_count; i++)
        TRY_RETURN(read_key(&c, &f->keys[i], config, path));
    c.embedding_norm = f->embedding_norm;
    if (f->position)
        snprintf(c.position, sizeof c.position, "%s", f->position);
    if (f->read)
        TRY_RETURN(f->read(&c, config, path));
    status = alibi_config_resolve(&c);
    if (status == ALIBI_OK && c.vocab < 1)
        status = fail(ALIBI_USAGE, "the vocabulary is empty");
    if (status != ALIBI_OK)
        return fail_context(status == ALIBI_USAGE ? ALIBI_BAD_INPUT : status, "'%s'", path);
    *out = c;
    return ALIBI_OK;
}

/* ---- config.json of Hugging Face */

alibi_status huggingface_config(const struct family **family, struct alibi_config *out,
                                const char *bytes, size_t length, const char *path)
{
    alibi_status status;
    json_t *config = NULL;
    const char *type;

    TRY(json_parse(&config, bytes, length, path));
    type = json_string_value(json_object_get(config, "model_type"));
    if (!type)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' has no \"model_type\": it is not of a Hugging Face model",
                 path));
    TRY(family_find(family, family_at, type, "model_type", path));
    TRY(family_read_config(*family, out, config, path));
out:
    json_decref(config);
    return status;
}

/* ---- writing */

static void write_key(const struct alibi_config *c, const struct config_key *k, const char *name,
                      struct json_writer *w)
{
    const void *at = (const char *)c + k->offset;

    switch (k->kind) {
    case KEY_INT:
        json_write_int(w, name, *(const int64_t *)at);
        break;
    case KEY_REAL:
        json_write_real(w, name, *(const double *)at);
        break;
    case KEY_FLAG:
        json_write_bool(w, name, *(const bool *)at);
        break;
    case KEY_CHOICE:
        for (const struct key_choice *choice = k->choices; choice->text; choice++)
            if (choice->value == *(const int *)at) {
                json_write_string(w, name, choice->text);
                break;
            }
        break;
    case KEY_ONLY:
    case KEY_SAID:
        json_write_raw(w, name, k->only);
        break;
    }
}

/* Keys of one object follow each other in the table. */
void family_write_config(const struct family *f, const struct alibi_config *c,
                         struct json_writer *w)
{
    size_t open = 0; /* bytes of the name of the object that is open, with its dot */

    for (int i = 0; i < f->key_count; i++) {
        const char *name = f->keys[i].name, *dot = strchr(name, '.');
        size_t object = dot ? (size_t)(dot - name) + 1 : 0;
        char key[64];

        if (open > 0 && (object != open || memcmp(name, f->keys[i - 1].name, open) != 0)) {
            json_write_end(w);
            open = 0;
        }
        if (object > open) {
            snprintf(key, sizeof key, "%.*s", (int)object - 1, name);
            json_write_object(w, key);
            open = object;
        }
        write_key(c, &f->keys[i], name + object, w);
    }
    if (open > 0)
        json_write_end(w);
    if (f->write)
        f->write(c, w);
}
