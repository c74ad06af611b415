/* test_checkpoint.c - no damage goes unseen, and the checkpoint before it is there */
#include "training.h"

#include "choosing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

/* A run of four steps with checkpoints at 2 and 4, which have every part that there is. */
static int set_up(void **state)
{
    struct site *p = new_site(4, 2);

    p->device = choosing_device(1);
    assert_ok(train_at(p, p->run, false));
    *state = p;
    return 0;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static const char *part_path(const struct site *p, int part)
{
    return path_at("%s/%s", p->newest, part < PARTS ? part_names[part] : "manifest.json");
}

/* ---- damage */

static void flip(const char *path, long byte, int bit)
{
    int fd = open(path, O_RDWR);
    unsigned char c;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, byte), 1);
    c = (unsigned char)(c ^ 1u << bit);
    assert_int_equal(pwrite(fd, &c, 1, byte), 1);
    close(fd);
}

#ifdef __SANITIZE_ADDRESS__
enum {
    TENSOR_BITS = 1
}; /* of each byte of the tensors: the rest are left to the build that is not slowed down */
#else
enum { TENSOR_BITS = 8 };
#endif

static void every_flipped_bit_is_found_and_named(void **state)
{
    struct site *p = *state;
    long tried = 0;

    for (int part = 0; part <= PARTS; part++) {
        char *path = strdup(part_path(p, part));
        const char *name = strrchr(path, '/') + 1;
        int bits = part == PART_MODEL || part == PART_OPTIMIZER ? TENSOR_BITS : 8;
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        for (long byte = 0; byte < info.st_size; byte++)
            for (int bit = 0; bit < bits; bit++) {
                flip(path, byte, (int)(byte + bit) % 8);
                assert_fails(checkpoint_verify(p->newest), ALIBI_BAD_INPUT, name);
                flip(path, byte, (int)(byte + bit) % 8);
                tried++;
            }
        free(path);
    }
    assert_ok(checkpoint_verify(p->newest));
    print_message("%ld flips, all found\n", tried);
}

static void every_truncation_is_found_and_named(void **state)
{
    struct site *p = *state;
    long tried = 0;

    for (int part = 0; part <= PARTS; part++) {
        char *path = strdup(part_path(p, part));
        size_t bytes;
        char *content = read_file(path, &bytes);
        for (size_t left = bytes; left-- > 0;) {
            assert_int_equal(truncate(path, (off_t)left), 0);
            assert_fails(checkpoint_verify(p->newest), ALIBI_BAD_INPUT, strrchr(path, '/') + 1);
            tried++;
        }
        write_file(path, content, bytes);
        free(content);
        free(path);
    }
    assert_ok(checkpoint_verify(p->newest));
    print_message("%ld truncations, all found\n", tried);
}

static void added_bytes_are_found_and_named(void **state)
{
    struct site *p = *state;

    for (int part = 0; part <= PARTS; part++) {
        char *path = strdup(part_path(p, part));
        size_t bytes;
        char *content = read_file(path, &bytes);
        content[bytes] = ' ';
        write_file(path, content, bytes + 1);
        assert_fails(checkpoint_verify(p->newest), ALIBI_BAD_INPUT, strrchr(path, '/') + 1);
        write_file(path, content, bytes);
        free(content);
        free(path);
    }
    assert_ok(checkpoint_verify(p->newest));
}

static void damage(const char *path, int how)
{
    struct stat info;

    assert_int_equal(stat(path, &info), 0);
    if (how == 0)
        flip(path, info.st_size / 2, 3);
    else if (how == 1)
        assert_int_equal(truncate(path, info.st_size / 2), 0);
    else
        assert_int_equal(unlink(path), 0);
}

