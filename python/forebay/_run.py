"""The entry: `connect` and `start` give a Run, on which everything else is called. Thread-safe."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import weakref
from typing import Any, Coroutine, Optional, Union

from ._actor import _reported
from ._aio import in_thread
from ._calls import AsyncRun, SyncRun, close_together
from ._connection import TLS, UNARY_TIMEOUT_S, Connection
from ._daemon import Daemon, start_daemon

log = logging.getLogger("forebay")
DEFAULT_TARGET = "127.0.0.1:7400"
EXIT_GRACE_S = 2.0


class Run:
    """A run of the buffer.

    `run.sync` holds every call as one that blocks, `run.aio` every call as one to await. The short
    names are the usual choice of the two: `run.actor` and `run.policy` are asynchronous, all others
    block; `run.set_reward` and `run.report_adoption` never wait. It may be pickled, and used after
    fork: channels are opened in each process when they are needed.
    """

    def __init__(self, connection: Connection, daemon: Optional[Daemon] = None) -> None:
        self._connection, self._daemon = connection, daemon
        self.sync = SyncRun(connection)
        self.aio = AsyncRun(self.sync)
        self._name_calls()
        _open_runs.add(self)

    def _name_calls(self) -> None:
        self.actor, self.policy = self.aio.actor, self.aio.policy
        self.load, self.configure, self.sources = self.sync.load, self.sync.configure, self.sync.sources
        self.status, self.usage = self.sync.status, self.sync.usage
        self.set_reward, self.push_group = self.sync.set_reward, self.sync.push_group
        self.report_adoption = self.sync.report_adoption
        self.trainer, self.start_eval = self.sync.trainer, self.sync.start_eval

    @property
    def target(self) -> str:
        return self._connection.target

    @property
    def daemon(self) -> Optional[Daemon]:
        """The private daemon, if `start` made one."""
        return self._daemon

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine beside the actor's loop, and keeps hold of it.

        An exception that left an `async with a:` was reported to the daemon; it is logged, and the
        actor goes on. Any other one ends the actors' loops, which raise it.
        """
        task = asyncio.get_running_loop().create_task(coroutine)
        process = self.sync._process
        process.tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: "asyncio.Task[Any]") -> None:
        process = self.sync._process
        process.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if error in _reported:
            log.warning("an attempt ended with %s: %s", type(error).__name__, error)
            return
        actors = list(process.actors)
        if not actors:
            log.error("a spawned coroutine failed", exc_info=error)
        for actor in actors:
            actor._keeper.stop_acquiring(error)

    def close(self, timeout: float = 10.0) -> None:
        """Saves and gives back what actors hold, closes all connections, ends a private daemon."""
        self.sync.close(timeout)
        if self._daemon is not None:
            self._daemon.stop()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def __aenter__(self) -> "Run":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await in_thread(self.close)

    def __reduce__(self) -> Any:
        return Run, (self._connection,)

    def __repr__(self) -> str:
        return f"<forebay run at {self.target}>"


_open_runs: "weakref.WeakSet[Run]" = weakref.WeakSet()


def _close_all() -> None:
    runs = list(_open_runs)
    try:
        close_together([run.sync for run in runs], EXIT_GRACE_S)
    except Exception as error:  # the interpreter is ending; the daemon's leases end by themselves
        log.debug("giving back what is held: %s", error)
    for run in runs:
        try:
            run.sync.close(timeout=0.0)
        except Exception as error:  # the interpreter is ending; the daemon's leases end by themselves
            log.debug("closing %r: %s", run, error)


atexit.register(_close_all)


def connect(
    target: Optional[str] = None,
    *,
    token: Optional[str] = None,
    tls: Union[None, bool, str, TLS] = None,
    timeout: float = UNARY_TIMEOUT_S,
) -> Run:
    """A run at `target`: "host:port" or "unix:/path"; default FOREBAY_ADDRESS, else 127.0.0.1:7400.

    Of a cluster any node will do, and several are better, for one may be down: "a:7400,b:7400,c:7400". All is sent to
    the node that leads; when that changes, calls go on at the next one, within their timeouts.

    Nothing is sent until the first call. `tls`: True (the system's roots), a CA's file, or TLS(...).
    `timeout`: seconds that a call may take, retries included, unless it says otherwise.
    """
    target = target or os.environ.get("FOREBAY_ADDRESS") or DEFAULT_TARGET
    return Run(Connection(target, token or os.environ.get("FOREBAY_TOKEN"), tls, timeout))


def start(bufferd: Optional[str] = None, **config: Any) -> Run:
    """Runs a private daemon for a notebook or a test; it ends with `run.close()` or this process.

    Settings of bufferd by name, with two underscores for the dot: start(memory__payload_bytes_max=1 << 30).
    """
    daemon = start_daemon(bufferd, {name.replace("__", "."): value for name, value in config.items()})
    return Run(Connection(daemon.target, alone=True), daemon)
