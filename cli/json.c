/* json.c - results as JSON on stdout, one member per line
 *
 * The library has a JSON writer too, but the program uses nothing but alibi.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int depth;
static bool first = true; /* nothing yet within the innermost bracket */

/* Bytes of the UTF-8 character at `text`; 0 if it is not valid (RFC 3629: no overlong forms, no
 * surrogates). */
static int character_bytes(const unsigned char *text)
{
    static const unsigned long least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    int bytes = text[0] < 0x80         ? 1
                : text[0] >> 5 == 0x6  ? 2
                : text[0] >> 4 == 0xe  ? 3
                : text[0] >> 3 == 0x1e ? 4
                                       : 0;
    unsigned long code = bytes < 2 ? text[0] : text[0] & (0x7fu >> bytes);

    for (int i = 1; i < bytes; i++) {
        if (text[i] >> 6 != 0x2)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    return code >= least[bytes] && code <= 0x10ffff && code >> 11 != 0x1b ? bytes : 0;
}

/* File names may contain any bytes; those that are not UTF-8 become U+FFFD. */
void cli_json_quote(const char *string)
{
    const unsigned char *text = (const unsigned char *)string;

    putchar('"');
    while (*text) {
        int bytes = character_bytes(text);

        if (bytes == 0)
            fputs("\\ufffd", stdout);
        else if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if (*text < 0x20)
            printf("\\u%04x", *text);
        else
            fwrite(text, 1, (size_t)bytes, stdout);
        text += bytes ? bytes : 1;
    }
    putchar('"');
}

static void begin_member(const char *key)
{
    printf("%s%s%*s", first ? "" : ",", depth ? "\n" : "", depth * 2, "");
    first = false;
    if (key) {
        cli_json_quote(key);
        fputs(": ", stdout);
    }
}

void cli_json_open(const char *key, char bracket)
{
    begin_member(key);
    putchar(bracket);
    depth++;
    first = true;
}

void cli_json_close(char bracket)
{
    depth--;
    if (!first)
        printf("\n%*s", depth * 2, "");
    putchar(bracket);
    first = false;
    if (depth == 0) {
        putchar('\n');
        first = true;
    }
}

void cli_json_int(const char *key, int64_t value)
{
    begin_member(key);
    printf("%" PRId64, value);
}

/* The shortest text that reads back, as in the library's files, so that both can be compared. */
void cli_json_real(const char *key, double value)
{
    char text[32] = "null";

    for (int digits = 15; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    begin_member(key);
    fputs(text, stdout);
}

void cli_json_flag(const char *key, bool value)
{
    begin_member(key);
    fputs(value ? "true" : "false", stdout);
}

void cli_json_text(const char *key, const char *value)
{
    begin_member(key);
    cli_json_quote(value);
}

void cli_json_device(const struct alibi_device_info *device)
{
    char date[ALIBI_DATE_MAX];

    alibi_date(date);
    cli_json_text("version", alibi_version());
    cli_json_text("date", date);
    cli_json_text("device", device->name);
    if (device->machine[0] != '\0') /* a plan may be for a GPU that is not here */
        cli_json_text("machine", device->machine);
    cli_json_flag("gpu", device->gpu);
    cli_json_text("precision", alibi_precision_name(device->precision));
}

/* ---- the values of options, as a recipe has them */

static void print_choice(const char *key, const char *choices, int index)
{
    char name[ALIBI_NAME_MAX];

    for (; index > 0; index--)
        choices += strcspn(choices, "|") + 1;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(choices, "|"), choices);
    cli_json_text(key, name);
}

static void print_option(const char *key, const struct alibi_option *option, const void *value)
{
    switch (option->type) {
    case ALIBI_OPTION_INT:
        cli_json_int(key, *(const int64_t *)value);
        break;
    case ALIBI_OPTION_REAL:
        cli_json_real(key, *(const double *)value);
        break;
    case ALIBI_OPTION_FLAG:
        cli_json_flag(key, *(const bool *)value);
        break;
    case ALIBI_OPTION_NAME:
        cli_json_text(key, value);
        break;
    case ALIBI_OPTION_CHOICE:
        print_choice(key, option->choices, *(const int *)value);
        break;
    case ALIBI_OPTION_TEXT:
    case ALIBI_OPTION_INTS:
    case ALIBI_OPTION_NAMES:
        break; /* a model has none */
    }
}

void cli_json_options(const char *key, const struct alibi_option_group *group)
{
    cli_json_open(key, '{');
    for (int i = 0; i < group->count; i++) {
        const struct alibi_option *option = &group->options[i];
        char name[ALIBI_NAME_MAX];

        snprintf(name, sizeof name, "%s", option->name);
        for (char *c = name; *c; c++)
            *c = *c == '-' ? '_' : *c;
        print_option(name, option, (const char *)group->values + option->offset);
    }
    cli_json_close('}');
}
