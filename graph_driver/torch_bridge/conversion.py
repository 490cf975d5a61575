"""An FX graph of ATen operators as a `Graph`, and how its arguments and results lie in torch's memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import torch

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.size import Size, SizeError, evaluate
from polyc.graph_driver.torch_bridge.aten import of_complex, table
from polyc.graph_driver.torch_bridge.aten.complex_numbers import of_pairs, pairs
from polyc.graph_driver.torch_bridge.aten.spectra import TRANSFORMS
from polyc.graph_driver.torch_bridge.eager import EagerCall, Place, complex_of, parts_of
from polyc.graph_driver.torch_bridge.lowering import Complex, Foreign, Lowering, Value
from polyc.graph_driver.torch_bridge.sizes import Formulas, Sizes, dense_order
from polyc.graph_driver.torch_bridge.types import PARTS, TO_POLYC, as_array, polyc_dtype
from polyc.poly.errors import ModelError, PolycError
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Argument:
    """A tensor argument at a position: what it must be to be read where it lies."""

    position: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Made:
    """A result that the program writes: number `index` of the graph's outputs."""

    index: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Alias:
    """A result that is an argument, or a view of one; `offset` in elements from the argument's first."""

    position: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    whole: bool


@dataclass(frozen=True)
class Plain:
    """A result that is no tensor."""

    value: Any


@dataclass(frozen=True)
class Eager:
    """An ATen operator that torch runs: its name, why, and the line of the user's program that it comes from."""

    operator: str
    reason: str
    place: str

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.operator}{where}: {self.reason}"


@dataclass
class Converted:
    """The graph, its arguments in the order of its inputs, its results in the order of the FX graph's."""

    graph: Graph
    arguments: list[Argument] = field(default_factory=list)
    results: list[Made | Alias | Plain] = field(default_factory=list)
    eager: list[Eager] = field(default_factory=list)
    numbers: dict[int, str] = field(default_factory=dict)
    """Arguments that are symbolic sizes themselves, by position."""

    def at(self, values: Mapping[str, int]) -> Converted:
        """With numbers in the place of formulas; the graph is the same."""
        return replace(
            self, arguments=[_at(a, values) for a in self.arguments], results=[_at(r, values) for r in self.results]
        )


def _at(part: Any, values: Mapping[str, int]) -> Any:
    """An argument or a result with numbers in the place of formulas."""
    found = dict(vars(part))
    for name, value in found.items():
        if isinstance(value, tuple):
            found[name] = tuple(evaluate(n, values) for n in value)
        elif isinstance(value, Size):
            found[name] = evaluate(value, values)
    return type(part)(**found)


class StrictError(ModelError):
    """An operator would run in eager mode, which the strict mode forbids."""

    code = "P405"


def convert(
    gm: torch.fx.GraphModule, name: str, args: Sequence[Any] | None = None, strict: bool = False,
    fixed: Mapping[str, torch.Tensor] | None = None, formulas: bool = False,
) -> Converted:  # fmt: skip
    """The FX graph as polyc's.

    Args:
        gm: a functional graph of ATen operators, with fake tensors as `meta["val"]`.
        name: of the graph.
        args: what it is called with, for sizes that are symbols.
        strict: refuse operators that would run in eager mode.
        fixed: arguments that become constants, by the name of their node.
        formulas: symbolic sizes stay formulas, of which those of `args` are representative.

    Raises:
        SizeError: something needs a number where a size is symbolic.
        StrictError: that happened.
        ModelError: the graph has something that cannot run at all.
    """
    return _Converter(gm, name, strict, fixed or {}, formulas).run(args)


