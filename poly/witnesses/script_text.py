"""The text of a witness's script: data, statements as functions, two orders, and what is compared."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from textwrap import wrap
from typing import Any

from polyc.poly.access import accumulator_of
from polyc.poly.binding import evaluate
from polyc.poly.enumeration import Instance
from polyc.poly.expr import Call, Expr, loads, walk
from polyc.poly.records import dataclass
from polyc.poly.scop import Array, Statement
from polyc.poly.text import print_statement
from polyc.poly.witnesses.executions import DROP_BUFFER, NEW_BUFFER, Entry, Enumerated, Execution
from polyc.poly.witnesses.numpy_text import coin_text, dtype_text, numpy_text, tag_text
from polyc.poly.witnesses.witness import Case, Witness


@dataclass(frozen=True)
class Values:
    """The element `array[element]` in the program's order and in the refused one.

    `when`: "at the end", or the moment of the conflict. `tags`: symbolic values (see the module).
    """

    array: str
    element: tuple[int, ...]
    right: Any
    wrong: Any
    when: str
    tags: bool

    def __str__(self) -> str:
        where = f"{self.array}[{', '.join(map(str, self.element))}]" if self.element else self.array
        kind = " (symbolic tags)" if self.tags else ""
        return f"{where} {self.when} is {self.right} in the program, {self.wrong} in the refused order{kind}"


@dataclass(frozen=True)
class Moment:
    """The conflict's element just before `reader` runs; without one, just after both of `pair` ran."""

    array: str
    element: tuple[int, ...]
    pair: tuple[Instance, Instance]
    reader: Instance | None
    words: str


def moment_of(w: Witness) -> Moment:
    """When the pair of a witness shows in its element."""
    reader = {"RAW": w.sink, "WAR": w.source, "WAW": None}[w.kind]
    if reader is None:
        words = f"when {w.instance('source')} and {w.instance('sink')} have run"
    else:
        words = f"when {w.instance('sink' if w.kind == 'RAW' else 'source')} reads it"
    return Moment(w.array, w.element, (w.source, w.sink), reader, words)


