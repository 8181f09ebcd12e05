"""The processes of a cluster: nodes and members of etcd, each on a host of its own. One thread uses them."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import time

GRPC_PORT, HTTP_PORT, ETCD_PORT, ETCD_PEER_PORT = 7400, 7401, 2379, 2380
END_TIMEOUT_S = 30.0
DISK_FULL_EXIT = 5


class Process:
    """Something that is killed, frozen and started again."""

    def __init__(self, name: str, command: list[str], log: pathlib.Path, env: dict[str, str] | None = None) -> None:
        self.name, self._command, self._log, self._env = name, command, log, env or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.frozen = False

    def start(self) -> None:
        with self._log.open("ab") as log:
            log.write(f"---- start at {time.time():.3f}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self._env}
            )

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        """kill -9; also of one that is frozen."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self.frozen = False

    def terminate(self) -> int | None:
        """SIGTERM; its exit code, None if it does not end."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log().splitlines()[-lines:])


class Disk:
    """A small file system of a node's own, which can be full or lost."""

    def __init__(self, folder: pathlib.Path, size: str) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, timeout=30)

    @property
    def data(self) -> pathlib.Path:
        return self.folder / "data"

    def fill(self) -> None:
        """Not a byte is left."""
        with (self.folder / "ballast").open("ab", buffering=0) as file:
            chunk = bytes(1 << 20)
            while chunk:
                try:
                    file.write(chunk)
                except OSError:
                    chunk = chunk[: len(chunk) // 2]

    def free(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def lose(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)

    def save(self, to: pathlib.Path) -> None:
        """For a look after the file system is gone."""
        if self.data.exists():
            shutil.copytree(self.data, to, dirs_exist_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, timeout=30)


class Clock:
    """What a process believes the time of day to be; steady clocks stay as they are. See clock_shift.cc."""

    def __init__(self, library: pathlib.Path, file: pathlib.Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))
        self.env = {"LD_PRELOAD": str(library), "FOREBAY_CLOCK_SHIFT": str(file)}

    def shift(self, seconds: float) -> None:
        with self._file.open("r+b", buffering=0) as file:
            file.write(int(seconds * 1e9).to_bytes(8, "little", signed=True))
