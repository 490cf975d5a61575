"""PoCL's wheel on CPUs newer than its compiler.

The wheel of 2022 has LLVM 14, which calls a CPU that it does not know "generic", a name that its own front end refuses
(pocl/pocl#1049): no kernel can be built, on a Zen 5 for instance. For the tests a copy of the library is made whose
answer to "which CPU is this" is one that it knows, and `$OCL_ICD_VENDORS` names the copy, for this process and those
that it starts. The wheel itself is not touched.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import platform
import shutil
import struct
import tempfile
from pathlib import Path

SYMBOL = b"_ZN4llvm3sys14getHostCPUNameEv"  # llvm::sys::getHostCPUName(), a StringRef: pointer in rax, length in rdx
NEAREST = b"znver3"  # the newest AMD CPU of LLVM 14, what it takes a Zen 4 for, too; it has AVX2 and FMA
INTEL = b"icelake-server"
SYMTAB, SYMBOL_SIZE, LOADED = 2, 24, 1  # of ELF: SHT_SYMTAB, size of an Elf64_Sym, PT_LOAD


def use_known_cpu() -> None:
    """Let PoCL build kernels on this machine; nothing happens where it can already, or where there is no PoCL wheel."""
    wheel = importlib.util.find_spec("pocl_binary_distribution")
    opencl = importlib.util.find_spec("pyopencl")
    if "OCL_ICD_VENDORS" in os.environ or platform.machine() != "x86_64" or not (wheel and opencl):
        return
    libraries = list((Path(str(opencl.origin)).parent / ".libs").glob("libpocl-*.so"))
    if len(libraries) == 1 and not _knows_this_cpu(libraries[0]):
        os.environ["OCL_ICD_VENDORS"] = str(_copy(libraries[0], Path(str(wheel.origin)).parent))


def _knows_this_cpu(library: Path) -> bool:
    from llvmlite import binding

    name = binding.get_host_cpu_name().encode()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"\0" + name + b"\0") >= 0 or name == b"znver4"


def _copy(library: Path, wheel: Path) -> Path:
    """A folder with an .icd file that names the copy. It is made once for a version of the wheel, for all processes."""
    stat = library.stat()
    folder = Path(tempfile.gettempdir()) / f"polyc-pocl-{os.getuid()}-{stat.st_size}-{stat.st_mtime_ns}"
    if not (folder / "pocl.icd").exists():
        made = Path(tempfile.mkdtemp(prefix="polyc-pocl-"))
        libs = made / "pyopencl" / ".libs"  # the library finds what it needs from where it lies
        libs.mkdir(parents=True)
        (made / wheel.name).symlink_to(wheel)
        copy = Path(shutil.copy(library, libs))
        with copy.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            _answer(data, INTEL if "GenuineIntel" in Path("/proc/cpuinfo").read_text() else NEAREST)
        (made / "pocl.icd").write_text(f"{folder / copy.relative_to(made)}\n")
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder


def _answer(data: mmap.mmap, name: bytes) -> None:
    """Put `lea rax, [rip + 6]; mov edx, length; ret` and the name where the function begins."""
    at = _offset(data)
    code = bytes.fromhex("488d0506000000") + b"\xba" + struct.pack("<I", len(name)) + b"\xc3" + name
    data[at : at + len(code)] = code


def _offset(data: mmap.mmap) -> int:
    """Where the function lies in the file: its address by the symbol table, the segment by the program headers."""
    programs, sections = struct.unpack_from("<QQ", data, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", data, 54)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, sections + i * section_size) for i in range(section_count)]
    for table in (h for h in heads if h[1] == SYMTAB):
        names = heads[table[6]]
        name = data.find(b"\0" + SYMBOL + b"\0", names[4], names[4] + names[5]) + 1 - names[4]
        for at in range(table[4], table[4] + table[5], SYMBOL_SIZE):
            if struct.unpack_from("<I", data, at)[0] == name:
                address = struct.unpack_from("<Q", data, at + 8)[0]
                for i in range(program_count):
                    kind, _, offset, start, _, size = struct.unpack_from("<IIQQQQ", data, programs + i * program_size)
                    if kind == LOADED and start <= address < start + size:
                        return int(address - start + offset)
    raise LookupError(f"{SYMBOL.decode()} is not in PoCL's library")
