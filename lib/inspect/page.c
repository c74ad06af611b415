/* page.c - facts with names, for people or as JSON (page.h) */
#include "inspect/page.h"

enum { NAME_COLUMN = 32 };

void page_begin(struct page *p, bool json)
{
    *p = (struct page){ .json = json };
    p->writer = json_writer(&p->out);
    if (json)
        json_write_object(&p->writer, NULL);
}

alibi_status page_end(struct page *p)
{
    if (p->json)
        json_write_end(&p->writer);
    return text_status(&p->out);
}

/* Names and texts come from files, so control characters are removed: they could move a terminal's
 * cursor. Pads with spaces to `width` bytes. */
static void put_clean(struct page *p, const char *text, int width)
{
    size_t start = p->out.length;
    int bytes;

    text_append(&p->out, "%s", text);
    if (p->out.status != ALIBI_OK)
        return;
    line_clean(p->out.data + start);
    bytes = (int)(p->out.length - start);
    text_append(&p->out, "%*s", width > bytes ? width - bytes : 0, "");
}

/* For people: the name, in its column. */
static void put_name(struct page *p, const char *name)
{
    text_append(&p->out, "%*s", 2 * p->depth, "");
    put_clean(p, name, NAME_COLUMN - 2 * p->depth);
    text_append(&p->out, " ");
}

void page_text(struct page *p, const char *name, const char *value)
{
    if (p->json) {
        json_write_string(&p->writer, name, value);
        return;
    }
    put_name(p, name);
    put_clean(p, value, 0);
    text_append(&p->out, "\n");
}

void page_int(struct page *p, const char *name, int64_t value)
{
    if (p->json) {
        json_write_int(&p->writer, name, value);
        return;
    }
    put_name(p, name);
    text_append(&p->out, "%lld\n", (long long)value);
}

void page_none(struct page *p, const char *name)
{
    if (p->json)
        json_write_null(&p->writer, name);
    else
        page_text(p, name, "none");
}

void page_real(struct page *p, const char *name, double value)
{
    if (p->json) {
        json_write_real(&p->writer, name, value);
        return;
    }
    put_name(p, name);
    text_append(&p->out, "%.6g\n", value);
}

void page_reals(struct page *p, const char *name, const double *values, int64_t count)
{
    if (p->json) {
        json_write_array_line(&p->writer, name);
        for (int64_t i = 0; i < count; i++)
            json_write_real(&p->writer, NULL, values[i]);
        json_write_end(&p->writer);
        return;
    }
    put_name(p, name);
    for (int64_t i = 0; i < count; i++)
        text_append(&p->out, "%s%.6g", i > 0 ? " " : "", values[i]);
    text_append(&p->out, "\n");
}

void page_tensor(struct page *p, const char *name, const char *type, const int64_t *shape, int rank)
{
    if (p->json) {
        json_write_object_line(&p->writer, name);
        json_write_string(&p->writer, "type", type);
        json_write_array_line(&p->writer, "shape");
        for (int i = 0; i < rank; i++)
            json_write_int(&p->writer, NULL, shape[i]);
        json_write_end(&p->writer);
        json_write_end(&p->writer);
        return;
    }
    put_name(p, name);
    text_append(&p->out, "%-4s [", type);
    for (int i = 0; i < rank; i++)
        text_append(&p->out, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    text_append(&p->out, "]\n");
}

/* For people: a heading, at the top level with an empty line above it. */
void page_open(struct page *p, const char *name)
{
    if (p->json) {
        json_write_object(&p->writer, name);
    } else {
        text_append(&p->out, "%s%*s", p->depth == 0 ? "\n" : "", 2 * p->depth, "");
        put_clean(p, name, 0);
        text_append(&p->out, "\n");
    }
    p->depth++;
}

void page_close(struct page *p)
{
    p->depth--;
    if (p->json)
        json_write_end(&p->writer);
}

void page_options(struct page *p, const char *name, const struct alibi_option *options, int count,
                  const void *values)
{
    char key[OPTION_KEY_MAX];

    page_open(p, name);
    for (int i = 0; i < count; i++) {
        option_key(key, options[i].name);
        if (p->json) {
            option_write(&p->writer, key, &options[i], values);
        } else {
            put_name(p, options[i].name);
            option_format_plain(&p->out, &options[i], values);
            text_append(&p->out, "\n");
        }
    }
    page_close(p);
}
