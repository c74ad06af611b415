/* scale_invariant.c - scores that treat every range of distances alike
 *
 *   score(i, j) = A(i - j) q_i . k_j / sqrt(D) + 1 - A(i - j)^2
 *   A(d)^2 = 1 + 2 ln(1 + d / tau)
 *
 * Anson, Wang, Aitchison 2025 (arXiv 2505.17083). If q . k / sqrt(D) is normal with variance 1, a
 * key at distance d has the mean weight e^(1 - A^2 / 2), in proportion to 1 / (1 + d / tau): the
 * distances from t to 2t then have the same total weight for every t beyond tau. The factor makes
 * far scores sharper, so that one of many far keys can stand out. The authors rotate half of each
 * head's pairs (p-RoPE), and take tau = 10. */
#include "position/position.h"

const struct position_preset position_scale_invariant = {
    .name = "scale-invariant",
    .summary = "far scores are lower and sharper, so that every range of distances has its share",
    .pattern = "rotary:share=0.5:tau=10",
};