static void truncated_checkpoint_is_named_and_the_previous_one_resumes(void **state)
{
    struct site *p = *state;

    assert_ok(train_at(p, p->whole, false));
    for (int part = 0; part < PARTS; part++)
        for (int how = 0; how < 3; how++) {
            damage(part_path(p, part), how);
            listen_to(&p->listener, 0);
            assert_ok(train_at(p, p->run, true));
            assert_int_equal(p->listener.steps, 2);
            assert_non_null(strstr(p->listener.log, "warning: skipping the checkpoint of step 4"));
            assert_non_null(strstr(p->listener.log, part_names[part]));
            assert_non_null(strstr(p->listener.log, "resuming from '"));
            assert_same_run(p->whole, p->run, 4);
        }
}

static void training_into_a_checkpoint_is_refused_and_leaves_nothing_in_it(void **state)
{
    struct site *p = *state;

    assert_fails(train_at(p, p->newest, true), ALIBI_BAD_INPUT, "is a checkpoint");
    assert_false(exists(path_at("%s/lock", p->newest)));
}

static void without_any_that_verifies_the_run_is_refused(void **state)
{
    struct site *p = *state;
    alibi_model *m = NULL;

    damage(part_path(p, PART_MODEL), 0);
    damage(path_at("%s/%s", step_path(p->run, 2), part_names[PART_STATE]), 0);
    assert_fails(train_at(p, p->run, true), ALIBI_BAD_INPUT, "none of the 2 checkpoints");
    assert_fails(alibi_model_open(&m, test_device(), p->run, NULL), ALIBI_BAD_INPUT,
                 "none of the 2 checkpoints");
    assert_fails(alibi_model_open(&m, test_device(), p->newest, NULL), ALIBI_BAD_INPUT,
                 "model.safetensors' is damaged");
    assert_true(
        exists(p->newest)); /* a damaged checkpoint is not removed: people may want to look at it */
}

/* ---- contents are checked even if the checksums are right */

static void forge(struct site *p, int part, const char *from, const char *to)
{
    struct manifest m;
    struct text json = { 0 };
    size_t bytes;
    char *content = read_file(part_path(p, part), &bytes);
    char *at = strstr(content, from), *forged = malloc(bytes + strlen(to) + 1);

    assert_true(at && forged);
    snprintf(forged, bytes + strlen(to) + 1, "%.*s%s%s", (int)(at - content), content, to,
             at + strlen(from));
    write_file(part_path(p, part), forged, strlen(forged));
    assert_ok(manifest_read(&m, p->newest));
    m.parts[part] =
        (struct part){ true, (int64_t)strlen(forged), checksum(0, forged, strlen(forged)) };
    manifest_format(&m, &json);
    assert_ok(text_status(&json));
    write_file(part_path(p, PARTS), json.data, json.length);
    assert_ok(checkpoint_verify(p->newest));
    text_free(&json);
    free(forged);
    free(content);
}

static void a_configuration_that_is_not_the_models_is_refused(void **state)
{
    struct site *p = *state;
    alibi_model *m = NULL;

    forge(p, PART_CONFIG, "\"ff_width\": 8", "\"ff_width\": 7");
    assert_fails(alibi_model_open(&m, test_device(), p->newest, NULL), ALIBI_BAD_INPUT,
                 "tensor 'blocks.0.ff.up.weight'");
    forge(p, PART_CONFIG, "\"ff_width\": 7", "\"ff_width\": 8");
    forge(p, PART_CONFIG, "\"final_norm\": true", "\"final_norm\": false");
    assert_fails(alibi_model_open(&m, test_device(), p->newest, NULL), ALIBI_BAD_INPUT,
                 "tensors; the configuration has");
}

static void no_configuration_can_ask_for_memory_that_its_file_does_not_back(void **state)
{
    struct site *p = *state;
    alibi_model *m = NULL;

    forge(p, PART_CONFIG, "\"width\": 4", "\"width\": 1048576");
    forge(p, PART_CONFIG, "\"layers\": 1", "\"layers\": 4096");
    alibi_memory_reset_peak();
    assert_fails(alibi_model_open(&m, test_device(), p->newest, NULL), ALIBI_BAD_INPUT,
                 "parameters, model.safetensors has only");
    assert_true(alibi_memory_peak() - alibi_memory_now() < 1 << 20);
}

