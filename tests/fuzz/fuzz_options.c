/* fuzz_options.c - any bytes as the config.json of a checkpoint, which is read through a table of
 * options
 *
 * An accepted configuration is written so that it reads back the same. */
#include "fuzz.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alibi_config config, again;
    alibi_status status = config_read_json(&config, (const char *)data, size, "fuzz.json");

    if (status == ALIBI_OK) {
        struct text json = { 0 };

        require(config_write_json(&config, &json) == ALIBI_OK);
        require(config_read_json(&again, json.data, json.length, "written") == ALIBI_OK);
        require(memcmp(&again, &config, sizeof config) == 0);
        text_free(&json);
    } else {
        check_refusal(status, "fuzz.json");
    }
    require(alibi_memory_now() == 0);
    return 0;
}
