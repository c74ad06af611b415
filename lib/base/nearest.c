/* nearest.c - names that people type, and the name that they may have meant
 *
 * Case does not matter, nor does dash or underscore. Other programs' words are understood as
 * values, and suggested for the names of options. */
#include <ctype.h>
#include <string.h>

#include "base/base.h"

static const char *const other_words[][2] = {
    { "rope", "rotary" },
    { "nope", "none" },
    { "sine", "sinusoidal" },
    { "gpu", "cuda" },
    { "float32", "fp32" },
    { "bfloat16", "bf16" },
    { "float16", "fp16" },
    { "half", "fp16" },
    { "slide", "sliding" },
    { "rms", "rmsnorm" },
    { "learning-rate", "lr" },
    { "hidden-size", "width" },
    { "d-model", "width" },
    { "n-embd", "width" },
    { "dim", "width" },
    { "context", "train-length" },
    { "seq-len", "train-length" },
    { "block-size", "train-length" },
    { "epochs", "steps" },
    { "iterations", "steps" },
    { "max-iters", "steps" },
};

static int letter(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

bool same_letters(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (letter(a[i]) != letter(b[i]))
            return false;
    return true;
}

bool same_name(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && same_letters(a, b, strlen(a));
}

int name_index(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (same_name(word, names[i]))
            return i;
    for (int w = 0; w < COUNT(other_words); w++)
        for (int i = 0; i < count && same_name(word, other_words[w][0]); i++)
            if (strcmp(other_words[w][1], names[i]) == 0)
                return i;
    return -1;
}

/* Longer names get no suggestion. */
enum { LENGTH_MAX = 64 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The Damerau-Levenshtein distance (optimal string alignment): the number of letters to insert,
 * delete, replace or swap with their neighbour. d(i, j), of the first i letters of a and the first
 * j of b, is the least of
 *
 *   d(i-1, j) + 1,   d(i, j-1) + 1,   d(i-1, j-1) + [a_i != b_j],
 *   d(i-2, j-2) + 1  if a_i a_(i-1) = b_(j-1) b_j */
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

/* Letters of the shorter name if the longer one begins or ends with it, otherwise 0. Names of one
 * or two letters are part of too much. */
static int shared_part(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    const char *longer = a_length > b_length ? a : b, *shorter = a_length > b_length ? b : a;
    size_t length = strlen(shorter), rest = strlen(longer) - length;

    if (length < 3 ||
        (!same_letters(longer, shorter, length) && !same_letters(longer + rest, shorter, length)))
        return 0;
    return (int)length;
}

const char *alibi_nearest(const char *name, const char *const *names, int count)
{
    const char *nearest = NULL, *related = NULL, *other = NULL;
    int length = (int)strnlen(name, LENGTH_MAX + 1), known = name_index(name, names, count);
    /* One slip in a short name and one more for every four letters, but fewer than letters. */
    int best = least(1 + length / 4, length - 1) + 1, most_shared = 0;

    if (length > LENGTH_MAX)
        return NULL;
    if (known >= 0)
        return names[known];
    for (int w = 0; w < COUNT(other_words); w++) {
        bool near = strlen(other_words[w][0]) > 3 && distance(name, other_words[w][0]) < 2;
        for (int i = 0; i < count && near; i++)
            if (strcmp(other_words[w][1], names[i]) == 0)
                other = names[i]; /* one slip in another program's word */
    }
    for (int i = 0; i < count; i++) {
        bool fits = strlen(names[i]) <= LENGTH_MAX;
        int d = fits ? distance(name, names[i]) : best;
        int shared = fits ? shared_part(name, names[i]) : 0;
        if (d < best) {
            best = d;
            nearest = names[i];
        }
        if (shared > most_shared) {
            most_shared = shared;
            related = names[i];
        }
    }
    if (other != NULL && (nearest == NULL || best > 1))
        nearest = other;
    return nearest != NULL ? nearest : related;
}