static void a_tokenizer_or_state_that_makes_no_sense_is_named(void **state)
{
    struct site *p = *state;
    struct train_state s;
    struct alibi_training t;
    alibi_model *m = NULL;

    forge(p, PART_TOKENIZER, "257", "300");
    assert_fails(alibi_model_open(&m, test_device(), p->newest, NULL), ALIBI_BAD_INPUT,
                 "tokenizer.json");
    forge(p, PART_STATE, "\"step\": 4", "\"step\": -4");
    assert_fails(checkpoint_read_state(p->newest, &s, &t), ALIBI_BAD_INPUT,
                 "state.json' line 2: 'step': -4 is out of range");
}

static void a_tokenizer_may_be_as_long_here_as_anywhere(void **state)
{
    enum { LONGER = 65 << 20 };
    struct site *p = *state;
    struct alibi_config config;
    alibi_tokenizer *t = NULL;
    char *bytes = NULL, *longer = malloc(LONGER);
    size_t length;

    assert_non_null(longer);
    assert_ok(file_read_all(&bytes, &length, path_at("%s/tokenizer.json", p->newest), 1 << 20));
    memset(longer, ' ', LONGER);
    memcpy(longer, bytes, length);
    assert_ok(file_replace(path_at("%s/tokenizer.json", p->newest), longer, LONGER));
    assert_ok(checkpoint_read_config(p->newest, &config, &t));
    alibi_tokenizer_free(t);
    mem_free(bytes);
    free(longer);
}

static void algorithms_that_make_no_sense_are_named(void **state)
{
    static const char *const forged[][3] = {
        { "\"by\": \"", "\"of\": \"", "'by'" },
        { "\"of\": \"", "\"by\": \"", NULL },
        { "\"products\": [", "\"products\": [ 5,", "'product'" },
        { "[ 5,", "[ {\"product\": \"00\"},", "'product' must have 80 hexadecimal digits" },
        { "[ {\"product\": \"00\"},", "[", NULL },
        { "\"algorithm\": \"0", "\"algorithm\": \"x", "'algorithm' must have 128" },
        { "\"products\"", "\"product\"", "'products' must be a list" },
    };
    struct site *p = *state;
    struct choices c;

    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        forge(p, PART_PRODUCTS, forged[i][0], forged[i][1]);
        if (forged[i][2]) {
            assert_fails(checkpoint_read_choices(p->newest, &c), ALIBI_BAD_INPUT, forged[i][2]);
            continue;
        }
        assert_ok(checkpoint_read_choices(p->newest, &c));
        assert_true(c.count > 0);
        mem_free(c.list);
    }
}

/* ---- saving */

static int count_steps(const char *run)
{
    DIR *d = opendir(run);
    int count = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        count += strncmp(e->d_name, "step-", 5) == 0;
    closedir(d);
    return count;
}

static void two_checkpoints_are_kept(void **state)
{
    struct site *p = *state;
    const char *run = path_at("%s/many", p->folder);

    p->training = tiny_training(9, 1);
    assert_ok(train_at(p, run, false));
    assert_int_equal(count_steps(run), 2);
    assert_true(exists(step_path(run, 9)) && exists(step_path(run, 8)));
    assert_non_null(strstr(p->listener.log, "saved step 9 in '"));
}

/* Steps 2 and 4; 4 is damaged, the run resumes from 2 and saves 5 next. The one kept
 * next to 5 must be whole. */
