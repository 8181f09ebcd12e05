"""An actor's leases: acquired ahead of need, renewed in one call, given back or reported in batches.

Thread-safe. One LeaseKeeper is one session. Its threads: one acquires while slots are free, one
renews, one delivers what callers do not wait for (releases, failures, late rewards, adoptions).
"""

from __future__ import annotations

import itertools
import logging
import os
import math
import threading
import time
import weakref
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Sequence, Tuple

from . import __version__ as package
from . import _errors
from ._connection import Backoff, Connection, Scope, encoded, random_id, thread_name
from ._messages import actor as wire
from ._messages.types import PolicyVersion
from ._push import Pusher, PushResult
from ._usage import meter
from ._waiting import Mailbox, Promise
from ._wire import clipped

log = logging.getLogger("forebay")
SERVICE = "/forebay.v1.ActorService/"
LONG_POLL_S = 10.0
ACQUIRE_MAX = 4096
ACQUIRE_LINGER_S = 0.02
LEASES_PER_CALL = 32_768
RENEW_INTERVAL_S = 5.0
REWARDS_PER_CALL = 4096
REWARD_BYTES_PER_CALL = 2 << 20
COMPLAIN_EVERY_S = 30.0


class Lease:
    """One attempt that this actor holds. Its holder's `_told` is called from the renewing thread."""

    __slots__ = ("assignment", "source", "action", "reason", "generated", "holder", "over")

    def __init__(self, assignment: wire.Assignment, source: wire.SourceInfo) -> None:
        self.assignment, self.source = assignment, source
        self.action = wire.LEASE_ACTION_CONTINUE
        self.reason = ""
        self.generated = 0
        self.holder: Optional["weakref.ref[Any]"] = None
        self.over = False


