"""polyc's own elementary functions, as branch-free loop-IR expressions.

After `expand_function` only these Calls are left, all exact or correctly rounded:
`fma floor ceil round trunc abs sqrt bitcast dot_pairs widen_pairs dot_bytes dot_bytes_add`; so the interpreter, C and
LLVM agree bit by bit (given that no back end contracts or reassociates floating point by itself).
"""

from polyc.emit.mathlib.expand import BASIC, expand_function

__all__ = ["BASIC", "expand_function"]
