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

/* Makes room for `more` bytes and the terminating 0; false if the text has failed. The capacity
 * doubles, so that appending n bytes copies O(n). */
static bool reserve(struct text *t, size_t more)
{
    size_t need, capacity = t->capacity > 0 ? t->capacity : 128;

    if (t->status != ALIBI_OK)
        return false;
    if (!size_add(&need, t->length, more) || !size_add(&need, need, 1)) {
        t->status = ALIBI_MEMORY;
        return false;
    }
    if (need <= t->capacity)
        return true;
    while (capacity < need)
        if (!size_multiply(&capacity, capacity, 2))
            capacity = need;
    t->status = mem_grow((void **)&t->data, t->length, capacity, "a text");
    if (t->status == ALIBI_OK)
        t->capacity = capacity;
    return t->status == ALIBI_OK;
}

void text_append_bytes(struct text *t, const void *bytes, size_t length)
{
    if (!reserve(t, length))
        return;
    if (length > 0)
        memcpy(t->data + t->length, bytes, length);
    t->length += length;
    t->data[t->length] = '\0';
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

void text_append(struct text *t, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = format_plainly(NULL, 0, format, args);
    va_end(args);
    if (length < 0 && t->status == ALIBI_OK)
        t->status = ALIBI_MEMORY; /* longer than an int can count */
    if (!reserve(t, length > 0 ? (size_t)length : 0))
        return;
    va_start(args, format);
    format_plainly(t->data + t->length, (size_t)length + 1, format, args);
    va_end(args);
    t->length += (size_t)length;
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
