"""`dataclass` as the standard library has it, its methods compiled when they are first used.

The standard decorator compiles up to seven functions for a class while its module is imported, about 0.5 ms; polyc has
hundreds of such classes, and a process uses a method or two of each. What comes out is the same: fields, `replace`,
`asdict`, pattern matching, pickles, signatures, refusals to change what is frozen. Of the decorator's arguments those
that polyc uses are here; `InitVar` and `KW_ONLY` are not.
"""

from __future__ import annotations

import dataclasses
from abc import update_abstractmethods
from collections.abc import Callable, Iterable
from functools import partial
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def replace(record, /, **changes):
        """A record with some fields changed, as `dataclasses.replace` makes it of one whose fields all are parameters:
        passes make most of what they make in this way."""
        cls = record.__class__
        for name in cls.__match_args__:  # the parameters
            if name not in changes:
                changes[name] = getattr(record, name)
        return cls(**changes)

    def dataclass(cls=None, /, *, frozen=False, eq=True, order=False, slots=False):
        """What `dataclasses.dataclass` makes of a class with these arguments."""
        if cls is None:
            return lambda plain: _made(plain, frozen, eq, order, slots)
        return _made(cls, frozen, eq, order, slots)


Fields = dict[str, "dataclasses.Field[Any]"]
_COMPARISONS = {"__eq__": "==", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


class _Late:
    """A method that takes its own place in its class when it is first looked up."""

    def __init__(self, cls: Any, make: Callable[[Any], Any]) -> None:
        self.cls, self.make = cls, make

    def __set_name__(self, cls: Any, name: str) -> None:
        self.cls = cls  # a class with slots is made anew

    def __get__(self, instance: Any, owner: Any) -> Any:
        method = self.make(self.cls)
        setattr(self.cls, method.__name__, method)
        return method.__get__(instance, owner)


def _made(cls: Any, frozen: bool, eq: bool, order: bool, slots: bool) -> Any:
    stand_in = _stand_in(cls)
    own: Fields = stand_in.__dataclass_fields__
    inherited = [b.__dataclass_fields__ for b in cls.__mro__[:0:-1] if "__dataclass_fields__" in b.__dict__]
    fields: Fields = {name: f for group in (*inherited, own) for name, f in group.items()}
    params = stand_in.__dataclass_params__
    params.init = params.repr = True
    params.eq, params.order, params.frozen = eq, order, frozen
    members = cls.__dict__
    methods = _methods(cls, fields, frozen, eq, order, slots)
    if slots and frozen:  # without them a copy would set fields one by one, and be refused
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    new = {n: v for n, v in methods.items() if n not in members}
    if eq and members.get("__hash__") is None:  # a class with `__eq__` and no `__hash__` of its own has None there
        new["__hash__"] = _Late(cls, _hash) if frozen else None
    new |= {"__dataclass_fields__": fields, "__dataclass_params__": params}
    if slots:
        cls, new = _with_slots(cls, fields, new), {}
    for name in own:
        if isinstance(members.get(name), dataclasses.Field) and not slots:
            delattr(cls, name)
            if own[name].default is not dataclasses.MISSING:
                setattr(cls, name, own[name].default)
    if frozen:
        new |= _refusals(cls, frozenset(fields))
    for name, value in new.items():
        setattr(cls, name, value)
    update_abstractmethods(cls)
    return cls


def _stand_in(cls: Any) -> Any:
    """A class with the fields that `cls` itself declares, read and checked by the standard decorator."""
    annotations = cls.__dict__.get("__annotations__", {})
    members = {name: cls.__dict__[name] for name in annotations if name in cls.__dict__}
    members |= {"__annotations__": annotations, "__module__": cls.__module__, "__doc__": "fields"}
    return dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(type(cls.__name__, (), members))


def _methods(cls: Any, fields: Fields, frozen: bool, eq: bool, order: bool, slots: bool) -> dict[str, Any]:
    given = [f for f in fields.values() if f.init]
    made: dict[str, Any] = {"__match_args__": tuple(f.name for f in given), "__repr__": _Late(cls, _repr)}
    made["__init__"] = _Late(cls, partial(_init, frozen=frozen, slots=slots))
    for name in [*(["__eq__"] if eq else []), *(list(_COMPARISONS)[1:] if order else [])]:
        made[name] = _Late(cls, partial(_comparison, name=name))
    if cls.__doc__ is None:
        made["__doc__"] = f"{cls.__name__}({', '.join(f'{f.name}: {f.type}' for f in given)})"
    return made


def _with_slots(cls: Any, fields: Fields, new: dict[str, Any]) -> Any:
    """The class again, with its fields in slots: a class that exists cannot get any."""
    taken = {s for b in cls.__mro__[1:] for s in b.__dict__.get("__slots__", ())}
    members = {n: v for n, v in cls.__dict__.items() if n not in fields and n not in ("__dict__", "__weakref__")}
    members |= new | {"__slots__": tuple(name for name in fields if name not in taken)}
    made: Any = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    return made


def _refusals(cls: Any, names: frozenset[str]) -> dict[str, Any]:
    """What refuses to change or delete a field. A subclass may have attributes of its own."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state):
        object.__setattr__(self, f.name, value)


# -- the texts of methods ------------------------------------------------------------------------------------------


class _Factory:
    """The default of a parameter whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: Any, frozen: bool, slots: bool) -> Any:
    missing = dataclasses.MISSING
    fields = list(cls.__dataclass_fields__.values())
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": _Factory()}
    this = "self_" if any(f.name == "self" for f in fields) else "self"
    parameters, body = [this], []
    for f in fields:
        value = f.name if f.init else f"_default_{f.name}"
        if f.default_factory is not missing:
            names[f"_make_{f.name}"] = f.default_factory
            made = f"_make_{f.name}()"
            value = f"{made} if {f.name} is _factory else {f.name}" if f.init else made
        elif f.default is not missing and (f.init or slots):
            names[f"_default_{f.name}"] = f.default
        elif not f.init:
            continue  # its value is the class's, or none until somebody gives it one
        if f.init:
            default = "_factory" if f.default_factory is not missing else f"_default_{f.name}"
            has_default = f.default_factory is not missing or f.default is not missing
            parameters.append(f"{f.name}={default}" if has_default else f.name)
        slot = getattr(cls, f.name, None)
        if not frozen:
            body.append(f"{this}.{f.name} = {value}")
        elif isinstance(slot, MemberDescriptorType):  # straight into the slot: half the time of looking for it by name
            names[f"_set_{f.name}"] = slot.__set__
            body.append(f"_set_{f.name}({this}, {value})")
        else:
            body.append(f"_set({this}, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(f"{this}.__post_init__()")
    method = _compiled(cls, "__init__", parameters, body or ["pass"], names)
    method.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    return method


def _repr(cls: Any) -> Any:
    shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in dataclasses.fields(cls) if f.repr)
    body = [f'return self.__class__.__qualname__ + f"({shown})"']
    return recursive_repr()(_compiled(cls, "__repr__", ["self"], body, {}))


def _comparison(cls: Any, name: str) -> Any:
    mine, others = _compared(cls, "self"), _compared(cls, "other")
    body = ["if other.__class__ is self.__class__:", f" return {mine} {_COMPARISONS[name]} {others}"]
    return _compiled(cls, name, ["self", "other"], [*body, "return NotImplemented"], {})


def _hash(cls: Any) -> Any:
    hashed = [f for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    return _compiled(cls, "__hash__", ["self"], [f"return hash({_tuple('self', hashed)})"], {})


def _compared(cls: Any, of: str) -> str:
    return _tuple(of, (f for f in dataclasses.fields(cls) if f.compare))


def _tuple(of: str, fields: Iterable[dataclasses.Field[Any]]) -> str:
    return "(" + "".join(f"{of}.{f.name}, " for f in fields) + ")"


def _compiled(cls: Any, name: str, parameters: list[str], body: list[str], names: dict[str, Any]) -> Any:
    space = names | {"__name__": cls.__module__}
    exec(f"def {name}({', '.join(parameters)}):\n " + "\n ".join(body), space)
    method = space[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method
