"""Writing one LLVM function as text: fresh names, blocks, allocas, declarations.

Knows LLVM's syntax and nothing of loop IR.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

RESERVED = ("entry", "start", "buffers", "params", "runtime", "context", "from", "to")  # names that signatures use


class ModuleText:
    """What functions of one module share: declarations, metadata, function bodies.

    `vector_bits` is the width of vector registers of a machine with the instructions `isa`; `dot_bytes`: it has one for
    four products of bytes and their sum; `dot_codes`: two, where the bytes of the first operand are below 128."""

    def __init__(self, vector_bits: int = 0, isa: str = "", dot_bytes: bool = False, dot_codes: bool = False) -> None:
        self.vector_bits, self.isa, self.dot_bytes, self.dot_codes = vector_bits, isa, dot_bytes, dot_codes
        self.declarations: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self.metadata: list[str] = []
        self.named: list[str] = []  # metadata that has names
        self._shared: dict[str, str] = {}
        self.functions: list[str] = []
        self._counts: dict[str, int] = {}

    def declare(self, name: str, result: str, args: Sequence[str]) -> str:
        """Make sure that `name` is declared; returns `@name`."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(args)})"
        return f"@{name}"

    def unique(self, stem: str) -> str:
        """A global name not used before."""
        n = self._counts.get(stem, -1) + 1
        self._counts[stem] = n
        return stem if n == 0 else f"{stem}.{n}"

    def shared_constant(self, stem: str, data: bytes) -> str:
        """The address of constant bytes, which lie on lines of 64 bytes."""
        text = "".join(f"\\{b:02X}" for b in data)
        body = f'private unnamed_addr constant [{len(data)} x i8] c"{text}", align 64'
        found = next((name for name, known in self.constants.items() if known == body), None)
        if found is None:
            found = f"@{self.unique(stem)}"
            self.constants[found] = body
        return found

    def add_metadata(self, body: str, distinct: bool = False) -> str:
        """A numbered metadata node; `SELF` in `body` is its own name. Returns `!n`."""
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {'distinct ' if distinct else ''}!{{{body.replace('SELF', name)}}}")
        return name

    def add_node(self, node: str) -> str:
        """A numbered metadata node with any content. Returns `!n`."""
        self.metadata.append(f"!{len(self.metadata)} = {node}")
        return f"!{len(self.metadata) - 1}"

    def shared_node(self, node: str) -> str:
        """The same, made once for one content."""
        if node not in self._shared:
            self._shared[node] = self.add_node(node)
        return self._shared[node]

    def name_node(self, name: str, node: str) -> None:
        """Module-level metadata `!name`."""
        self.named.append(f"!{name} = !{{{node}}}")

    def shared_metadata(self, body: str) -> str:
        """The node with this content, made once."""
        line = f"!{{{body}}}"
        for k, existing in enumerate(self.metadata):
            if existing.endswith(f"= {line}"):
                return f"!{k}"
        return self.add_metadata(body)

    def text(self, header: Sequence[str]) -> str:
        """The whole module."""
        declared = [self.declarations[k] for k in sorted(self.declarations)]
        constants = "\n".join(f"{name} = {body}" for name, body in self.constants.items())
        parts = [
            "\n".join(header),
            constants,
            *self.functions,
            "\n".join(declared),
            "\n".join(self.named + self.metadata),
        ]
        return "\n\n".join(p for p in parts if p) + "\n"


Known = TypeVar("Known")

PURE = frozenset(
    "add sub mul sdiv udiv srem urem shl lshr ashr and or xor fadd fsub fmul fdiv fneg icmp fcmp select getelementptr "
    "insertelement extractelement shufflevector trunc zext sext fptrunc fpext sitofp uitofp bitcast".split()
)
"""Instructions whose text says all about their result: it depends on no memory and no path."""


class FunctionText:
    """One function under construction. `block` is the label of the block being written;
    `suffix` ends every instruction (a debug location)."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.entry: list[str] = []  # allocas and the like, before everything else
        self.lines: list[str] = []
        self.block = "start"
        self.suffix = ""
        self._names = dict.fromkeys(RESERVED, 1)
        self._known: dict[Hashable, Any] = {}
        self._here: list[Hashable] = []  # what of it is of the innermost scope
        self.low_bytes: set[str] = set()  # values of i32 of which each byte is below 128

    def fresh(self, stem: str = "t") -> str:
        """A new local name without sigil, readable and unique."""
        n = self._names.get(stem, 0)
        self._names[stem] = n + 1
        return stem if n == 0 and stem != "t" else f"{stem}.{n}"

    def emit(self, text: str, stem: str = "t") -> str:
        """Write `%name = text`; returns `%name`."""
        name = "%" + self.fresh(stem)
        self.lines.append(f"  {name} = {text}{self.suffix}")
        return name

    def compute(self, text: str, stem: str = "t") -> str:
        """`emit`, or the name of the same value where every path to here has computed it (`scope`)."""
        found = self._known.get(text)
        if found is None:
            found = self.emit(text, stem)
            if text.partition(" ")[0] in PURE:
                self.know(text, found)
        return str(found)

    def known(self, key: Hashable) -> Any:
        """What every path to here has kept under a key; else None."""
        return self._known.get(key)

    def know(self, key: Hashable, what: Known) -> Known:
        """Keep what has just been computed; returns it."""
        self._known[key] = what
        self._here.append(key)
        return what

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Blocks that what comes after them need not have passed: their values are not used again there."""
        outer, self._here = self._here, []
        try:
            yield
        finally:
            for key in self._here:
                del self._known[key]
            self._here = outer

    def do(self, text: str) -> None:
        """Write an instruction without result."""
        self.lines.append(f"  {text}{self.suffix}")

    def label(self, name: str) -> None:
        """Start a block (the last one must have ended in a branch)."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, target: str, metadata: str = "") -> None:
        """Unconditional branch."""
        self.do(f"br label %{target}{metadata}")

    def branch(self, cond: str, then: str, orelse: str) -> None:
        """Conditional branch."""
        self.do(f"br i1 {cond}, label %{then}, label %{orelse}")

    def alloca(self, type_: str, stem: str, align: int) -> str:
        """A stack slot that lives as long as the function's activation."""
        name = "%" + self.fresh(stem)
        self.entry.append(f"  {name} = alloca {type_}, align {align}")
        return name

    def finish(self, signature: str, result: str = "void") -> None:
        """Close with `ret RESULT` and add to the module."""
        self.do(f"ret {result}")
        body = ["entry:", *self.entry, "  br label %start", "start:", *self.lines]
        self.module.functions.append(f"{signature} {{\n" + "\n".join(body) + "\n}")
