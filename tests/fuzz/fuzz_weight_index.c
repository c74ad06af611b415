/* fuzz_weight_index.c - any bytes as the index of several files of weights
 *
 * Names that are read stay within the folder of the index, and each is there once. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weight_index *index = NULL;
    alibi_status status = weight_index_parse(&index, (const char *)data, size, "fuzz.json");

    if (status != ALIBI_OK)
        check_refusal(status, "fuzz.json");
    for (int i = 0; index && i < index->count; i++) {
        require(index->files[i][0] != '\0' && strchr(index->files[i], '/') == NULL &&
                strcmp(index->files[i], "..") != 0);
        for (int k = 0; k < i; k++)
            require(strcmp(index->files[i], index->files[k]) != 0);
    }
    weight_index_free(index);
    require(alibi_memory_now() == 0);
    return 0;
}
