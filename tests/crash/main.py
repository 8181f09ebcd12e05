"""Kills a loaded daemon at random instants, starts it again on the same directory, and looks for what was lost.

    ./dev test crash --rounds 500 [--seed S]

A round: the load runs; at a random instant the daemon is killed with -9, now and then once more while it recovers;
it is started again; what it holds is held against the journal of acknowledgements; the load goes on. A run has a
directory, a number of shards and limits of its own; its last round ends the load, and looks at it at rest. The seed
replays settings, loads and the schedule of kills, as far as time allows. Ends with `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import collections
import logging
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "workload")]
import forebay as fb  # noqa: E402
from daemon import Daemon, StartFailed  # noqa: E402
from holder import Holder  # noqa: E402
from journal import Journal  # noqa: E402
from load import Load  # noqa: E402
from look import Look  # noqa: E402

SABOTAGES_MAX = 6
ROUNDS_PER_RUN = 10
KILL_AFTER_S = (0.2, 3.0)
PROGRESS_S = 60.0
LOG_SLACK_BYTES = 3 << 20  # files are cut whole, and each life has its own
LOOK_SHARE, KILL_IN_RECOVERY_SHARE = 0.7, 0.3


class Crash:
    """One run of the system, and its rounds."""

    def __init__(self, binary: str, folder: pathlib.Path, seed: str, rounds: int) -> None:
        self.rng = random.Random(seed)
        self.journal = Journal()
        self.rounds = rounds
        self.recovery_s: list[float] = []
        self.moved = {"written": 0.0, "evicted": 0.0, "read_back": 0.0}
        self.base = {
            "shards": str(self.rng.choice([1, 2])),
            "memory.payload_bytes_max": self.rng.choice(["8MiB", "16MiB", "64MiB"]),
            "storage.segment_bytes": "1MiB",
            "storage.snapshot_log_bytes": self.rng.choice(["64KiB", "256KiB"]),
        }
        self.daemon = Daemon(binary, folder, self.base)
        self.load = Load(self.daemon.target(self.daemon.port), self.journal, self.rng.getrandbits(32), self.rng.choice([0, 1]))
        self.holder: Holder | None = None
        self.sabotage, self.ends = False, True
        self.kill_after_s, self.look_share = KILL_AFTER_S, LOOK_SHARE

    def _settle(self) -> None:
        """Settings that may differ from start to start."""
        self.daemon.config = {
            **self.base,
            "storage.io": self.rng.choice(["auto", "auto", "threads"]),
            "storage.gc_grace_ms": self.rng.choice(["0", "500"]),
            "storage.cold_columns": self.rng.choice(["text", ""]),
            "renew.interval_ms": "1000",
        }

    def _start(self, port: int) -> None:
        self.recovery_s.append(self.daemon.start(port))

    def run(self) -> bool:
        """False if it could not be ended, so that the directory is worth a look."""
        print(f"-- {' '.join(f'{k}={v}' for k, v in self.base.items())}", flush=True)
        self._settle()
        self._start(self.daemon.port)
        self.load.prepare()
        self.holder = Holder(self.daemon.target(self.daemon.port), self.journal)
        self.load.start()
        try:
            for number in range(self.rounds):
                self._round(number)
            if self.ends:
                self._end()
        except StartFailed as error:
            self.journal.check("starts_again", False, str(error))
        except fb.ForebayError as error:
            self.journal.check("answers", False, f"{type(error).__name__}: {error}")
        finally:
            self.daemon.kill()
            self.load.abandon()
        return not self.journal.failures

    def _round(self, number: int) -> None:
        begin = time.monotonic()
        draws = self.rng
        kill_after, looks = draws.uniform(*self.kill_after_s), draws.random() < self.look_share
        in_recovery = [draws.expovariate(10.0) for _ in range(draws.choice([1, 2]))] if draws.random() < KILL_IN_RECOVERY_SHARE else []
        self._settle()
        assert self.holder is not None
        self.holder.take_leases()
        time.sleep(max(0.0, begin + kill_after - time.monotonic()))  # poll: nothing; the instant is the seed's
        for kind in self.moved:
            self.moved[kind] += self.daemon.metric(f'forebay_store_moved_bytes_total{{kind="{kind}"')
        alive = self.daemon.kill()
        self.journal.check("lives", alive, f"bufferd had ended with {self.daemon.exit_code()}: {self.daemon.log_tail()}")
        facts = self.journal.snapshot()
        if self.sabotage:
            self.daemon.lose_log_tail()
        for seconds in in_recovery:
            self.daemon.launch(self.daemon.look_port)
            time.sleep(seconds)  # poll: nothing; the instant is the seed's
            self.daemon.kill()
        if looks:
            self._look(facts)
        self._check_logs()
        self._start(self.daemon.port)
        self.journal.check("starts_again", True)
        self.holder.check()
        print(
            f"round {number}: killed after {kill_after:.2f} s, {len(in_recovery)} times in recovery, {'looked at, ' * looks}"
            f"{len(facts.pushed)} rollouts, {len(facts.committed)} steps, {time.monotonic() - begin:.1f} s",
            flush=True,
        )

    def _check_logs(self) -> None:
        """Snapshots are taken and logs cut, however short the daemon's lives are."""
        limit = int(self.base["storage.snapshot_log_bytes"].removesuffix("KiB")) << 10
        for name, size in self.daemon.log_bytes().items():
            self.journal.check("logs_are_cut", size <= 4 * limit + LOG_SLACK_BYTES, f"the log of {name} has {size:,} bytes")

    def _look(self, facts: object) -> None:
        self._start(self.daemon.look_port)
        with Look(self.daemon.target(self.daemon.look_port), self.journal, facts) as look:
            look.check_all()
        self.daemon.kill()

    def _end(self) -> None:
        """The run goes on, comes to rest, and is looked at twice: before and after an orderly end."""
        with self.journal as facts:
            steps = len(facts.committed)
        deadline = time.monotonic() + PROGRESS_S
        while time.monotonic() < deadline:
            with self.journal as facts:
                if len(facts.committed) > steps + 1:
                    break
            time.sleep(0.05)  # poll: until a step is committed
        self.journal.check("goes_on", len(self.journal.facts.committed) > steps, f"no step in {PROGRESS_S:.0f} s")
        self.load.repeat_tasks(self.load.admin, self.rng)
        assert self.holder is not None
        self.holder.close()
        self.load.stop()
        facts = self.journal.snapshot()
        self.journal.check("at_rest", not facts.pushing, f"{len(facts.pushing)} pushes were never answered")
        with Look(self.daemon.target(self.daemon.port), self.journal, facts) as look:
            look.check_all()
        self.journal.check("orderly_end", self.daemon.stop() == 0, f"exit code {self.daemon.exit_code()}: {self.daemon.log_tail()}")
        self._start(self.daemon.look_port)
        with Look(self.daemon.target(self.daemon.look_port), self.journal, facts) as look:
            look.check_all()


