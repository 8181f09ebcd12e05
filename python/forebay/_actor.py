"""What actors hold in their hands: an iterator of assignments, and each assignment.

`Actor` and `Assignment` are asynchronous, `SyncActor` and `SyncAssignment` their blocking twins.
Methods may be called from any thread; the asynchronous ones from one event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time
import weakref
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np

from . import _errors
from ._columns import numpy_dtype
from ._leases import Lease, LeaseKeeper
from ._messages import actor as wire
from ._messages.types import RolloutHeader
from ._policy import Version
from ._push import Outgoing, PushResult
from ._rollout import Rollout, check_rewards
from ._waiting import Promise, settle

log = logging.getLogger("forebay")
PUSH_TIMEOUT_S = 600.0
SIGTERM_GRACE_S = 10.0
A = TypeVar("A", bound="_BaseAssignment")
SavePartials = Callable[[Any], Optional[Rollout]]


class CancelledEvent:
    """Set when the daemon wants the attempt to stop.

    `reason` says why ("too_stale", "group_done", ...); `wants_partial` whether what there is should
    be saved with `save_partial`. Either `await event.wait()`, or `event.wait_blocking(timeout)`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: List[Promise[bool]] = []
        self.reason = ""
        self.wants_partial = False

    def is_set(self) -> bool:
        return self._is_set

    __bool__ = is_set

    def set(self, reason: str = "", wants_partial: bool = False) -> None:
        """Only the first call counts."""
        with _cancelling:
            if self._is_set:
                return
            self.reason, self.wants_partial, self._is_set = reason, wants_partial, True
            waiters, self._waiters = self._waiters, []
        settle([(waiter, True, None) for waiter in waiters])

    def _waiter(self) -> "Promise[bool]":
        waiter: Promise[bool] = Promise("the cancellation of an attempt")
        with _cancelling:
            if self._is_set:
                waiter.resolve(True)
            else:
                self._waiters.append(waiter)
        return waiter

    async def wait(self) -> bool:
        return await self._waiter().wait(None)

    def wait_blocking(self, timeout: float = 3600.0) -> bool:
        """False if it was not set within `timeout` seconds."""
        try:
            return self._waiter().result(timeout)
        except _errors.DeadlineExceeded:
            return self._is_set


# One lock for all: attempts are many, cancellations few.
_cancelling = threading.RLock()


class Partial:
    """An unfinished attempt that this one continues: the sequences' columns as arrays."""

    def __init__(self, message: wire.Partial) -> None:
        self._header = message.header or RolloutHeader()
        self._payload = np.frombuffer(message.payload, np.uint8)

    @property
    def sequences(self) -> List[Dict[str, "np.ndarray[Any, Any]"]]:
        """By name, for each sequence; columns of text and other blobs are bytes as u8."""
        header = self._header
        out: List[Dict[str, Any]] = [{} for _ in header.sequences]
        at = 0
        for column in header.columns:
            data = self._payload[at : at + column.bytes]
            at += column.bytes
            if column.sequence_bytes or column.domain in (5, 6):
                sizes = list(column.sequence_bytes) or [column.bytes]
            else:
                sizes = _sizes(header, column.domain, column.bytes)
            for index, piece in enumerate(np.split(data, np.cumsum(sizes)[:-1])):
                array = piece.copy().view(numpy_dtype(column.dtype)) if column.domain != 5 else piece
                out[index][column.name] = array.reshape(-1, *column.inner) if column.inner else array
        return out

    @property
    def tokens(self) -> "np.ndarray[Any, Any]":
        """Of the first sequence."""
        return self.sequences[0]["tokens"]

    @property
    def versions(self) -> List[Any]:
        """The first sequence's version runs, as Sequence takes them."""
        runs = self._header.sequences[0].versions
        return [(run.offset, run.number, run.branch) for run in runs]


def _sizes(header: RolloutHeader, domain: int, nbytes: int) -> List[int]:
    rows = [
        {2: s.tokens - s.prompt_tokens, 3: s.tokens - 1, 4: 1}.get(domain, s.tokens)
        for s in header.sequences
    ]
    width = nbytes // max(1, sum(rows))
    return [r * width for r in rows]


