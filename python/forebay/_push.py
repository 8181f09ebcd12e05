"""Pushes rollouts over one stream: small ones share a frame, large ones take several.

Thread-safe. A Pusher owns two threads, started with the first rollout: gRPC's, which asks for
frames, and the one that reads replies and opens the stream anew after it broke. What was not
acknowledged is then sent again; the daemon tells duplicates by their attempt. When the daemon refuses
a frame as a whole, each rollout that may have been in it goes alone, so that only the wrong one fails.
"""

from __future__ import annotations

import enum
import logging
import struct
import threading
import time
from collections import deque
from typing import Any, Deque, Iterator, List, Optional

import grpc
import numpy as np

from . import _errors
from ._connection import Backoff, Connection, Scope, may_retry, retry_after_s, thread_name
from ._messages import actor as wire
from ._messages.types import RolloutHeader
from ._rollout import header_bytes
from ._usage import meter
from ._waiting import Promise, Settled, settle
from ._wire import varint

log = logging.getLogger("forebay")
METHOD = "/forebay.v1.ActorService/Push"
GROUP_METHOD = "/forebay.v1.ActorService/PushGroup"
# Payload bytes of a frame; rollouts that are larger go in several. Smaller ones cost more: each wakes four threads.
FRAME_BYTES = 4_000_000
# Encoded headers of a frame, as many as one rollout may have. With the payload they stay far below MESSAGE_BYTES_MAX.
FRAME_HEADER_BYTES_MAX = 1 << 20
FRAME_ROLLOUTS_MAX = 1024
# Sent and not acknowledged. The daemon reads no further than 64 frames or 32 MiB.
IN_FLIGHT_BYTES_MAX = 24 << 20
IN_FLIGHT_FRAMES_MAX = 48
# While other frames are unacknowledged, a frame that is not full waits this long for more.
LINGER_S = 0.001
COMPLAIN_EVERY_S = 30.0
# What a stream ends with that is worth another try, beside what `may_retry` says.
_BROKEN = (
    grpc.StatusCode.INTERNAL,  # what gRPC makes of a connection that breaks within a message
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
)
# A frame that ended the stream with one of these will do so again; see `may_retry` for the second.
_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
_FIXED64 = struct.Struct("<Q")


class PushResult(enum.Enum):
    """What became of a rollout that was taken."""

    ACCEPTED = wire.PUSH_RESULT_ACCEPTED
    DUPLICATE = wire.PUSH_RESULT_DUPLICATE  # it was in already
    LATE = wire.PUSH_RESULT_LATE  # its group was done without it: counted, not trained


def broke(error: grpc.RpcError) -> bool:
    """Whether a stream of pushes ended in a way that another one can mend."""
    return may_retry(error) or error.code() in _BROKEN


class Outgoing:
    """One rollout on its way. Raises InvalidRollout if its header is larger than the daemon takes."""

    __slots__ = ("header", "parts", "nbytes", "header_nbytes", "alone", "promise", "attempt_id")

    def __init__(self, header: RolloutHeader, parts: List[Any]) -> None:
        self.header = header_bytes(header)
        self.parts = parts
        self.nbytes = sum(part.nbytes for part in parts)  # of the payload
        self.header_nbytes = len(self.header) + 8  # with its tag and length
        self.alone = False  # has a frame for itself, and nothing else is under way: see Pusher._take_error
        self.attempt_id = header.attempt_id
        self.promise: Promise[PushResult] = Promise("the acknowledgement of a push")


class _Frame:
    """A message that was sent: `nbytes` of payload and headers; the reply to the `last` one ends its rollouts."""

    __slots__ = ("rollouts", "nbytes", "last")

    def __init__(self, rollouts: List[Outgoing], nbytes: int, last: bool) -> None:
        self.rollouts, self.nbytes, self.last = rollouts, nbytes, last


