/* hybrid.c - local layers with rotary, and every fourth layer without positions over all keys
 *
 *   3 layers   rotary, a query sees the last 64 keys
 *   1 layer    none, it sees all keys, and   q_i <- s_h ln(n_i) q_i,   n_i the keys that it sees
 *
 * Local layers handle near text, which does not change with the length. The global layer is the
 * only one that meets more keys than in training. It has no positions that could be new to it. One
 * key keeps its weight among n others if its score leads by more than ln n. The factor, with a
 * learned s_h per head that starts at 1 / ln(training length), makes the lead grow with ln n.
 *
 * Yang et al. 2025 (arXiv 2501.18795: layers with rotary and a window, layers without positions);
 * Nakanishi 2025 (arXiv 2501.19399: scores times s ln n, s learned per head). */
#include "position/position.h"

const struct position_preset position_hybrid = {
    .name = "hybrid",
    .summary = "three local layers with rotary, then one without positions over all keys",
    .pattern = "3*rotary:window=64,none:logn",
};
