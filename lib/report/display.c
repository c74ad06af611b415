/* display.c - text on a terminal and on a page: how wide it is, how it is cut, how it is escaped */
#include <string.h>

#include "report/parts.h"

/* Bytes of a colour sequence (ESC [ digits and semicolons m) at the front, 0 if there is none. */
static size_t sequence_bytes(const char *text)
{
    size_t digits;

    if (text[0] != '\x1b' || text[1] != '[')
        return 0;
    digits = strspn(text + 2, "0123456789;");
    return text[2 + digits] == 'm' ? digits + 3 : 0;
}

static bool continues_character(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

int display_width(const char *text)
{
    int width = 0;

    while (*text != '\0') {
        size_t skip = sequence_bytes(text);
        if (skip == 0 && !continues_character(*text))
            width++;
        text += skip > 0 ? skip : 1;
    }
    return width;
}

/* Bytes of the first `characters` characters. */
static size_t prefix_bytes(const char *text, int characters)
{
    size_t at = 0;

    while (text[at] != '\0' && characters > 0) {
        do
            at++;
        while (continues_character(text[at]));
        characters--;
    }
    return at;
}

alibi_status append_cut(struct text *out, const char *text, int width)
{
    if (display_width(text) <= width)
        return text_append(out, "%s", text);
    TRY_RETURN(text_append_bytes(out, text, prefix_bytes(text, width - 1)));
    return text_append(out, "…");
}

alibi_status append_spaces(struct text *out, int count)
{
    return count > 0 ? text_append(out, "%*s", count, "") : ALIBI_OK;
}

static const char *entity(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

alibi_status append_escaped(struct text *out, const char *text)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "&<>\"'");
        TRY_RETURN(text_append_bytes(out, text, plain));
        text += plain;
        if (*text != '\0')
            TRY_RETURN(text_append(out, "%s", entity(*text++)));
    }
    return ALIBI_OK;
}
