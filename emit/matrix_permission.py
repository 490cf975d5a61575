"""Linux's permission to use matrix registers (AMX): a process has to ask, once, before the first instruction.

Their state is 8 KiB for each thread, which the kernel saves only for those that asked (`ARCH_REQ_XCOMP_PERM`,
Documentation/arch/x86/xstate.rst). All threads of a process have the permission, and children that it forks; a program
that is started anew asks again.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

ARCH_PRCTL = 158  # the system call's number on x86-64
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18


@functools.cache
def granted() -> bool:
    """Ask for the permission; whether this process has it now."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    answer = libc.syscall(*(ctypes.c_long(n) for n in (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)))
    return int(answer) == 0
