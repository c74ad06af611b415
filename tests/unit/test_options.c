/* test_options.c - options from text and from recipes: values, errors with the nearest name;
 * a failure sets nothing */
#include <math.h>

#include "check.h"

#include "base/base.h"

enum color { RED, GREEN, BLUE };

struct model_values {
    int64_t layers, seed;
    double eps;
    bool tied;
    int color;
};

struct run_values {
    char *out, *note;
    char position[ALIBI_NAME_MAX];
    struct alibi_int_list lengths;
    struct alibi_name_list methods;
    double lr;
};

#define MODEL(field) offsetof(struct model_values, field)
#define RUN(field) offsetof(struct run_values, field)

static const struct alibi_option model_options[] = {
    { "layers", ALIBI_OPTION_INT, MODEL(layers), 1, 1024, NULL, "6", "N", "number of layers" },
    { "seed", ALIBI_OPTION_INT, MODEL(seed), 0, 9223372036854775807.0, NULL, NULL, "N", "seed" },
    { "norm-eps", ALIBI_OPTION_REAL, MODEL(eps), 0, 1, NULL, "1e-5", "X", "epsilon" },
    { "tied", ALIBI_OPTION_FLAG, MODEL(tied), 0, 0, NULL, "true", NULL, "tied" },
    { "color", ALIBI_OPTION_CHOICE, MODEL(color), 0, 0, "red|green|blue", "green", "NAME",
      "color" },
};

static const struct alibi_option run_options[] = {
    { "out", ALIBI_OPTION_TEXT, RUN(out), 0, 0, NULL, "runs", "DIR", "folder" },
    { "note", ALIBI_OPTION_TEXT, RUN(note), 0, 0, NULL, NULL, "TEXT", "note" },
    { "position", ALIBI_OPTION_NAME, RUN(position), 0, 0, NULL, "alibi", "NAME", "method" },
    { "eval-lengths", ALIBI_OPTION_INTS, RUN(lengths), 1, 65536, NULL, "64,128", "LIST",
      "lengths" },
    { "methods", ALIBI_OPTION_NAMES, RUN(methods), 0, 0, NULL, NULL, "LIST", "methods" },
    { "lr", ALIBI_OPTION_REAL, RUN(lr), 1e-9, 1e300, NULL, "1e-3", "X", "learning rate" },
};

static struct model_values model;
static struct run_values run;
static const struct alibi_option_group groups[] = {
    { "Model", model_options, 5, &model },
    { "Run", run_options, 6, &run },
};

static char *folder;
static size_t memory_before;

static int start(void **state)
{
    (void)state;
    memory_before = alibi_memory_now();
    folder = temporary_folder();
    memset(&model, 0xA5, sizeof model);
    memset(&run, 0xA5, sizeof run);
    return alibi_options_init(groups, 2) == ALIBI_OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    alibi_options_free(groups, 2);
    assert_null(run.out);
    assert_int_equal(alibi_memory_now(), memory_before);
    remove_temporary_folder(folder);
    return 0;
}

static alibi_status set(const char *name, const char *text)
{
    return alibi_options_set(groups, 2, name, text);
}

/* Writes the recipe to a file `r.json` and reads it. */
static alibi_status read_recipe(const char *recipe)
{
    const char *path = within(folder, "r.json");

    write_file(path, recipe, strlen(recipe));
    return alibi_options_read(groups, 2, path);
}

static void assert_defaults(void)
{
    assert_int_equal(model.layers, 6);
    assert_int_equal(model.seed, 0);
    assert_true(model.eps == 1e-5);
    assert_true(model.tied);
    assert_int_equal(model.color, GREEN);
    assert_string_equal(run.out, "runs");
    assert_null(run.note);
    assert_string_equal(run.position, "alibi");
    assert_int_equal(run.lengths.count, 2);
    assert_int_equal(run.lengths.at[1], 128);
    assert_int_equal(run.methods.count, 0);
    assert_true(run.lr == 1e-3);
}

/* ---- defaults and names */

static void every_value_starts_at_its_default(void **state)
{
    (void)state;
    assert_defaults();
}

