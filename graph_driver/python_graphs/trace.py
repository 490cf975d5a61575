"""`polyc.trace`: a function over NumPy arrays, recorded as a graph when it is called, and compiled.

A recorded graph holds for calls that are like the one it was recorded at: guards say for which. They are the element
types and shapes of arrays among the arguments, everything else among them by value, and what the function reads from
around (`surroundings.py`). A call that no recorded graph holds for records another one, which is counted.

Arrays from around are inputs of the graph. Python can look into them, too, so the function is recorded again when their
elements have changed; mostly that gives the same graph, and nothing is compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.building.construction import Value
from polyc.graph_driver.compiling.from_source import compile_built
from polyc.graph_driver.graph.exact_text import exact_graph
from polyc.graph_driver.options import CompileOptions, options_of
from polyc.graph_driver.python_graphs import interpreting
from polyc.graph_driver.python_graphs.recording import Recording, element_type
from polyc.graph_driver.python_graphs.structure import Form, leaves, mapped
from polyc.graph_driver.python_graphs.surroundings import Surroundings, surroundings
from polyc.graph_driver.python_graphs.symbolic import AskedSizes, Shape
from polyc.graph_driver.python_graphs.tensors import GraphTensor
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError, ModelError, PolycError
from polyc.poly.records import dataclass

KEPT = 16
"""Recorded graphs that are kept; the one used longest ago goes first."""

SHOWN = 4
"""Differences that a reason names."""

Guards = Mapping[str, Hashable]


@dataclass(eq=False)
class Program:
    """A recorded graph: `reason` says why it was recorded, `guards`, `sizes` and `digest` (of the elements of arrays
    from around) for which calls it holds. `text` is the graph as it was recorded."""

    reason: str
    guards: Guards
    recording: Recording
    text: str
    sizes: AskedSizes
    around: Surroundings
    digest: tuple[int, ...]
    arguments: Mapping[str, str]
    captured: Mapping[str, str]
    result: Any
    model: Model | None = None

    def renew(self, again: Program) -> None:
        """Take what belongs to other elements of arrays from around, for which the graph came out the same."""
        self.recording, self.around, self.digest = again.recording, again.around, again.digest
        self.captured, self.result = again.captured, again.result

    def feeds(self, args: Mapping[str, np.ndarray], around: Surroundings) -> dict[str, np.ndarray]:
        """The inputs of the graph for a call."""
        found = {name: args[path] for name, path in self.arguments.items()}
        for name, array in self.recording.arrays.items():
            path = self.captured.get(name)
            found[name] = array if path is None else around.arrays[path]
        return found

    def results(self, made: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]) -> Any:
        """What the function returns, from the graph's outputs."""

        def leaf(value: Any, _: str) -> Any:
            if not isinstance(value, _Output):
                return value.copy() if isinstance(value, np.ndarray) else value
            array = feeds[value.name] if value.argument else made[value.name]
            return array if value.argument or array.ndim else array[()]

        return mapped(self.result, "", leaf)


@dataclass(frozen=True)
class _Output:
    """Stands for an output of the graph in the structure of the result; `argument`: it is one of the arguments."""

    name: str
    argument: bool


