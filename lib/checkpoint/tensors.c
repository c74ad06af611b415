/* tensors.c - tensors between a device and a safetensors file
 *
 * They pass through one block of bounded size, whatever the size of the model. In memory they are
 * fp32, in a file fp32, bf16 or fp16. Files are little-endian, as is every machine this runs on. */
#include <math.h>
#include <string.h>

#include "checkpoint/parts.h"
#include "ops/bf16.h"
#include "ops/fp16.h"

enum { BLOCK = 1 << 18 }; /* elements; large enough to hide the latency of a transfer from a GPU */

/* ---- entries */

/* The index of a tensor in the list, -1 if it is not there. `guess` is where it is most likely. */
static int find(const struct safetensor *list, int count, const char *name, int guess)
{
    if (guess < count && strcmp(list[guess].name, name) == 0)
        return guess;
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return i;
    return -1;
}

static void format_shape(char *out, size_t bytes, const struct safetensor *t)
{
    int used = snprintf(out, bytes, "[");

    for (int i = 0; i < t->rank && (size_t)used < bytes; i++)
        used += snprintf(out + used, bytes - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)t->shape[i]);
    if ((size_t)used < bytes)
        snprintf(out + used, bytes - (size_t)used, "]");
}

static alibi_status check_tensor(const struct safetensor *found, const struct safetensor *wanted,
                                 const char *path)
{
    char there[64], here[64];

    if (!weights_have_type(found->type))
        return fail(ALIBI_BAD_INPUT,
                    "'%s': tensor '%s' has type %s; weights are read from F32, BF16 and F16", path,
                    found->name, found->type);
    if (found->rank == wanted->rank &&
        memcmp(found->shape, wanted->shape, (size_t)found->rank * sizeof *found->shape) == 0)
        return ALIBI_OK;
    format_shape(there, sizeof there, found);
    format_shape(here, sizeof here, wanted);
    return fail(ALIBI_BAD_INPUT, "'%s': tensor '%s' has shape %s; the configuration needs %s", path,
                found->name, there, here);
}

/* ---- the list of tensors */

static alibi_status add_entry(struct tensor_file *f, const char *prefix, const struct parameter *p,
                              const char *type)
{
    struct safetensor *e = &f->entries[f->count];
    struct text name = { 0 };

    text_append(&name, "%s%s", prefix, p->name);
    TRY_RETURN(text_status(&name));
    *e = (struct safetensor){ .name = name.data,
                              .rank = p->rank,
                              .shape = { p->shape[0], p->shape[1] } };
    snprintf(e->type, sizeof e->type, "%s", type);
    f->count++;
    return ALIBI_OK;
}

/* *made becomes *f, with its header. */
static alibi_status finish_list(struct tensor_file *f, struct tensor_file *made)
{
    TRY_RETURN(safetensors_header(&made->header, made->entries, made->count));
    made->bytes = made->entries[made->count - 1].end;
    *f = *made;
    *made = (struct tensor_file){ 0 };
    return ALIBI_OK;
}

/* One entry per parameter for each buffer that is not NULL, named prefix + parameter. The buffers
 * begin with element `absent`. */
static alibi_status list_tensors(struct tensor_file *f, const struct model *m, const char *type,
                                 const char *const prefixes[], void *const buffers[], int buffers_n,
                                 int64_t absent)
{
    alibi_status status;
    struct tensor_file made = { .device = m->device, .model = m };

    TRY(NEW_ZERO_ARRAY(&made.entries, (int64_t)buffers_n * m->count, "a list of tensors"));
    TRY(NEW_ARRAY(&made.views, (int64_t)buffers_n * m->count, "a list of tensors"));
    for (int b = 0; b < buffers_n; b++)
        for (int i = 0; buffers[b] && i < m->count; i++) {
            const struct parameter *p = &m->parameters[i];
            struct tensor all = tensor_1(buffers[b], dtype_sums(m->type), m->span - absent);
            made.views[made.count] =
                p->offset < absent ? tensor_none() : vector_part(all, p->offset - absent, p->count);
            TRY(add_entry(&made, prefixes[b], &m->parameters[i], type));
        }
    TRY(finish_list(f, &made));
out:
    tensor_file_fini(&made);
    return status;
}

