"""Quasi-affine functions and conditions as Python text that people can edit, and back.

i // 64        t + 2 * i % 8        j if j < N - 1 else 0        i >= 1 and i < N
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import TypeVar

import islpy as isl

from polyc.poly.forms.canonical import canonical_set, set_text

Made = TypeVar("Made")
Term = tuple[int, str]
"""Coefficient and factor; factor "" is a constant."""


LONGEST = 4000
"""Characters of an expression that is read: longer ones nest deeper than Python reads."""


class AffineTextError(Exception):
    """A text that is no quasi-affine expression or condition; the message says what is wrong in it."""


# ---- writing -------------------------------------------------------------------------------------


def value_source(value: isl.PwAff) -> str:
    """A function as a Python expression over the names of its dimensions and parameters."""
    pieces = sorted(value.coalesce().get_pieces(), key=lambda p: set_text(p[0]))
    assert pieces, "a function without a domain has no text"
    if len(pieces) == 1:
        return _aff_text(pieces[0][1])
    *conditional, last = pieces
    tests = [f"{_aff_text(aff)} if {condition_source(where)} else" for where, aff in conditional]
    return " ".join([*tests, _aff_text(last[1])])


def condition_source(where: isl.Set) -> str:
    """A set as a Python condition on the names of its dimensions and parameters."""
    parts = sorted(_conjunction(b) for b in canonical_set(where.coalesce()).compute_divs().get_basic_sets())
    if not parts:
        return "False"
    if len(parts) == 1:
        return parts[0]
    return " or ".join(f"({p})" if " and " in p else p for p in parts)


def _conjunction(part: isl.BasicSet) -> str:
    rows = [_constraint_text(c) for c in part.remove_redundancies().get_constraints() if not c.is_div_constraint()]
    return " and ".join(sorted(rows, key=lambda r: (" == " not in r, ">" not in r, r))) or "True"


def _constraint_text(c: isl.Constraint) -> str:
    """`i < N` for `N - i - 1 >= 0`: iterators on the left, no negative coefficients where that is easy."""
    aff = c.get_aff()
    iterators = {aff.get_dim_name(isl.dim_type.in_, k) for k in range(aff.dim(isl.dim_type.in_))}
    terms = _terms(aff)
    own = [(k, f) for k, f in terms if iterators & set(_NAMES.findall(f))] or [(k, f) for k, f in terms if f]
    rest = [t for t in terms if t not in own]
    sign = -1 if own and all(k < 0 for k, _ in own) else 1
    if not own or len({k > 0 for k, _ in own}) == 2:  # iterators on both sides
        left, right, sign = [(-k, f) for k, f in terms if k < 0], [(k, f) for k, f in terms if k > 0], -1
    else:
        left, right = [(sign * k, f) for k, f in own], [(-sign * k, f) for k, f in rest]
    if c.is_equality():
        return f"{_sum(left)} == {_sum(right)}"
    if sign > 0:
        return f"{_sum(left)} >= {_sum(right)}"
    if left and left[-1] == (1, ""):
        return f"{_sum(left[:-1])} < {_sum(right)}"
    if len(right) > 1 and right[-1][1] == "" and right[-1][0] < 0:
        bound = [*right[:-1], *([(right[-1][0] + 1, "")] if right[-1][0] < -1 else [])]
        return f"{_sum(left)} < {_sum(bound)}"
    return f"{_sum(left)} <= {_sum(right)}"


_NAMES = re.compile(r"[^\W\d]\w*")


def _aff_text(aff: isl.Aff) -> str:
    denominator = int(aff.get_denominator_val().to_python())
    text = _sum(_terms(aff.scale_val(isl.Val(denominator))))
    if denominator == 1:
        return text
    return f"({text}) // {denominator}"


def _terms(aff: isl.Aff) -> list[Term]:
    """The sum, with `e - d * (e // d)` written as `e % d`."""
    known: dict[str, int] = {}
    for kind in (isl.dim_type.in_, isl.dim_type.param):
        for k in range(aff.dim(kind)):
            _add(known, aff.get_dim_name(kind, k), int(aff.get_coefficient_val(kind, k).to_python()))
    _add(known, "", int(aff.get_constant_val().to_python()))
    for k in range(aff.dim(isl.dim_type.div)):
        c = int(aff.get_coefficient_val(isl.dim_type.div, k).to_python())
        if c:
            _add_floor(known, aff.get_div(k), c)
    return [(c, f) for f, c in known.items() if c and f] + ([(known[""], "")] if known.get("") else [])


def _add(known: dict[str, int], factor: str, coefficient: int) -> None:
    if coefficient:
        known[factor] = known.get(factor, 0) + coefficient


def _add_floor(known: dict[str, int], inside: isl.Aff, c: int) -> None:
    """`c * floor(inside)` where `inside` is `numerator / d`."""
    d = int(inside.get_denominator_val().to_python())
    numerator = _terms(inside.scale_val(isl.Val(d)))
    text = _sum(numerator)
    if len(numerator) > 1 or numerator and numerator[0][0] != 1:
        text = f"({text})"
    times, rest = divmod(-c, d)
    whole = all(abs(known.get(f, 0)) >= abs(times * k) and known.get(f, 0) * times * k > 0 for k, f in numerator if f)
    if times > 0 and not rest and numerator and whole:
        for k, f in numerator:
            _add(known, f, -times * k)
        _add(known, f"{text} % {d}", times)
    else:
        _add(known, f"{text} // {d}", c)


def _sum(terms: Sequence[Term]) -> str:
    out = ""
    for k, factor in terms:
        size = abs(k)
        compound = "//" in factor or "%" in factor
        body = str(size) if not factor else factor if size == 1 else f"{size} * {f'({factor})' if compound else factor}"
        if not out:
            minus = "-" if k < 0 else ""
            out = f"{minus}({body})" if minus and compound and size == 1 else minus + body
        else:
            out += f" {'-' if k < 0 else '+'} {body}"
    return out or "0"


# ---- reading -------------------------------------------------------------------------------------


def read_value(text: str, space: isl.Space) -> isl.PwAff:
    """The function on `space` (a set space: its dimensions and parameters are the names known).

    Raises:
        AffineTextError: the text is not quasi-affine, or has an unknown name.
    """
    return _read(text, space, _Reader.value)


def read_condition(text: str, space: isl.Space) -> isl.Set:
    """The points of `space` where the condition holds. Raises `AffineTextError`."""
    return _read(text, space, _Reader.condition)


def _read(text: str, space: isl.Space, read: Callable[[_Reader, ast.expr], Made]) -> Made:
    reader = _Reader(space)
    try:
        return read(reader, expression(text, reader.names()))
    except RecursionError:
        raise AffineTextError(f"'{text[:60]}...' nests too deep") from None


def expression(text: str, names: Sequence[str]) -> ast.expr:
    """The expression that a text is; `names`, of loops and sizes, may be words that Python keeps for itself (`lambda`).

    Raises:
        AffineTextError: it is none, or longer than `LONGEST`.
    """
    if len(text) > LONGEST:
        raise AffineTextError(f"'{text[:60]}...' is longer than {LONGEST} characters")
    kept = {f"{name}_{len(text)}": name for name in names if iskeyword(name)}
    given = text
    for other, name in kept.items():
        given = re.sub(rf"(?<![\w.]){name}(?![\w.])", other, given)
    try:
        found = ast.parse(given.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise AffineTextError(f"'{text:.200}' is not an expression") from None
    for node in ast.walk(found):
        if isinstance(node, ast.Name):
            node.id = kept.get(node.id, node.id)
    return found


class _Reader:
    def __init__(self, space: isl.Space) -> None:
        self.space = space
        self.local = isl.LocalSpace.from_space(space)

    def value(self, e: ast.expr) -> isl.PwAff:
        """An integer expression."""
        if isinstance(e, ast.Constant) and type(e.value) is int:
            return self._constant(e.value)
        if isinstance(e, ast.Name):
            return self._name(e.id)
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self.value(e.operand).neg()
        if isinstance(e, ast.BinOp):
            return self._binary(e)
        if isinstance(e, ast.IfExp):
            where = self.condition(e.test)
            yes, no = self.value(e.body), self.value(e.orelse)
            return yes.intersect_domain(where).union_add(no.intersect_domain(where.complement())).coalesce()
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in ("min", "max") and e.args:
            values = [self.value(a) for a in e.args]
            out = values[0]
            for v in values[1:]:
                out = out.min(v) if e.func.id == "min" else out.max(v)
            return out
        raise AffineTextError(f"'{ast.unparse(e)}' is not affine in the loops and sizes")

    def _constant(self, value: int) -> isl.PwAff:
        if value >> 63:
            raise AffineTextError(f"the number {str(value)[:30]}... needs more than 64 bits")
        return isl.PwAff.from_aff(isl.Aff.zero_on_domain(self.local).set_constant_val(isl.Val(value)))

    def _name(self, name: str) -> isl.PwAff:
        for kind in (isl.dim_type.set, isl.dim_type.param):
            position = self.space.find_dim_by_name(kind, name)
            if position >= 0:
                return isl.PwAff.from_aff(isl.Aff.var_on_domain(self.local, kind, position))
        raise AffineTextError(f"no loop or size '{name}' here (there are {', '.join(self.names()) or 'none'})")

    def names(self) -> list[str]:
        """The loops and sizes that are known."""
        kinds = (isl.dim_type.set, isl.dim_type.param)
        return [self.space.get_dim_name(k, i) for k in kinds for i in range(self.space.dim(k))]

    def _binary(self, e: ast.BinOp) -> isl.PwAff:
        a, b = self.value(e.left), self.value(e.right)
        if isinstance(e.op, ast.Add):
            return a.add(b)
        if isinstance(e.op, ast.Sub):
            return a.sub(b)
        if isinstance(e.op, ast.Mult) and (a.is_cst() or b.is_cst()):
            return a.mul(b)
        if isinstance(e.op, (ast.FloorDiv, ast.Mod)) and b.is_cst() and b.n_piece() == 1:
            divisor = b.get_pieces()[0][1].get_constant_val()
            if divisor.is_pos():
                return a.mod_val(divisor) if isinstance(e.op, ast.Mod) else a.scale_down_val(divisor).floor()
        raise AffineTextError(f"'{ast.unparse(e)}' is not affine: multiply and divide by positive numbers only")

    def condition(self, e: ast.expr) -> isl.Set:
        """A boolean expression."""
        if isinstance(e, ast.Constant) and isinstance(e.value, bool):
            whole = isl.Set.universe(self.space)
            return whole if e.value else whole.complement()
        if isinstance(e, ast.BoolOp):
            parts = [self.condition(v) for v in e.values]
            out = parts[0]
            for p in parts[1:]:
                out = out.intersect(p) if isinstance(e.op, ast.And) else out.union(p)
            return out
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return self.condition(e.operand).complement()
        if isinstance(e, ast.Compare):
            values = [self.value(v) for v in (e.left, *e.comparators)]
            out = isl.Set.universe(self.space)
            for a, op, b in zip(values, e.ops, values[1:]):
                compare = _COMPARE.get(type(op))
                if compare is None:
                    raise AffineTextError(f"'{ast.unparse(e)}' is not a comparison of numbers")
                out = out.intersect(compare(a, b))
            return out
        raise AffineTextError(f"'{ast.unparse(e)}' is not a condition on the loops and sizes")


_COMPARE: dict[type[ast.cmpop], Callable[[isl.PwAff, isl.PwAff], isl.Set]] = {
    ast.Eq: lambda a, b: a.eq_set(b),
    ast.NotEq: lambda a, b: a.ne_set(b),
    ast.Lt: lambda a, b: a.lt_set(b),
    ast.LtE: lambda a, b: a.le_set(b),
    ast.Gt: lambda a, b: a.gt_set(b),
    ast.GtE: lambda a, b: a.ge_set(b),
}
