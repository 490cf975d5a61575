"""A schedule that does not fit its GPU is refused with the numbers."""

from __future__ import annotations

import pytest
import simt
from programs import ALL

from polyc.poly.errors import BuildError


def tiled(rows: int, columns: int, depth: int) -> simt.Schedule:
    s = ALL["matmul"][0].scop().schedule().tile(["i", "j"], [rows, columns])
    s = s.bind("i.out", "block.y").bind("j.out", "block.x").bind("i.in", "thread.y").bind("j.in", "thread.x")
    return s.split("k", depth).promote("A", "k.out", space="shared").promote("B", "k.out", space="shared")


def test_shared_memory() -> None:
    s = tiled(32, 32, 1024)
    with pytest.raises(BuildError, match=r"needs 262144 bytes of shared memory a block, but 'sm_80' has \d+: make"):
        simt.finished(s.scop, s.tree)


def test_registers() -> None:
    s = ALL["matmul"][0].scop().schedule().tile(["i", "j"], [32, 32]).bind("i.out", "block.x").bind("j.out", "thread.x")
    s = s.promote("C", "j.out", space="register")
    with pytest.raises(BuildError, match="needs 1048 registers a thread, but 'sm_80' has 255"):
        simt.finished(s.scop, s.tree)


def test_registers_around_threads() -> None:
    s = tiled(8, 8, 4).promote("C", "j.out", space="register")
    with pytest.raises(BuildError, match="each thread has its own 'C_buf'.*promote inside that loop, or to shared"):
        simt.finished(s.scop, s.tree)


def test_more_iterations_than_threads_go_round() -> None:
    s = ALL["chain"][0].scop().schedule().bind("i", "thread.y").bind("j", "thread.x")
    fn = simt.finished(s.scop, s.tree)
    assert any("may have more iterations than there are threads" in n for n in fn.notes)