static void the_checkpoint_kept_next_to_the_new_one_verifies(void **state)
{
    struct site *p = *state;

    for (int part = 0; part <= PARTS; part++) {
        const char *run = path_at("%s/run-%d", p->folder, part);
        p->training = tiny_training(8, 2);
        listen_to(&p->listener, 4);
        assert_fails(train_at(p, run, false), ALIBI_INTERRUPTED, "step 4");
        damage(
            path_at("%s/%s", step_path(run, 4), part < PARTS ? part_names[part] : "manifest.json"),
            0);
        p->training.save_every = 5;
        listen_to(&p->listener, 5);
        assert_fails(train_at(p, run, true), ALIBI_INTERRUPTED, "step 5");
        assert_int_equal(count_steps(run), 2);
        assert_ok(checkpoint_verify(step_path(run, 5)));
        assert_ok(checkpoint_verify(step_path(run, 2)));
    }
}

/* Saves the newest checkpoint once more. */
struct saved {
    struct device device;
    struct model *model;
    struct optimizer optimizer;
    alibi_tokenizer *tokenizer;
    struct train_state state;
    struct alibi_training training;
};

static void load(struct saved *s, const char *path)
{
    struct alibi_config config;

    s->device = test_device()->device;
    assert_ok(checkpoint_read_config(path, &config, &s->tokenizer));
    assert_ok(checkpoint_read_state(path, &s->state, &s->training));
    assert_ok(model_new(&s->model, &config, &s->device, DTYPE_F32, true));
    assert_ok(optimizer_init(&s->optimizer, s->model, ALIBI_ADAMW, NULL));
    assert_ok(checkpoint_read_weights(path, s->model));
    assert_ok(checkpoint_read_moments(path, s->model, s->optimizer.first, s->optimizer.second));
}

static void unload(struct saved *s)
{
    optimizer_fini(&s->optimizer);
    model_free(s->model);
    alibi_tokenizer_free(s->tokenizer);
}

/* The first fault meets the reading of the checkpoint that is there, the second the writing of its
 * successor. */
static void a_checkpoint_that_cannot_be_read_for_a_moment_is_not_removed(void **state)
{
    enum { READS = 25, STEP = 4 };
    struct site *p = *state;
    struct saved s = { 0 };
    char *aside = strdup(path_at("%s.old", p->newest));
    int failed = 0;

    load(&s, p->newest);
    for (int file = 1; file <= READS; file++)
        for (int memory = 1;; memory += STEP) {
            alibi_status status;
            char *found = NULL;
            assert_ok(alibi_inject_fault("file", file));
            assert_ok(alibi_inject_fault("memory", memory));
            status = checkpoint_save(p->run,
                                     &(struct checkpoint){ .model = s.model,
                                                           .tokenizer = s.tokenizer,
                                                           .first = s.optimizer.first,
                                                           .second = s.optimizer.second,
                                                           .training = &s.training,
                                                           .state = s.state },
                                     NULL);
            assert_ok(alibi_inject_fault("file", 0));
            assert_ok(alibi_inject_fault("memory", 0));
            assert_ok(checkpoint_find(&found, p->run, test_call()));
            assert_non_null(strstr(found, "step-00000004"));
            if (strcmp(found, aside) == 0) {
                assert_ok(step_folder_remove(p->newest));
                assert_int_equal(rename(aside, p->newest), 0);
            }
            assert_ok(step_folder_remove(aside));
            mem_free(found);
            failed += status != ALIBI_OK;
            if (status != ALIBI_MEMORY)
                break;
        }
    print_message("%d failures\n", failed);
    assert_true(failed > READS);
    unload(&s);
    free(aside);
}

static void leftovers_are_cleaned_at_the_next_start(void **state)
{
    struct site *p = *state;

    assert_int_equal(mkdir(step_path(p->run, 3), 0777), 0);
    write_file(path_at("%s/model.safetensors", step_path(p->run, 3)), "half", 4);
    write_file(path_at("%s/manifest.json.tmp", step_path(p->run, 3)), "half", 4);
    write_file(path_at("%s/recipe.json.tmp", p->run), "half", 4);
    write_file(path_at("%s/notes.tmp", p->run), "mine", 4);
    assert_ok(train_at(p, p->run, true));
    assert_false(exists(step_path(p->run, 3)));
    assert_false(exists(path_at("%s/recipe.json.tmp", p->run)));
    assert_true(exists(path_at("%s/notes.tmp", p->run)));
    assert_true(exists(p->newest));
}

