"""The client's machine: an emulated PC with Debian's kernel, in which bufferd runs on an NFS mount. One thread uses it.

It has no KVM, one processor, a disk of its own for the log, and a network in which the host is 10.0.2.2.
"""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "crash"))
from daemon import free_port  # noqa: E402
from initramfs import Archive  # noqa: E402
from packages import Packages  # noqa: E402

MEMORY_MIB, DISK_MIB = 448, 256
BOOT_TIMEOUT_S, SERVE_TIMEOUT_S = 240.0, 60.0
# On a busy host the emulated timer comes too late for the kernel's check of it.
KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 no_timer_check"
GRPC_PORT, HTTP_PORT = 7400, 7401


class GuestFailed(Exception):
    """It ended by itself, or does not say what it should."""


class Guest:
    """A machine with a disk; killed and started again, it has the same disk and the same ports."""

    def __init__(self, packages: Packages, base: bytes, folder: pathlib.Path) -> None:
        self._packages, self._base, self._folder = packages, base, folder
        self._disk, self._console, self._commands = folder / "disk", folder / "console.log", folder / "commands"
        self.grpc, self.http = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._port: socket.socket | None = None
        self._console.touch()
        with self._disk.open("wb") as disk:
            disk.truncate(DISK_MIB << 20)
        make = [packages.program("mkfs.ext4"), "-q", "-F", str(self._disk)]
        subprocess.run(make, env=packages.environment, check=True, timeout=30)

    def start(self, mount_options: str, config: dict[str, str]) -> None:
        """Boots, mounts the store, and starts bufferd."""
        own = Archive()
        own.add("settings.sh", f"HOSTNAME=guest\nMOUNT_OPTIONS={mount_options}\n".encode())
        # Nothing is kept for people: of a file that is gone it would be missed for as long as it is kept.
        config = {"retain.sample": 0, "listen.grpc": f"0.0.0.0:{GRPC_PORT}", "listen.unix": "''", "listen.http": f"0.0.0.0:{HTTP_PORT}", **config}
        own.add("bufferd.yaml", "".join(f"{name}: {value}\n" for name, value in config.items()).encode())
        root = self._folder / "root.cpio"
        root.write_bytes(self._base + own.encode())
        mark = self.mark()
        with self._console.open("ab") as console:
            self._process = subprocess.Popen(
                self._command(root), stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=self._packages.environment
            )
        self.await_words("guest: listens", mark, BOOT_TIMEOUT_S)
        # For as long as the machine runs: to its serial port an end of the connection is an end of the line.
        self._port = socket.socket(socket.AF_UNIX)
        self._port.settimeout(10)
        self._port.connect(str(self._commands))
        self.serve()

    def serve(self) -> None:
        mark = self.mark()
        self.tell("serve")
        self.await_words("guest: bufferd serves", mark, SERVE_TIMEOUT_S)

    def _command(self, root: pathlib.Path) -> list[str]:
        firmware = [str(self._packages.file(f"usr/share/{name}")) for name in ("qemu", "seabios")]
        forward = ",".join(f"hostfwd=tcp:127.0.0.1:{on}-:{to}" for on, to in ((self.grpc, GRPC_PORT), (self.http, HTTP_PORT)))
        return self._packages.command(
            "qemu-system-x86_64",
            *("-L", firmware[0], "-L", firmware[1]),
            *("-accel", "tcg", "-cpu", "max", "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none", "-no-reboot"),
            *("-serial", "stdio", "-serial", f"unix:{self._commands},server=on,wait=off"),
            *("-kernel", str(self._packages.kernel), "-initrd", str(root), "-append", KERNEL_OPTIONS),
            # What the guest has written to it is in the host's page cache, which survives the guest.
            *("-drive", f"file={self._disk},if=virtio,format=raw,cache=unsafe"),
            *("-netdev", f"user,id=net,{forward}", "-device", "virtio-net-pci,netdev=net,romfile="),
        )  # fmt: skip

    def tell(self, line: str) -> None:
        """Has the guest's shell run a line."""
        assert self._port is not None
        self._port.sendall(line.encode() + b"\n")

    def mark(self) -> int:
        """The end of what was said so far."""
        return self._console.stat().st_size

    def said(self, mark: int = 0) -> str:
        return self._console.read_bytes()[mark:].decode(errors="replace")

    def await_words(self, words: str, mark: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while words not in self.said(mark):
            if self._process is None or self._process.poll() is not None:
                raise GuestFailed(f"the guest ended before it said '{words}'")
            if time.monotonic() > deadline:
                raise GuestFailed(f"the guest did not say '{words}' within {timeout:.0f} s")
            time.sleep(0.05)  # poll: until it says so

    def kill(self) -> None:
        """As a loss of power; what was in its memory is gone."""
        if self._port is not None:
            self._port.close()
            self._port = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
