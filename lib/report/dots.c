/* dots.c - one number of each head as a dot: rows of dots over a common axis, as an <svg>
 *
 * Across, positions are percentages, as in plot_svg.c. A row is a model, or one of its layers; dots
 * have the model's colour and are transparent, so that several in one place are darker. The title
 * of a dot has the head and its value, which browsers show without a script. */
#include <math.h>
#include <string.h>

#include "report/parts.h"

enum { ROW = 20, LETTER = 7, TOP = 26, BOTTOM = 44, LABEL_CHARACTERS = 18, ROWS_MAX = 512 };

/* The axis of all dots; false if there are no dots. It is logarithmic if all values are positive
 * and the largest is more than ten times the least. */
static bool find_axis(struct axis *x, const struct dots *d)
{
    struct series s[2];
    double least = INFINITY, most = -INFINITY, ends[2], rows[2] = { 0, 1 };
    struct chart c = { .series = s, .count = 1, .mark_x = d->mark };
    struct axis y;

    for (int i = 0; i < d->rows; i++)
        for (int64_t k = 0; k < d->row[i].count; k++) {
            double value = d->row[i].value(d->row[i].of, k);

            if (!isfinite(value))
                continue;
            least = fmin(least, value);
            most = fmax(most, value);
        }
    if (least > most)
        return false;
    c.log_x = least > 0 && most > 10 * least;
    /* A little room at both ends: dots are wide. */
    ends[0] = c.log_x ? least / pow(most / least, 0.03) : least - 0.03 * (most - least);
    ends[1] = c.log_x ? most * pow(most / least, 0.03) : most + 0.03 * (most - least);
    s[0] = (struct series){ .count = 2, .x = ends, .y = rows };
    return chart_axes(&c, x, &y);
}

static void append_axis(struct text *out, const struct dots *d, const struct axis *x, int height)
{
    text_append(
        out, "<g class=\"axis\"><line class=\"base\" x1=\"0\" x2=\"100%%\" y1=\"%d\" y2=\"%d\"/>\n",
        height, height);
    for (int i = 0; i < x->ticks; i++) {
        double at = 100 * axis_place(x, x->tick[i]);

        text_append(out,
                    "<line class=\"grid\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"%d\"/>"
                    "<text%s x=\"%.2f%%\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                    at, at, height, x->ticks > 4 && (x->ticks - i) % 2 == 0 ? " class=\"odd\"" : "",
                    at, height + 17, tick_shown(x, i).text);
    }
    text_append(out,
                "<text class=\"axis-title\" x=\"50%%\" y=\"%d\" text-anchor=\"middle\">%s%s</text>"
                "</g>\n",
                height + 36, escape(d->label).text, x->log ? ", log scale" : "");
    if (isfinite(d->mark))
        text_append(out,
                    "<g class=\"mark\"><line x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"-6\" y2=\"%d\"/>"
                    "<text x=\"%.2f%%\" y=\"-10\" text-anchor=\"%s\">%s</text></g>\n",
                    100 * axis_place(x, d->mark), 100 * axis_place(x, d->mark), height,
                    100 * axis_place(x, d->mark), axis_place(x, d->mark) > 0.7 ? "end" : "middle",
                    escape(d->mark_label).text);
}

void dots_label(struct dots_row *row, const struct view *v, int64_t seed, int64_t layer, bool named)
{
    const char *name = v->name[row->method];
    int kept = cut_bytes(name, LABEL_CHARACTERS);
    char of_seed[32] = "", number[24] = "";

    if (named && seed >= 0)
        snprintf(of_seed, sizeof of_seed, " (seed %lld)", (long long)seed);
    if (layer >= 0)
        snprintf(number, sizeof number, "%s%lld", named ? " " : "", (long long)layer + 1);
    snprintf(row->label, sizeof row->label, "%.*s%s%s%s", named ? kept : 0, name,
             named && name[kept] != '\0' ? "…" : "", of_seed, number);
}

