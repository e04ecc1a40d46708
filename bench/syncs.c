/* Preloaded by bench/syncs.py: counts what the process asks the disk to make durable, and can make the disk slower.

   PERDURE_BENCH_SYNC_US    microseconds added to each fsync and fdatasync, as a slower disk would
   PERDURE_BENCH_SYNC_FILE  an 8-byte file: all processes that have it add up there (a database server has many)
   perdure_bench_syncs()    how many there have been, in all threads */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static atomic_long own;
static atomic_long *syncs = &own;
static long delay_us;

__attribute__((constructor)) static void prepare(void) {
    const char *text = getenv("PERDURE_BENCH_SYNC_US");
    const char *path = getenv("PERDURE_BENCH_SYNC_FILE");
    delay_us = text ? atol(text) : 0;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *shared = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED)
        syncs = shared;
    close(fd);
}

long perdure_bench_syncs(void) { return atomic_load(syncs); }

static int sync_by(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(fd);
    if (delay_us > 0) {
        struct timespec pause = {delay_us / 1000000, delay_us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
    atomic_fetch_add(syncs, 1);
    return result;
}

int fsync(int fd) { return sync_by("fsync", fd); }
int fdatasync(int fd) { return sync_by("fdatasync", fd); }