static void dashes_and_underscores_name_the_same_option(void **state)
{
    const struct alibi_option_group *group = NULL;

    (void)state;
    assert_ptr_equal(alibi_options_find(groups, 2, "norm-eps", NULL), &model_options[2]);
    assert_ptr_equal(alibi_options_find(groups, 2, "norm_eps", &group), &model_options[2]);
    assert_ptr_equal(group, &groups[0]);
    assert_ptr_equal(alibi_options_find(groups, 2, "lr", &group), &run_options[5]);
    assert_ptr_equal(group, &groups[1]);
    assert_null(alibi_options_find(groups, 2, "norm", NULL));
    assert_null(alibi_options_find(groups, 2, "norm-eps-", NULL));
    assert_null(alibi_options_find(groups, 2, "", NULL));
}

static void unknown_option_names_the_nearest(void **state)
{
    (void)state;
    assert_fails(set("eval-lenghts", "1"), ALIBI_USAGE,
                 "unknown option '--eval-lenghts': did you mean '--eval-lengths'?");
    assert_fails(set("nonsense", "1"), ALIBI_USAGE, "unknown option '--nonsense'");
    assert_null(strstr(alibi_error(), "did you mean"));
}

/* ---- from text */

static void values_are_set_from_text(void **state)
{
    (void)state;
    assert_ok(set("layers", "1024"));
    assert_ok(set("seed", "9223372036854775807"));
    assert_ok(set("norm_eps", "1e-3"));
    assert_ok(set("tied", "false"));
    assert_ok(set("color", "blue"));
    assert_ok(set("out", "a"));
    assert_ok(set("out", "größer"));
    assert_ok(set("note", ""));
    assert_ok(set("position", "rotary"));
    assert_ok(set("eval-lengths", "1,65536,3"));
    assert_ok(set("methods", "alibi,none"));
    assert_ok(set("lr", ".5"));
    assert_int_equal(model.layers, 1024);
    assert_true(model.seed == INT64_MAX);
    assert_true(model.eps == 1e-3);
    assert_false(model.tied);
    assert_int_equal(model.color, BLUE);
    assert_string_equal(run.out, "größer");
    assert_string_equal(run.note, "");
    assert_string_equal(run.position, "rotary");
    assert_int_equal(run.lengths.count, 3);
    assert_int_equal(run.lengths.at[2], 3);
    assert_int_equal(run.methods.count, 2);
    assert_string_equal(run.methods.at[1], "none");
    assert_true(run.lr == 0.5);
    assert_ok(set("methods", ""));
    assert_int_equal(run.methods.count, 0);
}

static void whole_numbers_are_read_strictly(void **state)
{
    const char *const wrong[] = { "",     " 1", "1 ",  "1x",  "0x10", "1.0",  "1e",
                                  "1e-1", "2^", "^2",  "1kk", "1kB",  "1k1",  "k",
                                  "-",    "+",  "--1", "nan", "1,2",  "2^3k", "4 k" };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "option '--layers': '%s' is not a whole number",
                 wrong[i]);
        assert_fails(set("layers", wrong[i]), ALIBI_USAGE, expected);
    }
    assert_fails(set("layers", "0"), ALIBI_USAGE, "option '--layers': 0 is out of range 1..1024");
    assert_fails(set("layers", "1025"), ALIBI_USAGE, "1025 is out of range");
    assert_fails(set("seed", "-1"), ALIBI_USAGE,
                 "option '--seed': -1 is out of range, the minimum is 0");
    assert_fails(set("seed", "9223372036854775808"), ALIBI_USAGE,
                 "9223372036854775808 is out of range");
    assert_fails(set("seed", "-99999999999999999999999"), ALIBI_USAGE, "is out of range");
    assert_defaults();
}