alibi_status tensor_file_of_model(struct tensor_file *f, const struct model *m, const char *type)
{
    return list_tensors(f, m, type, (const char *const[]){ "" }, (void *const[]){ m->values }, 1,
                        m->absent);
}

alibi_status tensor_file_of_source(struct tensor_file *f, const struct model *outline,
                                   struct tensor_source *source)
{
    alibi_status status;
    struct tensor_file made = { .source = source };

    TRY(NEW_ZERO_ARRAY(&made.entries, outline->count, "a list of tensors"));
    for (int i = 0; i < outline->count; i++) {
        int at = tensor_source_find(source, outline->parameters[i].name, i);
        if (at < 0)
            TRY(fail(ALIBI_BAD_INPUT, "there is no tensor '%s'", outline->parameters[i].name));
        TRY(add_entry(&made, "", &outline->parameters[i], source->tensors[at].type));
        TRY(check_tensor(&source->tensors[at], &made.entries[i], "the source"));
    }
    TRY(finish_list(f, &made));
out:
    tensor_file_fini(&made);
    return status;
}

alibi_status tensor_file_of_moments(struct tensor_file *f, const struct model *m, void *first,
                                    void *second)
{
    return list_tensors(f, m, "F32", (const char *const[]){ "first.", "second." },
                        (void *const[]){ first, second }, 2, 0);
}

alibi_status tensor_file_of_weights(struct tensor_file *f, const struct checkpoint *c,
                                    const char *type)
{
    TRY_RETURN(tensor_file_of_model(f, c->model, type));
    f->shards = c;
    f->shard = SHARD_MASTERS;
    f->comm = c->comm;
    return ALIBI_OK;
}

alibi_status tensor_file_of_optimizer(struct tensor_file *f, const struct checkpoint *c)
{
    TRY_RETURN(tensor_file_of_moments(f, c->model, c->first, c->second));
    f->shards = c;
    f->shard = SHARD_FIRST;
    f->comm = c->comm;
    return ALIBI_OK;
}

void tensor_file_fini(struct tensor_file *f)
{
    for (int i = 0; i < f->count; i++)
        mem_free(f->entries[i].name);
    mem_free(f->entries);
    mem_free(f->views);
    text_free(&f->header);
    *f = (struct tensor_file){ 0 };
}

/* ---- numbers as bytes */

bool weights_have_type(const char *type)
{
    return strcmp(type, "F32") == 0 || strcmp(type, "BF16") == 0 || strcmp(type, "F16") == 0;
}

/* The first of the values that the type cannot hold. */
static alibi_status refuse_value(const float *values, int64_t count, const char *type,
                                 const char *tensor)
{
    for (int64_t i = 0; i < count; i++) {
        bool finite = isfinite(values[i]);
        if (finite && !(strcmp(type, "F16") == 0 && fabsf(values[i]) >= 65520.0f) &&
            !(strcmp(type, "BF16") == 0 && isinf(bf16_to_float(bf16_from_float(values[i])))))
            continue;
        return finite ? fail(ALIBI_NUMERIC,
                             "cannot write tensor '%s' as %s: %g is beyond its range; use fp32%s",
                             tensor, type, (double)values[i],
                             strcmp(type, "F16") == 0 ? " or bf16" : "")
                      : fail(ALIBI_NUMERIC, "tensor '%s' has a number that is not finite", tensor);
    }
    return ALIBI_OK;
}

