"""Networks of many kinds through `polyc run --check`, on two sets of shapes each.

The packaged ones are downloaded; those exported from torch run when `python -m benchmarks.exports` has
written them (`POLYC_EXPORTS` names their folder).
"""

import pytest

from benchmarks import exports, packaged
from benchmarks.checked import Case, cases, check

ON_THE_HOST: dict[str, set[str]] = {}  # network -> operators that may run there; all others: none


def run(case: Case) -> None:
    code, report = check(case)
    assert report, f"{case.name}: polyc ended with {code}"
    host = {h["operator"] for h in report["report"]["host"]}
    assert host <= ON_THE_HOST.get(case.name, set())
    outputs = report["check"]["outputs"]
    assert any(o["scale"] > 0 for o in outputs.values()), "outputs that vanish show nothing"
    assert code == 0, outputs


@pytest.mark.long
@pytest.mark.parametrize("name", packaged.MODELS)
def test_packaged_network(name: str) -> None:
    for case in cases([name], exports.default_folder(), packaged.DEFAULT_ROOT):
        run(case)


@pytest.mark.long
@pytest.mark.parametrize("name", exports.NETWORKS)
def test_exported_network(name: str) -> None:
    folder = exports.default_folder()
    if not (folder / f"{name}.onnx").exists():
        pytest.skip(f"not exported: python -m benchmarks.exports {folder} {name}")
    found = list(cases([name], folder, packaged.DEFAULT_ROOT))
    assert len(found) == 2
    for case in found:
        run(case)
