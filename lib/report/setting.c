/* setting.c - the options behind a comparison, taken from the tables that also serve flags and
 * recipes */
#include <string.h>

#include "report/parts.h"

const struct alibi_option *setting_at(const struct alibi_compare_result *r, int group, int index,
                                      const void **values)
{
    int count;
    const struct alibi_option *options =
        group == 0 ? alibi_config_options(&count) : alibi_training_options(&count);

    *values = group == 0 ? (const void *)&r->config : &r->training;
    /* The position is what the methods differ in. */
    for (int i = 0; i < count; i++)
        if (strcmp(options[i].name, "position") != 0 && index-- == 0)
            return &options[i];
    return NULL;
}