/* F32 may be packed in place. */
alibi_status weights_pack(void *bytes, const float *values, int64_t count, const char *type,
                          const char *tensor)
{
    const bool f16 = strcmp(type, "F16") == 0;
    const uint16_t infinity = f16 ? 0x7c00 : 0x7f80;
    uint16_t *halves = bytes;
    bool fits = true;

    if (strcmp(type, "F32") == 0) {
        for (int64_t i = 0; i < count; i++)
            fits &= isfinite(values[i]) != 0;
        if (bytes != (const void *)values)
            memcpy(bytes, values, (size_t)count * sizeof *values);
    } else {
        for (int64_t i = 0; i < count; i++) {
            halves[i] = f16 ? fp16_from_float(values[i]) : bf16_from_float(values[i]);
            fits &= (halves[i] & infinity) != infinity;
        }
    }
    return fits ? ALIBI_OK : refuse_value(values, count, type, tensor);
}

void weights_unpack(float *values, const void *bytes, int64_t count, const char *type)
{
    const uint16_t *halves = bytes;

    if (strcmp(type, "BF16") == 0)
        for (int64_t i = 0; i < count; i++)
            values[i] = bf16_to_float(halves[i]);
    else if (strcmp(type, "F16") == 0)
        for (int64_t i = 0; i < count; i++)
            values[i] = fp16_to_float(halves[i]);
    else if (bytes != (const void *)values)
        memcpy(values, bytes, (size_t)count * sizeof *values);
}

/* A block of elements, as in memory and as in a file. */
struct transfer {
    float *values;    /* [elements] */
    uint16_t *halves; /* [elements], after them */
};

static alibi_status transfer_new(struct transfer *b, int64_t elements)
{
    TRY_RETURN(NEW_ARRAY(&b->values, elements + (elements + 1) / 2, "a block of weights"));
    b->halves = (uint16_t *)(void *)(b->values + elements);
    return ALIBI_OK;
}

static void *bytes_of(struct transfer *b, const char *type)
{
    return strcmp(type, "F32") == 0 ? (void *)b->values : (void *)b->halves;
}

/* ---- sources */

void tensor_source_free(struct tensor_source *s)
{
    if (s)
        s->free(s);
}

int64_t tensor_source_columns(const struct safetensor *t)
{
    return t->rank == 2 ? t->shape[1] : 1;
}

int tensor_source_find(const struct tensor_source *s, const char *name, int guess)
{
    return find(s->tensors, s->count, name, guess);
}

/* ---- writing */

/* Between the device and `values`, one block at a time, so that passes of other threads on the same
 * device can run between two blocks. */
static alibi_status download(const struct tensor_file *f, float *values, struct tensor block)
{
    alibi_status status;

    device_lock(f->device);
    status = f->device->ops->download(f->device, values, block);
    device_unlock(f->device);
    return status;
}

static alibi_status upload(const struct tensor_file *f, struct tensor block, const float *values)
{
    alibi_status status;

    device_lock(f->device);
    status = f->device->ops->upload(f->device, block, values);
    device_unlock(f->device);
    return status;
}

/* A row of numbers that one rank writes: a tensor, or what one block of the flat buffers has of it.
 * So the rows are the same for any rank, and each knows which are its own. */
struct row {
    int tensor, rank;
    int64_t from, count;
};

/* The row after this one; the first one follows {0}. */
static bool next_row(const struct tensor_file *f, struct row *r)
{
    int64_t left = 0, most;

    r->from += r->count;
    r->count = 0;
    for (; r->tensor < f->count; r->tensor++, r->from = 0) {
        const struct safetensor *e = &f->entries[r->tensor];
        left = (e->end - e->begin) / (int64_t)safetensor_type_bytes(e->type) - r->from;
        if (left > 0)
            break;
    }
    if (r->tensor == f->count)
        return false;
    r->count = left;
    r->rank = 0;
    if (comm_size(f->comm) > 1) {
        const struct model *m = f->model;
        int64_t at = m->parameters[r->tensor % m->count].offset + r->from;
        r->rank = comm_owner(f->comm, m->span, at, &most);
        r->count = most < left ? most : left;
    }
    return true;
}

