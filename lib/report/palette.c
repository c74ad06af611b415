/* palette.c - how series look, in one place for terminal and page
 *
 * The colours were chosen for distance in CIE Lab under normal sight and under simulated
 * deuteranopia and protanopia (the first five at least 20 apart, all at least 13), and differ in
 * lightness, so that they hold in grey print too. Colour is never the only sign: every series has a
 * marker, a letter and a label of its own. */
#include <ctype.h>
#include <string.h>

#include "report/parts.h"

static const struct look looks[LOOKS] = {
    { "#1d5fd6", "#7fb0ff", 33, "M-4,0A4,4 0 1 1 4,0A4,4 0 1 1 -4,0Z" }, /* blue, disc */
    { "#b65500", "#e0812f", 166, "M-3.6,-3.6H3.6V3.6H-3.6Z" },           /* orange, square */
    { "#00805e", "#3fdc97", 35, "M0,-4.8L4.6,3.4H-4.6Z" },               /* green, triangle */
    { "#b8289f", "#ff6fb5", 170, "M0,-5.2L5.2,0L0,5.2L-5.2,0Z" },        /* magenta, diamond */
    { "#23272e", "#e6e8eb", 244,
      "M-1.6,-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z" },         /* ink, plus */
    { "#6a4300", "#f5cf4b", 136, "M0,4.8L4.6,-3.4H-4.6Z" },             /* brown, triangle down */
    { "#3a1b9c", "#a37bff", 99, "M0,-5L4.8,-1.5L3,4.1H-3L-4.8,-1.5Z" }, /* violet, pentagon */
    { "#0d4f73", "#5fb8cf", 37,
      "M-5,-3L-3,-5L0,-2L3,-5L5,-3L2,0L5,3L3,5L0,2L-3,5L-5,3L-2,0Z" }, /* teal, cross */
};

const struct look *look_of(int series)
{
    return &looks[series % LOOKS];
}

const char *dash_of(int series)
{
    static const char *const dashes[] = { "none", "7 4", "2 4", "10 3 2 3" };

    return dashes[series / LOOKS % 4];
}

static bool is_free(const char *letters, int count, char letter)
{
    return memchr(letters, letter, (size_t)count) == NULL;
}

/* The first free letter of the name, then of the alphabet; '*' when all are taken. */
static char free_letter(const char *letters, int count, const char *name)
{
    for (const char *p = name; *p != '\0'; p++)
        if (isascii(*p) && isalnum((unsigned char)*p) && is_free(letters, count, *p))
            return *p;
    for (const char *p = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
         *p != '\0'; p++)
        if (is_free(letters, count, *p))
            return *p;
    return '*';
}

void marker_letters(char *letters, const struct series *series, int count)
{
    for (int i = 0; i < count; i++)
        letters[i] = free_letter(letters, i, series[i].name);
}
