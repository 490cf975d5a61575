"""Who of the ranks is alive: a connection of each rank to rank 0, beside MPI.

MPI waits for a rank that is dead for ever. Here the operating system closes a dead rank's connection, rank 0 tells the
others, and whoever waits for a message has an error. A stopped process of the same machine counts as dead, too, and a
rank that is silent for `SILENCE` seconds (a machine without a network). A rank that fails says why before it ends.
Where the launcher ends all ranks because one failed (Open MPI sends SIGTERM), each says that in one line. A launcher
that ends so may drop what ranks said last (Open MPI 5 does, some of the time), so each rank can also write its line
into a file of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any

from polyc.poly.errors import PolycError

BEAT = 1.0
"""Seconds between two signs of life."""
SILENCE = 60.0
"""Seconds without a sign of life after which a rank counts as dead: long calls into isl or NumPy on a busy machine
let no thread of Python run meanwhile."""
STOPPED = 3.0
"""Seconds without a sign of life after which a process of this machine is looked at: it may be stopped."""
GRACE = 2.0
"""Seconds in which messages of a rank that has ended may still arrive."""
JOIN = 60.0
"""Seconds for all ranks to connect when the program begins."""


class Liveness:
    """The connections of one rank. `reason()` says why a message can never arrive; empty while it may."""

    def __init__(self, comm: Any) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._ended: dict[int, tuple[float, str]] = {}  # rank: when, and what is known of it
        self._last: dict[int, float] = {}
        self._said = threading.Lock()
        self._quiet = False
        self._processes: dict[int, tuple[str, int]] = {}
        self._peers = self._connect(comm)
        self._selector = selectors.DefaultSelector()
        for rank, peer in self._peers.items():
            peer.setblocking(False)
            self._selector.register(peer, selectors.EVENT_READ, rank)
            self._last[rank] = time.monotonic()
        self._buffers: dict[int, bytes] = dict.fromkeys(self._peers, b"")
        self._signals()
        atexit.register(self._bye)
        threading.Thread(target=self._serve, name="polyc liveness", daemon=True).start()

    # ---- what others ask ----

    def reason(self) -> str:
        """Why a message that has not come yet never will: a rank has ended, or is silent."""
        for rank, (when, why) in list(self._ended.items()):
            if time.monotonic() - when > (GRACE if why == "it has ended" else 0.0):
                return f"rank {rank} is gone: {why}"
        return ""

    def fail(self, why: str) -> None:
        """Tell the others that this rank fails, and why."""
        self._tell({"failed": self.rank, "why": why})

    def line(self, text: str) -> None:
        """One line of this rank to standard error, and to `rank-N.log` in the folder `POLYC_RANK_LOGS`; only the first
        is written."""
        if self._said.acquire(blocking=False) and not self._quiet:
            said = f"polyc: rank {self.rank}: {text}\n".encode()
            with suppress(OSError, ValueError):
                os.write(2, said)
            if folder := os.environ.get("POLYC_RANK_LOGS"):
                with suppress(OSError), open(os.path.join(folder, f"rank-{self.rank}.log"), "ab", buffering=0) as log:
                    log.write(said)

    # ---- connections ----

    def _connect(self, comm: Any) -> dict[int, socket.socket]:
        """Of rank 0 to all others, of all others to it."""
        if self.rank == 0:
            server = socket.create_server(("", 0), backlog=self.size)
            server.settimeout(JOIN)
            token = secrets.token_hex(16)
            where = sorted({"127.0.0.1", *_addresses()})
            comm.bcast((where, server.getsockname()[1], token), root=0)
            self._processes = dict(enumerate(comm.allgather((socket.gethostname(), os.getpid()))))
            peers: dict[int, socket.socket] = {}
            while len(peers) < self.size - 1:
                peer, _ = server.accept()
                peer.settimeout(JOIN)
                first = peer.makefile("rb").readline(4096).decode("ascii", "replace").split()
                if len(first) == 2 and secrets.compare_digest(first[0], token):
                    peers[int(first[1])] = peer
                else:
                    peer.close()  # a stranger
            server.close()
            return peers
        where, port, token = comm.bcast(None, root=0)
        self._processes = dict(enumerate(comm.allgather((socket.gethostname(), os.getpid()))))
        for host in where:
            with suppress(OSError):
                made = socket.create_connection((host, port), timeout=JOIN / len(where))
                made.sendall(f"{token} {self.rank}\n".encode())
                return {0: made}
        raise PolycError(f"rank {self.rank} cannot connect to rank 0 ({', '.join(where)}, port {port})")

    def _serve(self) -> None:
        next_beat = 0.0
        while True:
            now = time.monotonic()
            if now >= next_beat:
                self._tell({})
                next_beat = now + BEAT
            for rank, last in self._last.items():
                if rank in self._ended:
                    continue
                if now - last > SILENCE:
                    self._end(rank, f"no sign of life for {SILENCE:.0f} s")
                elif now - last > STOPPED and self._is_stopped(rank):
                    self._end(rank, "its process is stopped")
            for key, _ in self._selector.select(BEAT / 2):
                if key.data == "signal":
                    self._stopped()
                else:
                    self._hear(key.data)

    def _is_stopped(self, rank: int) -> bool:
        """Whether the process of a rank on this machine is stopped (`proc(5)`: state T or t)."""
        host, process = self._processes[rank]
        if host != socket.gethostname():
            return False
        with suppress(OSError), open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
        return False

    def _hear(self, rank: int) -> None:
        try:
            data = self._peers[rank].recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(self._peers[rank])
            if rank not in self._ended:
                self._end(rank, "its process died")
            self._last.pop(rank, None)
            return
        self._last[rank] = time.monotonic()
        *lines, self._buffers[rank] = (self._buffers[rank] + data).split(b"\n")
        for text in lines:
            with suppress(ValueError, KeyError):
                found = json.loads(text)
                if "failed" in found:
                    self._end(int(found["failed"]), str(found["why"]))

    def _end(self, rank: int, why: str) -> None:
        if rank != self.rank and rank not in self._ended:
            self._ended[rank] = (time.monotonic(), why)
            if self.rank == 0:
                self._tell({"failed": rank, "why": why})

    def _tell(self, what: dict[str, Any]) -> None:
        data = (json.dumps(what) + "\n").encode()
        for peer in list(self._peers.values()):
            with suppress(OSError):
                peer.send(data)

    # ---- how this rank ends ----

    def _bye(self) -> None:
        self._quiet = True
        self.fail("it has ended")

    def _signals(self) -> None:
        """Say one line when the launcher ends this rank, also while a kernel runs (which Python's handlers wait for);
        and one line for an error of polyc that nobody catches."""
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            text = f"{type(error).__name__}: {error}" if not isinstance(error, PolycError) else str(error)
            self.fail(text)
            if isinstance(error, PolycError):
                self.line(text.removeprefix(f"rank {self.rank}, "))
            else:
                before(kind, error, trace)
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(BEAT / 4)  # what was said goes out
            os._exit(1)  # not by MPI_Finalize: it would wait for ranks that wait for this one

        sys.excepthook = hook
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM):
            return
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        if signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False) != -1:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            return
        self._wakeup = reader, writer
        self._selector.register(reader, selectors.EVENT_READ, "signal")

    def _stopped(self) -> None:
        """A signal came: SIGTERM ends the process, others are Python's."""
        if signal.SIGTERM not in self._wakeup[0].recv(256):
            return
        gone = next((f"rank {r} is gone: {why}" for r, (_, why) in self._ended.items()), "another rank may have failed")
        self.line(f"ended by the launcher; {gone}")
        os._exit(128 + signal.SIGTERM)


def _addresses() -> list[str]:
    """Of this machine, as others may reach it."""
    with suppress(OSError):
        return sorted({str(a[4][0]) for a in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)})
    return []
