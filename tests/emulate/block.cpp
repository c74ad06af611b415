// block.cpp - the blocks of a grid, one after another, with their threads as fibers
//
// A fiber is a stack. It runs the threads that it is given, one in each block, and returns to the
// scheduler where a thread waits or ends. A waiting thread watches a counter; when another thread
// has changed it, the thread may continue. If no thread of a block may continue, the block hangs:
// that is reported, and like a real GPU the device is unusable from then on.
#include "emulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{

enum {
    WARP = 32,
    THREADS_MAX = 1024,
    STACK_BYTES = 256 << 10,
    WARPS = 4, // of a warpgroup
    BARRIERS = emulate::OWN_BARRIERS + THREADS_MAX / WARP / WARPS,
    MEETINGS = 16,                // different masks in a kernel
    SHARED_BY_DEFAULT = 48 << 10, // bytes that a kernel may have without asking for more
};

// ---- stacks

struct stack {
    void *top; // where it was left, and its registers are
    char *bottom;
};

#if defined __x86_64__
// Saves the registers that a call preserves on this stack, and continues on another one.
extern "C" void switch_stacks(void **from, void *to);
asm(".text\n"
    ".type switch_stacks, @function\n"
    "switch_stacks:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n"
    "mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    "ret\n"
    ".size switch_stacks, . - switch_stacks\n");

// Stacks that began at the same place of a page would take each other's lines of the cache.
void prepare(struct stack *s, int number, void (*entry)())
{
    const int registers = 6;
    char *first = s->bottom + STACK_BYTES - number * 448 % 16384;
    void **top = (void **)first - 2; // entry finds the alignment of a call

    *top = (void *)entry;
    s->top = top - registers;
    memset(s->top, 0, registers * sizeof *top);
}
#else
#error "the emulated GPU needs the switch of stacks of this processor; see CMakeLists.txt"
#endif

// Continues on `to`. The address sanitizer must know on which stack the program is.
void continue_on(struct stack *from, struct stack *to)
{
#if defined __SANITIZE_ADDRESS__
    void *fake = NULL;

    __sanitizer_start_switch_fiber(&fake, to->bottom, STACK_BYTES);
    switch_stacks(&from->top, to->top);
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#else
    switch_stacks(&from->top, to->top);
#endif
}

// ---- threads, warps and the block that runs

typedef std::vector<std::function<void()>> group;

// Work that a thread has started.
struct started {
    group last; // not yet committed
    std::deque<group> committed;
};

struct thread {
    struct stack stack;
    uint3 index;
    bool ended;
    const unsigned *watched; // NULL: may run
    unsigned seen;           // the thread waits while *watched has this value
    unsigned late;           // held back as the n-th of the block; 0: it is not
    struct started queues[emulate::QUEUES];
};

// Lanes of a mask that meet. Two rows of offers: a lane may come to the next meeting while another
// still reads the last one.
struct meeting {
    unsigned mask, arrived, count;
    emulate::offer offers[2][WARP];
};

struct warp {
    unsigned alive; // lanes
    int meetings;   // so many masks so far
    struct meeting meeting[MEETINGS];
};

struct barrier {
    unsigned count; // how often it has opened
    int arrived, truths[2];
};

struct thread threads[THREADS_MAX], *current; // NULL: the scheduler runs
struct warp warps[THREADS_MAX / WARP];
struct barrier barriers[BARRIERS]; // the first one is __syncthreads()
struct stack scheduler;
std::vector<std::function<void()>> loads; // that have started
unsigned order;                           // how many blocks there have been
unsigned held_back;                       // threads of this block, so far
int alive, block_threads;
const char *broken; // why the device is unusable
char *shared_memory;
size_t shared_bytes;
void (*kernel_call)(void *);
void *kernel_arguments;
std::mutex one_at_a_time;
std::map<const void *, size_t> allowed_shared; // by kernel, where it asked for more

int number_of(const struct thread *t)
{
    return (int)(t - threads);
}

struct warp &own_warp()
{
    return warps[number_of(current) / WARP];
}

void wait_for(const unsigned *count)
{
    current->watched = count;
    current->seen = *count;
    continue_on(&current->stack, &scheduler);
    current->watched = NULL;
}

void open(struct barrier *b)
{
    b->count++;
    b->arrived = 0;
    b->truths[b->count & 1] = 0;
}

bool close_if_all_came(struct meeting *m, unsigned alive_lanes)
{
    if (m->arrived == 0 || (m->mask & alive_lanes & ~m->arrived) != 0)
        return false;
    m->arrived = 0;
    m->count++;
    return true;
}

