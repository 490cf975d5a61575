"""Counts by class, and the table by operator that stands in `docs/`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import onnx

from .cases import CLASSES
from .running import Outcome

EXPLANATION = (
    "Each case is compiled for the shapes of its inputs, and for the values of small inputs that decide a shape or a "
    "branch (see `docs/models.md`). 'Without a host operator' are cases that polyc's kernels compute at run time "
    "alone; 'with values compiled in' are those among them that have such inputs. Where the values leave nothing to "
    "compute, the case counts as 'computed at compile time' instead. "
    "`tests/onnx_suite/cases.py` has the rule of the classes."
)
COMMAND = "python -m tests.onnx_suite --table docs/onnx-coverage.md"


# Why cases cannot pass, by the beginning of their names.
KNOWN = {
    "test_bernoulli": "the expected output is one drawing of random numbers",
    "test_dft_inverse": "the expected output has rounding noise of 1.9e-7 where the exact value is 0; tolerance 1e-7",
    "test_loop16_seq_none": "the suite's own comparison asks for the length of an array of rank 0 in the result",
    "test_attention_4d_causal_fp16": "sums in f32 round better than the expected output; 2 elements differ by one "
    "step of f16, which is more than the tolerance",
}


def by_class(outcomes: Iterable[Outcome], classes: Mapping[str, str]) -> str:
    """The counts of every class, as a Markdown table."""
    rows: dict[str, Counter[str]] = {c: Counter() for c in CLASSES}
    for o in outcomes:
        for row in (rows[classes[o.name]], rows.setdefault("all", Counter())):
            row["cases"] += 1
            row[o.state] += 1
            row["compiled"] += o.compiled
            row["specialised"] += o.compiled and o.specialised
            row["baked"] += o.state == "pass" and not o.host and o.baked
    lines = [
        "| class | cases | pass | without a host operator | (with values compiled in) | "
        "computed at compile time | wrong | refused |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in rows.items():
        if row["cases"]:
            wrong = row["fail"] + row["crash"] + row["timeout"]
            shares = (row["compiled"], row["specialised"], row["baked"])
            numbers = (row["cases"], row["pass"], *shares, wrong, row["refused"])
            lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def page(outcomes: list[Outcome], classes: Mapping[str, str], operators: Mapping[str, str]) -> str:
    """The whole page."""
    sections = [
        "# ONNX's node suite",
        f"Made by `{COMMAND}` with onnx {onnx.__version__}; do not edit. {EXPLANATION}",
        by_class(outcomes, classes),
        "## By operator",
        _operators(outcomes, operators),
        "## Cases that do not pass",
        _failures(outcomes, classes),
        "## What runs on the host",
        _hosted(outcomes),
    ]
    return "\n\n".join(sections) + "\n"


def _operators(outcomes: list[Outcome], operators: Mapping[str, str]) -> str:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for o in outcomes:
        groups[operators[o.name]].append(o)
    lines = ["| operator | cases | pass | without host |", "| --- | ---: | ---: | ---: |"]
    for name, group in sorted(groups.items()):
        passed, compiled = sum(o.state == "pass" for o in group), sum(o.compiled for o in group)
        lines.append(f"| {name} | {len(group)} | {passed} | {compiled} |")
    return "\n".join(lines)


def _failures(outcomes: list[Outcome], classes: Mapping[str, str]) -> str:
    failed = [o for o in outcomes if o.state != "pass"]
    if not failed:
        return "None."
    lines = ["| case | class | | reason |", "| --- | --- | --- | --- |"]
    lines += [f"| {o.name} | {classes[o.name]} | {o.state} | {_cell(_why(o))} |" for o in failed]
    return "\n".join(lines)


def _why(o: Outcome) -> str:
    return next((why for start, why in KNOWN.items() if o.name.startswith(start)), o.reason)


def _hosted(outcomes: list[Outcome]) -> str:
    count: Counter[tuple[str, str]] = Counter()
    for o in outcomes:
        count.update({(kind, _general(why)) for kind, why in o.host})
    lines = ["| operator | cases | reason |", "| --- | ---: | --- |"]
    lines += [f"| {kind} | {n} | {_cell(why)} |" for (kind, why), n in sorted(count.items())]
    return "\n".join(lines)


def _general(reason: str) -> str:
    """A reason without the names of the case's tensors."""
    parts = reason.split("'")
    return "".join(p if k % 2 == 0 else "..." for k, p in enumerate(parts))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:160]
