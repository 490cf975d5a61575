"""Conversions of halves that a machine has no instruction for: the functions that LLVM calls instead.

For `fpext half` and `fptrunc ... to half` on such a machine (x86-64 without F16C, say) LLVM calls functions of the
compiler's run time, which need not be in the process. They are defined here with integers: exact where they widen, to
nearest with ties to even where they round.
"""

from __future__ import annotations

CALLS = ("__extendhfsf2", "__truncsfhf2", "__truncdfhf2")

_EXTEND = """
define weak hidden float @__extendhfsf2(half %x) {
  %b = bitcast half %x to i16
  %w = zext i16 %b to i32
  %m = and i32 %w, 32767
  %s0 = and i32 %w, 32768
  %s = shl i32 %s0, 16
  %up = shl i32 %m, 13
  %normal = add i32 %up, 939524096
  %i = or i32 %up, 2139095040
  %q = or i32 %i, 4194304
  %isnan = icmp ugt i32 %m, 31744
  %far = select i1 %isnan, i32 %q, i32 %i
  %f = uitofp i32 %m to float
  %t = fmul float %f, 0x3E70000000000000
  %tiny = bitcast float %t to i32
  %isfar = icmp uge i32 %m, 31744
  %istiny = icmp ult i32 %m, 1024
  %r0 = select i1 %isfar, i32 %far, i32 %normal
  %r1 = select i1 %istiny, i32 %tiny, i32 %r0
  %r = or i32 %r1, %s
  %y = bitcast i32 %r to float
  ret float %y
}
"""


def _truncating(name: str, kind: str, bits: int, fraction: int, bias: int) -> str:
    """A rounding function from a float of so many bits, of them `fraction` after the point."""
    i, drop = f"i{bits}", fraction - 10
    infinity = (2 * bias + 1) << fraction
    # The smallest number that rounds to infinity is 65520; below 2^-14 halves are multiples of 2^-24: adding the number
    # whose last place that is rounds to them.
    over = ((bias + 15) << fraction) | (0x7FF << (drop - 1))
    normal, magic = (bias - 14) << fraction, (bias - 24 + fraction) << fraction
    return f"""
define weak hidden half @{name}({kind} %x) {{
  %b = bitcast {kind} %x to {i}
  %m = and {i} %b, {(1 << (bits - 1)) - 1}
  %s0 = lshr {i} %b, {bits - 16}
  %s = and {i} %s0, 32768
  %p = lshr {i} %m, {drop}
  %p0 = and {i} %p, 1023
  %nan = or {i} %p0, 32256
  %isnan = icmp ugt {i} %m, {infinity}
  %far = select i1 %isnan, {i} %nan, {i} 31744
  %odd = and {i} %p, 1
  %n0 = add {i} %m, {(1 << (drop - 1)) - 1}
  %n1 = add {i} %n0, %odd
  %n2 = lshr {i} %n1, {drop}
  %n = sub {i} %n2, {(bias - 15) << 10}
  %a = bitcast {i} %m to {kind}
  %g = bitcast {i} {magic} to {kind}
  %t0 = fadd {kind} %a, %g
  %t1 = bitcast {kind} %t0 to {i}
  %t = sub {i} %t1, {magic}
  %isfar = icmp uge {i} %m, {over}
  %istiny = icmp ult {i} %m, {normal}
  %r0 = select i1 %isfar, {i} %far, {i} %n
  %r1 = select i1 %istiny, {i} %t, {i} %r0
  %r2 = or {i} %r1, %s
  %r = trunc {i} %r2 to i16
  %y = bitcast i16 %r to half
  ret half %y
}}
"""


def definitions() -> str:
    """Of all of `CALLS`, to be added to the text of a module."""
    names = ", ".join(f"ptr @{name}" for name in CALLS)
    return (
        _EXTEND
        + _truncating("__truncsfhf2", "float", 32, 23, 127)
        + _truncating("__truncdfhf2", "double", 64, 52, 1023)
        + f'\n@llvm.compiler.used = appending global [{len(CALLS)} x ptr] [{names}], section "llvm.metadata"\n'
    )


def calls_run_time(image: bytes) -> bool:
    """Whether machine code calls one of them."""
    return any(name.encode() in image for name in CALLS)
