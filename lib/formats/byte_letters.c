/* byte_letters.c - bytes as letters, as files of byte-level BPE write them
 *
 * A byte that is a printable character of Latin-1, other than blanks and the soft hyphen, is that
 * character. The 68 others are U+0100 and the letters after it, in order: 0 to 32, 127 to 160, 173.
 * So the blank is U+0120 and the line feed U+010A. */
#include "formats/bpe_build.h"

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
    uint32_t letter = byte_letter(byte);

    if (letter < 0x80) {
        out[0] = (char)letter;
        return 1;
    }
    out[0] = (char)(0xC0 | letter >> 6);
    out[1] = (char)(0x80 | (letter & 0x3F));
    return 2;
}
