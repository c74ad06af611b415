/* fake.h - what the libraries share that stand in for a GPU and for NCCL */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>

/* A stream of the GPU that is not there: at most one piece of work waits in it. */
struct fake_stream {
    bool follows;             /* the device's work so far */
    bool (*work)(void *user); /* does what it can; true: it is complete */
    void *user;
};

#endif
