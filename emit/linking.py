"""Making a shared object of an object file with whatever linker the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyc.emit import targets
from polyc.poly.errors import BuildError
from polyc.poly.target import Target

_LD_OF = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv"}


def linkers(target: Target) -> Iterator[list[str]]:
    """Commands that link for `target`, the best first, as far as they are on PATH; `-shared -o FILE ...` follows.

    Drivers of compilers come first, because they know where the C library is. `$CC` counts for this machine.
    """
    arch = target.triple.split("-")[0].replace("arm64", "aarch64")
    native = arch == targets.host().triple.split("-")[0].replace("arm64", "aarch64")
    drivers = [os.environ.get("CC"), "gcc", "clang", "cc"] if native else [f"{arch}-linux-gnu-gcc"]
    for name in (n for n in drivers if n):
        if path := shutil.which(name):
            yield [path]
    bare = ["ld.lld", *(["ld"] if native else [f"{arch}-linux-gnu-ld"])]
    for name in bare:
        if (path := shutil.which(name)) and arch in _LD_OF:
            yield [path, "-m", _LD_OF[arch]]


def shared_object(
    images: bytes | Sequence[bytes], target: Target, needs: tuple[str, ...] = ("-lm",), exported: Sequence[str] = ()
) -> bytes:
    """The shared object made of one object file or several. `exported`: the only symbols that others see (none: all).

    Raises:
        BuildError: no linker for this machine, the linker refused, or no room to write.
    """
    command = next(linkers(target), None)
    if command is None:
        arch, here = target.triple.split("-")[0], targets.host().triple.split("-")[0]
        cross = f"{arch}-linux-gnu-gcc, ld.lld, {arch}-linux-gnu-ld"
        looked = "$CC, gcc, clang, cc, ld.lld, ld" if arch == here else cross
        raise BuildError(
            f"a shared object for {arch} needs a linker, and there is none on PATH (looked for {looked}); "
            "--emit obj needs none"
        )
    by_driver = (
        "-m" not in command
    )  # a bare linker does not know where libraries are; the process that loads it has them
    try:
        with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
            out, made = Path(folder, "operator.so"), []
            for k, image in enumerate([images] if isinstance(images, bytes) else images):
                made.append(str(Path(folder, f"operator{k}.o")))
                Path(made[-1]).write_bytes(image)
            more = []
            if exported:
                script = Path(folder, "exported")
                script.write_text(f"{{ global: {'; '.join(exported)}; local: *; }};", encoding="ascii")
                option = f"--version-script={script}"
                more = [f"-Wl,{option}", "-s"] if by_driver else [option, "-s"]
            whole = [*command, "-shared", *more, "-o", str(out), *made, *(needs if by_driver else ())]
            done = subprocess.run(whole, capture_output=True, text=True)
            if done.returncode:
                first = next((s for s in done.stderr.splitlines() if s.strip()), f"exit code {done.returncode}")
                raise BuildError(f"{Path(command[0]).name} could not link: {first}")
            return out.read_bytes()
    except OSError as error:
        raise BuildError(f"cannot link in a temporary folder: {error.strerror or error}") from None
