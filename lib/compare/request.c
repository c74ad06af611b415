/* request.c - the request of a comparison: its checks, and its files in the folder
 *
 * recipe.json is the whole request, as `alibi compare --recipe` reads it. Derived values are 0 in
 * it, because another width, for example, derives others. If the recipe of a folder resolves to
 * other values, it is another comparison, and resuming it would mix the two. A recipe does not
 * contain the text. text.json has the checksums of the text and of the tokenizer. It is a sealed
 * file, except in folders of version 0.1. */
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "compare/compare.h"
#include "train/train.h"

enum { REQUEST_BYTES_MAX = 1 << 20, VALUE_BYTES = 64 };

/* ---- checks */

/* Each method gets the name that its results have. */
static alibi_status check_methods(struct alibi_name_list *methods, const struct alibi_config *asked)
{
    struct alibi_config config = *asked;
    struct pattern pattern;
    char files[ALIBI_LIST_MAX][ALIBI_NAME_MAX];

    if (methods->count < 1 || methods->count > ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "methods: %d given; give 1 to %d", methods->count, ALIBI_LIST_MAX);
    for (int i = 0; i < methods->count; i++) {
        memcpy(config.position, methods->at[i], sizeof config.position);
        TRY_RETURN(pattern_read(&pattern, &config));
        TRY_RETURN(pattern_name(methods->at[i], &pattern, &config));
        pattern_file_name(files[i], methods->at[i]);
        for (int j = 0; j < i; j++)
            if (strcmp(files[i], files[j]) == 0)
                return fail(ALIBI_USAGE, "methods: '%s' is listed twice", methods->at[i]);
    }
    return ALIBI_OK;
}

/* 1 to ALIBI_LIST_MAX numbers of at least `least`, each once. */
static alibi_status check_list(const struct alibi_int_list *list, const char *name, int64_t least)
{
    if (list->count < 1 || list->count > ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "%s: %d given; give 1 to %d", name, list->count, ALIBI_LIST_MAX);
    for (int i = 0; i < list->count; i++) {
        if (list->at[i] < least)
            return fail(ALIBI_USAGE, "%s: %lld is out of range; each must be at least %lld", name,
                        (long long)list->at[i], (long long)least);
        for (int j = 0; j < i; j++)
            if (list->at[i] == list->at[j])
                return fail(ALIBI_USAGE, "%s: %lld is listed twice", name, (long long)list->at[i]);
    }
    return ALIBI_OK;
}

static alibi_status check_tokens(const struct alibi_compare *c)
{
    int64_t longest = c->lengths.at[c->lengths.count - 1];

    if (c->eval_tokens != 0 && c->eval_tokens < longest)
        return fail(ALIBI_USAGE,
                    "eval-tokens %lld is less than the largest length, %lld; raise it, or use 0",
                    (long long)c->eval_tokens, (long long)longest);
    if (c->sliding_tokens < 0)
        return fail(ALIBI_USAGE, "sliding-tokens %lld is negative; use 0 for none",
                    (long long)c->sliding_tokens);
    if (c->stream_tokens < 0)
        return fail(ALIBI_USAGE, "stream-tokens %lld is negative; use 0 for none",
                    (long long)c->stream_tokens);
    return ALIBI_OK;
}

/* Every length is scored on the same tokens, so the longest one sets how many are needed. */
static alibi_status check_text(const struct request *r, const alibi_corpus *corpus)
{
    const struct alibi_training *t = &r->training;
    int64_t longest = r->compare.lengths.at[r->compare.lengths.count - 1];
    struct span valid = corpus_span(corpus, ALIBI_VALID);
    struct batches batches;

    if (valid.count - 1 < longest)
        return fail(ALIBI_BAD_INPUT,
                    "the validation %s '%s' has %lld tokens, but evaluating at length %lld needs "
                    "%llu; use more text or shorter --lengths",
                    corpus_has_own_valid(corpus) ? "text of" : "split of", corpus_name(corpus),
                    (long long)valid.count, (long long)longest, (unsigned long long)longest + 1);
    return batches_init(&batches, corpus_span(corpus, ALIBI_TRAIN), t->train_length, t->batch,
                        (uint64_t)t->seed);
}

alibi_status request_config(const struct request *r, int i, struct alibi_config *config)
{
    struct alibi_config resolved;

    *config = r->asked;
    snprintf(config->position, sizeof config->position, "%s", r->compare.methods.at[i]);
    resolved = *config;
    return alibi_config_resolve(&resolved);
}

