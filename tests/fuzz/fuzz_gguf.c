/* fuzz_gguf.c - any bytes as a GGUF file
 *
 * A file that is accepted has every value and tensor within it, and comes back from being written:
 * the same pairs and the same tensors. */
#include "formats/gguf.h"
#include "fuzz.h"

static volatile uint32_t sum; /* so that the compiler keeps the reading */

/* Reads a value to its last byte, which the sanitizer watches. */
static void read_value(const struct gguf_value *v)
{
    const char *at = v->at;
    int64_t whole;
    double real;
    bool flag;
    struct slice text;

    for (int64_t i = 0; i < v->count; i++) {
        if (v->kind == GGUF_TEXT) {
            text = gguf_next_text(&at);
            for (size_t b = 0; b < text.bytes; b++)
                sum += (unsigned char)text.at[b];
        } else if (gguf_integer(v, i, &whole) || gguf_real(v, i, &real)) {
            sum += 1;
        }
    }
    if (v->kind == GGUF_TEXT)
        require(at == v->at + v->bytes && gguf_text(v, &text) == !v->array);
    require(!gguf_flag(v, &flag) || v->kind == GGUF_BOOL);
}

/* Decodes what is there of a tensor, at most a row, and encodes it again. */
static void read_tensor(const struct gguf_tensor *t, const char *bytes)
{
    enum { MOST = 256 };
    float numbers[MOST];
    char encoded[MOST * sizeof(float)];
    int64_t count = (t->end - t->begin) / (int64_t)t->type->bytes * t->type->block;

    count = count < MOST ? count : MOST;
    t->type->decode(numbers, bytes + t->begin, count);
    for (int64_t i = 0; i < count; i++)
        if (!(numbers[i] > -1e4f && numbers[i] < 1e4f))
            numbers[i] = 0;
    t->type->encode(encoded, numbers, count);
    sum += (unsigned char)encoded[0];
}

static void check_rewritten(const struct gguf *g)
{
    struct gguf_writer w = { 0 };
    struct text header = { 0 }, again = { 0 };
    struct gguf_tensor *tensors = NULL;
    struct gguf *back = NULL;
    int64_t end;

    require(NEW_ARRAY(&tensors, g->tensor_count, "tensors") == ALIBI_OK);
    memcpy(tensors, g->tensors, (size_t)g->tensor_count * sizeof *tensors);
    for (int i = 0; i < g->pair_count; i++) {
        text_append(&again, "%.*s", (int)g->pairs[i].key.bytes, g->pairs[i].key.at);
        require(text_status(&again) == ALIBI_OK);
        if (strcmp(again.data, "general.alignment") != 0)
            gguf_put(&w, again.data, &g->pairs[i].value);
        again.length = 0;
    }
    require(gguf_header(&header, &w, tensors, g->tensor_count) == ALIBI_OK);
    end = g->tensor_count > 0 ? tensors[g->tensor_count - 1].end : (int64_t)header.length;
    require(gguf_parse(&back, header.data, header.length, end, "written") == ALIBI_OK);
    require(back->tensor_count == g->tensor_count && back->pair_count == (int)w.count);
    for (int i = 0; i < g->tensor_count; i++)
        require(memcmp(&back->tensors[i], &tensors[i], sizeof *tensors) == 0);
    gguf_free(back);
    mem_free(tensors);
    text_free(&header);
    text_free(&again);
    gguf_writer_fini(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct gguf *g = NULL;
    alibi_status status = gguf_parse(&g, bytes, size, (int64_t)size, "fuzz.gguf");

    if (status != ALIBI_OK) {
        check_refusal(status, "'fuzz.gguf'");
        require(g == NULL);
    } else {
        for (int i = 0; i < g->pair_count; i++)
            read_value(&g->pairs[i].value);
        for (int i = 0; i < g->tensor_count; i++) {
            require(g->tensors[i].begin <= g->tensors[i].end && g->tensors[i].end <= (int64_t)size);
            read_tensor(&g->tensors[i], bytes);
        }
        check_rewritten(g);
        gguf_free(g);
    }
    require(alibi_memory_now() == 0);
    return 0;
}
