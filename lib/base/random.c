/* random.c - random numbers that are computed, not remembered
 *
 * Philox4x32-10: ten rounds of
 *
 *   (c0, c1, c2, c3)  ->  (hi(M1 c2) ^ c1 ^ k0,  lo(M1 c2),  hi(M0 c0) ^ c3 ^ k1,  lo(M0 c0))
 *
 * with the key (k0, k1) advanced by a Weyl sequence between rounds. Salmon, Moraes, Dror, Shaw:
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011, which also gives the constants. The key
 * is the seed; the counter is (index, stream). */
#include <math.h>

#include "base/base.h"

enum { PHILOX_ROUNDS = 10, FEISTEL_ROUNDS = 16 };

struct random4 random_block(uint64_t seed, uint64_t stream, uint64_t index)
{
    struct random4 c = { { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32) } };
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = 0xD2511F53ull * c.at[0];
        uint64_t p1 = 0xCD9E8D57ull * c.at[2];
        c = (struct random4){ { (uint32_t)(p1 >> 32) ^ c.at[1] ^ k0, (uint32_t)p1,
                                (uint32_t)(p0 >> 32) ^ c.at[3] ^ k1, (uint32_t)p0 } };
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

static uint64_t word(struct random4 r, int pair)
{
    return (uint64_t)r.at[2 * pair + 1] << 32 | r.at[2 * pair];
}

static double unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit(word(random_block(seed, stream, index), 0));
}

/* Box and Muller: sqrt(-2 ln u) cos(2 pi v), u in (0, 1]. */
double random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    struct random4 r = random_block(seed, stream, index);
    double u = 1.0 - unit(word(r, 0));
    double v = unit(word(r, 1));

    return sqrt(-2.0 * log(u)) * cos(2.0 * 3.14159265358979323846 * v);
}

/* The high half of bits * n: each value is off its share by less than n / 2^64. */
uint64_t random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    uint64_t bits = word(random_block(seed, stream, index), 0);

    return (uint64_t)((unsigned __int128)bits * n >> 64);
}

/* A Feistel network permutes pairs of halves whatever its round function is: (left, right) ->
 * (right, left ^ f(right)). Four rounds do for large domains; on a handful of elements the places
 * are equally likely only after a dozen. */
static uint64_t feistel(uint64_t seed, uint64_t stream, uint64_t x, int half)
{
    uint64_t mask = (1ull << half) - 1;
    uint64_t left = x >> half, right = x & mask;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t mixed = left ^ (random_block(seed, stream, round << 32 | right).at[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

/* Walks along the network's cycle until it is back within 0..n-1, which it is after fewer than 4
 * steps on average, since the domain is less than 4 n. As a restriction of a permutation to its
 * returns this is a permutation of 0..n-1. */
uint64_t random_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n)
{
    /* Bits in each half of the smallest domain 2^(2 half) that holds 0..n-1. */
    int half = ((n > 1 ? 64 - __builtin_clzll(n - 1) : 1) + 1) / 2;
    uint64_t x = i;

    if (i >= n)
        return i;
    do
        x = feistel(seed, stream, x, half);
    while (x >= n);
    return x;
}