static alibi_status resolve(struct request *r)
{
    TRY_RETURN(request_config(r, 0, &r->config));
    if (r->config.vocab == 0)
        r->config.vocab = r->ids;
    return alibi_config_resolve(&r->config);
}

/* A list of seeds replaces the seed of training, and one seed is a list of one. */
static void settle_seeds(struct alibi_compare *compare, struct alibi_training *training)
{
    if (compare->seeds.count == 0)
        compare->seeds = (struct alibi_int_list){ 1, { training->seed } };
    training->seed = compare->seeds.at[0];
}

/* Everything that can be checked without the text. */
static alibi_status request_begin(struct request *r, const struct alibi_compare *compare,
                                  const struct alibi_config *config,
                                  const struct alibi_training *training)
{
    *r = (struct request){ .compare = *compare, .asked = *config, .training = *training };
    r->training.eval_tokens = compare->eval_tokens;
    TRY_RETURN(training_resolve(&r->training, config));
    TRY_RETURN(check_methods(&r->compare.methods, &r->asked));
    TRY_RETURN(check_list(&r->compare.lengths, "lengths", 1));
    settle_seeds(&r->compare, &r->training);
    TRY_RETURN(check_list(&r->compare.seeds, "seeds", 0));
    list_sort(&r->compare.lengths);
    TRY_RETURN(check_tokens(&r->compare));
    r->asked.train_length = training->train_length;
    for (int i = 0; i < r->compare.methods.count; i++)
        TRY_RETURN(request_config(r, i, &r->config));
    return resolve(r);
}

alibi_status request_init(struct request *r, const struct alibi_compare *compare,
                          const struct alibi_config *config, const struct alibi_training *training,
                          const alibi_corpus *corpus)
{
    const alibi_tokenizer *tokenizer = corpus_tokenizer(corpus);

    TRY_RETURN(request_begin(r, compare, config, training));
    r->builtin = corpus_builtin(corpus);
    r->text = corpus_checksum(corpus);
    r->files = corpus_files_checksum(corpus);
    r->tokenizer = tokenizer_checksum(tokenizer);
    r->ids = alibi_tokenizer_vocab(tokenizer);
    alibi_corpus_get_info(corpus, ALIBI_ALL, &r->info);
    r->own_valid = corpus_has_own_valid(corpus);
    snprintf(r->type, sizeof r->type, "%s", alibi_tokenizer_type(tokenizer));
    TRY_RETURN(resolve(r));
    return check_text(r, corpus);
}

/* ---- options */

#define AT(field) offsetof(struct alibi_compare, field)

static const struct alibi_option options[] = {
    { "methods", ALIBI_OPTION_NAMES, AT(methods), 0, 0, NULL, "alibi,sinusoidal,rotary,t5,none",
      "LIST", "position methods, in the order of the report" },
    { "lengths", ALIBI_OPTION_INTS, AT(lengths), 1, 1 << 24, NULL, "64,128,256,512,1024", "LIST",
      "lengths to test at" },
    { "seeds", ALIBI_OPTION_INTS, AT(seeds), 0, 0x1p62, NULL, NULL, "LIST",
      "train each method once with each of these seeds; default: only --seed" },
    { "eval-tokens", ALIBI_OPTION_INT, AT(eval_tokens), 0, 1e15, NULL, "32768", "N",
      "tokens scored per method and length, spread over the validation split; 0: all of it" },
    { "sliding-tokens", ALIBI_OPTION_INT, AT(sliding_tokens), 0, 1e15, NULL, "32768", "N",
      "tokens scored again with a sliding window, which advances by half its length; 0: none" },
    { "stream-tokens", ALIBI_OPTION_INT, AT(stream_tokens), 0, 1e15, NULL, "8192", "N",
      "tokens scored again as one stream, each with all earlier tokens as context; 0: none" },
};

const struct alibi_option *alibi_compare_options(int *count)
{
    *count = COUNT(options);
    return options;
}

/* ---- recipe.json and text.json */

enum { COMPARISON, MODEL, MODEL_REST, TRAINING, TEXT, GROUPS };

/* The options that affect the result, without the position, which the methods replace. */
static void recipe_groups(struct alibi_option_group groups[GROUPS], struct request *r,
                          struct alibi_config *config)
{
    const struct alibi_option *position;
    int all;

