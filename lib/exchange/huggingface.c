/* huggingface.c - models in folders as Hugging Face's transformers writes them: config.json,
 * model.safetensors or several files with an index, tokenizer.json */
#include <string.h>

#include "base/names.h"
#include "exchange/exchange.h"
#include "formats/gguf.h"

enum { CONFIG_BYTES_MAX = 4 << 20 };

void foreign_fini(struct foreign *f)
{
    tensor_source_free(f->tensors);
    alibi_tokenizer_free(f->tokenizer);
    gguf_free(f->gguf);
    *f = (struct foreign){ 0 };
}

/* ---- reading */

static alibi_status read_config(struct foreign *f, const char *folder)
{
    alibi_status status;
    char *path = NULL, *bytes = NULL;
    size_t length = 0;
    bool has;

    TRY(folder_has(&has, folder, NAME_CONFIG));
    TRY(path_join(&path, folder, NAME_CONFIG));
    if (!has)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' is not a Hugging Face model: it has no " NAME_CONFIG,
                 folder));
    TRY(file_read_all(&bytes, &length, path, CONFIG_BYTES_MAX));
    TRY(huggingface_config(&f->family, &f->config, bytes, length, path));
out:
    mem_free(path);
    mem_free(bytes);
    return status;
}

alibi_status foreign_tokenizer(struct foreign *f, alibi_status status)
{
    if (status == ALIBI_OK && alibi_tokenizer_vocab(f->tokenizer) > f->config.vocab) {
        status = fail(ALIBI_BAD_INPUT, "its tokenizer has %lld ids, the model only %lld",
                      (long long)alibi_tokenizer_vocab(f->tokenizer), (long long)f->config.vocab);
        alibi_tokenizer_free(f->tokenizer);
        f->tokenizer = NULL;
    }
    if (status != ALIBI_BAD_INPUT)
        return status;
    snprintf(f->reason, sizeof f->reason, "%s", alibi_error());
    return ALIBI_OK;
}

/* tokenizer.json, or GPT-2's two files. */
static alibi_status read_tokenizer(struct foreign *f, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    bool one, two;

    TRY(folder_has(&one, folder, NAME_TOKENIZER));
    TRY(folder_has(&two, folder, "vocab.json"));
    TRY(path_join(&path, folder, NAME_TOKENIZER));
    if (one || two)
        status = alibi_tokenizer_open(&f->tokenizer, one ? path : folder, NULL);
    else
        status = fail(ALIBI_BAD_INPUT, "it has neither tokenizer.json nor vocab.json");
    TRY(foreign_tokenizer(f, status));
out:
    mem_free(path);
    return status;
}

alibi_status huggingface_open(struct foreign *out, const char *folder)
{
    alibi_status status;
    struct foreign f = { 0 };

    TRY(read_config(&f, folder));
    TRY(safetensors_source_folder(&f.tensors, folder));
    TRY(read_tokenizer(&f, folder));
    *out = f;
    f = (struct foreign){ 0 };
out:
    foreign_fini(&f);
    return status;
}

/* ---- writing */

enum { ROWS_BYTES = 1 << 20 };
static const int64_t SHARD_BYTES = 5000000000; /* as transformers writes them */

/* The type that transformers loads the weights in. */
static const char *torch_type(const struct outgoing *o)
{
    const char *type = o->type ? o->type : o->tensors->tensors[0].type;

    return strcmp(type, "BF16") == 0  ? "bfloat16"
           : strcmp(type, "F16") == 0 ? "float16"
                                      : "float32";
}

static void write_ends(const struct outgoing *o, struct json_writer *w)
{
    int32_t end = o->tokenizer ? alibi_tokenizer_end(o->tokenizer) : -1;

    if (end >= 0) {
        json_write_int(w, "bos_token_id", tokenizer_start(o->tokenizer));
        json_write_int(w, "eos_token_id", end);
    } else {
        json_write_null(w, "bos_token_id");
        json_write_null(w, "eos_token_id");
    }
}

