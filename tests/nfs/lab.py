"""A guest, a server and what runs between them, for one case. One thread uses it."""

from __future__ import annotations

import http.client
import pathlib
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable

import forebay as fb
from guest import Guest, GuestFailed
from journal import Journal
from nfs_server import NfsServer
from packages import Packages
from traffic import Traffic

MIB = 1 << 20
EXPORT_BYTES = 256 * MIB
HARD, SOFT = "hard", "softerr,timeo=20,retrans=1"
PAYLOAD_BYTES_MAX = 8 * MIB
CONFIG = {
    "listen.allow_remote": "true",
    "storage.directory": "/data/run",
    "storage.segment_directory": "/store/run",
    "storage.segment_bytes": "4MiB",
    "storage.write_deadline_ms": "3000",
    "storage.gc_grace_ms": "0",
    "memory.payload_bytes_max": f"{PAYLOAD_BYTES_MAX}",
    "shutdown.drain_ms": "1000",
}
# Of bufferd: itself, its payloads, and buffers of the writes and reads that are under way.
RESIDENT_BYTES_MAX = 256 * MIB
SETTLE_S, TRAIN_S = 60.0, 90.0
OK, DEGRADED, UNREACHABLE = 0, 10, 20  # exit codes of `buffer-ctl status`


class Lab:
    def __init__(self, packages: Packages, base: bytes, binaries: pathlib.Path, folder: pathlib.Path) -> None:
        self._ctl = str(binaries / "buffer-ctl")
        self._mount = HARD
        self.journal = Journal()
        self.journal.quiet = True
        self.server = NfsServer(packages, folder, EXPORT_BYTES)
        self.guest = Guest(packages, base, folder)
        self.traffic = Traffic(f"127.0.0.1:{self.guest.grpc}", self.journal)
        self._over = threading.Event()
        self.resident_bytes = 0

    def run(self, case: Callable[[Lab], None]) -> list[str]:
        """What failed."""
        watcher = threading.Thread(target=self._watch, daemon=True)
        try:
            self.server.start()
            watcher.start()
            case(self)
            self.check("memory_is_bounded", 0 < self.resident_bytes < RESIDENT_BYTES_MAX, f"{self.resident_bytes:,} bytes resident")
        except (GuestFailed, fb.ForebayError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            self.check("comes_to_its_end", False, f"{type(error).__name__}: {error}")
        finally:
            self._over.set()
            self.traffic.abandon()
            self.guest.kill()
            self.server.close()
        return self.journal.failures

    def check(self, name: str, holds: bool, why: str = "") -> bool:
        return self.journal.check(name, holds, why)

    def summary(self) -> str:
        facts = self.journal.snapshot()
        checks = sum(self.journal.checked.values())
        return f"{len(facts.pushed)} rollouts acknowledged, {checks} checks, {self.resident_bytes / 1e6:.0f} MB resident at most"

    # ---- what a case is made of

    def start_guest(self) -> None:
        self.guest.start(f"port={self.server.port},vers=4.2,{self._mount},rsize=1048576,wsize=1048576", CONFIG)

    def begin(self, acknowledged: int, mount: str = HARD) -> None:
        """A guest with traffic, until so many rollouts are acknowledged."""
        self._mount = mount
        self.start_guest()
        self.traffic.prepare()
        self.traffic.start()
        self.traffic.await_acknowledged(acknowledged, SETTLE_S)

    def hold(self, seconds: float) -> None:
        """For so long nothing is acknowledged, since nothing can be safe."""
        before = self.traffic.acknowledged()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.traffic.acknowledged() == before:
            time.sleep(0.1)  # poll: that nothing is acknowledged
        more = self.traffic.acknowledged() - before
        self.check("pushes_wait", more == 0, f"{more} rollouts were acknowledged meanwhile")

    def finish(self) -> None:
        """The pushes go on, all is well again, and everything acknowledged is there."""
        self.traffic.await_acknowledged(self.traffic.acknowledged() + 20, SETTLE_S)
        self.traffic.stop(SETTLE_S)
        self.await_status(OK, "", SETTLE_S)
        self.traffic.train_all(TRAIN_S)

    # ---- what is seen

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.guest.http}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def _watch(self) -> None:
        """Samples memory; a guest that is down is not asked."""
        while not self._over.wait(0.5):
            try:
                self.resident_bytes = max(self.resident_bytes, int(self.metrics()["process_resident_memory_bytes"]))
            except (OSError, http.client.HTTPException, ValueError, KeyError):  # it may be killed in the midst of an answer
                continue

    def _status(self) -> tuple[int, str]:
        command = [self._ctl, "--address", f"127.0.0.1:{self.guest.grpc}", "status"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return done.returncode, done.stdout + done.stderr

    def await_status(self, code: int, words: str, timeout: float) -> None:
        """Until `buffer-ctl status` ends with the code and says the words."""
        deadline = time.monotonic() + timeout
        while True:
            found, text = self._status()
            if found == code and words in text:
                self.check("status_names_it", True)
                return
            if time.monotonic() > deadline:
                self.check("status_names_it", False, f"not {code} with '{words}' within {timeout:.0f} s, but {found}: {text}")
                return
            time.sleep(0.2)  # poll: until status says so
