"""The adjoint of a Scop: a Scop that runs what is needed of the forward program, then its statements backwards.

For a statement `W[g] = e` each element `A[f]` that `e` reads gets `bA[f] += de/dA[f] * bW[g]`, a declared reduction;
then `bW[g]` becomes `de/dW[g] * bW[g]` where `e` reads the element that it writes, else 0 (Griewank and Walther,
"Evaluating Derivatives", 2008, chapter 6; for loop nests: Hueckelheim et al., "Automatic differentiation for
adjoint stencil loops", ICPP 2019). The tree is the program's with loops and sequences reversed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import islpy as isl

from polyc.poly.adjoint.activity import active as active_arrays
from polyc.poly.adjoint.again import maker_of
from polyc.poly.adjoint.algebra import both, compared, number, total, where
from polyc.poly.adjoint.ends import arguments_of, results_of
from polyc.poly.adjoint.errors import NotDifferentiable
from polyc.poly.adjoint.extrema import NOWHERE, Chain, chain_of
from polyc.poly.adjoint.fills import Fills, Part
from polyc.poly.adjoint.liveness import without_idle
from polyc.poly.adjoint.names import Names, renamed
from polyc.poly.adjoint.partials import Guards, Term, depends, guarded, terms_of
from polyc.poly.adjoint.searches import searched
from polyc.poly.adjoint.split import Split, split
from polyc.poly.adjoint.tape import bounded, tape_of
from polyc.poly.adjoint.tidy import tidied
from polyc.poly.adjoint.trees import in_place, in_sequence
from polyc.poly.adjoint.values import Order, Places, Read, reads_of
from polyc.poly.closed_forms.counting import count_or_bound
from polyc.poly.closed_forms.pieces import CountingError
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, loads
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff, to_set
from polyc.poly.forms.affine_expr import choose, set_expr
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass
from polyc.poly.reduction import reads_updated
from polyc.poly.rewriting.compose import rename
from polyc.poly.scop import Array, DynamicBound, Scop, Statement
from polyc.poly.tree import Leaf, Node
from polyc.poly.verify import verify


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of a Scop.

    `scop` takes the arguments of the program (those updated in place are only read), then the adjoints of its results;
    it returns the gradients. `seeds`: names of these adjoints by result (results in order, then arrays updated in
    place), of floating-point results only. `gradients`: names of the gradients by argument. `tapes`: what each tape
    keeps, in words. `notes`: the decisions.
    """

    scop: Scop
    seeds: Mapping[str, str]
    gradients: Mapping[str, str]
    tapes: Mapping[str, str]
    notes: tuple[str, ...]


def adjoint(scop: Scop, wrt: Sequence[str] | None = None) -> Adjoint:
    """The adjoint of `scop` in reverse mode; `wrt` are the arguments to derive by (None: all floating-point ones).

    Raises:
        NotDifferentiable: an argument or a result is no floating-point one, or the program has a part without a
            derivative.
    """
    return _Maker(scop, arguments_of(scop, wrt)).made()


def forward_and_backward(scop: Scop, wrt: Sequence[str] | None = None) -> Split:
    """The program and its adjoint as two programs: the first returns what the second needs of it.

    Raises:
        NotDifferentiable: as `adjoint`.
    """
    return _Maker(scop, arguments_of(scop, wrt), values=True).split()


@dataclass(slots=True)
class _Backward:
    """The statements that one statement becomes in the reversed program."""

    scatters: list[Statement] = field(default_factory=list)
    own: Statement | None = None

    def all(self) -> list[Statement]:
        return [*self.scatters, *([] if self.own is None else [self.own])]


