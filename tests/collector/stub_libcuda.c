/* The part of CUDA's driver API that shares memory, on memory of the host, for machines without a GPU. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRANULARITY = 2 << 20, INVALID_VALUE = 1 };

int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option) {
    const int *fields = properties;
    *granularity = GRANULARITY;
    /* pinned memory on a device, exported as a file descriptor */
    return fields[0] == 1 && fields[1] == 1 && fields[2] == 1 && option == 0 ? 0 : INVALID_VALUE;
}

int cuMemCreate(uint64_t *handle, size_t size, const void *properties, unsigned long long flags) {
    int memory = memfd_create("device", 0);
    if (size % GRANULARITY || flags || memory < 0 || ftruncate(memory, (off_t)size)) return INVALID_VALUE;
    *handle = (uint64_t)memory;
    return 0;
}

int cuMemExportToShareableHandle(int *descriptor, uint64_t handle, int type, unsigned long long flags) {
    if (type != 1 || flags) return INVALID_VALUE;
    *descriptor = dup((int)handle);
    return *descriptor < 0;
}

int cuMemImportFromShareableHandle(uint64_t *handle, void *descriptor, int type) {
    if (type != 1) return INVALID_VALUE;
    *handle = (uint64_t)dup((int)(intptr_t)descriptor);
    return 0;
}

int cuMemAddressReserve(uint64_t *address, size_t size, size_t alignment, uint64_t wish, unsigned long long flags) {
    if (size % GRANULARITY || alignment || wish || flags) return INVALID_VALUE;
    *address = (uint64_t)mmap(0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return 0;
}

int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    if (flags) return INVALID_VALUE;
    void *mapped = mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return mapped == MAP_FAILED;
}

int cuMemSetAccess(uint64_t address, size_t size, const void *access, size_t count) {
    const int *fields = access;
    if (fields[0] != 1 || fields[2] != 3 || count != 1) return INVALID_VALUE;
    return mprotect((void *)address, size, PROT_READ | PROT_WRITE) != 0;
}

int cuMemRelease(uint64_t handle) { return close((int)handle); }