static alibi_status write_config(const struct outgoing *o, const char *folder)
{
    alibi_status status;
    struct text config = { 0 }, generation = { 0 };
    struct json_writer w = json_writer(&config);

    json_write_object(&w, NULL);
    json_write_array_line(&w, "architectures");
    json_write_string(&w, NULL, o->family->architecture);
    json_write_end(&w);
    json_write_string(&w, "model_type", o->family->name);
    json_write_string(&w, "torch_dtype", torch_type(o));
    family_write_config(o->family, o->config, &w);
    write_ends(o, &w);
    json_write_end(&w);
    w = json_writer(&generation);
    json_write_object(&w, NULL);
    write_ends(o, &w);
    json_write_end(&w);
    TRY(file_replace_within(folder, NAME_CONFIG, &config));
    TRY(file_replace_within(folder, "generation_config.json", &generation));
out:
    text_free(&config);
    text_free(&generation);
    return status;
}

/* The tokenizer of bytes as a BPE without merges, which has the same ids. */
static alibi_status format_bytes(struct text *json)
{
    enum { BYTES = 256 };
    static const char end[] = "<|endoftext|>";
    char all[BYTES];
    struct slice tokens[BYTES + 1] = { [BYTES] = { end, sizeof end - 1 } };
    struct bpe_added added = { .text = tokens[BYTES], .id = BYTES, .special = true };
    struct bpe_file file = {
        .tokens = tokens, .vocab = BYTES + 1, .added = &added, .added_count = 1
    };

    for (int i = 0; i < BYTES; i++) {
        all[i] = (char)i;
        tokens[i] = (struct slice){ &all[i], 1 };
        file.byte_ids[i] = i;
    }
    return bpe_file_write(&file, json);
}

/* AutoTokenizer of transformers 5 uses Qwen2's normalizer and regular expression for every model of
 * type qwen2, whatever class the folder names. */
static void check_auto_tokenizer(const struct outgoing *o, const struct bpe_file *file)
{
    if (strcmp(o->family->name, "qwen2") == 0 && !tokenizer_cuts_as(file, "qwen2"))
        call_warn(o->call,
                  "AutoTokenizer of transformers 5 cuts text for every '%s' as Qwen2 does, and "
                  "this tokenizer does not, so its ids may differ there; load it with "
                  "PreTrainedTokenizerFast.from_pretrained() instead",
                  o->family->name);
}

/* Nothing here uses the tokens for padding and for the unknown, so a tokenizer does not keep them:
 * they are known by the names that published tokenizers give them. */
static void write_named_token(struct json_writer *w, const char *key, const char *const names[],
                              const struct bpe_file *file)
{
    for (; *names; names++)
        for (int i = 0; i < file->added_count; i++) {
            const struct bpe_added *a = &file->added[i];
            if (a->special && a->text.bytes == strlen(*names) &&
                memcmp(a->text.at, *names, a->text.bytes) == 0) {
                json_write_string(w, key, *names);
                return;
            }
        }
}

