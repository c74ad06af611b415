/* setting.c - the options behind a comparison, taken from the tables that also serve flags and recipes */
#include <string.h>

#include "base/option_value.h"
#include "report/parts.h"

const struct alibi_option *setting_at(const struct alibi_compare_result *r, int group, int index, const void **values)
{
    int count;
    const struct alibi_option *options = group == 0 ? alibi_config_options(&count) : alibi_training_options(&count);

    *values = group == 0 ? (const void *)&r->config : &r->training;
    /* The position is what the methods differ in. */
    for (int i = 0; i < count; i++)
        if (strcmp(options[i].name, "position") != 0 && index-- == 0)
            return &options[i];
    return NULL;
}

alibi_status append_setting_json(struct text *out, const struct alibi_option *option, const void *values)
{
    return option_value_format(out, option, values);
}

/* The JSON of a name or a choice is the same in quotes. */
alibi_status append_setting_value(struct text *out, const struct alibi_option *option, const void *values)
{
    alibi_status status;
    struct text json = { 0 };
    size_t quotes;

    TRY(option_value_format(&json, option, values));
    quotes = json.data[0] == '"';
    TRY(text_append_bytes(out, json.data + quotes, json.length - 2 * quotes));
out:
    text_free(&json);
    return status;
}
