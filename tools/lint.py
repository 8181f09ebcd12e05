#!/usr/bin/env python3
"""clang-format on all C++ files, then clang-tidy on those that differ from the last commit (--all: on all).

    ./dev lint [--all] [--fix] [--format-only]

--fix rewrites the layout in place. clang-tidy reads a tree of its own, build/lint, without GCC's precompiled headers.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tidy  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tool(name: str) -> str:
    for candidate in (f"{name}-14", name):
        if path := shutil.which(candidate):
            return path
    sys.exit(f"lint: {name} is not installed; run ./dev setup")


def check_format(files: list[str], fix: bool) -> int:
    """The number of files that clang-format would change."""
    mode = ["-i"] if fix else ["--dry-run", "-Werror", "--ferror-limit=1"]
    bad = 0
    for file in files:
        done = subprocess.run([tool("clang-format"), *mode, file], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            print(next(iter(done.stderr.splitlines()), f"{file}: clang-format failed"))
            bad += 1
    print(f"clang-format: {len(files)} files, {bad} to change (./dev lint --fix)")
    return bad


def changed(files: list[str]) -> list[str]:
    listed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = {line[3:].split(" -> ")[-1] for line in listed.stdout.splitlines()}
    return [f for f in files if f in names]


def check_tidy(sources: list[str]) -> int:
    tree = ROOT / "build" / "lint"
    configure = ["cmake", "-S", str(ROOT), "-B", str(tree), "-G", "Ninja", "-DCMAKE_CXX_COMPILER=clang++-14"]
    subprocess.run([*configure, "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", str(tree), "forebay_proto"], check=True, stdout=subprocess.DEVNULL)

    def one(source: str) -> subprocess.CompletedProcess:
        command = [tool("clang-tidy"), "--quiet", "-p", str(tree), source]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    bad = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, done in zip(sources, pool.map(one, sources)):
            if done.returncode != 0 or done.stdout.strip():
                print(done.stdout.strip() or done.stderr.strip())
                bad += 1
    print(f"clang-tidy: {len(sources)} files, {bad} with findings")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="clang-tidy on all files")
    parser.add_argument("--fix", action="store_true", help="rewrite the layout in place")
    parser.add_argument("--format-only", action="store_true")
    arguments = parser.parse_args()
    files = tidy.Tree(ROOT).cpp()
    bad = check_format(files, arguments.fix)
    if not arguments.format_only:
        sources = [f for f in files if f.endswith(".cc")]
        bad += check_tidy(sources if arguments.all else changed(sources))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
