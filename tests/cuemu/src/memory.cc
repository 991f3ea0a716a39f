/* Allocations, and copies between them: every address a call names must lie in one. */
#include "graph.h"

#include <cstdlib>
#include <map>
#include <sys/uio.h>
#include <unistd.h>

using namespace cuemu;

namespace
{
struct Range {
    size_t n;
    bool device;
    int owner; /* device memory: whose */
};
std::map<uintptr_t, Range> ranges; /* by start */
uint64_t live_bytes;

const Range *find(const void *p, uintptr_t *start = nullptr)
{
    auto it = ranges.upper_bound((uintptr_t)p);
    if (it == ranges.begin()) return nullptr;
    --it;
    if ((uintptr_t)p >= it->first + it->second.n) return nullptr;
    if (start) *start = it->first;
    return &it->second;
}
void *take(size_t n, bool device)
{
    void *p = nullptr;
    if (posix_memalign(&p, device ? 256 : 64, n ? n : 1)) return nullptr;
    poison(p, n);
    ranges[(uintptr_t)p] = {n ? n : 1, device, device ? current_device() : 0};
    if (device) live_bytes += n;
    return p;
}
cudaError_t give(void *p, bool device)
{
    if (!p) return cudaSuccess;
    auto it = ranges.find((uintptr_t)p);
    if (it == ranges.end() || it->second.device != device) return err(cudaErrorInvalidValue);
    if (device) live_bytes -= it->second.n;
    poison(p, it->second.n);
    ranges.erase(it);
    free(p);
    return cudaSuccess;
}
bool pinned(const void *p)
{
    const Range *r = find(p);
    return r && !r->device;
}
bool check_copy(const void *d, const void *s, size_t n, cudaMemcpyKind k)
{
    bool dd = find(d) && find(d)->device, sd = find(s) && find(s)->device;
    if ((k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice) && n)
        need_device(d, n, "memcpy destination");
    if ((k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice) && n)
        need_device(s, n, "memcpy source");
    if ((k == cudaMemcpyHostToDevice || k == cudaMemcpyHostToHost) && sd && n) return false;
    if ((k == cudaMemcpyDeviceToHost || k == cudaMemcpyHostToHost) && dd && n) return false;
    return true;
}
/* Faults that are planted: CUEMU_FLIP, a device whose memory gets a bit wrong from the host; CUEMU_SLOW, a device to which, and from
 * which, a copy takes a fifth of a second more. */
void worse(void *d, const Range *to, const Range *from)
{
    const int slow = atoi(env("CUEMU_SLOW", "-1")), flip = atoi(env("CUEMU_FLIP", "-1"));
    auto on = [](const Range *r, int device) { return r && r->device && r->owner == device; };
    if (on(to, slow) || on(from, slow)) usleep(200000);
    if (on(to, flip) && !(from && from->device)) *(char *)d = (char)(*(char *)d ^ 1);
}
cudaError_t copy(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t st, bool sync)
{
    Lock l(mu);
    if (!n) return cudaSuccess;
    if (!check_copy(d, s, n, k)) return err(cudaErrorInvalidMemcpyDirection);
    bool sdev = find(s) && find(s)->device, ddev = find(d) && find(d)->device;
    Ref o;
    /* Pageable memory is read, or written, while the call waits. */
    if (stream_of(st)->capture && (sync || (!sdev && !pinned(s)) || (!ddev && !pinned(d))))
        return capture_break(stream_of(st), cudaErrorStreamCaptureUnsupported);
    if (!sdev && !pinned(s)) { /* pageable: staged before the call returns */
        auto tmp = std::make_shared<std::vector<char>>((const char *)s, (const char *)s + n);
        saw_read(s, n);
        o = add(st, "memcpy (pageable)", [d, n, tmp = std::move(tmp)] {
            memcpy(d, tmp->data(), n);
            return true;
        });
    } else
        o = add(st, "memcpy", [=] {
            memcpy(d, s, n);
            worse(d, find(d), find(s));
            return true;
        });
    if (sync || (!ddev && !pinned(d))) force(o); /* where nothing is captured */
    return cudaSuccess;
}
} // namespace

namespace cuemu
{
size_t device_bytes()
{
    return (size_t)atol(env("CUEMU_MEM_MB", "4096")) << 20;
}
bool in_device(const void *p, size_t n)
{
    uintptr_t a;
    const Range *r = find(p, &a);
    return r && r->device && (uintptr_t)p + n <= a + r->n;
}
void need_device(const void *p, size_t n, const char *what)
{
    std::unique_lock<std::recursive_mutex> l(mu, std::defer_lock);
    if (!in_op) l.lock();
    if (!in_device(p, n)) fault("cuda", 0, "%s: %p..+%zu is not inside one device allocation", what, p, n);
}
} // namespace cuemu

