"""Schedules as YAML: round trips, edits, refusals with line and key; and the difference of two schedules."""

from __future__ import annotations

import random

import islpy as isl
import pytest
from parts import in_part
from random_programs import generate
from random_schedules import random_schedule

from examples import polybench
from examples.matmul import matmul
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.forms.affine import set_space
from polyc.poly.forms.affine_text import AffineTextError, condition_source, read_condition, read_value, value_source
from polyc.poly.tree import Band, time_maps, walk
from polyc.scheduler.schedule import Schedule


def tiled() -> Schedule:
    s: Schedule = matmul.scop().schedule()
    return s.tile(["i", "j", "k"], [64, 64, 64]).vectorize("j.in", 16).promote("A", "k.out").parallel("i.out")


def kernel_scop(name: str) -> object:
    operator = polybench.load(name).operator
    constants = {"tsteps": 5} if "tsteps" in operator.signature.constants else {}
    return operator.scop(**constants)


GOLDEN = """\
operator: matmul
sizes: [M, K, N]
statements:
  S0: C[i, j] = 0.0
  S1: C[i, j] = C[i, j] + A[i, k] * B[k, j]  (reduction +)
tree:
  loops:
  - i.out: i // 64
    run: parallel
  - j.out: j // 64
  - k.out:
      S0: 0
      S1: k // 64
  body:
    promote: A
    to: A_buf
    space: local
    copy: [in]
    body:
      loops:
      - i.in: i % 64
      - j.in: j % 64
        run: vector 16
      - k.in:
          S0: 0
          S1: k % 64
      body: [S0, S1]
"""


def test_the_text_is_the_golden_one_and_reads_back() -> None:
    assert tiled().to_yaml() == GOLDEN
    again = Schedule.from_yaml(matmul.scop(), GOLDEN)
    assert again.to_yaml() == GOLDEN and len(tiled().diff(again)) == 0
    assert [s.name for s in again.trace] == ["set_order"]


def test_the_same_text_fits_other_sizes() -> None:
    from polyc.poly.rewriting.specialise import specialise

    small = specialise(matmul.scop(), {"M": 5, "N": 7, "K": 3})
    assert Schedule.from_yaml(small, GOLDEN).loops == tiled().loops


@pytest.mark.parametrize("name", in_part(polybench.MODULES, lambda name: list(polybench.MODULES).index(name) % 2 == 0))
def test_automatic_schedules_of_polybench_come_back(name: str) -> None:
    from polyc.emit.targets import host
    from polyc.scheduler.strategies.auto import automatic

    scop = kernel_scop(name)
    schedule = automatic(scop, host(), 2)
    again = Schedule.from_yaml(schedule.original, schedule.to_yaml())
    assert len(schedule.diff(again)) == 0, str(schedule.diff(again))
    assert times(schedule).is_equal(times(again))  # isl may spell a set that was read in another way
    assert [m.schedule.keys() for n in walk(again.tree) if isinstance(n, Band) for m in n.members] == [
        m.schedule.keys() for n in walk(schedule.tree) if isinstance(n, Band) for m in n.members
    ]


def come_back(seed: int) -> None:
    """Every instance has the same time, and the diff sees nothing."""
    scop = generate(seed).operator().scop()
    schedule = random_schedule(Schedule.start(scop), seed)
    again = Schedule.from_yaml(scop, schedule.to_yaml())
    assert len(schedule.diff(again)) == 0, str(schedule.diff(again))
    assert again.scop.statements.keys() == schedule.scop.statements.keys()
    assert times(schedule).is_equal(times(again))
    assert again.loops == schedule.loops


def times(s: Schedule) -> isl.UnionMap:
    domains = {n: x.domain.intersect_params(s.scop.context) for n, x in s.scop.statements.items()}
    out = isl.UnionMap("{ }")  # a random program may have no statements
    for m in time_maps(s.tree, domains):
        out = out.union(isl.UnionMap.from_map(m))
    return out


