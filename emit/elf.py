"""An object file of data: bytes under a symbol, for a linker. No assembler needed, however large they are.

The format is ELF for 64 bits, least significant byte first: "System V Application Binary Interface", chapter 4.
"""

from __future__ import annotations

import struct
from typing import Final

from polyc.poly.errors import BuildError

MACHINES: Final = {"x86_64": (62, 0), "aarch64": (183, 0), "arm64": (183, 0), "riscv64": (243, 5)}
"""Number and flags of an architecture (RISC-V: compressed instructions, doubles in registers)."""
HEADER, SECTION, SYMBOL = 64, 64, 24
PROGBITS, SYMTAB, STRTAB = 1, 2, 3
ALLOC, RELOCATABLE, GLOBAL_OBJECT = 2, 1, 1 << 4 | 1
ALIGNMENT = 64


def data_object(symbol: str, data: bytes, triple: str) -> bytes:
    """An object file whose symbol `symbol` is the first of these read-only bytes, at a multiple of 64.

    Raises:
        BuildError: object files of this machine are not known.
    """
    arch = triple.split("-")[0]
    if arch not in MACHINES or "linux" not in triple:
        raise BuildError(f"an object file of data is made for Linux on {', '.join(MACHINES)}, not for {triple}")
    machine, flags = MACHINES[arch]
    names = b"\0.rodata\0.symtab\0.strtab\0.note.GNU-stack\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = bytes(SYMBOL) + struct.pack("<IBBHQQ", 1, GLOBAL_OBJECT, 0, 1, 0, len(data))
    parts = [data, symbols, strings, names]
    offsets, at = [], HEADER
    for part, align in zip(parts, (ALIGNMENT, 8, 1, 1), strict=True):
        at = -(-at // align) * align
        offsets.append(at)
        at += len(part)
    start = -(-at // 8) * 8

    def section(
        name: bytes, kind: int, flags: int, number: int | None, link: int, info: int, rest: tuple[int, int]
    ) -> bytes:
        offset, size = (0, 0) if number is None else (offsets[number], len(parts[number]))
        return struct.pack("<IIQQQQIIQQ", names.index(name + b"\0"), kind, flags, 0, offset, size, link, info, *rest)

    sections = [
        bytes(SECTION),
        section(b".rodata", PROGBITS, ALLOC, 0, 0, 0, (ALIGNMENT, 0)),
        section(b".symtab", SYMTAB, 0, 1, 3, 1, (8, SYMBOL)),
        section(b".strtab", STRTAB, 0, 2, 0, 0, (1, 0)),
        section(b".strtab", STRTAB, 0, 3, 0, 0, (1, 0)),
        section(b".note.GNU-stack", PROGBITS, 0, None, 0, 0, (1, 0)),
    ]
    head = struct.pack(
        "<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, RELOCATABLE, machine, 1, 0, 0, start, flags,
        HEADER, 0, 0, SECTION, len(sections), 4,
    )  # fmt: skip
    out = bytearray(head)
    for part, offset in zip(parts, offsets, strict=True):
        out += bytes(offset - len(out))
        out += part
    out += bytes(start - len(out))
    return bytes(out + b"".join(sections))
