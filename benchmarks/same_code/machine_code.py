"""What an object file does, without its names: the bytes of its sections, and what is patched into them."""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import NamedTuple

ALLOCATED = 2  # of a section's flags: it is in memory at run time
WITH_ADDENDS = 4  # of a section's types: relocations


class Section(NamedTuple):
    """An entry of ELF64's section header table, and its bytes."""

    name: str
    kind: int
    flags: int
    link: int
    info: int
    body: bytes


def sections(image: bytes) -> list[Section]:
    """The sections of a little-endian ELF64 object file (System V ABI, chapter 4).

    Raises:
        ValueError: it is no such file.
    """
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no little-endian ELF64 file")
    start = struct.unpack_from("<Q", image, 0x28)[0]
    size, count, names = struct.unpack_from("<3H", image, 0x3A)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + k * size) for k in range(count)]
    bodies = [image[h[4] : h[4] + h[5]] if h[1] != 8 else bytes(h[5]) for h in heads]  # 8: nothing in the file
    return [Section(_text(bodies[names], h[0]), h[1], h[2], h[6], h[7], b) for h, b in zip(heads, bodies, strict=True)]


def fingerprint(image: bytes, own: str) -> str:
    """The same for two objects whose code, constants and references are; `own` is the kernel's name, which is left
    out, and so is the order of symbols, which follows from it."""
    found = sections(image)
    digest = sha256()
    for section in found:
        if section.flags & ALLOCATED:
            digest.update(f"{section.name} {len(section.body)}\n".encode() + section.body)
        elif section.kind == WITH_ADDENDS:
            table = found[section.link]
            symbols, names = table.body, found[table.link].body
            for where, info, addend in struct.iter_unpack("<QQq", section.body):
                what = _symbol(symbols, names, found, info >> 32).replace(own, "")
                digest.update(f"{section.name} {where} {info & 0xFFFFFFFF} {what} {addend}\n".encode())
    return digest.hexdigest()


def _symbol(symbols: bytes, names: bytes, found: list[Section], number: int) -> str:
    """A symbol by its name, or by its section and place where it has none or one of the compiler's (`.L...`)."""
    name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", symbols, 24 * number)
    text = _text(names, name)
    if text and not text.startswith("."):
        return text
    return f"{found[section].name}+{value}"


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()