namespace
{
/* What cudaIpcMemHandle_t says here. A process that opens one gets the bytes as they are then: what is written there later, by either
 * side, does not show. */
struct Offered {
    pid_t pid;
    uintptr_t at;
    size_t n;
};
} // namespace

extern "C" {
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    Lock l(mu);
    auto it = ranges.find((uintptr_t)p);
    if (it == ranges.end() || !it->second.device) return err(cudaErrorInvalidValue);
    sync_all();
    const Offered o = {getpid(), (uintptr_t)p, it->second.n};
    memset(h, 0, sizeof *h);
    memcpy(h, &o, sizeof o);
    return cudaSuccess;
}
/* CUEMU_APART=1: as where the other process's device is out of reach. */
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned)
{
    Lock l(mu);
    Offered o;
    memcpy(&o, &h, sizeof o);
    if (o.pid == getpid()) return err(cudaErrorDeviceUninitialized); /* as CUDA does */
    if (atoi(env("CUEMU_APART", "0"))) return err(cudaErrorMapBufferObjectFailed);
    *p = take(o.n, true);
    if (!*p) return err(cudaErrorMemoryAllocation);
    iovec here = {*p, o.n}, there = {(void *)o.at, o.n};
    if (process_vm_readv(o.pid, &here, 1, &there, 1, 0) == (ssize_t)o.n) return cudaSuccess;
    give(*p, true);
    return err(cudaErrorMapBufferObjectFailed);
}
cudaError_t cudaIpcCloseMemHandle(void *p)
{
    Lock l(mu);
    sync_all();
    return give(p, true);
}
cudaError_t cudaMemGetInfo(size_t *f, size_t *t)
{
    Lock l(mu);
    *t = device_bytes();
    *f = *t > live_bytes ? *t - live_bytes : 0;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t n)
{
    Lock l(mu);
    if (cudaError_t e = capture_refuses()) return e;
    if (live_bytes + n > device_bytes()) {
        *p = nullptr;
        return err(cudaErrorMemoryAllocation);
    }
    *p = take(n, true);
    return *p ? cudaSuccess : err(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void *p)
{
    Lock l(mu);
    if (cudaError_t e = capture_refuses()) return e;
    if (p) sync_all();
    return give(p, true);
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
    return cudaMalloc(p, n);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    Lock l(mu);
    add(s, "free", [=] { return give(p, true), true; });
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
    Lock l(mu);
    if (cudaError_t e = capture_refuses()) return e;
    *p = take(n, false);
    return *p ? cudaSuccess : err(cudaErrorMemoryAllocation);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    return cudaMallocHost(p, n);
}
cudaError_t cudaFreeHost(void *p)
{
    Lock l(mu);
    if (cudaError_t e = capture_refuses()) return e;
    if (p) sync_all();
    return give(p, false);
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    Lock l(mu);
    ranges[(uintptr_t)p] = {n, false, 0};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    Lock l(mu);
    return ranges.erase((uintptr_t)p) ? cudaSuccess : err(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind k)
{
    return copy(d, s, n, k, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t st)
{
    return copy(d, s, n, k, st, false);
}
cudaError_t cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t st)
{
    Lock l(mu);
    need_device(d, n, "peer copy's destination");
    need_device(s, n, "peer copy's source");
    if (find(d)->owner != dd || find(s)->owner != sd) return err(cudaErrorInvalidDevice);
    return copy(d, s, n, cudaMemcpyDeviceToDevice, st, false);
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h,
                              cudaMemcpyKind k, cudaStream_t st)
{
    if (w > dp || w > sp) return err(cudaErrorInvalidPitchValue);
    for (size_t i = 0; i < h; i++) {
        cudaError_t e = copy((char *)d + i * dp, (const char *)s + i * sp, w, k, st, false);
        if (e) return e;
    }
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t s)
{
    Lock l(mu);
    need_device(d, n, "memset");
    add(s, "memset", [=] {
        memset(d, v, n);
        return true;
    });
    return cudaSuccess;
}
cudaError_t cudaMemset(void *d, int v, size_t n)
{
    return cudaMemsetAsync(d, v, n, nullptr);
}
cudaError_t cudaMemcpyToSymbol(const void *sym, const void *s, size_t n, size_t off, cudaMemcpyKind)
{
    Lock l(mu);
    sync_all();
    memcpy((char *)const_cast<void *>(sym) + off, s, n);
    return cudaSuccess;
}
}
