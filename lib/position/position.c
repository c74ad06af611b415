/* position.c - the table of position methods */
#include <string.h>

#include "position/position.h"

static const struct position_method *const methods[] = {
    &position_none,   &position_learned, &position_sinusoidal,
    &position_rotary, &position_t5,      &position_alibi,
};

enum { METHODS = sizeof methods / sizeof *methods };

const struct position_method *position_at(int index)
{
    return index >= 0 && index < METHODS ? methods[index] : NULL;
}

const char *alibi_position_name(int index, const char **summary)
{
    const struct position_method *method = position_at(index);

    if (method == NULL)
        return NULL;
    if (summary != NULL)
        *summary = method->summary;
    return method->name;
}

/* "unknown position method 'alibbi': did you mean 'alibi'? known: none, learned, ..." */
static alibi_status fail_unknown(const char *name, const char *const *names)
{
    const char *nearest = alibi_nearest(name, names, METHODS);
    struct text known = { 0 };
    alibi_status status;

    for (int i = 0; i < METHODS; i++)
        text_append(&known, "%s%s", i > 0 ? ", " : "", names[i]);
    TRY(text_status(&known));
    if (nearest != NULL)
        status = fail(ALIBI_USAGE, "unknown position method '%s': did you mean '%s'? known: %s",
                      name, nearest, known.data);
    else
        status = fail(ALIBI_USAGE, "unknown position method '%s': known: %s", name, known.data);
out:
    text_free(&known);
    return status;
}

alibi_status position_find(const struct position_method **out, const char *name)
{
    const char *names[METHODS];
    int found;

    for (int i = 0; i < METHODS; i++)
        names[i] = methods[i]->name;
    found = name_index(name, names, METHODS);
    if (found < 0)
        return fail_unknown(name, names);
    *out = methods[found];
    return ALIBI_OK;
}
