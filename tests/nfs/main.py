"""bufferd with its store on real NFS: a real server, a real client, and what goes wrong between them.

    ./dev test nfs [-- --case NAME ...] [-- --keep]

Each case has a guest, a server and an export of its own; `--jobs` run at once. Ends with `N passed, N failed`, the cases
counted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import logging
import os
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "crash"), str(HERE.parent / "workload")]
import initramfs  # noqa: E402
from cases import CASES  # noqa: E402
from lab import Lab  # noqa: E402
from packages import Packages  # noqa: E402

OWN_NAMESPACE = "FOREBAY_NFS_NAMESPACE"


def enter_namespace() -> None:
    """Starts itself anew in a mount namespace of its own: whatever ends it, its mounts go with it."""
    if os.environ.get(OWN_NAMESPACE):
        return
    if os.geteuid() != 0:
        print("needs root: the NFS server opens files by their handles, and its export is mounted\n0 passed, 1 failed")
        sys.exit(1)
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, OWN_NAMESPACE: "1"})


def run(name: str, packages: Packages, base: bytes, binaries: pathlib.Path, keep: bool) -> bool:
    begin = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="forebay-nfs-"))
    lab = Lab(packages, base, binaries, folder)
    failures = lab.run(CASES[name])
    lines = [f"{'FAILED' if failures else 'ok    '} {name}, {time.monotonic() - begin:.0f} s, {lab.summary()}"]
    if failures:
        lines += [*(f"   {failure}" for failure in failures[:20]), "   the guest's console:", *lab.guest.said().splitlines()[-40:]]
    if failures and keep:
        lines.append(f"   kept {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(lines), flush=True)
    return not failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="this case alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="cases at once")
    parser.add_argument("--keep", action="store_true", help="keep the folders of cases that failed")
    arguments = parser.parse_args()
    enter_namespace()
    logging.getLogger("forebay").setLevel(logging.ERROR)  # that the daemon is away, they say often
    root = HERE.parents[1]
    binaries = pathlib.Path(os.environ.get("FOREBAY_BIN") or root / "build" / "release" / "bin")
    folder = root / "build" / "nfs"
    folder.mkdir(parents=True, exist_ok=True)
    packages = Packages(folder)
    base = initramfs.base(packages, str(binaries / "bufferd"))
    names = arguments.case or list(CASES)
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        results = list(pool.map(lambda name: run(name, packages, base, binaries, arguments.keep), names))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