class LeaseKeeper:
    """See the module."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        sources: Sequence[str],
        slots: int,
        engine: str,
        site: str,
        loads_any_version: bool,
    ) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self.name, self.engine = name, engine
        self._sources, self._slots, self._site = list(sources), slots, site
        self._loads_any_version = loads_any_version
        self.session = random_id()
        self.pusher = Pusher(connection, self.session)
        self.handed_out: Mailbox[Lease] = Mailbox()
        self.waiting = ""  # why there is no assignment
        self.version = PolicyVersion()  # what the engine holds, as far as is known
        lock = threading.RLock()
        self._condition = threading.Condition(lock)
        self._slot_freed = threading.Condition(lock)  # the acquiring thread's: slots are freed by every push
        self._leases: Dict[int, Lease] = {}
        self._acquiring = True
        self._closed = False
        self._opened: Optional[wire.OpenSessionResponse] = None
        self._open_lock = threading.Lock()
        self._requests = itertools.count(1)
        self._asked = 0  # number of a request that may have been carried out without being answered
        self._outbox: Deque[Tuple[str, Any, Promise[Any]]] = deque()
        self._delivering = False
        self._scope = Scope()  # of acquiring
        self._threads: List[threading.Thread] = []

    @property
    def closed(self) -> bool:
        return self._closed

    # ---- the session

    def open(self, again: bool = False) -> wire.OpenSessionResponse:
        """Opens the session with the daemon, if it is not open."""
        with self._open_lock:
            if self._opened is None or again:
                request = wire.OpenSessionRequest(
                    session=self.session,
                    actor=self.name,
                    engine=self.engine,
                    site=self._site,
                    client=f"forebay-python {package}",
                )
                self._opened = self._connection.call(
                    SERVICE + "OpenSession", request, wire.OpenSessionResponse
                )
                with self._condition:
                    self._condition.notify_all()  # the renewing thread waits for the interval
            return self._opened

    def check_process(self) -> None:
        """Raises RuntimeError in a process that was forked from the keeper's: its threads are not here."""
        if self._pid != os.getpid():
            raise RuntimeError(
                f"actor {self.name} belongs to process {self._pid}, from which this one was forked: "
                "make another with run.actor(...) here"
            )

    def start(self) -> None:
        """Starts the threads; again is harmless."""
        self.check_process()
        with self._condition:
            if self._threads or self._closed:
                return
            for target, purpose in (
                (self._acquire, "acquire"),
                (self._renew, "renew"),
                (self._deliver, "outbox"),
            ):
                thread = threading.Thread(target=target, name=thread_name(purpose), daemon=True)
                self._threads.append(thread)
                thread.start()

    # ---- what assignments call

    def finish(self, lease: Lease) -> bool:
        """Frees the lease's slot; False if that had happened, or is the matter of the process that forked this one."""
        if self._pid != os.getpid():
            return False
        with self._condition:
            if lease.over:
                return False
            lease.over = True
            self._leases.pop(lease.assignment.attempt_id, None)
            free = self._slots - len(self._leases)
            if free == 1 or free >= self._slots // 8:  # what the acquiring thread waits for
                self._slot_freed.notify_all()
            return True

    def release(self, lease: Lease) -> None:
        if self.finish(lease):
            self._post("release", lease)

    def fail(self, lease: Lease, reason: str) -> None:
        if self.finish(lease):
            self._post("fail", (lease, clipped(reason, 1024)))

    def set_reward(self, attempt_id: int, rewards: Dict[str, float]) -> Promise[PushResult]:
        """Raises InvalidRequest for what is no attempt's id. The promise fails as `reward_error` says."""
        request = wire.AttemptReward(attempt_id=attempt_id, rewards=rewards)
        encoded(request, f"the reward of attempt {attempt_id}")  # here, where it is the caller's error
        return self._post("reward", request)

    def report_adoption(self, request: wire.ReportAdoptionRequest) -> Promise[None]:
        """Raises InvalidRequest for a version or a time that is none."""
        request.session = self.session
        encoded(request, "the adoption")
        self.version = request.version or PolicyVersion()
        return self._post("adoption", request)

    def held(self) -> List[Any]:
        """The assignments in the user's hands that are not over."""
        with self._condition:
            holders = [lease.holder for lease in self._leases.values() if lease.holder is not None]
        return [held for held in (holder() for holder in holders) if held is not None]

    # ---- ending

    def stop_acquiring(self, error: Optional[BaseException] = None) -> None:
        """No more assignments; those that nobody took go back. `error` reaches whoever waits for one."""
        if self._pid != os.getpid():
            return
        with self._condition:
            self._acquiring = False
            self._slot_freed.notify_all()
        self._scope.cancel()
        self.handed_out.close(error)
        for lease in self.handed_out.drain():
            self.release(lease)

    def give_back(self) -> None:
        """Takes no more assignments, and gives back those that are held; does not wait."""
        if self._pid != os.getpid():
            return
        self.stop_acquiring()
        for lease in list(self._leases.values()):
            self.release(lease)

    def close(self, timeout: float = 10.0) -> None:
        """Gives everything back and ends the session; waits up to `timeout` seconds for what is on its way."""
        if self._pid != os.getpid():
            return
        deadline = time.monotonic() + timeout
        self.give_back()
        if self._threads:
            self.pusher.flush(max(0.0, deadline - time.monotonic()))
            with self._condition:
                while self._outbox or self._delivering:
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._condition.wait(min(left, threading.TIMEOUT_MAX)):
                        break
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self.pusher.close()

    # ---- acquiring

    def _acquire(self) -> None:
        meter().enter_thread()
        try:
            self._acquire_all()
        except Exception as error:  # whatever it is, whoever waits for an assignment must hear of it
            log.exception("actor %s takes no more assignments", self.name)
            self.stop_acquiring(_errors.InternalError(f"no more assignments can be taken: {error!r}"))
        meter().leave_thread()

    def _acquire_all(self) -> None:
        backoff = Backoff()
        complained = worked = time.monotonic()
        while True:
            with self._condition:
                while self._acquiring and len(self._leases) >= self._slots:
                    self._slot_freed.wait()
                if self._leases and self._slots - len(self._leases) < self._slots // 8:
                    # Few of many slots are free: a moment later there are more, and one call serves them all.
                    self._slot_freed.wait_for(
                        lambda: self._slots - len(self._leases) >= self._slots // 8 or not self._acquiring,
                        ACQUIRE_LINGER_S,
                    )
                if not self._acquiring:
                    break
                free = min(self._slots - len(self._leases), ACQUIRE_MAX)
            try:
                response = self._ask(free)
            except _errors.Cancelled:
                continue
            except (_errors.InvalidRequest, _errors.NotAllowed) as error:
                self.stop_acquiring(error)  # asking again would not help
                break
            except _errors.ForebayError as error:
                self._scope.wait(backoff.next_s())
                self.waiting = str(error)
                if time.monotonic() > complained + COMPLAIN_EVERY_S:
                    log.warning("actor %s gets no assignments: %s", self.name, error)
                    complained = time.monotonic()
                continue
            backoff.reset()
            complained = time.monotonic()
            self._take(response)
            if response.assignments or self._leases:
                worked = time.monotonic()
            elif time.monotonic() > worked + COMPLAIN_EVERY_S:
                log.warning("actor %s has had nothing to do for a while: %s", self.name, self.waiting)
                worked = math.inf  # once is enough, until there is work again
            if not response.assignments:
                self._scope.wait(response.retry_after_ms / 1000)

    def _ask(self, free: int) -> wire.AcquireResponse:
        """One request. It keeps its number until it is answered: asked again, it brings what it brought before."""
        self.open()
        self._asked = self._asked or next(self._requests)
        request = wire.AcquireRequest(
            session=self.session,
            request_id=self._asked,
            max=free,
            sources=self._sources,
            version=self.version,
            loads_any_version=self._loads_any_version,
            wait_ms=int(LONG_POLL_S * 1000),
        )
        try:
            response = self._acquire_call(request)
        except _errors.NotFound:
            # A daemon that started anew does not know the session, or a source is not there yet.
            self.open(again=True)
            response = self._acquire_call(request)
        self._asked = 0
        return response

    def _acquire_call(self, request: wire.AcquireRequest) -> wire.AcquireResponse:
        return self._connection.call(
            SERVICE + "Acquire",
            request,
            wire.AcquireResponse,
            timeout=LONG_POLL_S + 20,
            scope=self._scope,
            wait=True,
        )

    def _take(self, response: wire.AcquireResponse) -> None:
        self.waiting = response.reason if not response.assignments else ""
        sources = {info.source: info for info in response.sources}
        leases = [
            Lease(a, sources.get(a.source) or wire.SourceInfo(source=a.source))
            for a in response.assignments
        ]
        with self._condition:
            acquiring = self._acquiring
            self._leases.update((lease.assignment.attempt_id, lease) for lease in leases)
            self._condition.notify_all()  # the renewing thread: these leases may be shorter
        if acquiring:
            self.handed_out.put(leases)
        else:
            for lease in leases:
                self.release(lease)

    # ---- renewing

    def _renew(self) -> None:
        meter().enter_thread()
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self._opened is not None)
                begin, left = time.monotonic(), 1.0
                while left > 0 and not self._closed:
                    interval = self._renew_interval_s()
                    left = begin + interval - time.monotonic()
                    if left > 0:
                        self._condition.wait(left)
                if self._closed:
                    break
                leases = list(self._leases.values())
            for begin in range(0, max(1, len(leases)), LEASES_PER_CALL):
                try:
                    self._renew_call(leases[begin : begin + LEASES_PER_CALL], interval)
                except Exception as error:  # the thread goes on: other leases, and later renewals, need it
                    log.warning("actor %s could not renew its leases: %s", self.name, error)
        meter().leave_thread()

    def _renew_interval_s(self) -> float:
        """As the daemon says, but often enough for the shortest lease that two renewals may be lost."""
        opened = self._opened or wire.OpenSessionResponse()
        interval = opened.renew_interval_ms / 1000 or RENEW_INTERVAL_S
        shortest = min((lease.assignment.lease_ms for lease in self._leases.values()), default=0)
        return max(min(interval, shortest / 3000), 0.01) if shortest else interval

    def _renew_call(self, leases: List[Lease], interval: float) -> None:
        request = wire.RenewRequest(
            session=self.session,
            attempt_ids=[lease.assignment.attempt_id for lease in leases],
            tokens=[lease.assignment.token for lease in leases],
            generated_tokens=[lease.generated for lease in leases],
            usage=meter().message(),
        )
        response = self._connection.call(
            SERVICE + "Renew", request, wire.RenewResponse, timeout=max(1.0, interval), wait=True
        )
        for lease, action, reason in itertools.zip_longest(
            leases, response.actions, response.reasons[: len(response.actions)]
        ):
            if lease is None or not action:
                continue
            if lease.action == wire.LEASE_ACTION_CONTINUE and not lease.over:
                lease.action, lease.reason = action, reason or ""
                holder = None if lease.holder is None else lease.holder()
                if holder is not None:
                    holder._told()

    # ---- delivering what nobody waits for

    def _post(self, kind: str, item: Any) -> Promise[Any]:
        promise: Promise[Any] = Promise(f"the answer to a {kind}")
        self.start()
        with self._condition:
            if self._closed:
                promise.fail(_errors.Cancelled("the actor is closed"))
                return promise
            self._outbox.append((kind, item, promise))
            self._condition.notify_all()
        return promise

    def _deliver(self) -> None:
        meter().enter_thread()
        while True:
            with self._condition:
                self._delivering = False
                self._condition.notify_all()
                while not self._outbox and not self._closed:
                    self._condition.wait()
                if not self._outbox:
                    break
                batch = list(self._outbox)
                self._outbox.clear()
                self._delivering = True
            for kind in ("adoption", "reward", "fail", "release"):
                entries = [(item, promise) for k, item, promise in batch if k == kind]
                if entries:
                    self._deliver_kind(kind, entries)
        meter().leave_thread()

    def _deliver_kind(self, kind: str, entries: List[Tuple[Any, Promise[Any]]]) -> None:
        try:
            self.open()
            if kind == "adoption":
                for request, promise in entries:
                    request.usage = meter().message()
                    self._connection.call(
                        SERVICE + "ReportAdoption", request, wire.ReportAdoptionResponse, wait=True
                    )
                    promise.resolve(None)
            elif kind == "reward":
                self._deliver_rewards(entries)
            else:
                self._give_back(kind, entries)
        except Exception as error:  # the thread goes on: it delivers for all who come later
            log.warning("actor %s: a %s could not be delivered: %s", self.name, kind, error)
            for _, promise in entries:
                promise._seen = True  # said above
                promise.fail(error)

    def _deliver_rewards(self, entries: List[Tuple[Any, Promise[Any]]]) -> None:
        part: List[Tuple[Any, Promise[Any]]] = []
        nbytes = 0
        for entry in entries:
            part.append(entry)
            nbytes += len(entry[0].encode())
            if len(part) >= REWARDS_PER_CALL or nbytes >= REWARD_BYTES_PER_CALL:
                self._deliver_rewards_of_call(part)
                part, nbytes = [], 0
        if part:
            self._deliver_rewards_of_call(part)

    def _deliver_rewards_of_call(self, part: List[Tuple[Any, Promise[Any]]]) -> None:
        """One call; the daemon refuses it for one wrong reward, so the halves of what is refused are tried."""
        request = wire.SetRewardRequest(session=self.session, rewards=[reward for reward, _ in part])
        repeated = threading.Event()
        try:
            response = self._connection.call(
                SERVICE + "SetReward", request, wire.SetRewardResponse, wait=True, repeated=repeated.set
            )
        except _errors.InvalidRequest as error:
            if len(part) == 1:
                part[0][1].fail(error)
                return
            middle = len(part) // 2
            self._deliver_rewards_of_call(part[:middle])
            self._deliver_rewards_of_call(part[middle:])
            return
        if len(response.results) != len(part):
            raise _errors.InternalError(f"SetReward answered {len(response.results)} of {len(part)} rewards")
        for (reward, promise), result in zip(part, response.results):
            if result == wire.PUSH_RESULT_UNKNOWN and repeated.is_set():
                # The first try may have completed the group, which is over by now.
                result = wire.PUSH_RESULT_LATE
            refused = reward_error(reward, result)
            if refused is None:
                promise.resolve(PushResult(result))
            else:
                promise.fail(refused)

    def _give_back(self, kind: str, entries: List[Tuple[Any, Promise[Any]]]) -> None:
        by_reason: Dict[str, List[Lease]] = {}
        for item, _ in entries:
            lease, reason = item if kind == "fail" else (item, "")
            by_reason.setdefault(reason, []).append(lease)
        for reason, leases in by_reason.items():
            ids = [lease.assignment.attempt_id for lease in leases]
            tokens = [lease.assignment.token for lease in leases]
            if kind == "fail":
                fail = wire.FailRequest(
                    session=self.session, attempt_ids=ids, tokens=tokens, reason=reason
                )
                self._connection.call(SERVICE + "Fail", fail, wire.FailResponse, wait=True)
            else:
                release = wire.ReleaseRequest(session=self.session, attempt_ids=ids, tokens=tokens)
                self._connection.call(SERVICE + "Release", release, wire.ReleaseResponse, wait=True)
        for _, promise in entries:
            promise.resolve(None)


