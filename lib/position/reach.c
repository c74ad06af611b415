/* reach.c - hybrid, with heads in the global layer that prefer what is near
 *
 *   3 layers   rotary, a query sees the last 64 keys
 *   1 layer    it sees all keys. Half of its heads are alibi's,   score(i, j) += -m_h (i - j);
 *              half have no positions, and   q_i <- s_h ln(n_i) q_i,   n_i the keys that they see
 *
 * A head without positions cannot tell the last page from the first. It finds content at any
 * distance; but an average, such as the topic, covers the whole text, and helps less the older that
 * text is: past a few training lengths the loss of hybrid rises again. Here heads with slopes
 * attend to the recent text, as in training, and free heads search all keys. */
#include "position/position.h"

const struct position_preset position_reach = {
    .name = "reach",
    .summary = "three local layers with rotary, then one over all keys: half of its heads alibi, "
               "half without positions",
    .pattern = "3*rotary:window=64,alibi:logn:free=0.5",
};
