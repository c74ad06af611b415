/* bpe_build.c - vocabulary and merges, from names to bytes
 *
 * A byte-level name consists of letters of bytes, or it is literal text, as special tokens are,
 * which may have blanks. Text is always encoded as letters, so no merge can make a literal token; a
 * file with such a merge is refused.
 *
 * The name of a token that is merged from characters is its text with U+2581 for blanks, or the
 * "<0xXX>" of a byte. Text never has a blank there, so only an added token may have one. */
#include "formats/bpe_build.h"

#include <stdlib.h>
#include <string.h>

const char bpe_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- white space
 *
 * Unicode's White_Space: U+0009 to U+000D, U+0020, U+0085, U+00A0, U+1680, U+2000 to U+200A,
 * U+2028, U+2029, U+202F, U+205F, U+3000. */

/* Its bytes, if it is the character at text[at..end), else 0. */
static size_t white_space_at(const char *text, size_t at, size_t end)
{
    const unsigned char *c = (const unsigned char *)text + at;

    if (at < end && ((c[0] >= 0x09 && c[0] <= 0x0D) || c[0] == 0x20))
        return 1;
    if (end - at >= 2 && c[0] == 0xC2 && (c[1] == 0x85 || c[1] == 0xA0))
        return 2;
    if (end - at >= 3 && ((c[0] == 0xE1 && c[1] == 0x9A && c[2] == 0x80) ||
                          (c[0] == 0xE2 && c[1] == 0x80 &&
                           (c[2] <= 0x8A || c[2] == 0xA8 || c[2] == 0xA9 || c[2] == 0xAF)) ||
                          (c[0] == 0xE2 && c[1] == 0x81 && c[2] == 0x9F) ||
                          (c[0] == 0xE3 && c[1] == 0x80 && c[2] == 0x80)))
        return 3;
    return 0;
}

size_t white_space_after(const char *text, size_t at, size_t end)
{
    for (size_t bytes; (bytes = white_space_at(text, at, end)) > 0;)
        at += bytes;
    return at;
}

size_t white_space_before(const char *text, size_t from, size_t at)
{
    for (size_t bytes = 1; bytes <= 3 && at - from >= bytes; bytes++)
        if (white_space_at(text, at - bytes, at) == bytes) {
            at -= bytes;
            bytes = 0;
        }
    return at;
}

/* ---- begin, end */

alibi_status bpe_check_text(struct slice text, const char *path)
{
    size_t valid;

    if (text.bytes > BPE_FILE_MAX)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it has %zu bytes, at most %d are allowed",
                    path, text.bytes, BPE_FILE_MAX);
    valid = utf8_valid_prefix(text.at, text.bytes);
    if (valid < text.bytes)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': byte %zu is not UTF-8", path, valid);
    return ALIBI_OK;
}

alibi_status bpe_build_init(struct bpe_build *b, struct slice text, const char *path)
{
    *b = (struct bpe_build){
        .scan = { .text = text.at, .end = text.bytes, .path = path, .lines = true }
    };
    TRY_RETURN(bpe_check_text(text, path));
    TRY_RETURN(NEW_ZERO_ARRAY(&b->file, 1, "a tokenizer"));
    return NEW_ARRAY(&b->scan.strings, (int64_t)text.bytes, "the names of tokens");
}

void bpe_build_fini(struct bpe_build *b)
{
    mem_free(b->scan.strings);
    bpe_file_free(b->file);
    mem_free(b->names.at);
    mem_free(b->names.starts);
}

void bpe_file_free(struct bpe_file *f)
{
    if (f == NULL)
        return;
    for (int i = 0; i < f->split_count; i++)
        mem_free(f->splits[i].pattern);
    mem_free(f->storage);
    mem_free(f->tokens);
    mem_free(f->merges);
    mem_free(f->added);
    mem_free(f);
}

/* ---- names */

/* FNV-1a, continued from `hash`. */
static uint64_t hash_more(uint64_t hash, struct slice s)
{
    for (size_t i = 0; i < s.bytes; i++)
        hash = (hash ^ (unsigned char)s.at[i]) * 0x100000001B3ull;
    return hash;
}

