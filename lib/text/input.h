/* input.h - one file as text that was checked: UTF-8 without a byte 0; for source.c
 *
 *   bytes[0 .. at) done | bytes[at .. checked) whole characters, checked | bytes[checked .. end)
 *   the start of one */
#ifndef INPUT_H
#define INPUT_H

#include "text/text.h"

enum { INPUT_BYTES = 1 << 18 };

struct input {
    struct unpack *unpack; /* NULL: no file is open */
    const char *name;      /* for messages; lent */
    char *bytes;           /* [INPUT_BYTES], kept from file to file */
    size_t at, checked, end;
    int64_t offset; /* of bytes[0] in the file, once that is unpacked */
    int64_t line;   /* of bytes[checked], the first is 1 */
    bool ended;     /* nothing comes behind bytes[end], and all is checked */
};

/* Start from {0}. input_close() keeps the memory for the next file, input_fini() does not. */
alibi_status input_open(struct input *in, const char *path, const struct alibi_call *call);
void input_close(struct input *in);
void input_fini(struct input *in);

/* Drops what is done and reads on. There must be room: at > 0 or checked < INPUT_BYTES - 4.
 * ALIBI_BAD_INPUT names the byte. */
alibi_status input_fill(struct input *in);
bool input_was_empty(const struct input *in); /* of a file that ended */

extern size_t source_line_max; /* bytes of a line of JSON that does not fit into `bytes`; a variable
                                  for the tests */

#endif
