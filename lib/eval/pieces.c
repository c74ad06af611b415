/* pieces.c - bytes in, whole UTF-8 characters out
 *
 * A token may end inside a character. Bytes are held back until they are a character; those that
 * cannot become one any more are replaced by U+FFFD, one per longest start of a character, as the
 * Unicode standard recommends. */
#include <string.h>

#include "eval/eval.h"

static const char replacement[] = "\xEF\xBF\xBD";

enum { CHARACTER_BYTES_MAX = 4 };

/* Whether the bytes are the start of some character and not all of it: then filling up with
 * continuation bytes gives one. The smallest and the largest such byte suffice to try, since each
 * lead byte allows one of the two in second place. */
static bool starts_character(const char *bytes, size_t count)
{
    char tried[CHARACTER_BYTES_MAX];

    if (count >= CHARACTER_BYTES_MAX)
        return false;
    memcpy(tried, bytes, count);
    for (int fill = 0x80; fill <= 0xBF; fill += 0x3F) {
        memset(tried + count, fill, CHARACTER_BYTES_MAX - count);
        for (size_t whole = count + 1; whole <= CHARACTER_BYTES_MAX; whole++)
            if (utf8_valid_prefix(tried, whole) == whole)
                return true;
    }
    return false;
}

/* Bytes at the front, which are no character, that one U+FFFD stands for. */
static size_t broken_bytes(const char *bytes, size_t count)
{
    size_t broken = 1;

    while (broken < count && starts_character(bytes, broken + 1))
        broken++;
    return broken;
}

static void hand_over(struct pieces *p, const char *text, size_t bytes)
{
    if (bytes > 0 && !p->stopped)
        p->stopped = !p->emit(p->user, text, bytes);
}

/* Hands over what is whole and replaces what is broken; keeps a start of a character, unless the
 * text has ended. */
static void flush(struct pieces *p, bool ended)
{
    char *at = p->held.data;
    size_t left = p->held.length;

    while (left > 0) {
        size_t valid = utf8_valid_prefix(at, left), broken;

        hand_over(p, at, valid);
        at += valid;
        left -= valid;
        if (left == 0 || (!ended && starts_character(at, left)))
            break;
        broken = broken_bytes(at, left);
        hand_over(p, replacement, sizeof replacement - 1);
        at += broken;
        left -= broken;
    }
    if (left > 0)
        memmove(p->held.data, at, left);
    p->held.length = left;
}

alibi_status pieces_add(struct pieces *p, const char *bytes, size_t count)
{
    TRY_RETURN(text_append_bytes(&p->held, bytes, count));
    flush(p, false);
    return ALIBI_OK;
}

void pieces_end(struct pieces *p)
{
    flush(p, true);
}