static void whole_numbers_may_have_a_unit_or_an_exponent(void **state)
{
    const struct {
        const char *text;
        int64_t value;
    } forms[] = {
        { "4k", 4096 },
        { "4K", 4096 },
        { "1M", 1048576 },
        { "1m", 1048576 },
        { "3G", 3221225472 },
        { "2^16", 65536 },
        { "2^62", INT64_C(1) << 62 },
        { "10^6", 1000000 },
        { "1e6", 1000000 },
        { "1E6", 1000000 },
        { "7e0", 7 },
        { "5^0", 1 },
        { "+2k", 2048 },
        { "0k", 0 },
    };
    const char *const large[] = { "2^63",
                                  "2^64",
                                  "1e19",
                                  "1e99999999999999999999",
                                  "1^64",
                                  "9223372036854775807k",
                                  "9999999999999999G" };

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        assert_ok(set("seed", forms[i].text));
        assert_int_equal(model.seed, forms[i].value);
    }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        assert_fails(set("seed", large[i]), ALIBI_USAGE, "does not fit into 64 bits");
    assert_fails(set("seed", "-1k"), ALIBI_USAGE, "-1024 is out of range");
    assert_fails(set("layers", "2k"), ALIBI_USAGE, "2048 is out of range 1..1024");
    assert_ok(set("eval-lengths", "64, 1k,2^12 ,1e4"));
    assert_int_equal(run.lengths.count, 4);
    assert_int_equal(run.lengths.at[1], 1024);
    assert_int_equal(run.lengths.at[2], 4096);
    assert_int_equal(run.lengths.at[3], 10000);
}

static void numbers_may_be_powers_and_shares_percentages(void **state)
{
    (void)state;
    assert_ok(set("norm-eps", "50%"));
    assert_true(model.eps == 0.5);
    assert_ok(set("norm-eps", "12.5%"));
    assert_true(model.eps == 0.125);
    assert_ok(set("norm-eps", "2^-24"));
    assert_true(model.eps == 0x1p-24);
    assert_ok(set("lr", "10^-3"));
    assert_true(fabs(run.lr - 1e-3) < 1e-15);
    assert_fails(set("norm-eps", "101%"), ALIBI_USAGE, "1.01 is out of range 0..1");
    assert_fails(set("lr", "50%"), ALIBI_USAGE, "'50%' is a percentage, but this is not a share");
    assert_fails(set("lr", "0^-1"), ALIBI_USAGE, "too large");
    assert_fails(set("lr", "-8^0.5"), ALIBI_USAGE, "out of range");
}

static void numbers_are_read_strictly(void **state)
{
    const char *const wrong[] = { "",      " 1",  "1 ",  "1x",  "0x1p3", ".",    "e5",
                                  "1e",    "1e+", "1,5", "nan", "inf",   "-inf", "1e5x",
                                  "1.2.3", "%",   "1%%", "2^",  "^2",    "2^^3", "2^x" };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "option '--lr': '%s' is not a number", wrong[i]);
        assert_fails(set("lr", wrong[i]), ALIBI_USAGE, expected);
    }
    assert_fails(set("lr", "1e999"), ALIBI_USAGE, "option '--lr': 1e999 is out of range");
    assert_fails(set("lr", "0"), ALIBI_USAGE, "0 is out of range, the minimum is 1e-09");
    assert_fails(set("norm-eps", "1.5"), ALIBI_USAGE,
                 "option '--norm-eps': 1.5 is out of range 0..1");
    assert_fails(set("norm-eps", "-1e-9"), ALIBI_USAGE, "-1e-09 is out of range");
    assert_defaults();
}

