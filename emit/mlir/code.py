"""Writing one MLIR function as text: fresh names, regions, constants.

Knows MLIR's syntax and nothing of loop IR.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_UNFIT = re.compile(r"[^A-Za-z0-9_.$-]")


class FunctionText:
    """One function under construction: `lines` of the region being written, at `depth`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 2
        self.begin: list[str] = []
        self.allocas: list[str] = []  # at the begin of the innermost scope of automatic allocations
        self._constants: dict[tuple[str, str], str] = {}
        self._names: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """A new SSA name, readable and unique."""
        stem = _UNFIT.sub("_", stem)
        stem = f"v{stem}" if stem[:1].isdigit() or not stem else stem
        n = self._names.get(stem, 0)
        self._names[stem] = n + 1
        return f"%{stem}" if n == 0 and stem != "v" else self.fresh_numbered(stem, n)

    def fresh_numbered(self, stem: str, n: int) -> str:
        """The first name `stem_n`, `stem_n+1`, ... that is free."""
        while f"{stem}_{n}" in self._names:
            n += 1
        self._names[stem], self._names[f"{stem}_{n}"] = n + 1, 1
        return f"%{stem}_{n}"

    def do(self, text: str) -> None:
        """Write an operation without results."""
        self.lines.append("  " * self.depth + text)

    def emit(self, text: str, stem: str = "v") -> str:
        """Write `%name = text`; returns `%name`."""
        name = self.fresh(stem)
        self.do(f"{name} = {text}")
        return name

    def constant(self, text: str, type_: str) -> str:
        """A constant, made once at the begin of the function."""
        key = text, type_
        if key not in self._constants:
            number = re.fullmatch(r"-?\d+", text) is not None and "<" not in type_
            plain = f"c{text.replace('-', 'm')}{'' if type_ == 'index' else '_' + type_}" if number else "cst"
            self._constants[key] = self.fresh(plain)
        return self._constants[key]

    def alloca(self, type_: str, stem: str) -> str:
        """Memory that lives as long as the innermost scope of automatic allocations; its name."""
        name = self.fresh(stem)
        self.allocas.append(f"{name} = memref.alloca() : {type_}")
        return name

    @contextmanager
    def region(self, head: str, tail: str = "}") -> Iterator[None]:
        """Lines between `head` and `tail`, one step further right."""
        self.do(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.do(tail)

    @contextmanager
    def at_begin(self) -> Iterator[None]:
        """What is written stands at the begin of the function."""
        lines, depth, self.lines, self.depth = self.lines, self.depth, self.begin, 2
        yield
        self.lines, self.depth = lines, depth

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is written is a scope of automatic allocations, as the body of a parallel loop is."""
        lines, allocas = self.lines, self.allocas
        self.lines, self.allocas = [], []
        yield
        lines += ["  " * self.depth + text for text in self.allocas] + self.lines
        self.lines, self.allocas = lines, allocas

    def finish(self, head: str) -> str:
        """The text of the whole function."""
        pad = "    "
        constants = [
            f"{pad}{name} = arith.constant {text} : {type_}" for (text, type_), name in self._constants.items()
        ]
        for k, line in enumerate(constants):  # `true : i1` is written without its type
            constants[k] = re.sub(r"= arith.constant (true|false) : i1$", r"= arith.constant \1", line)
        taken = [pad + text for text in self.allocas]
        return "\n".join([f"  {head} {{", *constants, *self.begin, *taken, *self.lines, f"{pad}return", "  }"])
