/* exchange.c - import and export: the path of a model, and the messages about it */
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "exchange/exchange.h"

/* ---- sources that watch and that scale another */

/* Reports how much was read of another source, and ends when the call is stopped. */
struct watched {
    struct tensor_source base;
    struct tensor_source *from;
    const struct alibi_call *call;
    const char *task;
    double start;
    int64_t done, total; /* numbers */
};

static alibi_status read_watched(struct tensor_source *s, int tensor, int64_t row, int64_t rows,
                                 float *values)
{
    struct watched *w = (struct watched *)s;
    double seconds = clock_seconds() - w->start;
    struct alibi_progress p = { .task = w->task, .unit = "weights", .loss = NAN };

    if (call_stopped(w->call))
        return fail(ALIBI_INTERRUPTED, "stopped at tensor '%s'; nothing was written",
                    s->tensors[tensor].name);
    TRY_RETURN(w->from->read(w->from, tensor, row, rows, values));
    w->done += rows * tensor_source_columns(&s->tensors[tensor]);
    p.done = w->done;
    p.total = w->total;
    p.seconds = seconds;
    p.seconds_left = seconds_left(seconds, w->done, w->total);
    call_progress(w->call, &p);
    return ALIBI_OK;
}

static struct watched watch_tensors(struct tensor_source *from, const char *task, int64_t total,
                                    const struct alibi_call *call)
{
    return (struct watched){ .base = { .tensors = from->tensors,
                                       .count = from->count,
                                       .types = from->types,
                                       .read = read_watched },
                             .from = from,
                             .call = call,
                             .task = task,
                             .start = clock_seconds(),
                             .total = total };
}

/* Other programs do not multiply embeddings. The embedding takes the factor; where the output layer
 * shares it, the norm before that layer is divided by it, and the logits stay. */
struct scaled {
    struct tensor_source base;
    struct tensor_source *from;
    double scale;
    bool tied;
};

static alibi_status read_scaled(struct tensor_source *s, int tensor, int64_t row, int64_t rows,
                                float *values)
{
    struct scaled *f = (struct scaled *)s;
    const struct safetensor *t = &s->tensors[tensor];
    bool embedding = strcmp(t->name, "embedding.weight") == 0;
    bool norm = strcmp(t->name, "norm.weight") == 0 || strcmp(t->name, "norm.bias") == 0;
    double factor = embedding ? f->scale : norm && f->tied ? 1.0 / f->scale : 1.0;

    TRY_RETURN(f->from->read(f->from, tensor, row, rows, values));
    for (int64_t i = 0; factor != 1.0 && i < rows * tensor_source_columns(t); i++)
        values[i] = (float)((double)values[i] * factor);
    return ALIBI_OK;
}

/* ---- import */

/* Import and export compute nothing: the device only says how a model is laid out. */
static const struct alibi_compute cpu = { .device = ALIBI_DEVICE_CPU };

/* A file as a source is a GGUF file. Others may be a file of a model whose folder is the source. */
static alibi_status open_file_source(struct foreign *f, const char *source)
{
    alibi_status status = llamacpp_open(f, source);
    struct failure failure;
    char *folder = NULL;
    bool model = false;

    if (status != ALIBI_BAD_INPUT || ends_with(source, ".gguf"))
        return status;
    failure_keep(&failure, status);
    TRY(path_folder(&folder, source));
    TRY(folder_has(&model, folder, NAME_CONFIG));
    status = failure_raise(&failure);
    if (model)
        status = fail(status,
                      "cannot import '%s': a model of Hugging Face is imported from the folder of "
                      "its " NAME_CONFIG "; give '%s'",
                      source, folder);
    else
        status = fail(status,
                      "%s; import reads such files and folders with a " NAME_CONFIG
                      ", safetensors and a tokenizer.json",
                      alibi_error());
out:
    mem_free(folder);
    return status;
}

