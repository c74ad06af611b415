/* foreign.c - files that people give as text but that are none, known by their first bytes
 *
 * Read as text they would fail at some byte, which explains less, or succeed and be learned. The
 * first matching row counts. No text in UTF-8 begins like one of them, except by intention. */
#include <string.h>

#include "formats/formats.h"

enum {
    SIGHT = 4096,     /* bytes that decide whether a file without a mark is UTF-16 */
    SIGHT_LEAST = 16, /* fewer bytes decide nothing */
};

static const char to_json[] =
    "convert it to JSON lines, in Python with pandas' to_json(orient='records', lines=True)";

#define START(bytes) bytes, sizeof bytes - 1, 0, NULL
#define WITHIN(bytes, offset, inner) bytes, sizeof bytes - 1, offset, inner

static const struct {
    const char *start;    /* the first bytes; "": a byte 0 is before `inner` */
    size_t bytes, offset; /* of `start`; of `inner` in the file */
    const char *inner;    /* NULL: the first bytes decide */
    const char *what, *advice;
} kinds[] = {
    { START("\xFF\xFE\0\0"), "text in UTF-32", "convert it with iconv -f UTF-32 -t UTF-8" },
    { START("\0\0\xFE\xFF"), "text in UTF-32", "convert it with iconv -f UTF-32 -t UTF-8" },
    { START("\xFF\xFE"), "text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8" },
    { START("\xFE\xFF"), "text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8" },
    { START("%PDF-"), "a PDF", "extract its text with pdftotext" },
    { START("{\\rtf"), "rich text (RTF)", "convert it with pandoc -t plain" },
    { WITHIN("PK\3\4", 30, "mimetypeapplication/epub+zip"), "an e-book (EPUB)",
      "convert it with pandoc -t plain" },
    { WITHIN("PK\3\4", 30, "mimetypeapplication/vnd.oasis"), "an OpenDocument file",
      "convert it with pandoc -t plain" },
    { WITHIN("PK\3\4", 30, "[Content_Types].xml"), "an Office document (such as .docx)",
      "convert it with pandoc -t plain" },
    { START("PK\3\4"), "a zip archive", "unpack it with unzip and give the folder" },
    { START("PK\5\6"), "an empty zip archive", "give a text" },
    { START("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), "an old Office document (such as .doc)",
      "save it as plain text in UTF-8" },
    { WITHIN("", 257, "ustar"), "a tar archive", "unpack it with tar -xf and give the folder" },
    { START("7z\xBC\xAF\x27\x1C"), "a 7z archive", "unpack it and give the folder" },
    { START("Rar!\x1A\7"), "a rar archive", "unpack it and give the folder" },
    /* A text may begin with bzip2's letters, but not with its first block. */
    { WITHIN("BZh", 4, "1AY&SY"), "packed by bzip2", "unpack it with bunzip2" },
    { START("\xFD\x37zXZ\0"), "packed by xz", "unpack it with unxz" },
    { START("\x04\x22\x4D\x18"), "packed by lz4", "unpack it with unlz4" },
    { START("PAR1\x15"), "a Parquet table", to_json },
    { START("ARROW1\0\0"), "an Arrow table", to_json },
    { START("\xFF\xFF\xFF\xFF"), "an Arrow stream or another binary file", to_json },
    { START("SQLite format 3\0"), "an SQLite database", "export its text as JSON lines" },
    { START("\x80\2"), "a Python pickle", "write its text as JSON lines from Python" },
    { START("\x80\3"), "a Python pickle", "write its text as JSON lines from Python" },
    { START("\x80\4"), "a Python pickle", "write its text as JSON lines from Python" },
    { START("\x80\5"), "a Python pickle", "write its text as JSON lines from Python" },
    { START("\x93NUMPY"), "a NumPy array", "write text from Python, or ids as token shards" },
    { START("GGUF\2\0"), "the weights of a model (GGUF)", "give a text" },
    { START("GGUF\3\0"), "the weights of a model (GGUF)", "give a text" },
    { START("\x7F\x45LF"), "a program", "give a text" },
    { START("\x89PNG\r\n"), "an image", "give a text" },
    { START("\xFF\xD8\xFF"), "an image", "give a text" },
};

/* Text in UTF-16 without a mark has a zero in every character of Latin script, always in the same
 * half of it. Returns that half, or -1. */
static int utf16_zero_half(const char *bytes, size_t length)
{
    size_t zeros[2] = { 0, 0 }, seen = length < SIGHT ? length : SIGHT;

    for (size_t i = 0; i < seen; i++)
        zeros[i % 2] += bytes[i] == '\0';
    if (seen < SIGHT_LEAST || (zeros[0] > 0 && zeros[1] > 0))
        return -1;
    return zeros[0] >= seen / 4 ? 0 : zeros[1] >= seen / 4 ? 1 : -1;
}

alibi_status foreign_refuse(const char *bytes, size_t length, const char *path)
{
    int half = utf16_zero_half(bytes, length);

    for (int i = 0; i < COUNT(kinds); i++) {
        size_t inner = kinds[i].inner != NULL ? strlen(kinds[i].inner) : 0;

        if (length >= kinds[i].bytes && memcmp(bytes, kinds[i].start, kinds[i].bytes) == 0 &&
            length >= kinds[i].offset + inner &&
            (kinds[i].bytes > 0 || memchr(bytes, 0, kinds[i].offset) != NULL) &&
            (inner == 0 || memcmp(bytes + kinds[i].offset, kinds[i].inner, inner) == 0))
            return fail(ALIBI_BAD_INPUT, "cannot read '%s' as text: it is %s; %s", path,
                        kinds[i].what, kinds[i].advice);
    }
    if (half >= 0)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s' as text: it seems to be text in UTF-16 without a byte-order "
                    "mark; convert it with iconv -f UTF-16%s -t UTF-8",
                    path, half == 0 ? "BE" : "LE");
    return ALIBI_OK;
}
