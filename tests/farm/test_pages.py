"""The example of the page about clusters runs, and its recipes are in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import yaml

pytest.importorskip("distributed")
pytest.importorskip("dask.array")

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    (example,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "polyc.batch" in b]
    script = tmp_path / "example.py"
    script.write_text(example)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def blocks(kind: str) -> list[str]:
    """The recipes of a language on the page."""
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)


def test_batch_scripts_are_right_to_bash() -> None:
    scripts = blocks("bash")
    assert len(scripts) == 2
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr
        asked = re.findall(r"^#SBATCH --([a-z-]+) ", script, re.MULTILINE)
        assert {"nodes", "ntasks-per-node", "cpus-per-task", "time"} <= set(asked)
        assert script.startswith("#!/bin/bash\n#SBATCH")


def test_kubernetes_resources_agree_with_themselves() -> None:
    cluster, job = map(yaml.safe_load, blocks("yaml"))
    assert (cluster["apiVersion"], cluster["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    worker, scheduler = cluster["spec"]["worker"], cluster["spec"]["scheduler"]
    service = scheduler["service"]
    assert service["selector"]["dask.org/cluster-name"] == cluster["metadata"]["name"]
    (container,) = scheduler["spec"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert {p["targetPort"]: p["port"] for p in service["ports"]} == ports
    (container,) = worker["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]  # whole cores
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    roles = job["spec"]["mpiReplicaSpecs"]
    (launcher,) = roles["Launcher"]["template"]["spec"]["containers"]
    command = launcher["command"]
    assert int(command[command.index("-n") + 1]) == roles["Worker"]["replicas"] * job["spec"]["slotsPerWorker"]


@pytest.mark.long
def test_the_batch_script_of_a_farm_runs(tmp_path: Path) -> None:
    """With an `srun` that starts one worker here, and a model of one product."""
    pytest.importorskip("distributed", reason="needs polyc[dask]")
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[32,32] x) => (float[32,32] y) { y = MatMul(x, x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    (tmp_path / "srun").write_text('#!/bin/bash\nexec "$@"\n')
    polyc = f'#!/bin/bash\nexec {sys.executable} -m polyc.graph_driver.cli "$@" --trials 1\n'
    (tmp_path / "polyc").write_text(polyc)
    for name in ("srun", "polyc"):
        (tmp_path / name).chmod(0o755)
    env = os.environ | {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
        "SLURM_SUBMIT_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), "POLYC_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    script = blocks("bash")[0]
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert list((tmp_path / "cache" / "tuning").glob("*.json"))
    assert not (tmp_path / "dask-7.json").exists()
