/* origin.c - where a corpus came from, as JSON that can open it again
 *
 *   { "files": ["/a/book.txt"], "valid": "/a/v.txt", "reading": { "format": "auto", ... },
 *     "tokenizer": 123 }
 *   { "text_seed": 1, "text_bytes": 2000000, "tokenizer": 123 }
 *   { "task": "markov", "tokenizer": 123 }
 *   { "mix": [{ "share": 0.7, "files": ... }, { "share": 0.3, "task": ... }], "tokenizer": 123 }
 *
 * Paths are absolute, so that it can be opened from any folder. The tokenizer is not in it, only
 * its checksum. */
#include <string.h>

#include "base/json.h"
#include "text/corpus.h"

alibi_status origin_init(struct origin *o, const char *const *paths, int count, const char *valid,
                         const struct alibi_reading *reading)
{
    struct alibi_reading copy;
    struct alibi_option_group group = { .values = &copy };

    TRY_RETURN(NEW_ZERO_ARRAY(&o->paths, count, "the paths of a text"));
    for (o->count = 0; o->count < count; o->count++)
        TRY_RETURN(text_copy(&o->paths[o->count], paths[o->count]));
    if (valid != NULL)
        TRY_RETURN(text_copy(&o->valid, valid));
    group.options = alibi_reading_options(&group.count);
    if (reading == NULL)
        return ALIBI_OK;
    copy = *reading;
    return options_format(&group, 1, &o->reading);
}

void origin_fini(struct origin *o)
{
    names_free(o->paths, o->count);
    mem_free(o->valid);
    text_free(&o->reading);
    *o = (struct origin){ 0 };
}

/* ---- writing */

/* *absolute is NULL for what cannot be opened again: standard input, a shell's <(command). */
static alibi_status lasting_path(char **absolute, const char *path)
{
    alibi_status status = ALIBI_BAD_INPUT;

    *absolute = NULL;
    if (strcmp(path, "-") != 0)
        status = path_absolute(absolute, path);
    return status == ALIBI_BAD_INPUT ? ALIBI_OK : status;
}

/* A path that cannot be opened again stays as it was. */
static alibi_status write_path(struct json_writer *w, const char *key, const char *path)
{
    char *absolute;

    TRY_RETURN(lasting_path(&absolute, path));
    json_write_string(w, key, absolute ? absolute : path);
    mem_free(absolute);
    return ALIBI_OK;
}

/* The members of a corpus that is no mixture. */
static alibi_status write_corpus(struct json_writer *w, const alibi_corpus *c)
{
    if (c->builtin.bytes > 0) {
        json_write_int(w, "text_seed", c->builtin.seed);
        json_write_int(w, "text_bytes", c->builtin.bytes);
        return ALIBI_OK;
    }
    if (corpus_is_task(c)) {
        json_write_string(w, "task", alibi_task_name(task_kind(c->task), NULL));
        return ALIBI_OK;
    }
    json_write_array(w, "files");
    for (int i = 0; i < c->origin.count; i++)
        TRY_RETURN(write_path(w, NULL, c->origin.paths[i]));
    json_write_end(w);
    if (c->origin.valid != NULL)
        TRY_RETURN(write_path(w, "valid", c->origin.valid));
    if (c->origin.reading.length > 0)
        json_write_raw(w, "reading", c->origin.reading.data);
    return ALIBI_OK;
}

alibi_status corpus_describe(const alibi_corpus *c, struct text *json)
{
    struct json_writer w = json_writer(json);

    for (int i = 0; i < corpus_parts(c); i++) {
        const alibi_corpus *part = corpus_part(c, i);

        if (part->origin.count == 0 && part->builtin.bytes == 0 && !corpus_is_task(part))
            return ALIBI_OK;
    }
    json_write_object(&w, NULL);
    if (c->part_count > 0) {
        json_write_array(&w, "mix");
        for (int i = 0; i < c->part_count; i++) {
            json_write_object(&w, NULL);
            json_write_real(&w, "share", c->shares[i]);
            TRY_RETURN(write_corpus(&w, c->parts[i]));
            json_write_end(&w);
        }
        json_write_end(&w);
    } else {
        TRY_RETURN(write_corpus(&w, c));
    }
    json_write_int(&w, "tokenizer", tokenizer_checksum(c->tokenizer));
    json_write_end(&w);
    return text_status(json);
}

/* ---- reading */

static alibi_status check_path(const char *path, const char *from)
{
    enum path_kind kind;

    if (strcmp(path, "-") == 0)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': the text came from standard input; give it again, as '-'", from);
    TRY_RETURN(path_look(&kind, path));
    if (kind == PATH_NONE)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': the text '%s' is no longer there; give the path that it has now", from,
                    path);
    return ALIBI_OK;
}