@dataclass(frozen=True)
class Script:
    """One script: which execution it shows, with which data (`seed`), how (`tags`, `moment`)."""

    witness: Witness
    case: Case
    found: Enumerated
    refused: Execution
    tags: bool
    moment: Moment | None
    seed: int

    def text(self, values: Values) -> str:
        """The whole script."""
        watched = f'result["{values.array}"][{_tuple(values.element)}]' if self.moment is None else "result"
        shown = f"{values.array}[{', '.join(map(str, values.element))}]" if values.element else values.array
        return f'''{self.heading()}
{self.program_text()}


def main(seed=SEED):
    """Run both orders on the same data; 0 if the element differs, else 1."""
    with np.errstate(all="ignore"):
        values = []
        for order in (PROGRAM, REFUSED):
            result = run(order, data(seed))
            values.append({watched})
    right, wrong = values
    print("{shown} {values.when}")
    print("  in the program's own order:", right)
    print("  {_quoted(self.refused.words)}:", wrong)
    same = bool(right == wrong) or (right != right and wrong != wrong)
    print("equal: this seed does not show it" if same else "the two differ")
    return 1 if same else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
'''

    def heading(self) -> str:
        """The script's docstring: what was refused and why, with sizes and source lines, how to read the lists."""
        w, scop = self.witness, self.case.scop
        at = f" with {w.sizes}" if w.params else ""
        lines = wrap(f"'{scop.name}'{at}: {w.why}.", 100)
        lines += [f"    {span}: {span.text.strip()}" for span in dict.fromkeys((w.source_span, w.sink_span)) if span]
        lines.append("")
        lines += wrap(
            "PROGRAM and REFUSED list (statement, its indices) in order of execution, enumerated by polyc "
            f"from the program and from the refused schedule. REFUSED is {self.refused.words}.", 100
        )  # fmt: skip
        if self.found.partial:
            lines.append(f"Only the instances that touch {w.touched} run (in both); all arrays hold random data.")
        if any(s.dynamic for s in scop.statements.values()):
            lines.append("Data-dependent loops are listed with their first iterations; each checks its real bounds.")
        if self.tags:
            lines += [
                "The statements' own arithmetic hides the difference, so every store writes a tag made from its",
                "name, its indices and everything that it reads (reductions add the tag); comparisons of",
                "such tags are decided by chance.",
            ]
        lines += ["", "python THIS_FILE [seed]      exit status 0: the two values differ"]
        body = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
        return f'"""{body}\n"""'

    def program_text(self) -> str:
        """Everything but `main`."""
        imports = ["import sys"]
        if any(isinstance(n, Call) and n.fn == "erf" for e in self.expressions for n in walk(e)):
            imports.insert(0, "import math")
        if self.tags:
            imports.append("import zlib")
        sizes = "".join(f"{n} = {v}\n" for n, v in self.found.sizes.items())
        head = "\n".join([*imports, "", "import numpy as np", "", f"SEED = {self.seed}", sizes]).rstrip("\n")
        parts = [head, self.data_text()]
        if self.tags:
            parts.append(_TAG)
        parts += [self.statement_text(s) for s in self.found.scop.statements.values() if s.name in self.used]
        if self.case.promote is not None:
            parts.append(self.new_buffer_text())
        parts.append(self.orders_text)
        parts.append(self.run_text())
        return "\n\n\n".join(parts)

    @cached_property
    def used(self) -> frozenset[str]:
        """The statements that occur in the orders."""
        return frozenset(x[0] for x in self.found.program.order if not isinstance(x, str))  # type: ignore[misc]

    @cached_property
    def expressions(self) -> list[Expr]:
        """All expressions of the statements."""
        return [e for s in self.found.scop.statements.values() for e in _expressions(s)]

    @cached_property
    def memory(self) -> str:
        """What the statements call the dictionary of arrays: no name of the program."""
        scop = self.found.scop
        used = {*scop.arrays, *scop.params, *(i for s in scop.statements.values() for i in s.iters)}
        name = "memory"
        while name in used:
            name += "_"
        return name

    @cached_property
    def orders_text(self) -> str:
        """The two lists."""
        return f"PROGRAM = [{_listed(self.found.program.order)}]\n\nREFUSED = [{_listed(self.refused.order)}]"

    def data_text(self) -> str:
        """`data(seed)`: one array a line, with what its values are."""
        doc = "Fresh arrays: random where values come from elsewhere, poison where nothing is set yet."
        lines = ["def data(seed):", f'    """{doc}"""',
                 *(["    CHANCE[0] = seed"] if self.tags else []),
                 "    rng = np.random.default_rng(seed)", "    return {"]  # fmt: skip
        for a in self.found.scop.arrays.values():
            shape = _tuple(tuple(max(0, evaluate(e, {})) for e in a.shape))  # a local one may be empty
            lines.append(f'        "{a.name}": {self.values_text(a, shape)},')
        return "\n".join([*lines, "    }"])

    def values_text(self, a: Array, shape: str) -> str:
        """The initial values of an array."""
        bound = self.index_bound(a.name)
        if bound is not None:
            # used as a subscript or loop bound: stays inside the arrays, and meets the element now and then
            pool = sorted({c for c in self.witness.element if 0 <= c < bound})
            drawn = f"rng.choice({pool}, {shape})" if pool and self.seed % 2 else f"rng.integers(0, {bound}, {shape})"
            return f"{drawn}.astype({dtype_text(a.dtype)})"
        if a.kind in ("local", "out") and not self.found.partial:
            poison = "np.int64(-777)" if self.tags else "np.nan" if a.dtype.is_float else "77"
            return f"np.full({shape}, {poison}, {'np.int64' if self.tags else dtype_text(a.dtype)})"
        if a.dtype.kind == "bool" and not (self.tags and a.kind == "inout"):
            return f"rng.random({shape}) < 0.5"
        if self.tags:
            return f"rng.integers(0, 1000, {shape})"
        signed = self.seed % 2 == 1
        if a.dtype.is_float:
            sign = f" * rng.choice([-1, 1], {shape})" if signed else ""
            return f"(rng.integers(1, 17, {shape}) / 8{sign}).astype({dtype_text(a.dtype)})"
        low = -9 if signed and a.dtype.kind == "int" else 1
        return f"rng.integers({low}, 10, {shape}).astype({dtype_text(a.dtype)})"

    def index_bound(self, array: str) -> int | None:
        """How far the values of an integer array may go when it selects elements or iterations."""
        scop = self.found.scop
        bounds: list[int] = []
        for e in self.expressions:
            for load in loads(e):
                for axis, index in enumerate(load.index):
                    if any(x.array == array for x in loads(index)):
                        bounds.append(evaluate(scop.arrays[load.array].shape[axis], {}))
        for s in scop.statements.values():
            for b in s.dynamic:
                if any(x.array == array for e in (b.lo, b.hi) for x in loads(e)):
                    bounds.append(4)
        return max(1, min(bounds)) if bounds else None

    def statement_text(self, s: Statement) -> str:
        """A statement as a function that reads and says what it stores."""
        names = sorted({x.array for e in _expressions(s) for x in loads(e)})
        reads = [n for n in names if n in {x.array for e in _read_expressions(s) for x in loads(e)}]
        where = f"    # {s.span}" if s.span is not None else ""
        lines = [f"def {s.name}({', '.join([self.memory, *s.iters])}):{where}", f"    # {print_statement(s)}"]
        if reads:
            lines.append(f"    {', '.join(reads)} = {', '.join(f'{self.memory}[{n!r}]' for n in reads)}")
        for b in s.dynamic:
            lines.append(f"    if not {numpy_text(b.lo, 5)} <= {b.iter} < {numpy_text(b.hi, 5)}:\n        return None")
        if s.predicate is not None:
            predicate = coin_text(s.predicate) if self.tags else numpy_text(s.predicate)
            lines.append(f"    if not ({predicate}):\n        return {self.skipped_text(s)}")
        lines.append(f'    return "{s.array}", {_index_text(s)}, {self.value_text(s)}')
        return "\n".join(lines)

    def skipped_text(self, s: Statement) -> str:
        """What a statement whose condition fails returns: a buffer's copy out takes the element all the same."""
        if self.case.promote is None or self.case.promote.array != s.array:
            return "None"
        return f'"{s.array}", {_index_text(s)}, None'

    def value_text(self, s: Statement) -> str:
        """What the statement stores."""
        if not self.tags:
            return numpy_text(s.value)
        who = f'"{s.name}", {_tuple_text(s.iters)}'
        own = accumulator_of(s)
        if own is None:
            return f"make_tag({who}, {tag_text(s.value)})"
        others = [c for c in s.value.children() if c is not own]
        return f"{numpy_text(own)} + make_tag({who}, {', '.join(map(tag_text, others))})"

    def run_text(self) -> str:
        """The interpreter of an order."""
        before = after = ""
        start = "def run(order, memory):\n"
        if self.moment is not None:
            at = f'memory["{self.moment.array}"][{_tuple(self.moment.element)}]'
            if self.moment.reader is not None:
                reader = _entry(self.moment.reader)
                before = f"        if {reader} in group:  # {self.moment.words}\n"
                before += f"            seen = {at}.copy()\n"
            else:
                pair = f"{{{_entry(self.moment.pair[0])}, {_entry(self.moment.pair[1])}}}"
                after = (
                    f"        done.update(group)\n        if seen is None and {pair} <= done:\n"
                    f"            seen = {at}.copy()  # {self.moment.words}\n"
                )
        doc = '    """Run the instances in this order; a list is a group that all read before any of them writes."""\n'
        init = "    seen = None\n" if self.moment is not None else ""
        init += "    done = set()\n" if after else ""
        init += "    written = set()\n" if self.case.promote is not None and self.case.promote.copy_out else ""
        buffers, stored = self.buffer_text()
        keep = "if value is not None:\n                " if self.case.promote is not None else ""
        return (
            f"{start}{doc}{init}    for entry in order:\n{buffers}"
            f"        group = entry if isinstance(entry, list) else [entry]\n{before}"
            f"        stores = [statement(memory, *at) for statement, *at in group]\n"
            f"        for array, where, value in filter(None, stores):\n"
            f"            {keep}memory[array][where] = value\n{stored}{after}"
            f"    return {'memory' if self.moment is None else 'seen'}"
        )

    def buffer_text(self) -> tuple[str, str]:
        """What begins and ends a buffer, and what notes the elements written to it."""
        p = self.case.promote
        if p is None:
            return "", ""
        a = f'memory["{p.array}"]'
        begin = f", written = {a}, set()" if p.copy_out else f" = {a}"
        out = f"            for where in written:\n                outer[where] = {a}[where]\n" if p.copy_out else ""
        return (
            f'        if entry == "{NEW_BUFFER}":\n            outer{begin}\n'
            f"            {a} = buffer(outer)\n            continue\n"
            f'        if entry == "{DROP_BUFFER}":\n{out}            {a} = outer\n            continue\n',
            f'            if array == "{p.array}" and order is REFUSED:\n                written.add(where)\n'
            if p.copy_out
            else "",
        )

    def new_buffer_text(self) -> str:
        """The function that makes a promotion's buffer."""
        p = self.case.promote
        assert p is not None
        if p.copy_in:
            doc, value = "The elements are copied in.", "outer.copy()"
        else:
            real = self.case.scop.arrays[p.array].dtype.is_float
            poison = "np.nan" if real else 77
            if self.index_bound(p.array) is not None:
                poison = 0  # stands for any value: a subscript should stay in its array
            elif self.tags:
                poison = -777
            doc, value = "Nothing is copied in.", f"np.full_like(outer, {poison})"
        drop = "copied out" if p.copy_out else "dropped"
        return (
            f'def buffer(outer):\n    """The buffer that stands for {p.array}. {doc} At its end it is {drop}."""\n'
            f"    return {value}"
        )


