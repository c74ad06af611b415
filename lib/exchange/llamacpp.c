/* llamacpp.c - models in GGUF files, as llama.cpp reads and writes them: metadata, tensors and
 * tokenizer in one file */
#include <math.h>
#include <string.h>

#include "exchange/exchange.h"
#include "formats/gguf.h"

enum { READ_BYTES = 1 << 20 };

/* ---- tensors */

struct gguf_source {
    struct tensor_source base;
    const struct gguf *gguf; /* its owner outlives the source */
    struct file *file;
    char *block; /* READ_BYTES */
};

static void free_source(struct tensor_source *s)
{
    struct gguf_source *g = (struct gguf_source *)s;

    file_close(g->file);
    mem_free(g->block);
    mem_free(s->tensors);
    mem_free(g);
}

/* Rows are whole blocks, so rows that follow each other are one stretch of the file. */
static alibi_status read_rows(struct tensor_source *s, int tensor, int64_t row, int64_t rows,
                              float *values)
{
    struct gguf_source *g = (struct gguf_source *)s;
    const struct gguf_tensor *t = &g->gguf->tensors[tensor];
    int64_t columns = tensor_source_columns(&s->tensors[tensor]), size = (int64_t)t->type->bytes;
    int64_t most = READ_BYTES / size, left = rows * columns / t->type->block;
    int64_t at = t->begin + row * columns / t->type->block * size;

    for (; left > 0; left -= most, values += most * t->type->block, at += most * size) {
        int64_t some = left < most ? left : most;
        TRY_RETURN(file_read_at(g->file, g->block, (size_t)(some * size), at));
        t->type->decode(values, g->block, some * t->type->block);
    }
    return ALIBI_OK;
}

static alibi_status open_tensors(struct tensor_source **out, struct gguf *gguf, const char *path)
{
    alibi_status status;
    struct gguf_source *g = NULL;

    TRY(NEW_ZERO_ARRAY(&g, 1, "a source of tensors"));
    g->base = (struct tensor_source){ .types = "F32, F16, BF16 and Q8_0",
                                      .read = read_rows,
                                      .free = free_source };
    g->gguf = gguf;
    TRY(NEW_ARRAY(&g->block, READ_BYTES, "a block of weights"));
    TRY(NEW_ZERO_ARRAY(&g->base.tensors, gguf->tensor_count, "a list of tensors"));
    for (int i = 0; i < gguf->tensor_count; i++) {
        struct gguf_tensor *from = &gguf->tensors[i];
        struct safetensor *t = &g->base.tensors[g->base.count++];
        if (from->rank < 2 && from->type->block > 1)
            TRY(fail(ALIBI_BAD_INPUT,
                     "cannot read '%s': the vector '%s' is %s, which only "
                     "matrices can be",
                     path, from->name, from->type->name));
        *t = (struct safetensor){ .name = from->name, .rank = from->rank };
        memcpy(t->shape, from->shape, sizeof from->shape);
        snprintf(t->type, sizeof t->type, "%s", from->type->name);
    }
    TRY(file_open_read(&g->file, path));
    *out = &g->base;
    g = NULL;
out:
    if (g)
        free_source(&g->base);
    return status;
}

/* ---- reading */

alibi_status llamacpp_open(struct foreign *out, const char *path)
{
    alibi_status status;
    struct foreign f = { 0 };

    TRY(gguf_open(&f.gguf, path));
    TRY(llamacpp_config(&f.family, &f.config, f.gguf, path));
    TRY(open_tensors(&f.tensors, f.gguf, path));
    TRY(foreign_tokenizer(&f, llamacpp_read_tokenizer(&f.tokenizer, f.gguf, path)));
    *out = f;
    f = (struct foreign){ 0 };
out:
    foreign_fini(&f);
    return status;
}

/* ---- writing */

/* Vectors, and what is added to embeddings, stay in fp32, since llama.cpp adds and multiplies by
 * nothing else. Rows that are not whole blocks are not quantized. */
static const struct gguf_type *type_of(const struct outgoing *o, const struct safetensor *t)
{
    const struct gguf_type *type = gguf_type_named(o->type ? o->type : t->type);

    if (t->rank < 2 || strcmp(t->name, "position_embd.weight") == 0)
        return gguf_type_named("F32");
    return t->shape[1] % type->block == 0 ? type : gguf_type_named("F16");
}

/* llama.cpp's number for the type of most tensors. */
static uint32_t file_type(const struct gguf_type *type)
{
    static const struct {
        const char *name;
        uint32_t number;
    } types[] = { { "F32", 0 }, { "F16", 1 }, { "Q8_0", 7 }, { "BF16", 32 } };

    for (int i = 0; i < COUNT(types); i++)
        if (strcmp(types[i].name, type->name) == 0)
            return types[i].number;
    return 0;
}

