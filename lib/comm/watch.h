/* watch.h - heartbeats: which rank no longer answers
 *
 * MPI does not report that a machine or its network has failed: other ranks wait for it for
 * minutes, or forever. So a thread of each rank sends a datagram to rank 0 a few times a second,
 * and rank 0 answers, whatever else the processes do meanwhile. A rank from which nothing arrives
 * within the limit is silent. Rank 0 detects it and should end. Only if that does not end the
 * others too, they find rank 0 silent after the limit, and know from it which rank was silent
 * first.
 *
 * The datagrams go by UDP over IPv4. If a firewall drops them, the ranks never hear of each other;
 * a rank that was never heard is not judged. */
#ifndef WATCH_H
#define WATCH_H

#include "base/base.h"

struct watch;

/* How the others reach rank 0: plain bytes, which rank 0 sends to them by other means. */
struct watch_place {
    uint64_t key; /* of these ranks: datagrams of others are ignored */
    double limit; /* of rank 0, which holds for all */
    uint32_t address[16];
    uint16_t port; /* as the address in the order of the network */
    uint16_t count;
};

/* Rank 0 fills in *place, the others must have it from there. limit: in seconds. */
alibi_status watch_open(struct watch **out, int rank, int size, double limit,
                        struct watch_place *place);
/* From here on a thread takes the turns, by clock_seconds(). */
void watch_start(struct watch *w);
/* A turn: hears what has come, and sends and judges if it is time. Returns how many signs it heard.
 * Only for those who have no thread, and a clock of their own. */
int watch_turn(struct watch *w, double now);
/* Waits, at most `seconds`, until rank 0 has heard of all ranks, and others of rank 0. */
bool watch_wait(struct watch *w, double seconds);
/* The rank that is silent, -1: none is. From any thread, and fast. */
int watch_silent(const struct watch *w);
double watch_limit(const struct watch *w);
void watch_free(struct watch *w); /* NULL is fine */

#endif