class _BaseAssignment:
    """One attempt at a task."""

    def __init__(self, keeper: LeaseKeeper, lease: Lease, push_timeout: float) -> None:
        self._keeper, self._lease, self._push_timeout = keeper, lease, push_timeout
        self._begin = time.monotonic()
        self._done = False
        self.cancelled = CancelledEvent()
        lease.holder = weakref.ref(self)
        if lease.action != wire.LEASE_ACTION_CONTINUE:
            self._told()

    def _told(self) -> None:
        wants_partial = self._lease.action == wire.LEASE_ACTION_SAVE_PARTIAL
        self.cancelled.set(self._lease.reason, wants_partial)

    @property
    def id(self) -> int:
        """Names the attempt, in `run.set_reward`."""
        return self._lease.assignment.attempt_id

    @property
    def task_id(self) -> str:
        """The task's id in its source."""
        return self._lease.assignment.external_id

    @property
    def task(self) -> Any:
        """The task as it was loaded."""
        payload = self._lease.assignment.payload
        try:
            return json.loads(payload)
        except ValueError:
            return payload

    @property
    def attributes(self) -> bytes:
        """What was added with the task beside its content."""
        return self._lease.assignment.attributes

    @property
    def source(self) -> str:
        return self._lease.source.name

    @property
    def sampling(self) -> Dict[str, Any]:
        """The source's sampling parameters."""
        text = self._lease.source.sampling_json
        return dict(json.loads(text)) if text else {}

    @property
    def seed(self) -> int:
        """Follows from run, task and attempt; 63 bits, as engines take it."""
        return self._lease.assignment.seed & (1 << 63) - 1

    @property
    def attempt(self) -> int:
        """Its number within the group, from 0."""
        return self._lease.assignment.attempt

    @property
    def group(self) -> int:
        """Attempts at one task that are compared with each other share it."""
        return self._lease.assignment.group_id

    @property
    def version(self) -> Version:
        """The policy version that the attempt is for."""
        return Version(self._lease.assignment.version, self._lease.assignment.branch)

    @property
    def is_eval(self) -> bool:
        return self._lease.assignment.eval_run != 0

    @property
    def partial(self) -> Optional[Partial]:
        """The unfinished attempt that this one continues, if any."""
        partial = self._lease.assignment.partial
        return None if partial is None else Partial(partial)

    def progress(self, generated_tokens: int) -> None:
        """Tokens generated so far; told with the next renewal."""
        self._lease.generated = int(generated_tokens)

    def release(self) -> None:
        """Gives the attempt back; another actor gets it, no failure is counted."""
        self._done = True
        self._keeper.release(self._lease)

    def fail(self, reason: str) -> None:
        """Reports that the attempt failed."""
        self._done = True
        self._keeper.fail(self._lease, reason)

    def __repr__(self) -> str:
        return f"<assignment of {self.source}/{self.task_id}, attempt {self.attempt}>"

    def _send(
        self,
        rollout: Rollout,
        reward: Optional[float],
        rewards: Optional[Mapping[str, float]],
        partial: bool = False,
    ) -> Outgoing:
        if self._done:
            raise _errors.LeaseLost("the attempt was pushed or given back before")
        self._keeper.check_process()
        if not isinstance(rollout, Rollout):
            raise TypeError(f"push takes a fb.Rollout, not {type(rollout).__name__}")
        all_rewards = dict(rewards or {})
        if reward is not None:
            all_rewards["reward"] = reward
        assignment = self._lease.assignment
        header, parts = rollout._encode(assignment.branch, all_rewards, partial)
        header.attempt_id, header.token = assignment.attempt_id, assignment.token
        if not header.duration_ms:
            header.duration_ms = int((time.monotonic() - self._begin) * 1000)
        # As in reports of adoption, an engine without a name goes by its actor's.
        header.engine = header.engine or self._keeper.engine or self._keeper.name
        outgoing = Outgoing(header, parts)
        self._keeper.pusher.push(outgoing)
        return outgoing

    def _pushed(self) -> None:
        self._done = True
        self._keeper.finish(self._lease)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, (_errors.LeaseLost, _errors.Stale)):
            self._pushed()  # there is nothing left to give back

    def _leave(self, error: Optional[BaseException]) -> None:
        if self._done:
            return
        if isinstance(error, (_errors.LeaseLost, _errors.Stale)):
            self._pushed()
        elif error is None or not isinstance(error, Exception) or _no_fault_of_the_task(error):
            self.release()
        else:
            self.fail(f"{type(error).__name__}: {error}")
        if isinstance(error, Exception):
            _reported.add(error)

    def __del__(self) -> None:
        # Dropped without a word: nobody works on it.
        if not self._done:
            self._keeper.release(self._lease)


