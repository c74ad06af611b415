/* formats.h - parsers of bytes that came from elsewhere, and the writers beside them
 *
 * Parsers take (bytes, length) or a file, validate everything, then build. JSON goes through base/json.h. */
#ifndef FORMATS_H
#define FORMATS_H

#include "base/base.h"

/* ---- safetensors (safetensors.c)
 *
 * u64 header length, JSON header, data. Strict: contiguous from 0, no hole, no overlap, sizes equal to shape times type, ends at
 * the end of the file. */

struct safetensor {
    char *name;
    char type[8]; /* "F32", ... */
    int rank;
    int64_t shape[8];
    int64_t begin, end; /* bytes within the file */
};

struct safetensors {
    struct safetensor *tensors; /* in the order of their data */
    int count;
};

/* Reads and checks the header of a file of that many bytes. `header` starts at the file's first byte. */
alibi_status safetensors_parse(struct safetensors **out, const char *bytes, size_t length, int64_t file_bytes, const char *path);
alibi_status safetensors_open(struct safetensors **out, const char *path);
void safetensors_free(struct safetensors *s);

/* The header for F32 tensors in this order, with begin and end filled in by the call; padded with spaces to 8 bytes. */
alibi_status safetensors_header(struct text *header, struct safetensor *tensors, int count);

#endif
