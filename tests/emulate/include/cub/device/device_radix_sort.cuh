/* device_radix_sort.cuh - CUB's stable sort on the emulated GPU */
#ifndef DEVICE_RADIX_SORT_CUH
#define DEVICE_RADIX_SORT_CUH

#include <algorithm>
#include <numeric>
#include <vector>

namespace cub
{

struct DeviceRadixSort {
    // By the bits first..last-1 of the keys. temp NULL: only says how much memory it needs.
    template <class Key, class Value>
    static cudaError_t SortPairs(void *temp, size_t &temp_bytes, const Key *keys, Key *sorted_keys,
                                 const Value *values, Value *sorted_values, int count, int first,
                                 int last, cudaStream_t)
    {
        const Key mask = (Key)(((uint64_t)1 << last) - ((uint64_t)1 << first));
        std::vector<int> order((size_t)count);

        if (!temp) {
            temp_bytes = 1;
            return cudaSuccess;
        }
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return (keys[a] & mask) < (keys[b] & mask); });
        for (int i = 0; i < count; i++) {
            sorted_keys[i] = keys[order[(size_t)i]];
            sorted_values[i] = values[order[(size_t)i]];
        }
        return cudaSuccess;
    }
};

} // namespace cub

#endif