static void flags_choices_names_and_lists_are_checked(void **state)
{
    char many[200] = "1", name[ALIBI_NAME_MAX + 1] = "", list[ALIBI_NAME_MAX + 8];

    (void)state;
    for (int i = 1; i <= ALIBI_LIST_MAX; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ",1");
    assert_fails(set("tied", "yes"), ALIBI_USAGE,
                 "option '--tied': 'yes' is neither true nor false");
    assert_fails(set("color", "gren"), ALIBI_USAGE,
                 "'gren' is not one of red|green|blue: did you mean 'green'?");
    assert_fails(set("color", "purple-ish"), ALIBI_USAGE,
                 "'purple-ish' is not one of red|green|blue");
    assert_fails(set("color", "re"), ALIBI_USAGE, "did you mean 'red'?");
    assert_fails(set("color", "Rad"), ALIBI_USAGE, "did you mean 'red'?");
    assert_fails(set("color", "bed"), ALIBI_USAGE, "'bed' is not one of red|green|blue");
    assert_null(strstr(alibi_error(), "did you mean"));
    assert_fails(set("color", "red|green"), ALIBI_USAGE, "is not one of");
    assert_fails(set("color", ""), ALIBI_USAGE, "'' is not one of");
    memset(name, 'n', sizeof name - 1);
    snprintf(list, sizeof list, "a,%s,b", name);
    assert_fails(set("position", name), ALIBI_USAGE, "too long for a name: at most 191 bytes");
    assert_ok(set("position", name + 1));
    assert_ok(set("position", "alibi"));
    assert_fails(set("eval-lengths", "1,,2"), ALIBI_USAGE,
                 "option '--eval-lengths': the list has an empty entry");
    assert_fails(set("eval-lengths", "1,2,"), ALIBI_USAGE, "an empty entry");
    assert_fails(set("eval-lengths", "1,x2,3"), ALIBI_USAGE, "'x2' is not a whole number");
    assert_fails(set("eval-lengths", "1,0"), ALIBI_USAGE, "0 is out of range 1..65536");
    assert_fails(set("eval-lengths", many), ALIBI_USAGE, "more than 32 entries");
    assert_fails(set("methods", "a,,b"), ALIBI_USAGE, "an empty entry");
    assert_fails(set("methods", many), ALIBI_USAGE, "more than 32 entries");
    assert_fails(set("methods", list), ALIBI_USAGE, "too long for a name");
    assert_fails(set("out", "\xff"), ALIBI_USAGE, "is not valid UTF-8");
    assert_fails(set("position", "\xff"), ALIBI_USAGE, "is not valid UTF-8");
    assert_defaults();
}

static void case_does_not_matter_in_a_choice(void **state)
{
    (void)state;
    assert_ok(set("color", "Blue"));
    assert_int_equal(model.color, BLUE);
    assert_ok(read_recipe("{\"color\": \"RED\"}"));
    assert_int_equal(model.color, RED);
    assert_fails(read_recipe("{\"Color\": \"red\"}"), ALIBI_BAD_INPUT,
                 "unknown key 'Color': did you mean 'color'?");
}

static void nearest_name_is_a_slip_a_part_or_another_word_away(void **state)
{
    const char *const names[] = { "rotary", "none", "sinusoidal", "lr",   "train-length",
                                  "layers", "eval", "tokenize",   "cuda", "fp32" };
    const char *const pairs[][2] = {
        { "rope", "rotary" },          { "NoPE", "none" },
        { "sinusoid", "sinusoidal" },  { "learning_rate", "lr" },
        { "context", "train-length" }, { "n-layers", "layers" },
        { "num_layers", "layers" },    { "evaluate", "eval" },
        { "tok", "tokenize" },         { "GPU", "cuda" },
        { "float32", "fp32" },         { "train-len", "train-length" },
        { "ropee", "rotary" },         { "learnin-rate", "lr" },
    };
    int count = sizeof names / sizeof *names;

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *nearest = alibi_nearest(pairs[i][0], names, count);
        assert_non_null(nearest);
        assert_string_equal(nearest, pairs[i][1]);
    }
    assert_null(alibi_nearest("xyzzy", names, count));
    assert_null(alibi_nearest("l", names, count));
    assert_null(alibi_nearest("", names, count));
    assert_int_equal(name_index("RoPE", names, count), 0);
    assert_int_equal(name_index("n-layers", names, count), -1);
}

static void list_of_the_largest_length_is_accepted(void **state)
{
    char full[200] = "1";

    (void)state;
    for (int i = 1; i < ALIBI_LIST_MAX; i++)
        snprintf(full + strlen(full), sizeof full - strlen(full), ",1");
    assert_ok(set("eval-lengths", full));
    assert_int_equal(run.lengths.count, ALIBI_LIST_MAX);
}

