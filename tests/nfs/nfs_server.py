"""A real NFS 4.2 server in user space, and the file system that it exports. One thread uses it; root only.

The file system is a tmpfs, so that its size can be changed. The caller's mount namespace should be its own.
"""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "crash"))
from daemon import free_port  # noqa: E402
from packages import Packages  # noqa: E402

START_TIMEOUT_S = 20.0
GRACE_S, LEASE_S = 5, 10  # short, so that a restart is quick

CONFIG = """
NFS_CORE_PARAM {{
  Bind_addr = 127.0.0.1; NFS_Port = {port}; Protocols = 4;
  Enable_NLM = false; Enable_RQUOTA = false;
  Plugins_Dir = "{plugins}";
}}
NFSv4 {{
  Grace_Period = {grace}; Lease_Lifetime = {lease}; Minor_Versions = 0, 1, 2;
  RecoveryBackend = fs; RecoveryRoot = "{recovery}";
  UseGetpwnam = true; Only_Numeric_Owners = true;
}}
EXPORT {{
  Export_Id = 1; Path = "{store}"; Pseudo = /store;
  Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4; Transports = TCP;
  Attr_Expiration_Time = 0;  # what happens behind its back is seen at once
  FSAL {{ Name = VFS; }}
}}
"""


class NfsServer:
    def __init__(self, packages: Packages, folder: pathlib.Path, size_bytes: int) -> None:
        self._packages, self._folder = packages, folder
        self.store, self.port = folder / "store", free_port()
        self._process: subprocess.Popen[bytes] | None = None
        for path in (self.store, folder / "recovery"):
            path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(self.store)], check=True, timeout=10)
        plugins = packages.file("usr/lib/x86_64-linux-gnu/ganesha")
        text = CONFIG.format(port=self.port, plugins=plugins, grace=GRACE_S, lease=LEASE_S, recovery=folder / "recovery", store=self.store)
        (folder / "ganesha.conf").write_text(text)

    @property
    def log(self) -> pathlib.Path:
        return self._folder / "ganesha.log"

    def start(self) -> None:
        command = self._packages.command("ganesha.nfsd", "-F", "-f", str(self._folder / "ganesha.conf"))
        command += ["-L", str(self.log), "-p", str(self._folder / "ganesha.pid"), "-N", "NIV_EVENT"]
        output = (self._folder / "ganesha.out").open("ab")
        with output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._packages.environment)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the NFS server does not listen: {self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)  # poll: until it listens

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def resize(self, size_bytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", str(self.store)], check=True, timeout=10)

    def segments(self) -> list[pathlib.Path]:
        return sorted((self.store / "run" / "segments").glob("*.seg"))

    def used_bytes(self) -> int:
        space = os.statvfs(self.store)
        return (space.f_blocks - space.f_bfree) * space.f_frsize

    def close(self) -> None:
        self.kill()
        subprocess.run(["umount", "--lazy", str(self.store)], check=True, timeout=10)
