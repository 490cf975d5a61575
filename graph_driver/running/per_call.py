"""A model whose sizes cannot stay symbolic: it is compiled for the shapes of each call, and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.running.model import Built, Inputs, Model, Running
from polyc.graph_driver.running.specialising import Shapes, Specialiser
from polyc.poly.errors import ArgumentError, BuildError

if TYPE_CHECKING:
    from polyc.graph_driver.backends.protocol import Code
    from polyc.graph_driver.execution.executor import Executor
    from polyc.graph_driver.execution.parts import Parts


class PerCall(Running):
    """Compiles at the first call with new shapes; `why` says what keeps the sizes from staying open.

    What was built is that of the model that was used last; there is nothing before the first call.
    """

    def __init__(self, specialiser: Specialiser[Model], why: str) -> None:
        self.specialiser, self.why = specialiser, why
        self._specialiser, self.said = specialiser, specialiser.said
        self.name = self.said.name
        free = ", ".join(self.said.free)
        self.sizes = f"{free}: numbers of each call ({why})"
        self.unsaved = (
            f"{self.name} is compiled for the shapes of each call ({why}): give the sizes ({free}) "
            f"with dims=, or save the model of one of its specialisations()"
        )

    def _latest(self, what: str) -> Model:
        made = self._specialiser.all()
        if not made:
            raise BuildError(f"{what}: {self.name} is compiled for the shapes of each call ({self.why})")
        return made[-1].model

    @property
    def built(self) -> Built:
        """What was compiled for the shapes that were used last. Raises `BuildError`."""
        return self._latest("there is no plan yet").running.built

    @property
    def code(self) -> Code:
        """What its executor is made of. Raises `BuildError`."""
        return self._latest("there is no code yet").code

    def executor(self) -> Executor:
        """The loaded program of the model that was used last. Raises `BuildError`."""
        return self._latest("there is no program yet").executor()

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program for inputs of these shapes. Raises `ArgumentError`."""
        return self.special_for(inputs).for_inputs(inputs)

    def special_for(self, inputs: Mapping[str, Any]) -> Model:
        """The model for inputs of these shapes, compiled now if need be. Raises `ArgumentError`."""
        key = self._key(inputs)
        found = self._specialiser.kept(key)
        if found is not None:
            return found
        if not self._specialiser.allows(key):
            given = dict(zip(self._specialiser.said.shapes, key, strict=True))
            raise ArgumentError(f"{self._contradiction(given)}, the model is for {self.shapes_text()}")
        return self._specialiser.get(key, self.why)

    def parts(self, alone: frozenset[int]) -> Parts:
        """Those of the model that was used last. Raises `BuildError`."""
        return self._latest("there are no parts yet").running.parts(alone)

    def specialise(self, sizes: Mapping[str, int]) -> Model:
        """Raises `ArgumentError`: shapes decide, not sizes."""
        raise ArgumentError("the model is compiled for the shapes of each call: call it with arrays of these sizes")

    def _key(self, inputs: Mapping[str, Any]) -> Shapes:
        said = self._specialiser.said
        if not isinstance(inputs, Mapping):
            raise ArgumentError(f"inputs are a dict of arrays by name ({', '.join(said.shapes)}), not {inputs!r:.40}")
        missing = [n for n in said.shapes if n not in inputs]
        if missing:
            raise ArgumentError(f"input '{missing[0]}' is missing; the model has {', '.join(said.shapes)}")
        return tuple([_shape(inputs[n]) if n in said.tensors else () for n in said.shapes])

    def _contradiction(self, given: Mapping[str, tuple[int, ...]]) -> str:
        options, said = self._specialiser.options, self._specialiser.said
        name = next(n for n in given if not said.allows({n: given[n]}, options.dims, options.shapes))
        return f"input '{name}' has shape {list(given[name])}"

    @property
    def inputs(self) -> Inputs:
        """dtype and shape by input name, of the model that was used last. Raises `BuildError`."""
        return self._latest("the inputs have no sizes yet").inputs

    def inputs_for(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> Inputs:
        """As `Model.inputs_for`, of the model that was used last."""
        return self._latest("the inputs have no sizes yet").inputs_for(given, sizes)

    def shape_of(self, name: str) -> None:
        """As `Model.shape_of`: the shapes of a call decide."""
        return None

    def shapes_text(self) -> str:
        """The inputs with the sizes that the file gives them."""
        said = self._specialiser.said
        return ", ".join(
            f"{n}[{', '.join(map(str, s))}]" if s is not None else f"{n} of any rank" for n, s in said.shapes.items()
        )


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array, also of one that is on a device."""
    shape = getattr(value, "shape", None)
    return np.shape(value) if shape is None else tuple(shape)
