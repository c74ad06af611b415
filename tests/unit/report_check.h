/* report_check.h - shared by the tests of charts and reports: text with a part, lines, words,
 * markup */
#ifndef REPORT_CHECK_H
#define REPORT_CHECK_H

#include <ctype.h>

#include "check.h"
#include "report/parts.h"

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL)                                                        \
            fail_msg("'%s' is missing in:\n%s", (part), (text));                                   \
    } while (0)

#define assert_lacks(text, part)                                                                   \
    do {                                                                                           \
        if (strstr((text), (part)) != NULL)                                                        \
            fail_msg("'%s' is in:\n%s", (part), (text));                                           \
    } while (0)

static inline int widest_line(const char *text)
{
    char line[4096];
    int widest = 0;

    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        int width;
        snprintf(line, sizeof line, "%.*s", (int)bytes, text);
        width = display_width(line);
        widest = width > widest ? width : widest;
        text += bytes + (text[bytes] == '\n');
    }
    return widest;
}

/* Whether the text has `word`, in any case, without a letter next to it. */
static inline bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *p = strcasestr(text, word); p != NULL; p = strcasestr(p + 1, word))
        if ((p == text || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)p[length]))
            return true;
    return false;
}

static inline void assert_no_nan(const char *text)
{
    static const char *const words[] = { "nan", "inf", "infinity" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has_word(text, words[i]))
            fail_msg("'%s' is in:\n%s", words[i], text);
}

static inline bool is_void(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "input") == 0;
}

/* Skips the content of <style> and <script>, which is not markup. */
static inline const char *skip_raw(const char *p, const char *name)
{
    char end[32];

    if (strcmp(name, "style") != 0 && strcmp(name, "script") != 0)
        return p;
    snprintf(end, sizeof end, "</%s>", name);
    p = strstr(p, end);
    assert_non_null(p);
    return p;
}

/* Every element that is opened is closed, in order, and text has no bare '<'. */
static inline void assert_balanced(const char *html)
{
    char open[32][16];
    int depth = 0;

    for (const char *p = strchr(html, '<'); p != NULL; p = strchr(p, '<')) {
        char name[16];
        const char *end = strchr(p, '>');
        assert_non_null(end);
        if (p[1] == '!') {
            p = end;
            continue;
        }
        assert_true(isalpha((unsigned char)p[1]) || p[1] == '/');
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p + 1 + (p[1] == '/'), " >/"),
                 p + 1 + (p[1] == '/'));
        if (p[1] == '/') {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name);
        } else if (end[-1] != '/' && !is_void(name)) {
            assert_true(depth < 32);
            memcpy(open[depth++], name, sizeof name);
        }
        p = skip_raw(end, p[1] == '/' ? "" : name);
    }
    assert_int_equal(depth, 0);
}

#endif
