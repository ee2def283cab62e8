// A CUDA driver over memory of the host, for tests: it implements the functions that the suite loads, with their checks.
// An address of its GPU memory is not canonical, so that a load or store of the CPU faults. Definitions for faulty drivers:
// NO_GPU (cuInit fails), FULL (no memory), DAMAGED (the last byte of a copy does not arrive), UNMAPPED (a DMA-BUF that
// cannot be mapped), NO_EXPORT (no DMA-BUF), HANGS and DIES (in cuInit).
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COUNT = 64, OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
       INVALID_CONTEXT = 201, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, NOT_SUPPORTED = 801 };
static const uint64_t GPU = 1ull << 62;

static struct { char *start; size_t bytes; int file; } memory[COUNT];
static struct { char *start; size_t bytes; } pinned[COUNT];
static int initialised, retained;
static __thread int current;

// Number of objects that the program has not freed.
int outstanding(void) {
    int count = retained;
    for (int i = 0; i < COUNT; i++) count += (memory[i].start != NULL) + (pinned[i].start != NULL);
    return count;
}

int cuInit(unsigned flags) {
#ifdef NO_GPU
    return NO_DEVICE;
#endif
#ifdef HANGS
    pause();
#endif
#ifdef DIES
    raise(SIGKILL);
#endif
    initialised = flags == 0;
    return flags == 0 ? OK : INVALID_VALUE;
}
int cuDriverGetVersion(int *version) { return *version = 12040, OK; }
int cuDeviceGetCount(int *count) { return *count = 1, initialised ? OK : NOT_INITIALIZED; }
int cuDeviceGet(int *device, int ordinal) { return *device = 7, ordinal == 0 ? OK : INVALID_VALUE; }
int cuDeviceGetName(char *name, int length, int device) {
    return snprintf(name, length, "Test GPU"), device == 7 ? OK : INVALID_VALUE;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    return *context = &retained, retained++, device == 7 ? OK : INVALID_VALUE;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return retained--, device == 7 ? OK : INVALID_VALUE; }
int cuCtxSetCurrent(void *context) { return current = context == &retained, current ? OK : INVALID_CONTEXT; }
int cuCtxSynchronize(void) { return current ? OK : INVALID_CONTEXT; }

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (!current) return INVALID_CONTEXT;
#ifdef FULL
    return OUT_OF_MEMORY;
#endif
    for (int i = 0; i < COUNT; i++) {
        if (memory[i].start) continue;
        int file = memfd_create("gpu", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, bytes)) return OUT_OF_MEMORY;
        char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (start == MAP_FAILED) return OUT_OF_MEMORY;
        memory[i].start = start, memory[i].bytes = bytes, memory[i].file = file;
        return *address = (uint64_t)start | GPU, OK;
    }
    return OUT_OF_MEMORY;
}

// The CPU's address of a range of GPU memory; NULL if it is none.
static char *find(uint64_t address, size_t bytes, int *index) {
    char *at = (char *)(address & ~GPU);
    for (int i = 0; address & GPU && i < COUNT; i++)
        if (memory[i].start && at >= memory[i].start && at + bytes <= memory[i].start + memory[i].bytes)
            return *index = i, at;
    return NULL;
}

int cuMemFree_v2(uint64_t address) {
    int i;
    char *start = find(address, 1, &i);
    if (!start || start != memory[i].start) return INVALID_VALUE;
    munmap(start, memory[i].bytes), close(memory[i].file);
    return memory[i].start = NULL, OK;
}

int cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    if (!current) return INVALID_CONTEXT;
    if (flags || bytes == 0) return INVALID_VALUE;
    int unused = -1;
    for (int i = 0; i < COUNT; i++) {
        char *other = pinned[i].start;
        if (!other) unused = i;
        else if (other < (char *)start + bytes && (char *)start < other + pinned[i].bytes) return ALREADY_REGISTERED;
    }
    if (unused < 0 || mlock(start, 1)) return OUT_OF_MEMORY;
    return pinned[unused].start = start, pinned[unused].bytes = bytes, OK;
}
int cuMemHostUnregister(void *start) {
    for (int i = 0; i < COUNT; i++)
        if (pinned[i].start == start) return pinned[i].start = NULL, OK;
    return NOT_REGISTERED;
}

int cuPointerGetAttribute(void *into, int attribute, uint64_t address) {
    int i;
    if (attribute != 2) return INVALID_VALUE;
    if (find(address, 1, &i)) return *(unsigned *)into = 2, OK;
    for (i = 0; i < COUNT; i++)
        if (pinned[i].start && (char *)address >= pinned[i].start && (char *)address < pinned[i].start + pinned[i].bytes)
            return *(unsigned *)into = 1, OK;
    return INVALID_VALUE;
}

static size_t arrives(size_t bytes) {
#ifdef DAMAGED
    return bytes - 1;
#endif
    return bytes;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    int i;
    char *start = current ? find(to, bytes, &i) : NULL;
    return start ? memcpy(start, from, arrives(bytes)), OK : INVALID_VALUE;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    int i;
    char *start = current ? find(from, bytes, &i) : NULL;
    return start ? memcpy(to, start, arrives(bytes)), OK : INVALID_VALUE;
}

#ifndef NO_EXPORT
int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t bytes, int type, unsigned long long flags) {
    int i;
    if (type != 1 || flags || bytes % 4096) return INVALID_VALUE;
    if (!find(address, bytes, &i)) return INVALID_VALUE;
#ifdef UNMAPPED
    int ends[2];
    if (pipe(ends)) return NOT_SUPPORTED;
    close(ends[1]);
    return *(int *)handle = ends[0], OK;
#endif
    return *(int *)handle = dup(memory[i].file), OK;
}
#endif

int cuGetErrorName(int code, const char **text) {
    switch (code) {
    case INVALID_VALUE: return *text = "CUDA_ERROR_INVALID_VALUE", OK;
    case OUT_OF_MEMORY: return *text = "CUDA_ERROR_OUT_OF_MEMORY", OK;
    case NOT_INITIALIZED: return *text = "CUDA_ERROR_NOT_INITIALIZED", OK;
    case NO_DEVICE: return *text = "CUDA_ERROR_NO_DEVICE", OK;
    case INVALID_CONTEXT: return *text = "CUDA_ERROR_INVALID_CONTEXT", OK;
    }
    return *text = NULL, INVALID_VALUE;
}
int cuGetErrorString(int code, const char **text) {
    if (code == NO_DEVICE) return *text = "no CUDA-capable device is detected", OK;
    if (code == OUT_OF_MEMORY) return *text = "out of memory", OK;
    return *text = NULL, INVALID_VALUE;
}
