"""Reaching a Dask cluster, or starting one on this machine."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from polyc.poly.errors import BuildError, OptionError
from polyc.poly.words import first_line

if TYPE_CHECKING:
    from distributed import Client

LOCAL = re.compile(r"local:([1-9]\d{0,3})")
ANSWER = 7.0
"""Seconds that a scheduler has for an answer; less than the ten after which people have lost patience."""
RECONNECT = 5.0
"""Seconds for which a connection that broke is tried again."""
SILENT = 15.0
"""Seconds without a sign of life after which a scheduler started here gives a worker's work to others."""


def check_address(where: str) -> None:
    """Refuse what is neither `local:N` nor an address.

    Raises:
        OptionError: says which both are.
    """
    if LOCAL.fullmatch(where) is None and not re.fullmatch(r"(?!local:)(\w+://)?[^\s/]+:\d+", where):
        raise OptionError(
            "--dask takes the address of a Dask scheduler (tcp://HOST:PORT) or local:N (N processes here), not "
            f"'{where}'"
        )


@contextlib.contextmanager
def connected(where: str) -> Iterator[Client]:
    """A client of the cluster at `where`: the address of a scheduler, or `local:N` for N worker processes here, which
    end with the block.

    Raises:
        OptionError: `where` is neither. BuildError: Dask is not installed, or nobody answers.
    """
    check_address(where)
    try:
        import dask
        import distributed
    except ImportError:
        raise BuildError("--dask needs Dask: pip install 'polyc[dask]'") from None
    local = LOCAL.fullmatch(where)
    settings = {
        "distributed.comm.timeouts.connect": RECONNECT,
        "distributed.scheduler.worker-ttl": f"{SILENT:g}s",
    }
    with dask.config.set(settings), _quiet(), contextlib.ExitStack() as stack:
        try:
            if local:
                at: Any = stack.enter_context(_processes(int(local[1])))
            else:
                at = where
            client = stack.enter_context(_closing(distributed.Client(at, timeout=RECONNECT, set_as_default=False)))
        except (OSError, TimeoutError, RuntimeError, ValueError, ImportError) as error:
            raise BuildError(f"no Dask scheduler answers at {where}: {first_line(error)}") from None
        yield client


@contextlib.contextmanager
def _processes(count: int) -> Iterator[Any]:
    """A cluster of processes of this machine."""
    from distributed import LocalCluster

    cluster = LocalCluster(
        n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL
    )
    try:
        yield cluster
    finally:
        with contextlib.suppress(Exception):  # what is left of it ends with this process
            cluster.close(timeout=ANSWER)


@contextlib.contextmanager
def _closing(client: Client) -> Iterator[Client]:
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            client.close(timeout=RECONNECT)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own words about lost connections are not for polyc's users, who get a line of ours."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:  # each has a level of its own
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="distributed")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
