"""Schedules back from YAML (`polyc.scheduler.texts.yaml_form`): every error names the line and the key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, get_args

import islpy as isl
import yaml

from polyc.poly.errors import ScheduleError
from polyc.poly.forms.affine import set_space
from polyc.poly.forms.affine_text import AffineTextError, read_condition, read_value
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, GpuAxis, Leaf, Member, Node, Promote, Sequence
from polyc.scheduler.texts.yaml_form import RESERVED
from polyc.scheduler.transformations.storage import SPACES

KINDS = ("parallel", "vector", "unroll", *get_args(GpuAxis))
TOP = ("operator", "sizes", "statements", "first", "tree")
NODE = ("of", "where", "loops", "permutable", "promote", "to", "space", "copy", "layout", "body")
DEEPEST = 100
FACTOR = re.compile(r"[1-9][0-9]{0,8}")


class _Loader(yaml.SafeLoader):
    """YAML without aliases: a few lines of them can mean a tree of any size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            line = event.start_mark.line + 1
            raise ScheduleError(f"line {line}: schedules have no aliases: write out what '*{event.anchor}' stands for")
        return super().compose_node(parent, index)


class Document:
    """One YAML text: the steps that come first, and the tree once the Scop is known."""

    def __init__(self, text: str) -> None:
        try:
            root = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
            raise ScheduleError(f"line {line}: not YAML: {error.problem or error.context}") from None
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise ScheduleError(f"not YAML: {' '.join(str(error).split())[:120]}") from None
        if root is None:
            raise ScheduleError("the file holds no schedule: it is empty")
        self.top = _mapping(root, TOP)
        if "tree" not in self.top:
            raise _wrong(root, "the key 'tree' is missing")
        self.operator = _text(self.top["operator"]) if "operator" in self.top else None

    def first(self) -> list[tuple[int, str, dict[str, Any]]]:
        """Steps to do before the tree is set: (line, name, arguments)."""
        out = []
        for item in _items(self.top["first"]) if "first" in self.top else []:
            data = _plain(item)
            if not isinstance(data, dict) or not isinstance(data.get("do"), str):
                raise _wrong(item, "a step needs the key 'do'")
            out.append((_line(item), data.pop("do"), data))
        return out

    def tree(self, scop: Scop) -> Node:
        """The tree for the statements of `scop`.

        Raises:
            ScheduleError: with line and key.
        """
        return _Trees(scop).node(self.top["tree"], tuple(scop.statements), 0)