/* Where the bytes of a file go, and the checksum of those in a row. */
struct output {
    struct file *file;
    int64_t at;
    uint32_t crc32;
};

static alibi_status put_bytes(struct output *o, const void *bytes, size_t length)
{
    TRY_RETURN(file_write_at(o->file, bytes, length, o->at));
    o->at += (int64_t)length;
    o->crc32 = checksum(o->crc32, bytes, length);
    return ALIBI_OK;
}

/* The block's values as bytes of the entry's type. */
static alibi_status put(struct output *o, const struct safetensor *e, struct transfer *b,
                        int64_t count)
{
    void *bytes = bytes_of(b, e->type);

    TRY_RETURN(weights_pack(bytes, b->values, count, e->type, e->name));
    return put_bytes(o, bytes, (size_t)count * safetensor_type_bytes(e->type));
}

/* Lines of a matrix that fit a block, and at least one: the block has room for it. */
static alibi_status write_lines(struct output *o, const struct tensor_file *f, int i,
                                struct transfer *b)
{
    const struct safetensor *e = &f->entries[i];
    int64_t columns = tensor_source_columns(e), most = columns < BLOCK ? BLOCK / columns : 1;
    int tensor = tensor_source_find(f->source, e->name, i);

    for (int64_t line = 0; line < e->shape[0]; line += most) {
        int64_t lines = e->shape[0] - line < most ? e->shape[0] - line : most;
        TRY_RETURN(f->source->read(f->source, tensor, line, lines, b->values));
        TRY_RETURN(put(o, e, b, lines * columns));
    }
    return ALIBI_OK;
}

struct tensor checkpoint_shard(const struct checkpoint *c, enum sharded shard)
{
    void *const buffers[] = { c->first, c->second, c->masters };
    const struct model *m = c->model;

    return buffers[shard] ? tensor_1(buffers[shard], dtype_sums(m->type),
                                     comm_shard(c->comm, m->span,
                                                shard == SHARD_MASTERS ? m->absent : m->span))
                          : tensor_none();
}

/* Numbers from..from+count-1 of a tensor, which are of this rank's shard. */
static alibi_status get(const struct tensor_file *f, int tensor, int64_t from, int64_t count,
                        float *values)
{
    const struct checkpoint *c = f->shards;
    const struct model *m = f->model;
    const struct parameter *p = &m->parameters[tensor % m->count];
    enum sharded which = (enum sharded)((int)f->shard + tensor / m->count);
    int64_t at = p->offset + from;
    struct tensor shard;

    if (!c || (which == SHARD_MASTERS && p->offset >= m->absent))
        return download(f, values, vector_part(f->views[tensor], from, count));
    if (c->fetch)
        return c->fetch(c->user, which, at, count, values);
    shard = checkpoint_shard(c, which);
    return download(f, values, vector_part(shard, comm_shard(c->comm, m->span, at), count));
}

static alibi_status write_row(struct output *o, const struct tensor_file *f, const struct row *r,
                              struct transfer *b)
{
    const struct safetensor *e = &f->entries[r->tensor];

    o->at = e->begin + r->from * (int64_t)safetensor_type_bytes(e->type);
    if (f->source)
        return write_lines(o, f, r->tensor, b);
    for (int64_t done = 0; done < r->count; done += BLOCK) {
        int64_t some = r->count - done < BLOCK ? r->count - done : BLOCK;
        TRY_RETURN(get(f, r->tensor, r->from + done, some, b->values));
        TRY_RETURN(put(o, e, b, some));
    }
    return ALIBI_OK;
}

/* Writes and syncs this rank's part of the file. crcs[0] is the checksum of the header, the others
 * are those of the rows; those of other ranks stay 0. */
