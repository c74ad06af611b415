/* option_value.h - one value of an option: from text, from JSON, checked, stored; used by options.c
 * only */
#ifndef OPTION_VALUE_H
#define OPTION_VALUE_H

#include "base/json.h"

union option_value {
    int64_t integer;
    double real;
    bool flag;
    char *text; /* owned */
    char name[ALIBI_NAME_MAX];
    int choice;
    struct alibi_int_list integers;
    struct alibi_name_list names;
};

/* Both check the value against the option; ALIBI_USAGE says what is wrong with it, not whose it is.
 * */
alibi_status option_value_from_text(union option_value *out, const struct alibi_option *o,
                                    const char *text);
alibi_status option_value_from_json(union option_value *out, const struct alibi_option *o,
                                    const json_t *json);

/* Moves the value to its place in the struct, and frees a text that was there. Cannot fail. */
void option_value_store(union option_value *v, const struct alibi_option *o, void *values);
void option_value_clear(const struct alibi_option *o,
                        void *values); /* to zero; a text that is there is not freed */
void option_value_free(union option_value *v, const struct alibi_option *o);

/* The value that lies in the struct, against the option. */
alibi_status option_value_check(const struct alibi_option *o, const void *values);

#endif
