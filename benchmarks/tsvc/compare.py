"""Loop by loop: right results on random data, then times on TSVC's own data, interleaved."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tsvc.compilers import ARRAYS, PEERS, SIZES, Loops, build
from benchmarks.tsvc.kernels import Call, Compiled, call, compiled
from benchmarks.tsvc.packed import functions, is_packed
from examples.tsvc import MODULES, shape_of
from polyc.poly.records import dataclass

GAIN = 1.2
"""A vectorised loop is at least so much faster than the same compiler's scalar build."""

BLOCK = 1e-3
"""Seconds of one timing, about."""

TOLERANCE = 1e-3
"""Relative to an array's largest element: long recurrences and sums in f32 beside f64."""

_OWN_ORDER = (np.arange(SIZES["N"]) * 7 % SIZES["N"]).astype(np.float32)
"""One C loop fills its array itself."""


@dataclass
class Contest:
    """The libraries, polyc's kernels, and by loop whose code has packed instructions."""

    libraries: dict[str, Loops]
    kernels: list[Compiled]
    packed: dict[str, dict[str, bool]]

    @property
    def peers(self) -> list[str]:
        return [p for p in PEERS if p in self.libraries]

    @property
    def home(self) -> Loops:
        """The library whose arrays polyc's kernels work on."""
        return self.libraries[self.peers[0]]

    def times(self, made: Compiled, rounds: int) -> dict[str, float]:
        """Microseconds of one repetition, the median of `rounds`, by contestant."""
        bound = call(made, self.home)
        data = self._own_data(made.loop.name)
        names = [s for who in ("polyc", *self.peers) for s in (who, f"{who} scalar")]
        counts = {}
        for name in names:
            first = self._timed(name, bound, data, 3)
            counts[name] = max(1, min(20000, round(BLOCK / max(first / 3, 1e-8))))
        found: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                found[name].append(self._timed(name, bound, data, counts[name]) / counts[name] * 1e6)
        return {name: statistics.median(t) for name, t in found.items()}

    def _own_data(self, name: str) -> dict[str, np.ndarray]:
        """TSVC's initial values for a loop."""
        home = self.home
        for array in ARRAYS:
            home.arrays[array][...] = 1.0
        home.library.initialise_arrays(name.encode())
        if name == "s315":
            home.arrays["a"][...] = _OWN_ORDER
        return {array: home.arrays[array].copy() for array in ARRAYS}

    def _timed(self, name: str, bound: Call, data: dict[str, np.ndarray], times: int) -> float:
        who = name.removesuffix(" scalar")
        library = self.home if who == "polyc" else self.libraries[name]
        for array, values in data.items():
            library.arrays[array][...] = values
        library.repeat(times)
        return bound.run(name.endswith("scalar")) if who == "polyc" else library.run(bound.made.loop.name)

    def differences(self, made: Compiled, rng: np.random.Generator) -> dict[str, float]:
        """How far results on random data are from those of doubles, by contestant."""
        loop, exact = made.loop, self.libraries["exact"]
        inputs = loop.inputs(SIZES, rng)
        data = {n: inputs[n] if isinstance(inputs.get(n), np.ndarray) else rng.uniform(-0.7, 0.7, shape_of(n, SIZES))
                for n in ARRAYS}  # fmt: skip
        data = {n: x.astype(np.float32) for n, x in data.items()}
        if loop.name == "s481":  # the C loop would end the process
            data["d"] = np.abs(data["d"])
        if loop.name == "s315":
            data["a"] = _OWN_ORDER.copy()
        wanted = self._results(exact, data, lambda: exact.run(loop.name))
        bound, found = call(made, self.home), {}
        for scalar in (False, True):
            got = self._results(self.home, data, lambda scalar=scalar: bound.run(scalar))
            got[-1] = bound.result.copy() if made.kernel.scop.results else wanted[-1]
            found["polyc scalar" if scalar else "polyc"] = _apart(got, wanted)
        for peer in self.peers:
            library = self.libraries[peer]
            found[peer] = _apart(self._results(library, data, lambda lib=library: lib.run(loop.name)), wanted)
        return found

    def _results(self, library: Loops, data: dict[str, np.ndarray], run: Any) -> list[np.ndarray]:
        for array, values in data.items():
            library.arrays[array][...] = values
        library.repeat(1)
        run()
        return [*(library.arrays[array].copy() for array in ARRAYS), np.array(library.last)]