static alibi_status write_own(struct output *o, const struct tensor_file *f, double *crcs)
{
    alibi_status status;
    struct transfer b = { 0 };
    struct row r = { 0 };
    int64_t most = BLOCK;
    struct file *file;

    for (int i = 0; f->source && i < f->count; i++)
        most = tensor_source_columns(&f->entries[i]) > most ? tensor_source_columns(&f->entries[i])
                                                            : most;
    TRY(transfer_new(&b, most));
    if (comm_is_root(f->comm))
        TRY(put_bytes(o, f->header.data, f->header.length));
    *crcs++ = o->crc32;
    for (; next_row(f, &r); crcs++) {
        if (r.rank != comm_rank(f->comm))
            continue;
        o->crc32 = 0;
        TRY(write_row(o, f, &r, &b));
        *crcs = o->crc32;
    }
    TRY(file_sync(o->file));
    file = o->file;
    o->file = NULL;
    TRY(file_close(file));
out:
    mem_free(b.values);
    return status;
}

static alibi_status open_created(struct output *o, const char *path)
{
    alibi_status status = file_open_write(&o->file, path);

    if (status == ALIBI_OK || status == ALIBI_MEMORY)
        return status;
    return fail(ALIBI_IO, "%s; rank 0 has made it, and all ranks must see it to save",
                alibi_error());
}

static struct part join_rows(const struct tensor_file *f, const double *crcs)
{
    struct part part = { .present = true, .bytes = f->bytes, .crc32 = (uint32_t)*crcs++ };
    struct row r = { 0 };

    while (next_row(f, &r)) {
        size_t bytes = (size_t)r.count * safetensor_type_bytes(f->entries[r.tensor].type);
        part.crc32 = checksum_join(part.crc32, (uint32_t)*crcs++, bytes);
    }
    return part;
}

alibi_status tensor_file_write(const struct tensor_file *f, const char *folder, const char *name,
                               struct part *part)
{
    alibi_status status;
    struct output o = { 0 };
    struct row r = { 0 };
    int rows = 0;
    double *crcs = NULL; /* [1 + rows] */
    char *path = NULL;

    while (next_row(f, &r))
        rows++;
    status = path_join(&path, folder, name);
    if (status == ALIBI_OK)
        status = NEW_ZERO_ARRAY(&crcs, 1 + rows, "the checksums of a file");
    /* Rank 0 makes the file, of its final size: where several machines write it by a network file
     * system, none of them may take the bytes of another for a gap after the end, and fill it. */
    if (status == ALIBI_OK && comm_is_root(f->comm))
        status = file_create(&o.file, path);
    if (status == ALIBI_OK && comm_is_root(f->comm) && comm_size(f->comm) > 1)
        status = file_set_size(o.file, f->bytes);
    TRY(comm_agree(f->comm, status));
    if (!comm_is_root(f->comm))
        status = open_created(&o, path);
    if (status == ALIBI_OK)
        status = write_own(&o, f, crcs);
    file_close(o.file); /* before another rank removes it */
    o.file = NULL;
    TRY(comm_agree(f->comm, status));
    TRY(comm_sum(f->comm, crcs, 1 + rows));
    *part = join_rows(f, crcs);
out:
    file_close(o.file);
    mem_free(crcs);
    mem_free(path);
    return status;
}

/* ---- reading */

static void list_name(struct text *list, const char *name)
{
    text_append(list, "%s%s", list->length > 0 ? ", " : "", name);
}

static void list_unmatched(const int *target, const struct tensor_file *f,
                           const struct safetensors *found, const char *except,
                           struct text *missing, struct text *unused)
{
    for (int i = 0; i < found->count; i++)
        if (target[i] < 0)
            list_name(unused, found->tensors[i].name);
    for (int i = 0; i < f->count; i++) {
        const char *name = f->entries[i].name;
        if ((except && strncmp(name, except, strlen(except)) == 0) ||
            find(found->tensors, found->count, name, i) < 0)
            list_name(missing, name);
    }
}

