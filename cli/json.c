/* json.c - results as JSON on stdout, one member per line */
#include <inttypes.h>
#include <math.h>

#include "cli.h"

static int depth;
static bool first = true; /* nothing yet within the innermost bracket */

static void print_string(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void begin_member(const char *key)
{
    printf("%s%s%*s", first ? "" : ",", depth ? "\n" : "", depth * 2, "");
    first = false;
    if (key) {
        print_string(key);
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

void cli_json_real(const char *key, double value)
{
    begin_member(key);
    if (isfinite(value))
        printf("%.17g", value);
    else
        fputs("null", stdout);
}

void cli_json_text(const char *key, const char *value)
{
    begin_member(key);
    print_string(value);
}
