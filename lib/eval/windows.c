/* windows.c - which tokens a protocol reads and which it scores; the rule stands in eval.h */
#include "eval/eval.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct windows windows_of(int64_t length, int64_t stride, int64_t targets)
{
    struct windows w = { .length = length, .stride = stride, .targets = targets, .count = 1 };

    if (targets > length)
        w.count += (targets - length - 1) / stride + 1;
    return w;
}

struct window windows_at(const struct windows *w, int64_t k)
{
    int64_t start = k * w->stride;

    return (struct window){
        .start = start,
        .inputs = least(w->length, w->targets - start),
        .first = k == 0 ? 0 : w->length - w->stride,
    };
}
