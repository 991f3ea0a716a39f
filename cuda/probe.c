/* probe.c: copies as `moetitan doctor` times them: between host memory and a device, and from one device to another. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/backend.h"
#include "device/mapping.h"
#include "device_core.h"

/* Host memory: what is sent, and what came back. Device memory: what came from the host, and what came from a peer. */
struct probe {
    int device;
    size_t bytes;
    struct mt_mapping host; /* 2 * bytes */
    bool pinned;
    char *sent, *back;
    void *here, *there; /* 2 * bytes on the device; bytes on the peer, while it is asked */
    cudaStream_t stream;
};

static int devices(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n)) n = 0;
    (void)cudaGetLastError();
    return n;
}

static void bus(int device, char *out, size_t size)
{
    if (!cudaDeviceGetPCIBusId(out, (int)size, device)) return;
    (void)cudaGetLastError();
    out[0] = 0;
}

/* The memory node that the device is attached to, as the system tells; -1: it does not. */
static int memory_node(int device)
{
    char at[32], path[96];
    int node = -1;
    bus(device, at, sizeof at);
    for (char *c = at; *c; c++) *c = (char)tolower((unsigned char)*c);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", at);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &node) != 1) node = -1;
    if (f) fclose(f);
    return node;
}

/* On the device's memory node where that has processors, else on this process's own. */
static mt_status host_open(struct probe *p, mt_err *e)
{
    struct mt_set cpus = mt_cpus_mine();
    struct mt_numa numa;
    struct mt_numa_choice choice;
    char node[16] = "auto";
    const int at = memory_node(p->device);
    MT_TRY(mt_numa_read(&numa, "/sys/devices/system/node", &cpus, e));
    if (mt_set_has(&numa.cpu, at)) snprintf(node, sizeof node, "%d", at);
    MT_TRY(mt_numa_choose(&numa, node, (int64_t)(2 * p->bytes), &choice, e));
    choice.required = false;
    const struct mt_mapping_options o = {.huge = MT_HUGE_OFF, .numa = &choice, .threads = 1};
    MT_TRY(mt_mapping_open(&p->host, (int64_t)(2 * p->bytes), 4096, &o, e));
    p->sent = p->host.base;
    p->back = p->sent + p->bytes;
    for (size_t i = 0; i < p->bytes; i++) p->sent[i] = (char)(i % 251 + i / 4096);
    MT_CUDA_TRY(cudaHostRegister(p->sent, 2 * p->bytes, cudaHostRegisterPortable), e, MT_DEVICE,
                "pinning %zu bytes of host memory", 2 * p->bytes);
    p->pinned = true;
    return MT_OK;
}

static mt_status probe_open_all(struct probe *p, mt_err *e)
{
    MT_CUDA_TRY(cudaSetDevice(p->device), e, MT_DEVICE, "opening CUDA device %d", p->device);
    MT_TRY(host_open(p, e));
    MT_CUDA_TRY(cudaMalloc(&p->here, 2 * p->bytes), e, MT_DEVICE, "allocating %zu bytes on CUDA device %d",
                2 * p->bytes, p->device);
    MT_CUDA_TRY(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking), e, MT_DEVICE,
                "making a stream on CUDA device %d", p->device);
    return MT_OK;
}

static void probe_close(void *probe)
{
    struct probe *p = probe;
    if (!p) return;
    cudaSetDevice(p->device);
    if (p->stream) cudaStreamDestroy(p->stream);
    cudaFree(p->there);
    cudaFree(p->here);
    if (p->pinned) cudaHostUnregister(p->sent);
    mt_mapping_close(&p->host);
    free(p);
}

static mt_status probe_open(void **probe, int device, int64_t bytes, mt_err *e)
{
    struct probe *p = calloc(1, sizeof *p);
    MT_REQUIRE(p, e, MT_IO, "timing copies: no memory for %zu bytes", sizeof *p);
    p->device = device;
    p->bytes = (size_t)bytes;
    mt_status status = probe_open_all(p, e);
    *probe = status ? NULL : p;
    if (status) probe_close(p);
    return status;
}

/* One copy to its end. */
static mt_status timed(struct probe *p, void *to, const void *from, double *seconds, mt_err *e)
{
    const double began = mt_now();
    MT_CUDA_TRY(cudaMemcpyAsync(to, from, p->bytes, cudaMemcpyDefault, p->stream), e, MT_DEVICE,
                "copying %zu bytes to or from CUDA device %d", p->bytes, p->device);
    MT_CUDA_TRY(cudaStreamSynchronize(p->stream), e, MT_DEVICE, "copying %zu bytes to or from CUDA device %d",
                p->bytes, p->device);
    *seconds = mt_now() - began;
    return MT_OK;
}
static mt_status compare(const struct probe *p, const char *way, mt_err *e)
{
    if (!memcmp(p->sent, p->back, p->bytes)) return MT_OK;
    for (size_t i = 0; i < p->bytes; i++)
        MT_REQUIRE(p->sent[i] == p->back[i], e, MT_DEVICE,
                   "CUDA device %d: byte %zu of %zu is %d after a copy %s, and was %d", p->device, i,
                   p->bytes, p->back[i], way, p->sent[i]);
    return MT_OK;
}

static mt_status probe_host(void *probe, double *to_device, double *to_host, mt_err *e)
{
    struct probe *p = probe;
    MT_CUDA_TRY(cudaSetDevice(p->device), e, MT_DEVICE, "using CUDA device %d", p->device);
    memset(p->back, 0, p->bytes);
    MT_TRY(timed(p, p->here, p->sent, to_device, e));
    MT_TRY(timed(p, p->back, p->here, to_host, e));
    return compare(p, "to it and back", e);
}

