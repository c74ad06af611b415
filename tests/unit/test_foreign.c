/* test_foreign.c - files that are not text are named by their first bytes, with what to do */
#include "check.h"

#include "formats/formats.h"

/* The bytes have memory of their exact size, so that the sanitizer detects a read beyond them. */
static alibi_status look_at(const char *bytes, size_t length)
{
    char *exact = exact_copy(bytes, length);
    alibi_status status = foreign_refuse(exact, length, "a.file");

    free(exact);
    return status;
}

#define REFUSED(bytes, part)                                                                       \
    assert_fails(look_at(bytes, sizeof bytes - 1), ALIBI_BAD_INPUT,                                \
                 "cannot read 'a.file' as text: it is " part)
#define TEXT(bytes) assert_ok(look_at(bytes, sizeof bytes - 1))

static void documents_are_named(void **state)
{
    (void)state;
    REFUSED("%PDF-1.7\n%\xE2\xE3", "a PDF; extract its text with pdftotext");
    REFUSED("{\\rtf1\\ansi", "rich text (RTF); convert it with pandoc");
    REFUSED("PK\3\4________________________"
            "__mimetypeapplication/epub+zip",
            "an e-book (EPUB);");
    REFUSED("PK\3\4________________________"
            "__[Content_Types].xml",
            "an Office document");
    REFUSED("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an old Office document");
}

static void archives_are_named(void **state)
{
    char tar[512] = "folder/a.txt";

    (void)state;
    REFUSED("PK\3\4\24\0\0\0", "a zip archive; unpack it with unzip");
    REFUSED("\xFD\x37zXZ\0\0\4", "packed by xz; unpack it with unxz");
    REFUSED("BZh91AY&SY\x80", "packed by bzip2; unpack it with bunzip2");
    REFUSED("7z\xBC\xAF\x27\x1C\0", "a 7z archive");
    memcpy(tar + 257, "ustar", 5);
    assert_fails(look_at(tar, sizeof tar), ALIBI_BAD_INPUT,
                 "it is a tar archive; unpack it with tar -xf");
    assert_fails(look_at(tar, 262), ALIBI_BAD_INPUT, "it is a tar archive");
}

static void tables_and_binaries_are_named(void **state)
{
    (void)state;
    REFUSED("PAR1\25\4\25", "a Parquet table; convert it to JSON lines");
    REFUSED("ARROW1\0\0", "an Arrow table; convert it to JSON lines");
    REFUSED("\x80\4\x95", "a Python pickle; write its text as JSON lines");
    REFUSED("\x93NUMPY\1", "a NumPy array");
    REFUSED("SQLite format 3\0\20", "an SQLite database");
    REFUSED("GGUF\3\0\0\0", "the weights of a model (GGUF)");
    REFUSED("\x7F\x45LF\2", "a program");
    REFUSED("\x89PNG\r\n\x1A\n", "an image");
}

static void other_encodings_are_named(void **state)
{
    (void)state;
    REFUSED("\xFF\xFEh\0i\0", "text in UTF-16; convert it with iconv -f UTF-16 -t UTF-8");
    REFUSED("\xFE\xFF\0h\0i", "text in UTF-16;");
    REFUSED("\xFF\xFE\0\0h\0\0\0", "text in UTF-32; convert it with iconv -f UTF-32 -t UTF-8");
    assert_fails(look_at("H\0e\0l\0l\0o\0,\0 \0y\0o\0u\0", 20), ALIBI_BAD_INPUT,
                 "seems to be text in UTF-16 without a byte-order mark; convert it with iconv -f "
                 "UTF-16LE -t UTF-8");
    assert_fails(look_at("\0H\0e\0l\0l\0o\0,\0 \0y\0o\0u", 20), ALIBI_BAD_INPUT,
                 "iconv -f UTF-16BE -t UTF-8");
}

static void text_is_not_mistaken_for_one_of_them(void **state)
{
    char text[512];

    (void)state;
    TEXT("");
    TEXT("P");
    TEXT("PK is how it begins");
    TEXT("BZh9 is how it begins");
    TEXT("% PDF");
    TEXT("GGUF is a format of weights");
    TEXT("PAR1 and PAR2");
    memset(text, '_', sizeof text);
    memcpy(text + 256, "mustard", 7);
    assert_ok(look_at(text, sizeof text));
    TEXT("\xEF\xBB\xBFtext with a mark");
    TEXT("zeros \0 \0 here and there, so that it is not UTF-16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_named),
        cmocka_unit_test(archives_are_named),
        cmocka_unit_test(tables_and_binaries_are_named),
        cmocka_unit_test(other_encodings_are_named),
        cmocka_unit_test(text_is_not_mistaken_for_one_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