@pytest.mark.parametrize("seed", range(12))
def test_random_schedules_come_back(seed: int) -> None:
    come_back(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_random_schedules_come_back_long(seed: int) -> None:
    come_back(seed)


def test_an_edit_is_checked() -> None:
    swapped = GOLDEN.replace("body: [S0, S1]", "body: [S1, S0]")
    with pytest.raises(IllegalSchedule) as refused:
        Schedule.from_yaml(matmul.scop(), swapped)
    assert refused.value.witness is not None
    wider = Schedule.from_yaml(matmul.scop(), GOLDEN.replace("i // 64", "i // 32").replace("i % 64", "i % 32"))
    assert str(tiled().diff(wider)) == "tile of i 64 -> 32"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("i // 64", "i / 64", r"line 8: for S0: 'i / 64' is not affine"),
        ("i // 64", "q // 64", r"line 8: for S0: no loop or size 'q' here \(there are i, j, M, K, N\)"),
        ("run: parallel", "run: sideways", "line 9: 'run: sideways' is none of parallel, vector"),
        ("run: parallel", "ran: parallel", "line 8: a loop is written as 'name: value', here are i.out, ran"),
        ("S0: 0\n      S1: k // 64", "S1: k // 64", "line 12: the loop 'k.out' has no value for S0"),
        ("promote: A", "promote: Z", "line 15: no array 'Z'"),
        ("space: local", "space: attic", "line 17: no memory space 'attic'"),
        ("copy: [in]", "copy: [inwards]", "line 18: 'copy' lists in, out or nothing"),
        ("body: [S0, S1]", "body: [S0, S7]", "line 27: no statement 'S7' here"),
        ("body: [S0, S1]", "bodie: [S0, S1]", "line 27: unknown key 'bodie'"),
        ("  body:\n    promote", "  budy:\n    promote", "line 14: unknown key 'budy'"),
        ("tree:", "trees:", "line 6: unknown key 'trees'"),
        ("body: [S0, S1]", "body: [S0]", "some instances of S1 would not run"),
        ("tree:\n", "tree:\n  loops: [\n", "not YAML"),
        ("sizes: [M, K, N]", "operator: twice", "line 2: the key 'operator' is there twice"),
        ("- j.out: j // 64", "- j.out: &x j // 64", ""),
    ],
)
def test_errors_name_line_and_key(old: str, new: str, message: str) -> None:
    assert old in GOLDEN
    text = GOLDEN.replace(old, new, 1)
    if not message:
        assert Schedule.from_yaml(matmul.scop(), text).to_yaml() == GOLDEN
        return
    with pytest.raises(ScheduleError, match=message):
        Schedule.from_yaml(matmul.scop(), text)


def test_damaged_files_give_one_clean_error() -> None:
    rng = random.Random(0)
    for _ in range(150):
        chars = list(GOLDEN)
        for _ in range(rng.randint(1, 4)):
            chars[rng.randrange(len(chars))] = rng.choice(":-[]{}&*!|>'\"%@`?, \n\tx0")
        try:
            Schedule.from_yaml(matmul.scop(), "".join(chars))
        except ScheduleError as error:
            assert str(error)
    for text in ("", "[]", "tree", "tree: &a [*a]", "tree: !!python/object:os.system {}", "- 1", "\x00", "a: b: c"):
        with pytest.raises(ScheduleError):
            Schedule.from_yaml(matmul.scop(), text)


def test_steps_that_change_the_program_come_first() -> None:
    s: Schedule = matmul.scop().schedule()
    s = s.rfactor("k").reverse("i")
    text = s.to_yaml()
    assert "first:" in text and "do: rfactor" in text
    again = Schedule.from_yaml(matmul.scop(), text)
    assert (
        again.scop.statements.keys() == s.scop.statements.keys()
        and again.to_yaml().split("tree:")[1] == (text.split("tree:")[1])
    )
    with pytest.raises(ScheduleError, match="line 9: no step 'dance'"):
        Schedule.from_yaml(matmul.scop(), GOLDEN.replace("tree:", "first:\n\n\n- do: dance\n  loop: i\ntree:", 1))


# ---- the text of affine functions -------------------------------------------------------------------

