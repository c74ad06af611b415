/* module.c - shared libraries that are loaded when they are wanted: GPU backend, MPI, NCCL */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The folder of the file that holds this code: the program, or libalibi.so. The linker knows a
 * program by argv[0], which need not be a path; the kernel knows better. */
static bool own_folder(char folder[PATH_MAX])
{
    static const char here = 0;
    Dl_info info;
    struct link_map *map = NULL;
    char *slash;

    if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return false;
    if (realpath(map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe", folder) == NULL)
        return false;
    slash = strrchr(folder, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

/* The loader says "NAME: cannot open shared object file: ..." of our library and of those that it
 * needs alike. */
static alibi_status loading_failed(const char *name, const char *words, const char *built_where)
{
    const char *missing = words != NULL ? strstr(words, ": cannot open shared object file") : NULL;
    int length = missing != NULL ? (int)(missing - words) : 0;

    if (words == NULL)
        return fail(ALIBI_DEVICE, "cannot load %s", name);
    if (missing == NULL)
        return fail(ALIBI_DEVICE, "cannot load %s: %s", name, words);
    if (memmem(words, (size_t)length, name, strlen(name)) != NULL)
        return fail(ALIBI_DEVICE, "%s is not installed; it is built where %s is", name,
                    built_where);
    return fail(ALIBI_DEVICE, "%s needs %.*s, which is not installed", name, length, words);
}

alibi_status module_load(void **out, const char *name, bool global, const char *built_where)
{
    static const char *const places[] = { "", "/../lib", "/../lib/x86_64-linux-gnu" };
    char folder[PATH_MAX], path[PATH_MAX] = "";
    bool found = false;
    void *module;

    if (own_folder(folder))
        for (int i = 0; !found && i < COUNT(places); i++)
            found = snprintf(path, sizeof path, "%s%s/%s", folder, places[i], name) < PATH_MAX &&
                    file_exists(path);
    module =
        dlopen(found ? path : name, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL) | RTLD_NODELETE);
    if (module == NULL)
        return loading_failed(name, dlerror(), built_where);
    *out = module;
    return ALIBI_OK;
}

alibi_status module_open(void **out, const char *name, const char *advice)
{
    void *module = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (module == NULL)
        return fail(ALIBI_DEVICE, "%s cannot be loaded (%s); %s", name, dlerror(), advice);
    *out = module;
    return ALIBI_OK;
}

alibi_status module_symbol(void *function, void *module, const char *name, const char *symbol)
{
    void *found = dlsym(module, symbol);

    if (found == NULL)
        return fail(ALIBI_DEVICE, "%s is of another version: it has no '%s'", name, symbol);
    memcpy(function, &found, sizeof found); /* ISO C has no cast from data to functions */
    return ALIBI_OK;
}

void module_fail(int status, const char *message)
{
    fail((alibi_status)status, "%s", message);
}
