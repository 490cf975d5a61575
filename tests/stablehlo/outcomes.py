"""What becomes of one test program."""

from __future__ import annotations

import signal
from pathlib import Path

import polyc
from polyc.graph_driver.stablehlo.convert import to_onnx
from polyc.graph_driver.stablehlo.parser import parse
from polyc.poly.errors import PolycError
from tests.stablehlo.programs import difference, split

SECONDS = 60


def outcome(path: Path) -> tuple[str, str]:
    """`right`, `wrong`, `refused` or `failed`, and why."""

    def over(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    try:
        case = split(parse(path.read_text(encoding="utf-8"), path.name))
        model = polyc.compile_model(to_onnx(case.program), threads=1, strict_annotations=True)
        results = list(model(case.feeds).values())
        wrong = [difference(r, a, e) for r, a, e in zip(case.rules, results, case.expected, strict=True)]
    except PolycError as error:
        return "refused", str(error).splitlines()[0]
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        signal.alarm(0)
    found = [text for text in wrong if text]
    if found:
        return "wrong", found[0]
    on_host = [s.label for s in model.plan.steps if s.kind == "host"]
    return ("right", f"on the host: {', '.join(sorted(set(on_host)))}") if on_host else ("right", "")