class Traced:
    """A function whose calls run compiled graphs. The three ways to run it give equal results: a call, `interpreted`
    (the graph, node by node), and `eager` (the function itself)."""

    def __init__(self, fn: Callable[..., Any], options: CompileOptions, sizes: Mapping[str, Shape]) -> None:
        self.eager = fn
        """The function itself."""
        self.options, self.sizes = options, dict(sizes)
        self.count = 0
        """How many graphs have been recorded so far."""
        self._programs: dict[tuple[Hashable, int], Program] = {}
        """By key and number: graphs with the same guards may hold for different symbolic sizes."""
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (TypeError, ValueError):
            self._signature = None
        update_wrapper(self, fn, updated=())
        self.name = str(getattr(fn, "__name__", type(fn).__name__))

    @property
    def retraces(self) -> int:
        """How many graphs were recorded after the first."""
        return max(self.count - 1, 0)

    @property
    def programs(self) -> Sequence[Program]:
        """The recorded graphs that are kept, the one used last at the end."""
        return tuple(self._programs.values())

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.count} graphs recorded, {len(self._programs)} kept"]
        for program in self._programs.values():
            lines.append(f"  {len(program.recording.graph.nodes)} nodes: {program.reason}")
        return "\n".join(lines)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph for these arguments, compiled; recorded now where no guards hold.

        Raises:
            ModelError: the function does something with a tensor that a graph cannot have (the line has its place).
            BoundsError: an index is out of range.
        """
        program, feeds = self._found(args, kwargs)
        if program.model is None and program.recording.graph.outputs:
            program.model = self._compiled(program.recording)
        made = {} if program.model is None else program.model(feeds)
        return program.results(made, feeds)

    def interpreted(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph for these arguments node by node: slow, and what kernels must be equal to. Raises as a call."""
        program, feeds = self._found(args, kwargs)
        graph = program.recording.graph
        if graph.symbols is not None:
            graph = interpreting.at(graph, feeds)
        return program.results(interpreting.run(graph, feeds), feeds)

    def _compiled(self, recording: Recording) -> Model:
        options = self.options
        platform = platform_of(options.target, options.threads)
        options.pipeline(platform)
        options.refuse_ignored(platform, symbolic=recording.graph.symbols is not None)
        return compile_built(interpreting.copied(recording.graph), platform, options)

    # ---- guards ------------------------------------------------------------------------------

    def _found(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Program, dict[str, np.ndarray]]:
        """The graph for these arguments, and its inputs."""
        named = self._named(args, kwargs)
        asked = AskedSizes(self.sizes)
        arrays, guards = _guards(named, asked)
        around = surroundings(self.eager)
        guards |= {f"{path or self.name} (read from around)": token for path, token in around.tokens.items()}
        key, digest = tuple(guards.items()), around.digest()
        alike = [k for k, p in self._programs.items() if k[0] == key and p.sizes.holds(asked.values)]
        found = next((k for k in alike if self._programs[k].digest == digest), None)
        if found is None:
            found = next((k for k in alike if self._renewed(self._programs[k], named, around)), None)
        if found is None:
            found = key, self.count
            self._programs[found] = self._recorded(named, guards, around, asked)
            self.count += 1
        program = self._programs[found] = self._programs.pop(found)
        while len(self._programs) > KEPT:
            del self._programs[next(iter(self._programs))]
        return program, program.feeds(arrays, around)

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name. Raises `ArgumentError`: the function does not take them."""
        if self._signature is None:
            return {str(k): a for k, a in enumerate(args)} | dict(kwargs)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _called(self, named: Mapping[str, Any]) -> Any:
        if self._signature is None:
            return self.eager(*[v for n, v in named.items() if n.isdigit()],
                              **{n: v for n, v in named.items() if not n.isdigit()})  # fmt: skip
        bound = inspect.BoundArguments(self._signature, dict(named))  # type: ignore[arg-type]
        return self.eager(*bound.args, **bound.kwargs)

    def _reason(self, guards: Guards) -> str:
        """What differs from the graph that is nearest."""
        if not self._programs:
            return "the first call"
        if any(p.guards == guards for p in self._programs.values()):
            return "sizes, or elements of an array from around, for which the others do not hold"
        found = [_differences(p.guards, guards) for p in reversed(self._programs.values())]
        return ", ".join(min(found, key=len)[:SHOWN])

    # ---- recording ---------------------------------------------------------------------------

    def _renewed(self, program: Program, named: Mapping[str, Any], around: Surroundings) -> bool:
        """Whether the function still makes this graph, after elements of arrays from around have changed."""
        again = self._record(named, program.guards, around, program.reason, program.sizes.again())
        if again.text != program.text:
            return False
        program.renew(again)
        return True

    def _recorded(
        self, named: Mapping[str, Any], guards: Guards, around: Surroundings, asked: AskedSizes
    ) -> Program:  # fmt: skip
        """A graph for this call: with symbolic sizes, unless what was decided by representative ones excludes these."""
        reason = self._reason(guards)
        try:
            program = self._record(named, guards, around, reason, asked.begin())
        except PolycError:
            if not asked.ones:
                raise
            return self._record(named, guards, around, reason, asked.begin(asked.ones))  # 1 is repeated, others are not
        if not program.sizes.holds(asked.values):
            program = self._record(named, guards, around, reason, asked.begin(asked.values))
        return program

    def _record(
        self, named: Mapping[str, Any], guards: Guards, around: Surroundings, reason: str, asked: AskedSizes
    ) -> Program:
        """The function called with tensors of a graph in the place of arrays. Raises `ModelError`."""
        recording = Recording(self.name, list(around.arrays.values()), asked.symbols)
        arguments: dict[str, str] = {}

        def leaf(value: Any, path: str) -> Any:
            if not isinstance(value, (np.ndarray, np.generic)):
                return value
            name = recording.graph.fresh(path)
            arguments[name] = path
            shape = asked.shape(path, value.shape)
            return GraphTensor(recording, recording.input(name, element_type(value.dtype), shape), shared=True)

        given = {name: mapped(value, name, leaf) for name, value in named.items()}
        before, digest = around.random_state(), around.digest()
        made = self._called(given)
        if surroundings(self.eager).random_state() != before:
            raise ModelError(
                f"{self.name} draws random numbers, which a graph would repeat at each call: give them as an argument"
            )
        if around.digest() != digest:
            raise ModelError(
                f"{self.name} changes elements of an array from around, which a graph would not do again: return them"
            )
        result = mapped(made, "", lambda value, path: _output(recording, value))
        places = {id(a): path for path, a in reversed(around.arrays.items())}
        captured = {n: places[id(a)] for n, a in recording.arrays.items() if id(a) in places}
        recording.finished = "the graph has been recorded: a tensor of it outlived the call"
        text = exact_graph(recording.graph)
        return Program(reason, guards, recording, text, asked, around, digest, arguments, captured, result)


def _output(recording: Recording, value: Any) -> Any:
    """A result of the function as an output of the graph, or as it is."""
    if not isinstance(value, GraphTensor):
        return value
    if value.recording is not recording:
        recording.refuse(f"{value!r} belongs to another graph")
    graph = recording.graph
    name = value.value.name
    if name in graph.inputs:
        return _Output(name, True)
    if name in graph.outputs:
        return _Output(name, False)
    made: Value = value.value
    if graph.constant(name) is not None:
        return np.array(graph.constant(name))
    graph.outputs.append(made.name)
    return _Output(made.name, False)


def _guards(named: Mapping[str, Any], asked: AskedSizes) -> tuple[dict[str, np.ndarray], dict[str, Hashable]]:
    """The arrays among the arguments by path, and for which arguments a graph would hold that these record."""
    arrays: dict[str, np.ndarray] = {}
    guards: dict[str, Hashable] = {}
    for name, value in named.items():
        for path, leaf in leaves(value, name):
            if isinstance(leaf, Form):
                guards[f"form of {path}"] = leaf
            elif isinstance(leaf, (np.ndarray, np.generic)):
                if isinstance(leaf, np.ma.MaskedArray):
                    raise ArgumentError(f"{path} is a masked array, whose elements are hidden: give .filled(...)")
                arrays[path] = np.asarray(leaf)
                guards[path] = ("array", leaf.dtype.str, asked.guard(path, leaf.shape))
            elif leaf is None or isinstance(leaf, (bool, int, float, complex, str, bytes)):
                guards[path] = (type(leaf).__name__, repr(leaf))
            else:
                try:
                    hash(leaf)
                except TypeError:
                    raise ArgumentError(
                        f"{path} is {leaf!r:.60}: arguments are arrays, numbers, texts, and tuples, lists or "
                        f"dictionaries of them"
                    ) from None
                guards[path] = leaf
    return arrays, guards


def _differences(before: Guards, now: Guards) -> list[str]:
    """What another graph's guards say otherwise; something in any case."""
    changed = [f"{p}: {_text(t)}, was {_text(before[p])}" for p, t in now.items() if p in before and before[p] != t]
    changed += [f"{p} is new" for p in now if p not in before] + [f"{p} is gone" for p in before if p not in now]
    return changed or ["arguments in another order"]


