/* cuda_pipeline_primitives.h - asynchronous copies to shared memory on the emulated GPU */
#ifndef CUDA_PIPELINE_PRIMITIVES_H
#define CUDA_PIPELINE_PRIMITIVES_H

#include "emulate.h"

inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes)
{
    emulate::copy_later(to, from, bytes, bytes);
}

inline void __pipeline_commit()
{
    emulate::commit_copies();
}

inline void __pipeline_wait_prior(int pending)
{
    emulate::wait_for_copies(pending);
}

#endif
