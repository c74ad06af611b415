/* labels.c - a label at the end of every curve, moved apart where curves end close together */
#include <math.h>
#include <stdlib.h>

#include "report/parts.h"

static bool last_point(struct label *label, const struct series *s, const struct axis *x,
                       const struct axis *y)
{
    for (int i = s->count - 1; i >= 0; i--)
        if (has_point(s, i, x, y)) {
            double place = axis_place(y, s->y[i]);
            label->last_x = s->x[i];
            label->x = axis_place(x, s->x[i]);
            label->above = place > 1;
            label->y = fmin(fmax(place, 0), 1);
            return true;
        }
    return false;
}

/* From the top; curves that end in the same place keep their order. */
static int from_the_top(const void *a, const void *b)
{
    const struct label *p = a, *q = b;

    if (p->y != q->y)
        return p->y > q->y ? -1 : 1;
    return p->series - q->series;
}

static void find_early(struct label *labels, int count)
{
    double end = 0;

    for (int i = 0; i < count; i++)
        end = fmax(end, labels[i].x);
    for (int i = 0; i < count; i++)
        labels[i].early = labels[i].x < end - 1e-6;
}

int labels_of(struct label *labels, const struct chart *chart, const struct axis *x,
              const struct axis *y)
{
    int count = 0;

    for (int s = 0; s < chart->count; s++) {
        labels[count] = (struct label){ .series = s };
        if (last_point(&labels[count], &chart->series[s], x, y))
            count++;
    }
    find_early(labels, count);
    qsort(labels, (size_t)count, sizeof *labels, from_the_top);
    return count;
}

/* Down from the top, pushing; then up from the bottom, pushing back what fell off. If there is no
 * room for all gaps, they shrink. */
void labels_spread(struct label *labels, int count, double gap, double size)
{
    double room = count > 1 ? fmin(gap, size / (count - 1)) : gap;

    for (int i = 0; i < count; i++) {
        double wanted = (1 - labels[i].y) * size;
        labels[i].at = i > 0 ? fmax(wanted, labels[i - 1].at + room) : wanted;
    }
    for (int i = count - 1; i >= 0; i--) {
        double most = i < count - 1 ? labels[i + 1].at - room : size;
        labels[i].at = fmin(labels[i].at, most);
    }
}

alibi_status append_label(struct text *out, const struct chart *chart, const struct label *label,
                          int width)
{
    TRY_RETURN(append_cut(out, chart->series[label->series].name, width));
    if (label->above)
        TRY_RETURN(text_append(out, " ↑"));
    if (label->early)
        TRY_RETURN(text_append(out, ", to %s", show_tick(label->last_x, 0).text));
    return ALIBI_OK;
}

alibi_status labels_width(int *widest, const struct chart *chart, const struct label *labels,
                          int count, int width)
{
    alibi_status status = ALIBI_OK;
    struct text text = { 0 };

    *widest = 0;
    for (int i = 0; i < count; i++) {
        int characters;
        text.length = 0;
        TRY(append_label(&text, chart, &labels[i], width));
        characters = display_width(text.data);
        *widest = characters > *widest ? characters : *widest;
    }
out:
    text_free(&text);
    return status;
}
