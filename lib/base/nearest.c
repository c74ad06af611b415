/* nearest.c - what someone who mistyped a name meant
 *
 * The Damerau-Levenshtein distance (optimal string alignment): the number of letters to insert,
 * delete, replace or swap with their neighbour. d(i, j), of the first i letters of a and the first
 * j of b, is the least of
 *
 *   d(i-1, j) + 1,   d(i, j-1) + 1,   d(i-1, j-1) + [a_i != b_j],   d(i-2, j-2) + 1  if a_i a_(i-1)
 * = b_(j-1) b_j */
#include <ctype.h>
#include <string.h>

#include "base/base.h"

/* Longer names are near to nothing. */
enum { LENGTH_MAX = 64 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Case, and dash or underscore, do not set names apart. */
static int letter(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

static int distance(const char *a, const char *b)
{
    int rows[3][LENGTH_MAX + 1];
    int *before = rows[0], *above = rows[1], *row = rows[2];
    int a_length = (int)strlen(a), b_length = (int)strlen(b);

    for (int j = 0; j <= b_length; j++)
        row[j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *oldest = before;
        before = above;
        above = row;
        row = oldest;
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            bool same = letter(a[i - 1]) == letter(b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + !same);
            if (i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                letter(a[i - 2]) == letter(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return row[b_length];
}

/* One slip in a short name, one more for every four letters; never so many that no letter need be
 * right. */
const char *alibi_nearest(const char *name, const char *const *names, int count)
{
    const char *nearest = NULL;
    int length = (int)strnlen(name, LENGTH_MAX + 1);
    int best = least(1 + length / 4, length - 1) + 1;

    if (length > LENGTH_MAX)
        return NULL;
    for (int i = 0; i < count; i++) {
        int d = strlen(names[i]) <= LENGTH_MAX ? distance(name, names[i]) : best;
        if (d < best) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}
