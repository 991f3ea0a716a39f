/* The device as the runtime describes it, and the error of the last call. */
#include "runtime.h"

#include <cstdlib>
#include <set>

using namespace cuemu;

static cudaError_t last_error;
static thread_local int current;
static std::set<std::pair<int, int>> reaches; /* device, peer */

static int devices()
{
    return atoi(env("CUEMU_DEVICES", "1"));
}
int cuemu::current_device()
{
    return current;
}
cudaError_t cuemu::err(cudaError_t e)
{
    if (e) last_error = e;
    return e;
}

extern "C" {
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = devices();
    return *n ? cudaSuccess : err(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int d)
{
    if (d < 0 || d >= devices()) return err(cudaErrorInvalidDevice);
    current = d;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *d)
{
    *d = current;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int d)
{
    if (d < 0 || d >= devices()) return err(cudaErrorInvalidDevice);
    snprintf(id, (size_t)size, "FFFF:%02X:00.0", d); /* no machine has it */
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int d, int peer)
{
    if (d < 0 || d >= devices() || peer < 0 || peer >= devices()) return err(cudaErrorInvalidDevice);
    *can = d != peer;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    Lock l(mu);
    if (peer < 0 || peer >= devices() || peer == current) return err(cudaErrorInvalidDevice);
    return reaches.insert({current, peer}).second ? cudaSuccess : err(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof *p);
    strcpy(p->name, "cuemu (GH200 shape)");
    p->major = 9;
    p->multiProcessorCount = atoi(env("CUEMU_SMS", "4"));
    p->totalGlobalMem = device_bytes();
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = 232448;
    p->sharedMemPerMultiprocessor = 233472;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->warpSize = 32;
    p->l2CacheSize = 60 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int)
{
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    switch ((int)a) {
    case cudaDevAttrMultiProcessorCount: *v = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *v = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 232448; break;
    default: return err(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t e)
{
    static char b[64];
    snprintf(b, sizeof b, e ? "CUDA error %d (emulated)" : "no error", (int)e);
    return b;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *lo, int *hi)
{
    *lo = 0;
    *hi = -5;
    return cudaSuccess;
}
}
