"""Products of bf16 two at a time, for machines without an instruction for them."""

from __future__ import annotations

from polyc.emit.mathlib.build import V

HIGH = -65536  # the bits of the high half


def _words(x: V) -> tuple[V, V]:
    """The bf16 in the low half and in the high half, as f32."""
    bits = x.bits()
    return (bits << 16).unbits(), (bits & HIGH).unbits()


def dot_bf16(x: V, y: V) -> V:
    """The sum of the two products, both of which are exact."""
    (a, b), (c, d) = _words(x), _words(y)
    return a.call("fma", c, b * d)


def dot_bf16_add(x: V, y: V, z: V) -> V:
    """`z` and the two products: the high halves first, one rounding each."""
    (a, b), (c, d) = _words(x), _words(y)
    return a.call("fma", c, b.call("fma", d, z))


def pack_bf16(x: V, y: V) -> V:
    """A word of two f32 that are bf16: `x` in the low half."""
    return (((x.bits() >> 16) & 0xFFFF) | (y.bits() & HIGH)).unbits()
