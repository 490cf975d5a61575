"""What a notebook shows of a Schedule, a Scop, a kernel and a model (`_repr_html_`): no script, nothing from outside.

All names and texts are escaped; the picture is the one of the page that `polyc inspect --html` writes.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Any

from polyc.emit.kernel import Kernel
from polyc.graph_driver.html.model_page import drawing, step_data, tensor_data
from polyc.graph_driver.html.operator_page import free_data
from polyc.graph_driver.html.static_graph import graph_svg
from polyc.graph_driver.html.static_tree import coloured, tree_html
from polyc.graph_driver.html.tree import tree_data
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import BuildError
from polyc.poly.scop import Scop
from polyc.poly.text import print_array
from polyc.scheduler.schedule import Schedule

LARGEST = 300  # steps of a model that are drawn


def html_of(value: Any) -> str:
    """The HTML of an object of these classes."""
    if isinstance(value, Scop):
        return _output(value, _arrays(value), _tree(Schedule.start(value)))
    if isinstance(value, Schedule):
        steps = "".join(f"<li><code>{escape(str(s))}</code></li>" for s in value.trace)
        notes = "".join(f"<li>{escape(n)}</li>" for n in value.notes)
        return _output(value, _tree(value), _folded("Steps", steps), _folded("Decisions", notes))
    if isinstance(value, Kernel):
        recipe = value.recipe
        tree = "" if recipe is None else _tree(Schedule(recipe.scop, recipe.tree))
        report = value.report()
        facts = f"{value.threads} thread{'' if value.threads == 1 else 's'}, {report['code_bytes']:,} bytes of code"
        notes = "".join(f"<li>{escape(n)}</li>" for n in report["notes"])
        return _output(value, f'<p class="dim">{escape(facts)}</p>', tree, _folded("Notes", notes))
    assert isinstance(value, Model), type(value)
    return _model(value)


def _output(value: Any, *parts: str) -> str:
    style = files("polyc.graph_driver.html").joinpath("assets", "notebook.css").read_text(encoding="utf-8")
    title = repr(value).removeprefix("<").removesuffix(">")
    return f'<div class="polyc"><style>{style}</style><p class="head"><b>{escape(title)}</b></p>{"".join(parts)}</div>'


def _folded(title: str, items: str) -> str:
    return f'<details><summary class="dim">{title}</summary><ol>{items}</ol></details>' if items else ""


def _tree(schedule: Schedule) -> str:
    return tree_html(tree_data(schedule.tree, schedule.scop), free_data(schedule))


def _arrays(scop: Scop) -> str:
    lines = (f"<div><code>{coloured(print_array(a))}</code></div>" for a in scop.arrays.values())
    return f'<div class="dim">{"".join(lines)}</div>'


def _model(model: Model) -> str:
    report = _folded("Report", f"<pre>{escape(str(model.report()))}</pre>")
    try:
        plan, graph = model.plan, model.graph
    except BuildError as error:  # it is compiled at the first call
        return _output(model, f'<p class="dim">{escape(str(error))}</p>', report)
    if len(plan.steps) > LARGEST:
        note = f"{len(plan.steps)} steps: too many to draw here, polyc inspect --html shows them"
        return _output(model, f'<p class="dim">{note}</p>', report)
    steps = [step_data(s, graph) for s in plan.steps]
    boxes, lines, size = drawing(plan, graph, steps)
    types = {s.name: str(tensor_data(s)["type"]) for s in plan.slots.values()}
    return _output(model, graph_svg(boxes, lines, size, steps, types), report)
