/* runtime.h: what the files that make up the runtime API share. */
#ifndef CUEMU_RUNTIME_H
#define CUEMU_RUNTIME_H
#include "cuemu.h"
#include "internal.h"

#include <memory>
#include <mutex>
#include <vector>

namespace cuemu
{
/* One lock for the whole runtime; held by every call. */
extern std::recursive_mutex mu;
extern thread_local int held;   /* times, by this thread */
extern thread_local bool in_op; /* the lock is held, and TSan thinks another thread runs */
struct Lock {
    explicit Lock(std::recursive_mutex &)
    {
        mu.lock();
        held++;
    }
    ~Lock()
    {
        held--;
        mu.unlock();
    }
    Lock(const Lock &) = delete;
};
void breathe(unsigned us); /* lets other threads have the lock for a while */

/* A piece of work in a stream. */
struct Op {
    const char *name;
    CUstream_st *stream;
    std::vector<std::shared_ptr<Op>> deps;
    std::function<bool()> run;
    bool done = false, started = false;
    double when = 0;
    uint64_t *tags; /* two: submitted, finished */
    Op() : tags(new uint64_t[2]) {}
    ~Op() { delete[] tags; }
};
typedef std::shared_ptr<Op> Ref;

/* stream.cc. add: behind the stream's last work and what it waits for; run may be null. force: runs what
 * it takes. */
Ref add(cudaStream_t s, const char *name, std::function<bool()> run);
void force(Ref o);
void sync_all();

int current_device(); /* of this thread */
/* device.cc. Remembers an error for cudaGetLastError, and returns it. */
cudaError_t err(cudaError_t e);
/* memory.cc */
size_t device_bytes(); /* CUEMU_MEM_MB */
} // namespace cuemu
#endif
