/* pattern_cost.c - how long a match of a regular expression can take
 *
 * If an alternative has one long repetition, its ends are tried once each. If it has two and what
 * follows them can fail, the second is tried anew for every end of the first: the time grows with
 * the square of the text, and so on with more. A repeated group counts as more than one.
 * Expressions without any of that are simple. */
#include "text/pattern.h"

enum { LONG_REPEAT = 16 };

#define NOWHERE SIZE_MAX

struct pattern_cost pattern_cost_start(void)
{
    return (struct pattern_cost){ .failing = NOWHERE, .simple = true };
}

void pattern_cost_item(struct pattern_cost *c, size_t start)
{
    c->item = start;
    if (c->repeats >= 2 && c->failing == NOWHERE)
        c->failing = start;
}

void pattern_cost_repeat(struct pattern_cost *c, bool group, int low, int high)
{
    if (low == 0 && c->failing != NOWHERE && c->failing >= c->item)
        c->failing = NOWHERE;
    if (high >= 0 && high <= (group ? 1 : LONG_REPEAT))
        return;
    c->repeats++;
    c->simple = c->simple && !group;
}

void pattern_cost_alternative(struct pattern_cost *c)
{
    c->simple = c->simple && c->failing == NOWHERE;
    c->repeats = 0;
    c->failing = NOWHERE;
}
