"""The proof as the compiler runs it: part after part, each within its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from polyc.emit.loop_ir.loops import Function
from polyc.emit.proof.buffers import prove_buffers
from polyc.emit.proof.domain import prove_domain
from polyc.emit.proof.order import prove_order
from polyc.emit.proof.read_back import Place, read_back
from polyc.emit.proof.values import Executed, executed
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

QUOTA = 20_000_000  # isl operations for one part of the proof, some seconds


@dataclass(frozen=True, eq=False)
class Model:
    """What the loops do: `runs` of statements' instances, and `others`, the remaining stores."""

    runs: Sequence[Executed]
    others: Sequence[Place]


def read_model(scop: Scop, fn: Function) -> Model:
    """Read the loops back and match their stores with statements. Raises `WrongLoops`."""
    places = read_back(scop, fn)
    runs = [executed(scop, fn, p) for p in places if p.store.instance is not None]
    return Model(runs, [p for p in places if p.store.instance is None])


PARTS: tuple[tuple[str, Callable[[Scop, Function, Model], None]], ...] = (
    ("executed domain", lambda scop, fn, model: prove_domain(scop, fn, model.runs)),
    ("execution order", lambda scop, fn, model: prove_order(scop, fn, model.runs)),
    ("promoted buffers", lambda scop, fn, model: prove_buffers(scop, fn, model.runs, model.others)),
)


def prove(scop: Scop, fn: Function) -> None:
    """Prove `fn`, as generated (before loops are expanded), against `scop`, whatever it costs.

    Raises:
        WrongLoops: the loops are not the Scop; `.rule` names the part of the proof.
    """
    model = read_model(scop, fn)
    for _, part in PARTS:
        part(scop, fn, model)


def proven(scop: Scop, fn: Function) -> Function:
    """`fn`, after `prove`; notes name the parts that isl could not decide within its quota.

    Raises:
        WrongLoops: the loops are not the Scop.
    """
    notes = list(fn.notes)
    try:
        with quota(QUOTA):
            model = read_model(scop, fn)
    except QuotaExceeded as e:
        return replace(fn, notes=(*notes, _given_up("loops", e)))
    for name, part in PARTS:
        try:
            with quota(QUOTA):
                part(scop, fn, model)
        except QuotaExceeded as e:
            notes.append(_given_up(name, e))
    return replace(fn, notes=tuple(notes))


def wholly(notes: Iterable[str]) -> bool:
    """Whether no part of the proof was given up, by the notes of a kernel."""
    return not any(n.startswith(_PROOF) and _GIVEN_UP in n for n in notes)


_PROOF, _GIVEN_UP = "the proof of the ", " was given up: "


def _given_up(part: str, error: QuotaExceeded) -> str:
    return f"{_PROOF}{part}{_GIVEN_UP}{error}"
