/* watch.c - signs of life by UDP
 *
 *   rank r > 0 -> rank 0     "r is alive", to all addresses of rank 0 until one has answered
 *   rank 0 -> rank r         "0 is alive, and s is silent", to where r was heard
 *
 * Nothing is repeated or confirmed: a lost datagram is replaced by the next one. One thread does
 * all of it and owns everything but `silent` and `ending`, and `complete`. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/watch.h"

/* Signs within the limit: this many may be lost in a row. */
enum { SIGNS = 24 };

struct sign {
    uint64_t key;
    int32_t rank;   /* of the sender */
    int32_t silent; /* the rank that rank 0 has found silent, -1: none */
};

struct peer {
    double heard; /* by the clock of the turns, 0: never */
    struct sockaddr_in from;
};

struct watch {
    int rank, size;
    struct watch_place place;
    struct peer *peers; /* [size] */
    int socket, ended;  /* ended: an event that wakes the thread */
    struct worker *worker;
    double ticked; /* when signs were sent last */
    int told;      /* who is silent according to rank 0, -1: nobody */
    atomic_bool ending, complete;
    atomic_int silent;
};

/* ---- sending and hearing */

static void send_sign(struct watch *w, struct sockaddr_in to)
{
    const struct sign sign = { w->place.key, w->rank, atomic_load(&w->silent) };

    sendto(w->socket, &sign, sizeof sign, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

static void send_signs(struct watch *w, double now)
{
    const struct peer *root = &w->peers[0];

    if (w->rank == 0) {
        for (int r = 1; r < w->size; r++)
            if (w->peers[r].heard > 0)
                send_sign(w, w->peers[r].from);
    } else if (root->heard > 0 && now - root->heard < w->place.limit / 4) {
        send_sign(w, root->from);
    } else {
        for (int i = 0; i < w->place.count; i++)
            send_sign(w, (struct sockaddr_in){ .sin_family = AF_INET,
                                               .sin_port = w->place.port,
                                               .sin_addr.s_addr = w->place.address[i] });
    }
}

/* Rank 0 listens to all, the others to rank 0. */
static bool hear(struct watch *w, const struct sign *sign, const struct sockaddr_in *from,
                 double now)
{
    bool first;

    if (sign->key != w->place.key || sign->rank < 0 || sign->rank >= w->size ||
        sign->silent >= w->size || (w->rank == 0) != (sign->rank > 0))
        return false;
    first = w->peers[sign->rank].heard == 0;
    w->peers[sign->rank] = (struct peer){ now, *from };
    w->told = sign->silent;
    if (w->rank == 0 && first)
        send_sign(w, *from); /* it may be waiting for all to be there */
    return true;
}

static int hear_all(struct watch *w, double now)
{
    struct sign sign;
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    bool complete = true;
    int heard = 0;

    while (recvfrom(w->socket, &sign, sizeof sign, MSG_DONTWAIT, (struct sockaddr *)&from,
                    &length) == (ssize_t)sizeof sign) {
        heard += hear(w, &sign, &from, now);
        length = sizeof from;
    }
    for (int r = 0; r < w->size; r++)
        complete &= r == w->rank || (w->rank > 0 && r > 0) || w->peers[r].heard > 0;
    atomic_store(&w->complete, complete);
    return heard;
}

/* ---- the thread */

/* If this process itself was stopped or starved, it could not hear: that is no silence. */
static void forgive_pause(struct watch *w, double now)
{
    double pause = now - w->ticked - 2 * w->place.limit / SIGNS;

    for (int r = 0; w->ticked > 0 && pause > 0 && r < w->size; r++)
        if (w->peers[r].heard > 0)
            w->peers[r].heard = fmin(w->peers[r].heard + pause, now);
}

/* At ranks other than 0 only rank 0 is ever heard. */
static void judge(struct watch *w, double now)
{
    for (int r = 0; r < w->size && atomic_load(&w->silent) < 0; r++)
        if (w->peers[r].heard > 0 && now - w->peers[r].heard > w->place.limit)
            atomic_store(&w->silent, w->told > 0 ? w->told : r);
}

int watch_turn(struct watch *w, double now)
{
    int heard = hear_all(w, now);

    if (now >= w->ticked + w->place.limit / SIGNS) {
        forgive_pause(w, now);
        judge(w, now);
        send_signs(w, now);
        w->ticked = now;
    }
    return heard;
}

static alibi_status watch_on(void *user)
{
    struct watch *w = user;
    struct pollfd events[2] = { { .fd = w->socket, .events = POLLIN },
                                { .fd = w->ended, .events = POLLIN } };

    while (!atomic_load(&w->ending)) {
        double now = clock_seconds();

        watch_turn(w, now);
        poll(events, 2, (int)((w->ticked + w->place.limit / SIGNS - now) * 1000) + 1);
    }
    return ALIBI_OK;
}

/* ---- opening */

/* All addresses of this machine, since nobody knows by which of them a rank reaches it. */
static alibi_status find_place(struct watch *w, double limit, struct watch_place *place)
{
    struct sockaddr_in own = { 0 };
    socklen_t length = sizeof own;
    struct ifaddrs *list = NULL;
    int most = sizeof place->address / sizeof place->address[0];

    *place = (struct watch_place){ .limit = limit };
    if (getsockname(w->socket, (struct sockaddr *)&own, &length) != 0 || getifaddrs(&list) != 0 ||
        getrandom(&place->key, sizeof place->key, 0) != sizeof place->key) {
        freeifaddrs(list);
        return fail(ALIBI_IO, "cannot find the addresses of this machine: %s", strerror(errno));
    }
    place->port = own.sin_port;
    for (const struct ifaddrs *a = list; a && place->count < most; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && a->ifa_flags & IFF_UP)
            place->address[place->count++] =
                ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr.s_addr;
    freeifaddrs(list);
    return ALIBI_OK;
}

alibi_status watch_open(struct watch **out, int rank, int size, double limit,
                        struct watch_place *place)
{
    alibi_status status;
    struct watch *w = NULL;
    struct sockaddr_in any = { .sin_family = AF_INET };

    TRY(NEW_ZERO_ARRAY(&w, 1, "signs of life"));
    w->rank = rank;
    w->size = size;
    w->socket = w->ended = -1;
    w->told = -1;
    atomic_store(&w->silent, -1);
    TRY(NEW_ZERO_ARRAY(&w->peers, size, "signs of life"));
    w->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    w->ended = eventfd(0, EFD_CLOEXEC);
    if (w->socket < 0 || w->ended < 0 || bind(w->socket, (struct sockaddr *)&any, sizeof any) != 0)
        TRY(fail(ALIBI_IO, "cannot open a socket: %s", strerror(errno)));
    if (rank == 0)
        TRY(find_place(w, limit, place));
    w->place = *place;
    TRY(worker_new(&w->worker));
    *out = w;
    w = NULL;
out:
    watch_free(w);
    return status;
}

void watch_start(struct watch *w)
{
    worker_start(w->worker, watch_on, w);
}

bool watch_wait(struct watch *w, double seconds)
{
    const struct timespec moment = { .tv_nsec = 1000000 };

    for (double end = clock_seconds() + seconds; clock_seconds() < end;) {
        if (atomic_load(&w->complete))
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

int watch_silent(const struct watch *w)
{
    return atomic_load_explicit(&w->silent, memory_order_relaxed);
}

double watch_limit(const struct watch *w)
{
    return w->place.limit;
}

void watch_free(struct watch *w)
{
    const uint64_t one = 1;

    if (w == NULL)
        return;
    atomic_store(&w->ending, true);
    if (w->worker && write(w->ended, &one, sizeof one) < 0)
        (void)0; /* the thread ends at its next sign */
    worker_free(w->worker);
    if (w->socket >= 0)
        close(w->socket);
    if (w->ended >= 0)
        close(w->ended);
    mem_free(w->peers);
    mem_free(w);
}