static alibi_status read_exactly(struct file *file, void *buffer, int64_t bytes, const char *path)
{
    size_t got;

    TRY_RETURN(file_read(file, buffer, (size_t)bytes, &got));
    if ((int64_t)got != bytes)
        return fail(ALIBI_IO, "'%s' ended while it was read", path);
    return ALIBI_OK;
}

static alibi_status skip_bytes(struct file *file, int64_t bytes, struct transfer *b,
                               const char *path)
{
    const int64_t most = BLOCK * (int64_t)sizeof *b->values;

    for (; bytes > 0; bytes -= most)
        TRY_RETURN(read_exactly(file, b->values, bytes < most ? bytes : most, path));
    return ALIBI_OK;
}

/* All tensors in the order of the file, which is read once from its start. */
static alibi_status read_data(const int *target, const struct tensor_file *f,
                              const struct safetensors *found, const char *path)
{
    alibi_status status;
    struct file *file = NULL;
    struct transfer b = { 0 };

    TRY(transfer_new(&b, BLOCK));
    TRY(file_open_read(&file, path));
    TRY(skip_bytes(file, found->count > 0 ? found->tensors[0].begin : 0, &b, path));
    for (int i = 0; i < found->count; i++) {
        const struct safetensor *t = &found->tensors[i];
        if (target[i] < 0) {
            TRY(skip_bytes(file, t->end - t->begin, &b, path));
            continue;
        }
        for (int64_t from = 0; from < tensor_count(f->views[target[i]]); from += BLOCK) {
            struct tensor all = f->views[target[i]], some;
            int64_t left = tensor_count(all) - from, count = left < BLOCK ? left : BLOCK;
            some = tensor_1(tensor_at(all, from), all.type, count);
            TRY(read_exactly(file, bytes_of(&b, t->type),
                             count * (int64_t)safetensor_type_bytes(t->type), path));
            weights_unpack(b.values, bytes_of(&b, t->type), count, t->type);
            TRY(upload(f, some, b.values));
        }
    }
out:
    file_close(file);
    mem_free(b.values);
    return status;
}

/* target[i] is the index in f's list of tensor i of the file; -1: it is not read. Type and shape of
 * those that are read are checked. */
static alibi_status read_tensors(const struct tensor_file *f, const char *path, bool exact,
                                 const char *except, struct text *missing, struct text *unused)
{
    alibi_status status;
    struct safetensors *found = NULL;
    int *target = NULL;

    TRY(safetensors_open(&found, path));
    TRY(NEW_ARRAY(&target, found->count, "a list of tensors"));
    for (int i = 0; i < found->count; i++) {
        const struct safetensor *t = &found->tensors[i];
        target[i] = except && strncmp(t->name, except, strlen(except)) == 0
                        ? -1
                        : find(f->entries, f->count, t->name, i);
        if (target[i] >= 0)
            TRY(check_tensor(t, &f->entries[target[i]], path));
    }
    if (exact && found->count != f->count)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' has %d tensors; the configuration has %d", path,
                 found->count, f->count));
    for (int i = 0; exact && i < found->count; i++)
        if (target[i] < 0)
            TRY(fail(ALIBI_BAD_INPUT, "'%s': the configuration has no tensor '%s'", path,
                     found->tensors[i].name));
    if (!exact) {
        list_unmatched(target, f, found, except, missing, unused);
        TRY(text_status(missing));
        TRY(text_status(unused));
    }
    TRY(read_data(target, f, found, path));
out:
    mem_free(target);
    safetensors_free(found);
    return status;
}

alibi_status tensor_file_read(const struct tensor_file *f, const char *path)
{
    return read_tensors(f, path, true, NULL, NULL, NULL);
}

alibi_status tensor_file_read_some(const struct tensor_file *f, const char *path,
                                   const char *except, struct text *missing, struct text *unused)
{
    return read_tensors(f, path, false, except, missing, unused);
}
