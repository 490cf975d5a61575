"""The 151 loops of TSVC_2 in the DSL: a test suite for vectorising compilers.

D. Callahan, J. Dongarra, D. Levine, "Vectorizing compilers: a test suite and results" (Supercomputing 1988), in the
extended form of S. Maleki et al. (PACT 2011). Each loop is written from what it computes, with TSVC's names of arrays:
`a` to `e` and `x` of N elements, `aa`, `bb` and `cc` of M x M, `flat` of L, index arrays `ip` and `indx`. What a C loop
leaves in scalars alone is a result. Where the language has no such thing (jumps, steps of a run), a docstring says what
stands for it. The reference of each is its own plain Python; `python -m benchmarks --family tsvc` compares all of them
with the C loops.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

GROUPS: Mapping[str, str] = {
    "linear_dependence": "s000 s111 s1111 s112 s1112 s113 s1113 s114 s115 s1115 s116 s118 s119 s1119",
    "induction": "s121 s122 s123 s124 s125 s126 s127 s128",
    "data_flow": "s131 s132 s141 s151 s152 s161 s1161 s162",
    "symbolics": "s171 s172 s173 s174 s175 s176",
    "reordering": "s211 s212 s1213 s221 s1221 s222 s231 s232 s1232 s233 s2233 s235",
    "node_splitting": "s241 s242 s243 s244 s1244 s2244",
    "expansion": "s251 s1251 s2251 s3251 s252 s253 s254 s255 s256 s257 s258 s261",
    "conditions": "s271 s272 s273 s274 s275 s2275 s276 s277 s278 s279 s1279 s2710 s2711 s2712",
    "peeling": "s281 s1281 s291 s292 s293 s2101 s2102 s2111",
    "reductions": "s311 s31111 s312 s313 s314 s315 s316 s317 s318 s319 s3110 s13110 s3111 s3112 s3113",
    "recurrences": "s321 s322 s323 s331 s332 s341 s342 s343 s351 s1351 s352 s353",
    "storage": "s421 s1421 s422 s423 s424 s431 s441 s442 s443 s451 s452 s453",
    "jumps": "s471 s481 s482 s491 s4112 s4113 s4114 s4115 s4116 s4117 s4121",
    "control_loops": "va vag vas vif vpv vtv vpvtv vpvts vpvpv vtvtv vsumr vdotr vbor",
}
MODULES = {name: module for module, names in GROUPS.items() for name in names.split()}

SCALARS = {"s1": 1.0, "s2": 2.0, "s": 1.0, "t": 1.0, "x": 1.0}
"""TSVC's arguments at run time that are numbers."""

CONSTANTS = {"n1": 1, "n3": 1, "k": 1, "inc": 1}
"""TSVC's arguments that are constants here."""


@dataclass(frozen=True)
class Loop:
    """A loop: the operator, and the names of its sizes, of its constants and of its arguments in their order."""

    name: str
    operator: Any
    sizes: tuple[str, ...]
    arguments: tuple[str, ...]

    def constants(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """What the operator is specialised for: sizes (N, M and L are given) and its own constants."""
        own = {c: CONSTANTS.get(c, sizes["M"] // 2) for c in self.operator.signature.constants}
        return {**{s: sizes[s] for s in self.sizes}, **own}

    def inputs(self, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
        """Random arguments by name, small enough that recurrences stay bounded."""
        made: dict[str, Any] = {}
        for name in self.arguments:
            shape = shape_of(name, sizes)
            if name in SCALARS and self.is_scalar(name):
                made[name] = np.float32(0.25 * SCALARS[name])
            elif name == "ip":
                made[name] = shuffled(sizes["N"])
            elif name == "indx":
                made[name] = rng.integers(1, 5, shape).astype(np.int32)
            else:
                made[name] = rng.uniform(-0.7, 0.7, shape).astype(np.float32)
        if self.name == "s312":  # a product of many factors
            made["a"] = (1 + made["a"] / sizes["N"]).astype(np.float32)
        if self.name == "s232":  # squares of squares
            made = {array: values * np.float32(0.3) for array, values in made.items()}
        return made

    def is_scalar(self, name: str) -> bool:
        """Whether an argument is a number (`x` is one in one loop and an array in others)."""
        return not next(p for p in self.operator.signature.params if p.name == name).shape


def shape_of(name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Elements of the array of that name along each axis."""
    if name == "flat":
        return (sizes["L"],)
    return (sizes["M"], sizes["M"]) if name in ("aa", "bb", "cc") else (sizes["N"],)


def shuffled(n: int) -> np.ndarray:
    """TSVC's index array: a permutation of each five neighbours."""
    return (np.arange(n) // 5 * 5 + np.array([4, 2, 0, 3, 1])[np.arange(n) % 5]).astype(np.int32)


def load(name: str) -> Loop:
    """The loop with TSVC's name."""
    operator = getattr(import_module(f"examples.tsvc.{MODULES[name]}"), name)
    parameters = operator.signature.params
    extents = {str(extent) for p in parameters for extent in p.shape or ()}
    return Loop(name, operator, tuple(s for s in "NML" if s in extents), tuple(p.name for p in parameters))
