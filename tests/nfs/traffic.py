"""Actors that push rollouts whose bytes follow from a number, and a trainer that takes each of them and looks at its bytes.

What was acknowledged is written down; it must be trained, once, byte by byte as it was pushed.
"""

from __future__ import annotations

import pathlib
import sys
import threading
import time
from typing import Any

sys.path.append(str(pathlib.Path(__file__).parents[1] / "workload"))
import forebay as fb  # noqa: E402
from content import reward_of, rollout, tag_of, task, wrong_column  # noqa: E402
from journal import Journal, Pushed  # noqa: E402

SOURCE = "math"
ACTORS = 6
STEP_GROUPS = 10
TASKS = 600
MAX_LAG = 1000
CALL_TIMEOUT_S, STEP_TIMEOUT_S = 120.0, 60.0


class Traffic:
    """A run of one-rollout groups. `journal` has what was acknowledged, and takes the checks."""

    def __init__(self, target: str, journal: Journal) -> None:
        self.journal = journal
        self.run = fb.connect(target, timeout=CALL_TIMEOUT_S)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._actor: Any = None

    def prepare(self) -> None:
        self.run.configure(SOURCE, group_size=1, advantage="none", max_lag=MAX_LAG, keep_equal_rewards=True, lease_min_s=120, lease_max_s=240)
        self.run.load(SOURCE, [task(SOURCE, number) for number in range(TASKS)])

    # ---- actors

    def start(self) -> None:
        self._stop.clear()
        self._actor = self.run.sync.actor("pusher", sources=[SOURCE], slots=ACTORS, handle_sigterm=False)
        self._threads = [threading.Thread(target=self._act, args=(self._actor,), daemon=True) for _ in range(ACTORS)]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> None:
        """Ends the actors when nothing of theirs is in doubt."""
        self._stop.set()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        waiting = sum(thread.is_alive() for thread in self._threads)
        self.journal.check("pushes_end", waiting == 0, f"{waiting} pushes were not answered within {timeout:.0f} s")
        self._actor.close(5.0)

    def abandon(self) -> None:
        self._stop.set()
        self.run.close(0.1)

    def _act(self, actor: Any) -> None:
        while not self._stop.is_set():
            try:
                self._push_one(actor)
            except fb.ForebayError as error:
                if self._stop.is_set():
                    return
                self.journal.check("pushes_are_taken", False, f"{type(error).__name__}: {error}")

    def _push_one(self, actor: Any) -> bool:
        assignment = actor.next(timeout=0.5)
        if assignment is None:
            return False
        with assignment:
            tag = self.journal.tag()
            with self.journal as facts:
                facts.pushing[tag] = Pushed(SOURCE, assignment.id, assignment.task_id)
            assignment.push(rollout(tag, assignment.version.number), reward=reward_of(tag))
            self.journal.accepted([tag])
        return True

    def acknowledged(self) -> int:
        with self.journal as facts:
            return len(facts.pushed)

    def await_acknowledged(self, count: int, timeout: float) -> bool:
        """Until `count` are acknowledged in all."""
        deadline = time.monotonic() + timeout
        while self.acknowledged() < count:
            if time.monotonic() > deadline:
                return self.journal.check("pushes_go_on", False, f"{self.acknowledged()} of {count} after {timeout:.0f} s; {self.run.status()}")
            time.sleep(0.02)  # poll: until so many are acknowledged
        return self.journal.check("pushes_go_on", True)

    # ---- the trainer

    def train_all(self, timeout: float) -> None:
        """Takes steps until all that was acknowledged was trained, and covers them with a checkpoint; adds rollouts where a step would lack some."""
        deadline = time.monotonic() + timeout
        with self.run.trainer(groups=STEP_GROUPS, token_budget=4096, sources=[SOURCE], columns=("tokens", "logprobs", "text"), step_timeout=STEP_TIMEOUT_S) as trainer:
            while time.monotonic() < deadline and self._untrained():
                self._fill_up()
                for step in trainer.steps(1):
                    for mb in step:
                        self._take(step.number, mb)
                    step.commit()
            trainer.checkpoint()  # nothing of it is kept for a rewind: files that are gone are missed no more
        left = self._untrained()
        self.journal.check("nothing_is_lost", not left, f"{len(left)} acknowledged rollouts were not trained, as {sorted(left)[:3]}")
        state = self.run.sources()[SOURCE]
        self.journal.check("nothing_is_dropped", not any(state.dropped.values()), str(state.dropped))

    def _untrained(self) -> set[int]:
        with self.journal as facts:
            return set(facts.pushed) - set(facts.trained)

    def _fill_up(self) -> None:
        lacking = STEP_GROUPS - self.run.status().groups_ready
        if lacking <= 0:
            return
        with self.run.sync.actor("filler", sources=[SOURCE], slots=1, handle_sigterm=False) as actor:
            deadline = time.monotonic() + CALL_TIMEOUT_S
            while lacking > 0 and time.monotonic() < deadline:
                lacking -= self._push_one(actor)

    def _take(self, step: int, mb: fb.MicroBatch) -> None:
        for index in range(len(mb)):
            wrong = wrong_column(mb, index)
            self.journal.check("bytes_are_the_same", not wrong, wrong)
            tag = tag_of(mb.sequence("tokens", index))
            with self.journal as facts:
                known = tag in facts.pushed or tag in facts.pushing
                twice = tag in facts.trained
                facts.trained[tag] = step
            self.journal.check("trained_once", known and not twice, f"{tag:#x} in step {step}: {'again' if twice else 'never pushed'}")
