/* ranks.h - what the files of this room know of a connection */
#ifndef RANKS_H
#define RANKS_H

#include "comm/comm.h"
#include "comm/wire.h"

enum { WIRE_MESSAGE_MAX = 1024 };

struct alibi_comm {
    struct wire wire;
    bool agreed;                        /* on a failure: all ranks end */
    char (*hosts)[WIRE_HOST_MAX];       /* [size] */
    int32_t *statuses;                  /* [size] */
    char (*messages)[WIRE_MESSAGE_MAX]; /* [size] */
};

/* What a function of the wire returned. */
alibi_status wired(const alibi_comm *c, int status);

#endif