/* The run resumes from step 2 although step 4 verifies: as after an I/O error that was gone when
 * step 4 was read again. */
static void hide(struct site *p, bool hidden)
{
    const char *shown = part_path(p, PART_MODEL), *away = path_at("%s/hidden", p->folder);

    assert_int_equal(hidden ? rename(shown, away) : rename(away, shown), 0);
}

static struct site *revealing;

static void reveal(void *user, const struct alibi_progress *progress)
{
    (void)user;
    if (progress->done == 3)
        hide(revealing, false);
}

static void a_checkpoint_that_verifies_is_replaced_without_being_lost(void **state)
{
    struct site *p = *state;

    assert_ok(train_at(p, p->whole, false));
    hide(p, true);
    revealing = p;
    p->call = &(struct alibi_call){ .progress = reveal };
    assert_ok(train_at(p, p->run, true));
    assert_same_run(p->whole, p->run, 4);
    assert_int_equal(count_steps(p->run), 2);
}

static void a_checkpoint_that_was_set_aside_is_found(void **state)
{
    struct site *p = *state;
    const char *aside = path_at("%s.old", p->newest);
    char *found = NULL;

    assert_int_equal(rename(p->newest, aside), 0);
    assert_int_equal(mkdir(p->newest, 0777), 0); /* its successor is not whole yet */
    assert_ok(checkpoint_find(&found, p->run, test_call()));
    assert_string_equal(found, aside);
    mem_free(found);
    listen_to(&p->listener, 0);
    assert_ok(train_at(p, p->run, true));
    assert_int_equal(p->listener.steps, 0);
}

static void weights_that_are_not_finite_are_not_saved(void **state)
{
    struct site *p = *state;
    struct device device = { .ops = ops_cpu() };
    struct model *m = NULL;
    struct optimizer o;
    alibi_tokenizer *t = NULL;
    struct alibi_config config;

    assert_ok(checkpoint_read_config(p->newest, &config, &t));
    assert_ok(model_new(&m, &config, &device, DTYPE_F32, true));
    assert_ok(optimizer_init(&o, m, ALIBI_ADAMW, NULL));
    for (int i = 0; i < m->count; i++)
        for (int b = 0; b < 3; b++) {
            void *const buffers[] = { m->values, o.first, o.second };
            struct tensor at = parameter_slice(m, &m->parameters[i], buffers[b]);
            const struct checkpoint c = { .model = m,
                                          .tokenizer = t,
                                          .first = o.first,
                                          .second = o.second,
                                          .training = &p->training,
                                          .state = { .step = 5 } };
            at.shape[0] = 1;
            assert_ok(checkpoint_read_weights(p->newest, m));
            assert_ok(checkpoint_read_moments(p->newest, m, o.first, o.second));
            assert_ok(device.ops->fill(&device, at, b == 1 ? (double)INFINITY : (double)NAN));
            assert_fails(checkpoint_save(p->run, &c, NULL), ALIBI_NUMERIC, m->parameters[i].name);
            assert_false(exists(step_path(p->run, 5)));
        }
    assert_ok(checkpoint_verify(p->newest));
    optimizer_fini(&o);
    model_free(m);
    alibi_tokenizer_free(t);
}