// Nobody waits for a thread that has ended.
void end_thread()
{
    struct warp &w = own_warp();

    current->ended = true;
    for (struct started &queue : current->queues) {
        queue.last.clear();
        queue.committed.clear();
    }
    alive--;
    w.alive &= ~(1u << emulate::lane());
    for (int i = 0; i < w.meetings; i++)
        close_if_all_came(&w.meeting[i], w.alive);
    if (barriers[0].arrived > 0 && barriers[0].arrived == alive)
        open(&barriers[0]);
}

// The life of a fiber: a thread in each block.
void run_threads()
{
#if defined __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    for (;;) {
        kernel_call(kernel_arguments);
        end_thread();
        continue_on(&current->stack, &scheduler);
    }
}

void begin_block(uint3 index)
{
    blockIdx = index;
    alive = block_threads;
    memset(shared_memory, 0xff, shared_bytes);
    memset(barriers, 0, sizeof barriers);
    loads.clear();
    held_back = 0;
    for (int w = 0; w * WARP < block_threads; w++) {
        const int lanes = block_threads - w * WARP < WARP ? block_threads - w * WARP : (int)WARP;
        warps[w].alive = lanes == WARP ? ~0u : (1u << lanes) - 1;
        warps[w].meetings = 0;
    }
    for (int i = 0; i < block_threads; i++) {
        const unsigned n = (unsigned)i;
        struct thread *t = &threads[i];
        t->index = { n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y };
        t->ended = false;
        t->watched = NULL;
        t->late = 0;
        if (!t->stack.bottom) {
            t->stack.bottom = (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            // Its last page faults: a deeper call must not reach the stack of another thread.
            if (t->stack.bottom == MAP_FAILED ||
                mprotect(t->stack.bottom, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE) != 0) {
                perror("the stack of an emulated thread");
                abort();
            }
            prepare(&t->stack, i, run_threads);
        }
    }
}

// Runs the threads of a warp that may run, each until it waits; false: there were none.
bool run_warp(int warp, bool descending)
{
    bool moved = false;

    for (int i = 0; i < WARP && !broken; i++) {
        const int n = warp * WARP + (descending ? WARP - 1 - i : i);
        struct thread *t = &threads[n];
        if (n >= block_threads || t->ended || t->late || (t->watched && *t->watched == t->seen))
            continue;
        current = t;
        threadIdx = t->index;
        continue_on(&scheduler, &t->stack);
        current = NULL;
        moved = true;
    }
    return moved;
}

// Runs the warps of a warpgroup as long as one of them can; false: none could.
bool run_warpgroup(int number, int warps_in_block, bool descending)
{
    const int first = number * WARPS, end = std::min(first + WARPS, warps_in_block);
    bool moved = false, moves = true;

    while (moves) {
        moves = false;
        for (int i = first; i < end; i++)
            while (run_warp(descending ? end - 1 - (i - first) : i, descending))
                moved = moves = true;
    }
    return moved;
}

// Lets the warp continue that was held back last; false: there is none.
bool release_warp()
{
    struct thread *last = &threads[0];

    for (int i = 0; i < block_threads; i++)
        if (threads[i].late > last->late)
            last = &threads[i];
    if (last->late == 0)
        return false;
    for (int i = number_of(last) / WARP * WARP, end = i + WARP; i < end; i++)
        threads[i].late = 0;
    return true;
}

// Runs threads in ascending or descending order until all have ended. A warpgroup runs only when
// those before it cannot continue, so warpgroups that need not wait for each other drift as far
// apart as possible. If none can continue, a load arrives, the newest first: TMA promises no order.
// A warp that is held back continues when there is no such load either.
void run_block(uint3 index)
{
    const int count = (block_threads + WARP - 1) / WARP, groups = (count + WARPS - 1) / WARPS;
    const bool descending = order & 1;

    begin_block(index);
    while (alive > 0 && !broken) {
        bool moved = false;
        for (int i = 0; i < groups && !moved; i++)
            moved = run_warpgroup(descending ? groups - 1 - i : i, count, descending);
        if (moved || broken)
            continue;
        if (!loads.empty()) {
            loads.back()();
            loads.pop_back();
        } else if (!release_warp()) {
            broken = "threads of a block wait for each other at different barriers";
        }
    }
    if (!loads.empty() && !broken)
        broken = "a block ends while TMA still loads into its shared memory";
    order++;
}

} // namespace

