"""CUDA graphs: what a stream was given once, launched again as one thing.

pycuda has no graphs; both interfaces have streams with an address, and the driver's own functions take that.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

from polyc.emit.gpu.devices import DeviceError

THREAD_LOCAL = 1  # other threads may allocate and copy meanwhile
_FUNCTIONS = {
    "cuStreamBeginCapture_v2": (ctypes.c_void_p, ctypes.c_int),
    "cuStreamEndCapture": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphInstantiateWithFlags": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64),
    "cuGraphLaunch": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphDestroy": (ctypes.c_void_p,),
    "cuGraphExecDestroy": (ctypes.c_void_p,),
}


class Graph:
    """A recorded sequence, ready to be launched any number of times."""

    def __init__(self, driver: dict[str, Callable[..., int]], address: int) -> None:
        self._driver, self._address = driver, address
        weakref.finalize(self, driver["cuGraphExecDestroy"], address)

    def launch(self, stream: int = 0) -> None:
        """Start everything, in the recorded order, in the stream at this address (0: the default one).

        Raises:
            DeviceError: the driver refuses.
        """
        _checked("cuGraphLaunch", self._driver["cuGraphLaunch"](self._address, stream))


def record(stream: int, work: Callable[[], None]) -> Graph:
    """What `work` puts into the stream at this address (not the default one). Nothing of it runs now.

    Raises:
        DeviceError: the driver has no graphs, or something in `work` cannot be part of one.
    """
    driver = _driver()
    _checked("cuStreamBeginCapture", driver["cuStreamBeginCapture_v2"](stream, THREAD_LOCAL))
    graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        work()
    finally:  # the stream is of no use to anybody until the recording ends
        ended = driver["cuStreamEndCapture"](stream, ctypes.byref(graph))
    _checked("cuStreamEndCapture", ended)
    try:
        made = driver["cuGraphInstantiateWithFlags"](ctypes.byref(ready), graph, 0)
        _checked("cuGraphInstantiate", made)
    finally:
        driver["cuGraphDestroy"](graph)
    return Graph(driver, ready.value or 0)


def _driver() -> dict[str, Callable[..., int]]:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        found = {name: getattr(library, name) for name in _FUNCTIONS}
    except (OSError, AttributeError) as error:
        raise DeviceError(f"the CUDA driver has no graphs ({error})") from None
    for name, function in found.items():
        function.argtypes, function.restype = _FUNCTIONS[name], ctypes.c_int
    return found


def _checked(what: str, result: int) -> None:
    if result:
        raise DeviceError(f"the CUDA driver's {what} gave error {result}")