/* ---- recipes */

static void recipe_sets_what_it_names_and_nothing_else(void **state)
{
    (void)state;
    assert_ok(read_recipe("{}"));
    assert_defaults();
    assert_ok(read_recipe(
        "{\"layers\": 3, \"norm_eps\": 1, \"tied\": false, \"color\": \"red\", \"out\": null, \"note\": \"n\\u00e9\",\n"
        " \"position\": \"t5\", \"eval_lengths\": [7], \"methods\": [\"a\", \"b\"], \"lr\": 0.25}"));
    assert_int_equal(model.layers, 3);
    assert_int_equal(model.seed, 0);
    assert_true(model.eps == 1.0);
    assert_false(model.tied);
    assert_int_equal(model.color, RED);
    assert_null(run.out);
    assert_string_equal(run.note, "né");
    assert_string_equal(run.position, "t5");
    assert_int_equal(run.lengths.count, 1);
    assert_int_equal(run.lengths.at[0], 7);
    assert_string_equal(run.methods.at[1], "b");
    assert_true(run.lr == 0.25);
}

static void unknown_key_is_named_with_its_line_and_the_nearest(void **state)
{
    (void)state;
    assert_fails(
        read_recipe(
            "{\n  \"note\": \"a \\\" : { [ \\\\\",\n  \"eval_lengths\": [1,\n 2],\n  \"eval_lenghts\": [1]\n}"),
        ALIBI_BAD_INPUT,
        "r.json' line 5: unknown key 'eval_lenghts': did you mean 'eval_lengths'?");
    assert_fails(read_recipe("{\"layers\": 7,\n\n\n\"qwertz\": 1}"), ALIBI_BAD_INPUT,
                 "r.json' line 4: unknown key 'qwertz'");
    assert_fails(read_recipe("{\"eval-lengths\": [1]}"), ALIBI_BAD_INPUT,
                 "unknown key 'eval-lengths': did you mean 'eval_lengths'?");
    assert_fails(read_recipe("{\"\": 1}"), ALIBI_BAD_INPUT, "r.json' line 1: unknown key ''");
    assert_defaults();
}

/* A checkpoint of a newer alibi has a config like this. The sanitizers check that nothing is
 * written past the settings of the options. */
static void unknown_key_after_every_option_is_refused(void **state)
{
    (void)state;
    assert_fails(
        read_recipe(
            "{\"recipe\": 1, \"layers\": 2, \"seed\": 3, \"norm_eps\": 0.5, \"tied\": false,"
            "\"color\": \"red\", \"out\": \"a\", \"note\": \"b\", \"position\": \"c\","
            "\"eval_lengths\": [], \"methods\": [], \"lr\": 1,\n \"newer\": 1}"),
        ALIBI_BAD_INPUT, "r.json' line 2: unknown key 'newer'");
    assert_defaults();
}