static alibi_status make_header(struct text *header, struct gguf_tensor *tensors,
                                const struct outgoing *o)
{
    alibi_status status;
    struct gguf_writer w = { 0 };
    char key[64];
    const struct gguf_type *type = gguf_type_named(o->type ? o->type : o->tensors->tensors[0].type);

    for (int i = 0; i < o->tensors->count; i++) {
        const struct safetensor *t = &o->tensors->tensors[i];
        tensors[i] = (struct gguf_tensor){ .type = type_of(o, t), .rank = t->rank };
        memcpy(tensors[i].shape, t->shape, sizeof tensors[i].shape);
        if (snprintf(tensors[i].name, sizeof tensors[i].name, "%s", t->name) > GGUF_NAME_MAX)
            TRY(fail(ALIBI_BAD_INPUT, "the name of tensor '%s' is too long for GGUF", t->name));
    }
    gguf_put_text(&w, "general.architecture", o->family->name);
    gguf_put_u32(&w, "general.file_type", file_type(type));
    if (type->block > 1)
        gguf_put_u32(&w, "general.quantization_version", 2);
    TRY(llamacpp_put_config(&w, o->family, o->config));
    snprintf(key, sizeof key, "%.40s.vocab_size", o->family->name);
    gguf_put_u32(&w, key, (uint32_t)o->config->vocab);
    TRY(llamacpp_put_tokenizer(&w, o->own_tokenizer, o->config->vocab, o->call));
    TRY(gguf_header(header, &w, tensors, o->tensors->count));
out:
    gguf_writer_fini(&w);
    return status;
}

static alibi_status check_range(const float *values, int64_t count, const struct gguf_tensor *t)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)values[i]) <= t->type->largest))
            return fail(ALIBI_NUMERIC, "tensor '%s' has %g, which %s cannot hold", t->name,
                        (double)values[i], t->type->name);
    return ALIBI_OK;
}

static alibi_status write_tensor(struct file *file, struct tensor_source *s, int tensor,
                                 const struct gguf_tensor *t)
{
    static const char zeros[GGUF_ALIGNMENT];
    alibi_status status = ALIBI_OK;
    int64_t columns = tensor_source_columns(&s->tensors[tensor]), most, rows;
    float *values = NULL;
    char *bytes;

    most = READ_BYTES / (int64_t)sizeof *values / columns;
    most = most > 0 ? most : 1;
    TRY(NEW_ARRAY(&values, 2 * most * columns, "a block of weights"));
    bytes = (char *)(values + most * columns);
    for (int64_t row = 0; row < t->shape[0]; row += most) {
        rows = t->shape[0] - row < most ? t->shape[0] - row : most;
        TRY(s->read(s, tensor, row, rows, values));
        TRY(check_range(values, rows * columns, t));
        t->type->encode(bytes, values, rows * columns);
        TRY(file_write(file, bytes, (size_t)(rows * columns / t->type->block) * t->type->bytes));
    }
    TRY(file_write(file, zeros, (size_t)(-t->end & (GGUF_ALIGNMENT - 1))));
out:
    mem_free(values);
    return status;
}

struct file_content {
    const struct outgoing *outgoing;
    const struct text *header;
    const struct gguf_tensor *tensors;
};

static alibi_status write_content(struct file *file, const void *user)
{
    const struct file_content *c = user;
    struct tensor_source *s = c->outgoing->tensors;

    TRY_RETURN(file_write(file, c->header->data, c->header->length));
    for (int i = 0; i < s->count; i++)
        TRY_RETURN(write_tensor(file, s, i, &c->tensors[i]));
    return ALIBI_OK;
}

alibi_status llamacpp_write(const struct outgoing *o, const char *path)
{
    alibi_status status;
    enum path_kind kind;
    struct text header = { 0 };
    struct gguf_tensor *tensors = NULL;

    TRY(path_look(&kind, path));
    if (kind != PATH_NONE)
        TRY(fail(ALIBI_BAD_INPUT, "cannot write a model to '%s': %s", path,
                 kind == PATH_FILE ? "the file exists"
                                   : "it is a folder; give the name of a file"));
    TRY(NEW_ARRAY(&tensors, o->tensors->count, "a list of tensors"));
    TRY(make_header(&header, tensors, o));
    TRY(file_replace_with(path, write_content, &(struct file_content){ o, &header, tensors }));
    if (o->config->activation == ALIBI_GELU_ERF)
        call_warn(o->call, "llama.cpp computes GELU by its approximation with tanh, and this model "
                           "by erf: its activations differ there by up to 0.0005");
out:
    text_free(&header);
    mem_free(tensors);
    return status;
}
