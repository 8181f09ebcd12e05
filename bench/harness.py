"""Starts servers and load programs for the measures, and reads the JSON that they print."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_SECONDS = 20.0


class NotBuilt(Exception):
    """A program or subcommand that a measure needs does not exist; says which."""


class Failed(Exception):
    """A program failed; holds its command and the end of its output."""


@dataclasses.dataclass(frozen=True)
class Settings:
    programs: pathlib.Path  # the folder of bufferd, buffer-bench and limit-server
    python: str  # an interpreter with grpcio, numpy and forebay
    rounds: int
    seconds: float  # measured time of one run
    warm_up_seconds: float
    unix: bool  # over a unix socket instead of TCP
    quick: bool = False  # few rounds, also where a measure has a number of its own


@dataclasses.dataclass(frozen=True)
class Server:
    target: str
    pid: int
    http: str = ""  # where a daemon's metrics are

    def metrics(self) -> dict[str, float]:
        """The daemon's metrics by name and labels, as they stand in its page."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=60) as page:
            lines = page.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def die_with_parent() -> None:
    """Between fork and exec: an interrupted benchmark leaves no server behind."""
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def cpu_seconds_of(pid: int) -> float:
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Programs:
    """The programs of one build folder, and how they are started."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._subcommands: set[str] | None = None

    def path(self, name: str) -> str:
        path = self.settings.programs / name
        if not path.exists():
            raise NotBuilt(f"{name} is not in {self.settings.programs}")
        return str(path)

    def require(self, subcommand: str) -> None:
        """Raises NotBuilt unless buffer-bench has the subcommand."""
        if self._subcommands is None:
            done = subprocess.run([self.path("buffer-bench"), "help"], stdout=subprocess.PIPE, text=True, timeout=10)
            self._subcommands = set(done.stdout.split())
        if subcommand not in self._subcommands:
            raise NotBuilt(f"buffer-bench has no subcommand {subcommand}")

    def bench(self, server: Server, subcommand: str, slack_seconds: float = 120, **flags: object) -> dict:
        """Runs one buffer-bench subcommand against a server; the answer also holds its `command`."""
        self.require(subcommand)
        flags = {"target": server.target, "server_pid": server.pid, "seconds": self.settings.seconds,
                 "warm_up_seconds": self.settings.warm_up_seconds, **flags}
        words = [self.path("buffer-bench"), subcommand, *(f"--{name}={value}" for name, value in flags.items())]
        return self.json_of(words, slack_seconds)

    def json_of(self, words: list[str], slack_seconds: float = 120) -> dict:
        """Runs a program that prints one JSON object; adds the command as a user would type it."""
        limit = self.settings.seconds + self.settings.warm_up_seconds + slack_seconds
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit,
                              preexec_fn=die_with_parent)
        if done.returncode != 0:
            raise Failed(f"{shlex.join(words)}: exit {done.returncode}: {done.stderr[-2000:].strip()}")
        return {**json.loads(done.stdout), "command": self.readable(words)}

    def readable(self, words: list[str]) -> str:
        """The command without this machine's folders and this run's ports."""
        words = [word.replace(str(self.settings.programs) + os.sep, "").replace(str(ROOT) + os.sep, "")
                 for word in words]
        words = ["python" if word == self.settings.python else word for word in words]
        return shlex.join(word for word in words if not word.startswith(("--target=", "--server_pid=", "--server-pid=")))

    @contextlib.contextmanager
    def limit_server(self, *flags: str) -> Iterator[Server]:
        with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
            unix = f"unix:{folder}/limit.sock"
            words = [self.path("limit-server"), f"--listen=127.0.0.1:0,{unix}", *flags]
            with self._running(words, subprocess.PIPE) as process:
                ready = json.loads(process.stdout.readline())
                yield Server(unix if self.settings.unix else f"127.0.0.1:{ready['port']}", process.pid)

    @contextlib.contextmanager
    def folder(self) -> Iterator[pathlib.Path]:
        """An empty folder on the disk that the repository is on, gone afterwards."""
        folder = ROOT / "build" / "bench" / "disk"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def daemon(self, start_seconds: float = START_SECONDS, **config: object) -> Iterator[Server]:
        """A private bufferd with the given configuration entries ("memory.payload_bytes_max"); killed at the end."""
        with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
            tcp, unix = f"127.0.0.1:{free_port()}", f"{folder}/bufferd.sock"
            http = f"127.0.0.1:{free_port()}"
            entries = {"listen.grpc": tcp, "listen.unix": unix, "listen.http": http, "log.level": "warning", **config}
            words = [self.path("bufferd"), *(f"--{name}={value}" for name, value in entries.items())]
            with self._running(words, subprocess.DEVNULL) as process:
                wait_for_port(tcp, process, start_seconds)
                yield Server(f"unix:{unix}" if self.settings.unix else tcp, process.pid, http)

    @contextlib.contextmanager
    def _running(self, words: list[str], stdout: int) -> Iterator[subprocess.Popen]:
        process = subprocess.Popen(words, stdout=stdout, text=True, preexec_fn=die_with_parent)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_for_port(address: str, process: subprocess.Popen, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failed(f"{process.args[0]} ended with {process.returncode} while it started")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.02)
    raise Failed(f"{process.args[0]} does not listen on {address} after {seconds:.0f} s")