def reward_error(reward: wire.AttemptReward, result: int) -> Optional[_errors.ForebayError]:
    """The exception for a late reward that was not taken; None for one that was, that was there, or that came too late."""
    names = ", ".join(sorted(reward.rewards))
    about = f"of attempt {reward.attempt_id}"
    if result == wire.PUSH_RESULT_INVALID:
        field = f"rewards[{names}]" if len(reward.rewards) == 1 else "rewards"
        return _errors.InvalidRollout(
            field,
            f"{about} is refused: it gives {names or 'nothing'}; it must give rewards that the attempt's source has, "
            "all of them new ones",
        )
    if result == wire.PUSH_RESULT_UNKNOWN:
        return _errors.NotFound(
            f"attempt {reward.attempt_id}: holds no rollout for the rewards [{names}]: it was not pushed yet, "
            "its group is over, or it is of another run"
        )
    if result == wire.PUSH_RESULT_LEASE_LOST:
        return _errors.LeaseLost(f"rewards [{names}] {about}: it was handed out again")
    if result == wire.PUSH_RESULT_STALE:
        return _errors.Stale(f"rewards [{names}] {about}: its versions are over the lag limit, or of an abandoned branch")
    if result not in (wire.PUSH_RESULT_ACCEPTED, wire.PUSH_RESULT_DUPLICATE, wire.PUSH_RESULT_LATE):
        return _errors.InternalError(f"rewards [{names}] {about}: the daemon answered {result}, which is no result")
    return None
