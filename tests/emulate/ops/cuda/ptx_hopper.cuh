// ptx_hopper.cuh - the functions of lib/ops/cuda/ptx_hopper.cuh on the emulated GPU
//
// A product of wgmma and a copy of TMA have two times at which they may go wrong. In some blocks
// they happen when they start: an operand that is not there yet, or a stage that others still
// read, shows. In others they happen when they are waited for: a result that is used too soon, or
// an operand that was overwritten, shows. A load of TMA then arrives when no thread can continue.
// Not found: fences that are missing.
#ifndef PTX_HOPPER_CUH
#define PTX_HOPPER_CUH

#include <cuda.h>

#include <vector>

#include "ops/cuda/ptx.cuh"

#define HAS_WGMMA 1

// ---- wgmma

// An operand in shared memory, by the fields of its descriptor: PTX ISA, "matrix descriptor", for
// bf16 in the 128-byte swizzle. Rows of 128 bytes are in groups of 8, `stride` bytes apart.
// K-major: a row has numbers along k. MN-major: a row is one k, and has 64 of the operand's rows;
// the next 64 are `leading` bytes on.
struct operand {
    uint32_t at, leading, stride;
    bool mn_major;

    operand(uint64_t descriptor, bool mn_major)
        : at((uint32_t)(descriptor & 0x3fff) << 4),
          leading((uint32_t)(descriptor >> 16 & 0x3fff) << 4),
          stride((uint32_t)(descriptor >> 32 & 0x3fff) << 4), mn_major(mn_major)
    {
        if (descriptor >> 62 != 1)
            emulate::break_device("the swizzle of an operand of wgmma is not that of 128 bytes");
    }

    uint32_t place(int row, int k) const
    {
        const uint32_t r = (uint32_t)(mn_major ? k : row), c = (uint32_t)(mn_major ? row : k);

        return at + c / 64 * leading + r / 8 * stride + r % 8 * 128 + c % 64 * 2;
    }
};

// The swizzle is one of addresses: bits 4 to 6 change with bits 7 to 9.
inline uint32_t swizzled(uint32_t place)
{
    return place ^ (place >> 7 & 7) << 4;
}

// The 16 numbers of a row of an operand.
inline void read_row(float (&to)[16], const operand &o, int row)
{
    const char *shared = emulate::dynamic_shared();

    emulate::shared_at(swizzled(o.place(row, 0)), sizeof(uint16_t));
    emulate::shared_at(swizzled(o.place(row, 15)), sizeof(uint16_t));
    for (int k = 0; k < 16; k++)
        to[k] = bf16_to_float(*(const uint16_t *)(shared + swizzled(o.place(row, k))));
}

// B of a product, for all lanes of a warp: those with the same lane % 4 compute the same columns,
// two of each 8. Two of them: a lane may begin the next product while another computes.
template <int N> struct shared_operand {
    float columns[4][16][N / 4];
};

// Each lane reads some rows of B. Then the thread's elements of d follow from its rows of A, which
// left(half, k) gives once all lanes are here: see hopper.cuh.
template <int N, class Left>
void multiply(float (&d)[N / 2], const operand &b, const emulate::offer &mine, Left left,
              bool accumulate)
{
    static shared_operand<N> operands[32][2];
    static unsigned counts[1024];
    const int lane = (int)emulate::lane();
    shared_operand<N> &right = operands[threadIdx.x / 32][counts[threadIdx.x]++ % 2];
    float sums[2][N / 4] = {};

    for (int row = lane; row < N; row += 32) {
        float numbers[16];
        read_row(numbers, b, row);
        for (int k = 0; k < 16; k++)
            right.columns[row % 8 / 2][k][row / 8 * 2 + row % 2] = numbers[k];
    }
    const emulate::offer *all = emulate::meet(~0u, mine);
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 16; k++) {
            const float a = left(all, half, k), *columns = right.columns[lane % 4][k];
            for (int j = 0; j < N / 4; j++)
                sums[half][j] += a * columns[j];
        }
    for (int i = 0; i < N / 2; i++)
        d[i] = (accumulate ? d[i] : 0.0f) + sums[i / 2 % 2][i / 4 * 2 + i % 2];
}

