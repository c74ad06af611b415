/* show.c - numbers, names and tables as people read them
 *
 * A number has only significant digits, and a unit that fits its size. Limits are half a last digit
 * below the power of ten, so that 9.9996 becomes 10.0 and not 10.000. */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* ---- numbers */

static struct shown shown(const char *format, ...) __attribute__((format(printf, 1, 2)));

static struct shown shown(const char *format, ...)
{
    struct shown s = { "" };
    va_list args;

    va_start(args, format);
    text_format(s.text, sizeof s.text, format, args);
    va_end(args);
    return s;
}

struct shown show_ppl(double value)
{
    if (isinf(value) && value > 0)
        return shown("∞");
    if (!isfinite(value))
        return shown(NO_VALUE);
    if (fabs(value) < 9.9995)
        return shown("%.3f", value);
    if (fabs(value) < 99.95)
        return shown("%.1f", value);
    if (value < 9999.5)
        return shown("%.0f", value);
    return show_count(value);
}

struct shown show_real(double value, int decimals)
{
    if (isfinite(value) && fabs(value) < 1000 - 0.5 * pow(10, -decimals))
        return shown("%.*f", decimals, value);
    return isfinite(value) ? show_ppl(value) : shown(NO_VALUE);
}

struct shown show_nats(double value)
{
    return show_real(fabs(value) < 0.00005 ? 0 : value, 4); /* no "-0.0000" */
}

struct shown show_error(double value, int decimals)
{
    double half = 0.5 * pow(10, -decimals);

    if (value < half)
        return shown("<%.*f", decimals + 1, half);
    return value < 999.5 ? shown("%.*f", decimals, value) : show_count(value);
}

bool error_is_factor(double error)
{
    return isfinite(error) && error >= 0.5;
}

bool factor_since(const struct text *out, size_t start)
{
    return out->status == ALIBI_OK && out->length > start && strstr(out->data + start, "×÷");
}

struct shown show_ppl_error(double ppl, double error)
{
    double value = ppl * error;

    if (!isfinite(value))
        return shown("%s", "");
    if (error_is_factor(error))
        return shown("×÷%s", show_real(exp(error), 1).text);
    return shown("±%s", show_error(value, ppl < 9.9995 ? 3 : ppl < 99.95 ? 1 : 0).text);
}

/* Three digits and the largest unit that leaves at least 1; values beyond all units in full. */
static struct shown with_unit(double value, double step, const char *const units[4])
{
    double whole = value;
    int unit = 0;

    for (value /= step; value >= step - 0.5 && unit < 3; unit++)
        value /= step;
    if (value >= 99999.5)
        return shown("%.1e", whole);
    return shown("%.*f%s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
}

struct shown show_count(double value)
{
    static const char *const units[] = { "K", "M", "G", "T" };

    if (!isfinite(value) || value < 0)
        return shown(NO_VALUE);
    return value < 9999.5 ? shown("%.0f", value) : with_unit(value, 1000, units);
}

struct shown show_bytes(double value)
{
    static const char *const units[] = { " KiB", " MiB", " GiB", " TiB" };

    return isfinite(value) && value > 0 ? with_unit(value, 1024, units) : shown(NO_VALUE);
}

struct shown show_share(double value)
{
    if (!isfinite(value))
        return shown(NO_VALUE);
    return shown(value > 0 && value < 0.0095 ? "%.1f%%" : "%.0f%%", 100 * value);
}

struct shown show_distances(int bin)
{
    return bin < 2 ? shown("%d", bin) : shown("%.0f–%.0f", exp2(bin - 1), exp2(bin) - 1);
}

/* A tick is a round number: thousands and millions are shortened where no digit is lost. */
struct shown show_tick(double value, double step)
{
    double wanted =
        value != 0 && step > 0 ? floor(log10(fabs(value))) - floor(log10(step) + 1e-9) + 1 : 0;
    int digits = (int)fmin(fmax(wanted, 4), 15);

