"""An actor of few words: it holds leases over a kill, and repeats itself. One thread uses it.

It speaks the wire's messages, since the package hides repetitions from its users.
"""

from __future__ import annotations

import time
from typing import Any

import forebay as fb
from calls import OK, REFUSED, Call
from content import reward_of, rollout
from forebay._connection import random_id
from forebay._messages import actor as wire
from forebay._push import Outgoing, Pusher
from journal import Journal, Pushed
from load import CALL_TIMEOUT_S, TRAIN

SERVICE = "/forebay.v1.ActorService/"
HELD_LEASES = 3
REMEMBERED = 12


class Holder:
    def __init__(self, target: str, journal: Journal) -> None:
        self._journal = journal
        self.run = fb.connect(target, timeout=CALL_TIMEOUT_S)
        self._session = random_id()
        self._request_id = 0
        self._held: list[Any] = []
        self._asked: Any = None
        self._pushed: list[tuple[Any, int, int]] = []  # assignment, tag, version
        self._pusher = Pusher(self.run._connection, self._session)
        self._call("OpenSession", wire.OpenSessionRequest(session=self._session, actor="holder"), wire.OpenSessionResponse)

    def _call(self, method: str, request: Any, response: Any) -> Any:
        return self.run._connection.call(SERVICE + method, request, response, timeout=CALL_TIMEOUT_S, wait=True)

    def take_leases(self) -> None:
        """Before the kill."""
        self._request_id += 1
        self._asked = wire.AcquireRequest(
            session=self._session, request_id=self._request_id, max=HELD_LEASES, sources=[TRAIN], wait_ms=2000
        )
        begin = time.monotonic()
        self._held = list(self._call("Acquire", self._asked, wire.AcquireResponse).assignments)
        self._record("grant", begin, self._held)

    def check(self) -> None:
        """After the restart: the same answer, leases that go on, pushes that are taken once."""
        self._repeat_acquire()
        self._renew()
        for a in self._held:
            self._push(a)
        self._held = []
        self._push_again()

    def _repeat_acquire(self) -> None:
        if not self._held:
            return
        again = self._call("Acquire", self._asked, wire.AcquireResponse).assignments
        same = [(a.attempt_id, a.token, a.seed, a.external_id, a.payload) for a in again]
        first = [(a.attempt_id, a.token, a.seed, a.external_id, a.payload) for a in self._held]
        ids = [[(hex(entry[0]), entry[1]) for entry in answer] for answer in (first, same)]
        self._journal.check("acquire_repeated", same == first, f"was answered with {ids[0]}, then with {ids[1]}")

    def _renew(self) -> None:
        if not self._held:
            return
        request = wire.RenewRequest(
            session=self._session, attempt_ids=[a.attempt_id for a in self._held], tokens=[a.token for a in self._held]
        )
        begin = time.monotonic()
        answer = self._call("Renew", request, wire.RenewResponse)
        actions = answer.actions or [wire.LEASE_ACTION_CONTINUE] * len(self._held)
        go_on = [a for a, action in zip(self._held, actions, strict=True) if action == wire.LEASE_ACTION_CONTINUE]
        self._record("renew", begin, go_on)
        # Also a task that failed too often: then the run goes on without it.
        lost = [r for r in answer.reasons if r not in ("", "too_stale", "group_done", "task_removed")]
        self._journal.check("leases_go_on", not lost, f"renewals were answered {lost}")

    def _record(self, kind: str, begin: float, assignments: list[Any]) -> None:
        end = time.monotonic()
        self._journal.calls.add([Call("holder", kind, begin, end, OK, attempt=a.attempt_id, lease=lease_of(a)) for a in assignments])

    def _send(self, a: Any, tag: int, version: int) -> Any:
        header, parts = rollout(tag, version)._encode(a.branch, {"reward": reward_of(tag)})
        header.attempt_id, header.token = a.attempt_id, a.token
        outgoing = Outgoing(header, parts)
        self._pusher.push(outgoing)
        try:
            return outgoing.promise.result(CALL_TIMEOUT_S)
        except (fb.Stale, fb.LeaseLost) as error:
            return error

    def _push(self, a: Any) -> None:
        tag = self._journal.tag()
        with self._journal as facts:
            facts.pushing[tag] = Pushed(TRAIN, a.attempt_id, a.external_id)
        with self._journal.calls.record("push", tag=tag, attempt=a.attempt_id, lease=lease_of(a)) as call:
            result = self._send(a, tag, a.version)
            refused = isinstance(result, fb.ForebayError)
            call.outcome, call.result = (REFUSED, type(result).__name__) if refused else (OK, result.name.lower())
        taken = result is fb.PushResult.ACCEPTED or result is fb.PushResult.DUPLICATE
        self._journal.check("leases_go_on", not isinstance(result, fb.LeaseLost), f"a push was answered with {result!r}")
        if not taken:
            with self._journal as facts:
                del facts.pushing[tag]
            return
        self._journal.accepted([tag])
        self._pushed = [*self._pushed[-REMEMBERED:], (a, tag, a.version)]

    def _push_again(self) -> None:
        """What is in already, of this process of the daemon or of one before, is never taken again."""
        for a, tag, version in self._pushed:
            result = self._send(a, tag, version)
            good = result in (fb.PushResult.DUPLICATE, fb.PushResult.LATE) or isinstance(result, fb.LeaseLost)
            self._journal.check("push_repeated", good, f"a push that was in was answered with {result!r}")

    def close(self) -> None:
        for a in self._held:
            request = wire.ReleaseRequest(session=self._session, attempt_ids=[a.attempt_id], tokens=[a.token])
            with self._journal.calls.record("give_back", attempt=a.attempt_id, lease=lease_of(a)):
                self._call("Release", request, wire.ReleaseResponse)
        self._pusher.close()
        self.run.close(1.0)


def lease_of(a: Any) -> str:
    return f"{a.attempt_id:x}/{a.token:x}"