class Pusher:
    """See the module."""

    def __init__(self, connection: Connection, session: int) -> None:
        self._connection, self._session = connection, session
        self._condition = threading.Condition()
        self._queue: Deque[Outgoing] = deque()
        self._frames: Deque[_Frame] = deque()  # sent, not answered
        self._half_sent: List[Outgoing] = []  # the large rollout that is being cut into frames
        self._in_flight_bytes = 0
        self._stream = 0  # number of the stream that may take from the queue
        self._frame_number = 0
        self._closed = False
        self._thread: Optional[threading.Thread] = None
        self._scope = Scope()
        self._broken_since: Optional[float] = None  # streams have broken since then without a reply
        self._complained = 0.0

    def push(self, rollout: Outgoing) -> None:
        with self._condition:
            if self._closed:
                raise _errors.Cancelled("the actor is closed")
            self._queue.append(rollout)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=thread_name("push"), daemon=True
                )
                self._thread.start()
            if len(self._queue) == 1 and self._may_begin():  # else the stream's thread is busy, or waits for replies
                self._condition.notify_all()

    def forget(self, rollout: Outgoing) -> None:
        """Takes a rollout back if it was not sent yet."""
        with self._condition:
            if rollout in self._queue:
                self._queue.remove(rollout)

    def flush(self, timeout: float) -> bool:
        """Waits until everything is acknowledged; False if it took too long."""
        deadline = time.monotonic() + timeout
        with self._condition:
            while self._queue or self._frames or self._half_sent:
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                self._condition.wait(min(left, threading.TIMEOUT_MAX))
        return True

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._stream += 1
            left = [*self._unanswered(), *self._half_sent, *self._queue]
            self._half_sent = []
            self._queue.clear()
            self._frames.clear()
            self._condition.notify_all()
        self._scope.cancel()
        settle([(r.promise, None, _errors.Cancelled("the actor is closed")) for r in left])

    # ---- the thread that reads replies

    def _run(self) -> None:
        meter().enter_thread()
        backoff = Backoff()
        while True:
            with self._condition:
                while not self._queue and not self._closed:
                    self._condition.wait()
                if self._closed:
                    break
                self._stream += 1
                number = self._stream
            call = self._connection.stream(METHOD, self._requests(number), "push")
            pause = 0.0
            try:
                with self._scope.holding(call):
                    for reply in call:
                        backoff.reset()
                        self._broken_since = None
                        self._take_reply(wire.PushReply.decode(reply))
            except grpc.RpcError as error:
                pause = self._take_error(error, backoff)
            except Exception:  # a reply that cannot be read, say: without this thread no push would ever end
                log.exception("push stream ended; opening it again")
                call.cancel()
                pause = backoff.next_s()
            self._send_again()
            self._connection.pause(pause, self._scope, call.revision)
        meter().leave_thread()

    def _take_reply(self, reply: wire.PushReply) -> None:
        with self._condition:
            if not self._frames:
                return  # closed meanwhile
            frame = self._frames.popleft()
            self._in_flight_bytes -= frame.nbytes
            if self._queue or self._half_sent or not self._frames:
                self._condition.notify_all()
        if not frame.last:
            return
        refused = {outcome.index: outcome for outcome in reply.outcomes}
        results: List[Settled] = []
        taken_bytes = 0
        for index, rollout in enumerate(frame.rollouts):
            outcome = refused.get(index)
            error = None if outcome is None else error_of(outcome)
            value = PushResult(outcome.result) if outcome and not error else PushResult.ACCEPTED
            if error is None:
                taken_bytes += rollout.nbytes
            results.append((rollout.promise, value, error))
        meter().pushed(taken_bytes)
        settle(results)

    def _take_error(self, error: grpc.RpcError, backoff: Backoff) -> float:
        """Pause before the next stream.

        A refusal of one frame says nothing of the others that were under way: all go again, one at a time, and what is
        refused alone has failed. What else no repetition can mend fails everything that was sent.
        """
        if broke(error):
            self._complain(error)
            return backoff.next_s(retry_after_s(error))
        refused = error.code() in _REFUSED
        with self._condition:
            sent = [*self._unanswered(), *self._half_sent]
            if refused and len(sent) > 1:
                for rollout in sent:
                    rollout.alone = True
                log.warning("the daemon refused a frame; its %d rollouts go one by one: %s", len(sent), error.details())
                return 0.0
            self._half_sent = []
            self._frames.clear()
            self._in_flight_bytes = 0
        failure: Exception = _errors.from_rpc(error, METHOD)
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            failure = _errors.InvalidRollout("rollout", f"is refused by the daemon: {error.details()}")
        settle([(rollout.promise, None, failure) for rollout in sent])
        return backoff.next_s()

    def _complain(self, error: grpc.RpcError) -> None:
        """Says that streams break; louder when that has gone on for long."""
        if self._closed:
            return
        now = time.monotonic()
        if self._broken_since is None:
            self._broken_since = self._complained = now
        if now > self._complained + COMPLAIN_EVERY_S:
            with self._condition:
                waiting = len(self._unanswered()) + len(self._half_sent) + len(self._queue)
            log.warning(
                "pushes wait (%d): their streams have broken for %.0f s: %s",
                waiting,
                now - self._broken_since,
                error.details(),
            )
            self._complained = now
        else:
            log.info("push stream ended (%s); opening it again", error.details())

    def _unanswered(self) -> List[Outgoing]:
        return [rollout for frame in self._frames if frame.last for rollout in frame.rollouts]

    def _send_again(self) -> None:
        with self._condition:
            self._stream += 1  # the old stream takes nothing more
            self._queue.extendleft(reversed([*self._unanswered(), *self._half_sent]))
            self._half_sent = []
            self._frames.clear()
            self._in_flight_bytes = 0
            self._condition.notify_all()

    # ---- gRPC's thread, which asks for frames

    def _requests(self, stream: int) -> Iterator[bytes]:
        meter().enter_thread()
        try:
            while True:
                rollouts = self._next_rollouts(stream)
                if not rollouts:
                    return
                yield from self._frames_of(rollouts, stream)
        finally:
            meter().leave_thread()

    def _next_rollouts(self, stream: int) -> List[Outgoing]:
        """What goes into the next frame: full, or all there is; nothing when the stream is over."""
        with self._condition:
            lingered = False
            while self._stream == stream:
                if not self._queue or not self._may_begin():
                    self._condition.wait()
                elif not lingered and self._frames and not self._fills_a_frame():
                    self._condition.wait(LINGER_S)
                    lingered = True  # meanwhile all of them may have been taken back
                else:
                    break
            if self._stream != stream:
                return []
            rollouts: List[Outgoing] = []
            nbytes = headers = 0
            while self._queue and len(rollouts) < FRAME_ROLLOUTS_MAX:
                following = self._queue[0]
                nbytes += following.nbytes
                headers += following.header_nbytes
                fits = nbytes <= FRAME_BYTES and headers <= FRAME_HEADER_BYTES_MAX and not following.alone
                if rollouts and not fits:
                    nbytes -= following.nbytes
                    headers -= following.header_nbytes
                    break
                rollouts.append(self._queue.popleft())
                if following.alone:
                    break
            if nbytes <= FRAME_BYTES:
                self._sent(rollouts, nbytes + headers, True)
            else:
                self._half_sent = rollouts
            return rollouts

    def _fills_a_frame(self) -> bool:
        if len(self._queue) >= FRAME_ROLLOUTS_MAX:
            return True
        nbytes = headers = 0
        for rollout in self._queue:
            nbytes += rollout.nbytes
            headers += rollout.header_nbytes
            if nbytes >= FRAME_BYTES // 2 or headers >= FRAME_HEADER_BYTES_MAX // 2:
                return True
        return False

    def _may_begin(self) -> bool:
        """Whether what is first in the queue may be sent now."""
        if not self._frames:
            return True
        return self._has_room() and not self._queue[0].alone and not self._frames[-1].rollouts[0].alone

    def _has_room(self) -> bool:
        return len(self._frames) < IN_FLIGHT_FRAMES_MAX and (
            not self._frames or self._in_flight_bytes < IN_FLIGHT_BYTES_MAX
        )

    def _sent(self, rollouts: List[Outgoing], nbytes: int, last: bool) -> None:
        self._frames.append(_Frame(rollouts, nbytes, last))
        self._in_flight_bytes += nbytes
        self._frame_number += 1

    def _frames_of(self, rollouts: List[Outgoing], stream: int) -> Iterator[bytes]:
        headers = b"".join(b"\x1a" + varint(len(r.header)) + r.header for r in rollouts)
        nbytes = sum(rollout.nbytes for rollout in rollouts)
        parts = [part for rollout in rollouts for part in rollout.parts]
        if nbytes <= FRAME_BYTES:
            yield frame_bytes(self._head() + headers, parts, nbytes)
            return
        sent = 0
        for pieces, size in slices(parts, FRAME_BYTES):
            sent += size
            with self._condition:
                while self._stream == stream and not self._has_room():
                    self._condition.wait()
                if self._stream != stream:
                    return
                self._sent(rollouts, size + len(headers), sent == nbytes)
                if sent == nbytes:
                    self._half_sent = []
                head = self._head()
            yield frame_bytes(head + headers, pieces, size)
            headers = b""

    def _head(self) -> bytes:
        return b"\x09" + _FIXED64.pack(self._session) + b"\x10" + varint(self._frame_number)


