"""Differential fuzzing: `python tests/fuzz.py COUNT [FIRST_SEED] [--jobs 2] [--backends interp,llvm,c]`.

Every seed is one random program, run as plain Python, by the interpreter, through LLVM and
C, in program order, under random legal schedules and under the automatic one. Each runs in a
process of its own, so that a crash in native code or a program without end is a finding with
a seed too. A failure is printed with its seed and, with --shrink, the first of each kind
with a shrunk source and the schedule's trace. Exit code 1 if there was one.

`python tests/fuzz.py campaign COUNT [FIRST_SEED] [--jobs 1]`: many more programs, each small and run one way
(`campaign.py`), some 20 in a second of a processor. What was run stands in `fuzz_results.md`; seeds that stand
there are left out, so that a campaign goes on where it was ended. `python tests/fuzz.py show SEED` prints one of its
programs, and, where it fails, a smaller one.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing as mp
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from differential import Failure, check, private_cache, shrink, smallest
from program_tree import Program
from random_programs import generate
from seed_pages import Block, Page, Run, go_through, seconds_used

FORK = mp.get_context("fork")


class Trial(NamedTuple):
    """One program under way."""

    seed: int
    began: float
    process: mp.process.BaseProcess
    answer: Connection


def start(seed: int, check_seed: Callable[[int], Any]) -> Trial:
    """Check the program of `seed` in a new process."""
    answer, end = FORK.Pipe(duplex=False)

    def body() -> None:
        end.send(check_seed(seed))

    process = FORK.Process(target=body, daemon=True)
    process.start()
    end.close()
    return Trial(seed, time.monotonic(), process, answer)


def outcome(trial: Trial) -> Any:
    """What a program that has ended says; no answer at all is a crash of the process."""
    try:
        found = trial.answer.recv()
    except EOFError:
        trial.process.join()
        found = Failure("process crash", f"exit code {trial.process.exitcode}")
    trial.process.join()
    return found


def trials(seeds: range, check_seed: Callable[[int], Any], jobs: int, limit: float) -> Iterator[tuple[int, float, Any]]:
    """(seed, seconds, what `check_seed` said) of every seed, in the order in which they end. A crash
    and a program without end are a `Failure`."""
    waiting, running = iter(seeds), [start(seed, check_seed) for seed in seeds[:jobs]]
    for _ in running:
        next(waiting)
    while running:
        wait([t.answer for t in running], timeout=1.0)
        for trial in list(running):
            seconds = time.monotonic() - trial.began
            if trial.answer.poll():
                found = outcome(trial)
            elif seconds > limit:
                trial.process.kill()
                trial.process.join()
                found = Failure("slow", f"no answer in {limit:.0f} s")
            else:
                continue
            running.remove(trial)
            yield trial.seed, seconds, found
            for seed in waiting:
                running.append(start(seed, check_seed))
                break


BATCH, BLOCK = 250, 1000  # programs of a process, and between two looks of the page
RESULTS = Path(__file__).with_name("fuzz_results.md")
PAGE = Page(
    """# Random programs that ran