class _Converter:
    def __init__(
        self, gm: torch.fx.GraphModule, name: str, strict: bool, fixed: Mapping[str, torch.Tensor], formulas: bool
    ) -> None:
        self.gm, self.strict, self.fixed = gm, strict, fixed
        self.sizes = Formulas() if formulas else Sizes()
        self.build = Lowering(name, self.sizes.symbols if isinstance(self.sizes, Formulas) else None)
        self.build.strict = strict
        self.made = Converted(self.build.graph)
        self.env: dict[torch.fx.Node, Any] = {}
        self.token: Value | Foreign | None = None
        self.position: dict[torch.fx.Node, int] = {}
        self._packed: dict[Complex, Foreign] = {}
        self._complex: dict[Foreign, torch.dtype] = {}
        """Complex numbers that eager steps make."""
        self._unpacked: dict[Foreign, Complex] = {}

    def run(self, args: Sequence[Any] | None) -> Converted:
        nodes = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        self._bind(nodes, args)
        for k, node in enumerate(nodes):
            if node.name in self.fixed:
                self.env[node] = self._constant(self.fixed[node.name])
                continue
            self.position[node] = k
            self.env[node] = self._argument(k, node, None if args is None else args[k])
        for node in self.gm.graph.nodes:
            if node.op == "call_function":
                self.env[node] = self._call(node)
            elif node.op == "get_attr":
                self.env[node] = self._attribute(node)
            elif node.op == "output":
                self._results(node.args[0])
            elif node.op != "placeholder":
                raise ModelError(f"an FX node of the kind {node.op} is no operator: {node}")
        return self.made

    # ---- leaves ----

    def _bind(self, nodes: Sequence[torch.fx.Node], args: Sequence[Any] | None) -> None:
        for node, arg in zip(nodes, args if args is not None else [None] * len(nodes), strict=True):
            val = node.meta.get("val")
            if isinstance(val, torch.Tensor) and isinstance(arg, torch.Tensor):
                for size, n in zip((*val.shape, *val.stride()), (*arg.shape, *arg.stride()), strict=True):
                    self.sizes.bind(size, n)
            elif isinstance(arg, int):
                self.sizes.bind(val, arg)

    def _argument(self, position: int, node: torch.fx.Node, arg: Any) -> Any:
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor):
            if not isinstance(val, torch.SymInt):
                return arg if val is None else val
            size: Any = self.sizes.number(val)
            if isinstance(size, Size):
                self.made.numbers[position] = str(size)
            return size
        shape, stride = self.sizes.numbers(val.shape), self.sizes.numbers(val.stride())
        order = dense_order(shape, stride)
        if order is None:
            order, stride = list(range(len(shape))), _row_major(shape)
        self.made.arguments.append(Argument(position, val.dtype, shape, stride))
        if not _is_known(val, PARTS):
            return self.build.foreign(node.name, shape)
        self.build.where = node.name
        back, lies = [order.index(k) for k in range(len(order))], [shape[k] for k in order]
        if val.dtype in PARTS:
            parts = self.build.input(node.name, polyc_dtype(PARTS[val.dtype]), [*lies, 2])
            return of_pairs(self.build, self.build.transpose(parts, [*back, len(back)]))
        return self.build.transpose(self.build.input(node.name, polyc_dtype(val.dtype), lies), back)

    def _attribute(self, node: torch.fx.Node) -> Any:
        found: Any = self.gm
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            return found
        return self._constant(found)

    def _constant(self, tensor: torch.Tensor) -> Value | Complex:
        if tensor.dtype in PARTS:
            tensor = tensor.resolve_conj()
            parts = [self.build.constant(as_array(t), polyc_dtype(t.dtype)) for t in (tensor.real, tensor.imag)]
            return Complex(*parts)
        return self.build.constant(as_array(tensor), polyc_dtype(tensor.dtype))

    # ---- operators ----

    def _call(self, node: torch.fx.Node) -> Any:
        args, kwargs = self._value(list(node.args)), self._value(dict(node.kwargs))
        if node.target is operator.getitem:
            return args[0][args[1]]
        val = node.meta.get("val")
        if not _tensors(args) and not _tensors(kwargs) and not isinstance(val, (torch.Tensor, tuple, list)):
            return node.target(*args, **kwargs) if callable(node.target) else None  # arithmetic on sizes
        name = str(node.target).removeprefix("aten.")
        if name in _OF_SIZES:
            return _OF_SIZES[name](*args)
        if val is None:
            return None  # an assertion: what it says has been checked when the graph was made
        self.build.where = node.name
        wanted = val[0] if isinstance(val, (tuple, list)) and val else val
        self.build.kind, self.build.operand_memory = name, self._memory_of(node)
        known = _known(val, PARTS)
        self.build.result = self._part_type(wanted) if isinstance(wanted, torch.Tensor) and known else None
        self.build.results = self._read_types(node) if known else []
        try:
            function, given, named = self._function(node, args, kwargs, val)
        except Unsupported as error:
            return self._in_eager(node, args, kwargs, val, str(error))
        before = len(self.build.graph.nodes)
        try:
            return self._as_torch_says(function(self.build, *given, **named), val)
        except PolycError as error:
            del self.build.graph.nodes[before:]
            return self._in_eager(node, args, kwargs, val, str(error))

    def _function(self, node: torch.fx.Node, args: Any, kwargs: Any, val: Any) -> tuple[Callable[..., Any], Any, Any]:
        """The function of the table for a node, and the arguments for it. Raises `Unsupported`: there is none."""
        made_whole = self._foreign_complex([args, kwargs])
        complex_ = made_whole or not _known(val) or _tensors([args, kwargs], (Complex,))
        known = _known(val, PARTS)
        functions = of_complex() if complex_ and known else table()
        function = functions.get(self.build.kind) if isinstance(node.target, torch._ops.OpOverload) else None
        if function is None:
            raise Unsupported("polyc has no such operator" + (" of complex numbers" if complex_ and known else ""))
        if made_whole and _is_view(node):
            raise Unsupported("a view of complex numbers that torch made")
        if made_whole and not self.strict and all(self._is_torchs(user) for user in node.users):
            raise Unsupported("between operators in eager mode: numbers would be taken apart for it alone")
        if known and made_whole:
            args, kwargs = self._in_parts(args), self._in_parts(kwargs)
        if not known or _foreign([args, kwargs]):
            raise Unsupported("polyc has no such element type or layout")
        return function, args, kwargs

    def _is_torchs(self, node: torch.fx.Node) -> bool:
        """Whether a reader of complex numbers runs in eager mode in any case."""
        name = str(node.target).removeprefix("aten.")
        return node.op == "call_function" and (name in TRANSFORMS or name not in of_complex())

    def _foreign_complex(self, args: Any) -> bool:
        """Whether complex numbers that an eager step made are among the arguments."""
        if isinstance(args, dict):
            args = list(args.values())
        if isinstance(args, (list, tuple)):
            return any(self._foreign_complex(a) for a in args)
        return isinstance(args, Foreign) and args in self._complex

    def _as_torch_says(self, found: Any, val: Any) -> Any:
        """Results with torch's element types. Raises `Unsupported`: with other shapes, a bug of the table."""
        if isinstance(val, (tuple, list)):
            return [self._as_torch_says(f, v) for f, v in zip(found, val, strict=True)]
        if not isinstance(val, torch.Tensor) or found is None:
            return found
        dtype, shape = self._part_type(val)
        if isinstance(found, Complex) != (val.dtype in PARTS):
            raise Unsupported("the real part alone")
        if found.shape != shape:
            raise Unsupported(f"polyc makes the shape {list(found.shape)}, torch {list(shape)}: please report this")
        if isinstance(found, Complex):
            if found.dtype == dtype:
                return found
            return Complex(self.build.cast(found.re, dtype), self.build.cast(found.im, dtype))
        return self.build.cast(found, dtype)

    def _in_eager(self, node: torch.fx.Node, args: Any, kwargs: Any, val: Any, reason: str) -> Any:
        several = isinstance(val, (tuple, list))
        if not several and not isinstance(val, torch.Tensor):
            where = _place(node) or node.name
            raise ModelError(f"{where}: data decide this number ({node.target}): keep it a tensor instead")
        operands: list[Value | Foreign] = []
        wanted = _used(node) if several else [0]
        args, kwargs = self._with_complex(args), self._with_complex(kwargs)
        call = EagerCall(node.target, _placed(args, operands), _placed(kwargs, operands), reason, wanted)  # type: ignore[arg-type]
        eager = Eager(str(node.target), reason, _place(node))
        if isinstance(self.sizes, Formulas):
            raise SizeError(f"{eager}: with symbolic sizes nothing runs in eager mode")
        if self.strict:
            raise StrictError(f"{eager} (strict mode: nothing runs in eager mode)")
        self.made.eager.append(eager)
        tensors = [val[k] if several else val for k in wanted]
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if random and self.token is not None:
            operands.append(self.token)  # random numbers are drawn in the order of the program
        made = self.build.python(call, operands, [self._type(v) for v in tensors], str(node.target))
        if random and made:
            self.token = made[0]
        for v, result in zip(tensors, made, strict=True):
            if isinstance(result, Foreign) and v.dtype in PARTS:
                self._complex[result] = v.dtype
        if not several:
            return made[0]
        found = dict(zip(wanted, made, strict=True))
        return [found.get(k, v if not isinstance(v, torch.Tensor) else None) for k, v in enumerate(val)]

    def _with_complex(self, args: Any) -> Any:
        """Arguments for torch: complex numbers are whole again."""
        if isinstance(args, (list, tuple)):
            return type(args)(self._with_complex(a) for a in args)
        if isinstance(args, dict):
            return {k: self._with_complex(a) for k, a in args.items()}
        if not isinstance(args, Complex):
            return args
        if args not in self._packed:
            given = list(args.parts) if args.pairs is None else [args.pairs]
            target = torch.complex if args.pairs is None else complex_of
            call = EagerCall(target, [Place(k) for k in range(len(given))], {}, "for an operator in eager mode")
            (self._packed[args],) = self.build.python(call, given, [(None, args.shape)], "complex")  # type: ignore[assignment]
        return self._packed[args]

    def _in_parts(self, args: Any) -> Any:
        """Arguments for kernels: complex numbers that an eager step made are in parts."""
        if isinstance(args, (list, tuple)):
            return type(args)(self._in_parts(a) for a in args)
        if isinstance(args, dict):
            return {k: self._in_parts(a) for k, a in args.items()}
        if not isinstance(args, Foreign) or args not in self._complex:
            return args
        if args not in self._unpacked:
            part = polyc_dtype(PARTS[self._complex[args]])
            call = EagerCall(parts_of, [Place(0)], {}, "for kernels", (0, 1))
            re, im = self.build.python(call, [args], [(part, args.shape)] * 2, "parts")
            assert isinstance(re, Value) and isinstance(im, Value)
            self._unpacked[args] = Complex(re, im)
            self._packed[self._unpacked[args]] = args
        return self._unpacked[args]

    def _read_types(self, node: torch.fx.Node) -> list[Any]:
        """The types of the results of which there are several; None of one that nobody reads."""
        val = node.meta["val"]
        if not isinstance(val, (tuple, list)):
            return []
        used = _used(node)
        return [self._part_type(v) if k in used and isinstance(v, torch.Tensor) else None for k, v in enumerate(val)]

    def _part_type(self, val: torch.Tensor) -> tuple[Any, tuple[int, ...]]:
        return TO_POLYC[PARTS.get(val.dtype, val.dtype)], self.sizes.numbers(val.shape)

    def _type(self, val: torch.Tensor) -> tuple[Any, tuple[int, ...]]:
        return TO_POLYC.get(val.dtype) if _is_known(val, {}) else None, self.sizes.numbers(val.shape)

    def _memory_of(self, node: torch.fx.Node) -> tuple[tuple[int, ...], int] | None:
        """Strides and offset of the first operand."""
        first = node.args[0] if node.args else None
        val = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
        if not isinstance(val, torch.Tensor) or val.layout is not torch.strided:
            return None
        return self.sizes.numbers(val.stride()), self.sizes.number(val.storage_offset())

    def _value(self, arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node):
            return self.env[arg]
        if isinstance(arg, (list, tuple)):
            return [self._value(a) for a in arg]
        if isinstance(arg, dict):
            return {k: self._value(a) for k, a in arg.items()}
        if isinstance(arg, torch.SymInt):
            return self.sizes.number(arg)
        return arg

    # ---- results ----

    def _results(self, results: Sequence[Any]) -> None:
        taken: set[str] = set(self.build.graph.inputs)
        for result in results:
            found = self._value(result)
            if not isinstance(found, (Value, Foreign, Complex)):
                self.made.results.append(Plain(found))
                continue
            val = result.meta["val"]
            shape = self.sizes.numbers(val.shape)
            sparse = val.layout is not torch.strided
            stride = (0,) * len(shape) if sparse else self.sizes.numbers(val.stride())
            alias = None if sparse else self._alias(result, shape, stride)
            if alias is not None:
                self.made.results.append(alias)
                continue
            if isinstance(found, Foreign):
                if found.name in taken:
                    call = EagerCall(torch.clone, [Place(0)], {}, "a result that is there twice")
                    (found,) = self.build.python(call, [found], [(None, shape)], "clone")
                taken.add(found.name)
                self.made.results.append(Made(len(self.build.graph.outputs), val.dtype, shape, stride))
                self.build.graph.outputs.append(found.name)
                continue
            order = dense_order(shape, stride)
            if order is None:
                order, stride = list(range(len(shape))), _row_major(shape)
            self.build.where = f"{result.name}.result"
            if isinstance(found, Complex):
                stored = self.build.transpose(pairs(self.build, found), [*order, len(order)])
            else:
                stored = self.build.transpose(found, order)
            if stored.name in taken:
                stored = self.build.op("Identity", stored)
            taken.add(stored.name)
            self.made.results.append(Made(len(self.build.graph.outputs), val.dtype, shape, stride))
            self.build.graph.outputs.append(stored.name)

    def _alias(self, node: torch.fx.Node, shape: tuple[int, ...], stride: tuple[int, ...]) -> Alias | None:
        """The result as a view of an argument, if it is one."""
        source = node
        while source.op == "call_function" and _is_view(source):
            source = source.args[0]  # type: ignore[assignment]
        if source not in self.position:
            return None
        offset = self.sizes.number(node.meta["val"].storage_offset())
        offset -= self.sizes.number(source.meta["val"].storage_offset())
        return Alias(self.position[source], shape, stride, offset, source is node)