def _text(token: Any) -> str:
    if isinstance(token, tuple) and token and token[0] == "array":
        return f"{np.dtype(token[1])}{list(token[2])}"
    return str(token[-1]) if isinstance(token, tuple) else repr(token)


def trace(
    fn: Callable[..., Any], *, sizes: Mapping[str, Shape] | None = None, target: str = "cpu", **options: Any
) -> Traced:
    """A function over NumPy arrays as compiled graphs: `polyc.trace(fn)(*arrays)`, or `@polyc.trace`.

    The function is called with tensors in the place of arrays and runs as Python does; what it does with them (Python's
    operators, NumPy's functions, operators of the language) is recorded. Arguments may be nested in tuples, lists and
    dictionaries. The graph is compiled for the element types and shapes of the arrays, for all other arguments by
    value, and for what the function reads from around; when any of these changes, another one is recorded
    (`retraces`). Arrays that it reads from around are read where they lie at each call.

    Args:
        fn: the function; it does not update its arguments in place, draws no random numbers, and no data decide which
            statements of Python it runs.
        sizes: of arguments by name the extents: a text names a size that stays symbolic, so that one graph holds for
            all its values, a number must be that, None is that of the call (`{"x": ("N", None)}`).
        target: what to compile for, as in `compile_model`.
        options: further options of `compile_model`: `threads`, `dtype`, ...

    Raises:
        ArgumentError: there is no such option, or sizes are no shapes.
    """
    for path, shape in (sizes or {}).items():
        if isinstance(shape, str) or not all(n is None or isinstance(n, (int, str)) for n in shape):
            raise ArgumentError(f"sizes of {path}: {shape!r} is no shape of names, numbers and None")
    if not callable(fn):
        raise ArgumentError(f"polyc.trace takes a function, not {fn!r:.60}")
    return Traced(fn, options_of("polyc.trace", target, options), sizes or {})
