/* Preloaded by bench/syncs.py: counts what the process asks the disk to make durable, and can make the disk slower.

   PERDURE_BENCH_SYNC_US   microseconds added to each fsync and fdatasync, as a slower disk would
   perdure_bench_syncs()   how many there have been, in all threads */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static atomic_long syncs;
static long delay_us = -1;

long perdure_bench_syncs(void) { return atomic_load(&syncs); }

static int sync_by(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(fd);
    if (delay_us < 0) {
        const char *text = getenv("PERDURE_BENCH_SYNC_US");
        delay_us = text ? atol(text) : 0;
    }
    if (delay_us > 0) {
        struct timespec pause = {delay_us / 1000000, delay_us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
    atomic_fetch_add(&syncs, 1);
    return result;
}

int fsync(int fd) { return sync_by("fsync", fd); }
int fdatasync(int fd) { return sync_by("fdatasync", fd); }