static alibi_status open_source(struct foreign *f, const char *source)
{
    enum path_kind kind;
    bool checkpoint = false, run = false;

    TRY_RETURN(path_look(&kind, source));
    if (kind == PATH_FOLDER) {
        TRY_RETURN(folder_has(&checkpoint, source, NAME_MANIFEST));
        TRY_RETURN(folder_has(&run, source, NAME_LOG));
    }
    if (checkpoint || run)
        return fail(ALIBI_BAD_INPUT,
                    "cannot import '%s': it is a model of this program, which every command opens "
                    "directly",
                    source);
    if (kind == PATH_NONE)
        return fail(ALIBI_BAD_INPUT,
                    "cannot import '%s': there is no such folder or file; import reads a local "
                    "folder or GGUF file, so download the model first: hf download NAME "
                    "--local-dir DIR",
                    source);
    return kind == PATH_FILE ? open_file_source(f, source) : huggingface_open(f, source);
}

/* Without a tokenizer that can be read, text is token ids. */
static alibi_status choose_tokenizer(struct foreign *f, const char *source,
                                     const struct alibi_call *call)
{
    if (f->tokenizer)
        return ALIBI_OK;
    call_warn(call,
              "the tokenizer of '%s' is not imported, so text for this model must be token ids: %s",
              source, f->reason);
    return tokenizer_new_ids(&f->tokenizer, f->config.vocab);
}

alibi_status alibi_import(const char *source, const char *dir, struct alibi_exchanged *result,
                          const struct alibi_call *call)
{
    alibi_status status;
    struct foreign f = { 0 };
    struct tensor_source *ours = NULL;
    struct model *outline = NULL;
    alibi_device *device = NULL;
    struct alibi_exchanged r = { .embedding_scale = 1.0 };
    struct watched watched;
    char task[ALIBI_NAME_MAX];

    TRY(open_source(&f, source));
    r.tokenizer = f.tokenizer != NULL;
    snprintf(r.family, sizeof r.family, "%s", f.family->name);
    snprintf(task, sizeof task, "import %.40s", r.family);
    TRY(alibi_device_open(&device, &cpu, NULL));
    TRY(model_outline(&outline, &f.config, &device->device, device->type));
    r.parameters = outline->elements;
    status = tensors_as_ours(&ours, f.tensors, f.family, outline);
    if (status != ALIBI_OK)
        TRY(fail_context(status, "cannot import '%s'", source));
    TRY(choose_tokenizer(&f, source, call));
    watched = watch_tensors(ours, task, r.parameters, call);
    TRY(checkpoint_write_weights(dir, outline, f.tokenizer, &watched.base, call));
    *result = r;
out:
    tensor_source_free(ours);
    model_free(outline);
    alibi_device_free(device);
    foreign_fini(&f);
    return status;
}

/* ---- export: which family computes what the model does */

static const char *const position_options[] = {
    "position",      "bias-max",   "train-slopes",    "max-length",     "rotary-base",
    "rotary-layout", "t5-buckets", "t5-max-distance", "embedding-scale"
};

static bool is_of_position(const char *name)
{
    for (int i = 0; i < COUNT(position_options); i++)
        if (strcmp(name, position_options[i]) == 0)
            return true;
    return false;
}

/* How near the positions of two models are. */
enum nearness { SAME_POSITION, SAME_METHOD, OTHER_METHOD };

static alibi_status compare_methods(enum nearness *out, const struct alibi_config *a,
                                    const struct alibi_config *b)
{
    struct pattern p, q;

    TRY_RETURN(pattern_read(&p, a));
    TRY_RETURN(pattern_read(&q, b));
    *out = SAME_METHOD;
    for (int i = 0; i < p.kinds; i++)
        for (int j = 0; j < q.kinds; j++)
            if (p.kind[i].method != q.kind[j].method)
                *out = OTHER_METHOD;
    return ALIBI_OK;
}

/* The position of every layer with all its options, as it is written where the model's own options
 * have their defaults. Equal positions have equal names. */
static alibi_status position_name(char out[ALIBI_NAME_MAX], const struct alibi_config *c)
{
    struct alibi_config standard = { 0 };
    struct alibi_option_group group = { .values = &standard };
    struct pattern p;

    group.options = alibi_config_options(&group.count);
    TRY_RETURN(alibi_options_init(&group, 1));
    TRY_RETURN(pattern_read(&p, c));
    return pattern_name(out, &p, &standard);
}

