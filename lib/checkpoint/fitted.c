/* fitted.c - the position that `alibi fit` found for the model of a checkpoint
 *
 *   {
 *     "fitted": 1,               the version of the file
 *     "position": "rotary:temperature=0.2",
 *     "crc32": ...
 *   }
 *
 * It is a separate file next to the parts, which do not change: training resumes from them as
 * before, and a crash leaves either the old file or the new one. */
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "checkpoint/parts.h"

enum { VERSION = 1, FITTED_MAX = 1 << 16 };

alibi_status checkpoint_write_fitted(const char *path, const char *position)
{
    alibi_status status;
    char *file = NULL;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);

    TRY(path_join(&file, path, NAME_FITTED));
    json_write_object(&w, NULL);
    json_write_int(&w, "fitted", VERSION);
    json_write_string(&w, "position", position);
    json_write_seal(&w);
    TRY(sealed_write(file, &json));
out:
    text_free(&json);
    mem_free(file);
    return status;
}

alibi_status checkpoint_read_fitted(const char *path, char position[ALIBI_NAME_MAX])
{
    alibi_status status;
    char *file = NULL;
    json_t *json = NULL;
    const char *text = "";
    int64_t version;
    bool has;

    TRY(path_join(&file, path, NAME_FITTED));
    TRY(folder_has(&has, path, NAME_FITTED));
    if (has) {
        TRY(sealed_read(&json, file, FITTED_MAX));
        TRY(json_get_int(json, "fitted", VERSION, VERSION, &version, file));
        TRY(json_get_text(json, "position", &text, file));
    }
    if (strlen(text) >= ALIBI_NAME_MAX)
        TRY(fail(ALIBI_BAD_INPUT, "'%s': position has more than %d bytes", file,
                 ALIBI_NAME_MAX - 1));
    memset(position, 0, ALIBI_NAME_MAX);
    memcpy(position, text, strlen(text));
out:
    json_decref(json);
    mem_free(file);
    return status;
}
