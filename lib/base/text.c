/* text.c - texts that grow
 *
 * Numbers are formatted in the C locale whatever the program has set, so that the same values give
 * the same bytes anywhere. */
#include <locale.h>
#include <string.h>

#include "base/base.h"

alibi_status text_copy(char **out, const char *text)
{
    size_t bytes = strlen(text) + 1;

    TRY_RETURN(NEW_ARRAY(out, (int64_t)bytes, "a text"));
    memcpy(*out, text, bytes);
    return ALIBI_OK;
}

/* Records the failure in the text, where text_status finds it again. */
static alibi_status fail_text(struct text *t, alibi_status status)
{
    t->status = status;
    return status;
}

/* Makes room for `more` bytes and the terminating 0; capacity doubles, so that appending n bytes
 * copies O(n). */
static alibi_status reserve(struct text *t, size_t more)
{
    size_t need, capacity = t->capacity > 0 ? t->capacity : 128;
    alibi_status status;

    if (t->status != ALIBI_OK)
        return t->status;
    if (!size_add(&need, t->length, more) || !size_add(&need, need, 1))
        return fail_text(t, fail(ALIBI_MEMORY, "not enough memory for a text of %zu + %zu bytes",
                                 t->length, more));
    if (need <= t->capacity)
        return ALIBI_OK;
    while (capacity < need)
        if (!size_multiply(&capacity, capacity, 2))
            capacity = need;
    status = mem_grow((void **)&t->data, t->length, capacity, "a text");
    if (status != ALIBI_OK)
        return fail_text(t, status);
    t->capacity = capacity;
    return ALIBI_OK;
}

alibi_status text_append_bytes(struct text *t, const void *bytes, size_t length)
{
    TRY_RETURN(reserve(t, length));
    if (length > 0)
        memcpy(t->data + t->length, bytes, length);
    t->length += length;
    t->data[t->length] = '\0';
    return ALIBI_OK;
}

static int format_plainly(char *out, size_t size, const char *format, va_list args)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(plain);
    int length = vsnprintf(out, size, format, args);

    uselocale(before);
    freelocale(plain);
    return length;
}

alibi_status text_append(struct text *t, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = format_plainly(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        return fail_text(t, fail(ALIBI_MEMORY, "a text of the form '%s' is too long", format));
    TRY_RETURN(reserve(t, (size_t)length));
    va_start(args, format);
    format_plainly(t->data + t->length, (size_t)length + 1, format, args);
    va_end(args);
    t->length += (size_t)length;
    return ALIBI_OK;
}

alibi_status text_status(const struct text *t)
{
    if (t->status != ALIBI_MEMORY)
        return t->status; /* its message is the last one of this thread */
    return fail(t->status, "not enough memory for a text of more than %zu bytes", t->length);
}

void text_free(struct text *t)
{
    mem_free(t->data);
    *t = (struct text){ 0 };
}

void alibi_text_free(char *text)
{
    mem_free(text);
}