static alibi_status write_tokenizer(const struct outgoing *o, const char *folder)
{
    static const char *const unknown[] = { "<unk>", "[UNK]", "<|unk|>", NULL };
    static const char *const padding[] = { "<pad>", "[PAD]", "<|pad|>", "<|padding|>", NULL };
    alibi_status status;
    const alibi_tokenizer *t = o->tokenizer;
    struct bpe_file *file = NULL;
    struct text json = { 0 }, config = { 0 };
    struct json_writer w = json_writer(&config);
    bool of_bytes = strcmp(alibi_tokenizer_type(t), "bytes") == 0;
    int32_t ends[] = { tokenizer_start(t), alibi_tokenizer_end(t) }; /* as write_ends() */
    char *name = NULL;
    size_t bytes;

    TRY(of_bytes ? format_bytes(&json) : tokenizer_format(t, &json));
    TRY(file_replace_within(folder, NAME_TOKENIZER, &json));
    TRY(bpe_file_parse(&file, json.data, json.length, NAME_TOKENIZER));
    check_auto_tokenizer(o, file);
    json_write_object(&w, NULL);
    json_write_string(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    for (int i = 0; i < 2 && ends[1] >= 0; i++) {
        alibi_text_free(name);
        name = NULL;
        TRY(alibi_tokenizer_decode(t, &ends[i], 1, &name, &bytes));
        json_write_string(&w, i == 0 ? "bos_token" : "eos_token",
                          of_bytes ? "<|endoftext|>" : name);
    }
    write_named_token(&w, "unk_token", unknown, file);
    write_named_token(&w, "pad_token", padding, file);
    json_write_end(&w);
    TRY(file_replace_within(folder, "tokenizer_config.json", &config));
out:
    bpe_file_free(file);
    alibi_text_free(name);
    text_free(&json);
    text_free(&config);
    return status;
}

/* ---- writing: the weights, in one file or several */

/* Tensors from..to-1 become a file. */
struct weight_file {
    int from, to;
    int64_t bytes;
    char name[64];
};

static alibi_status write_tensor(struct file *file, struct tensor_source *s, int tensor,
                                 const char *type)
{
    alibi_status status = ALIBI_OK;
    const struct safetensor *t = &s->tensors[tensor];
    int64_t columns = tensor_source_columns(t),
            most = ROWS_BYTES / (int64_t)sizeof(float) / columns;
    float *values = NULL;
    char *bytes;

    most = most > 0 ? most : 1;
    TRY(NEW_ARRAY(&values, 2 * most * columns, "a block of weights"));
    bytes = (char *)(values + most * columns);
    for (int64_t row = 0; row < t->shape[0]; row += most) {
        int64_t rows = t->shape[0] - row < most ? t->shape[0] - row : most;
        TRY(s->read(s, tensor, row, rows, values));
        TRY(weights_pack(bytes, values, rows * columns, type, t->name));
        TRY(file_write(file, bytes, (size_t)(rows * columns) * safetensor_type_bytes(type)));
    }
out:
    mem_free(values);
    return status;
}

static alibi_status write_shard(const struct outgoing *o, const struct weight_file *shard,
                                const char *folder)
{
    alibi_status status;
    int count = shard->to - shard->from;
    struct safetensor *entries = NULL;
    struct text header = { 0 };
    struct file *file = NULL, *done;
    char *path = NULL;

    TRY(NEW_ARRAY(&entries, count, "a list of tensors"));
    for (int i = 0; i < count; i++) {
        entries[i] = o->tensors->tensors[shard->from + i];
        if (o->type)
            snprintf(entries[i].type, sizeof entries[i].type, "%s", o->type);
    }
    TRY(safetensors_header(&header, entries, count));
    TRY(path_join(&path, folder, shard->name));
    TRY(file_create(&file, path));
    TRY(file_write(file, header.data, header.length));
    for (int i = 0; i < count; i++)
        TRY(write_tensor(file, o->tensors, shard->from + i, entries[i].type));
    TRY(file_sync(file));
    done = file;
    file = NULL;
    TRY(file_close(done));
out:
    file_close(file);
    text_free(&header);
    mem_free(entries);
    mem_free(path);
    return status;
}

/* Tensors in their order, a new file where the next one would exceed the limit. */
static int divide(const struct outgoing *o, struct weight_file *shards)
{
    const struct tensor_source *s = o->tensors;
    int64_t limit = o->shard_bytes > 0 ? o->shard_bytes : SHARD_BYTES;
    int count = 0;

    for (int i = 0; i < s->count; i++) {
        const char *type = o->type ? o->type : s->tensors[i].type;
        int64_t bytes = s->tensors[i].shape[0] * tensor_source_columns(&s->tensors[i]) *
                        (int64_t)safetensor_type_bytes(type);
        if (count == 0 || shards[count - 1].bytes + bytes > limit)
            shards[count++] = (struct weight_file){ .from = i };
        shards[count - 1].to = i + 1;
        shards[count - 1].bytes += bytes;
    }
    for (int i = 0; i < count; i++)
        if (count == 1)
            snprintf(shards[i].name, sizeof shards[i].name, NAME_WEIGHTS);
        else
            snprintf(shards[i].name, sizeof shards[i].name, "model-%05d-of-%05d.safetensors", i + 1,
                     count);
    return count;
}

static alibi_status write_index(const struct outgoing *o, const struct weight_file *shards,
                                int count, const char *folder)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);
    int64_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += shards[i].bytes;
    json_write_object(&w, NULL);
    json_write_object(&w, "metadata");
    json_write_int(&w, "total_size", bytes);
    json_write_end(&w);
    json_write_object(&w, "weight_map");
    for (int i = 0; i < count; i++)
        for (int t = shards[i].from; t < shards[i].to; t++)
            json_write_string(&w, o->tensors->tensors[t].name, shards[i].name);
    json_write_end(&w);
    json_write_end(&w);
    TRY(file_replace_within(folder, NAME_WEIGHTS ".index.json", &json));
