/* table.c - a table of text cells for a terminal */
#include "report/parts.h"

static int column_width(const char *const *cells, int rows, int columns, int column)
{
    int width = 0;

    for (int r = 0; r < rows; r++) {
        int w = display_width(cells[r * columns + column]);
        width = w > width ? w : width;
    }
    return width;
}

/* Lines do not end in spaces: nothing is put behind the last cell, and blanks at its end go. */
static alibi_status append_row(struct text *out, const char *const *row, const int *widths,
                               int columns)
{
    for (int c = 0; c < columns; c++) {
        int room = widths[c] - display_width(row[c]);
        TRY_RETURN(append_spaces(out, c > 0 ? room + 1 : 0));
        TRY_RETURN(text_append(out, "%s", row[c]));
        TRY_RETURN(append_spaces(out, c == 0 && columns > 1 ? room : 0));
    }
    while (out->length > 0 && out->data[out->length - 1] == ' ')
        out->data[--out->length] = '\0';
    return ALIBI_OK;
}

alibi_status table_terminal(struct text *out, const char *const *cells, int rows, int columns,
                            bool colour)
{
    alibi_status status;
    int *widths = NULL;

    TRY(NEW_ARRAY(&widths, columns, "a table"));
    for (int c = 0; c < columns; c++)
        widths[c] = column_width(cells, rows, columns, c);
    for (int r = 0; r < rows; r++) {
        bool dim = colour && r == 0;
        TRY(text_append(out, "%s", dim ? "\x1b[2m" : ""));
        TRY(append_row(out, cells + r * columns, widths, columns));
        TRY(text_append(out, "%s", dim ? "\x1b[0m\n" : "\n"));
    }
out:
    mem_free(widths);
    return status;
}
