"""A bufferd that is killed and started again on one directory. One thread uses it."""

from __future__ import annotations

import http.client
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

START_TIMEOUT_S = 60.0
LOG_BLOCK_BYTES, LOST_BLOCKS = 4096, 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StartFailed(Exception):
    """It ended by itself, or does not listen."""


class Daemon:
    def __init__(self, binary: str, folder: pathlib.Path, config: dict[str, str]) -> None:
        self._binary, self._folder, self.config = binary, folder, dict(config)
        self.port, self.look_port, self.http_port = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0

    @property
    def log_path(self) -> pathlib.Path:
        return self._folder / "bufferd.log"

    def target(self, port: int) -> str:
        return f"127.0.0.1:{port}"

    def launch(self, port: int) -> None:
        """Starts it, and does not wait until it listens."""
        config = {
            "listen.grpc": self.target(port),
            "listen.unix": "",
            "listen.http": self.target(self.http_port),
            "storage.directory": str(self._folder / "data"),
            **self.config,
        }
        command = [self._binary, *(f"--{name}={value}" for name, value in config.items())]
        with self.log_path.open("ab") as log:
            log.write(f"---- start on port {port}\n".encode())
            log.flush()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, port: int) -> float:
        """Returns how many seconds it took until it listened."""
        begin = time.monotonic()
        self.launch(port)
        while not self._listens(port):
            if self.ended():
                raise StartFailed(f"bufferd ended with {self.exit_code()}: {self.log_tail()}")
            if time.monotonic() > begin + START_TIMEOUT_S:
                raise StartFailed(f"bufferd does not listen after {START_TIMEOUT_S:.0f} s: {self.log_tail()}")
            time.sleep(0.01)  # poll: until it listens
        return time.monotonic() - begin

    def _listens(self, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 if the daemon has none of this name."""
        give_up = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.target(self.http_port)}/metrics", timeout=10) as page:
                    lines = page.read().decode().splitlines()
                break
            except http.client.RemoteDisconnected:  # it hangs up on a client that a busy machine lets speak too late
                if time.monotonic() > give_up:
                    raise
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def log_bytes(self) -> dict[str, int]:
        """Of each state machine's log, as it lies in the directory."""
        machines = [f for f in (self._folder / "data").iterdir() if f.name == "ledger" or f.name.startswith("shard-")]
        return {f.name: sum(log.stat().st_size for log in f.glob("*.log")) for f in machines}

    def lose_log_tail(self) -> None:
        """Takes the last blocks of the first shard's log away, and the mark that would tell; for the test of the checks."""
        folder = self._folder / "data" / "shard-0"
        (folder / "synced").unlink(missing_ok=True)
        logs = sorted(folder.glob("*.log"))
        with logs[-1].open("r+b") as log:
            log.truncate(max(LOG_BLOCK_BYTES, log.seek(0, os.SEEK_END) - LOST_BLOCKS * LOG_BLOCK_BYTES))

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def kill(self) -> bool:
        """kill -9; False if it had ended by itself, which nothing here makes it do."""
        assert self._process is not None
        alive = self._process.poll() is None
        if alive:
            os.kill(self._process.pid, signal.SIGKILL)
            self.kills += 1
        self._process.wait()
        return alive

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