// All lanes meet first, so their products start together.
inline void start_product(std::function<void()> product)
{
    __syncwarp();
    if (emulate::products_are_late())
        emulate::start(emulate::PRODUCTS, product);
    else
        product();
}

template <int N, int TA, int TB>
void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)
{
    start_product([&d, a, b, accumulate] {
        const int row = (int)threadIdx.x % 128 / 32 * 16 + (int)emulate::lane() / 4;
        float rows[2][16];
        read_row(rows[0], operand(a, TA), row);
        read_row(rows[1], operand(a, TA), row + 8);
        auto left = [&](const emulate::offer *, int half, int k) { return rows[half][k]; };
        multiply<N>(d, operand(b, TB), {}, left, accumulate);
    });
}

// Lanes 4 g to 4 g + 3 have the rows g and g + 8.
template <int N, int TB>
void wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int accumulate)
{
    start_product([&d, &a, b, accumulate] {
        const int first = (int)emulate::lane() / 4 * 4;
        auto left = [=](const emulate::offer *all, int half, int k) {
            return half_of(all[first + k / 2 % 4].words[2 * (k / 8) + half], k % 2);
        };
        multiply<N>(d, operand(b, TB), { { a[0], a[1], a[2], a[3] } }, left, accumulate);
    });
}

inline void wgmma_fence()
{
}

inline void wgmma_commit()
{
    emulate::commit(emulate::PRODUCTS);
}

// A product is that of all four warps.
template <int PENDING> void wgmma_wait()
{
    emulate::finish(emulate::PRODUCTS, PENDING);
    emulate::meet_at(emulate::OWN_BARRIERS + (int)threadIdx.x / 128, 128, true);
}

template <class T> void fence_fragment(T &)
{
}

inline void fence_async_proxy()
{
}

template <int REGISTERS> void setmaxnreg_dec()
{
}

template <int REGISTERS> void setmaxnreg_inc()
{
}

inline void store_matrices(uint32_t row, const uint32_t (&m)[4])
{
    const emulate::offer *all = emulate::meet(~0u, { { m[0], m[1], m[2], m[3] } });
    uint32_t *to = (uint32_t *)emulate::shared_at(row, 16);
    const int lane = (int)emulate::lane();

    for (int i = 0; i < 4; i++)
        to[i] = all[4 * (lane % 8) + i].words[lane / 8];
}

// ---- barriers

template <int THREADS> void named_barrier_sync(int id)
{
    emulate::meet_at(id, THREADS, true);
}

template <int THREADS> void named_barrier_arrive(int id)
{
    emulate::meet_at(id, THREADS, false);
}

// The votes are counted until all have come, and cleared when all have read them.
template <int THREADS> bool named_barrier_all(int id, bool mine)
{
    static int against[emulate::OWN_BARRIERS];

    against[id] += !mine;
    emulate::meet_at(id, THREADS, true);
    const bool all = against[id] == 0;
    emulate::meet_at(id, THREADS, true);
    against[id] = 0;
    emulate::meet_at(id, THREADS, true);
    return all;
}

struct mbarrier {
    unsigned phase;
    uint8_t arrivals, missing; // of each phase; of this one
    uint16_t chunks;           // of 16 bytes that TMA still has to bring
};
static_assert(sizeof(mbarrier) == sizeof(uint64_t), "as on the GPU");

inline void mbarrier_init(mbarrier *b, int arrivals)
{
    *b = { 0, (uint8_t)arrivals, (uint8_t)arrivals, 0 };
}

inline void mbarrier_count(mbarrier *b, int arrivals, int chunks)
{
    if (b->missing < arrivals || b->chunks + chunks < 0)
        emulate::break_device("an mbarrier counts more than it expects");
    b->missing = (uint8_t)(b->missing - arrivals);
    b->chunks = (uint16_t)(b->chunks + chunks);
    if (b->missing == 0 && b->chunks == 0) {
        b->missing = b->arrivals;
        b->phase++;
    }
}

inline void mbarrier_arrive(mbarrier *b)
{
    mbarrier_count(b, 1, 0);
}

inline void mbarrier_arrive_expect_tx(mbarrier *b, uint32_t bytes)
{
    mbarrier_count(b, 1, (int)bytes / 16);
}

