"""What each client asked and what it was told, call by call. Records are plain values; Calls is thread-safe."""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import forebay as fb

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"


@dataclass
class Call:
    """Times are steady, in seconds. What a kind of call does not have is 0 or empty."""

    client: str
    kind: str
    begin: float
    end: float = 0.0  # when the client knew the outcome, or gave up
    outcome: str = UNKNOWN  # ok, refused; unknown: it may or may not have taken effect
    result: str = ""  # of what is ok: "accepted", "duplicate", "late", "committed", "repeated", ...
    attempt: int = 0
    task: str = ""
    lease: str = ""  # the same for all calls under one lease, and for no others
    tag: int = 0  # of a rollout
    branch: int = 0
    step: int = 0
    revision: int = 0
    generation: int = 0
    plan: int = 0
    place: list[int] = field(default_factory=list)  # mini-batch and index within
    digest: str = ""  # of what was fetched
    tags: list[int] = field(default_factory=list)  # of the rollouts in it
    version: int = 0


class Calls:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Call] = []

    @contextlib.contextmanager
    def record(self, kind: str, **what: Any) -> Iterator[Call]:
        """Of the thread that calls; an exception says whether it was refused, or nobody knows."""
        thread = threading.current_thread()
        call = Call(f"{thread.name}-{thread.native_id}", kind, time.monotonic(), **what)
        try:
            yield call
            if call.outcome == UNKNOWN:
                call.outcome = OK
        except (fb.Unavailable, fb.DeadlineExceeded, fb.Cancelled, fb.InternalError):
            raise
        except fb.ForebayError as error:
            call.outcome, call.result = REFUSED, type(error).__name__
            raise
        finally:
            call.end = time.monotonic()
            self.add([call])

    def add(self, calls: list[Call]) -> None:
        with self._lock:
            self._all += calls

    def all(self) -> list[Call]:
        with self._lock:
            return list(self._all)

    def save(self, path: pathlib.Path) -> None:
        path.write_text("".join(json.dumps(asdict(call)) + "\n" for call in self.all()))


def load_calls(path: pathlib.Path) -> list[Call]:
    """From a file with a call a line; a last line that was cut off is left out, as if the call had not been made."""
    lines = path.read_text().split("\n")[:-1]
    return [Call(**json.loads(line)) for line in lines]