def _apart(got: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference, relative to the largest element of its array."""
    with np.errstate(invalid="ignore", over="ignore"):
        return max(
            float(np.nanmax(np.abs(g - w) / max(1e-30, np.nanmax(np.abs(w))))) for g, w in zip(got, wanted, strict=True)
        )


def prepared(source: Path, folder: Path, names: Sequence[str] = ()) -> Contest:
    """Everything compiled: TSVC's files in `source`, polyc's kernels of the loops (default: all)."""
    libraries = build(source, folder)
    code = {p: functions(folder / p / "tsvc.o") for p in PEERS if p in libraries}
    kernels = [compiled(name) for name in names or MODULES]
    texts = {}
    for made in kernels:
        name = made.loop.name
        texts[name] = {"polyc": "".join(functions(made.object(folder)).values())}
        texts[name] |= {p: functions_.get(name, "") for p, functions_ in code.items()}
    return Contest(libraries, kernels, {n: {w: is_packed(t) for w, t in ts.items()} for n, ts in texts.items()})


def rows(contest: Contest, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each loop: microseconds, differences, who computes with vectors, what forbids polyc to."""
    for loop in contest.kernels:
        name, rng = loop.loop.name, np.random.default_rng()
        apart, us = contest.differences(loop, rng), contest.times(loop, rounds)
        best = min(us[p] for p in contest.peers)
        packed = contest.packed[name]
        vectors = {w: packed[w] and us[f"{w} scalar"] >= GAIN * us[w] for w in packed}
        yield {
            "loop": name,
            "us": us,
            "ratio": best / us["polyc"],
            "difference": apart,
            "right": all(d <= TOLERANCE for d in (apart["polyc"], apart["polyc scalar"])),
            "packed": packed,
            "vectorised": vectors,
            "forbidden": loop.forbidden if not vectors["polyc"] else (),
        }


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios))


def page(found: Sequence[dict[str, Any]]) -> str:
    """The rows as a Markdown page."""
    who = [w for w in ("polyc", *PEERS) if w in found[0]["vectorised"]]
    counts = {w: sum(r["vectorised"][w] for r in found) for w in who}
    ratios = [r["ratio"] for r in found]
    lines = [
        "# TSVC",
        "",
        f"{len(found)} loops in f32 on one thread: microseconds of one run on TSVC's own data, interleaved, medians. "
        f"Vectorised (v): packed instructions, and at least {GAIN} times as fast as the same compiler's scalar build.",
        "",
        "vectorised: "
        + ", ".join(f"{w} {n}" for w, n in counts.items())
        + f" of {len(found)}; geometric mean of polyc "
        f"against the better peer {mean(ratios):.2f}, {sum(r < 0.8 for r in ratios)} loops below 0.8, the least "
        f"{min(ratios):.2f}; wrong: {', '.join(r['loop'] for r in found if not r['right']) or 'none'}",
        "",
        "| loop | " + " | ".join(f"{w} | {w} scalar" for w in who) + " | ratio | difference |",
        "| --- |" + " --- |" * (2 * len(who) + 2),
    ]
    for r in found:
        cells = [f"{r['us'][w]:.2f}{' v' if r['vectorised'][w] else ''} | {r['us'][w + ' scalar']:.2f}" for w in who]
        lines.append(f"| {r['loop']} | {' | '.join(cells)} | {r['ratio']:.2f} | {r['difference']['polyc']:.0e} |")
    lines += ["", "## Not vectorised, and why", ""]
    for r in found:
        if not r["vectorised"]["polyc"]:
            lines.append(f"* {r['loop']}: {'; '.join(r['forbidden'])}")
    return "\n".join(lines) + "\n"
