"""The lab's programs, from Debian's packages: downloaded and unpacked below a folder of the build, not installed.

So no server starts on the machine that runs the tests, and nothing of it changes. What is installed already is used.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

TOOLS = ("busybox-static", "e2fsprogs", "nfs-ganesha", "nfs-ganesha-vfs", "qemu-system-x86")
KERNEL = "linux-image-cloud-amd64"
LIBRARIES = ("usr/lib/ganesha", "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
PROGRAMS = ("bin", "sbin", "usr/bin", "usr/sbin")
APT_TIMEOUT_S = 300


class Packages:
    def __init__(self, folder: pathlib.Path) -> None:
        self.root = folder / "root"
        stamp = folder / "unpacked"
        wanted = " ".join((*TOOLS, KERNEL))
        if not stamp.exists() or stamp.read_text() != wanted:
            self._unpack(folder / "downloads")
            stamp.write_text(wanted)

    def _unpack(self, downloads: pathlib.Path) -> None:
        for folder in (downloads, self.root):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        _apt("-qq", "update")
        depends = _run(["apt-cache", "depends", "--important", KERNEL])
        kernel = re.findall(r"Depends: (linux-image-\S+)", depends)
        missing = _apt("install", "--simulate", "--no-install-recommends", "--no-upgrade", *TOOLS)
        _apt("download", "-q", *kernel, *re.findall(r"^Inst (\S+)", missing, re.MULTILINE), cwd=downloads)
        for package in sorted(downloads.iterdir()):
            _run(["dpkg-deb", "--extract", str(package), str(self.root)])

    @property
    def environment(self) -> dict[str, str]:
        """For running what was unpacked; what was not is found where it is installed."""
        libraries = ":".join(str(self.root / part) for part in LIBRARIES)
        programs = ":".join(str(self.root / part) for part in PROGRAMS)
        return {**os.environ, "LD_LIBRARY_PATH": libraries, "PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"}

    def command(self, name: str, *arguments: str) -> list[str]:
        """Runs a program that ends, too, when whoever started it is killed."""
        return ["setpriv", "--pdeathsig", "KILL", self.program(name), *arguments]

    def program(self, name: str) -> str:
        found = shutil.which(name, path=self.environment["PATH"])
        if found is None:
            raise FileNotFoundError(f"{name} is neither in {self.root} nor installed")
        return found

    def file(self, path: str) -> pathlib.Path:
        """A file or folder of a package, unpacked or installed."""
        return next((at for at in (self.root / path, pathlib.Path("/", path)) if at.exists()), self.root / path)

    @property
    def kernel(self) -> pathlib.Path:
        return max((self.root / "boot").glob("vmlinuz-*"))

    @property
    def modules(self) -> pathlib.Path:
        return self.root / "lib" / "modules" / self.kernel.name.removeprefix("vmlinuz-")


def _apt(*arguments: str, cwd: pathlib.Path | None = None) -> str:
    # Downloads go where root alone may write, so apt's own user is of no use.
    return _run(["apt-get", "-o", "APT::Sandbox::User=root", *arguments], cwd)


def _run(command: list[str], cwd: pathlib.Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=APT_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout
