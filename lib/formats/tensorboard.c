/* tensorboard.c - event files, as TensorFlow writes them and TensorBoard reads them
 *
 * A file is a sequence of records (TFRecord), little-endian:
 *
 *   u64 length, u32 masked CRC-32C of these 8 bytes, the data, u32 masked CRC-32C of the data
 *
 * The data of each is a message of protocol buffers, with the fields that are used here:
 *
 *   Event            1 wall_time double, 2 step int64, then one of
 *                    3 file_version string, 5 summary Summary, 7 session_log SessionLog
 *   Summary          1 value, repeated: 1 tag string, 2 simple_value float,
 *                    8 tensor TensorProto, 9 metadata SummaryMetadata
 *   SessionLog       1 status: 1 is START
 *   SummaryMetadata  1 plugin_data: 1 plugin_name string; 4 data_class: 2 is a tensor
 *   TensorProto      1 dtype: 7 is a string, 2 tensor_shape: 2 dim: 1 size, 8 string_val
 *
 * The first record is the version, the second a START with the first step that follows. TensorBoard
 * reads the files of a folder in the order of their names, and a START makes it drop what it has of
 * this step and later ones: a resumed run writes a new file, and no step is shown twice. */
#include <string.h>

#include "formats/formats.h"

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct tensorboard {
    struct file *file;
    struct text event, summary, value, part, record; /* of the record that is being made */
};

/* ---- CRC-32C (Castagnoli), reflected */

static uint32_t crc32c(const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < length; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

uint32_t tensorboard_checksum(const void *bytes, size_t length)
{
    uint32_t crc = crc32c(bytes, length);

    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* ---- protocol buffers */

static void put_little(struct text *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(value >> 8 * i & 0xFF);
        text_append_bytes(t, &byte, 1);
    }
}

static void put_varint(struct text *t, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_little(t, (value & 0x7F) | 0x80, 1);
    put_little(t, value, 1);
}

static void put_key(struct text *t, int field, enum wire wire)
{
    put_varint(t, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_int(struct text *t, int field, int64_t value)
{
    put_key(t, field, VARINT);
    put_varint(t, (uint64_t)value);
}

static void put_bytes(struct text *t, int field, const void *bytes, size_t length)
{
    put_key(t, field, BYTES);
    put_varint(t, length);
    text_append_bytes(t, bytes, length);
}

static void put_string(struct text *t, int field, const char *string)
{
    put_bytes(t, field, string, strlen(string));
}

/* A message within another. If it could not be made, the outer one fails. */
static void put_message(struct text *t, int field, const struct text *message)
{
    if (t->status == ALIBI_OK)
        t->status = message->status;
    put_bytes(t, field, message->data, message->length);
}

static void clear(struct text *t)
{
    t->length = 0;
}

/* ---- records */

static void begin_event(struct tensorboard *t, int64_t step)
{
    double now = clock_date();
    uint64_t bits;

    clear(&t->event);
    clear(&t->summary);
    memcpy(&bits, &now, sizeof bits);
    put_key(&t->event, 1, FIXED64);
    put_little(&t->event, bits, 8);
    if (step != 0) /* the default, which is not written */
        put_int(&t->event, 2, step);
}

/* A record is one write, so that a reader never waits for the rest of one for long. */
static alibi_status write_event(struct tensorboard *t)
{
    struct text *r = &t->record;

    TRY_RETURN(text_status(&t->event));
    clear(r);
    put_little(r, t->event.length, 8);
    TRY_RETURN(text_status(r));
    put_little(r, tensorboard_checksum(r->data, 8), 4);
    text_append_bytes(r, t->event.data, t->event.length);
    put_little(r, tensorboard_checksum(t->event.data, t->event.length), 4);
    TRY_RETURN(text_status(r));
    return file_write(t->file, r->data, r->length);
}

static alibi_status write_start(struct tensorboard *t, int64_t step)
{
    begin_event(t, 0);
    put_string(&t->event, 3, "brain.Event:2");
    TRY_RETURN(write_event(t));
    begin_event(t, step);
    clear(&t->value);
    put_int(&t->value, 1, 1);
    put_message(&t->event, 7, &t->value);
    return write_event(t);
}

/* ---- the interface */

alibi_status tensorboard_open(struct tensorboard **out, const char *folder, int64_t step)
{
    alibi_status status;
    struct tensorboard *t = NULL;
    char name[128], *path = NULL;

    /* Names in the order of time; in the same second a later run has done more steps, or takes the
     * place of one that had done none. */
    snprintf(name, sizeof name, "events.out.tfevents.%010.0f.%012lld.alibi", clock_date(),
             (long long)step);
    TRY(NEW_ZERO_ARRAY(&t, 1, "an event file"));
    TRY(folder_create(folder));
    TRY(path_join(&path, folder, name));
    TRY(file_create(&t->file, path));
    TRY(write_start(t, step));
    *out = t;
    t = NULL;
out:
    mem_free(path);
    tensorboard_close(t);
    return status;
}

void tensorboard_close(struct tensorboard *t)
{
    if (t == NULL)
        return;
    file_close(t->file);
    text_free(&t->event);
    text_free(&t->summary);
    text_free(&t->value);
    text_free(&t->part);
    text_free(&t->record);
    mem_free(t);
}

alibi_status tensorboard_sync(struct tensorboard *t)
{
    return file_sync(t->file);
}

alibi_status tensorboard_scalars(struct tensorboard *t, int64_t step,
                                 const struct tensorboard_scalar *scalars, int count)
{
    begin_event(t, step);
    for (int i = 0; i < count; i++) {
        float value = (float)scalars[i].value;
        uint32_t bits;

        memcpy(&bits, &value, sizeof bits);
        clear(&t->value);
        put_string(&t->value, 1, scalars[i].tag);
        put_key(&t->value, 2, FIXED32);
        put_little(&t->value, bits, 4);
        put_message(&t->summary, 1, &t->value);
    }
    put_message(&t->event, 5, &t->summary);
    return write_event(t);
}

/* A tensor of one string, with the name of the plugin that shows it. */
alibi_status tensorboard_text(struct tensorboard *t, int64_t step, const char *tag,
                              const char *text, size_t bytes)
{
    static const char shape[] = { 0x12, 2, 8, 1 }; /* one dimension, of size 1 */

    begin_event(t, step);
    clear(&t->value);
    put_string(&t->value, 1, tag);
    clear(&t->part);
    put_int(&t->part, 1, 7);
    put_bytes(&t->part, 2, shape, sizeof shape);
    put_bytes(&t->part, 8, text, bytes);
    put_message(&t->value, 8, &t->part);
    clear(&t->part);
    put_bytes(&t->part, 1, "\n\4text", 6); /* plugin_name */
    put_int(&t->part, 4, 2);
    put_message(&t->value, 9, &t->part);
    put_message(&t->summary, 1, &t->value);
    put_message(&t->event, 5, &t->summary);
    return write_event(t);
}
