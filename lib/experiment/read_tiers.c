/* read_tiers.c - an experiment's file as it is to be run
 *
 *   1. the tier is merged into the rest: objects by key, everything else replaced, null removes
 *   2. numbers are filled in: with "numbers": { "L": 512 } the text "2L" is 1024, "L/4" is 128, and
 *      "{2L}" within any other text becomes "1024" */
#include <stdlib.h>
#include <string.h>

#include "experiment/read.h"

enum { NUMBER_MAX = 1 << 24 };

/* ---- tiers */

static void drop_nulls(json_t *json)
{
    const char *key;
    json_t *value;
    void *next;

    json_object_foreach_safe(json, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(json, key);
        else
            drop_nulls(value);
    }
}

static alibi_status refuse_tier(const alibi_experiment *e, const char *tier)
{
    struct text names = { 0 };
    alibi_status status;

    text_append(&names, "full");
    for (int i = 0; i < e->tiers.count; i++)
        text_append(&names, "%s%s", i + 1 < e->tiers.count ? ", " : " and ", e->tiers.at[i]);
    status = text_status(&names);
    if (status == ALIBI_OK)
        status = fail(ALIBI_USAGE, "'%s' has no tier '%s'; it has %s", e->path, tier, names.data);
    text_free(&names);
    return status;
}

alibi_status apply_tier(struct reader *r, const char *tier)
{
    alibi_experiment *e = r->e;
    json_t *tiers = json_object_get(e->json, "tiers"), *chosen;
    const char *key;
    json_t *value;
    int index;

    if (tiers != NULL && !json_is_object(tiers))
        return fail_type(r, "tiers", "an object");
    reader_enter(r, "tiers");
    json_object_foreach(tiers, key, value)
    {
        TRY_RETURN(reader_count(r, e->tiers.count, "tiers"));
        reader_enter(r, key);
        TRY_RETURN(reader_name(r, e->tiers.at[e->tiers.count++], key));
        TRY_RETURN(KEYS(r, value, "about", "numbers", "settings", "seeds", "texts", "models",
                        "evaluations", "claims"));
        reader_leave(r);
    }
    reader_leave(r);
    if (tier != NULL && tier[0] != '\0') {
        for (index = 0; index < e->tiers.count && strcmp(e->tiers.at[index], tier) != 0; index++)
            ;
        if (index == e->tiers.count)
            return refuse_tier(e, tier);
        memcpy(e->tier, e->tiers.at[index], sizeof e->tier);
        chosen = json_object_get(tiers, tier);
        if (json_object_get(chosen, "about"))
            json_object_set(e->json, "tier_about", json_object_get(chosen, "about"));
        json_object_del(chosen, "about");
        if (json_object_update_recursive(e->json, chosen) != 0)
            return fail(ALIBI_MEMORY, "not enough memory for an experiment");
    }
    json_object_del(e->json, "tiers");
    drop_nulls(e->json);
    return ALIBI_OK;
}

/* ---- numbers */

/* [factor] NAME [/ divisor] [+ summand] at *p, which is moved past it. False: no such thing is
 * there, or it is not a whole number. */
static bool read_number(const char **p, const json_t *numbers, int64_t *out)
{
    const char *at = *p, *name;
    char *end, key[ALIBI_NAME_MAX];
    int64_t factor = 1, divisor = 1, summand = 0, value;
    const json_t *number;
    size_t length;

    if (*at >= '0' && *at <= '9') {
        factor = strtol(at, &end, 10);
        at = end;
    }
    name = at;
    while ((*at >= 'A' && *at <= 'Z') || *at == '_')
        at++;
    length = (size_t)(at - name);
    if (length == 0 || length >= sizeof key)
        return false;
    memcpy(key, name, length);
    key[length] = '\0';
    number = json_object_get(numbers, key);
    if (*at == '/' && at[1] >= '1' && at[1] <= '9') {
        divisor = strtol(at + 1, &end, 10);
        at = end;
    }
    if (*at == '+' && at[1] >= '0' && at[1] <= '9') {
        summand = strtol(at + 1, &end, 10);
        at = end;
    }
    if (!json_is_integer(number) || json_integer_value(number) < 1 ||
        json_integer_value(number) > NUMBER_MAX || factor < 1 || factor > NUMBER_MAX ||
        summand > NUMBER_MAX)
        return false;
    value = factor * (int64_t)json_integer_value(number);
    if (value % divisor != 0)
        return false;
    *p = at;
    *out = value / divisor + summand;
    return true;
}

/* A text with its numbers filled in; NULL: `value` is to stay as it is. */
static alibi_status fill_text(struct reader *r, const json_t *numbers, const json_t *value,
                              json_t **out)
{
    const char *text = json_string_value(value), *p = text;
    struct text filled = { 0 };
    alibi_status status = ALIBI_OK;
    int64_t number;

    *out = NULL;
    if (read_number(&p, numbers, &number) && *p == '\0') {
        *out = json_integer(number);
        return *out ? ALIBI_OK : fail(ALIBI_MEMORY, "not enough memory for an experiment");
    }
    if (strchr(text, '{') == NULL)
        return ALIBI_OK;
    for (p = text; *p != '\0';) {
        size_t plain = strcspn(p, "{");

        text_append_bytes(&filled, p, plain);
        p += plain;
        if (*p == '\0')
            break;
        p++;
        if (!read_number(&p, numbers, &number) || *p != '}')
            TRY(at_place(r, fail(ALIBI_BAD_INPUT,
                                 "'{...}' must hold a number such as {L}, {2L} or {L/4}, with L "
                                 "among the \"numbers\", and be whole")));
        p++;
        text_append(&filled, "%lld", (long long)number);
    }
    TRY(text_status(&filled));
    *out = json_stringn(filled.data, filled.length);
    if (*out == NULL)
        status = fail(ALIBI_MEMORY, "not enough memory for an experiment");
out:
    text_free(&filled);
    return status;
}

alibi_status fill_numbers(struct reader *r, const json_t *numbers, json_t *json)
{
    size_t size = json_is_array(json) ? json_array_size(json) : 0;
    json_t *filled;

    if (r->depth + 1 >= READER_DEPTH)
        return at_place(r, fail(ALIBI_BAD_INPUT, "objects within objects are too deep"));
    for (void *iter = json_object_iter(json); iter; iter = json_object_iter_next(json, iter)) {
        json_t *value = json_object_iter_value(iter);

        reader_enter(r, json_object_iter_key(iter));
        if (json_is_string(value)) {
            TRY_RETURN(fill_text(r, numbers, value, &filled));
            if (filled != NULL)
                json_object_iter_set_new(json, iter, filled);
        } else {
            TRY_RETURN(fill_numbers(r, numbers, value));
        }
        reader_leave(r);
    }
    for (size_t i = 0; i < size; i++) {
        json_t *value = json_array_get(json, i);

        reader_enter_index(r, i);
        if (json_is_string(value)) {
            TRY_RETURN(fill_text(r, numbers, value, &filled));
            if (filled != NULL)
                json_array_set_new(json, i, filled);
        } else {
            TRY_RETURN(fill_numbers(r, numbers, value));
        }
        reader_leave(r);
    }
    return ALIBI_OK;
}
