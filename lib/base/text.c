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

/* Makes room for `more` bytes and the terminating 0; capacity doubles, so that appending n bytes
 * copies O(n). */
static alibi_status reserve(struct text *t, size_t more)
{
    size_t need, capacity = t->capacity > 0 ? t->capacity : 128;

    if (!size_add(&need, t->length, more) || !size_add(&need, need, 1))
        return fail(ALIBI_MEMORY, "not enough memory for a text: %zu and %zu bytes needed",
                    t->length, more);
    if (need <= t->capacity)
        return ALIBI_OK;
    while (capacity < need)
        if (!size_multiply(&capacity, capacity, 2))
            capacity = need;
    TRY_RETURN(mem_grow((void **)&t->data, t->length, capacity, "a text"));
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
        return fail(ALIBI_MEMORY, "a text of the form '%s' is too long to be written", format);
    TRY_RETURN(reserve(t, (size_t)length));
    va_start(args, format);
    format_plainly(t->data + t->length, (size_t)length + 1, format, args);
    va_end(args);
    t->length += (size_t)length;
    return ALIBI_OK;
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