/* The last bytes hardly reach the leading bits of FNV-1a; another multiplication spreads them. */
static uint64_t hash_pair(struct slice left, struct slice right)
{
    uint64_t hash = hash_more(hash_more(0xCBF29CE484222325ull, left), right);

    return (hash ^ hash >> 32) * 0x9E3779B97F4A7C15ull;
}

static int compare_bytes(const char *a, const char *b, size_t bytes)
{
    return bytes > 0 ? memcmp(a, b, bytes) : 0;
}

/* The name against left + right; by length first. */
static int compare_to_pair(struct slice name, struct slice left, struct slice right)
{
    int order;

    if (name.bytes != left.bytes + right.bytes)
        return name.bytes < left.bytes + right.bytes ? -1 : 1;
    order = compare_bytes(name.at, left.at, left.bytes);
    return order != 0 ? order : compare_bytes(name.at + left.bytes, right.at, right.bytes);
}

static int compare_names(const void *a, const void *b)
{
    const struct token_name *s = a, *t = b;

    if (s->hash != t->hash)
        return s->hash < t->hash ? -1 : 1;
    return compare_to_pair(s->name, t->name, (struct slice){ 0 });
}

/* Sorts `count` names, which have name and id. ALIBI_BAD_INPUT if one is repeated. */
static alibi_status sort_names(struct token_names *n, const char *path)
{
    int64_t at = 0;

    for (int64_t i = 0; i < n->count; i++)
        n->at[i].hash = hash_pair(n->at[i].name, (struct slice){ 0 });
    if (n->count > 0)
        qsort(n->at, (size_t)n->count, sizeof *n->at, compare_names);
    for (int64_t i = 1; i < n->count; i++)
        if (compare_names(&n->at[i - 1], &n->at[i]) == 0)
            return fail(ALIBI_BAD_INPUT, "cannot read '%s': the token '%.80s' is repeated", path,
                        n->at[i].name.at);
    for (n->bits = 1; (int64_t)1 << n->bits < n->count; n->bits++)
        ;
    TRY_RETURN(NEW_ARRAY(&n->starts, ((int64_t)1 << n->bits) + 1, "the names of tokens"));
    for (int64_t lead = 0; lead <= (int64_t)1 << n->bits; lead++) {
        while (at < n->count && (int64_t)(n->at[at].hash >> (64 - n->bits)) < lead)
            at++;
        n->starts[lead] = (int32_t)at;
    }
    return ALIBI_OK;
}