`python tests/fuzz.py campaign COUNT SEED` adds to this page, and leaves out seeds that stand here (`--again` runs them
anew). A seed is one random program of one slice (`tests/campaign.py`), compared with plain Python. Seconds are the
processor's.
""",
    of="programs", counts=("C too",),
)  # fmt: skip


def campaign(argv: list[str]) -> int:
    """Run seeds that the page does not have yet, and put them there in blocks."""
    import campaign as _  # noqa: F401  (before the processes fork)

    parser = argparse.ArgumentParser(prog="fuzz.py campaign", description=campaign.__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of processor time that one program may take")
    parser.add_argument("--page", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="also seeds that stand on the page")
    options = parser.parse_args(argv)
    private_cache()
    seeds = range(options.first, options.first + options.count)
    run = partial(run_block, jobs=options.jobs, limit=options.limit)
    return 1 if go_through(PAGE, options.page, seeds, BLOCK, run, again=options.again) else 0


def run_block(piece: Run, jobs: int, limit: float) -> tuple[Block, list[str]]:
    """All seeds of a piece: its row, and a line for each failure."""
    from fork_server import Lost, serve

    batches = (range(s, min(s + BATCH, piece.seeds.stop)) for s in range(piece.seeds.start, piece.seeds.stop, BATCH))
    failures: dict[int, str] = {}
    seconds, c = 0.0, 0
    for said in serve(batches, work, jobs, limit):
        if isinstance(said, Lost):
            failures[said.seed] = f"- seed {said.seed}: {said.why}"
        elif isinstance(said, Tally):
            seconds, c = seconds + said.seconds, c + said.c
        else:
            seed, failure = said
            message = " ".join(failure.message.split())
            failures[seed] = f"- seed {seed}: {failure.stage}: {message[:200]}"
    return piece.block((c,), len(failures), seconds), [failures[s] for s in sorted(failures)]


class Tally(NamedTuple):
    """What a batch took: seconds of the processor, and how many programs were C as well."""

    seconds: float
    c: int


def work(seeds: Sequence[int], begin: Callable[[int], None], say: Callable[[Any], None]) -> None:
    """A batch in a process of its own."""
    from campaign import check_c, check_llvm

    began, for_c = seconds_used(), []
    for seed in seeds:
        begin(seed)
        failure, prepared = check_llvm(seed)
        if failure:
            say((seed, failure))
        if prepared:
            for_c.append(prepared)
    for found in check_c(for_c) if for_c else ():
        say(found)
    say(Tally(seconds_used() - began, len(for_c)))


def show(argv: list[str]) -> int:
    """Print a campaign's program and what is wrong with it, and with a smaller one."""
    from campaign import check_llvm, plan_of, program_of

    private_cache()
    seed = int(argv[0])
    program, plan = program_of(seed), plan_of(seed)

    def failure_of(smaller: Program) -> Failure | None:
        return check_llvm(seed, smaller)[0]

    failure = failure_of(program)
    print(f"{program.source}\nsizes {program.sizes}\n{plan}\n{failure}")
    if failure is None:
        return 0
    print(failure.trace)
    program = smallest(program, failure, failure_of)
    print(f"smaller:\n{program.source}\n{failure_of(program)}")
    return 1


def main() -> int:
    commands = {"campaign": campaign, "show": show}
    if sys.argv[1:2] and sys.argv[1] in commands:
        return commands[sys.argv[1]](sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one program may take")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--backends", default="interp,llvm,c")
    options = parser.parse_args()
    backends = tuple(options.backends.split(","))
    private_cache()
    kinds: collections.Counter[str] = collections.Counter()
    times: list[tuple[float, int]] = []
    began = time.monotonic()
    seeds = range(options.first, options.first + options.count)

    def check_seed(seed: int) -> Failure | None:
        return check(generate(seed), backends)

    for seed, seconds, failure in trials(seeds, check_seed, options.jobs, options.limit):
        times.append((seconds, seed))
        if len(times) % 100 == 0:
            print(f"... {len(times)} programs, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if failure is None:
            continue
        kinds[failure.kind] += 1
        print(f"seed {seed}: {failure.stage}: {failure.message[:300]}", flush=True)
        if options.shrink and kinds[failure.kind] == 1 and failure.trace:
            program = shrink(generate(seed), failure)
            again = check(program, backends) or failure
            print(f"{program.source}\nsizes {program.sizes}\n{again.stage}: {again.message[:600]}")
            print(again.trace, flush=True)
    print(f"{len(times)} programs, {sum(kinds.values())} failures, {time.monotonic() - began:.0f} s")
    for kind, number in kinds.most_common():
        print(f"  {number} x {kind}")
    print("slowest: " + ", ".join(f"{seed} {seconds:.1f} s" for seconds, seed in sorted(times, reverse=True)[:5]))
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
