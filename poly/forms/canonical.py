"""isl objects as text that depends on their value only.

isl simplifies objects in place while it works with them (it drops redundant constraints,
finds implicit equalities), so `to_str` of one object changes with what was computed before.
Here everything is brought to the simplified form first. Use it for files, keys and golden
texts.
"""

from __future__ import annotations

import islpy as isl


def canonical_set(s: isl.Set) -> isl.Set:
    """The same set with implicit equalities found and redundant constraints dropped."""
    return s.detect_equalities().remove_redundancies()


def set_text(s: isl.Set) -> str:
    """`[N] -> { S0[i] : 0 <= i < N }`."""
    return str(canonical_set(s).to_str())


def map_text(m: isl.Map) -> str:
    """`{ S0[i] -> A[i] }`."""
    return str(m.detect_equalities().remove_redundancies().to_str())


def value_text(pa: isl.PwAff) -> str:
    """`{ S0[i] -> [(i)] }`; the domains of several pieces are simplified too."""
    if pa.n_piece() != 1 or not pa.domain().plain_is_universe():
        pieces = [isl.PwAff.alloc(canonical_set(where), aff) for where, aff in pa.get_pieces()]
        out = pieces[0] if pieces else pa
        for piece in pieces[1:]:
            out = out.union_add(piece)
        pa = out
    return str(pa.to_str())
