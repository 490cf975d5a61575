"""Damaged inputs: every one ends in success or in one clear line.

    python -m tests.mutations COUNT [SEED] [--kind model|plan|schedule|target|command] [--page FILE]

runs seeds SEED to SEED + COUNT - 1 of each kind (or of one): a model file, a compiled directory, a schedule (YAML or a
trace), a target (TOML) or a command line, damaged in its bytes or in what it says. A traceback, several lines, an
"internal error", a crash of the process, 60 s of processor time and gigabytes of memory are failures; each is printed
with its seed. `python -m tests.mutations show KIND SEED` runs one in sight. `--page` keeps count in a page
(`tests/mutation_results.md`); seeds that stand there are left out.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "graph_driver"))

from fork_server import Lost, serve
from mutated.inputs import KINDS, Trial
from seed_pages import Block, Page, Run, go_through

SECONDS = 60.0
ADDRESS_SPACE = 8 << 30
MEMORY = 2 << 20  # kB of main memory that one input may take
BATCH, PIECE = 25, 250
PAGE = Page(
    """# Damaged inputs that ran

`python -m tests.mutations COUNT SEED --page tests/mutation_results.md` adds to this page, and leaves out seeds that
stand here. A seed of a kind is one valid input, damaged. `accepted`: it was still right, or what it said was done; all
others ended in one line. Seconds are the processor's.
""",
    of="inputs", counts=("accepted",), kinds=True,
)  # fmt: skip
WARNING = "polyc: warning: "


class Result(NamedTuple):
    """What one damaged input did. `code`: the exit code; None: an exception came out."""

    seed: int
    damage: str
    code: int | None
    error: str
    peak: int

    @property
    def wrong(self) -> str:
        """Why this is a failure; empty when it is none."""
        said = [line for line in self.error.split("\n") if line.strip() and not line.startswith(WARNING)]
        if self.code is None:
            return f"exception: {said[-1] if said else ''}"
        if any(not c.isprintable() for line in said for c in line):
            return f"control characters: {said!r}"
        if "internal error" in self.error:
            return said[0]
        if self.code not in (0, 1, 2):
            return f"exit code {self.code}"
        if len(said) != (1 if self.code else 0):
            return f"{len(said)} lines and exit code {self.code}: {' | '.join(said)[:300]}"
        if self.peak > MEMORY:
            return f"{self.peak >> 10} MB of memory"
        return ""


@dataclass
class Tally:
    """What a batch took and how many of its inputs were accepted."""

    seconds: float
    ran: int


def worker(
    kind: str, valid: Path, seeds: Sequence[int], begin: Callable[[int], None], say: Callable[[Any], None]
) -> None:
    """Run seeds one after another in this process."""
    most = ADDRESS_SPACE + (_memory("VmSize") << 10)  # beside what other tests of this process have mapped
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    began, ran = time.process_time(), 0
    with tempfile.TemporaryFile() as heard:
        os.dup2(heard.fileno(), 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        for seed in seeds:
            begin(seed)
            with tempfile.TemporaryDirectory(prefix="polyc-mutant-") as folder:
                try:
                    trial = KINDS[kind].deal(valid, Path(folder), seed)
                except Exception as error:  # the campaign's own fault
                    say(Result(seed, "no input made", None, f"{type(error).__name__}: {error}", 0))
                    continue
                result = _result(seed, trial)
            ran += result.code == 0
            if result.wrong:
                say(result)
    say(Tally(time.process_time() - began, ran))


def _result(seed: int, trial: Trial) -> Result:
    _forget_peak()
    before = _memory("VmRSS")  # of what other tests of this process have loaded
    code: int | None = None
    try:
        code = trial.run()
    except BaseException as error:  # what would be a traceback
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        place = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last else ""
        print(f"{place}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
    sys.stderr.flush()
    text = os.pread(2, 1 << 20, 0).decode(errors="replace")
    os.ftruncate(2, 0)
    os.lseek(2, 0, os.SEEK_SET)
    return Result(seed, trial.damage, code, text, _memory("VmHWM") - before)


def _forget_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def _memory(kind: str) -> int:
    """Memory of this process in kB: what it has now (`VmRSS`), the most since `_forget_peak` (`VmHWM`), addresses
    (`VmSize`)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1])
    return 0


def run(piece: Run, valid: Path, jobs: int = 1) -> tuple[Block, list[str]]:
    """The seeds of one kind: their row, and a line for each failure."""
    batches = (range(s, min(s + BATCH, piece.seeds.stop)) for s in range(piece.seeds.start, piece.seeds.stop, BATCH))
    failures: dict[int, str] = {}
    seconds, accepted = 0.0, 0
    for said in serve(batches, partial(worker, piece.kind, valid), jobs, SECONDS):
        if isinstance(said, Lost):
            failures[said.seed] = said.why
        elif isinstance(said, Tally):
            seconds, accepted = seconds + said.seconds, accepted + said.ran
        else:
            failures[said.seed] = f"{said.damage}: {said.wrong}"
    lines = [f"- {piece.kind} {seed}: {' '.join(why.split())[:300]}" for seed, why in sorted(failures.items())]
    return piece.block((accepted,), len(failures), seconds), lines


def prepared(kinds: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Each kind and a folder of its valid inputs; kernels that they need are compiled into a cache of its own."""
    import polyc.graph_driver.cli.compile
    import polyc.graph_driver.cli.run
    from polyc.graph_driver import wiring
    from polyc.graph_driver.operators import lookup

    wiring.connect()
    assert polyc.graph_driver.cli.run is not None and lookup("", "Conv") is not None
    with tempfile.TemporaryDirectory(prefix="polyc-valid-") as root:
        os.environ["POLYC_CACHE"] = str(Path(root, "cache"))
        for kind in kinds:
            folder = Path(root, kind)
            folder.mkdir()
            KINDS[kind].prepare(folder)
            yield kind, folder
            shutil.rmtree(folder)


def show(kind: str, seed: int) -> int:
    """Run one in sight, with its input left in a folder."""
    folder = Path(tempfile.mkdtemp(prefix="polyc-shown-"))
    for _, valid in prepared([kind]):
        trial = KINDS[kind].deal(valid, folder, seed)
        print(f"{kind} {seed}: {trial.damage}; the input lies in {folder}", getattr(trial.run, "args", ""))
        print(f"exit code {trial.run()}")
    return 0


def main(arguments: Sequence[str]) -> int:
    """The command."""
    if arguments[:1] == ["show"]:
        return show(arguments[1], int(arguments[2]))
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    failed = 0
    for kind, valid in prepared(options.kind or list(KINDS)):
        seeds = range(options.first, options.first + options.count)
        run_kind = partial(run, valid=valid, jobs=options.jobs)
        failed += go_through(PAGE, options.page, seeds, PIECE, run_kind, kind)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
