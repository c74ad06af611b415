/* wire.h - the interface between the library and a module that connects processes
 *
 * lib/comm/comm.c loads libalibi_mpi.so and calls its one symbol. The functions are collective: all
 * ranks call them in the same order, unless they say otherwise. Each returns an alibi_status, and
 * records a message if that is not ALIBI_OK. Nothing here needs MPI. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stdint.h>

/* Version of this header. A module of another version is refused. */
enum { WIRE_INTERFACE = 7, WIRE_HOST_MAX = 64 };

struct wire_host {
    int version;
    void (*fail)(int status, const char *message); /* records the message, as fail() does */
    /* Called again and again while a function waits for other ranks. If the status is not ALIBI_OK,
     * a message was recorded, and the function returns it; the connection is of no use then. */
    int (*waiting)(void *user);
    void *user;
};

/* Row r of send, send_counts[r] words of 4 bytes, goes to rank r; row r of receive,
 * receive_counts[r] words, comes from rank r. A row begins `stride` words after the one before;
 * send_stride 0: the same goes to all. */
struct rows {
    const void *send;
    void *receive;
    const int *send_counts, *receive_counts; /* [size] */
    int send_stride, receive_stride;
};

struct wire {
    int rank, size;
    int local_rank;           /* among the ranks of this machine */
    char host[WIRE_HOST_MAX]; /* name of this machine */

    /* `bytes` bytes of rank 0 are copied to all. */
    int (*broadcast)(void *at, int bytes);
    /* all [size][bytes]: each rank has its row, and gets the others. */
    int (*all_gather)(void *all, int bytes);
    /* Each number becomes the sum of those of all ranks. */
    int (*sum)(double *values, int count);
    /* Begins an exchange, and waits until it is complete; one at a time. Other functions may be
     * called in between. */
    int (*exchange)(const struct rows *rows);
    int (*wait)(void);
    /* Not collective, and without waiting: tells all other ranks; *told becomes true if another
     * rank has told. */
    int (*tell)(void);
    int (*ask)(bool *told);
    /* Waits for all ranks, and ends the connection. */
    int (*close)(void);
};

/* `host` must outlive the connection. Once per process. */
#define WIRE_OPEN_SYMBOL "alibi_mpi_open"
typedef int wire_open_function(struct wire *out, const struct wire_host *host);

#endif
