/* folder.c - paths, folders, and the lock that gives a folder one writer */
#include <limits.h>
#include <string.h>

#include "base/names.h"
#include "base/os.h"

/* ---- paths */

static alibi_status join(char **out, const char *a, size_t a_length, const char *middle,
                         const char *b)
{
    struct text path = { 0 };
    alibi_status status;

    text_append_bytes(&path, a, a_length);
    text_append(&path, "%s%s", middle, b);
    TRY(text_status(&path));
    *out = path.data;
    return ALIBI_OK;
out:
    text_free(&path);
    return status;
}

alibi_status path_join(char **out, const char *folder, const char *name)
{
    size_t length = strlen(folder);

    return join(out, folder, length, length > 0 && folder[length - 1] != '/' ? "/" : "", name);
}

alibi_status path_with_suffix(char **out, const char *path, const char *suffix)
{
    return join(out, path, strlen(path), "", suffix);
}

alibi_status path_absolute(char **out, const char *path)
{
    alibi_status status;
    char *real = os_realpath(path);

    if (real == NULL)
        return path_fail("open", path);
    status = text_copy(out, real);
    free(real);
    return status;
}

alibi_status path_folder(char **out, const char *path)
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length == 0)
        return text_copy(out, ".");
    while (length > 1 && path[length - 1] == '/')
        length--;
    return join(out, path, length, "", "");
}

alibi_status path_look(enum path_kind *kind, const char *path)
{
    struct stat info;

    if (os_stat(path, &info) == 0)
        *kind = S_ISDIR(info.st_mode) ? PATH_FOLDER : PATH_FILE;
    else if (errno == ENOENT || errno == ENOTDIR)
        *kind = PATH_NONE;
    else
        return path_fail("open", path);
    return ALIBI_OK;
}

alibi_status folder_has(bool *has, const char *folder, const char *name)
{
    alibi_status status;
    enum path_kind kind;
    char *path = NULL;

    TRY(path_join(&path, folder, name));
    TRY(path_look(&kind, path));
    *has = kind == PATH_FILE;
out:
    mem_free(path);
    return status;
}

/* The first file that each use writes, or one that it always has. */
static alibi_status folder_use_of(enum folder_use *use, const char *folder)
{
    static const struct {
        const char *name;
        enum folder_use use;
    } signs[] = {
        { NAME_MANIFEST, FOLDER_CHECKPOINT },
        { NAME_EXPERIMENT, FOLDER_EXPERIMENT },
        { NAME_COMPARED_TEXT, FOLDER_COMPARISON },
        { NAME_SOURCE, FOLDER_RUN },
        { NAME_LOG, FOLDER_RUN },
        { NAME_SHARD_REQUEST, FOLDER_SHARDS },
        { NAME_SHARD_INDEX, FOLDER_SHARDS },
    };
    bool found = false;

    *use = FOLDER_FREE;
    for (int i = 0; i < COUNT(signs) && !found; i++) {
        TRY_RETURN(folder_has(&found, folder, signs[i].name));
        if (found)
            *use = signs[i].use;
    }
    return ALIBI_OK;
}

static bool is_note(const char *name)
{
    static const char *const ends[] = { ".json", ".log",     ".out",   ".err",
                                        ".html", NAME_ASIDE, NAME_LOCK };

    for (int i = 0; i < COUNT(ends); i++)
        if (ends_with(name, ends[i]))
            return true;
    return name[0] == '.';
}

/* Results among the files of something else are hard to remove, and among texts they would be read
 * as text. Folders, notes and what a command printed may be beside them. */
static alibi_status refuse_other_files(const char *folder, const char *verb)
{
    alibi_status status;
    char **names = NULL;
    int count = 0;

    TRY(folder_list(&names, &count, folder));
    for (int i = 0; i < count; i++) {
        bool file = false;

        if (!is_note(names[i]))
            TRY(folder_has(&file, folder, names[i]));
        if (file) {
            status = fail(ALIBI_BAD_INPUT,
                          "cannot %s in '%s': it has other files, such as '%s'; choose a new or "
                          "an empty folder",
                          verb, folder, names[i]);
            break;
        }
    }
out:
    names_free(names, count);
    return status;
}

