"""Instances in their order and dependences at fixed sizes, enumerated by isl: what the page must draw."""

from __future__ import annotations

from typing import Any

import islpy as isl

from polyc.poly.dependences import flow
from polyc.poly.rewriting.specialise import specialise, specialise_tree
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, time_maps


def _point(p: isl.Point, kind: Any = isl.dim_type.set) -> tuple[int, ...]:
    return tuple(int(p.get_coordinate_val(kind, k).to_python()) for k in range(p.get_space().dim(kind)))


def points(s: isl.Set) -> list[tuple[int, ...]]:
    """All points of a bounded set without parameters."""
    found: list[tuple[int, ...]] = []
    s.foreach_point(lambda p: found.append(_point(p)))
    return found


def name_of(statement: str, at: tuple[int, ...]) -> str:
    """`S0(1,2)`, as the page calls it."""
    return f"{statement}({','.join(map(str, at))})"


def order(scop: Scop, tree: Node, sizes: dict[str, int]) -> list[str]:
    """All instances in the order of `tree`."""
    small, tree = specialise(scop, sizes), specialise_tree(tree, sizes)
    timed: list[tuple[tuple[int, ...], str]] = []
    for m in time_maps(tree, {n: s.domain for n, s in small.statements.items()}):
        flat = m.intersect_domain(small.statements[m.get_tuple_name(isl.dim_type.in_)].domain).wrap()
        depth = m.dim(isl.dim_type.in_)
        for p in points(flat.flatten()):
            timed.append((p[depth:], name_of(m.get_tuple_name(isl.dim_type.in_), p[:depth])))
    return [name for _, name in sorted(timed)]


def edges(scop: Scop, sizes: dict[str, int]) -> list[str]:
    """`RAW A S0(0) S1(0)`: all value-based dependences, in the program's order."""
    small = specialise(scop, sizes)
    found: set[str] = set()
    for array in small.arrays:
        for kind in ("RAW", "WAR", "WAW"):
            maps: list[isl.Map] = []
            flow(small, kind, arrays=frozenset({array})).foreach_map(maps.append)
            for m in maps:
                a, b = m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out)
                depth = m.dim(isl.dim_type.in_)
                for p in points(m.wrap().flatten()):
                    found.add(f"{kind} {array} {name_of(a, p[:depth])} {name_of(b, p[depth:])}")
    return sorted(found)
