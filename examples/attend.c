/* attend.c - ALiBi's attention on numbers of one's own: two sequences of different lengths, packed
 *
 *   cc attend.c $(pkg-config --cflags --libs alibi)        after make install */
#include <stdio.h>

#include "alibi.h"

enum { HEADS = 2, WIDTH = 4, TOTAL = 8 };

int main(void)
{
    const struct alibi_compute compute = { .device = ALIBI_DEVICE_CPU };
    const int32_t starts[] = { 0, 3, TOTAL }; /* 3 tokens, then 5 */
    const float slopes[HEADS] = { 0.0625f, 0.00390625f };
    static float q[TOTAL * HEADS * WIDTH], y[TOTAL * HEADS * WIDTH], lse[HEADS * TOTAL];
    struct alibi_attend a = { .batch = 2,
                              .queries = 5, /* of the longest */
                              .keys = 5,
                              .heads = HEADS,
                              .kv_heads = HEADS,
                              .head_width = WIDTH,
                              .slopes = slopes,
                              .q = { q },
                              .k = { q },
                              .v = { q },
                              .y = { y },
                              .lse = lse,
                              .cu_seqlens_q = starts,
                              .cu_seqlens_k = starts,
                              .total_q = TOTAL,
                              .total_k = TOTAL };
    alibi_device *device = NULL;
    bool ok;

    for (int i = 0; i < TOTAL * HEADS * WIDTH; i++)
        q[i] = (float)(i * 37 % 17 - 8) / 8;
    ok = alibi_device_open(&device, &compute, NULL) == ALIBI_OK &&
         alibi_attend(device, &a) == ALIBI_OK;
    for (int token = 0; ok && token < TOTAL; token++)
        printf("token %d  log-sum-exp %7.4f  output %7.4f ...\n", token, (double)lse[token],
               (double)y[token * HEADS * WIDTH]);
    if (!ok)
        fprintf(stderr, "attend: %s\n", alibi_error());
    alibi_device_free(device);
    return ok ? 0 : 1;
}