/* The checksum of the files alone came later; a state without it reads, and knows none. */
static void a_state_without_the_checksum_of_the_files_reads(void **state)
{
    struct site *p = *state;
    size_t bytes;
    char *json = read_file(path_at("%s/state.json", p->newest), &bytes),
         *line = strstr(json, "  \"files_checksum\"");
    struct train_state s;
    struct alibi_training t;

    assert_non_null(line);
    memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n')));
    assert_ok(file_replace(path_at("%s/state.json", p->run), json, strlen(json)));
    assert_ok(checkpoint_read_state(p->run, &s, &t));
    assert_int_equal(s.step, 4);
    assert_int_equal(s.corpus_checksum, corpus_checksum(p->corpus));
    assert_int_equal(s.files_checksum, 0);
    free(json);
}

static void what_was_saved_is_what_is_read(void **state)
{
    struct site *p = *state;
    struct train_state s;
    struct alibi_training t;
    alibi_model *m = NULL;

    assert_ok(checkpoint_read_state(p->newest, &s, &t));
    assert_int_equal(s.step, 4);
    assert_int_equal(s.corpus_checksum, corpus_checksum(p->corpus));
    assert_int_equal(s.files_checksum, corpus_files_checksum(p->corpus));
    assert_close(s.loss, p->result.loss, 0);
    t.save_every = p->training.save_every; /* not part of the state */
    t.eval_tokens = p->training.eval_tokens;
    assert_memory_equal(&t, &p->training, sizeof t);
    assert_ok(alibi_model_open(&m, test_device(), p->run, NULL));
    assert_string_equal(m->path, p->newest);
    assert_int_equal(alibi_model_view_config(m)->train_length, 8);
    assert_int_equal(alibi_model_parameters(m), p->result.parameters);
    alibi_model_free(m);
}

static void texts_that_a_run_does_not_tell_leave_the_results_as_they_were(void **state)
{
    static const char recipe[] = "{\"text_seed\": 7, \"text_bytes\": 0}";
    struct site *p = *state;
    struct alibi_builtin text = { .seed = 1, .bytes = 2 };
    char callers[] = "", *path = callers;
    alibi_model *m = NULL;

    assert_ok(alibi_model_open(&m, test_device(), p->run, NULL));
    assert_ok(file_replace(path_at("%s/recipe.json", p->run), recipe, strlen(recipe)));
    assert_ok(file_replace(path_at("%s/source.json", p->run), "{", 1));
    assert_fails(alibi_model_get_builtin(m, &text), ALIBI_BAD_INPUT, "'text_bytes'");
    assert_true(text.seed == 1 && text.bytes == 2);
    assert_fails(alibi_model_get_text(m, &path), ALIBI_BAD_INPUT, "source.json");
    assert_ptr_equal(path, callers);
    assert_ok(file_remove(path_at("%s/recipe.json", p->run)));
    assert_ok(file_remove(path_at("%s/source.json", p->run)));
    assert_ok(alibi_model_get_builtin(m, &text));
    assert_ok(alibi_model_get_text(m, &path));
    assert_true(text.seed == 0 && text.bytes == 0);
    assert_null(path);
    alibi_model_free(m);
}

/* ---- inspect */

static void check_inspect(const char *path, const char *const *parts, int count)
{
    for (int json = 0; json < 2; json++) {
        char *text = NULL;
        json_t *parsed = NULL;
        assert_ok(alibi_inspect(&text, path, json, test_call()));
        for (int i = 0; i < count; i++)
            if (strstr(text, parts[i]) == NULL)
                fail_msg("'%s' is not in\n%s", parts[i], text);
        if (json)
            assert_ok(json_parse(&parsed, text, strlen(text), path));
        json_decref(parsed);
        alibi_text_free(text);
    }
}

#define INSPECT(path, ...)                                                                         \
    check_inspect(path, (const char *const[]){ __VA_ARGS__ },                                      \
                  (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)))