namespace emulate
{

void break_device(const char *why)
{
    broken = why;
    if (current)
        continue_on(&current->stack, &scheduler);
}

void wait_for_change(const unsigned *count)
{
    wait_for(count);
}

unsigned lane()
{
    return (unsigned)(number_of(current) % WARP);
}

const offer *meet(unsigned mask, const offer &mine)
{
    struct warp &w = own_warp();
    struct meeting *m = w.meeting;

    if (!(mask >> lane() & 1))
        break_device("a lane is not in the mask of its own operation");
    while (m < w.meeting + w.meetings && m->mask != mask)
        m++;
    if (m == w.meeting + w.meetings) {
        if (++w.meetings > MEETINGS)
            break_device("a kernel has more masks than the emulation has room for");
        m->mask = mask;
        m->arrived = m->count = 0;
    }
    offer *offers = m->offers[m->count & 1];
    offers[lane()] = mine;
    m->arrived |= 1u << lane();
    if (!close_if_all_came(m, w.alive))
        wait_for(&m->count);
    return offers;
}

int meet_block(bool mine)
{
    struct barrier *b = &barriers[0];
    const int *truths = &b->truths[b->count & 1];

    b->truths[b->count & 1] += mine;
    if (++b->arrived == alive)
        open(b);
    else
        wait_for(&b->count);
    return *truths;
}

void meet_at(int id, int count, bool waits)
{
    struct barrier *b = &barriers[id];

    if (++b->arrived == count)
        open(b);
    else if (waits)
        wait_for(&b->count);
}

char *dynamic_shared()
{
    return shared_memory;
}

uint32_t shared_offset(const void *at)
{
    return (uint32_t)((const char *)at - shared_memory);
}

char *shared_at(uint32_t offset, size_t bytes)
{
    if (offset + bytes > shared_bytes)
        break_device("an address is outside of shared memory");
    return shared_memory + offset;
}

void start(enum queue queue, std::function<void()> work)
{
    current->queues[queue].last.push_back(std::move(work));
}

void commit(enum queue queue)
{
    struct started &q = current->queues[queue];

    q.committed.push_back(std::move(q.last));
    q.last.clear();
}

void finish(enum queue queue, int pending)
{
    std::deque<group> &committed = current->queues[queue].committed;

    for (; (int)committed.size() > pending; committed.pop_front())
        for (const std::function<void()> &work : committed.front())
            work();
}

void start_load(std::function<void()> load)
{
    loads.push_back(std::move(load));
}

bool products_are_late()
{
    return order & 2;
}

bool copies_are_late()
{
    return order & 4;
}

void come_late()
{
    if (!(order & 8) || number_of(current) / WARP % WARPS < WARPS - 1)
        return;
    current->late = ++held_back;
    continue_on(&current->stack, &scheduler);
}

// As on an H100, on a workstation's GPU, and on an A100.
size_t shared_limit()
{
    return (size_t)(getenv("ALIBI_EMULATE_HOPPER")  ? 227
                    : getenv("ALIBI_EMULATE_SMALL") ? 99
                                                    : 163)
           << 10;
}

cudaError_t allow_shared(const void *kernel, size_t bytes)
{
    std::lock_guard<std::mutex> lock(one_at_a_time);

    if (bytes > shared_limit())
        return cudaErrorInvalidValue;
    allowed_shared[kernel] = bytes;
    return cudaSuccess;
}

cudaError_t run_grid(const void *kernel, dim3 grid, dim3 block, size_t shared, void (*call)(void *),
                     void *arguments)
{
    std::lock_guard<std::mutex> lock(one_at_a_time);
    const size_t allowed =
        allowed_shared.count(kernel) ? allowed_shared[kernel] : (size_t)SHARED_BY_DEFAULT;
    const uint64_t size = (uint64_t)block.x * block.y * block.z;

    if (broken)
        return cudaErrorLaunchFailure;
    if (size == 0 || size > THREADS_MAX || shared > allowed || grid.x == 0 || grid.y == 0 ||
        grid.z == 0 || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    // In memory of its own, so that the address sanitizer sees its end.
    if (posix_memalign((void **)&shared_memory, 1024, shared > 0 ? shared : 1) != 0)
        return cudaErrorMemoryAllocation;
    shared_bytes = shared;
    block_threads = (int)size;
    gridDim = grid;
    blockDim = block;
    kernel_call = call;
    kernel_arguments = arguments;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x && !broken; x++)
                run_block({ x, y, z });
    free(shared_memory);
    return broken ? cudaErrorLaunchFailure : cudaSuccess;
}

const char *why_broken()
{
    return broken;
}

} // namespace emulate