/* How a model of a family differs from one that is to be exported. */
struct differences {
    struct text list; /* "option A where the model has B", several with commas */
    int count;
    enum nearness position; /* of the layers; unless the same it is among the differences */
};

static struct text *next_difference(struct differences *d)
{
    text_append(&d->list, "%s", d->count++ ? ", " : "");
    return &d->list;
}

/* The configuration of the model that the family would have for `ours`. */
static alibi_status read_back(const struct family *f, const struct alibi_config *ours,
                              struct alibi_config *theirs)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);
    json_t *config = NULL;

    json_write_object(&w, NULL);
    family_write_config(f, ours, &w);
    json_write_end(&w);
    TRY(text_status(&json));
    TRY(json_parse(&config, json.data, json.length, f->name));
    TRY(family_read_config(f, theirs, config, f->name));
out:
    json_decref(config);
    text_free(&json);
    return status;
}

/* A family that has no words for the model is further away than any that has. */
static alibi_status find_differences(struct differences *d, const struct family *f,
                                     const struct alibi_config *ours)
{
    struct alibi_config theirs;
    const char *lacks = f->lacks ? f->lacks(ours) : NULL;
    int options;
    const struct alibi_option *o = alibi_config_options(&options);
    alibi_status status = read_back(f, ours, &theirs);
    char here[ALIBI_NAME_MAX], there[ALIBI_NAME_MAX];

    if (status == ALIBI_BAD_INPUT) {
        text_append(next_difference(d), "no such configuration: %s", alibi_error());
        d->count = options;
        d->position = OTHER_METHOD;
        return text_status(&d->list);
    }
    TRY_RETURN(status);
    for (int i = 0; i < options; i++)
        if (!is_of_position(o[i].name) && !option_equal(&o[i], ours, &theirs)) {
            text_append(next_difference(d), "%s ", o[i].name);
            TRY_RETURN(option_format_plain(&d->list, &o[i], &theirs));
            text_append(&d->list, " where the model has ");
            TRY_RETURN(option_format_plain(&d->list, &o[i], ours));
        }
    TRY_RETURN(position_name(here, ours));
    TRY_RETURN(position_name(there, &theirs));
    if (strcmp(here, there) != 0) {
        TRY_RETURN(compare_methods(&d->position, ours, &theirs));
        text_append(next_difference(d), "position %s where the model has %s", there, here);
    }
    if (lacks)
        text_append(next_difference(d), "%s", lacks);
    if (ours->embedding_scale != 1 && ours->tied && !ours->final_norm)
        text_append(next_difference(d),
                    "no embedding-scale, and there is no last norm to correct for it");
    return text_status(&d->list);
}

/* Options of the position that are options of the model too, such as alibi's bias-max, become those
 * of the model, which families know. A learned position has the length of its table. */
static alibi_status plain_position(struct alibi_config *c)
{
    alibi_status status = ALIBI_OK;
    struct alibi_option_group group = { .values = c };
    struct pattern p;
    const struct position_method *method;
    struct text value = { 0 };

    TRY_RETURN(pattern_read(&p, c));
    method = p.kind[0].method;
    if (p.kinds != 1)
        return ALIBI_OK;
    group.options = alibi_config_options(&group.count);
    for (int i = 0; i < method->option_count; i++) {
        const struct alibi_option *own = &method->options[i], *o;
        char name[ALIBI_NAME_MAX];
        snprintf(name, sizeof name, "%s-%s", method->name, own->name);
        o = alibi_options_find(&group, 1, own->name, NULL);
        o = o ? o : alibi_options_find(&group, 1, name, NULL);
        value.length = 0;
        TRY(option_format_plain(&value, own, p.kind[0].own));
        TRY(text_status(&value));
        if (o)
            TRY(option_set(o, c, value.data));
    }
    TRY(pattern_name(c->position, &p, c));
    if (method == &position_learned)
        c->train_length = c->max_length;
    if (method != &position_alibi)
        c->bias_max = 0;
out:
    text_free(&value);
    return status;
}