class _Trees:
    def __init__(self, scop: Scop) -> None:
        self.scop = scop

    def node(self, at: yaml.Node, active: tuple[str, ...], depth: int) -> Node:
        """The node written at `at`, for the statements that reach it."""
        if depth > DEEPEST:
            raise _wrong(at, "the tree is nested too deeply")
        if isinstance(at, yaml.SequenceNode):
            return Sequence(tuple(self.part(item, active, depth + 1) for item in _items(at)))
        if isinstance(at, yaml.ScalarNode):
            if at.value == "leaf" or (len(active) == 1 and at.value == active[0]):
                return Leaf()
            raise _wrong(at, f"'{at.value}' is not what runs here: expected {' or '.join((*active[:1], 'leaf'))}")
        keys = _mapping(at, NODE)
        if "of" in keys or "where" in keys:
            return self.part(at, active, depth)
        return self.inner(at, keys, active, depth)

    def part(self, at: yaml.Node, active: tuple[str, ...], depth: int) -> Filter:
        """An element of a list: some statements, perhaps some of their instances."""
        if isinstance(at, yaml.ScalarNode):
            name = self.statement(at, active)
            return Filter({name: self.scop.statements[name].domain}, Leaf())
        keys = _mapping(at, NODE)
        names = tuple(self.statement(x, active) for x in _items(keys["of"])) if "of" in keys else active
        domain = {s: self.scop.statements[s].domain for s in names}
        for key, condition in _pairs(keys["where"]) if "where" in keys else []:
            name = self.statement(key, names)
            domain[name] = domain[name].intersect(self.affine(condition, name, condition=True))
        return Filter(domain, self.inner(at, keys, names, depth))

    def inner(self, at: yaml.Node, keys: Mapping[str, yaml.Node], active: tuple[str, ...], depth: int) -> Node:
        if "loops" in keys and "promote" in keys:
            raise _wrong(keys["promote"], "'loops' and 'promote' cannot share a mapping: put one into the other's body")
        if "body" in keys:
            child = self.node(keys["body"], active, depth + 1)
        elif "loops" in keys or "promote" in keys:
            raise _wrong(at, "the key 'body' is missing")
        else:
            child = Leaf()
        if "promote" in keys:
            return self.promote(keys, child)
        if "loops" not in keys:
            return child
        members = tuple(self.member(m, active) for m in _items(keys["loops"]))
        if not members:
            raise _wrong(keys["loops"], "'loops' is empty")
        return Band(members, child, "permutable" in keys and _flag(keys["permutable"]))

    def member(self, at: yaml.Node, active: tuple[str, ...]) -> Member:
        keys = _mapping(at, None)
        named = [k for k in keys if k not in RESERVED]
        if "loop" in keys:
            name, value = _text(keys["loop"]), keys.get("value")
            if value is None or named:
                raise _wrong(at, f"unknown key '{named[0]}'" if named else "the key 'value' is missing")
        elif len(named) == 1:
            name, value = named[0], keys[named[0]]
        else:
            raise _wrong(at, "a loop is written as 'name: value'" + (f", here are {', '.join(named)}" if named else ""))
        schedule: dict[str, isl.PwAff] = {}
        if isinstance(value, yaml.MappingNode):
            for key, text in _pairs(value):
                name_of = self.statement(key, active)
                schedule[name_of] = self.affine(text, name_of)
            missing = [s for s in active if s not in schedule]
            if missing:
                raise _wrong(value, f"the loop '{name}' has no value for {', '.join(missing)}")
        else:
            schedule = {s: self.affine(value, s) for s in active}
        kind, factor = self.run(keys.get("run"))
        return Member(name, schedule, kind, factor, "coincident" in keys and _flag(keys["coincident"]))

    def run(self, at: yaml.Node | None) -> tuple[Any, int | None]:
        """`vector 16` as kind and factor."""
        if at is None:
            return "serial", None
        kind, _, factor = _text(at).partition(" ")
        if kind not in KINDS or (factor and not FACTOR.fullmatch(factor)):
            raise _wrong(at, f"'run: {at.value}' is none of {', '.join(KINDS)} (with a number: lanes, unroll factor)")
        return kind, int(factor) if factor else None

    def promote(self, keys: Mapping[str, yaml.Node], child: Node) -> Promote:
        array, space = _text(keys["promote"]), _text(keys["space"]) if "space" in keys else "local"
        if array not in self.scop.arrays:
            raise _wrong(keys["promote"], f"no array '{array}': the arrays are {', '.join(self.scop.arrays)}")
        if space not in SPACES:
            raise _wrong(keys["space"], f"no memory space '{space}': the spaces are {', '.join(SPACES)}")
        copies = [_text(x) for x in _items(keys["copy"])] if "copy" in keys else ["in", "out"]
        if set(copies) - {"in", "out"}:
            raise _wrong(keys["copy"], "'copy' lists in, out or nothing")
        layout = None
        if "layout" in keys:
            rows = _plain(keys["layout"])
            good = isinstance(rows, list) and all(
                isinstance(r, list) and len(r) == 3 and all(type(x) is int and x >= 0 for x in r) and r[1] > 0
                and r[0] < len(self.scop.arrays[array].shape) for r in rows
            )  # fmt: skip
            if not good:
                raise _wrong(keys["layout"], "'layout' is a list of [dimension, divisor, modulus]")
            layout = tuple((r[0], r[1], r[2]) for r in rows)
        buffer = _text(keys["to"]) if "to" in keys else f"{array}_buf"
        return Promote(array, buffer, space, child, layout, "in" in copies, "out" in copies)

    def statement(self, at: yaml.Node, active: tuple[str, ...]) -> str:
        name = _text(at)
        if name not in active:
            raise _wrong(at, f"no statement '{name}' here (there are {', '.join(active) or 'none'})")
        return name

    def affine(self, at: yaml.Node, stmt: str, condition: bool = False) -> Any:
        s = self.scop.statements[stmt]
        space = set_space(s.name, s.iters, self.scop.params)
        try:
            return (read_condition if condition else read_value)(_text(at), space)
        except AffineTextError as error:
            raise _wrong(at, f"for {stmt}: {error}") from None


# ---- YAML nodes ----------------------------------------------------------------------------------


def _line(at: yaml.Node) -> int:
    return int(at.start_mark.line) + 1


def _wrong(at: yaml.Node, what: str) -> ScheduleError:
    return ScheduleError(f"line {_line(at)}: {what}")


def _pairs(at: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(at, yaml.MappingNode):
        raise _wrong(at, "expected 'key: value' lines")
    seen: set[str] = set()
    for key, _ in at.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in seen:
            raise _wrong(key, f"the key '{getattr(key, 'value', '?')}' is there twice or is no text")
        seen.add(key.value)
    return list(at.value)


def _mapping(at: yaml.Node, known: tuple[str, ...] | None) -> dict[str, yaml.Node]:
    out = {}
    for key, value in _pairs(at):
        if known is not None and key.value not in known:
            raise _wrong(key, f"unknown key '{key.value}' (known: {', '.join(known)})")
        out[key.value] = value
    return out


def _items(at: yaml.Node) -> list[yaml.Node]:
    if not isinstance(at, yaml.SequenceNode):
        raise _wrong(at, "expected a list")
    return list(at.value)


def _text(at: yaml.Node) -> str:
    if not isinstance(at, yaml.ScalarNode):
        raise _wrong(at, "expected one value, not a list or mapping")
    return str(at.value)


def _flag(at: yaml.Node) -> bool:
    if _text(at) not in ("true", "false"):
        raise _wrong(at, f"expected true or false, not '{at.value}'")
    return bool(at.value == "true")


def _plain(at: yaml.Node) -> Any:
    """The data below a node (JSON values only)."""
    try:
        data = yaml.constructor.SafeConstructor().construct_document(at)
        json.dumps(data)
    except (yaml.YAMLError, TypeError, ValueError):
        raise _wrong(at, "expected plain values") from None
    return data