def _is_view(node: torch.fx.Node) -> bool:
    """Whether the result is elements of the first argument where they lie: in the same memory, and read alike. Parts of
    complex numbers, bits as another type and conjugates share the memory but are other numbers."""
    target, val = node.target, node.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(val, torch.Tensor) or not node.args:
        return False
    returns, first = target._schema.returns, node.args[0]
    if len(returns) != 1 or returns[0].alias_info is None or not isinstance(first, torch.fx.Node):
        return False
    of = first.meta.get("val")
    if not isinstance(of, torch.Tensor):
        return False
    return bool(val.dtype == of.dtype and val.is_conj() == of.is_conj() and val.is_neg() == of.is_neg())


def _used(node: torch.fx.Node) -> list[int]:
    """Which tensors of an operator with several results are used: the others are not stored, and what torch says of
    their shapes need not hold. Of one that is only run for its effect, the first."""
    tensors = [k for k, v in enumerate(node.meta["val"]) if isinstance(v, torch.Tensor)]
    if any(user.target is not operator.getitem for user in node.users):
        return tensors
    taken = {user.args[1] for user in node.users}
    return [k for k in tensors if k in taken] or tensors[:1]


def _placed(args: Any, operands: list[Value | Foreign]) -> Any:
    """Arguments with a `Place` for each tensor, which goes to `operands`."""
    if isinstance(args, (Value, Foreign)):
        operands.append(args)
        return Place(len(operands) - 1)
    if isinstance(args, (list, tuple)):
        return type(args)(_placed(a, operands) for a in args)
    if isinstance(args, dict):
        return {k: _placed(a, operands) for k, a in args.items()}
    return args


