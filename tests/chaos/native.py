"""The actors in C++: started and ended with each round, and what they wrote down. One thread uses it."""

from __future__ import annotations

import pathlib
import subprocess

from calls import OK, REFUSED, UNKNOWN, Call, load_calls
from journal import Journal, Pushed
from load import NATIVE, OFFLINE

END_TIMEOUT_S = 90.0


class Native:
    def __init__(self, programs: pathlib.Path, folder: pathlib.Path, seeds: str, journal: Journal) -> None:
        self._program, self._folder, self._seeds, self._journal = programs / "chaos_actor", folder, seeds, journal
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def _calls(self) -> pathlib.Path:
        return self._folder / f"native-{self._starts}.jsonl"

    def start(self) -> None:
        self._starts += 1
        words = [str(self._program), self._seeds, NATIVE, OFFLINE, str(self._starts << 32), str(self._calls)]
        with (self._folder / "native.log").open("ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def stop(self) -> None:
        """Ends it when nothing of it is in doubt, and takes what it knows over into the journal."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        try:
            code: int | None = self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        self._journal.check("clients_end", code == 0, f"chaos_actor ended with {code}")
        calls = load_calls(self._calls)
        self._journal.calls.add([call for call in calls if call.kind != "error"])
        for call in calls:
            self._take(call)

    def _take(self, call: Call) -> None:
        lost = call.outcome == REFUSED and call.result not in ("stale", "late")
        survives = call.kind != "error" and call.outcome != UNKNOWN and not lost
        self._journal.check("clients_survive", survives, f"{call}")
        if call.kind not in ("push", "push_group") or call.outcome == REFUSED or call.result == "late":
            return
        pushed = Pushed(NATIVE, call.attempt, call.task) if call.kind == "push" else Pushed(OFFLINE, 0, call.task)
        with self._journal as facts:
            for tag in call.tags or [call.tag]:
                (facts.pushed if call.outcome == OK else facts.pushing)[tag] = pushed

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