SPACE = set_space("S", ("i", "j"), ("N",))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("i//64", "i // 64"), ("i%64", "i % 64"), ("-i + N", "-i + N"), ("(i + 2*j) % 32", "(i + 2 * j) % 32"),
        ("j if j<N-1 else 0", "j if j < N - 1 else 0"), ("7", "7"), ("2*(i%4)+1", "2 * (i % 4) + 1"),
    ],
)  # fmt: skip
def test_values_print_as_they_are_written(text: str, printed: str) -> None:
    assert value_source(read_value(text, SPACE)) == printed


def random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["i", "j", "N", str(rng.randint(-9, 9))])
    a, b = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    kind = rng.randrange(6)
    if kind == 0:
        return f"({a}) {rng.choice('+-')} ({b})"
    if kind == 1:
        return f"{rng.randint(-3, 3)} * ({a})"
    if kind in (2, 3):
        return f"({a}) {rng.choice(['//', '%'])} {rng.randint(1, 9)}"
    if kind == 4:
        return f"{rng.choice(['min', 'max'])}({a}, {b})"
    return f"({a}) if ({b}) {rng.choice(['<', '<=', '==', '!=', '>'])} ({random_expression(rng, 1)}) else ({b})"


@pytest.mark.parametrize("seed", range(60))
def test_values_and_conditions_read_back_what_they_print(seed: int) -> None:
    rng = random.Random(seed)
    text = random_expression(rng, 3)
    value = read_value(text, SPACE)
    again = read_value(value_source(value), SPACE)
    assert isl.Map.from_pw_aff(value).is_equal(isl.Map.from_pw_aff(again)), (text, value_source(value))
    condition = read_condition(f"({text}) {rng.choice(['<', '==', '!='])} ({random_expression(rng, 2)})", SPACE)
    assert read_condition(condition_source(condition), SPACE).is_equal(condition)
    for i, j, n in ((0, 0, 5), (3, 1, 7), (-4, 6, 2)):  # the text means in Python what it means here
        here = value.intersect_domain(read_condition(f"i == {i} and j == {j} and N == {n}", SPACE))
        scope = {"i": i, "j": j, "N": n, "min": min, "max": max}
        assert here.max_val().to_python() == eval(text, scope) == eval(value_source(value), scope)


def test_what_is_not_affine_is_refused() -> None:
    for text in ("i * j", "i / 2", "i // N", "i // -2", "f(i)", "i.real", "[i]", "1.5", "True", "i <", "", "lambda: i"):
        with pytest.raises(AffineTextError):
            read_value(text, SPACE)
    for text in ("i", "i < 2.5", "i in j", "1"):
        with pytest.raises(AffineTextError):
            read_condition(text, SPACE)


# ---- differences -------------------------------------------------------------------------------------


def test_differences_in_words() -> None:
    s: Schedule = matmul.scop().schedule()
    a = s.tile(["i", "j", "k"], [32, 64, 64])
    b = s.tile(["i", "j", "k"], [64, 64, 64]).parallel("i.out").promote("A", "k.out").vectorize("j.in", 8)
    assert str(a.diff(b)).splitlines() == [
        "tile of i 32 -> 64", "i.out became parallel", "j.in became vector 8", "A promoted at k.out to local",
    ]  # fmt: skip
    assert [(c.what, c.subject, c.before, c.after) for c in a.diff(b)][:2] == [
        ("tile", "i", 32, 64), ("mark", "i.out", "serial", "parallel"),
    ]  # fmt: skip
    assert str(b.diff(a)).splitlines() == [
        "tile of i 64 -> 32", "i.out is no longer parallel", "j.in is no longer vector 8",
        "A no longer in a buffer (at k.out)",
    ]  # fmt: skip
    assert str(s.diff(s)) == "no difference" and not s.diff(s)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda s: s.permute("i", "k", "j"), ["j moved inside k", "S0 and S1 share k"]),
        (lambda s: s.interchange("i", "j"), ["i moved inside j"]),
        (lambda s: s.reverse("i"), ["i runs over -i, was i"]),
        (lambda s: s.split("k", 8), ["k cut into blocks of 8"]),
        (lambda s: s.unroll("k", 4), ["k became unroll 4"]),
        (lambda s: s.distribute("i"), ["loop i_1 is new", "loop j_1 is new", "S0 and S1 no longer share i, j"]),
        (lambda s: s.skew("j", "i", 2), ["j runs over 2 * i + j, was j"]),
    ],
)
def test_every_step_is_named(step: object, words: list[str]) -> None:
    s: Schedule = matmul.scop().schedule()
    assert str(s.diff(step(s))).splitlines() == words


