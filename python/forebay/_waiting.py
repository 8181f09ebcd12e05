"""How background threads hand results to callers, whether these block or await.

`Promise` is one result, `Mailbox` a queue of items. Both are thread-safe; results reach an event
loop in one call for a whole batch. Locks are reentrant, since a signal's handler may run within.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Generator, Generic, Iterable, List, Optional, Tuple, TypeVar, Union

from ._errors import DeadlineExceeded

log = logging.getLogger("forebay")
T = TypeVar("T")
Loop = asyncio.AbstractEventLoop


def running_loop() -> Optional[Loop]:
    """The event loop of this thread, if it is in one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Unasked:
    """Failures of one cause that nobody asked for: one line for all of them, when the last of their promises is gone."""

    __slots__ = ("_what", "_error", "count")

    def __init__(self, what: str, error: BaseException) -> None:
        self._what, self._error, self.count = what, error, 0

    def __del__(self) -> None:
        if self.count:
            times = f" {self.count} times" if self.count > 1 else ""
            log.warning("%s failed%s, and nobody asked: %s", self._what, times, self._error)


class Promise(Generic[T]):
    """A result that comes later: `await` it, or ask for `.result(timeout)`, or let it be."""

    __slots__ = ("_lock", "_done", "_value", "_error", "_unasked", "_event", "_futures", "_seen", "what")

    def __init__(self, what: str = "the answer") -> None:
        self._lock = threading.RLock()
        self._done = False
        self._value: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._unasked: Optional[_Unasked] = None  # shared with those that failed with it
        self._event: Optional[threading.Event] = None
        self._futures: List[Tuple[Loop, "asyncio.Future[None]"]] = []
        self._seen = False
        self.what = what

    @property
    def done(self) -> bool:
        return self._done

    def result(self, timeout: float = 60.0) -> T:
        """Blocks until the result is there; raises what went wrong, DeadlineExceeded after `timeout` seconds."""
        with self._lock:
            if not self._done and self._event is None:
                self._event = threading.Event()
            event = self._event
        if not self._done and event is not None and not event.wait(min(timeout, threading.TIMEOUT_MAX)):
            self._seen = True
            raise DeadlineExceeded(f"{self.what} did not come within {timeout:g} s")
        return self._take()

    def __await__(self) -> Generator[Any, None, T]:
        return self.wait(None).__await__()

    async def wait(self, timeout: Optional[float]) -> T:
        """As `result`, for event loops."""
        loop = asyncio.get_running_loop()
        with self._lock:
            future = None if self._done else loop.create_future()
            if future is not None:
                self._futures.append((loop, future))
        if future is not None:
            timer = None
            if timeout is not None:
                timer = loop.call_later(timeout, _expire, future, f"{self.what} did not come within {timeout:g} s")
            try:
                await future
            except BaseException:
                self._seen = True  # whoever asked has given up
                raise
            finally:
                if timer is not None:
                    timer.cancel()
        return self._take()

    def _take(self) -> T:
        self._seen = True
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def resolve(self, value: T) -> None:
        settle([(self, value, None)])

    def fail(self, error: BaseException) -> None:
        settle([(self, None, error)])

    def _settle(
        self, value: Any, error: Optional[BaseException], unasked: Optional[_Unasked]
    ) -> List[Tuple[Loop, "asyncio.Future[None]"]]:
        with self._lock:
            if self._done:
                return []
            self._value, self._error, self._unasked, self._done = value, error, unasked, True
            futures, self._futures = self._futures, []
            if self._event is not None:
                self._event.set()
            return futures

    def __del__(self) -> None:
        if self._unasked is not None and not self._seen:
            with _counting:
                self._unasked.count += 1


_counting = threading.RLock()
Settled = Tuple[Promise[Any], Any, Optional[BaseException]]


def settle(results: Iterable[Settled]) -> None:
    """Settles many promises; each event loop is woken once, and failures of one text are told once."""
    by_loop: Dict[Loop, List["asyncio.Future[None]"]] = {}
    causes: Dict[Tuple[str, str], _Unasked] = {}
    for promise, value, error in results:
        unasked = None
        if error is not None:
            cause = (promise.what, str(error))
            unasked = causes.get(cause)
            if unasked is None:
                unasked = causes[cause] = _Unasked(promise.what, error)
        for loop, future in promise._settle(value, error, unasked):
            by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        wake(loop, _set_all, futures)


def wake(loop: Loop, call: Any, *arguments: Any) -> None:
    """Runs `call` on the loop's thread, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:  # closed: nobody waits any more
        pass


def _set_all(futures: List["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _expire(future: "asyncio.Future[None]", message: str) -> None:
    if not future.done():
        future.set_exception(DeadlineExceeded(message))


class Mailbox(Generic[T]):
    """Items in order, for one or many takers."""

    def __init__(self) -> None:
        self._items: Deque[T] = deque()
        self._condition = threading.Condition()
        self._waiters: Deque[Tuple[Loop, "asyncio.Future[None]"]] = deque()
        self._end: Union[None, bool, BaseException] = None

    def put(self, items: Iterable[T]) -> None:
        with self._condition:
            self._items.extend(items)
            self._wake()

    def replace(self, item: T, outdated: Callable[[T], bool]) -> None:
        """Puts an item, and takes those out that it makes needless."""
        with self._condition:
            self._items = deque(held for held in self._items if not outdated(held))
            self._items.append(item)
            self._wake()

    def close(self, error: Optional[BaseException] = None) -> None:
        """No more items: takers that find none get `error`, or the end."""
        with self._condition:
            if self._end is None:
                self._end = error or True
            self._wake()

    def drain(self) -> List[T]:
        """Takes all there is."""
        with self._condition:
            items = list(self._items)
            self._items.clear()
            return items

    def _wake(self) -> None:
        self._condition.notify_all()
        by_loop: Dict[Loop, List["asyncio.Future[None]"]] = {}
        while self._waiters:
            loop, future = self._waiters.popleft()
            by_loop.setdefault(loop, []).append(future)
        for loop, futures in by_loop.items():
            wake(loop, _set_all, futures)

    def _ended(self) -> bool:
        if isinstance(self._end, BaseException):
            raise self._end
        return self._end is not None

    def get(self, timeout: Optional[float] = None) -> Optional[T]:
        """The next item; None at the end, or after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while not self._items:
                left = None if deadline is None else deadline - time.monotonic()
                if self._ended() or (left is not None and left <= 0):
                    return None
                self._condition.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            return self._items.popleft()

    async def aget(self) -> Optional[T]:
        """The next item; None at the end."""
        loop = asyncio.get_running_loop()
        while True:
            with self._condition:
                if self._items:
                    return self._items.popleft()
                if self._ended():
                    return None
                future = loop.create_future()
                self._waiters.append((loop, future))
            await future
