"""What the clients know for certain: every acknowledgement, written down before the next kill. Thread-safe.

A request whose answer is not there yet is in doubt: it may or may not have taken effect.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from calls import Calls


@dataclass
class Pushed:
    source: str
    attempt: int  # 0: of a group that was pushed whole
    task_id: str


@dataclass
class SealedStep:
    number: int
    revision: int
    generation: int
    plan_hash: int
    groups: int
    micro_batches: list[int]  # of each mini-batch
    digests: dict[tuple[int, int], str] = field(default_factory=dict)
    tags: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    put: dict[tuple[int, int], bytes] = field(default_factory=dict)  # old_logprobs, acknowledged

    @property
    def complete(self) -> bool:
        return len(self.digests) == sum(self.micro_batches)

    def all_tags(self) -> list[int]:
        return [tag for tags in self.tags.values() for tag in tags]


@dataclass
class Facts:
    """What is known at one moment."""

    pushed: dict[int, Pushed] = field(default_factory=dict)  # by tag
    pushing: dict[int, Pushed] = field(default_factory=dict)  # in doubt
    evaluated: int = 0
    partials: dict[int, tuple[int, int]] = field(default_factory=dict)  # attempt: tag and version of what was saved
    floor: int = 0  # newest version that a step may have made
    sealed: SealedStep | None = None  # the step that is trained now
    committing: SealedStep | None = None  # in doubt
    committed: dict[int, int] = field(default_factory=dict)  # step: plan hash
    trained: dict[int, int] = field(default_factory=dict)  # tag: step
    attaching: bool = False
    generation: int = 0
    published: int = 0
    publishing: int | None = None
    tasks: dict[str, set[str]] = field(default_factory=dict)
    adding: dict[str, set[str]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)  # sources whose settings are in doubt
    evals: dict[int, Any] = field(default_factory=dict)  # complete results by run
    groups: list[tuple[Any, list[int], int]] = field(default_factory=list)  # pushed whole: header, tags, session
    trained_sources: tuple[str, ...] = ()  # that steps take from


class Journal:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.facts = Facts()
        self.calls = Calls()
        self.failures: list[str] = []
        self.checked: dict[str, int] = {}
        self.failed_checks: set[str] = set()
        self.quiet = False
        self._next_tag = 1

    def __enter__(self) -> Facts:
        self._lock.acquire()
        return self.facts

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def snapshot(self) -> Facts:
        with self._lock:
            return copy.deepcopy(self.facts)

    def tag(self) -> int:
        with self._lock:
            self._next_tag += 1
            return self._next_tag | self._next_tag * 0x9E3779B1 % (1 << 31) << 32

    def check(self, name: str, holds: bool, why: str = "") -> bool:
        """Counts a check; tells of one that fails at once."""
        with self._lock:
            self.checked[name] = self.checked.get(name, 0) + 1
            if not holds:
                self.failed_checks.add(name)
                self.failures.append(f"{name}: {why}")
                if len(self.failures) <= 40 and not self.quiet:
                    print(f"FAILED {time.strftime('%H:%M:%S')} {name}: {why}", flush=True)
        return holds

    def accepted(self, tags: Iterable[int]) -> None:
        with self._lock:
            for tag in tags:
                self.facts.pushed[tag] = self.facts.pushing.pop(tag)

    def commit_acknowledged(self, step: SealedStep) -> None:
        """Also checks that no rollout was trained before."""
        with self._lock:
            facts = self.facts
            twice = [tag for tag in step.all_tags() if tag in facts.trained]
            self.check("trained_once", not twice, f"step {step.number} holds {twice[:3]}, trained before")
            newest = max(facts.committed, default=0)
            self.check("steps_in_order", step.number == newest + 1, f"{step.number} was committed after {newest}")
            facts.trained.update((tag, step.number) for tag in step.all_tags())
            facts.committed[step.number] = step.plan_hash
            facts.committing = facts.sealed = None
