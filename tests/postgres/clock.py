"""The wall clock of one server, in the hands of a test; the machine's own and everybody else's stay right."""

from __future__ import annotations

import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.postgres import install

# The offset lies in a file that every process of the server maps, so that a jump is seen by all at the same moment.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
    int file = open(getenv("PERDURE_TEST_CLOCK"), O_RDONLY);
    void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    offset = at == MAP_FAILED ? 0 : at;
}

int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, at);
    if (which == CLOCK_REALTIME && offset) at->tv_sec += *offset;
    return code;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return code;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class ServerClock:
    """Hand `environment` to a Cluster; then say by how many seconds its clock is wrong."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "offset"
        self.set(0)
        self.environment = {"LD_PRELOAD": str(_library()), "PERDURE_TEST_CLOCK": str(self._offset)}

    def set(self, seconds: int) -> None:
        """Jump there."""
        # In place, with one write: the server has the file mapped.
        with open(self._offset, "r+b" if self._offset.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


@cache
def _library() -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, which the false clock of the server needs")
    folder = install.new_folder()
    install.watch(folder)
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    library.chmod(0o755)
    return library