def _tensors(args: Any, kinds: tuple[type, ...] = (Value, Foreign, Complex)) -> bool:
    if isinstance(args, dict):
        args = list(args.values())
    if isinstance(args, (list, tuple)):
        return any(_tensors(a, kinds) for a in args)
    return isinstance(args, kinds)


def _foreign(args: Any) -> bool:
    return _tensors(args, (Foreign,))


def _known(val: Any, more: Mapping[torch.dtype, torch.dtype] | None = None) -> bool:
    """Whether polyc has the element types, or these are among `more`, and the layouts of these fake tensors."""
    several = val if isinstance(val, (tuple, list)) else [val]
    return all(_is_known(v, more or {}) for v in several if isinstance(v, torch.Tensor))


def _is_known(val: torch.Tensor, more: Mapping[torch.dtype, torch.dtype]) -> bool:
    return (val.dtype in TO_POLYC or val.dtype in more) and val.layout is torch.strided


def _place(node: torch.fx.Node) -> str:
    """The user's line behind a node: the last of its stack trace."""
    trace = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    files = [k for k, line in enumerate(trace) if line.startswith("File ")]
    return "" if not files else ": ".join(trace[files[-1] :])


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    stride, step = [], 1
    for n in reversed(shape):
        stride.append(step)
        step *= max(n, 1)
    return tuple(reversed(stride))


_OF_SIZES: dict[str, Callable[..., Any]] = {
    "sym_size.int": lambda x, axis: x.shape[axis],
    "sym_numel.default": lambda x: x.size,
}