_TAG = '''CHANCE = [0]


def make_tag(*what):
    """A number that stands for a stored value: by which instance, and from which values."""
    return zlib.crc32(repr((*CHANCE, *what)).encode())'''


def _index_text(s: Statement) -> str:
    return f"({''.join(numpy_text(i) + ', ' for i in s.index).rstrip()})"


def _expressions(s: Statement) -> Iterator[Expr]:
    yield s.target
    yield from _read_expressions(s)


def _read_expressions(s: Statement) -> Iterator[Expr]:
    yield from s.index
    yield s.value
    if s.predicate is not None:
        yield s.predicate
    for b in s.dynamic:
        yield b.lo
        yield b.hi


def _tuple(values: tuple[int, ...]) -> str:
    return str(tuple(values))


def _tuple_text(names: tuple[str, ...]) -> str:
    return f"({''.join(n + ', ' for n in names).rstrip()})"


def _entry(x: Instance) -> str:
    return f"({', '.join([x[0], *map(str, x[1])])}{'' if x[1] else ','})"


def _listed(order: tuple[Entry, ...]) -> str:
    """Entries, several a line."""
    lines, line = [], ""
    for e in order:
        if isinstance(e, str):
            text = f'"{e}"'
        elif isinstance(e[0], str):
            text = _entry(e)
        else:
            text = f"[{', '.join(_entry(x) for x in e)}]"
        if len(line) + len(text) > 100:
            lines.append(line)
            line = ""
        line += f"{text}, "
    return "\n    " + "\n    ".join(x.rstrip() for x in [*lines, line]) + "\n"


def _quoted(text: str) -> str:
    return text.replace('"', "'")