static alibi_status read_reading(const struct alibi_option_group *group, const json_t *object,
                                 const char *from)
{
    char key[OPTION_KEY_MAX];

    TRY_RETURN(alibi_options_init(group, 1));
    for (int i = 0; i < group->count; i++) {
        const char *name = group->options[i].name;
        const json_t *value;

        option_key(key, name);
        value = json_object_get(object, key);
        if (json_is_string(value) &&
            alibi_options_set(group, 1, name, json_string_value(value)) != ALIBI_OK)
            return fail_context(ALIBI_BAD_INPUT, "'%s'", from);
    }
    return ALIBI_OK;
}

static alibi_status open_files(alibi_corpus **out, const json_t *json, const alibi_tokenizer *t,
                               const char *from, const struct alibi_call *call)
{
    alibi_status status;
    const json_t *files = json_object_get(json, "files");
    const char **paths = NULL, *valid = json_string_value(json_object_get(json, "valid"));
    struct alibi_reading reading = { 0 };
    struct alibi_option_group group = { .values = &reading };
    int count = (int)json_array_size(files);
    char *run = NULL;

    group.options = alibi_reading_options(&group.count);
    TRY(read_reading(&group, json_object_get(json, "reading"), from));
    TRY(NEW_ARRAY(&paths, count, "the paths of a text"));
    for (int i = 0; i < count; i++) {
        paths[i] = json_string_value(json_array_get(files, (size_t)i));
        if (paths[i] == NULL)
            TRY(fail(ALIBI_BAD_INPUT, "'%s': 'files' must be a list of paths", from));
        TRY(check_path(paths[i], from));
    }
    if (valid != NULL)
        TRY(check_path(valid, from));
    TRY(path_folder(&run, from));
    status = alibi_text_check_folder(paths, count, valid, run);
    if (status == ALIBI_BAD_INPUT)
        TRY(fail(status,
                 "the run '%s' is inside a folder of its text, so its own files would be read as "
                 "text; move it out of that folder",
                 run));
    TRY(status);
    TRY(alibi_corpus_open(out, paths, count, valid, t, &reading, call));
out:
    alibi_options_free(&group, 1);
    mem_free(paths);
    mem_free(run);
    return status;
}

static alibi_status open_one(alibi_corpus **out, const json_t *json, const alibi_tokenizer *t,
                             const char *from, const struct alibi_call *call)
{
    const char *task = json_string_value(json_object_get(json, "task"));
    int64_t seed, bytes;

    if (task != NULL) {
        alibi_status status = alibi_corpus_task(out, task, t);

        return status == ALIBI_USAGE ? fail_context(ALIBI_BAD_INPUT, "'%s'", from) : status;
    }
    if (json_object_get(json, "text_bytes") == NULL)
        return open_files(out, json, t, from, call);
    TRY_RETURN(json_get_int(json, "text_seed", 0, INT64_MAX, &seed, from));
    TRY_RETURN(json_get_int(json, "text_bytes", 0, INT64_MAX, &bytes, from));
    return alibi_corpus_builtin(out, (uint64_t)seed, bytes, t, call);
}

static alibi_status open_mixture(alibi_corpus **out, const json_t *mix, const alibi_tokenizer *t,
                                 const char *from, const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;
    alibi_corpus *parts[CORPUS_PARTS_MAX] = { NULL };
    double shares[CORPUS_PARTS_MAX];
    size_t count = json_array_size(mix);

    if (count > CORPUS_PARTS_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s': a mixture has at most %d texts", from,
                    CORPUS_PARTS_MAX);
    /* Texts first: shards have a tokenizer, and tasks take that of the texts. */
    for (size_t i = 0; i < 2 * count; i++) {
        const json_t *part = json_array_get(mix, i % count);
        bool is_task = json_object_get(part, "task") != NULL;

        shares[i % count] = json_number_value(json_object_get(part, "share"));
        if (is_task == (i < count))
            continue;
        TRY(open_one(&parts[i % count], part, t, from, call));
        t = t != NULL ? t : parts[i % count]->tokenizer;
    }
    TRY(alibi_corpus_mix(out, parts, shares, (int)count));
    count = 0; /* the mixture owns them */
out:
    for (size_t i = 0; i < count; i++)
        alibi_corpus_free(parts[i]);
    return status;
}

