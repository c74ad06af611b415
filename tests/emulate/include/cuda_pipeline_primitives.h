/* cuda_pipeline_primitives.h - asynchronous copies to shared memory on the emulated GPU */
#ifndef CUDA_PIPELINE_PRIMITIVES_H
#define CUDA_PIPELINE_PRIMITIVES_H

#include "emulate.h"

inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes)
{
    emulate::start(emulate::COPIES, [=] { memcpy(to, from, bytes); });
}

inline void __pipeline_commit()
{
    emulate::commit(emulate::COPIES);
}

inline void __pipeline_wait_prior(int pending)
{
    emulate::finish(emulate::COPIES, pending);
}

#endif
