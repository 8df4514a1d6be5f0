"""glibc's allocator, for training on a CPU: freed memory stays with the process.

By default glibc hands every large block back to the kernel as soon as it is freed, and torch frees its activations in
every step: each step then takes a page fault for every 4 kB of them. Where faults are dear (virtual machines), they
cost more than the arithmetic: benchmarks/allocator.py measures the ratio.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h
_ENVIRONMENT = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD")


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed, for the rest of this process; whether it was told.

    Not where the C library is another, and not where the user has set the allocator (MALLOC_*, LD_PRELOAD).
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _ENVIRONMENT):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1) and mallopt(_M_TOP_PAD, 64 * 2**20)
    )
