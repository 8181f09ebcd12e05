"""Policy versions as they are announced. `Watch` is thread-safe; the rest are plain values."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Tuple, Union

import grpc

from . import _errors
from ._connection import Backoff, Connection, Scope, thread_name
from ._messages import actor as wire
from ._messages.types import PolicyVersion
from ._usage import meter
from ._waiting import Mailbox

log = logging.getLogger("forebay")
METHOD = "/forebay.v1.ActorService/WatchPolicy"


@dataclass(frozen=True)
class Version:
    """Weights: `number` optimizer steps on `branch` of `policy`; an announcement says where they are."""

    number: int
    branch: int = 0
    policy: str = "main"
    phase: str = ""  # "pending" or "published" in an announcement
    where: str = ""
    checksum: str = ""
    base: Optional["Version"] = None  # what a delta applies to
    step: int = 0

    @property
    def published(self) -> bool:
        """The weights can be loaded from `where`."""
        return self.phase == "published"

    @property
    def pending(self) -> bool:
        """The weights are coming; work that would be too stale can be cut."""
        return self.phase == "pending"

    def __str__(self) -> str:
        name = str(self.number) if self.branch == 0 else f"{self.branch}:{self.number}"
        return name if self.policy == "main" else f"{self.policy}/{name}"

    def message(self) -> PolicyVersion:
        policy = "" if self.policy == "main" else self.policy
        return PolicyVersion(policy=policy, branch=self.branch, number=self.number)


def version_of(message: Optional[PolicyVersion], **more: Any) -> Version:
    """From the wire."""
    message = message or PolicyVersion()
    return Version(message.number, message.branch, message.policy or "main", **more)


def as_version(version: Union[int, Version]) -> Version:
    """A number stands for that version of the first branch."""
    return version if isinstance(version, Version) else Version(int(version))


def announced(message: Optional[wire.PolicyAnnouncement]) -> Version:
    """From the wire."""
    message = message or wire.PolicyAnnouncement()
    phase = {wire.VERSION_PHASE_PENDING: "pending", wire.VERSION_PHASE_PUBLISHED: "published"}
    return version_of(
        message.version,
        phase=phase.get(message.phase, ""),
        where=message.where,
        checksum=message.checksum,
        base=version_of(message.base) if message.base is not None else None,
        step=message.step,
    )


class Watch:
    """Follows a policy on a thread of its own; ends when it is closed.

    A taker that is slow sees only the newest pending and the newest published announcement.
    """

    def __init__(self, connection: Connection, session: Callable[[], int], policy: str) -> None:
        self._connection, self._session, self._policy = connection, session, policy
        self._pid = os.getpid()
        self.news: Mailbox[Version] = Mailbox()
        self.latest: Optional[Version] = None  # newest that is published
        self.first_heard: Dict[Tuple[int, int], float] = {}  # (branch, number): by the monotonic clock
        self._first = threading.Event()
        self._scope = Scope()
        self._thread = threading.Thread(target=self._run, name=thread_name("policy"), daemon=True)
        self._thread.start()

    def wait(self, timeout: float) -> Optional[Version]:
        """The newest published version; waits for the first announcement."""
        self._first.wait(min(timeout, threading.TIMEOUT_MAX))
        return self.latest

    @property
    def closed(self) -> bool:
        return self._scope.cancelled

    def close(self) -> None:
        if self._pid == os.getpid():  # a forked child drops what its parent goes on with
            self._scope.cancel()
            self.news.close()

    def _run(self) -> None:
        meter().enter_thread()
        backoff = Backoff()
        last: Optional[Version] = None
        while not self._scope.cancelled:
            revision = 0
            try:
                request = wire.WatchPolicyRequest(session=self._session(), policy=self._policy)
                call = self._connection.watch(METHOD, request)
                revision = call.revision
                with self._scope.holding(call):
                    for body in call:
                        backoff.reset()
                        last = self._take(announced(wire.PolicyAnnouncement.decode(body)), last)
            except grpc.RpcError as error:
                failure = _errors.from_rpc(error, METHOD)
                if isinstance(failure, (_errors.InvalidRequest, _errors.NotAllowed)):
                    self.news.close(failure)
                    return
                log.debug("policy watch ended: %s", failure)
            except _errors.ForebayError as error:
                log.debug("policy watch could not begin: %s", error)
            except Exception as error:  # those who wait for news must hear of it
                log.exception("policy watch ended")
                self.news.close(_errors.InternalError(f"the policy cannot be followed: {error!r}"))
                break
            if revision:
                self._connection.pause(backoff.next_s(), self._scope, revision)
            else:
                self._scope.wait(backoff.next_s())
        meter().leave_thread()

    def _take(self, version: Version, last: Optional[Version]) -> Version:
        self.first_heard.setdefault((version.branch, version.number), time.monotonic())
        while len(self.first_heard) > 64:
            self.first_heard.pop(next(iter(self.first_heard)))
        if version.published:
            self.latest = version
        self._first.set()
        if version != last:  # a stream that was opened again repeats the newest
            self.news.replace(version, lambda held: held.phase == version.phase)
        return version


class Policy:
    """Announcements of new weights: iterate (`async for` or `for`), or read `latest`."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def latest(self) -> Optional[Version]:
        """The newest published version; None until the first announcement came."""
        return self._watch.wait(0.0)

    def wait(self, timeout: float = 30.0) -> Version:
        """The newest published version; waits for the first announcement."""
        version = self._watch.wait(timeout)
        if version is None:
            raise _errors.DeadlineExceeded(f"no version was announced within {timeout:g} s")
        return version

    def close(self) -> None:
        """Ends the watch."""
        self._watch.close()

    def __aiter__(self) -> "Policy":
        return self

    async def __anext__(self) -> Version:
        version = await self._watch.news.aget()
        if version is None:
            raise StopAsyncIteration
        return version

    def __iter__(self) -> "Policy":
        return self

    def __next__(self) -> Version:
        version = self._watch.news.get()
        if version is None:
            raise StopIteration
        return version

    def __del__(self) -> None:
        self._watch.close()
