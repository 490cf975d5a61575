"""Damaged model files and compiled directories, each run by the command line in a child process of its own.

    python -m tests.graph_driver.mutation [COUNT [SEED]]            model files
    python -m tests.graph_driver.mutation --plans [COUNT [SEED]]    compiled directories

runs COUNT of them (500) from SEED (1), with limits on time and memory, prints a table of
outcomes by kind of damage, and ends with code 1 if any ended in something else than
success or one clear line.
"""

from __future__ import annotations

import collections
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from mutators import mutate
from plan_mutators import damaged
from tiny_models import SOURCES, branching

SECONDS = 60.0
ADDRESS_SPACE = 8 << 30
TIMEOUT = 1000


@dataclass(frozen=True)
class Outcome:
    """Exit code (negative: killed by that signal; 1000: ran out of time) and stderr."""

    kind: str
    code: int
    error: str

    @property
    def acceptable(self) -> bool:
        """Done, or one clear line and exit code 1 or 2."""
        if self.code == 0:
            return not self.error.strip()
        lines = [line for line in self.error.splitlines() if line.strip()]
        return self.code in (1, 2) and len(lines) == 1 and "internal error" not in self.error

    @property
    def verdict(self) -> str:
        """For the table."""
        if self.code == TIMEOUT:
            return "timeout"
        if self.code < 0:
            return "killed"
        if not self.acceptable:
            return "unclear"
        return "ran" if self.code == 0 else "one line"


VERDICTS = ("ran", "one line", "unclear", "killed", "timeout")


def run_child(argv: list[str], seconds: float) -> tuple[int, str]:
    """`polyc.graph_driver.cli.main(argv)` in a fork of this process, with limits on time and memory."""
    from polyc.graph_driver import cli

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = 1
        try:
            code = cli.main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException as error:  # what would be a traceback: shown as one, judged by the parent
            import traceback

            traceback.print_exception(error)
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    text, end = b"", time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            return TIMEOUT, text.decode(errors="replace")
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        text += chunk
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), text.decode(errors="replace")


def attack(source: bytes, folder: Path, seed: int, seconds: float = SECONDS) -> Outcome:
    """Run one mutant."""
    path = folder / f"mutant{seed}.onnx"
    kind, damaged = mutate(source, seed)
    path.write_bytes(damaged)
    try:
        return Outcome(kind, *run_child(["run", str(path), "--threads", "1"], seconds))
    finally:
        path.unlink()


def _shown(seed: int, outcome: Outcome) -> Outcome:
    """The outcome; a bad one is printed at once, so that a campaign that is cut short has shown what it found."""
    if not outcome.acceptable:
        print(f"seed {seed}, {outcome.kind}: exit {outcome.code}", file=sys.stderr, flush=True)
    return outcome


def campaign(seeds: range, folder: Path) -> dict[int, Outcome]:
    """Outcomes by seed; the seed chooses the model too."""
    # What all children need is imported before they are forked.
    import polyc.graph_driver.cli.run
    from polyc.graph_driver.operators import lookup

    assert polyc.graph_driver.cli.run is not None and lookup("", "Conv") is not None
    sources = [make().SerializeToString() for make in SOURCES]
    return {seed: _shown(seed, attack(sources[seed % len(sources)], folder, seed)) for seed in seeds}


def attack_plan(source: Path, folder: Path, seed: int, seconds: float = SECONDS) -> Outcome:
    """Run one damaged directory, in both modes."""
    path = folder / f"plan{seed}"
    kind = damaged(source, path, seed)
    try:
        found = [run_child(["run", str(path), "--mode", mode], seconds) for mode in ("graph", "eager")]
        worst = max((Outcome(kind, *f) for f in found), key=lambda o: not o.acceptable)
        return worst
    finally:
        shutil.rmtree(path)


def campaign_of_plans(seeds: range, folder: Path) -> dict[int, Outcome]:
    """Outcomes by seed; the seed chooses the model and the damage."""
    import polyc.graph_driver.cli.run
    from polyc.graph_driver.compile_model import compile_model

    assert polyc.graph_driver.cli.run is not None
    sources = []
    for k, make in enumerate((*SOURCES, lambda: branching(np.random.default_rng(7), 10))):
        sources.append(folder / f"source{k}")
        compile_model(make(), threads=2, tasks=True).save(sources[-1])
    return {seed: _shown(seed, attack_plan(sources[seed // 12 % len(sources)], folder, seed)) for seed in seeds}


def table(outcomes: dict[int, Outcome]) -> str:
    """Counts by kind of damage and verdict."""
    count = collections.Counter((o.kind, o.verdict) for o in outcomes.values())
    kinds = sorted({o.kind for o in outcomes.values()})
    lines = [f"{'damage':20s}" + "".join(f"{v:>10s}" for v in VERDICTS)]
    lines += [f"{k:20s}" + "".join(f"{count[k, v]:10d}" for v in VERDICTS) for k in kinds]
    totals = [sum(count[k, v] for k in kinds) for v in VERDICTS]
    return "\n".join([*lines, f"{'all':20s}" + "".join(f"{n:10d}" for n in totals)])


def main(arguments: list[str]) -> int:
    """The command."""
    attack_all = campaign
    if arguments[:1] == ["--plans"]:
        attack_all, arguments = campaign_of_plans, arguments[1:]
    count, seed = int(arguments[0]) if arguments else 500, int(arguments[1]) if len(arguments) > 1 else 1
    with tempfile.TemporaryDirectory() as folder:
        outcomes = attack_all(range(seed, seed + count), Path(folder))
    print(table(outcomes))
    bad = {s: o for s, o in outcomes.items() if not o.acceptable}
    for s, o in bad.items():
        print(f"\nseed {s}, {o.kind}: exit {o.code}\n{o.error[-1500:]}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