    groups[COMPARISON] = (struct alibi_option_group){ .values = &r->compare };
    groups[MODEL] = groups[MODEL_REST] = (struct alibi_option_group){ .values = config };
    groups[TRAINING] = (struct alibi_option_group){ .values = &r->training };
    groups[TEXT] = (struct alibi_option_group){ .values = &r->builtin };
    groups[COMPARISON].options = alibi_compare_options(&groups[COMPARISON].count);
    groups[MODEL].options = alibi_config_options(&groups[MODEL].count);
    groups[TRAINING].options = training_shaping_options(&groups[TRAINING].count);
    groups[TEXT].options = alibi_builtin_options(&groups[TEXT].count);
    position = alibi_options_find(&groups[MODEL], 1, "position", NULL);
    all = groups[MODEL].count;
    groups[MODEL].count = (int)(position - groups[MODEL].options);
    groups[MODEL_REST].options = position + 1;
    groups[MODEL_REST].count = all - groups[MODEL].count - 1;
}

static alibi_status format_recipe(const struct request *r, const struct alibi_config *config,
                                  struct text *json)
{
    struct request copy = *r;
    struct alibi_config config_copy = *config;
    struct alibi_option_group groups[GROUPS];

    recipe_groups(groups, &copy, &config_copy);
    return options_format(groups, r->builtin.bytes > 0 ? GROUPS : TEXT, json);
}

/* The request that a recipe holds, resolved for the text and the training of `asked`. */
static alibi_status parse_recipe(struct request *held, const struct request *asked,
                                 const char *bytes, size_t length, const char *path)
{
    struct alibi_option_group groups[GROUPS];
    alibi_status status;

    *held =
        (struct request){ .asked = asked->asked, .training = asked->training, .ids = asked->ids };
    recipe_groups(groups, held, &held->asked);
    TRY_RETURN(alibi_options_init(groups, GROUPS));
    held->builtin.bytes = 0;
    TRY_RETURN(options_parse(groups, GROUPS, bytes, length, path));
    settle_seeds(&held->compare, &held->training);
    TRY(check_methods(&held->compare.methods, &held->asked));
    TRY(check_list(&held->compare.lengths, "lengths", 1));
    TRY(check_list(&held->compare.seeds, "seeds", 0));
    TRY(resolve(held));
    list_sort(&held->compare.lengths);
out:
    return status == ALIBI_OK
               ? status
               : fail_context(status == ALIBI_USAGE ? ALIBI_BAD_INPUT : status, "'%s'", path);
}

/* A value for a message, cut if it is long. */
static void value_text(char text[VALUE_BYTES], const json_t *value)
{
    size_t length =
        value ? json_dumpb(value, text, VALUE_BYTES - 1, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9))
              : 0;

    text[length < VALUE_BYTES ? length : VALUE_BYTES - 1] = '\0';
    if (length >= VALUE_BYTES)
        memcpy(text + VALUE_BYTES - 4, "...", 4);
    if (!value)
        snprintf(text, VALUE_BYTES, "missing");
}

static alibi_status fail_other(const char *dir, const char *difference)
{
    return fail(ALIBI_BAD_INPUT, "'%s' holds another comparison (%s); use another --out", dir,
                difference);
}

static alibi_status name_difference(const json_t *held, json_t *asked, const char *dir)
{
    char there[VALUE_BYTES], here[VALUE_BYTES];
    const char *key;
    json_t *value;

    json_object_foreach(asked, key, value)
    {
        const json_t *other = json_object_get(held, key);

        if (json_equal(other, value))
            continue;
        value_text(there, other);
        value_text(here, value);
        return fail(ALIBI_BAD_INPUT,
                    "'%s' holds another comparison (%s %s there, %s asked); use another --out", dir,
                    key, there, here);
    }
    /* The only other keys are those of the built-in text. */
    return fail_other(dir, "of another text");
}

/* Both are resolved. */
static alibi_status compare_requests(const struct request *held, const struct request *asked,
                                     const char *dir, const char *path)
{
    alibi_status status;
    struct text there = { 0 }, here = { 0 };
    json_t *there_json = NULL, *here_json = NULL;

    TRY(format_recipe(held, &held->config, &there));
    TRY(format_recipe(asked, &asked->config, &here));
    if (there.length == here.length && memcmp(there.data, here.data, here.length) == 0)
        goto out;
    TRY(json_parse(&there_json, there.data, there.length, path));
    TRY(json_parse(&here_json, here.data, here.length, path));
    TRY(name_difference(there_json, here_json, dir));
out:
    json_decref(here_json);
    json_decref(there_json);
    text_free(&here);
    text_free(&there);
    return status;
}

