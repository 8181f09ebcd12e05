"""Makes the guest's root file system, which lives in its memory: busybox, kernel modules, bufferd with its libraries.

An archive of the kernel's "newc" format; several, one after another, make one root.
"""

from __future__ import annotations

import pathlib
import re
import stat
import subprocess

from packages import Packages

MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "nfsv4")


class Archive:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._folders: set[str] = set()
        self._entries = 0

    def add(self, path: str, contents: bytes, executable: bool = False) -> None:
        self._add_folders(path)
        self._entry(path, stat.S_IFREG | (0o755 if executable else 0o644), contents)

    def _add_folders(self, path: str) -> None:
        for folder in reversed(pathlib.PurePosixPath(path).parents[:-1]):
            if str(folder) not in self._folders:
                self._folders.add(str(folder))
                self._entry(str(folder), stat.S_IFDIR | 0o755, b"")

    def _entry(self, path: str, mode: int, contents: bytes) -> None:
        self._entries += 1
        name = path.encode() + b"\0"
        fields = [self._entries, mode, 0, 0, 1, 0, len(contents), 0, 0, 0, 0, len(name), 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        self._parts += [head, bytes(-len(head) % 4), contents, bytes(-len(contents) % 4)]

    def encode(self) -> bytes:
        self._entry("TRAILER!!!", 0, b"")
        return b"".join(self._parts)


def base(packages: Packages, bufferd: str) -> bytes:
    """What all guests have in common."""
    archive = Archive()
    archive.add("init", pathlib.Path(__file__).with_name("init.sh").read_bytes(), executable=True)
    archive.add("bin/busybox", pathlib.Path(packages.program("busybox")).read_bytes(), executable=True)
    modules = _in_order(packages.modules)
    for module in modules:
        archive.add(f"modules/{module.name}", module.read_bytes())
    archive.add("modules/order", "".join(f"{module.name}\n" for module in modules).encode())
    archive.add("bin/bufferd", pathlib.Path(bufferd).read_bytes(), executable=True)
    for library in _libraries(bufferd):
        archive.add(library.lstrip("/"), pathlib.Path(library).read_bytes(), executable=True)
    return archive.encode()


def _in_order(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of MODULES with all that they depend on, each behind what it needs."""
    files = {path.stem.replace("-", "_"): path for path in folder.rglob("*.ko")}
    order: list[pathlib.Path] = []

    def add(name: str) -> None:
        path = files[name]
        if path in order:
            return
        for needed in re.findall(rb"\0depends=([^\0]*)\0", path.read_bytes()):
            for other in filter(None, needed.decode().split(",")):
                add(other.replace("-", "_"))
        order.append(path)

    for name in MODULES:
        add(name)
    return order


def _libraries(program: str) -> list[str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=30).stdout
    return re.findall(r"(?:=>|^)\s*(/\S+) \(", listed, re.MULTILINE)