/* Peers reach each other's memory where the machine can; where it cannot, the driver copies by way of the host. */
static mt_status peer_open(struct probe *p, int peer, mt_err *e)
{
    int can = 0;
    MT_CUDA_TRY(cudaDeviceCanAccessPeer(&can, p->device, peer), e, MT_DEVICE,
                "asking whether CUDA device %d reaches device %d", p->device, peer);
    cudaError_t enabled = can ? cudaDeviceEnablePeerAccess(peer, 0) : cudaSuccess;
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        enabled = cudaSuccess;
    }
    MT_CUDA_TRY(enabled, e, MT_DEVICE, "letting CUDA device %d reach device %d", p->device, peer);
    MT_CUDA_TRY(cudaSetDevice(peer), e, MT_DEVICE, "using CUDA device %d", peer);
    MT_CUDA_TRY(cudaMalloc(&p->there, p->bytes), e, MT_DEVICE, "allocating %zu bytes on CUDA device %d",
                p->bytes, peer);
    MT_CUDA_TRY(cudaMemcpy(p->there, p->sent, p->bytes, cudaMemcpyHostToDevice), e, MT_DEVICE,
                "copying %zu bytes to CUDA device %d", p->bytes, peer);
    MT_CUDA_TRY(cudaSetDevice(p->device), e, MT_DEVICE, "using CUDA device %d", p->device);
    return MT_OK;
}
/* `here` has what came from another device: is it what the host sent there? */
static mt_status arrived(struct probe *p, const char *here, const char *way, mt_err *e)
{
    memset(p->back, 0, p->bytes);
    MT_CUDA_TRY(cudaMemcpy(p->back, here, p->bytes, cudaMemcpyDeviceToHost), e, MT_DEVICE,
                "copying %zu bytes from CUDA device %d", p->bytes, p->device);
    return compare(p, way, e);
}
static mt_status peer_copy(struct probe *p, int peer, double *seconds, mt_err *e)
{
    char *here = (char *)p->here + p->bytes, way[32];
    const double began = mt_now();
    MT_CUDA_TRY(cudaMemcpyPeerAsync(here, p->device, p->there, peer, p->bytes, p->stream), e, MT_DEVICE,
                "copying %zu bytes from CUDA device %d to device %d", p->bytes, peer, p->device);
    MT_CUDA_TRY(cudaStreamSynchronize(p->stream), e, MT_DEVICE,
                "copying %zu bytes from CUDA device %d to device %d", p->bytes, peer, p->device);
    *seconds = mt_now() - began;
    snprintf(way, sizeof way, "from device %d", peer);
    return arrived(p, here, way, e);
}
static mt_status probe_peer(void *probe, int peer, double *seconds, mt_err *e)
{
    struct probe *p = probe;
    MT_CUDA_TRY(cudaSetDevice(p->device), e, MT_DEVICE, "using CUDA device %d", p->device);
    mt_status status = peer_open(p, peer, e);
    if (!status) status = peer_copy(p, peer, seconds, e);
    cudaFree(p->there);
    p->there = NULL;
    return status;
}

_Static_assert(sizeof(cudaIpcMemHandle_t) == MT_PROBE_OFFER, "an offer is CUDA's handle");
static mt_status probe_offer(void *probe, char offer[MT_PROBE_OFFER], mt_err *e)
{
    struct probe *p = probe;
    cudaIpcMemHandle_t handle;
    MT_CUDA_TRY(cudaSetDevice(p->device), e, MT_DEVICE, "using CUDA device %d", p->device);
    MT_CUDA_TRY(cudaIpcGetMemHandle(&handle, p->here), e, MT_DEVICE,
                "offering memory of CUDA device %d to other processes", p->device);
    memcpy(offer, &handle, sizeof handle);
    return MT_OK;
}
static mt_status erase(struct probe *p, char *here, mt_err *e)
{
    MT_CUDA_TRY(cudaMemsetAsync(here, 0, p->bytes, p->stream), e, MT_DEVICE,
                "clearing memory of CUDA device %d", p->device);
    MT_CUDA_TRY(cudaStreamSynchronize(p->stream), e, MT_DEVICE, "clearing memory of CUDA device %d",
                p->device);
    return MT_OK;
}
static mt_status probe_take(void *probe, const char offer[MT_PROBE_OFFER], bool *reached, double *seconds,
                            mt_err *e)
{
    struct probe *p = probe;
    cudaIpcMemHandle_t handle;
    void *there = NULL;
    memcpy(&handle, offer, sizeof handle);
    MT_CUDA_TRY(cudaSetDevice(p->device), e, MT_DEVICE, "using CUDA device %d", p->device);
    *reached = !cudaIpcOpenMemHandle(&there, handle, cudaIpcMemLazyEnablePeerAccess);
    if (!*reached) {
        (void)cudaGetLastError();
        return MT_OK;
    }
    char *here = (char *)p->here + p->bytes;
    mt_status status = erase(p, here, e); /* what the last one sent is the same bytes */
    if (!status) status = timed(p, here, there, seconds, e);
    if (!status) status = arrived(p, here, "from another process's device", e);
    cudaIpcCloseMemHandle(there);
    return status;
}

const struct mt_probe_ops mt_cuda_probe = {
    .devices = devices,
    .bus = bus,
    .open = probe_open,
    .host = probe_host,
    .peer = probe_peer,
    .offer = probe_offer,
    .take = probe_take,
    .close = probe_close,
};