alibi_status corpus_open_described(alibi_corpus **out, const char *path, const alibi_tokenizer *t,
                                   const struct alibi_call *call)
{
    alibi_status status;
    alibi_corpus *c = NULL;
    json_t *json = NULL;
    const json_t *mix;
    int64_t tokenizer;

    TRY(json_read(&json, path));
    TRY(json_get_int(json, "tokenizer", 0, UINT32_MAX, &tokenizer, path));
    mix = json_object_get(json, "mix");
    TRY(mix != NULL ? open_mixture(&c, mix, t, path, call) : open_one(&c, json, t, path, call));
    if (tokenizer_checksum(c->tokenizer) != tokenizer)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s': the text had another tokenizer; give the text and --tokenizer again",
                 path));
    *out = c;
    c = NULL;
out:
    alibi_corpus_free(c);
    json_decref(json);
    return status;
}

/* ---- where results may be */

alibi_status corpus_check_folder(const alibi_corpus *c, const char *dir)
{
    for (int i = 0; i < corpus_parts(c); i++) {
        const struct origin *o = &corpus_part(c, i)->origin;

        TRY_RETURN(alibi_text_check_folder((const char *const *)o->paths, o->count, o->valid, dir));
    }
    return ALIBI_OK;
}

/* ---- what a run has seen */

static bool overlap(const char *a, const char *b)
{
    return path_begins(a, b) || path_begins(b, a);
}

alibi_status origin_overlaps(const struct origin *o, bool *yes)
{
    alibi_status status;
    char *valid = NULL, *path = NULL;

    *yes = false;
    TRY(lasting_path(&valid, o->valid));
    for (int i = 0; i < o->count && valid != NULL && !*yes; i++) {
        mem_free(path);
        TRY(lasting_path(&path, o->paths[i]));
        *yes = path != NULL && overlap(path, valid);
    }
out:
    mem_free(valid);
    mem_free(path);
    return status;
}

/* Whether the files of a run were read as those of the corpus: documents decide where splits end.
 */
static alibi_status read_alike(bool *alike, const alibi_corpus *c, const json_t *run)
{
    const struct text *here = &c->origin.reading;
    const json_t *there = json_object_get(run, "reading");
    json_t *ours = NULL;

    *alike = here->length == 0 && there == NULL;
    if (here->length == 0 || there == NULL)
        return ALIBI_OK;
    TRY_RETURN(json_parse(&ours, here->data, here->length, "the options of a text"));
    *alike = json_equal(ours, (json_t *)there) != 0;
    json_decref(ours);
    return ALIBI_OK;
}

/* `run` is one text of a run. The same files are cut into the same splits, unless they were read
 * otherwise, or one of the two has a validation text of its own. */
static alibi_status seen_files(enum alibi_seen *seen, const alibi_corpus *c, enum alibi_split split,
                               const json_t *run)
{
    const json_t *files = json_object_get(run, "files");
    int count = (int)json_array_size(files);
    bool own_valid = c->own_valid && split == ALIBI_VALID;
    bool same = count > 0 && count == c->origin.count && !c->own_valid &&
                json_object_get(run, "valid") == NULL;
    bool any = false, alike;

    TRY_RETURN(read_alike(&alike, c, run));
    same = same && alike;
    for (int i = 0; i < (own_valid ? 1 : c->origin.count); i++) {
        bool same_place = false;
        char *path;

        TRY_RETURN(lasting_path(&path, own_valid ? c->origin.valid : c->origin.paths[i]));
        for (int j = 0; j < count && path != NULL; j++) {
            const char *trained = json_string_value(json_array_get(files, (size_t)j));

            if (trained == NULL || !overlap(path, trained))
                continue;
            any = true;
            same_place = same_place || (j == i && strcmp(path, trained) == 0);
        }
        same = same && same_place;
        mem_free(path);
    }
    if (same)
        *seen = split == ALIBI_TRAIN || split == ALIBI_ALL ? ALIBI_SEEN_PARTLY : ALIBI_UNSEEN;
    else
        *seen = any ? ALIBI_SEEN : ALIBI_UNSEEN;
    return ALIBI_OK;
}

alibi_status corpus_seen_by(enum alibi_seen *seen, const alibi_corpus *c, enum alibi_split split,
                            const char *path)
{
    alibi_status status;
    json_t *json = NULL;
    const json_t *mix;
    enum alibi_seen found = ALIBI_UNSEEN;

    TRY(json_read(&json, path));
    mix = json_object_get(json, "mix");
    for (size_t i = 0; i < (mix ? json_array_size(mix) : 1); i++) {
        const json_t *run = mix ? json_array_get(mix, i) : json;
        enum alibi_seen part;

        TRY(seen_files(&part, c, split, run));
        found = part > found ? part : found;
    }
    *seen = found;
out:
    json_decref(json);
    return status;
}
