"""A slice of `python -m tests.mutations`, and its own parts."""

from __future__ import annotations

import random
from pathlib import Path

import mutations
import pytest
import yaml
from mutated import commands, texts
from mutated.inputs import KINDS, Trial
from mutations import PAGE
from seed_pages import Block, Run, missing


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_slice(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "")  # put back afterwards: the campaign has a cache of its own
    for name, valid in mutations.prepared([kind]):
        block, failures = mutations.run(Run(range(900_000, 900_015), name), valid)
        assert failures == [] and block.size == 15 and block.counts[0] < 15


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_five_hundred_of_each(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "")
    for name, valid in mutations.prepared([kind]):
        assert mutations.run(Run(range(800_000, 800_500), name), valid)[1] == []


def test_what_counts_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of failure is one: a campaign that cannot fail says nothing."""
    import os
    import sys

    def say(text: str, code: int) -> Trial:
        def run() -> int:
            print(text, file=sys.stderr, end="")
            return code

        return Trial("said", run)

    def eat() -> int:
        return 0 * len(b"x" * (3 << 30))

    def boom() -> int:
        raise KeyError("x")

    trials = [
        say("polyc: no\n", 1), say("", 0), say("polyc: warning: x\n", 0), say("polyc: warning: x\npolyc: no\n", 2),
        say("one\ntwo\n", 1), say("", 1), say("polyc: no\n", 0), say("polyc: internal error at x\n", 1),
        say("polyc: \x1b[31m\n", 1), say("polyc: no\n", 3), Trial("boom", boom), Trial("eat", eat),
        Trial("crash", lambda: os._exit(7)),
    ]  # fmt: skip
    kind = mutations.KINDS["target"].__class__("said", lambda folder: None, lambda valid, folder, seed: trials[seed])
    monkeypatch.setitem(mutations.KINDS, "said", kind)
    _, failures = mutations.run(Run(range(len(trials)), "said"), tmp_path)
    found = {int(line.split()[2].rstrip(":")): line for line in failures}
    assert list(found) == list(range(4, len(trials)))
    assert "exception: test_mutations.py" in found[10] and "KeyError" in found[10]
    assert "MB of memory" in found[11] and found[12] == "- said 12: exit code 7"


def test_models_are_damaged_in_every_way() -> None:
    from mutators import BYTES, EDITS, mutate
    from tiny_models import network

    source = network().SerializeToString()
    dealt = [mutate(source, seed) for seed in range(400)]
    assert {kind for kind, _ in dealt} == {d.__name__ for d in (*BYTES, *EDITS)}
    assert dealt[:20] == [mutate(source, seed) for seed in range(20)]
    assert sum(data != source for _, data in dealt) > 390


def test_texts_and_lines_are_damaged_in_every_way() -> None:
    text = yaml.safe_dump({"tree": {"loops": [{"i": "i // 4"}, {"j": "j"}], "body": "S0"}})
    dealt = [texts.mutated(text, texts.YAML_EDITS, random.Random(seed)) for seed in range(300)]
    assert dealt[:50] == [texts.mutated(text, texts.YAML_EDITS, random.Random(seed)) for seed in range(50)]
    assert {kind for kind, _ in dealt} == {e.__name__ for e in texts.YAML_EDITS}
    lines = [commands.mutated(random.Random(seed)) for seed in range(300)]
    assert {kind for kind, _ in lines} == {e.__name__ for e in commands.EDITS}
    assert not any("--trials" in argv and argv[argv.index("--trials") + 1 :][:1] != ["1"] for _, argv in lines)


def test_the_page_keeps_count(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert PAGE.read(page) == ([], [])
    blocks = [Block(0, 249, (30,), 0, 9, "abc", "today", "plan"), Block(250, 499, (31,), 1, 8, "abc", "today", "plan")]
    said = ["- plan 300: it fell", "", "What a person wrote below stays."]
    PAGE.write(page, blocks, said)
    assert PAGE.read(page) == ([Block(0, 499, (61,), 1, 17, "abc", "today", "plan")], said)
    assert missing(PAGE.read(page)[0], range(0, 750), 250, "plan") == [range(500, 750)]
    assert missing(PAGE.read(page)[0], range(0, 500), 250, "model") == [range(0, 250), range(250, 500)]
