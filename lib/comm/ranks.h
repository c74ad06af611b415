/* ranks.h - a connection, as the files of this room see it */
#ifndef RANKS_H
#define RANKS_H

#include "comm/comm.h"
#include "comm/watch.h"
#include "comm/wire.h"

enum { WIRE_MESSAGE_MAX = 1024 };

struct alibi_comm {
    struct wire_host host;
    struct wire wire;
    struct watch *watch;
    int lost;                           /* the rank that was found silent, -1: none */
    bool watched;                       /* all ranks gave signs of life at the start */
    bool agreed;                        /* on a failure: all ranks end */
    char (*hosts)[WIRE_HOST_MAX];       /* [size] */
    int32_t *statuses;                  /* [size] */
    char (*messages)[WIRE_MESSAGE_MAX]; /* [size] */
};

/* ---- NCCL (nccl.c) */

struct nccl;
/* rows: any memory of the device. ALIBI_DEVICE, ALIBI_USAGE: why NCCL cannot connect these devices;
 * all ranks get the same. */
alibi_status nccl_new(struct nccl **out, alibi_comm *c, struct device *dev, void *rows);
void nccl_free(struct nccl *n);

/* All these may wait. If another rank is lost, or an exchange does not end in the time of
 * ALIBI_NCCL_TIMEOUT, they end the connection and fail. */

/* Between these two the device's operations go to NCCL's stream, after what the device has been
 * told so far, and the device's own stream does not wait for them. nccl_call() precedes each. */
alibi_status nccl_begins(struct nccl *n);
alibi_status nccl_call(struct nccl *n);
alibi_status nccl_ends(struct nccl *n);
/* As that of the wire, with rows on the device, in NCCL's stream. */
alibi_status nccl_exchange(struct nccl *n, const struct rows *rows);
/* Waits until the work queued before the last exchange is complete: its rows are packed. */
alibi_status nccl_packed(struct nccl *n);
/* All is complete, and the device's later work sees it. */
alibi_status nccl_wait(struct nccl *n);

/* ---- rows of an exchange of numbers of any type (channel.c), which sequence.c packs and unpacks
 */

int64_t channel_room(const struct channel *ch, enum dtype type); /* numbers of a row at most */
/* `count` numbers will go to that rank, or come from it: the row of them, for channel_exchange. */
struct tensor channel_outgoing(struct channel *ch, int rank, enum dtype type, int64_t count);
struct tensor channel_incoming(struct channel *ch, int rank, enum dtype type, int64_t count);
alibi_status channel_exchange(struct channel *ch);

/* A limit from the environment, of which *seconds is the default. */
alibi_status read_limit(const char *variable, double *seconds);

/* The status of what a function of the wire returned. */
alibi_status wired(const alibi_comm *c, int status);

#endif
