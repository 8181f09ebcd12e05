"""A cluster of real nodes and a real etcd, under load, while its processes, disks, clocks and network fail.

    ./dev test chaos --rounds 200 [--seed S] [-- --fault NAME ...] [-- --keep]

A round: the load runs; one to three faults come, one after another, each healed and followed by a wait until all replicas
are in sync; the run has to go on; the load comes to rest, and what the cluster holds is held against the clients' journals:
first as the leader says, then as another leader does. A run has a cluster, settings and limits of its own. The seed replays
settings, loads and plans, as far as time allows. Ends with `N passed, N failed`. Needs root, for namespaces.
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "workload")]
import forebay as fb  # noqa: E402
from cluster import Cluster, NotInTime  # noqa: E402
from faults import Faults  # noqa: E402
from history import Final, History, violations  # noqa: E402
from holder import Holder  # noqa: E402
from journal import Journal  # noqa: E402
from load import Load  # noqa: E402
from look import Look  # noqa: E402
from native import Native  # noqa: E402
from network import Network  # noqa: E402

ROUNDS_PER_RUN = 5
PROGRESS_S, PROGRESS_STEPS = 45.0, 2
FAULTS_MAX = 2
HAND_OVER_SHARE = 0.5
LEASE_S = 20.0  # leases are of 30 s at least, and clients renew each second
OWN_NAMESPACES = "FOREBAY_CHAOS_NAMESPACES"


class Chaos:
    """One run of the system, and its rounds."""

    def __init__(self, programs: pathlib.Path, folder: pathlib.Path, seed: str, rounds: int, only: list[str]) -> None:
        self.rng = random.Random(seed)
        self.journal = Journal()
        self.rounds, self.folder, self._only = rounds, folder, only
        self.etcd_members = self.rng.choice([1, 3])
        self.config = {
            "shards": str(self.rng.choice([1, 2])),
            "memory.payload_bytes_max": self.rng.choice(["16MiB", "64MiB"]),
            "storage.segment_bytes": "1MiB",
            "storage.snapshot_log_bytes": self.rng.choice(["64KiB", "256KiB", "4MiB"]),
            "renew.interval_ms": "1000",
        }
        self.network = Network()
        self.cluster = Cluster(self.network, programs, folder, self.etcd_members, self.config)
        self.load: Load | None = None
        self.native = Native(programs, folder, self.cluster.seeds, self.journal)
        self.totals = {"kills": 0, "freezes": 0, "cuts": 0}
        self._plan: list[str] = []  # kinds of faults, in a shuffled order

    def run(self) -> bool:
        """False if a check failed, so that the folder is worth a look."""
        settings = " ".join(f"{k}={v}" for k, v in self.config.items())
        print(f"-- etcd={self.etcd_members} {settings}", flush=True)
        try:
            self.cluster.start()
            self.load = Load(self.cluster.seeds, self.journal, self.rng.getrandbits(32), self.rng.choice([0, 1]), True)
            self.load.prepare()
            for number in range(self.rounds):
                self._round(number)
                if self.journal.failures:
                    break
        except NotInTime as error:
            self.journal.check("in_time", False, str(error))
        except fb.ForebayError as error:
            self.journal.check("answers", False, f"{type(error).__name__}: {error}")
        except Exception:  # whatever it is, the folder is kept, and the next run has a cluster of its own
            self.journal.check("round", False, traceback.format_exc())
        finally:
            self._close()
        return not self.journal.failures

    def _close(self) -> None:
        if self.load is not None:
            self.load.abandon()
        self.native.kill()
        if self.journal.failures:
            for node in self.cluster.nodes:
                node.process.kill()
            self.cluster.keep_disks()
            self.journal.calls.save(self.folder / "calls.jsonl")
        self.cluster.close()
        self.network.close()

    def _faults_of_round(self, faults: Faults) -> list[str]:
        """Each kind comes before any comes again."""
        count = self.rng.randint(1, FAULTS_MAX)
        while len(self._plan) < count:
            kinds = self._only or sorted(faults.kinds())
            self._plan += self.rng.sample(kinds, len(kinds))
        names, self._plan = self._plan[:count], self._plan[count:]
        return names

    def _round(self, number: int) -> None:
        begin = time.monotonic()
        assert self.load is not None
        self.load.start()
        self.native.start()
        holder = Holder(self.cluster.seeds, self.journal)
        holder.take_leases()
        faults = Faults(self.cluster, self.rng)
        names = self._faults_of_round(faults)
        print(f"round {number}: {', '.join(names)}", flush=True)
        try:
            faults.run(names)
        finally:
            print("".join(f"   {line}\n" for line in faults.told), end="", flush=True)
        self.journal.check("lives", not faults.ended_wrongly, "; ".join(faults.ended_wrongly))
        self._goes_on()
        holder.check()
        holder.close()
        self.load.repeat_tasks(self.load.admin, self.rng)
        self.load.stop()
        self.native.stop()
        self._look()
        if self.rng.random() < HAND_OVER_SHARE:
            self._look_at_another_leader()
        for name in self.totals:
            self.totals[name] += getattr(faults, name)
        facts = self.journal.facts
        print(f"   {len(facts.pushed)} rollouts, {len(facts.committed)} steps, {time.monotonic() - begin:.1f} s", flush=True)

    def _goes_on(self) -> None:
        with self.journal as facts:
            steps = len(facts.committed)
        deadline = time.monotonic() + PROGRESS_S
        while time.monotonic() < deadline:
            with self.journal as facts:
                if len(facts.committed) >= steps + PROGRESS_STEPS:
                    break
            time.sleep(0.05)  # poll: until steps are committed
        made = len(self.journal.facts.committed) - steps
        self.journal.check("goes_on", made >= PROGRESS_STEPS, f"{made} steps in {PROGRESS_S:.0f} s after everything was healed")

    def _look(self) -> None:
        facts = self.journal.snapshot()
        self.journal.check("at_rest", not facts.pushing, f"{len(facts.pushing)} pushes were never answered")
        with Look(self.cluster.seeds, self.journal, facts) as look:
            look.check_all()
            final = Final(look.held, look.dropped)
        for rule, found in violations(History(self.journal.calls.all(), LEASE_S, final)).items():
            self.journal.check(rule, not found, f"{len(found)} times: {'; '.join(found[:3])}")

    def _look_at_another_leader(self) -> None:
        """What a follower has made of the same log."""
        leader = self.cluster.await_leader()
        leader.process.kill()
        self.totals["kills"] += 1
        self._look()
        leader.process.start()
        self.cluster.await_in_sync()


def enter_namespaces() -> None:
    """Starts itself anew in namespaces of its own: whatever ends it, its processes, mounts and networks go with it."""
    if os.environ.get(OWN_NAMESPACES):
        return
    if os.geteuid() != 0:
        print("needs root: for network namespaces and small file systems\n0 passed, 1 failed")
        sys.exit(1)
    command = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, OWN_NAMESPACES: "1"})


def programs() -> pathlib.Path:
    folder = os.environ.get("FOREBAY_BIN")
    return pathlib.Path(folder) if folder else HERE.parents[1] / "build" / "release" / "bin"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", default="")
    parser.add_argument("--run", type=int, help="only the run that begins with this round")
    parser.add_argument("--fault", action="append", default=[], help="only faults of this kind; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all runs, not only of those that failed")
    arguments = parser.parse_args()
    enter_namespaces()
    seed = arguments.seed or f"{random.SystemRandom().getrandbits(32)}"
    print(f"seed {seed}", flush=True)
    logging.getLogger("forebay").setLevel(logging.ERROR)  # that the daemon is away, they say often
    begin = time.monotonic()
    checked: dict[str, int] = {}
    failed: set[str] = set()
    totals = {"kills": 0, "freezes": 0, "cuts": 0, "reigns": 0, "pushes": 0, "steps": 0}
    for first in range(0, arguments.rounds, ROUNDS_PER_RUN):
        if arguments.run is not None and first != arguments.run:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix="forebay-chaos-"))
        rounds = min(ROUNDS_PER_RUN, arguments.rounds - first)
        chaos = Chaos(programs(), folder, f"{seed}/{first}", rounds, arguments.fault)
        good = chaos.run()
        for name, count in chaos.journal.checked.items():
            checked[name] = checked.get(name, 0) + count
        failed |= chaos.journal.failed_checks
        facts = chaos.journal.facts
        for name, count in {
            **chaos.totals, "reigns": len(chaos.cluster.epochs), "pushes": len(facts.pushed), "steps": len(facts.committed)
        }.items():  # fmt: skip
            totals[name] += count
        if good and not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"kept {folder}; again: ./dev test chaos --rounds {arguments.rounds} --seed {seed} -- --run {first}", flush=True)
    for name, count in sorted(checked.items()):
        print(f"{name:<20}{count:>9} checks{'   FAILED' * (name in failed)}")
    print(
        f"seed {seed}: {arguments.rounds} rounds, {time.monotonic() - begin:.0f} s; "
        + ", ".join(f"{count} {name}" for name, count in totals.items())
    )
    print(f"{len(checked) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