int32_t token_names_find(const struct token_names *n, struct slice left, struct slice right)
{
    uint64_t hash = hash_pair(left, right);
    int32_t low = n->starts[hash >> (64 - n->bits)], high = n->starts[(hash >> (64 - n->bits)) + 1];

    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const struct token_name *t = &n->at[middle];
        int order =
            t->hash != hash ? (t->hash < hash ? -1 : 1) : compare_to_pair(t->name, left, right);
        if (order == 0)
            return t->id;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* ---- letters: bytes as files of byte-level BPE write them
 *
 * A byte that is a printable character of Latin-1, other than blanks and the soft hyphen, is that
 * character. The 68 others are U+0100 and the letters after it, in order: 0 to 32, 127 to 160, 173.
 * So the blank is U+0120 and the line feed U+010A. */

enum { FIRST = 0x100, LOW_END = 33, MIDDLE = 127, MIDDLE_END = 161, SOFT_HYPHEN = 173 };
enum { MIDDLE_AT = FIRST + LOW_END, SOFT_HYPHEN_AT = MIDDLE_AT + MIDDLE_END - MIDDLE };

uint32_t byte_letter(unsigned char byte)
{
    if (byte < LOW_END)
        return (uint32_t)FIRST + byte;
    if (byte >= MIDDLE && byte < MIDDLE_END)
        return (uint32_t)(MIDDLE_AT + byte - MIDDLE);
    return byte == SOFT_HYPHEN ? SOFT_HYPHEN_AT : byte;
}

int byte_of_letter(uint32_t letter)
{
    if (letter < FIRST)
        return byte_letter((unsigned char)letter) == letter ? (int)letter : -1;
    if (letter < MIDDLE_AT)
        return (int)letter - FIRST;
    if (letter < SOFT_HYPHEN_AT)
        return (int)letter - MIDDLE_AT + MIDDLE;
    return letter == SOFT_HYPHEN_AT ? SOFT_HYPHEN : -1;
}

size_t byte_letter_put(char out[2], unsigned char byte)
{
    return utf8_put(out, byte_letter(byte));
}

size_t byte_name_put(char out[8], unsigned char byte)
{
    return (size_t)snprintf(out, 8, "<0x%02X>", byte);
}

/* The first character of valid UTF-8, and its bytes. One beyond U+07FF is not the letter of any
 * byte, so its code point does not matter. */
static uint32_t letter_at(const char *at, size_t *bytes)
{
    unsigned char lead = (unsigned char)at[0];

    if (lead < 0x80) {
        *bytes = 1;
        return lead;
    }
    *bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return *bytes == 2 ? (uint32_t)(lead & 0x1F) << 6 | (at[1] & 0x3F) : UINT32_MAX;
}

bool name_is_letters(struct slice name)
{
    size_t step;

    for (size_t i = 0; i < name.bytes; i += step)
        if (byte_of_letter(letter_at(name.at + i, &step)) < 0)
            return false;
    return true;
}

bool name_is_ascii(struct slice name)
{
    for (size_t i = 0; i < name.bytes; i++)
        if ((unsigned char)name.at[i] >= 0x80)
            return false;
    return true;
}

/* A letter is never shorter than its byte, so the bytes overwrite the letters. */
static struct slice bytes_of_letters(struct slice name, char *storage)
{
    char *bytes = storage + (name.at - storage);
    size_t count = 0, step;

    for (size_t i = 0; i < name.bytes; i += step)
        bytes[count++] = (char)byte_of_letter(letter_at(name.at + i, &step));
    return (struct slice){ bytes, count };
}

/* ---- vocabulary */

alibi_status bpe_build_vocab(struct bpe_build *b)
{
    struct scan *s = &b->scan;
    struct bpe_file *f = b->file;
    size_t start = s->at;

    if (scan_peek(s) != '{')
        return scan_fail(s, "'{' expected");
    TRY_RETURN(scan_skip(s, &f->vocab));
    TRY_RETURN(NEW_ARRAY(&b->names.at, f->vocab, "the names of tokens"));
    TRY_RETURN(NEW_ZERO_ARRAY(&f->tokens, f->vocab, "tokens"));
    s->at = start;
    TRY_RETURN(scan_expect(s, '{'));
    if (scan_take(s, '}'))
        return sort_names(&b->names, s->path);
    do {
        struct token_name *entry = &b->names.at[b->names.count];
        int64_t id = 0;

        TRY_RETURN(scan_slice(s, &entry->name));
        TRY_RETURN(scan_expect(s, ':'));
        TRY_RETURN(scan_count(s, &id));
        if (entry->name.bytes == 0)
            return scan_fail(s, "token %lld has no letters", (long long)id);
        if (id >= f->vocab)
            return scan_fail(s,
                             "the token '%.80s' has the id %lld, but ids are 0 to %lld, each once",
                             entry->name.at, (long long)id, (long long)f->vocab - 1);
        if (f->tokens[id].at != NULL)
            return scan_fail(s, "the tokens '%.80s' and '%.80s' both have the id %lld",
                             f->tokens[id].at, entry->name.at, (long long)id);
        entry->id = (int32_t)id;
        f->tokens[id] = entry->name;
        b->names.count++;
    } while (scan_take(s, ','));
    TRY_RETURN(scan_expect(s, '}'));
    return sort_names(&b->names, s->path);
}

/* ---- merges */

static int print_bytes(struct slice s)
{
    return (int)(s.bytes < 80 ? s.bytes : 80);
}

static alibi_status find_part(int32_t *id, const struct bpe_build *b, const struct scan *place,
                              struct slice part)
{
    *id = token_names_find(&b->names, part, (struct slice){ 0 });
    if (*id < 0)
        return scan_fail(place, "the merge has '%.*s', which is not in the vocabulary,",
                         print_bytes(part), part.at);
    return ALIBI_OK;
}

alibi_status bpe_build_merge(struct bpe_build *b, const struct scan *place, struct slice left,
                             struct slice right)
{
    struct bpe_merge *m = &b->file->merges[b->file->merge_count];

    TRY_RETURN(find_part(&m->left, b, place, left));
    TRY_RETURN(find_part(&m->right, b, place, right));
    m->result = token_names_find(&b->names, left, right);
    if (m->result < 0)
        return scan_fail(place, "the merge makes '%.*s%.*s', which is not in the vocabulary,",
                         print_bytes(left), left.at, print_bytes(right), right.at);
    if (b->file->characters
            ? memchr(left.at, ' ', left.bytes) != NULL || memchr(right.at, ' ', right.bytes) != NULL
            : !name_is_letters(left) || !name_is_letters(right))
        return scan_fail(place, "the merge of '%.*s' and '%.*s' has %s", print_bytes(left), left.at,
                         print_bytes(right), right.at,
                         b->file->characters ? "a blank" : "letters of no byte");
    b->file->merge_count++;
    return ALIBI_OK;
}

alibi_status bpe_build_merge_line(struct bpe_build *b, const struct scan *place, struct slice line)
{
    const char *blank = line.bytes > 0 ? memchr(line.at, ' ', line.bytes) : NULL;
    struct slice left, right;

    if (blank == NULL)
        return scan_fail(place, "two tokens with a blank between them expected");
    left = (struct slice){ line.at, (size_t)(blank - line.at) };
    right = (struct slice){ blank + 1, line.bytes - left.bytes - 1 };
    if (right.bytes > 0 && memchr(right.at, ' ', right.bytes) != NULL)
        return scan_fail(place, "two tokens with one blank between them expected");
    return bpe_build_merge(b, place, left, right);
}

/* Keeps the last of several merges of the same pair. Merges with the same result are equal if they
 * cut it at the same place, so a result has at most as many merges as its name has letters. */
static alibi_status drop_repeated(struct bpe_file *f)
{
    alibi_status status;
    int32_t *last = NULL;   /* [vocab] the last kept merge that makes the token; -1: none */
    int32_t *before = NULL; /* [merge_count] the kept merge of the same token before that one */
    int64_t kept = f->merge_count;

    TRY(NEW_ARRAY(&last, f->vocab, "merges"));
    TRY(NEW_ARRAY(&before, f->merge_count, "merges"));
    memset(last, 0xFF, (size_t)f->vocab * sizeof *last);
    for (int64_t i = f->merge_count - 1; i >= 0; i--) {
        const struct bpe_merge m = f->merges[i];
        int32_t other = last[m.result];
        while (other >= 0 && f->merges[other].left != m.left)
            other = before[other];
        if (other >= 0)
            continue;
        kept--;
        f->merges[kept] = m;
        before[kept] = last[m.result];
        last[m.result] = (int32_t)kept;
    }
    f->merge_count -= kept;
    memmove(f->merges, f->merges + kept, (size_t)f->merge_count * sizeof *f->merges);
out:
    mem_free(last);
    mem_free(before);
    return status;
}

/* ---- from names to bytes */

static alibi_status find_bytes(struct bpe_build *b)
{
    for (int byte = 0; byte < 256; byte++) {
        char letter[8];
        struct slice name = { letter, 0 };
        int32_t id;
        name.bytes = b->file->characters ? byte_name_put(letter, (unsigned char)byte)
                                         : byte_letter_put(letter, (unsigned char)byte);
        id = token_names_find(&b->names, name, (struct slice){ 0 });
        if (id < 0)
            return fail(ALIBI_BAD_INPUT,
                        "cannot read '%s': no token is the byte %d, written '%.*s'", b->scan.path,
                        byte, (int)name.bytes, name.at);
        b->file->byte_ids[byte] = id;
    }
    return ALIBI_OK;
}

/* A literal token that is not an added one. No other token may have the same bytes: a piece of text
 * would have two ids. */
static alibi_status check_own_text(const struct bpe_build *b, struct slice name)
{
    alibi_status status;
    struct text letters = { 0 };

    for (size_t i = 0; i < name.bytes; i++) {
        char letter[2];
        text_append_bytes(&letters, letter, byte_letter_put(letter, (unsigned char)name.at[i]));
    }
    TRY(text_status(&letters));
    if (b->file->ignore_merges)
        status =
            fail(ALIBI_BAD_INPUT,
                 "cannot read '%s': with ignore_merges, the token '%.80s' has letters of no byte",
                 b->scan.path, name.at);
    else if (token_names_find(&b->names, (struct slice){ letters.data, letters.length },
                              (struct slice){ 0 }) >= 0)
        status = fail(ALIBI_BAD_INPUT,
                      "cannot read '%s': the tokens '%.80s' and '%.80s' are the same bytes",
                      b->scan.path, name.at, letters.data);
out:
    text_free(&letters);
    return status;
}

static alibi_status check_names(const struct bpe_build *b)
{
    const struct bpe_file *f = b->file;
    const struct slice *like_bytes = NULL; /* an added token outside the vocabulary */
    int next = 0;                          /* of the added tokens, which are sorted by id */

    for (int i = f->added_count - 1; i >= 0; i--)
        if (!f->added[i].in_vocab && name_is_letters(f->added[i].text) &&
            !name_is_ascii(f->added[i].text))
            like_bytes = &f->added[i].text;
    for (int64_t id = 0; id < b->names.count; id++) {
        bool added = next < f->added_count && f->added[next].id == id;
        next += added;
        if (added || name_is_letters(f->tokens[id]))
            continue;
        TRY_RETURN(check_own_text(b, f->tokens[id]));
        if (like_bytes != NULL)
            return fail(ALIBI_BAD_INPUT,
                        "cannot read '%s': the added token '%.80s' is spelled in letters of bytes, "
                        "the token '%.80s' is not",
                        b->scan.path, like_bytes->at, f->tokens[id].at);
    }
    return ALIBI_OK;
}

/* U+2581 becomes a blank, in the same place. */
static struct slice text_of_characters(struct slice name, char *storage)
{
    char *text = storage + (name.at - storage);
    size_t count = 0;

    for (size_t i = 0; i < name.bytes; count++) {
        bool blank = slice_begins((struct slice){ name.at + i, name.bytes - i }, BPE_BLANK);
        text[count] = blank ? ' ' : name.at[i];
        i += blank ? strlen(BPE_BLANK) : 1;
    }
    return (struct slice){ text, count };
}

/* The blank must be a token: it has no bytes to fall back to, since those are of U+2581. Added
 * tokens keep their literal text. */
static alibi_status end_characters(struct bpe_build *b)
{
    static const struct slice blank = { BPE_BLANK, sizeof BPE_BLANK - 1 };
    struct bpe_file *f = b->file;
    int next = 0; /* of the added tokens, which are sorted by id */

    if (token_names_find(&b->names, blank, (struct slice){ 0 }) < 0)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': no token is the blank, written '%s'",
                    b->scan.path, BPE_BLANK);
    for (int64_t id = 0; id < b->names.count; id++) {
        bool added = next < f->added_count && f->added[next].id == id;
        next += added;
        for (int byte = 0; byte < 256 && added; byte++)
            if (f->byte_ids[byte] == id)
                return fail(ALIBI_BAD_INPUT, "cannot read '%s': the added token '%.80s' is a byte",
                            b->scan.path, f->tokens[id].at);
        if (added)
            continue;
        if (memchr(f->tokens[id].at, ' ', f->tokens[id].bytes) != NULL)
            return fail(ALIBI_BAD_INPUT,
                        "cannot read '%s': the token '%.80s' has a blank, which text never has",
                        b->scan.path, f->tokens[id].at);
        f->tokens[id] = text_of_characters(f->tokens[id], b->scan.strings);
    }
    for (int byte = 0; byte < 256; byte++) {
        struct slice *token = &f->tokens[f->byte_ids[byte]];
        b->scan.strings[token->at - b->scan.strings] = (char)byte;
        token->bytes = 1;
    }
    return ALIBI_OK;
}

alibi_status bpe_build_end(struct bpe_build *b, struct bpe_file **out)
{
    TRY_RETURN(find_bytes(b));
    if (b->file->characters)
        TRY_RETURN(end_characters(b));
    else
        TRY_RETURN(check_names(b));
    TRY_RETURN(drop_repeated(b->file));
    for (int64_t id = 0; id < b->names.count && !b->file->characters; id++)
        if (name_is_letters(b->file->tokens[id]))
            b->file->tokens[id] = bytes_of_letters(b->file->tokens[id], b->scan.strings);
    b->file->storage = b->scan.strings;
    b->scan.strings = NULL;
    *out = b->file;
    b->file = NULL;
    return ALIBI_OK;
}
