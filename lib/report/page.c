/* page.c - see page.h */
#include "report/page.h"

#include <string.h>

enum { NAME_COLUMN = 32 };

/* Names and texts come from files: nothing in them may move a terminal's cursor. `width` is as in
 * %-*s. */
static alibi_status put_plain(struct page *p, const char *text, int width)
{
    alibi_status status;
    char *clean = NULL;

    TRY(text_copy(&clean, text));
    line_clean(clean);
    TRY(text_append(&p->out, "%-*s", width, clean));
out:
    mem_free(clean);
    return status;
}

static alibi_status put_name_for_people(struct page *p, const char *name)
{
    TRY_RETURN(text_append(&p->out, "%*s", 2 * p->depth, ""));
    TRY_RETURN(put_plain(p, name, NAME_COLUMN - 2 * p->depth));
    return text_append(&p->out, " ");
}

/* The name and what stands between it and the value. */
static alibi_status put_name(struct page *p, const char *name)
{
    if (!p->json)
        return put_name_for_people(p, name);
    TRY_RETURN(text_append(&p->out, "%s\n%*s", p->first ? "" : ",", 2 * p->depth + 2, ""));
    p->first = false;
    TRY_RETURN(json_append_string(&p->out, name, strlen(name)));
    return text_append(&p->out, ": ");
}

static alibi_status end_line(struct page *p)
{
    return p->json ? ALIBI_OK : text_append(&p->out, "\n");
}

alibi_status page_begin(struct page *p, bool json)
{
    *p = (struct page){ .json = json, .first = true };
    return text_append(&p->out, "%s", json ? "{" : "");
}

alibi_status page_end(struct page *p)
{
    return text_append(&p->out, "%s", p->json ? "\n}\n" : "");
}

alibi_status page_text(struct page *p, const char *name, const char *value)
{
    TRY_RETURN(put_name(p, name));
    TRY_RETURN(p->json ? json_append_string(&p->out, value, strlen(value))
                       : put_plain(p, value, 0));
    return end_line(p);
}

alibi_status page_int(struct page *p, const char *name, int64_t value)
{
    TRY_RETURN(put_name(p, name));
    TRY_RETURN(text_append(&p->out, "%lld", (long long)value));
    return end_line(p);
}

static alibi_status put_real(struct page *p, double value)
{
    return p->json ? json_append_real(&p->out, value) : text_append(&p->out, "%.6g", value);
}

alibi_status page_real(struct page *p, const char *name, double value)
{
    TRY_RETURN(put_name(p, name));
    TRY_RETURN(put_real(p, value));
    return end_line(p);
}

alibi_status page_tensor(struct page *p, const char *name, const char *type, const int64_t *shape,
                         int rank)
{
    TRY_RETURN(put_name(p, name));
    TRY_RETURN(text_append(&p->out, p->json ? "{\"type\": \"%s\", \"shape\": [" : "%-4s [", type));
    for (int i = 0; i < rank; i++)
        TRY_RETURN(text_append(&p->out, "%s%lld", i == 0 ? "" : ", ", (long long)shape[i]));
    TRY_RETURN(text_append(&p->out, "%s", p->json ? "]}" : "]"));
    return end_line(p);
}

alibi_status page_reals(struct page *p, const char *name, const double *values, int64_t count)
{
    TRY_RETURN(put_name(p, name));
    TRY_RETURN(text_append(&p->out, "%s", p->json ? "[" : ""));
    for (int64_t i = 0; i < count; i++) {
        TRY_RETURN(text_append(&p->out, "%s", i == 0 ? "" : p->json ? ", " : " "));
        TRY_RETURN(put_real(p, values[i]));
    }
    TRY_RETURN(text_append(&p->out, "%s", p->json ? "]" : ""));
    return end_line(p);
}

/* For people a heading, with room above it. */
static alibi_status put_heading(struct page *p, const char *name)
{
    TRY_RETURN(text_append(&p->out, "%s%*s", p->depth == 0 ? "\n" : "", 2 * p->depth, ""));
    TRY_RETURN(put_plain(p, name, 0));
    return text_append(&p->out, "\n");
}

alibi_status page_open(struct page *p, const char *name)
{
    TRY_RETURN(p->json ? put_name(p, name) : put_heading(p, name));
    TRY_RETURN(text_append(&p->out, "%s", p->json ? "{" : ""));
    p->first = true;
    p->depth++;
    return ALIBI_OK;
}

alibi_status page_close(struct page *p)
{
    p->depth--;
    p->first = false;
    return p->json ? text_append(&p->out, "\n%*s}", 2 * p->depth + 2, "") : ALIBI_OK;
}

alibi_status page_options(struct page *p, const char *name, const struct alibi_option *options,
                          int count, const void *values)
{
    char key[OPTION_KEY_MAX];

    TRY_RETURN(page_open(p, name));
    for (int i = 0; i < count; i++) {
        const struct alibi_option *o = &options[i];
        option_key(key, o->name);
        TRY_RETURN(put_name(p, p->json ? key : o->name));
        TRY_RETURN(p->json ? option_format(&p->out, o, values)
                           : option_format_plain(&p->out, o, values));
        TRY_RETURN(end_line(p));
    }
    return page_close(p);
}