static void inspect_says_what_is_there(void **state)
{
    struct site *p = *state;
    const char *text = path_at("%s/text.txt", p->folder), *report = path_at("%s/report", p->folder);
    static const char results[] =
        "{\"methods\": [{\"name\": \"alibi\", \"by_length\": [{\"length\": 64, \"ppl\": 3.25}, "
        "{\"length\": 128, \"ppl\": null}]}]}";
    char *unused = NULL;

    INSPECT(p->run, "checkpoint", "step-00000004", "every byte", "0.0625", "embedding.weight",
            "F32", "[257, 4]", "cosine", "alibi");
    INSPECT(p->newest, "checkpoint");
    INSPECT(part_path(p, PART_OPTIMIZER), "safetensors", "second.embedding.weight");
    write_file(text, "one two\nthree\n", 14);
    INSPECT(text, "text", "documents", "words", "14");
    assert_int_equal(mkdir(report, 0777), 0);
    assert_fails(alibi_inspect(&unused, report, false, test_call()), ALIBI_BAD_INPUT,
                 "no checkpoint, no report");
    write_file(path_at("%s/results.json", report), results, strlen(results));
    INSPECT(report, "report", "alibi", "64", "3.25");
    assert_fails(alibi_inspect(&unused, path_at("%s/absent", p->folder), false, test_call()),
                 ALIBI_BAD_INPUT, "absent");
    damage(part_path(p, PART_CONFIG), 0);
    assert_fails(alibi_inspect(&unused, p->newest, true, test_call()), ALIBI_BAD_INPUT,
                 "config.json' is damaged");
}

static void inspect_prints_no_control_characters_of_a_file(void **state)
{
    struct site *p = *state;
    const char *path = path_at("%s/hostile.safetensors", p->folder);
    struct safetensor tensor = { .name = "a\033[2Jb\nc", .type = "F32", .rank = 1, .shape = { 1 } };
    struct text file = { 0 };
    char *text = NULL;

    assert_ok(safetensors_header(&file, &tensor, 1));
    text_append_bytes(&file, "\0\0\0\0", 4);
    write_file(path, file.data, file.length);
    assert_ok(alibi_inspect(&text, path, false, test_call()));
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "a?[2Jb?c"));
    alibi_text_free(text);
    text_free(&file);
}

#define RUN_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, drop_site)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_TEST(every_flipped_bit_is_found_and_named),
        RUN_TEST(every_truncation_is_found_and_named),
        RUN_TEST(added_bytes_are_found_and_named),
        RUN_TEST(truncated_checkpoint_is_named_and_the_previous_one_resumes),
        RUN_TEST(training_into_a_checkpoint_is_refused_and_leaves_nothing_in_it),
        RUN_TEST(without_any_that_verifies_the_run_is_refused),
        RUN_TEST(a_configuration_that_is_not_the_models_is_refused),
        RUN_TEST(no_configuration_can_ask_for_memory_that_its_file_does_not_back),
        RUN_TEST(a_tokenizer_or_state_that_makes_no_sense_is_named),
        RUN_TEST(a_tokenizer_may_be_as_long_here_as_anywhere),
        RUN_TEST(algorithms_that_make_no_sense_are_named),
        RUN_TEST(two_checkpoints_are_kept),
        RUN_TEST(the_checkpoint_kept_next_to_the_new_one_verifies),
        RUN_TEST(a_checkpoint_that_cannot_be_read_for_a_moment_is_not_removed),
        RUN_TEST(leftovers_are_cleaned_at_the_next_start),
        RUN_TEST(a_checkpoint_that_verifies_is_replaced_without_being_lost),
        RUN_TEST(a_checkpoint_that_was_set_aside_is_found),
        RUN_TEST(weights_that_are_not_finite_are_not_saved),
        RUN_TEST(what_was_saved_is_what_is_read),
        RUN_TEST(texts_that_a_run_does_not_tell_leave_the_results_as_they_were),
        RUN_TEST(a_state_without_the_checksum_of_the_files_reads),
        RUN_TEST(inspect_says_what_is_there),
        RUN_TEST(inspect_prints_no_control_characters_of_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
