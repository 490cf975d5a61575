"""The measured process: one of its own for each figure, with the polyc that its import path leads to.

`child.py WHAT JSON`: WHAT is `compile`, `load` or `session`. It prints a line of JSON. Seconds count from here on:
Python's own start is not in them, imports of polyc are. It knows only what versions of any age have in common.
"""

import sys
import time
from typing import Any

START, SPENT = time.perf_counter(), time.process_time()

Given = dict[str, Any]
Found = dict[str, Any]


def compiled(given: Given) -> Found:
    """Compile a model, call it, and save it if there is a place for that."""
    import polyc

    model = polyc.compile_model(given["model"], bind=given["bind"], shapes=given["shapes"])
    found = _first(model, given)
    if "save" in given:
        try:
            model.save(given["save"])
        except polyc.PolycError as error:
            found["unsaved"] = str(error)
    return found


def loaded(given: Given) -> Found:
    """Load a compiled directory and call it."""
    import polyc

    return _first(polyc.load(given["save"]), given)


def session(given: Given) -> Found:
    """ONNX Runtime's session, its import not counted."""
    import numpy
    import onnxruntime

    start = time.perf_counter()
    made = onnxruntime.InferenceSession(given["model"], providers=["CPUExecutionProvider"])
    seconds = time.perf_counter() - start
    made.run(None, {name: numpy.asarray(value) for name, value in given["bind"].items()} | _feeds(given))
    return {"seconds": seconds, "answer": time.perf_counter() - start}


def _first(model: Any, given: Given) -> Found:
    """Seconds until the model is there and until its first result; `before` and `after`: seconds of this process's
    processors that do not count."""
    seconds, spent = time.perf_counter() - START, time.process_time()
    feeds = _feeds(given)
    start = time.perf_counter()
    model(feeds)
    answer = seconds + time.perf_counter() - start
    return {"seconds": seconds, "answer": answer, "before": SPENT, "after": time.process_time() - spent}


def _feeds(given: Given) -> dict[str, Any]:
    import numpy

    with numpy.load(given["feeds"]) as stored:
        return dict(stored)


if __name__ == "__main__":
    import json

    made = {"compile": compiled, "load": loaded, "session": session}[sys.argv[1]](json.loads(sys.argv[2]))
    print(json.dumps(made), flush=True)
