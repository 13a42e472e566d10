# SPDX-License-Identifier: Apache-2.0
"""How the command's own process asks the system for memory."""

import ctypes
import sys
from typing import Final

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Numbers of the two parameters in glibc's malloc.h."""
_LARGEST: Final = 1 << 30


def keep_freed_memory() -> None:
    """Let columns that are freed make room for the next ones without asking the system each time.

    By itself glibc maps every array of a column anew, and the system clears its pages each time,
    which takes as long as much of the arithmetic. Does nothing where the C library is another one.
    Arrow is made to take its memory from there, too: a second store of freed memory is of no use to
    numpy.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _LARGEST)
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