/* The properties of another program. */
static const struct program {
    const char *name, *option; /* its name, and as --format */
    const char *positions;     /* of its families, each with some options */
    family_at_fn *family_at;
    alibi_status (*write)(const struct outgoing *o, const char *path);
} programs[] = {
    [ALIBI_HUGGING_FACE] = { "Hugging Face", "hf", "alibi, learned and rotary", family_at,
                             huggingface_write },
    [ALIBI_GGUF] = { "llama.cpp", "gguf", "alibi, learned, none and rotary", llamacpp_family_at,
                     llamacpp_write },
};

/* Another program that has a family for the model; NULL: none. */
static alibi_status find_other(const struct program **out, const struct program *than,
                               const struct alibi_config *config)
{
    alibi_status status = ALIBI_OK;
    struct differences d = { 0 };
    const struct family *f;

    for (const struct program *p = programs; p < programs + COUNT(programs); p++)
        for (int i = 0; p != than && !*out && (f = p->family_at(i)); i++) {
            TRY(find_differences(&d, f, config));
            if (d.count == 0)
                *out = p;
            text_free(&d.list);
            d = (struct differences){ 0 };
        }
out:
    text_free(&d.list);
    return status;
}

static bool is_closer(const struct differences *a, const struct differences *b)
{
    return a->position != b->position ? a->position < b->position : a->count < b->count;
}

/* `closest` are the differences of `near`; a family with another position method helps nobody. */
static alibi_status fail_without_family(const struct program *program,
                                        const struct alibi_config *config,
                                        const struct family *near,
                                        const struct differences *closest)
{
    const struct program *other = NULL;
    struct text why = { 0 };
    alibi_status status;
    char name[ALIBI_NAME_MAX];

    TRY(position_name(name, config));
    TRY(find_other(&other, program, config));
    if (closest->position == SAME_POSITION)
        text_append(&why, "computes what this model does");
    else
        text_append(&why, "has position %s", name);
    if (closest->position == OTHER_METHOD)
        text_append(&why, "; their methods are %s, one for all layers", program->positions);
    else
        text_append(&why, "; the closest, '%s', has %s", near->name, closest->list.data);
    TRY(text_status(&why));
    status = fail(ALIBI_BAD_INPUT, "no family of %s %s; %s%s", program->name, why.data,
                  other ? "a file can be had with --format "
                        : "docs/exchange.md has the options to train with for each family",
                  other ? other->option : "");
out:
    text_free(&why);
    return status;
}

/* The family without a difference, or a message with the closest one. */
static alibi_status choose_family(const struct family **out, const struct program *program,
                                  const struct alibi_config *config)
{
    alibi_status status = ALIBI_OK;
    struct differences closest = { 0 }, here = { 0 };
    const struct family *near = NULL, *f;

    for (int i = 0; (f = program->family_at(i)) && !*out; i++) {
        TRY(find_differences(&here, f, config));
        if (here.count == 0)
            *out = f;
        if (!near || is_closer(&here, &closest)) {
            struct text old = closest.list;
            closest = here;
            here.list = old;
            near = f;
        }
        text_free(&here.list);
        here = (struct differences){ 0 };
    }
    if (!*out)
        status = fail_without_family(program, config, near, &closest);
out:
    text_free(&closest.list);
    text_free(&here.list);
    return status;
}

/* ---- export */

static const char *type_of(int precision)
{
    return precision == ALIBI_FP32   ? "F32"
           : precision == ALIBI_BF16 ? "BF16"
           : precision == ALIBI_FP16 ? "F16"
           : precision == ALIBI_Q8_0 ? "Q8_0"
                                     : NULL;
}

static alibi_status check_export(const char *model, const struct alibi_export *how)
{
    if (how->format < 0 || how->format >= COUNT(programs))
        return fail(ALIBI_USAGE, "cannot export '%s': format %d is not known", model, how->format);
    if (how->weights < ALIBI_PRECISION_AUTO || how->weights > ALIBI_Q8_0)
        return fail(ALIBI_USAGE,
                    "cannot export '%s': weights %d is not a type of numbers; use ALIBI_FP32, "
                    "_BF16, _FP16, _Q8_0 or _PRECISION_AUTO",
                    model, how->weights);
    if (how->shard_bytes < 0)
        return fail(ALIBI_USAGE,
                    "cannot export '%s': shard_bytes %lld is negative; use 0 for the default, 5e9",
                    model, (long long)how->shard_bytes);
    if (how->weights == ALIBI_Q8_0 && how->format != ALIBI_GGUF)
        return fail(ALIBI_USAGE, "cannot export '%s' for %s as q8_0, which only GGUF files have",
                    model, programs[how->format].name);
    return ALIBI_OK;
}

