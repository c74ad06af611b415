/* position.c - the tables of position methods and presets */
#include "position/position.h"

static const struct position_method *const methods[] = {
    &position_none,  &position_learned, &position_sinusoidal, &position_rotary, &position_t5,
    &position_alibi, &position_kerple,  &position_bam,        &position_fox,
};

static const struct position_preset *const presets[] = {
    &position_reach, &position_hybrid,          &position_alibi_free,
    &position_drope, &position_scale_invariant,
};

enum { METHODS = sizeof methods / sizeof *methods, PRESETS = sizeof presets / sizeof *presets };

const struct position_method *position_at(int index)
{
    return index >= 0 && index < METHODS ? methods[index] : NULL;
}

const struct position_preset *preset_at(int index)
{
    return index >= 0 && index < PRESETS ? presets[index] : NULL;
}

const struct position_preset *preset_find(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (name_index(name, &presets[i]->name, 1) == 0)
            return presets[i];
    return NULL;
}

const char *alibi_preset_name(int index, const char **summary, const char **pattern)
{
    const struct position_preset *preset = preset_at(index);

    if (preset == NULL)
        return NULL;
    if (summary != NULL)
        *summary = preset->summary;
    if (pattern != NULL)
        *pattern = preset->pattern;
    return preset->name;
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
static alibi_status fail_unknown(const char *name)
{
    const char *names[METHODS + PRESETS], *nearest;
    struct text known = { 0 };
    alibi_status status;

    for (int i = 0; i < METHODS + PRESETS; i++) {
        names[i] = i < METHODS ? methods[i]->name : presets[i - METHODS]->name;
        text_append(&known, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    nearest = alibi_nearest(name, names, METHODS + PRESETS);
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
        return fail_unknown(name);
    *out = methods[found];
    return ALIBI_OK;
}
