"""Asynchronous twins of what blocks: the same objects, driven on a thread of their own, cancelled with the task."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Callable, Iterator, Optional, Sequence, TypeVar

from ._connection import Scope, scoped, thread_name
from ._drift import DriftPart
from ._micro_batch import MicroBatch
from ._policy import Version
from ._status import Eval, EvalResult
from ._step import MiniBatch, Step
from ._trainer import Trainer

T = TypeVar("T")
_END: Any = object()


async def in_thread(call: Callable[..., T], *arguments: Any, executor: Optional[ThreadPoolExecutor] = None) -> T:
    """Runs a blocking call; when the task is cancelled, so is what the call waits for."""
    scope = Scope()

    def run() -> T:
        with scoped(scope):
            return call(*arguments)

    future = asyncio.get_running_loop().run_in_executor(executor, contextvars.copy_context().run, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        scope.cancel()
        future.add_done_callback(_forget)
        raise


def _forget(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()  # nobody waits for it


async def _each(iterator: Iterator[T], executor: ThreadPoolExecutor) -> AsyncIterator[T]:
    while True:
        item = await in_thread(next, iterator, _END, executor=executor)
        if item is _END:
            return
        yield item


class AsyncEval:
    """See Eval."""

    def __init__(self, sync: Eval) -> None:
        self._sync, self.id = sync, sync.id

    async def result(self) -> EvalResult:
        return await in_thread(self._sync.result)

    async def wait(self, timeout: float = 3600.0) -> EvalResult:
        return await in_thread(self._sync.wait, timeout)


class AsyncMiniBatch:
    """See MiniBatch; `async for mb in mini`."""

    def __init__(self, sync: MiniBatch, executor: ThreadPoolExecutor) -> None:
        self.sync, self._executor = sync, executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sync, name)

    def __aiter__(self) -> AsyncIterator[MicroBatch]:
        return _each(iter(self.sync), self._executor)


class AsyncStep:
    """See Step; `async for mb in step`. What does not wait is as it is there."""

    def __init__(self, sync: Step, executor: ThreadPoolExecutor) -> None:
        self.sync, self._executor = sync, executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sync, name)

    def __str__(self) -> str:
        return str(self.sync)

    def __aiter__(self) -> AsyncIterator[MicroBatch]:
        return _each(iter(self.sync), self._executor)

    def mini_batches(self) -> Sequence[AsyncMiniBatch]:
        return [AsyncMiniBatch(mini, self._executor) for mini in self.sync.mini_batches()]

    async def put(self, mb: MicroBatch, **columns: Any) -> None:
        await in_thread(lambda: self.sync.put(mb, **columns), executor=self._executor)

    async def report(self, mb: MicroBatch, logprobs: Any, reference: Optional[Any] = None) -> bool:
        return await in_thread(lambda: self.sync.report(mb, logprobs, reference), executor=self._executor)

    async def report_parts(
        self, mb: MicroBatch, engine: Sequence[DriftPart], reference: Sequence[DriftPart] = ()
    ) -> bool:
        return await in_thread(lambda: self.sync.report_parts(mb, engine, reference), executor=self._executor)

    async def commit(self) -> Version:
        return await in_thread(self.sync.commit, executor=self._executor)

    async def abort(self, reason: str = "") -> None:
        await in_thread(self.sync.abort, reason, executor=self._executor)


class AsyncTrainer:
    """See Trainer; `async with run.aio.trainer(...) as t: async for step in t.steps(): ...`."""

    def __init__(self, sync: Trainer) -> None:
        self.sync = sync
        # One thread: a Trainer belongs to one.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=thread_name("trainer"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sync, name)

    async def __aenter__(self) -> "AsyncTrainer":
        await in_thread(self.sync.__enter__, executor=self._executor)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await in_thread(self.sync.__exit__, *error, executor=self._executor)
        self._executor.shutdown(wait=False)

    async def steps(self, count: Optional[int] = None) -> AsyncIterator[AsyncStep]:
        async for step in _each(self.sync.steps(count), self._executor):
            yield AsyncStep(step, self._executor)

    async def announce(self, *arguments: Any, **options: Any) -> None:
        await in_thread(lambda: self.sync.announce(*arguments, **options), executor=self._executor)

    async def publish(self, *arguments: Any, **options: Any) -> None:
        await in_thread(lambda: self.sync.publish(*arguments, **options), executor=self._executor)

    async def checkpoint(self, step: Optional[int] = None) -> int:
        return await in_thread(self.sync.checkpoint, step, executor=self._executor)

    async def rewind(self, step: int, replay: bool = False, reason: str = "") -> Version:
        return await in_thread(self.sync.rewind, step, replay, reason, executor=self._executor)
