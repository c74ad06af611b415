/* fuzz_config.c - any bytes as the config.json of a model of transformers
 *
 * An accepted input is a configuration that can be resolved again, and written for its family. */
#include "exchange/exchange.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct family *family = NULL;
    struct alibi_config config;
    alibi_status status =
        huggingface_config(&family, &config, (const char *)data, size, "fuzz.json");

    if (status == ALIBI_OK) {
        struct alibi_config again = config;
        struct text json = { 0 };
        struct json_writer w = json_writer(&json);
        json_t *parsed = NULL;

        require(alibi_config_resolve(&again) == ALIBI_OK);
        require(memcmp(&again, &config, sizeof config) == 0);
        json_write_object(&w, NULL);
        family_write_config(family, &config, &w);
        json_write_end(&w);
        require(json_parse(&parsed, json.data, json.length, "written") == ALIBI_OK);
        status = family_read_config(family, &again, parsed, "written");
        require(status == ALIBI_OK && again.layers == config.layers &&
                again.vocab == config.vocab && again.width == config.width &&
                again.heads == config.heads);
        json_decref(parsed);
        text_free(&json);
    } else {
        check_refusal(status, "fuzz.json");
    }
    require(alibi_memory_now() == 0);
    return 0;
}