inline void mbarrier_wait(mbarrier *b, uint32_t parity)
{
    emulate::come_late();
    while ((b->phase & 1) == parity)
        emulate::wait_for_change(&b->phase);
}

// ---- TMA

// A GPU stops with an illegal instruction unless this holds.
inline void check_box(uint32_t panel, int d)
{
    if (panel % 128 != 0 || d % 8 != 0)
        emulate::break_device("a box of TMA is not aligned: in shared memory to 128 bytes, in the "
                              "view to 16");
}

// A row of the box at a time. Outside of the view there are zeros.
inline void load_box(uint32_t panel, const CUtensorMap &map, mbarrier *full, const int (&first)[4])
{
    const uint32_t bytes = map.box[0] * (uint32_t)sizeof(uint16_t);

    for (uint32_t r = 0; r < map.box[2]; r++) {
        const int64_t at[4] = { first[0], first[1], first[2] + (int64_t)r, first[3] };
        const char *from = map.data;
        bool inside = true;
        for (int n = 0; n < 4; n++) {
            inside = inside && (n == 0 || (at[n] >= 0 && at[n] < (int64_t)map.size[n]));
            from += at[n] * map.stride[n];
        }
        for (uint32_t i = 0; i < bytes; i += sizeof(uint16_t)) {
            uint16_t x = 0;
            if (inside && at[0] + i / sizeof x < map.size[0])
                memcpy(&x, from + i, sizeof x);
            memcpy(emulate::dynamic_shared() + swizzled(panel + r * bytes + i), &x, sizeof x);
        }
    }
    mbarrier_count(full, 0, -(int)(map.box[2] * bytes / 16));
}

inline void tma_load(void *panel, const CUtensorMap *map, mbarrier *full, int d, int h, int l,
                     int batch)
{
    const CUtensorMap copy = *map; // the thread may end first
    const uint32_t bytes = map->box[0] * map->box[2] * (uint32_t)sizeof(uint16_t);
    auto load = [=] { load_box(shared_address(panel), copy, full, { d, h, l, batch }); };

    check_box(shared_address(panel), d);
    emulate::shared_at(shared_address(panel), bytes);
    if (emulate::copies_are_late())
        emulate::start_load(load);
    else
        load();
}

// Reads shared memory, and writes: each at once, or when it is waited for.
inline void start_store(float *to, const float *from, uint32_t bytes, bool adds)
{
    auto written = [=](const std::vector<float> &read) {
        for (size_t i = 0; i < read.size(); i++)
            to[i] = adds ? to[i] + read[i] : read[i];
    };
    auto read = [=] { return std::vector<float>(from, from + bytes / sizeof *from); };

    if ((uintptr_t)to % 16 != 0 || shared_address(from) % 16 != 0 || bytes % 16 != 0)
        emulate::break_device("a run of TMA is not aligned to 16 bytes");
    emulate::shared_at(shared_address(from), bytes);
    if (!emulate::copies_are_late())
        written(read());
    else
        emulate::start(emulate::STORES_READ, [=] {
            auto numbers = read();
            emulate::start(emulate::STORES_WRITTEN, [=] { written(numbers); });
        });
}

inline void tma_store(float *to, const float *from, uint32_t bytes)
{
    start_store(to, from, bytes, false);
}

inline void tma_reduce_add(float *to, const float *from, uint32_t bytes)
{
    start_store(to, from, bytes, true);
}

inline void tma_store_commit()
{
    emulate::commit(emulate::STORES_READ);
}

inline void tma_store_wait_read()
{
    emulate::finish(emulate::STORES_READ, 0);
    emulate::commit(emulate::STORES_WRITTEN);
}

inline void tma_store_wait()
{
    tma_store_wait_read();
    emulate::finish(emulate::STORES_WRITTEN, 0);
}

// ---- semaphores: a block runs when those before it have ended

inline void semaphore_wait_tma(const int *semaphore, int order)
{
    if (*semaphore < order)
        emulate::break_device("a block waits for the semaphore of one that comes after it");
}

inline void semaphore_release_tma(int *semaphore)
{
    ++*semaphore;
}

// ---- numbers

inline float max_or_nan(float a, float b)
{
    return a > b || isnan(a) ? a : b;
}

#endif