class _Maker:
    def __init__(self, scop: Scop, wrt: tuple[str, ...], values: bool = False) -> None:
        self.wrt, self.values = wrt, values
        self.results = results_of(scop)
        if not self.results:
            what = ", ".join(f"{n}: {scop.arrays[n].dtype}" for n in scop.results) or "none"
            raise NotDifferentiable(f"{scop.name} has no floating-point result to derive (its results: {what})")
        search = searched(scop, active_arrays(scop, wrt, self.results))
        scop = self.source = search.scop
        self.chains, self.taken = search.chains, search.taken
        names = self.names = Names(scop)
        self.working = {n: names.fresh(f"{n}_now") for n, a in scop.arrays.items() if a.kind == "inout"}
        self.active = active_arrays(scop, wrt, self.results)
        self.seeds = {n: names.fresh(f"d_{n}") for n in self.results}
        self.gradients = {n: names.fresh(f"grad_{n}") for n in wrt}
        self.bars = {
            n: self.gradients[n] if n in self.gradients else names.fresh(f"adj_{n}")
            for n in scop.arrays if n in self.active or n in self.gradients
        }  # fmt: skip
        self.fill = Fills(scop, names)
        self.order = Order(scop)
        self.notes: list[str] = []
        self.tapes: dict[str, str] = {}
        self.tape_arrays: list[Array] = []
        self.kept: dict[str, list[Statement]] = {}  # by statement: what writes its tapes, just before it
        self.reads: dict[str, dict[Load, Read]] = {}
        self.found: dict[tuple[str, Load], list[tuple[isl.Set, Expr]]] = {}
        self.searches: list[Part] = []  # of the first places of largest and smallest values
        self.search_arrays: list[Array] = []
        self.first: set[str] = set()  # the statements of the forward part

    def split(self) -> Split:
        """The joint program as two."""
        made = self.made()
        return split(made.scop, self.source.args, self.returned(), {*made.scop.statements} - self.first)

    def returned(self) -> tuple[str, ...]:
        """The results of the program, then its arrays updated in place, by their names in the joint program."""
        return (*self.source.results, *(self.working[n] for n in self.source.args if n in self.working))

    def made(self) -> Adjoint:
        scop = self.source
        backward = {
            n: self.backward(s) for n, s in scop.statements.items() if s.array in self.active and n not in self.chains
        }
        lists = {n: b.all() for n, b in backward.items()}
        written = {s.array for some in lists.values() for s in some}
        before, after = self.copies(), self.seeding(written)
        moved = rename(scop, self.working)
        forward = {n: [*self.kept.get(n, ()), s] for n, s in moved.statements.items() if n not in self.taken}
        parts: list[tuple[list[Statement], Node]] = [*before]
        tree = in_place(moved.tree, forward, str)
        if tree is not None:
            parts.append(([s for some in forward.values() for s in some], tree))
        parts += after
        parts += self.searches
        self.first = {s.name for some, _ in (*before, *self.searches) for s in some}
        self.first |= {s.name for some in forward.values() for s in some}
        loops: dict[str, str] = {}

        def back(loop: str) -> str:
            if loop not in loops:
                loops[loop] = self.names.fresh(f"{loop}_b")
            return loops[loop]

        tree = in_place(scop.tree, lists, back, reverse=True)
        if tree is not None:
            parts.append(([s for some in lists.values() for s in some], tree))
        joint = self.scop_of(parts)
        used = set(joint.arrays)
        tapes = {n: t for n, t in self.tapes.items() if n in used}
        notes = (*self.notes, *tapes.values())
        return Adjoint(replace(joint, notes=(*joint.notes, *notes)), self.seeds, self.gradients, tapes, notes)

    # ---- the whole -------------------------------------------------------------------------

    def scop_of(self, parts: Sequence[tuple[list[Statement], Node]]) -> Scop:
        scop = self.source
        statements = {s.name: s for some, _ in parts for s in some}
        arrays: dict[str, Array] = {}
        for n in scop.args:
            arrays[n] = replace(scop.arrays[n], kind="in")
        for n, seed in self.seeds.items():
            arrays[seed] = replace(scop.arrays[n], name=seed, kind="in", scalar=False, expanded=0)
        for n, gradient in self.gradients.items():
            arrays[gradient] = replace(scop.arrays[n], name=gradient, kind="out", scalar=False)
        for n, a in scop.arrays.items():
            if n in self.working:
                arrays[self.working[n]] = replace(a, name=self.working[n], kind="out" if self.values else "local")
            elif a.kind in ("out", "local"):
                arrays[n] = a if self.values else replace(a, kind="local")
        for n, bar in self.bars.items():
            if bar not in arrays:
                arrays[bar] = replace(scop.arrays[n], name=bar, kind="local", scalar=False)
        arrays |= {a.name: a for a in (*self.tape_arrays, *self.search_arrays)}
        joint = Scop(
            f"{scop.name}_grad", scop.params, scop.context, arrays, statements,
            in_sequence(parts) if parts else Leaf(), (*scop.args, *self.seeds.values()),
            (*(self.returned() if self.values else ()), *self.gradients.values()),
            scop.reassociate, scop.fast_math, scop.notes,
        )  # fmt: skip
        joint = tidied(without_idle(joint))
        verify(joint)
        return joint

    def copies(self) -> list[tuple[list[Statement], Node]]:
        """Arrays updated in place are copied: the forward part works on the copies."""
        arrays = self.source.arrays
        return [self.fill.copied(replace(arrays[n], name=new, kind="local"), n) for n, new in self.working.items()]

    def seeding(self, written: set[str]) -> list[tuple[list[Statement], Node]]:
        """The adjoints at the end of the program: of results what is given, of other arrays 0."""
        parts = []
        for n, bar in self.bars.items():
            array = replace(self.source.arrays[n], name=bar)
            if n in self.seeds and n in self.active | set(self.wrt):
                parts.append(self.fill.copied(array, self.seeds[n]))
            else:
                parts.append(self.fill.filled(array, number(0.0, array.dtype)))
        return parts

    # ---- one statement ---------------------------------------------------------------------

    def backward(self, s: Statement) -> _Backward:
        """What a statement becomes in the reversed program."""
        scop = self.source
        if any(b.hi == Const(2**62, b.hi.dtype) for b in s.dynamic):
            raise NotDifferentiable("a while loop has no derivative in reverse: nothing tells how often it runs; write"
                                    " it as a loop over a range", s.span)  # fmt: skip
        self.reads[s.name] = reads_of(scop, s)
        space = set_space(s.name, s.iters, scop.params)
        domain = s.domain.intersect_params(scop.context)
        dtype = s.value.dtype
        seed = Load(self.bars[s.array], s.index, dtype, s.span)
        out = _Backward()
        own: list[Expr] = []
        groups: dict[tuple[Load, Guards], list[Term]] = {}
        chain = chain_of(scop, self.order, s, self.without_tape)
        terms = terms_of(s.value if chain is None else chain.update, seed, self.active, s.span)
        if chain is not None:
            place = self.first_of(s, chain)
            chosen = compared("==", chain.position, place)
            terms = [Term(t.load, (chosen, *t.guards), t.value) for t in terms]
            if depends(scop.statements[chain.opening].value, self.active):
                passed = where(compared("==", place, NOWHERE), seed, number(0.0, dtype))
                self.own(s, out, passed, chain.first)
        for t in terms:
            affine = tuple(g for g in t.guards if _is_affine(g, space))
            rest = tuple(g for g in t.guards if g not in affine)
            groups.setdefault((t.load, affine), []).append(Term(t.load, rest, t.value))
        for (load, affine), terms in groups.items():
            here = domain
            for g in affine:
                here = here.intersect(to_set(g, space))
            if here.is_empty():
                continue
            value = total(guarded(t.guards, t.value) for t in terms)
            if load.array != s.array:
                self.scatter(s, out, load, value, here)
                continue
            alike = self.alike(load, s.target, here, space)
            if alike is None:  # data decide whether the element is the one that is written
                same = _same(load, s.target)
                zero = number(0.0, value.dtype)
                self.scatter(s, out, load, where(same, zero, value), here)
                own.append(guarded((*affine, same), value))
                continue
            if not (apart := here.subtract(alike).coalesce()).is_empty():
                self.scatter(s, out, load, value, apart)
            if not alike.is_empty():
                inside = domain.subtract(alike)
                own.append(value if inside.is_empty() else where(set_expr(alike, s.iters, domain), value,
                                                                 number(0.0, value.dtype)))  # fmt: skip
        kept = total(own) if own else number(0.0, dtype)
        if chain is None and kept != seed:
            self.own(s, out, kept, domain if own else self.read_before(s, domain))
        return out

    def scatter(self, s: Statement, out: _Backward, load: Load, value: Expr, domain: isl.Set) -> None:
        """`bA[f] += value` on `domain`."""
        bar = self.bars[load.array]
        index = tuple(self.there(s, e) for e in load.index)
        target = Load(bar, index, load.dtype, load.span)
        added = self.there(s, value)
        predicate = None if s.predicate is None else self.there(s, s.predicate)
        name = self.names.fresh(f"{s.name}_d{load.array}")
        domain = domain.set_tuple_name(name)
        others = [added, *index, *([] if predicate is None else [predicate])]
        reduction = "+" if self.source.reassociate and reads_updated(target, others, domain) is None else None
        out.scatters.append(
            Statement(name, s.iters, domain, bar, index, Binary("+", target, added, load.dtype), predicate, reduction,
                      self.bounds(s), load.span or s.span)
        )  # fmt: skip

    def own(self, s: Statement, out: _Backward, value: Expr, domain: isl.Set) -> None:
        """`bW[g] = value`, last of all."""
        if domain.is_empty():
            return
        name = self.names.fresh(f"{s.name}_own")
        index = tuple(self.there(s, e) for e in s.index)
        predicate = None if s.predicate is None else self.there(s, s.predicate)
        out.own = Statement(name, s.iters, domain.set_tuple_name(name), self.bars[s.array], index, self.there(s, value),
                            predicate, None, self.bounds(s), s.span)  # fmt: skip

    def bounds(self, s: Statement) -> tuple[DynamicBound, ...]:
        """The bounds of its loops that data decide."""
        return tuple(DynamicBound(b.iter, self.there(s, b.lo), self.there(s, b.hi)) for b in s.dynamic)

    def alike(self, load: Load, target: Load, domain: isl.Set, space: isl.Space) -> isl.Set | None:
        """The instances at which both are one element; None where data decide."""
        known = True
        for x, y in zip(load.index, target.index, strict=True):
            if x == y:
                continue
            try:
                domain = domain.intersect(to_pw_aff(x, space).eq_set(to_pw_aff(y, space)))
            except NotAffine:
                known = False
        return domain.coalesce() if known or domain.is_empty() else None

    def read_before(self, s: Statement, domain: isl.Set) -> isl.Set:
        """The instances of `s` before which something had touched the element that they write: only of these the
        adjoint is read again, so that others need not set it to 0."""
        if s.array in self.gradients:
            return domain
        scop = self.source
        relation = self.order.touched(s, s.target, domain)
        pairs: dict[tuple[str, str], isl.Map] = {}
        for t in scop.statements.values():
            for load in (t.target, *(x for x in reads_of(scop, t) if x.array == s.array)):
                if load.array == s.array:
                    there = self.order.touched(t, load, t.domain.intersect_params(scop.context))
                    pair = there.apply_range(relation.reverse())
                    key = (t.name, s.name)
                    pairs[key] = pairs[key].union(pair) if key in pairs else pair
        found = isl.Set.empty(domain.get_space())
        for m in in_order(scop, pairs).values():
            found = found.union(m.range())
        space = set_space(s.name, s.iters, scop.params)
        for load in self.reads[s.name]:
            if load.array == s.array and load != s.target:
                alike = self.alike(load, s.target, domain, space)
                found = found.union(domain if alike is None else alike)
        return found.intersect(domain).coalesce()

    def first_of(self, s: Statement, chain: Chain) -> Expr:
        """Where the first element of each chain stands that equals its result; the statements that find it."""
        array = self.source.arrays[s.array]
        name = self.names.fresh(f"first_{s.array}")
        places = replace(array, name=name, dtype=i64, kind="local", span=None)
        self.search_arrays.append(places)
        self.searches.append(self.fill.filled(places, NOWHERE))
        place = Load(name, s.index, i64, s.span)
        result = Load(self.working.get(s.array, s.array), s.index, array.dtype, s.span)
        exceeds = compared(">" if s.reduction == "max" else "<", result, chain.start)
        equals = compared("==", self.there(s, chain.update), result)
        here = where(Binary("and", equals, exceeds, bool_), chain.position, NOWHERE)
        own = self.names.fresh(f"{s.name}_first")
        found = Statement(own, s.iters, s.domain.set_tuple_name(own), name, s.index, Binary("min", place, here, i64),
                          None, "min", self.bounds(s), s.span)  # fmt: skip
        tree = in_place(self.source.tree, {s.name: [found]}, lambda loop: self.names.fresh(f"{loop}_f"))
        assert tree is not None
        self.searches.append(([found], tree))
        at = f" at {s.span}" if s.span else ""
        self.notes.append(f"{s.array}{at}: its adjoint goes to the first place that has the {s.reduction}imum")
        return place

    def without_tape(self, s: Statement, e: Expr) -> Expr | None:
        """`e` of the statement `s` with the values that it had; None where that needs a tape."""
        if s.name not in self.reads:
            self.reads[s.name] = reads_of(self.source, s)
        for load in loads(e):
            read = self.reads[s.name].get(load)
            if read is None or not self.order.places(s, read).tape.is_empty():
                return None
        return self.there(s, e)

    # ---- values ----------------------------------------------------------------------------

    def there(self, s: Statement, e: Expr) -> Expr:
        """`e`, whose loads are those of `s` in the forward program, with the same values in the reversed one."""
        if isinstance(e, Load) and e in self.reads[s.name]:
            cases = self.cases(s, e)
            return choose(cases, s.iters, self.reads[s.name][e].where) if len(cases) > 1 else cases[0][1]
        children = e.children()
        new = tuple(self.there(s, c) for c in children)
        return e.with_children(new) if any(a is not b for a, b in zip(new, children, strict=True)) else e

    def cases(self, s: Statement, load: Load) -> list[tuple[isl.Set, Expr]]:
        """The places of a value, and the instances that have it there."""
        key = (s.name, load)
        if key not in self.found:
            self.found[key] = self._cases(s, load)
        return self.found[key]

    def _cases(self, s: Statement, load: Load) -> list[tuple[isl.Set, Expr]]:
        read = self.reads[s.name][load]
        index = tuple(self.there(s, e) for e in load.index)
        places = self.order.places(s, read)
        array, final = load.array, self.working.get(load.array, load.array)
        out: list[tuple[isl.Set, Expr]] = []
        if not places.argument.is_empty():
            out.append((places.argument, Load(array, index, load.dtype, load.span)))
        if not bounded(self.source, s, places.tape).is_empty():  # else each such instance leaves an array: none runs
            out.append((places.tape, self.taped(s, read, places)))
        if not places.final.is_empty() or not out:
            out.append((places.final, Load(final, index, load.dtype, load.span)))
        return out

    def taped(self, s: Statement, read: Read, places: Places) -> Expr:
        """The place on a new tape of what `s` reads, and the statement that keeps it; where no tape has room for all
        iterations the value itself, if the same iteration has made it."""
        load = read.load
        try:
            made = tape_of(self.source, self.order, s, load, places.tape)
        except NotDifferentiable:
            maker = maker_of(self.source, s, load, places.tape)
            if maker is None:
                raise
            if maker.name not in self.reads:
                self.reads[maker.name] = reads_of(self.source, maker)
            self.notes.append(f"{load.array}: computed again in loops that data end")
            return self.there(maker, maker.value)
        name = self.names.fresh(f"tape_{load.array}")
        self.tape_arrays.append(Array(name, load.dtype, made.shape, "local", span=load.span))
        here = self.names.fresh(f"{s.name}_keep")
        value = renamed(load, self.working)
        predicate = None if read.cond is None else renamed(read.cond, self.working)
        bounds = tuple(DynamicBound(b.iter, renamed(b.lo, self.working), renamed(b.hi, self.working))
                       for b in s.dynamic)  # fmt: skip
        domain = made.keep.set_tuple_name(here)
        keep = Statement(here, s.iters, domain, name, made.index, value, predicate, None, bounds, load.span or s.span)
        self.kept.setdefault(s.name, []).append(keep)
        try:
            count = str(count_or_bound(made.places, self.source.context))
        except CountingError as error:
            count = f"an unknown number of ({error})"
        at = f" at {load.span}" if load.span else ""
        self.tapes[name] = f"{name}: {count} values of {load.array}{at} are kept: they are overwritten later"
        return Load(name, made.index, load.dtype, load.span)


def _is_affine(cond: Expr, space: isl.Space) -> bool:
    try:
        to_set(cond, space)
    except NotAffine:
        return False
    return True


def _same(a: Load, b: Load) -> Expr:
    """Whether two loads are of one element."""
    out: Expr | None = None
    for x, y in zip(a.index, b.index, strict=True):
        if x != y:
            out = both(out, compared("==", x, y))
    return Const(True, bool_) if out is None else out