out:
    text_free(&json);
    return status;
}

static alibi_status write_weights(const struct outgoing *o, const char *folder)
{
    alibi_status status;
    struct weight_file *shards = NULL;
    int count;

    TRY(NEW_ARRAY(&shards, o->tensors->count, "a list of files"));
    count = divide(o, shards);
    for (int i = 0; i < count; i++)
        TRY(write_shard(o, &shards[i], folder));
    if (count > 1)
        TRY(write_index(o, shards, count, folder));
out:
    mem_free(shards);
    return status;
}

static alibi_status write_files(const struct outgoing *o, const char *folder)
{
    TRY_RETURN(folder_create(folder));
    TRY_RETURN(write_config(o, folder));
    if (o->tokenizer)
        TRY_RETURN(write_tokenizer(o, folder));
    TRY_RETURN(write_weights(o, folder));
    return folder_sync(folder);
}

/* Whether an export writes a file of that name. */
static bool is_of_export(const char *name)
{
    static const char *const names[] = { NAME_CONFIG,    "generation_config.json",
                                         NAME_TOKENIZER, "tokenizer_config.json",
                                         NAME_WEIGHTS,   NAME_WEIGHTS ".index.json" };

    for (int i = 0; i < COUNT(names); i++) {
        size_t length = strlen(names[i]);
        if (strncmp(name, names[i], length) == 0 &&
            (name[length] == '\0' || strcmp(name + length, NAME_ASIDE) == 0))
            return true;
    }
    return strncmp(name, "model-", 6) == 0 && ends_with(name, ".safetensors");
}

/* A folder of that name that is not empty is somebody's work and is kept. The leftover of an
 * earlier attempt is removed, unless it has other files. */
static alibi_status make_room(const char *folder, const char *aside)
{
    alibi_status status;
    enum path_kind kind, kind_aside;
    char **names = NULL;
    int count = 0;

    TRY(path_look(&kind, folder));
    if (kind == PATH_FOLDER)
        TRY(folder_list(&names, &count, folder));
    if (kind == PATH_FILE || count > 0)
        TRY(fail(ALIBI_BAD_INPUT, "cannot write a model to '%s': %s; use another --out", folder,
                 kind == PATH_FILE ? "it is a file" : "the folder is not empty"));
    TRY(path_look(&kind_aside, aside));
    if (kind_aside != PATH_FOLDER)
        goto out;
    names_free(names, count);
    names = NULL;
    TRY(folder_list(&names, &count, aside));
    for (int i = 0; i < count; i++)
        if (!is_of_export(names[i]))
            TRY(fail(ALIBI_BAD_INPUT,
                     "cannot write a model to '%s': it is written to '%s' first, where '%s' is no "
                     "file of an export; move that folder, or use another --out",
                     folder, aside, names[i]));
    TRY(folder_remove(aside));
out:
    names_free(names, count);
    return status;
}

alibi_status huggingface_write(const struct outgoing *o, const char *folder)
{
    alibi_status status;
    struct text aside = { 0 };
    struct failure failure;
    char *parent = NULL;
    size_t length = strlen(folder);

    while (length > 1 && folder[length - 1] == '/')
        length--;
    text_append(&aside, "%.*s" NAME_ASIDE, (int)length, folder);
    TRY(text_status(&aside));
    TRY(path_folder(&parent, aside.data));
    TRY(make_room(folder, aside.data));
    status = write_files(o, aside.data);
    if (status == ALIBI_OK)
        status = file_rename(aside.data, folder);
    if (status != ALIBI_OK) {
        failure_keep(&failure, status);
        if (folder_exists(aside.data))
            (void)folder_remove(aside.data);
        status = failure_raise(&failure);
        goto out;
    }
    TRY(folder_sync(parent));
out:
    text_free(&aside);
    mem_free(parent);
    return status;
}