/* Whether the requested seeds begin with those of the folder and have more. */
static bool adds_seeds(const struct alibi_int_list *held, const struct alibi_int_list *asked)
{
    return held->count < asked->count &&
           memcmp(held->at, asked->at, (size_t)held->count * sizeof held->at[0]) == 0;
}

/* *added: the folder holds the same comparison with fewer seeds. */
static alibi_status check_recipe(const struct request *asked, const char *dir, const char *path,
                                 bool *added)
{
    alibi_status status;
    char *bytes = NULL;
    size_t length;
    json_t *json = NULL;
    struct request held;

    TRY(file_read_all(&bytes, &length, path, REQUEST_BYTES_MAX));
    TRY(json_parse(&json, bytes, length, path));
    if (!json_object_get(json, "methods"))
        TRY(fail(ALIBI_BAD_INPUT, "'%s' holds a training run; use another --out", dir));
    TRY(parse_recipe(&held, asked, bytes, length, path));
    if (asked->info.tokens == 0) /* the text is not read yet */
        held.builtin = asked->builtin;
    *added = adds_seeds(&held.compare.seeds, &asked->compare.seeds);
    if (*added)
        held.compare.seeds = asked->compare.seeds;
    TRY(compare_requests(&held, asked, dir, path));
out:
    json_decref(json);
    mem_free(bytes);
    return status;
}

/* A single seed is written as that of training, so that --seed overrides it in the recipe. */
static alibi_status write_recipe(const struct request *r, const char *path)
{
    struct request asked = *r;
    struct alibi_option_group groups[GROUPS];

    if (asked.compare.seeds.count == 1)
        asked.compare.seeds.count = 0;
    recipe_groups(groups, &asked, &asked.asked);
    return alibi_options_write(groups, r->builtin.bytes > 0 ? GROUPS : TEXT, path);
}

/* The counts of a text, as results.json has them too. */
#define COUNTED(name) JSON_FIELD(INT, struct alibi_corpus_info, name)

static const struct json_field text_counts[] = {
    COUNTED(paths), COUNTED(checksum), COUNTED(documents), COUNTED(tokens),
    COUNTED(words), COUNTED(bytes),    COUNTED(vocab),
};

static alibi_status write_text(const struct request *r, const char *path)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);
    char name[ALIBI_TEXT_NAME_MAX];

    snprintf(name, sizeof name, "%s", r->info.name);
    line_clean(name);
    json_write_object(&w, NULL);
    json_write_int(&w, "checksum", r->text);
    json_write_int(&w, "files", r->files);
    json_write_int(&w, "tokenizer", r->tokenizer);
    json_write_object(&w, "text");
    json_write_string(&w, "path", name);
    json_write_fields(&w, text_counts, COUNT(text_counts), &r->info);
    json_write_string(&w, "tokenizer", r->type);
    json_write_bool(&w, "own_valid", r->own_valid);
    json_write_end(&w);
    json_write_seal(&w);
    status = sealed_write(path, &json);
    text_free(&json);
    return status;
}

/* Older files have no seal; still older ones have neither `files` nor `tokenizer`. */
static alibi_status check_text_file(const struct request *r, const char *dir, const char *path)
{
    alibi_status status;
    json_t *held = NULL, *sealed = NULL;
    int64_t text, files = r->files, tokenizer = r->tokenizer;
    bool has_files;

    TRY(json_read(&held, path));
    if (json_object_get(held, "crc32"))
        TRY(sealed_read(&sealed, path, REQUEST_BYTES_MAX));
    TRY(json_get_int(held, "checksum", 0, UINT32_MAX, &text, path));
    if (json_object_get(held, "tokenizer"))
        TRY(json_get_int(held, "tokenizer", 0, UINT32_MAX, &tokenizer, path));
    has_files = json_object_get(held, "files") != NULL;
    if (has_files)
        TRY(json_get_int(held, "files", 0, UINT32_MAX, &files, path));
    if (tokenizer != r->tokenizer)
        status = fail_other(dir, "with another tokenizer");
    else if (text != r->text && has_files && files == r->files)
        status = fail_other(dir, "of the same text, but with another --valid");
    else if (text != r->text || files != r->files)
        status = fail_other(dir, "of another text");
out:
    json_decref(sealed);
    json_decref(held);
    return status;
}

