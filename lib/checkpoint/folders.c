/* folders.c - the step folders of a run */
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "checkpoint/parts.h"

static const char prefix[] = "step-", aside[] = ".old";

/* "step-00000010" or "step-00000010.old". */
static bool parse_name(const char *name, struct step_folder *f)
{
    char *end;
    size_t digits;

    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    name += strlen(prefix);
    digits = strspn(name, "0123456789");
    if (digits < 8 || digits > 18)
        return false;
    f->step = strtoll(name, &end, 10);
    f->old = strcmp(end, aside) == 0;
    return f->old || *end == '\0';
}

static int newest_first(const void *a, const void *b)
{
    const struct step_folder *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->old - (int)y->old;
}

alibi_status step_folders(struct step_folder **out, int *count, const char *run)
{
    alibi_status status;
    char **names = NULL, *manifest = NULL;
    int name_count = 0, found = 0;
    struct step_folder *folders = NULL;

    TRY(folder_list(&names, &name_count, run));
    TRY(NEW_ZERO_ARRAY(&folders, name_count, "the list of checkpoints"));
    for (int i = 0; i < name_count; i++)
        if (parse_name(names[i], &folders[found])) {
            struct step_folder *f = &folders[found++];
            TRY(path_join(&f->path, run, names[i]));
            TRY(path_join(&manifest, f->path, NAME_MANIFEST));
            f->complete = file_exists(manifest);
            mem_free(manifest);
            manifest = NULL;
        }
    qsort(folders, (size_t)found, sizeof *folders, newest_first);
    *out = folders;
    *count = found;
    folders = NULL;
out:
    mem_free(manifest);
    step_folders_free(folders, found);
    names_free(names, name_count);
    return status;
}

void step_folders_free(struct step_folder *folders, int count)
{
    for (int i = 0; folders && i < count; i++)
        mem_free(folders[i].path);
    mem_free(folders);
}

alibi_status step_folder_path(char **out, const char *run, int64_t step, bool old)
{
    char name[64];

    snprintf(name, sizeof name, "%s%08lld%s", prefix, (long long)step, old ? aside : "");
    return path_join(out, run, name);
}

alibi_status step_folder_remove(const char *path)
{
    alibi_status status;
    char *manifest = NULL;

    if (!folder_exists(path))
        return ALIBI_OK;
    TRY(path_join(&manifest, path, NAME_MANIFEST));
    TRY(file_remove(manifest));
    TRY(folder_sync(path));
    TRY(folder_remove(path));
out:
    mem_free(manifest);
    return status;
}