alibi_status folder_refuse_other(const char *folder, enum folder_use mine)
{
    static const char *const verbs[] = { "", "", "train", "compare", "reproduce", "" };
    static const char *const held[] = {
        "",
        "is a checkpoint",
        "holds a training run",
        "holds a comparison",
        "holds an experiment",
        "holds token shards",
    };
    enum folder_use use;

    TRY_RETURN(folder_use_of(&use, folder));
    if (use == FOLDER_FREE && folder_exists(folder))
        return refuse_other_files(folder, verbs[mine]);
    if (use == FOLDER_FREE || use == mine)
        return ALIBI_OK;
    return fail(ALIBI_BAD_INPUT, "cannot %s in '%s': it %s; choose another folder", verbs[mine],
                folder, held[use]);
}

/* Resolves the longest prefix of the path that exists. */
static alibi_status resolve(char **out, const char *path)
{
    alibi_status status;
    char *part = NULL, *parent = NULL, *resolved;

    TRY(text_copy(&part, path));
    while ((resolved = os_realpath(part)) == NULL && errno == ENOENT) {
        TRY(path_folder(&parent, part));
        if (strcmp(parent, part) == 0)
            break;
        mem_free(part);
        part = parent;
        parent = NULL;
    }
    if (resolved == NULL)
        TRY(path_fail("open", part));
    *out = resolved;
out:
    mem_free(part);
    mem_free(parent);
    return status;
}

bool path_begins(const char *path, const char *folder)
{
    size_t length = strlen(folder);

    return strncmp(path, folder, length) == 0 &&
           (path[length] == '\0' || path[length] == '/' || folder[length - 1] == '/');
}

alibi_status path_is_within(bool *yes, const char *path, const char *folder)
{
    alibi_status status;
    char *inner = NULL, *outer = NULL;

    TRY(resolve(&inner, path));
    TRY(resolve(&outer, folder));
    *yes = path_begins(inner, outer);
out:
    free(inner);
    free(outer);
    return status;
}

/* ---- create, sync, remove */

bool folder_exists(const char *path)
{
    struct stat info;

    if (os_stat(path, &info) == 0)
        return S_ISDIR(info.st_mode);
    return errno != ENOENT && errno != ENOTDIR;
}

alibi_status folder_sync(const char *path)
{
    alibi_status status = ALIBI_OK;
    int fd = os_open(path, O_RDONLY | O_DIRECTORY);

    if (fd < 0)
        return path_fail("open folder", path);
    /* EINVAL: a file system on which folders need no sync. */
    if (os_fsync(fd) != 0 && errno != EINVAL)
        status = path_fail("sync folder", path);
    if (os_close(fd) != 0 && status == ALIBI_OK)
        status = path_fail("close folder", path);
    return status;
}

/* A new folder survives a power cut only once its parent is synced. */
static alibi_status create_one(const char *path)
{
    alibi_status status = ALIBI_OK;
    char *parent = NULL;
    struct stat info;

    if (os_mkdir(path) == 0) {
        TRY(path_folder(&parent, path));
        TRY(folder_sync(parent));
    } else if (errno != EEXIST || os_stat(path, &info) != 0) {
        status = path_fail("create folder", path);
    } else if (!S_ISDIR(info.st_mode)) {
        status = fail(ALIBI_BAD_INPUT, "cannot create folder '%s': it is a file", path);
    }
out:
    mem_free(parent);
    return status;
}

