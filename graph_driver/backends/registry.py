"""The back ends by name and by target: those of polyc, then those that are installed beside it.

A package adds one by an entry point of the group `polyc.backends`, which names an object of a class derived from
`polyc.graph_driver.backends.protocol.Backend` (or that class). They are looked for when a target is no name of
polyc's own, or somebody asks for all.
One that cannot be loaded, or is no back end, is left out and said in one line (`problems`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from polyc.emit import targets
from polyc.graph_driver.backends.c99 import C99
from polyc.graph_driver.backends.cpu import LLVM, C
from polyc.graph_driver.backends.gpu.backend import GPU
from polyc.graph_driver.backends.protocol import Backend, Platform
from polyc.graph_driver.graph.wording import one_line
from polyc.poly.errors import BuildError, PolycError

GROUP = "polyc.backends"
OWN: tuple[Backend, ...] = (LLVM, C, C99, GPU)


@cache
def _installed() -> tuple[tuple[Backend, ...], tuple[str, ...]]:
    """Back ends of other packages, by the order of their names; and a line for each that cannot be used."""
    from importlib.metadata import entry_points

    found: list[Backend] = []
    problems: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        try:
            found.append(_checked(point.name, point.load(), (*OWN, *found)))
        except Exception as error:  # whatever a foreign module raises: the others work
            problems.append(f"the back end '{point.name}' ({point.value}) cannot be used: {one_line(error)}")
    return tuple(found), tuple(problems)


def _checked(name: str, given: Any, known: tuple[Backend, ...]) -> Backend:
    """What an entry point names, as a back end. Raises `BuildError`: it is none, or its name or a target is taken."""
    made = given() if isinstance(given, type) else given
    if not isinstance(made, Backend):
        raise BuildError(f"{type(made).__name__} is not derived from polyc.graph_driver.backends.protocol.Backend")
    if getattr(made, "name", None) != name:
        raise BuildError(f"it is named {getattr(made, 'name', None)!r}, its entry point '{name}'")
    if name in [b.name for b in known]:
        raise BuildError(f"the name '{name}' is taken")
    for target in made.targets():
        owner = next((b.name for b in known if target in b.targets()), None)
        if owner is not None:
            raise BuildError(f"the target '{target}' is one of the back end {owner}")
    return made


def backends() -> tuple[Backend, ...]:
    """All of them: polyc's own, then those that are installed."""
    return (*OWN, *_installed()[0])


def problems() -> tuple[str, ...]:
    """A line for each back end that is installed and cannot be used."""
    return _installed()[1]


def named(name: str) -> Backend:
    """The back end of this name. Raises `BuildError`."""
    found = next((b for b in OWN if b.name == name), None) or next((b for b in backends() if b.name == name), None)
    if found is None:
        raise BuildError(f"the back end '{name}' is not installed; here are {', '.join(b.name for b in backends())}")
    return found


def found(target: object, runs: bool = True) -> tuple[Backend, Any]:
    """The back end that knows a target (None: this machine), and its machine; of those whose models run, or of all.

    Raises:
        BuildError: there is none; the line lists the names that there are.
    """
    for backend in [b for b in OWN if b is not LLVM and (b.runs or not runs)]:
        machine = backend.find(target)
        if machine is not None:
            return backend, machine
    own = targets.is_known(target) and not targets.is_file(target)
    for backend in () if own else _installed()[0]:
        machine = _asked(backend, target)
        if machine is not None:
            return backend, machine
    if isinstance(target, str) and not targets.is_known(target):
        raise BuildError(_unknown(target))
    return LLVM, LLVM.find(target)


def _asked(backend: Backend, target: object) -> Any:
    """The machine of a back end of another package. Raises `BuildError`: it is wrong, or the package is."""
    try:
        return backend.find(target)
    except PolycError:
        raise
    except Exception as error:
        raise BuildError(f"the back end '{backend.name}' fails on target '{target}': {one_line(error)}") from None


def _unknown(target: str) -> str:
    """Why there is no such target: a back end that cannot be used says itself why."""
    broken = next((line for line in problems() if line.startswith(f"the back end '{target}' ")), None)
    return broken or targets.unknown(target, [name for b in _installed()[0] for name in b.targets()])


def platform_of(target: object, threads: int | None = None, runs: bool = True) -> Platform:
    """The platform of `target`: `cpu` (LLVM), `c` (gcc or clang), a CPU or a GPU, its name or its file, or a target
    of a back end that is installed. `threads`: None is all cores; some back ends have one, whatever is given.

    Raises:
        BuildError: there is no such target, its back end lacks something here, or these are no threads.
    """
    targets.check_threads(threads)
    backend, machine = found(target, runs)
    if lacks := backend.lacks(machine):
        raise BuildError(lacks)
    return Platform(backend, machine, backend.threads(machine, threads))


def for_stage(target: object, stage: str | None, runs: bool = True) -> object:
    """The target that a text of `polyc inspect` is about: the one given, or for a text that is none of a CPU's the
    machine of another back end that is called so (`cuda`, `opencl`), or its `cuda` (`nvptx`, `ptx`).

    Raises:
        BuildError: there is no such target.
    """
    backend, machine = found(target, runs)
    if stage is None or stage in backend.stages or backend.costed(machine) is None:
        return target
    return next((n for n in (stage, "cuda") for b in OWN if stage in b.stages and n in b.targets()), target)


def for_bodies(platform: Platform) -> Platform:
    """Where the bodies of control flow run: with the host's steps."""
    return platform if platform.backend.runs_bodies else Platform(LLVM, platform.host)


def c_sources() -> Platform:
    """The unknown machine that C sources are for."""
    return Platform(C99, C99.find(C99.name))