def check_the_checks(seed: str) -> tuple[bool, str]:
    """A daemon that loses the end of its log, as one would that acknowledged too early, must not pass.

    It refuses to start by itself where the ledger knows of messages that are lost with it. Then it is tried again: what is
    checked here are the checks, which have to notice where it starts.
    """
    for attempt in range(SABOTAGES_MAX):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="forebay-crash-"))
        crash = Crash(find_bufferd(), folder, f"{seed}/sabotage/{attempt}", 1)
        crash.sabotage, crash.journal.quiet = True, True
        crash.base |= {"shards": "1", "storage.snapshot_log_bytes": "65536KiB"}  # a snapshot would give the loss away
        crash.kill_after_s, crash.look_share, crash.ends = (2.0, 2.5), 1.0, False
        crash.run()
        refused = "lacks committed records" in crash.daemon.log_tail()
        shutil.rmtree(folder, ignore_errors=True)
        if not refused:
            return "nothing_lost" in crash.journal.failed_checks, ", ".join(sorted(crash.journal.failed_checks))
    return True, "none: it refused to start each time"


def find_bufferd() -> str:
    folder = os.environ.get("FOREBAY_BIN") or str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin")
    return os.path.join(folder, "bufferd")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", default="")
    parser.add_argument("--keep", action="store_true", help="keep the directories of runs that failed")
    arguments = parser.parse_args()
    seed = arguments.seed or f"{random.SystemRandom().getrandbits(32)}"
    print(f"seed {seed}", flush=True)
    logging.getLogger("forebay").setLevel(logging.ERROR)  # that the daemon is away, they say often
    begin = time.monotonic()
    checked: dict[str, int] = {}
    failed: set[str] = set()
    kills, recoveries = 0, []
    moved: collections.Counter[str] = collections.Counter()
    noticed, what = check_the_checks(seed)
    checked["checks_notice"] = 1
    if not noticed:
        print("FAILED checks_notice: nothing_lost does not notice a lost end of a log")
        failed.add("checks_notice")
    print(f"of a daemon that lost the end of its log, these checks failed: {what}", flush=True)
    for first in range(0, arguments.rounds, ROUNDS_PER_RUN):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="forebay-crash-"))
        crash = Crash(find_bufferd(), folder, f"{seed}/{first}", min(ROUNDS_PER_RUN, arguments.rounds - first))
        good = crash.run()
        for name, count in crash.journal.checked.items():
            checked[name] = checked.get(name, 0) + count
        failed |= crash.journal.failed_checks
        kills += crash.daemon.kills
        recoveries += crash.recovery_s
        moved.update(crash.moved)
        if good or not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"kept {folder}", flush=True)
    for name, count in sorted(checked.items()):
        print(f"{name:<20}{count:>9} checks{'   FAILED' * (name in failed)}")
    print(
        f"seed {seed}: {arguments.rounds} rounds, {kills} kills, {time.monotonic() - begin:.0f} s, "
        f"recovery {sum(recoveries) / len(recoveries):.2f} s, at most {max(recoveries):.2f} s; "
        + ", ".join(f"{size / 1e6:.0f} MB {kind}" for kind, size in moved.items())
    )
    print(f"{len(checked) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