/* Of a type that is not written. */
static void warn_of_tokenizer(const char *model, const alibi_tokenizer *t,
                              const struct program *program, const struct alibi_call *call)
{
    bool ids = strcmp(alibi_tokenizer_type(t), "ids") == 0;

    call_warn(call, "%s gets no tokenizer: that of '%s' is of type '%s', %s", program->name, model,
              alibi_tokenizer_type(t),
              ids ? "which means that its text is token ids; add the tokenizer that the model was "
                    "made with, or give token ids there"
                  : "which is known here only; give token ids there");
}

alibi_status alibi_export(const char *model, const struct alibi_export *how, const char *out,
                          struct alibi_exchanged *result, const struct alibi_call *call)
{
    alibi_status status;
    struct outgoing o = { .type = type_of(how->weights),
                          .shard_bytes = how->shard_bytes,
                          .call = call };
    const struct program *program;
    struct alibi_exchanged r = { 0 };
    struct alibi_config config;
    struct tensor_source *ours = NULL, *theirs = NULL;
    struct watched watched;
    struct scaled scaled;
    struct model *outline = NULL;
    alibi_tokenizer *tokenizer = NULL;
    alibi_device *device = NULL;
    char *path = NULL, *weights = NULL, task[ALIBI_NAME_MAX], trained[ALIBI_NAME_MAX];
    bool fitted;

    TRY_RETURN(check_export(model, how));
    program = &programs[how->format];
    TRY(checkpoint_find_model(&path, model, call));
    TRY(checkpoint_read_config(path, &config, &tokenizer));
    TRY(alibi_device_open(&device, &cpu, NULL));
    memcpy(trained, config.position, sizeof trained);
    TRY(checkpoint_choose_position(&config, path, how->position, model, device, call));
    fitted = !how->position && strcmp(trained, config.position) != 0;
    TRY(plain_position(&config));
    status = choose_family(&o.family, program, &config);
    if (status != ALIBI_OK)
        TRY(fail_context(status, "cannot export '%s'%s", model,
                         fitted ? " with its fitted temperature (--as-position trained exports it "
                                  "without)"
                                : ""));
    TRY(model_outline(&outline, &config, &device->device, device->type));
    TRY(path_join(&weights, path, NAME_WEIGHTS));
    TRY(safetensors_source_file(&ours, weights));
    scaled = (struct scaled){
        .base = *ours, .from = ours, .scale = config.embedding_scale, .tied = config.tied
    };
    scaled.base.read = read_scaled;
    TRY(tensors_as_theirs(&theirs, &scaled.base, o.family, outline));
    r.parameters = outline->elements;
    r.embedding_scale = config.embedding_scale;
    r.tokenizer = strcmp(alibi_tokenizer_type(tokenizer), "bpe") == 0 ||
                  strcmp(alibi_tokenizer_type(tokenizer), "bytes") == 0;
    snprintf(r.family, sizeof r.family, "%s", o.family->name);
    snprintf(task, sizeof task, "export %.40s", r.family);
    watched = watch_tensors(theirs, task, r.parameters, call);
    o.config = &config;
    o.tensors = &watched.base;
    o.tokenizer = r.tokenizer ? tokenizer : NULL;
    o.own_tokenizer = tokenizer;
    TRY(program->write(&o, out));
    if (!r.tokenizer)
        warn_of_tokenizer(model, tokenizer, program, call);
    *result = r;
out:
    tensor_source_free(theirs);
    tensor_source_free(ours);
    model_free(outline);
    alibi_device_free(device);
    alibi_tokenizer_free(tokenizer);
    mem_free(weights);
    mem_free(path);
    return status;
}
