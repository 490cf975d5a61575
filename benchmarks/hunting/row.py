"""One case of the hunt: here, or in a process of its own on a worker of a farm (a line of JSON in, the row out)."""

from __future__ import annotations

import json
import os
import tempfile
import time
from typing import Any

from benchmarks.hunting.kinds import case_of
from polyc.graph_driver.bench.compare import compare
from polyc.graph_driver.bench.peers import installed
from polyc.graph_driver.worker.apart import begin

CONFIRM = 0.8
MORE = 4  # times the rounds

Key = tuple[str, int, int]


def row_of(key: Key, peers: list[str], rounds: int, busy: bool) -> dict[str, Any]:
    """As of `compare`, with the `key` of the case; or its name and an `error`."""
    name = ":".join(map(str, key))
    case = case_of(*key)
    clock = time.process_time if busy else time.perf_counter
    rivals = [p for p in peers if p != "openvino"] if case.double else peers

    def measured(turns: int) -> dict[str, Any]:
        return compare(
            case.name, key[0], case.model, case.inputs, rivals, turns, case.flops, case.bytes, clock=clock
        )  # fmt: skip

    try:
        row = measured(rounds)
        if row["ratio"] < CONFIRM:
            row = measured(MORE * rounds) | {"compile_s": row["compile_s"]}
    except Exception as e:  # whatever goes wrong is a find
        return {"key": name, "case": case.name, "family": key[0], "error": f"{type(e).__name__}: {e}"}
    return {"key": name, **row}


def main() -> None:
    """Answer the line on stdin, with a cold cache and the peers that are installed here, too."""
    line, out = begin()
    asked = json.loads(line)
    kind, seed, number = asked["key"]
    peers = [p for p in installed() if p in asked["peers"]]
    with tempfile.TemporaryDirectory() as cold:
        os.environ["POLYC_CACHE"] = cold
        row = row_of((str(kind), int(seed), int(number)), peers, int(asked["rounds"]), bool(asked["busy"]))
    with os.fdopen(out, "w") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
