/* pattern.c - the regular expressions of a BPE, compiled
 *
 * PCRE2 makes machine code of them, for whole texts and for texts that go on; where it may not, it
 * interprets. */
#include "text/pattern.h"

/* ---- PCRE2's memory is ours */

_Thread_local bool pattern_memory_failed;

static void *take_memory(size_t bytes, void *user)
{
    void *p = NULL;

    (void)user;
    if (mem_new(&p, bytes, "a regular expression") != ALIBI_OK)
        pattern_memory_failed = true;
    return p;
}

static void give_memory(void *p, void *user)
{
    (void)user;
    mem_free(p);
}

/* ---- compiling */

alibi_status pattern_out_of_memory(void)
{
    return pattern_memory_failed ? ALIBI_MEMORY
                                 : fail(ALIBI_MEMORY, "not enough memory for a regular expression");
}

static alibi_status compile_failure(int error, const char *source, const char *path)
{
    char reason[256];

    if (error == PCRE2_ERROR_NOMEMORY || pattern_memory_failed)
        return pattern_out_of_memory();
    pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
    return fail(ALIBI_BAD_INPUT, "'%s': the pattern '%.80s': %s", path, source, reason);
}

static alibi_status compile_text(pcre2_code **out, struct pattern *p, const char *text,
                                 uint32_t options, const char *source, const char *path)
{
    pcre2_compile_context *context = NULL;
    int error = 0, jit;
    size_t offset;

    pattern_memory_failed = false;
    context = pcre2_compile_context_create(p->memory);
    if (context == NULL)
        return pattern_out_of_memory();
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                         options | PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, &error, &offset, context);
    pcre2_compile_context_free(context);
    if (*out == NULL)
        return compile_failure(error, source, path);
    jit = pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    if (jit != 0 && pattern_memory_failed)
        return ALIBI_MEMORY;
    return ALIBI_OK; /* without JIT, PCRE2 interprets */
}

static alibi_status compile(pcre2_code **out, bool *simple, struct pattern *p,
                            const struct bpe_split *split, const char *path)
{
    alibi_status status;
    struct text translated = { 0 };

    *simple = true;
    if (split->plain)
        return compile_text(out, p, split->pattern, PCRE2_LITERAL, split->pattern, path);
    TRY(pattern_translate(&translated, simple, split->pattern, path));
    TRY(compile_text(out, p, translated.data, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, split->pattern,
                     path));
out:
    text_free(&translated);
    return status;
}

alibi_status pattern_new(struct pattern **out, const struct bpe_split *splits, int count,
                         const char *path)
{
    alibi_status status;
    struct pattern *p = NULL;

    if (count < 0 || count > BPE_SPLITS_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s': %d patterns, more than %d", path, count,
                    BPE_SPLITS_MAX);
    TRY(NEW_ZERO_ARRAY(&p, 1, "patterns"));
    pattern_memory_failed = false;
    p->memory = pcre2_general_context_create(take_memory, give_memory, NULL);
    if (p->memory == NULL)
        TRY(pattern_out_of_memory());
    for (; p->count < count; p->count++) {
        TRY(text_copy(&p->sources[p->count], splits[p->count].pattern));
        TRY(compile(&p->codes[p->count], &p->simple[p->count], p, &splits[p->count], path));
    }
    *out = p;
    p = NULL;
out:
    pattern_free(p);
    return status;
}

void pattern_free(struct pattern *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < BPE_SPLITS_MAX; i++) {
        pcre2_code_free(p->codes[i]);
        mem_free(p->sources[i]);
    }
    pcre2_general_context_free(p->memory);
    mem_free(p);
}