def _no_fault_of_the_task(error: Exception) -> bool:
    """The daemon's trouble or a cancelled coroutine: the attempt goes back, and nothing is counted."""
    wrong_data = isinstance(error, _errors.InvalidRequest)
    return isinstance(error, _errors.ForebayError) and not wrong_data


class _Reported:
    """Exceptions that the daemon was told about, so that nothing else needs to stop because of them."""

    def add(self, error: BaseException) -> None:
        error.__dict__["_forebay_reported"] = True

    def __contains__(self, error: BaseException) -> bool:
        return bool(error.__dict__.get("_forebay_reported"))


_reported = _Reported()


class Assignment(_BaseAssignment):
    """One attempt at a task: `async with a:`; an exception is a failure, leaving without a push gives it back."""

    async def push(
        self,
        rollout: Rollout,
        reward: Optional[float] = None,
        *,
        rewards: Optional[Mapping[str, float]] = None,
        timeout: Optional[float] = None,
    ) -> PushResult:
        """Pushes the attempt's result; returns when the daemon has it.

        Raises InvalidRollout (wrong: `field` says where), LeaseLost and Stale (not used).
        """
        return await self._deliver(self._send(rollout, reward, rewards), timeout)

    async def save_partial(self, rollout: Rollout, *, timeout: Optional[float] = None) -> PushResult:
        """Saves the unfinished attempt; whoever gets it next continues it."""
        return await self._deliver(self._send(rollout, None, None, partial=True), timeout)

    async def _deliver(self, outgoing: Outgoing, timeout: Optional[float]) -> PushResult:
        try:
            result = await outgoing.promise.wait(self._push_timeout if timeout is None else timeout)
        except BaseException as error:
            self._keeper.pusher.forget(outgoing)
            self._failed(error)
            raise
        self._pushed()
        return result

    async def __aenter__(self) -> "Assignment":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._leave(error)


class SyncAssignment(_BaseAssignment):
    """One attempt at a task: `with a:`; an exception is a failure, leaving without a push gives it back."""

    def push(
        self,
        rollout: Rollout,
        reward: Optional[float] = None,
        *,
        rewards: Optional[Mapping[str, float]] = None,
        timeout: Optional[float] = None,
    ) -> PushResult:
        """See Assignment.push; blocks."""
        return self._deliver(self._send(rollout, reward, rewards), timeout)

    def save_partial(self, rollout: Rollout, *, timeout: Optional[float] = None) -> PushResult:
        """See Assignment.save_partial; blocks."""
        return self._deliver(self._send(rollout, None, None, partial=True), timeout)

    def _deliver(self, outgoing: Outgoing, timeout: Optional[float]) -> PushResult:
        try:
            result = outgoing.promise.result(self._push_timeout if timeout is None else timeout)
        except BaseException as error:
            self._keeper.pusher.forget(outgoing)
            self._failed(error)
            raise
        self._pushed()
        return result

    def __enter__(self) -> "SyncAssignment":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._leave(error)


