"""Loops by name and by pattern, and what is said about names that do not exist."""

from __future__ import annotations

import pytest
import scop_builder as sb

from polyc.poly.errors import ScheduleError
from polyc.poly.tree import Band, walk
from polyc.scheduler.schedule import Schedule


def start(make) -> Schedule:
    return Schedule.start(make())


def kinds(s: Schedule) -> dict[str, str]:
    return {m.name: m.kind for n in walk(s.tree) if isinstance(n, Band) for m in n.members}


def test_a_pattern_is_applied_to_each_match() -> None:
    s = start(sb.chain).split("j*", 8)
    assert s.loops == ("i", "j.out", "j.in", "i_1", "j_1.out", "j_1.in", "i_2", "j_2.out", "j_2.in")
    assert [step.args["loop"] for step in s.trace] == ["j", "j_1", "j_2"]
    assert set(kinds(s.vectorize("*.in", 4)).values()) == {"serial", "vector"}
    assert [n for n, k in kinds(s.parallel("i*")).items() if k == "parallel"] == ["i", "i_1", "i_2"]


def test_all_loops_around_a_statement() -> None:
    assert start(sb.matmul).tile("S1.*", [4, 8, 2]).loops == start(sb.matmul).tile(["i", "j", "k"], [4, 8, 2]).loops
    assert start(sb.matmul).tile("S1.*", 4).trace == start(sb.matmul).tile(["i", "j", "k"], [4, 4, 4]).trace
    assert start(sb.chain).split("S1.*", 2).loops == (
        "i", "j", "i_1.out", "i_1.in", "j_1.out", "j_1.in", "i_2", "j_2",
    )  # fmt: skip
    s = start(sb.matmul).tile("S1.*", 4)
    assert s.permute("S1.*.in").loops == s.loops and s.permute("k.in", "S1.[ij].in").loops[3:] == (
        "k.in",
        "i.in",
        "j.in",
    )


def test_one_loop_where_one_is_needed() -> None:
    assert start(sb.chain).interchange("i_1*", "j_1*").loops[2:4] == ("j_1", "i_1")
    assert start(sb.rowsum).rfactor("j*").trace[0].args == {"loop": "j"}
    with pytest.raises(ScheduleError, match=r"one loop is needed, but 'i\*' matches i, i_1, i_2$"):
        start(sb.chain).interchange("i*", "j")
    with pytest.raises(ScheduleError, match=r"one loop is needed, but 'S1\.\*' matches i, j, k$"):
        start(sb.matmul).promote("A", "S1.*")


def test_lists_are_fused_level_by_level() -> None:
    s = start(sb.chain).fuse("S0.*", "S1.*")
    assert s.loops == ("i", "j", "i_2", "j_2") and [t.name for t in s.trace] == ["fuse", "fuse"]
    with pytest.raises(ScheduleError, match="fuse pairs loops: 2 loops, 1 loop, 2 shifts"):
        start(sb.chain).fuse("S0.*", "i_1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x", "no loop 'x': the loops are i, j, k"),
        ("kk", "no loop 'kk': the loops are i, j, k (did you mean 'k'?)"),
        ("x*", "no loop matches 'x*': the loops are i, j, k"),
        ("S0.k", "no loop 'S0.k': the loops are i, j, k"),
        ("S0.k*", "no loop matches 'S0.k*': the loops are i, j, k"),
        (3, "a loop is addressed by its name, not by 3"),
    ],
)
def test_names_that_do_not_exist(name, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        start(sb.matmul).split(name, 2)
    assert str(error.value) == message


def test_the_nearest_name_is_proposed_everywhere() -> None:
    s = start(sb.matmul).tile(["i", "j"], [4, 4])
    calls = (
        lambda: s.parallel("i.uot"),
        lambda: s.permute("j.in", "i.uot"),
        lambda: s.skew("j.in", "i.uot", 1),
        lambda: s.promote("A", "i.uot"),
        lambda: s.fuse("i.uot", "k"),
        lambda: s.rfactor("i.uot"),
    )
    for call in calls:
        with pytest.raises(ScheduleError, match=r"did you mean 'i\.out'\?"):
            call()


def test_patterns_are_resolved_in_the_trace() -> None:
    s = start(sb.matmul).tile("*", 4).vectorize("j.i?", 4)
    again = Schedule.replay(s.scop, s.save())
    assert again == s and "*" not in s.save() and "?" not in s.save()


def test_help_still_shows_the_arguments() -> None:
    import inspect

    assert list(inspect.signature(Schedule.split).parameters)[:3] == ["self", "loop", "size"]
    assert inspect.getdoc(Schedule.peel)
