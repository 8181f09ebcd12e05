"""A private daemon for a notebook or a test. `start` and `Daemon.stop` may be called from any thread."""

from __future__ import annotations

import atexit
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, List, Mapping, Optional

from ._errors import Unavailable

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0


# Runs the daemon as a child, and ends it when its own standard input is closed: also when this process is killed.
_SUPERVISOR = """
import os, subprocess, sys, threading
daemon = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
with open(sys.argv[1] + '.new', 'w') as file:
    file.write(str(daemon.pid))
os.replace(sys.argv[1] + '.new', sys.argv[1])
threading.Thread(target=lambda: (sys.stdin.read(), daemon.terminate()), daemon=True).start()
code = daemon.wait()
os._exit(128 - code if code < 0 else code)
"""


class Daemon:
    """A running bufferd that ends with this process, or with `stop`."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: str, target: str, http: str) -> None:
        self._process, self._folder, self._owner = process, folder, os.getpid()
        self._lock = threading.Lock()
        self.target, self.http = target, http
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        """Of bufferd."""
        with open(os.path.join(self._folder, "pid"), encoding="ascii") as file:
            return int(file.read())

    def log(self) -> str:
        """What it has printed."""
        with open(os.path.join(self._folder, "bufferd.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self) -> None:
        """Ends it; again is harmless."""
        with self._lock:
            if self._owner != os.getpid() or not self._folder:
                return
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
                self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""
            atexit.unregister(self.stop)


def find_bufferd() -> str:
    """FOREBAY_BUFFERD, then PATH, then the build of the source tree that this package lies in."""
    named = os.environ.get("FOREBAY_BUFFERD")
    if named:
        return named
    found = shutil.which("bufferd")
    if found:
        return found
    for folder in [pathlib.Path.cwd(), *pathlib.Path.cwd().parents, *pathlib.Path(__file__).resolve().parents]:
        built = folder / "build" / "release" / "bin" / "bufferd"
        if built.exists():
            return str(built)
    raise FileNotFoundError(
        "bufferd was not found: name it in FOREBAY_BUFFERD, put it on PATH, or build it with ./dev build"
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def flags(config: Mapping[str, Any]) -> List[str]:
    """{"memory.payload_bytes_max": 1 << 30} or memory__payload_bytes_max=...: --memory.payload_bytes_max=..."""
    out = []
    for name, value in config.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        out.append(f"--{name.replace('__', '.')}={text}")
    return out


def start_daemon(binary: Optional[str], config: Dict[str, Any]) -> Daemon:
    """Starts bufferd on a unix socket and free ports, and waits until it listens."""
    folder = tempfile.mkdtemp(prefix="forebay-")
    unix = os.path.join(folder, "forebay.sock")
    http = f"127.0.0.1:{free_port()}"
    config = {"listen.grpc": f"127.0.0.1:{free_port()}", "listen.http": http, "listen.unix": unix, **config}
    binary = binary or find_bufferd()
    if not os.access(binary, os.X_OK):
        raise FileNotFoundError(f"{binary} is no program")
    command = [sys.executable, "-E", "-S", "-c", _SUPERVISOR, os.path.join(folder, "pid"), binary, *flags(config)]
    with open(os.path.join(folder, "bufferd.log"), "wb") as log:
        # A session of its own: Ctrl-C in a notebook must not end it before the run is closed.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    target = f"unix:{unix}" if config["listen.unix"] == unix else str(config["listen.grpc"])
    daemon = Daemon(process, folder, target, f"http://{config['listen.http']}")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not _listens(daemon.target):
        if process.poll() is not None or time.monotonic() > deadline:
            said = daemon.log()[-2000:]
            ended = process.poll()
            daemon.stop()
            state = f"ended with exit code {ended}" if ended is not None else "does not listen"
            raise Unavailable(f"{binary} {state}:\n{said}")
        time.sleep(0.02)
    return daemon


def _listens(target: str) -> bool:
    if target.startswith("unix:"):
        probe, address = socket.socket(socket.AF_UNIX), target[len("unix:") :]
    else:
        host, _, port = target.rpartition(":")
        probe, address = socket.socket(), (host, int(port))  # type: ignore[assignment]
    with probe:
        try:
            probe.connect(address)
        except OSError:
            return False
        return True