def frame_bytes(head: bytes, parts: List[Any], nbytes: int) -> bytes:
    """A PushFrame: its small fields, then the payload's parts, copied once."""
    if not nbytes:
        return head
    return b"".join((head, b"\x22", varint(nbytes), *parts))


def slices(parts: List[Any], size: int) -> Iterator[Any]:
    """The parts' bytes cut into pieces of `size`: (views, bytes) each."""
    views: List[Any] = []
    room = size
    for part in parts:
        view = part.reshape(-1).view(np.uint8)
        while view.nbytes:
            taken = view[:room]
            views.append(taken)
            view = view[room:]
            room -= taken.nbytes
            if not room:
                yield views, size
                views, room = [], size
    if views:
        yield views, size - room


def error_of(outcome: wire.PushOutcome) -> Optional[Exception]:
    """The exception for an outcome, if it is one."""
    text = outcome.message
    if outcome.result == wire.PUSH_RESULT_INVALID:
        return _errors.InvalidRollout(outcome.field, text)
    if outcome.result == wire.PUSH_RESULT_LEASE_LOST:
        return _errors.LeaseLost(text or "the lease ended and the attempt was handed out again")
    if outcome.result == wire.PUSH_RESULT_STALE:
        return _errors.Stale(text or "the rollout's versions are over the lag limit")
    if outcome.result == wire.PUSH_RESULT_UNKNOWN:
        return _errors.LeaseLost(text or "the daemon does not know the attempt (any more)")
    return None