    if (!isfinite(value))
        return shown(NO_VALUE);
    if (fabs(value) >= 1e6 && fabs(value) < 1e12 && fmod(value, 1e5) == 0)
        return shown("%.7gM", value / 1e6);
    if (fabs(value) >= 1e4 && fabs(value) < 1e6 && fmod(value, 1e3) == 0)
        return shown("%.3gK", value / 1e3);
    if (fabs(value) < 1e8 && value == floor(value))
        return shown("%.0f", value + 0.0); /* no "-0" */
    return shown("%.*g", digits, value);
}

/* ---- text */

/* Bytes of a colour sequence (ESC [ digits and semicolons m) at the start; 0 if there is none. */
static size_t sequence_bytes(const char *text)
{
    size_t digits;

    if (text[0] != '\x1b' || text[1] != '[')
        return 0;
    digits = strspn(text + 2, "0123456789;");
    return text[2 + digits] == 'm' ? digits + 3 : 0;
}

int display_width(const char *text)
{
    int width = 0;

    while (*text != '\0') {
        size_t skip = sequence_bytes(text);
        if (skip == 0 && !utf8_continues(*text))
            width++;
        text += skip > 0 ? skip : 1;
    }
    return width;
}

int cut_bytes(const char *text, int width)
{
    int at = 0;

    if (display_width(text) <= width)
        return (int)strlen(text);
    for (int kept = 0; text[at] != '\0' && kept < width - 1; kept++) {
        do
            at++;
        while (utf8_continues(text[at]));
    }
    return at;
}

void append_cut(struct text *out, const char *text, int width)
{
    int bytes = cut_bytes(text, width);

    text_append(out, "%.*s%s", bytes, text, text[bytes] != '\0' ? "…" : "");
}

void append_spaces(struct text *out, int count)
{
    if (count > 0)
        text_append(out, "%*s", count, "");
}

/* NULL: the character needs no escape. */
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

struct escaped escape(const char *text)
{
    struct escaped e;
    size_t length = 0;

    for (; *text != '\0' && length + 7 <= sizeof e.text; text++) {
        const char *name = entity(*text);
        size_t bytes = name != NULL ? strlen(name) : 1;
        memcpy(e.text + length, name != NULL ? name : text, bytes);
        length += bytes;
    }
    e.text[length] = '\0';
    return e;
}

void append_escaped(struct text *out, const char *text)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "&<>\"'");
        text_append_bytes(out, text, plain);
        text += plain;
        if (*text != '\0')
            text_append(out, "%s", entity(*text++));
    }
}

/* ---- tables */

alibi_status table_init(struct table *t, int rows, int columns)
{
    *t = (struct table){ .rows = rows, .columns = columns };
    return NEW_ZERO_ARRAY(&t->cells, (int64_t)rows * columns, "a table");
}

void table_fini(struct table *t)
{
    mem_free(t->cells);
    t->cells = NULL;
}

void table_set(struct table *t, int row, int column, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    text_format(t->cells[row * t->columns + column], CELL_BYTES, format, args);
    va_end(args);
}

const char *table_cell(const struct table *t, int row, int column)
{
    return t->cells[row * t->columns + column];
}

int table_width(const struct table *t, int column)
{
    int widest = 0;

    for (int r = 0; r < t->rows; r++) {
        int width = display_width(t->cells[r * t->columns + column]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

void table_append(struct text *out, const struct table *t, int first, int end, bool colour)
{
    for (int r = 0; r < t->rows; r++) {
        const char(*row)[CELL_BYTES] = (const char(*)[CELL_BYTES])t->cells + r * t->columns;
        bool dim = colour && r == 0;

        text_append(out, "%s%s", dim ? "\x1b[2m" : "", row[0]);
        append_spaces(out, table_width(t, 0) - display_width(row[0]));
        for (int c = first; c < end; c++) {
            append_spaces(out, 1 + table_width(t, c) - display_width(row[c]));
            text_append(out, "%s", row[c]);
        }
        while (out->length > 0 && out->data[out->length - 1] == ' ')
            out->data[--out->length] = '\0'; /* no line ends in a space */
        text_append(out, "%s\n", dim ? "\x1b[0m" : "");
    }
}

void table_append_parts(struct text *out, const struct table *t, int columns, int group,
                        bool colour)
{
    for (int first = 1, end; first < t->columns; first = end) {
        int used = table_width(t, 0);

        for (end = first; end < t->columns; end++) {
            used += 1 + table_width(t, end);
            if (end > first && used > columns)
                break;
        }
        if (first < group && end > group && end < t->columns)
            end = group;
        text_append(out, first > 1 ? "\n" : "");
        table_append(out, t, first, end, colour);
    }
}