alibi_status alibi_compare_check(const struct alibi_compare *compare,
                                 const struct alibi_config *config,
                                 const struct alibi_training *training, const char *dir)
{
    alibi_status status;
    struct request r;
    enum path_kind kind;
    char *recipe = NULL;
    bool added, used;

    TRY(request_begin(&r, compare, config, training));
    TRY(path_look(&kind, dir));
    if (kind == PATH_NONE)
        goto out;
    TRY(folder_create(dir)); /* fails if it is a file */
    TRY(folder_refuse_other(dir, FOLDER_COMPARISON));
    TRY(lock_check(&used, dir));
    TRY(used ? ALIBI_IO : ALIBI_OK); /* lock_check() has said by whom */
    TRY(path_join(&recipe, dir, NAME_RECIPE));
    if (file_exists(recipe))
        TRY(check_recipe(&r, dir, recipe, &added));
out:
    mem_free(recipe);
    return status;
}

/* text.json is written first: it tells a training run that the folder is taken. */
alibi_status request_enter(const struct request *r, const char *dir)
{
    alibi_status status;
    char *recipe = NULL, *text = NULL;
    bool entered, added = false;

    TRY(path_join(&recipe, dir, NAME_RECIPE));
    TRY(path_join(&text, dir, NAME_COMPARED_TEXT));
    entered = file_exists(recipe);
    if (entered)
        TRY(check_recipe(r, dir, recipe, &added));
    TRY(file_exists(text) ? check_text_file(r, dir, text) : write_text(r, text));
    if (!entered || added)
        TRY(write_recipe(r, recipe));
out:
    mem_free(text);
    mem_free(recipe);
    return status;
}

/* ---- reading */

/* `text` is the member of that name in text.json or results.json. Older files have fewer members,
 * or none: NULL. */
static alibi_status read_text(struct request *r, const json_t *text, const char *path)
{
    const char *value;

    for (int i = 0; i < COUNT(text_counts); i++)
        if (json_object_get(text, text_counts[i].name))
            TRY_RETURN(json_read_fields(text, &text_counts[i], 1, &r->info, path));
    if (json_object_get(text, "path")) {
        TRY_RETURN(json_get_text(text, "path", &value, path));
        snprintf(r->info.name, sizeof r->info.name, "%s", value);
    }
    if (json_object_get(text, "tokenizer")) {
        TRY_RETURN(json_get_text(text, "tokenizer", &value, path));
        snprintf(r->type, sizeof r->type, "%s", value);
    }
    r->own_valid = json_is_true(json_object_get(text, "own_valid"));
    return ALIBI_OK;
}

static alibi_status read_member(struct request *r, const char *dir, const char *name)
{
    alibi_status status;
    char *path = NULL;
    json_t *file = NULL;

    TRY(path_join(&path, dir, name));
    if (!file_exists(path))
        goto out;
    TRY(json_read(&file, path));
    TRY(read_text(r, json_object_get(file, "text"), path));
out:
    json_decref(file);
    mem_free(path);
    return status;
}

/* A recipe has the options that shape the result; the others have their defaults here. */
alibi_status request_read(struct request *r, const char *dir)
{
    alibi_status status;
    struct request text = { 0 };
    struct alibi_option_group all[] = { { .values = &text.asked }, { .values = &text.training } };
    char *path = NULL, *bytes = NULL;
    size_t length;

    all[0].options = alibi_config_options(&all[0].count);
    all[1].options = alibi_training_options(&all[1].count);
    TRY(alibi_options_init(all, 2));
    TRY(read_member(&text, dir, NAME_COMPARED_TEXT));
    if (text.info.vocab == 0)
        TRY(read_member(&text, dir, NAME_RESULTS));
    text.ids = text.info.vocab;
    TRY(path_join(&path, dir, NAME_RECIPE));
    TRY(file_read_all(&bytes, &length, path, REQUEST_BYTES_MAX));
    TRY(parse_recipe(r, &text, bytes, length, path));
    r->info = text.info;
    r->own_valid = text.own_valid;
    memcpy(r->type, text.type, sizeof r->type);
out:
    mem_free(bytes);
    mem_free(path);
    return status;
}

void request_describe(const struct request *r, struct alibi_compare_result *result)
{
    result->config = r->config;
    result->training = r->training;
    result->compare = r->compare;
    result->builtin = r->builtin;
    result->text = r->info;
    result->own_valid = r->own_valid;
    memcpy(result->tokenizer, r->type, sizeof result->tokenizer);
}