alibi_status folder_create(const char *path)
{
    alibi_status status;
    char *prefix = NULL;

    TRY(text_copy(&prefix, path));
    for (char *p = prefix; *p != '\0'; p++) {
        if (*p != '/' || p == prefix)
            continue;
        *p = '\0';
        TRY(create_one(prefix));
        *p = '/';
    }
    TRY(create_one(prefix));
out:
    mem_free(prefix);
    return status;
}

alibi_status file_remove_within(const char *folder, const char *name)
{
    alibi_status status;
    char *path = NULL;

    TRY(path_join(&path, folder, name));
    TRY(file_remove(path));
out:
    mem_free(path);
    return status;
}

alibi_status folder_remove(const char *path)
{
    alibi_status status;
    char **names = NULL;
    int count = 0;

    if (!folder_exists(path) && !file_exists(path))
        return ALIBI_OK;
    TRY(folder_list(&names, &count, path));
    for (int i = 0; i < count; i++)
        TRY(file_remove_within(path, names[i]));
    if (os_rmdir(path) != 0)
        status = path_fail("remove folder", path);
out:
    names_free(names, count);
    return status;
}

/* ---- list */

struct names {
    char **at;
    int count;
    int64_t capacity;
};

static alibi_status add_name(struct names *n, const char *name)
{
    if (n->count == INT_MAX)
        return fail(ALIBI_MEMORY, "not enough memory for a list of more than %d names", INT_MAX);
    TRY_RETURN(RESERVE_ARRAY(&n->at, &n->capacity, n->count + 1, "a list of names"));
    TRY_RETURN(text_copy(&n->at[n->count], name));
    n->count++;
    return ALIBI_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_names(struct names *n)
{
    if (n->count > 0)
        qsort(n->at, (size_t)n->count, sizeof *n->at, compare_names);
}

alibi_status folder_list(char ***names, int *count, const char *path)
{
    alibi_status status = ALIBI_OK;
    struct names n = { 0 };
    const struct dirent *entry;
    DIR *folder = os_opendir(path);

    if (folder == NULL)
        return path_fail("list folder", path);
    while (status == ALIBI_OK && (entry = os_readdir(folder)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = add_name(&n, entry->d_name);
    if (status == ALIBI_OK && errno != 0)
        status = path_fail("list folder", path);
    if (os_closedir(folder) != 0 && status == ALIBI_OK)
        status = path_fail("list folder", path);
    if (status != ALIBI_OK) {
        names_free(n.at, n.count);
        return status;
    }
    sort_names(&n);
    *names = n.at;
    *count = n.count;
    return ALIBI_OK;
}

/* Adds what is in the folder to the files or the folders. A link to a folder is not followed, so
 * there are no loops. Pipes and devices are skipped. A link that leads nowhere is listed as a file:
 * opening it then gives the reason. */
static alibi_status sort_folder(struct names *files, struct names *folders, const char *folder)
{
    alibi_status status;
    char **names = NULL, *path = NULL;
    int count = 0;

    TRY(folder_list(&names, &count, folder));
    for (int i = 0; i < count; i++) {
        struct stat info;
        bool link, nowhere = false;

        if (names[i][0] == '.')
            continue;
        mem_free(path);
        path = NULL;
        TRY(path_join(&path, folder, names[i]));
        if (os_lstat(path, &info) != 0)
            TRY(path_fail("list", path));
        link = S_ISLNK(info.st_mode);
        if (link && os_stat(path, &info) != 0) {
            nowhere = errno == ENOENT || errno == ELOOP;
            if (!nowhere)
                TRY(path_fail("list", path));
        }
        if (nowhere || S_ISREG(info.st_mode))
            TRY(add_name(files, path));
        else if (S_ISDIR(info.st_mode) && !link)
            TRY(add_name(folders, path));
    }
out:
    mem_free(path);
    names_free(names, count);
    return status;
}

/* A list of folders yet to be read replaces recursion. Their depth is bounded by the system's
 * longest path. */
alibi_status folder_list_files(char ***paths, int *count, const char *path)
{
    alibi_status status;
    struct names files = { 0 }, folders = { 0 };
    char *folder = NULL;

    TRY(add_name(&folders, path));
    while (folders.count > 0) {
        folder = folders.at[--folders.count];
        TRY(sort_folder(&files, &folders, folder));
        mem_free(folder);
        folder = NULL;
    }
    sort_names(&files);
    *paths = files.at;
    *count = files.count;
    files = (struct names){ 0 };
out:
    mem_free(folder);
    names_free(files.at, files.count);
    names_free(folders.at, folders.count);
    return status;
}

void names_free(char **names, int count)
{
    for (int i = 0; i < count; i++)
        mem_free(names[i]);
    mem_free(names);
}

alibi_status folder_free_space(int64_t *bytes, const char *path)
{
    struct statvfs info;
    size_t free_bytes;

    if (os_statvfs(path, &info) != 0)
        return path_fail("find the free space of", path);
    if (!size_multiply(&free_bytes, info.f_bavail, info.f_frsize) || free_bytes > INT64_MAX)
        free_bytes = INT64_MAX;
    *bytes = (int64_t)free_bytes;
    return ALIBI_OK;
}

alibi_status folder_check_writable(const char *path)
{
    alibi_status status;
    char *file = NULL;

    TRY(path_join(&file, path, ".writable"));
    TRY(file_replace(file, file, strlen(file)));
    TRY(file_remove(file));
out:
    mem_free(file);
    return status;
}

/* ---- one writer per folder
 *
 * The lock is the kernel's (flock), so it ends with its process, however that ends. The file holds
 * the process id for people to read, and stays: removing it would let two processes hold locks on
 * two files of the same name. */

struct lock {
    int fd;
};

/* `fd` is the lock file, which another process has locked. */
static alibi_status fail_used(int fd, const char *folder)
{
    char holder[32] = "";

    if (os_read(fd, holder, sizeof holder - 1) > 0 && strtol(holder, NULL, 10) > 0)
        return fail(ALIBI_IO, "folder '%s' is in use by process %ld", folder,
                    strtol(holder, NULL, 10));
    return fail(ALIBI_IO, "folder '%s' is in use by another process", folder);
}

alibi_status lock_take(struct lock **out, const char *folder)
{
    alibi_status status;
    struct lock *l = NULL;
    char *path = NULL, holder[32];
    int fd = -1, length = snprintf(holder, sizeof holder, "%ld\n", (long)getpid());

    TRY(path_join(&path, folder, NAME_LOCK));
    TRY(NEW_ARRAY(&l, 1, "a lock"));
    fd = os_open(path, O_RDWR | O_CREAT);
    if (fd < 0)
        TRY(path_fail("create", path));
    if (os_flock(fd, LOCK_EX | LOCK_NB) != 0)
        TRY(errno == EWOULDBLOCK ? fail_used(fd, folder) : path_fail("lock", path));
    if (os_ftruncate(fd, 0) != 0 || os_write(fd, holder, (size_t)length) != length)
        TRY(path_fail("write", path));
    l->fd = fd;
    *out = l;
    l = NULL;
    fd = -1;
out:
    if (fd >= 0)
        os_close(fd);
    mem_free(path);
    mem_free(l);
    return status;
}

void lock_release(struct lock *l)
{
    if (l == NULL)
        return;
    os_close(l->fd);
    mem_free(l);
}

/* A shared lock needs no permission to write, so this works in a folder of another user too. */
alibi_status lock_check(bool *used, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    int fd = -1;
    bool held;

    TRY(path_join(&path, folder, NAME_LOCK));
    fd = os_open(path, O_RDONLY);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != EACCES)
        TRY(path_fail("open", path));
    held = fd >= 0 && os_flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (held && errno != EWOULDBLOCK)
        TRY(path_fail("lock", path));
    if (held)
        fail_used(fd, folder);
    *used = held;
out:
    if (fd >= 0)
        os_close(fd);
    mem_free(path);
    return status;
}