def test_order_of_statements() -> None:
    scop = kernel_scop("gesummv")
    s = Schedule.start(scop)
    assert str(s.diff(s.reorder_statements(["S1", "S0"]))) == "S1 now runs before S0 in i"


# ---- the tree as text --------------------------------------------------------------------------------


def test_a_tree_prints_its_statements_and_its_buffers() -> None:
    s = tiled()
    assert (
        str(s.tree)
        == str(s)
        == """\
┌ for i.out = i // 64 [parallel]
│ for j.out = j // 64
└ for k.out = 0 for S0, k // 64 for S1
└─ promote A[64i.out : 64, 64k.out : 64] to local A_buf (copy in)
   └─ ┌ for i.in = i % 64
      │ for j.in = j % 64 [vector 16]
      └ for k.in = 0 for S0, k % 64 for S1
      └─ sequence
         ├─ S0: C[i, j] = 0.0
         └─ S1: C[i, j] = C[i, j] + A[i, k] * B[k, j]  (reduction +)"""
    )
    part = s.tree.children()[0]
    assert str(part).startswith("promote A to local A_buf (copy in)\n") and "S0: C[i, j] = 0.0" in str(part)
    assert str(matmul.scop().tree).endswith("└─ S1")


YAML = """operator: matmul
tree:
  loops:
  - i: i
  - j: j
  body:
  - S0
  - {loops: [{k: k}], of: [S1], body: S1}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- i: i", "- i: i + 99999999999999999999", "needs more than 64 bits"),
        ("- i: i", "- i: i + 9223372036854775800", "times with numbers beyond 2147483647"),
        ("- i: i", "- {i: i, run: unroll 1e9}", "is none of"),
        ("- j: j", "- {j: j, run: vector 1000000}", "has 1000000 lanes: at most 4096"),
        ("- i: i", "- i: {S0: i, i: i}", "line 4: no statement 'i' here"),
        ("tree:", "first: [{do: to_yaml}]\ntree:", "line 2: no step 'to_yaml'"),
        ("tree:", "first: [&a [1], *a]\ntree:", "line 2: schedules have no aliases"),
        ("tree:", "tree: {body: &a [S0, S1]}\nmore: [*a, *a]\nx:", "schedules have no aliases"),
        ("- i: i", "- i: " + "(" * 5000, "is longer than"),
        ("- i: i", "- i: i" + " + M" * 900, "nests too deep"),
    ],
)
def test_hostile_files_are_refused(old: str, new: str, message: str) -> None:
    Schedule.from_yaml(matmul.scop(), YAML)
    with pytest.raises(ScheduleError) as error:
        Schedule.from_yaml(matmul.scop(), YAML.replace(old, new, 1))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_numbers_that_would_overflow_are_refused() -> None:
    """A shift by 2**63 - 3 was accepted, and the kernel never ended."""
    s = matmul.scop().schedule()
    for step in (lambda: s.shift("i", 2**63 - 3), lambda: s.skew("j", "i", 2**62), lambda: s.shift("i", 2**70)):
        with pytest.raises(ScheduleError, match="must be at most 2147483647"):
            step()
    with pytest.raises(ScheduleError, match="64 bits overflow"):
        s.skew("j", "i", 2**30).skew("j", "i", 2**31 - 1)


def test_a_huge_unroll_is_left_out_with_a_note() -> None:
    kernel = matmul.compile(schedule=matmul.scop().schedule().unroll("k", 10**6))
    assert any("1000000 copies of 1 statements are too many" in n for n in kernel.function.notes)