class _BaseActor(Generic[A]):
    """Iterates over assignments, as many at once as there are slots."""

    _assignment: Type[A]

    def __init__(
        self,
        keeper: LeaseKeeper,
        push_timeout: float,
        save_partials: Optional[SavePartials],
        handle_sigterm: bool,
    ) -> None:
        self._keeper, self._push_timeout, self._save_partials = keeper, push_timeout, save_partials
        # Leaving the loop drops the iterator: what nobody took must go back.
        weakref.finalize(self, keeper.stop_acquiring).atexit = False
        if handle_sigterm:
            _on_sigterm(self)

    @property
    def waiting(self) -> str:
        """Why there is no assignment at the moment; empty if there is no such reason."""
        return self._keeper.waiting

    def _wrap(self, lease: Lease) -> A:
        return self._assignment(self._keeper, lease, self._push_timeout)

    def set_reward(self, attempt: Union[int, _BaseAssignment], reward: Any) -> Promise[PushResult]:
        """Delivers a reward after the push; see Run.set_reward."""
        attempt_id = attempt if isinstance(attempt, int) else attempt.id
        rewards = reward if isinstance(reward, Mapping) else {"reward": reward}
        return self._keeper.set_reward(attempt_id, check_rewards(rewards))

    def stop(self) -> None:
        """Takes no more assignments: the iteration ends, attempts under way may finish."""
        self._keeper.stop_acquiring()

    def _send_partials(self) -> List[Tuple[_BaseAssignment, Outgoing]]:
        """Sends what the user's callable can save; does not wait."""
        sent: List[Tuple[_BaseAssignment, Outgoing]] = []
        for assignment in self._keeper.held() if self._save_partials is not None else ():
            if assignment._done:
                continue
            try:
                rollout = self._save_partials(assignment) if self._save_partials else None
                if rollout is not None:
                    sent.append((assignment, assignment._send(rollout, None, None, partial=True)))
            except Exception as error:  # of the user's callable: the others are saved all the same
                log.warning("%r could not be saved: %s", assignment, error)
        return sent


def save_and_close(
    actors: Sequence[_BaseActor[Any]], timeout: float, keepers: Sequence[LeaseKeeper] = ()
) -> None:
    """Saves what the users' callables can save, gives the rest back, and ends the sessions, those of `keepers` too.

    All share the `timeout` (seconds): everything is on its way before anything is waited for.
    """
    deadline = time.monotonic() + timeout
    for actor in actors:
        actor._keeper.stop_acquiring()
    sent = [saved for actor in actors for saved in actor._send_partials()]
    for assignment, outgoing in sent:
        try:
            outgoing.promise.result(max(0.0, deadline - time.monotonic()))
            assignment._pushed()
        except _errors.ForebayError as error:
            log.warning("%r could not be saved: %s", assignment, error)
    ending = [actor._keeper for actor in actors]
    ending += [keeper for keeper in keepers if keeper not in ending]
    for keeper in ending:
        keeper.give_back()
    for keeper in ending:
        keeper.close(max(0.0, deadline - time.monotonic()))


class Actor(_BaseActor[Assignment]):
    """`async for a in actor`; `async with actor` closes it at the end."""

    _assignment = Assignment

    def __aiter__(self) -> "Actor":
        return self

    async def __anext__(self) -> Assignment:
        self._keeper.start()
        lease = await self._keeper.handed_out.aget()
        if lease is None:
            raise StopAsyncIteration
        return self._wrap(lease)

    async def close(self, timeout: float = SIGTERM_GRACE_S) -> None:
        """Saves partial attempts if it can, gives the rest back, ends the session."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, save_and_close, [self], timeout)

    async def __aenter__(self) -> "Actor":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class SyncActor(_BaseActor[SyncAssignment]):
    """`for a in actor`; `with actor` closes it at the end."""

    _assignment = SyncAssignment

    def __iter__(self) -> "SyncActor":
        return self

    def __next__(self) -> SyncAssignment:
        assignment = self.next()
        if assignment is None:
            raise StopIteration
        return assignment

    def next(self, timeout: Optional[float] = None) -> Optional[SyncAssignment]:
        """The next assignment; None after `timeout` seconds, or at the end."""
        self._keeper.start()
        lease = self._keeper.handed_out.get(timeout)
        return None if lease is None else self._wrap(lease)

    def close(self, timeout: float = SIGTERM_GRACE_S) -> None:
        """Saves partial attempts if it can, gives the rest back, ends the session."""
        save_and_close([self], timeout)

    def __enter__(self) -> "SyncActor":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


_terminated: "weakref.WeakSet[_BaseActor[Any]]" = weakref.WeakSet()
_installed_in = 0


def _on_sigterm(actor: _BaseActor[Any]) -> None:
    """On SIGTERM the actor's attempts are saved or given back; then what would have happened anyway happens."""
    global _installed_in
    _terminated.add(actor)
    if _installed_in == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN or before is None:
        return
    _installed_in = os.getpid()

    def handler(number: int, frame: Optional[FrameType]) -> None:
        if _installed_in == os.getpid():  # not in a forked child
            save_and_close(list(_terminated), SIGTERM_GRACE_S)
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handler)