void dots_svg(struct text *out, const struct view *v, const struct dots *d)
{
    struct axis x;
    int left = 0, height = d->rows * ROW;

    if (!find_axis(&x, d))
        return;
    for (int i = 0; i < d->rows; i++)
        left = display_width(d->row[i].label) > left ? display_width(d->row[i].label) : left;
    left = left * LETTER + 10;
    text_append(out,
                "<figure>\n<figcaption><b>%s.</b> <span>%s</span></figcaption>\n"
                "<div class=\"tools\"></div>\n<svg class=\"plot dots\" role=\"img\" "
                "aria-labelledby=\"%s-title\" width=\"100%%\" height=\"%d\" "
                "style=\"margin:%dpx 12px %dpx %dpx;width:calc(100%% - %dpx);overflow:visible\">\n"
                "<title id=\"%s-title\">%s</title>\n",
                escape(d->title).text, escape(d->caption).text, d->id, height, TOP, BOTTOM, left,
                left + 12, d->id, escape(d->title).text);
    append_axis(out, d, &x, height);
    for (int i = 0; i < d->rows; i++) {
        const struct dots_row *r = &d->row[i];
        int y = i * ROW + ROW / 2;

        text_append(out,
                    "<g class=\"s%d\" style=\"color:var(--series-%d)\"><text x=\"-8\" y=\"%d\" "
                    "dy=\".35em\" text-anchor=\"end\">%s</text>",
                    r->method, v->look[r->method] % LOOKS, y, escape(r->label).text);
        for (int64_t k = 0; k < r->count; k++) {
            double value = r->value(r->of, k);

            if (isfinite(value))
                text_append(out,
                            "<circle class=\"dot\" cx=\"%.2f%%\" cy=\"%d\" r=\"4\"><title>%lld: "
                            "%.4g</title></circle>",
                            100 * axis_place(&x, value), y, (long long)k + 1, value);
        }
        text_append(out, "</g>\n");
    }
    text_append(out, "</svg>\n</figure>\n");
}

/* ---- the numbers of an experiment */

static double number_at(const void *of, int64_t k)
{
    return ((const struct report_numbers *)of)->value[k];
}

/* The title of a number's figure, and the label of its axis. A name of another version, not known
 * here, stands for itself. */
struct words {
    const char *name, *title, *label;
};

static struct words words_of(const char *name)
{
    static const struct words known[] = {
        { "slopes", "Slopes of each head", "slope" },
        { "logn", "logn: the factor s of each head, on ln n", "factor s" },
        { "gate_tokens",
          "fox: how many tokens the gate of each head keeps, where the text does not move it",
          "tokens" },
        { "kerple_p", "kerple: p of each head, how steeply the bias falls", "p" },
        { "kerple_a", "kerple: a of each head, the scale of its distances", "a" },
        { "bam_alpha", "bam: alpha of each head, the logarithm of its slope", "alpha" },
        { "bam_beta", "bam: beta of each head, the power of the distance", "beta" },
    };

    for (int i = 0; i < COUNT(known); i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i];
    return (struct words){ name, name, name };
}

/* The rows of one name; seeds have rows of their own. */
static alibi_status append_name(struct text *out, const struct view *v,
                                const struct report_experiment *x, const char *name, int index)
{
    struct dots_row *rows = NULL;
    struct words words = words_of(name);
    struct dots d = { .title = words.title,
                      .caption = "One dot per head, one row per training and layer.",
                      .label = words.label,
                      .mark = NAN };
    const struct report_numbers *last = NULL;
    char id[48];

    TRY_RETURN(NEW_ZERO_ARRAY(&rows, ROWS_MAX, "the dots of a figure"));
    d.row = rows;
    for (int64_t i = 0; i < x->numbers_count && d.rows < ROWS_MAX; i++) {
        const struct report_numbers *n = &x->numbers[i];
        struct dots_row *r = &rows[d.rows];
        bool follows = last && last->method == n->method && last->place < n->place;

        if (strcmp(n->name, name) != 0)
            continue;
        *r = (struct dots_row){
            .method = n->method, .count = n->heads, .value = number_at, .of = n
        };
        dots_label(r, v, n->seed, n->place, !follows);
        last = n;
        d.rows++;
    }
    snprintf(id, sizeof id, "fig-numbers-%d", index);
    d.id = id;
    dots_svg(out, v, &d);
    mem_free(rows);
    return ALIBI_OK;
}

alibi_status html_numbers(struct text *out, const struct view *v, const struct report_experiment *x)
{
    int index = 0;

    if (x->numbers_count == 0)
        return ALIBI_OK;
    text_append(out, "<h2>What the heads have learned</h2>\n<div class=\"pair ragged\">\n");
    for (int64_t i = 0; i < x->numbers_count; i++) {
        int64_t k = 0;

        while (strcmp(x->numbers[k].name, x->numbers[i].name) != 0)
            k++;
        if (k == i) /* the first of its name */
            TRY_RETURN(append_name(out, v, x, x->numbers[i].name, index++));
    }
    text_append(out, "</div>\n");
    return ALIBI_OK;
}
