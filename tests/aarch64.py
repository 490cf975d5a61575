"""Code for 64-bit Arm (NEON), executed: `python -m tests.aarch64 [COUNT SEED]`.

Every operator of the library, PolyBench and COUNT random programs (200) are compiled for `aarch64`, by LLVM and as C,
linked with a cross compiler, run under an emulator (on an Arm machine without one) and compared with plain Python.

What it needs is looked for on PATH:

    a compiler that links for Arm    aarch64-linux-gnu-gcc with its C library, or zig (`zig cc`)
    an emulator of programs          qemu-aarch64-static or qemu-aarch64

On Debian and Ubuntu: `apt install qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross` (about 50 MB).
Exit code 1 where something is wrong, 2 where one of them is missing.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from exported import FAMILIES, Machine, arguments, go_through, ways_of

TARGET = "aarch64"
COMPILERS = (("aarch64-linux-gnu-gcc",), ("zig", "cc", "-target", "aarch64-linux-musl"))
FLAGS = (("-O2",),)
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")


def machine() -> Machine | str:
    """An Arm machine to run on, or what is missing."""
    if platform.machine() in ("aarch64", "arm64") and sys.platform == "linux":
        native = tuple((c,) for c in ("gcc", "clang") if shutil.which(c))
        return Machine("this Arm machine", TARGET, native) if native else "no gcc or clang is on PATH"
    emulator = next((e for e in EMULATORS if shutil.which(e)), None)
    if emulator is None:
        return f"no emulator of Arm programs is on PATH ({' or '.join(EMULATORS)})"
    compiler = next((c for c in COMPILERS if shutil.which(c[0])), None)
    if compiler is None:
        return f"no compiler that links for Arm is on PATH ({' or '.join(c[0] for c in COMPILERS)})"
    return Machine("Arm, emulated", TARGET, (compiler,), (emulator,), ("-static",))


def main() -> int:
    options = arguments(__doc__).parse_args()
    where = machine()
    if isinstance(where, str):
        print(where, file=sys.stderr)
        return 2
    ways = ways_of(where, FLAGS)
    return int(go_through(where, ways, options.family or list(FAMILIES), options.count, options.seed, options.jobs) > 0)


if __name__ == "__main__":
    sys.exit(main())