static void recipe_values_must_have_their_json_type(void **state)
{
    const char *const wrong[][2] = {
        { "{\"layers\": \"6\"}", "line 1: 'layers': a whole number is expected, found a text" },
        { "{\"layers\": 6.0}", "'layers': a whole number is expected, found a fraction" },
        { "{\"layers\": true}", "'layers': a whole number is expected, found true" },
        { "{\"layers\": null}", "'layers': a whole number is expected, found null" },
        { "{\n\"layers\":\n0}", "line 2: 'layers': 0 is out of range 1..1024" },
        { "{\"norm_eps\": \"1\"}", "'norm_eps': a number is expected, found a text" },
        { "{\"norm_eps\": 2}", "'norm_eps': 2 is out of range 0..1" },
        { "{\"tied\": 1}", "'tied': true or false is expected, found a number" },
        { "{\"color\": 1}", "'color': red|green|blue is expected, found a number" },
        { "{\"color\": \"bleu\"}",
          "'color': 'bleu' is not one of red|green|blue: did you mean 'blue'?" },
        { "{\"out\": 1}", "'out': a text is expected, found a number" },
        { "{\"position\": []}", "'position': a name is expected, found a list" },
        { "{\"eval_lengths\": 1}",
          "'eval_lengths': a list of whole numbers is expected, found a number" },
        { "{\"eval_lengths\": [1, 2.5]}",
          "'eval_lengths': a list of whole numbers is expected, found a fraction" },
        { "{\"eval_lengths\": [0]}", "'eval_lengths': 0 is out of range" },
        { "{\"methods\": {}}", "'methods': a list of names is expected, found an object" },
        { "{\"methods\": [1]}", "'methods': a list of names is expected, found a number" },
        { "{\"methods\": [\"\"]}", "'methods': the list has an empty entry" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(read_recipe(wrong[i][0]), ALIBI_BAD_INPUT, wrong[i][1]);
    assert_defaults();
}

static void file_that_is_no_recipe_is_named(void **state)
{
    char *large = calloc(1, (1 << 20) + 2);

    (void)state;
    assert_non_null(large);
    memset(large, ' ', (1 << 20) + 1);
    assert_fails(read_recipe("[1]"), ALIBI_BAD_INPUT, "r.json' is not a recipe");
    assert_fails(read_recipe(""), ALIBI_BAD_INPUT, "r.json': it is empty");
    assert_fails(read_recipe("{\"layers\": 3,}"), ALIBI_BAD_INPUT, "r.json' line 1");
    assert_fails(read_recipe("{\"layers\": 3, \"layers\": 4}"), ALIBI_BAD_INPUT, "r.json' line 1");
    assert_fails(read_recipe(large), ALIBI_BAD_INPUT, "at most 1048576 are allowed");
    assert_fails(alibi_options_read(groups, 2, within(folder, "none")), ALIBI_BAD_INPUT,
                 "none': No such file or directory");
    assert_fails(alibi_options_read(groups, 2, folder), ALIBI_BAD_INPUT, "it is a folder");
    assert_defaults();
    free(large);
}

/* ---- writing */

static void written_recipe_reads_back_and_is_the_same_bytes_again(void **state)
{
    char *first = NULL, *second = NULL;
    size_t first_bytes = 0, second_bytes = 0;

    (void)state;
    assert_ok(set("seed", "9223372036854775807"));
    assert_ok(set("norm-eps", "0.1234567890123456789"));
    assert_ok(set("lr", "3e-4"));
    assert_ok(set("note", "line\n\"quoted\" 🙂"));
    assert_ok(set("methods", "alibi,none"));
    assert_ok(alibi_options_write(groups, 2, within(folder, "a.json")));
    alibi_options_free(groups, 2);
    assert_ok(alibi_options_init(groups, 2));
    assert_ok(alibi_options_read(groups, 2, within(folder, "a.json")));
    assert_true(model.seed == INT64_MAX);
    assert_true(model.eps == 0.1234567890123456789);
    assert_true(run.lr == 3e-4);
    assert_string_equal(run.note, "line\n\"quoted\" 🙂");
    assert_int_equal(run.methods.count, 2);
    assert_ok(alibi_options_write(groups, 2, within(folder, "b.json")));
    assert_ok(file_read_all(&first, &first_bytes, within(folder, "a.json"), 1 << 20));
    assert_ok(file_read_all(&second, &second_bytes, within(folder, "b.json"), 1 << 20));
    assert_string_equal(first, second);
    mem_free(first);
    mem_free(second);
}

static void written_recipe_is_in_the_order_of_the_tables(void **state)
{
    struct text json = { 0 };

    (void)state;
    assert_ok(options_format(groups, 2, &json));
    assert_string_equal(
        json.data,
        "{\n  \"layers\": 6,\n  \"seed\": 0,\n  \"norm_eps\": 1e-05,\n  \"tied\": true,\n"
        "  \"color\": \"green\",\n  \"out\": \"runs\",\n  \"note\": null,\n  \"position\": \"alibi\",\n"
        "  \"eval_lengths\": [64, 128],\n  \"methods\": [],\n  \"lr\": 0.001\n}\n");
    text_free(&json);
    model.color = 9;
    assert_fails(options_format(groups, 2, &json), ALIBI_USAGE,
                 "option '--color': there is no choice number 9");
    model.color = GREEN;
    text_free(&json);
}

/* ---- faults */

static const char recipe[] =
    "{\"layers\": 3, \"out\": \"elsewhere\", \"note\": \"n\", \"methods\": [\"a\", \"b\"], \"lr\": 0.5}";

/* With the n-th call failing, for every n: either all of the recipe is set or nothing is. */
static void reading_with_faults_sets_all_or_nothing(const char *kind, alibi_status expected)
{
    const char *path = within(folder, "r.json");
    alibi_status status;
    int64_t n = 0;
    int failures = 0, in_a_row = 0;

    write_file(path, recipe, strlen(recipe));
    while (in_a_row < 3) {
        size_t before = alibi_memory_now();
        assert_ok(alibi_inject_fault(kind, ++n));
        status = alibi_options_read(groups, 2, path);
        assert_ok(alibi_inject_fault(kind, 0));
        in_a_row = status == ALIBI_OK ? in_a_row + 1 : 0;
        if (status == ALIBI_OK) {
            assert_int_equal(model.layers, 3);
            assert_string_equal(run.out, "elsewhere");
            assert_true(run.lr == 0.5);
            alibi_options_free(groups, 2);
            assert_ok(alibi_options_init(groups, 2));
        } else {
            failures++;
            assert_fails(status, expected, "");
            assert_defaults();
        }
        assert_int_equal(alibi_memory_now(), before);
    }
    assert_true(failures >= 3);
}

static void every_failing_allocation_while_reading_sets_nothing(void **state)
{
    (void)state;
    reading_with_faults_sets_all_or_nothing("memory", ALIBI_MEMORY);
}

static void every_failing_file_call_while_reading_sets_nothing(void **state)
{
    (void)state;
    reading_with_faults_sets_all_or_nothing("file", ALIBI_IO);
}

static void failing_allocation_while_setting_keeps_the_old_value(void **state)
{
    (void)state;
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(set("out", "elsewhere"), ALIBI_MEMORY, "option '--out': not enough memory");
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(set("laiers", "1"), ALIBI_MEMORY, "not enough memory");
    assert_defaults();
}

static void failing_allocation_at_the_start_leaves_nothing_to_free(void **state)
{
    size_t held;

    (void)state;
    alibi_options_free(groups, 2);
    held = alibi_memory_now();
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(alibi_options_init(groups, 2), ALIBI_MEMORY, "not enough memory");
    assert_int_equal(alibi_memory_now(), held);
    assert_null(run.out);
    alibi_options_free(groups, 2);
}

static void every_failing_call_while_writing_keeps_the_old_recipe_whole(void **state)
{
    const char *path = within(folder, "r.json");
    const char *const kinds[] = { "memory", "file" };

    (void)state;
    for (int k = 0; k < 2; k++) {
        alibi_status status;
        int64_t n = 0;
        size_t before = alibi_memory_now();
        write_file(path, recipe, strlen(recipe));
        do {
            assert_ok(alibi_inject_fault(kinds[k], ++n));
            status = alibi_options_write(groups, 2, path);
            assert_ok(alibi_inject_fault(kinds[k], 0));
            assert_int_equal(alibi_memory_now(), before);
            assert_ok(alibi_options_read(groups, 2, path));
            alibi_options_free(groups, 2);
            assert_ok(alibi_options_init(groups, 2));
        } while (status != ALIBI_OK);
        assert_true(n > 3);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

/* ---- values that the caller set */

static void values_set_by_hand_are_checked_like_those_read(void **state)
{
    (void)state;
    assert_ok(options_check(groups, 2));
    model.layers = 1025;
    assert_fails(options_check(groups, 2), ALIBI_USAGE,
                 "option '--layers': 1025 is out of range 1..1024");
    model.layers = 6;
    model.eps = NAN;
    assert_fails(options_check(groups, 2), ALIBI_USAGE,
                 "option '--norm-eps': nan is out of range 0..1");
    model.eps = 0;
    model.color = 3;
    assert_fails(options_check(groups, 2), ALIBI_USAGE, "option '--color': 3 is out of range 0..2");
    model.color = -1;
    assert_fails(options_check(groups, 2), ALIBI_USAGE, "option '--color': -1 is out of range");
    model.color = BLUE;
    run.lengths.at[1] = 0;
    assert_fails(options_check(groups, 2), ALIBI_USAGE,
                 "option '--eval-lengths': 0 is out of range");
    run.lengths.count = ALIBI_LIST_MAX + 1;
    assert_fails(options_check(groups, 2), ALIBI_USAGE, "option '--eval-lengths': 33 entries");
    run.lengths.count = 0;
    memset(run.position, 'x', sizeof run.position);
    assert_fails(options_check(groups, 2), ALIBI_USAGE, "option '--position': the name 'xxx");
    memset(run.position, 0, sizeof run.position);
    assert_ok(options_check(groups, 2));
}

/* ---- nearest names */

static void nearest_name_is_found_by_edit_distance(void **state)
{
    const char *const names[] = { "train-length", "layers", "heads", "alibi", "sinusoidal", "lr" };
    const int count = 6;

    (void)state;
    assert_string_equal(alibi_nearest("train-lenght", names, count), "train-length"); /* swapped */
    assert_string_equal(alibi_nearest("train_length", names, count), "train-length");
    assert_string_equal(alibi_nearest("layer", names, count), "layers"); /* missing */
    assert_string_equal(alibi_nearest("headss", names, count), "heads"); /* one too many */
    assert_string_equal(alibi_nearest("Alibu", names, count), "alibi");  /* one replaced */
    assert_string_equal(alibi_nearest("sinosoidial", names, count),
                        "sinusoidal"); /* two errors in a long name */
    assert_string_equal(alibi_nearest("ltr", names, count), "lr");
    assert_string_equal(alibi_nearest("rl", names, count), "lr");
    assert_null(alibi_nearest("banana", names, count));
    assert_null(alibi_nearest("x", names, count));
    assert_null(alibi_nearest("", names, count));
    assert_null(alibi_nearest("ab", names, count));
    assert_null(alibi_nearest("heads", names, 0));
}

static void very_long_names_are_near_to_nothing(void **state)
{
    char name[1000];
    const char *const names[] = { name };

    (void)state;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_null(alibi_nearest(name, names, 1));
    assert_null(alibi_nearest("aaaa", names, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_value_starts_at_its_default),
        TEST(values_set_by_hand_are_checked_like_those_read),
        TEST(dashes_and_underscores_name_the_same_option),
        TEST(unknown_option_names_the_nearest),
        TEST(values_are_set_from_text),
        TEST(whole_numbers_are_read_strictly),
        TEST(whole_numbers_may_have_a_unit_or_an_exponent),
        TEST(numbers_are_read_strictly),
        TEST(numbers_may_be_powers_and_shares_percentages),
        TEST(flags_choices_names_and_lists_are_checked),
        TEST(case_does_not_matter_in_a_choice),
        TEST(list_of_the_largest_length_is_accepted),
        TEST(recipe_sets_what_it_names_and_nothing_else),
        TEST(unknown_key_is_named_with_its_line_and_the_nearest),
        TEST(unknown_key_after_every_option_is_refused),
        TEST(recipe_values_must_have_their_json_type),
        TEST(file_that_is_no_recipe_is_named),
        TEST(written_recipe_reads_back_and_is_the_same_bytes_again),
        TEST(written_recipe_is_in_the_order_of_the_tables),
        TEST(every_failing_allocation_while_reading_sets_nothing),
        TEST(every_failing_file_call_while_reading_sets_nothing),
        TEST(failing_allocation_while_setting_keeps_the_old_value),
        TEST(failing_allocation_at_the_start_leaves_nothing_to_free),
        TEST(every_failing_call_while_writing_keeps_the_old_recipe_whole),
        cmocka_unit_test(nearest_name_is_found_by_edit_distance),
        cmocka_unit_test(nearest_name_is_a_slip_a_part_or_another_word_away),
        cmocka_unit_test(very_long_names_are_near_to_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
