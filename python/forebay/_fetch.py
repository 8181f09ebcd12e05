"""Fetches micro-batches ahead over one stream, within a budget of bytes.

Thread-safe for one consumer. A thread receives while the trainer computes; gRPC's own puts the bytes
into arrays. The next micro-batch is asked for only while fewer bytes than the budget are held and asked for.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, Optional, Sequence, Tuple

import grpc

from . import _errors
from ._connection import Backoff, Connection, Scope, current_scope, may_retry, retry_after_s, thread_name
from ._messages import trainer as wire
from ._micro_batch import Assembly, Buffers, MicroBatch
from ._usage import meter

log = logging.getLogger("forebay")
METHOD = "/forebay.v1.TrainerService/Fetch"
# Beside what `may_retry` says: what gRPC makes of a connection that breaks within a message.
_BROKEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
# Asked for at once: enough to hide a round trip.
REQUESTS_MAX = 4
# Memory that is kept for the next micro-batches.
BUFFERS_BYTES_MAX = 256 << 20


class Fetch:
    """The answers to a list of requests, in order: iterate over it. Closing ends what is under way."""

    def __init__(
        self, fetcher: "Fetcher", requests: Sequence[wire.FetchRequest], timeout: float
    ) -> None:
        self._fetcher, self._timeout = fetcher, timeout
        self.requests = list(requests)
        self.ready: Deque[Tuple[Any, int]] = deque()  # micro-batches and their bytes, or an exception
        self.condition = fetcher.condition
        self.asked = 0  # how many of the requests are on the stream
        self.received = 0
        self.held_bytes = 0
        self.closed = False
        self._taken = 0

    def __iter__(self) -> Iterator[MicroBatch]:
        try:
            while self._taken < len(self.requests):
                yield self.next()
        finally:
            self.close()

    def next(self) -> MicroBatch:
        """The next micro-batch; blocks until it is there."""
        with current_scope().holding(self):
            return self._next()

    def _next(self) -> MicroBatch:
        deadline = time.monotonic() + self._timeout
        with self.condition:
            while not self.ready:
                left = deadline - time.monotonic()
                if self.closed:
                    raise _errors.Cancelled("the fetch was cancelled")
                if left <= 0:
                    which = self.requests[self._taken]
                    raise _errors.DeadlineExceeded(
                        f"micro-batch {which.micro_batch} of mini-batch {which.mini_batch} of step "
                        f"{which.step} did not come within {self._timeout:g} s"
                    )
                self.condition.wait(min(left, threading.TIMEOUT_MAX))
            item, nbytes = self.ready.popleft()
            if isinstance(item, BaseException):
                self.closed = True
                raise item
            self._taken += 1
            self.held_bytes -= nbytes
            self._fetcher._ask()
        return item  # type: ignore[no-any-return]

    def close(self) -> None:
        self._fetcher.drop(self)

    cancel = close


class Fetcher:
    """See the module."""

    def __init__(self, connection: Connection, budget_bytes: int, frame_bytes: int) -> None:
        self._connection, self._budget, self._frame_bytes = connection, budget_bytes, frame_bytes
        self.condition = threading.Condition()
        self._fetches: Deque[Fetch] = deque()  # oldest first
        self._asked: Deque[Tuple[int, Fetch]] = deque()  # on the stream, in order
        self._requests: "queue.SimpleQueue[Optional[bytes]]" = queue.SimpleQueue()
        self._buffers = Buffers(min(budget_bytes, BUFFERS_BYTES_MAX))
        self._assembly: Optional[Assembly] = None  # the answer that is being received
        self._number = 0
        self._typical_bytes = 0
        self._thread: Optional[threading.Thread] = None
        self._scope = Scope()
        self._stream: Any = None
        self._backoff = Backoff()

    def fetch(self, requests: Sequence[wire.FetchRequest], timeout: float) -> Fetch:
        """Begins to fetch; the answers come in order of the requests."""
        fetch = Fetch(self, requests, timeout)
        with self.condition:
            self._fetches.append(fetch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=thread_name("fetch"), daemon=True)
                self._thread.start()
            self._ask()
            self.condition.notify_all()
        return fetch

    def drop(self, fetch: Fetch) -> None:
        """Forgets a fetch; answers that are under way are read and thrown away."""
        with self.condition:
            fetch.closed = True
            fetch.ready.clear()
            if fetch in self._fetches:
                self._fetches.remove(fetch)
            self._ask()
            self.condition.notify_all()

    def close(self) -> None:
        self._scope.cancel()
        self._requests.put(None)
        with self.condition:
            for fetch in self._fetches:
                fetch.closed = True
            self.condition.notify_all()

    def _ask(self) -> None:
        """Puts requests on the stream while the budget allows; the condition is held."""
        if len(self._asked) >= REQUESTS_MAX:
            return
        held = sum(fetch.held_bytes for fetch in self._fetches)
        for fetch in self._fetches:
            while fetch.asked < len(fetch.requests):
                coming = (len(self._asked) + 1) * self._typical_bytes
                requests_max = REQUESTS_MAX if self._typical_bytes else 1  # sizes are not known yet
                if self._asked and (len(self._asked) >= requests_max or held + coming > self._budget):
                    return
                if not self._asked and held and held + coming > self._budget:
                    return  # what is held is taken first
                self._number += 1
                request = fetch.requests[fetch.asked]
                request.id, request.frame_bytes = self._number, self._frame_bytes
                fetch.asked += 1
                self._asked.append((self._number, fetch))
                self._requests.put(request.encode())
                self.condition.notify_all()  # there may be no stream: the last one broke with nothing asked

    # ---- the threads that receive

    def _run(self) -> None:
        meter().enter_thread()
        while not self._scope.cancelled:
            with self.condition:
                while not self._asked and not self._scope.cancelled:
                    self.condition.wait()
            if self._scope.cancelled:
                break
            self._assembly = None
            call = None
            pause = 0.0
            try:
                call = self._connection.stream(METHOD, self._sent(self._requests), "fetch", decode=self._decode)
                with self._scope.holding(call):
                    self._receive(call)
            except grpc.RpcError as error:
                if may_retry(error) or error.code() in _BROKEN:
                    log.info("fetch stream ended (%s); opening it again", error.details())
                    pause = self._backoff.next_s(retry_after_s(error))
                else:
                    self._fail(_errors.from_rpc(error, METHOD))
            except Exception as error:  # whatever it is, whoever waits for a micro-batch must hear of it
                known = isinstance(error, _errors.ForebayError)
                self._fail(error if known else _errors.InternalError(f"fetching failed: {error!r}"))
                if call is not None:
                    call.cancel()
            self._ask_again()
            if call is not None:
                self._connection.pause(pause, self._scope, call.revision)
        meter().leave_thread()

    @staticmethod
    def _sent(requests: "queue.SimpleQueue[Optional[bytes]]") -> Iterator[bytes]:
        while True:
            request = requests.get()
            if request is None:
                return
            yield request

    def _receive(self, call: Any) -> None:
        for answer in call:
            self._backoff.reset()
            if isinstance(answer, Exception):
                raise answer
            if answer:
                self._answered(*answer)

    def _decode(self, body: bytes) -> Any:
        """On gRPC's thread, whose core has the bytes in its cache: see _taken. What that raises is returned."""
        begin = time.thread_time()
        try:
            return self._taken(body)
        except _errors.ForebayError as error:
            return error
        except Exception as error:  # of the decoder: these bytes are no answer
            return _errors.InternalError(f"fetch was answered with what cannot be read: {error!r}")
        finally:
            meter().spent(time.thread_time() - begin)

    def _taken(self, body: bytes) -> Tuple[Any, ...]:
        """Takes one frame: with the last one of an answer the arguments of _answered, before that nothing."""
        frame = wire.FetchFrame.decode(body, views=True)
        number, fetch = self._asked[0]
        if frame.id != number:
            raise _errors.InternalError(f"fetch was answered with id {frame.id}, expected {number}")
        if frame.error_code:
            self._assembly = None
            return fetch, _errors.from_number(frame.error_code, frame.error_message, METHOD), 0
        if frame.layout is not None:
            self._assembly = Assembly(frame.layout, self._buffers)
            if not frame.last:
                self._expect(self._assembly.nbytes)
        if self._assembly is None:
            raise _errors.InternalError("the first frame of a micro-batch has no layout")
        if frame.data:
            self._assembly.take(memoryview(frame.data))
        if not frame.last:
            return ()
        assembly, self._assembly = self._assembly, None
        request = fetch.requests[fetch.received]
        meter().fetched(assembly.nbytes)
        return fetch, assembly.finish(request.mini_batch, request.micro_batch), assembly.nbytes

    def _expect(self, nbytes: int) -> None:
        with self.condition:
            self._typical_bytes = max(1, nbytes, self._typical_bytes * 7 // 8)
            self._ask()

    def _answered(self, fetch: Fetch, item: Any, nbytes: int) -> None:
        with self.condition:
            self._asked.popleft()
            fetch.received += 1
            if isinstance(item, MicroBatch):
                self._typical_bytes = max(1, nbytes, self._typical_bytes * 7 // 8)
            if not fetch.closed:
                fetch.ready.append((item, nbytes))
                fetch.held_bytes += nbytes
            if fetch.received == len(fetch.requests) and not fetch.ready and fetch in self._fetches:
                self._fetches.remove(fetch)
            self._ask()
            self.condition.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self.condition:
            for fetch in {id(f): f for _, f in self._asked}.values():
                fetch.ready.append((error, 0))
                fetch.asked = fetch.received = len(fetch.requests)
            self._asked.clear()
            self.condition.notify_all()

    def _ask_again(self) -> None:
        """A stream that broke: the same requests go on the next one, and bring the same bytes."""
        with self.condition:
            self._requests.put(None)  # ends what the old stream waits for
            self._requests = queue.SimpleQueue()
            lost: Dict[int, Fetch] = {id(fetch): fetch for _, fetch in self._asked}
            self._asked.clear()
            for fetch in lost.values():
                fetch.asked = fetch.received
            self._ask()


def requests_of(
    template: Dict[str, Any],
    places: Sequence[Tuple[int, int]],
    columns: List[List[str]],
    slices: Dict[str, wire.ColumnSlice],
) -> List[wire.FetchRequest]:
    """Requests for (mini-batch, micro-batch) places, each with its columns and what is taken of them."""
    return [
        wire.FetchRequest(
            **template,
            mini_batch=mini,
            micro_batch=micro,
            columns=names,
            slices=[slices[name] for name in names if name in slices],
        )
        for (mini, micro), names in zip(places, columns)
    ]
