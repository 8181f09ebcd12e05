#!/usr/bin/env python3
"""Checks the house style that no compiler checks: who may include whom, what the pure core must not call, sizes, dead files.

    tools/tidy.py [--root DIR]

Prints `file:line: rule: message` for each finding; exits 1 if there is one. The rules are the functions named check_*; a
rule's name is the rest of the function's name.
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import pathlib
import re
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cpp_text  # noqa: E402

# What a folder of src may include besides itself, the standard library and the chosen dependencies. "proto" stands for the
# generated messages, "include" for the public headers of the C++ client; a path stands for that header alone.
PURE_PARTS = "curriculum rollout batch drift shard ledger replication cluster"
MAY_INCLUDE = {
    "base": "",
    "codec": "base",
    "curriculum": "base codec",
    "rollout": "base codec",
    "batch": "base codec",
    "drift": "base codec",
    "shard": "base codec curriculum rollout",
    "ledger": "base codec batch drift",
    "replication": "base codec cluster",
    "cluster": "base codec",
    "io": "base",
    "storage": "base codec io",
    "node": f"base codec io storage {PURE_PARTS}",
    # An implementation of node's interface; etcd's own messages are spoken nowhere else.
    "etcd": "base etcd-proto node/callback_gate.h node/coordinator.h node/event_loop.h",
    # Another implementation of node's interfaces, in the server's framework.
    "peers": "base codec cluster proto node/peer_transport.h server/grpc/method_table.h server/grpc/poller.h server/grpc/rpc.h server/grpc/typed.h",
    # Beyond node: the words it speaks with, and the payload bytes; see docs/decisions/2026-11-30-server-includes.md.
    "server": "base drift io node etcd peers operators proto codec storage shard/messages.h ledger/messages.h ledger/step.h batch/layout.h batch/slice.h",
    # What operators ask of a cluster: for the server, and for buffer-ctl when no daemon is up.
    "operators": "base cluster node proto",
    "client": "base codec drift/sums.h proto include",
    "ctl": "base codec io node operators etcd/coordinator.h proto include",
    "main": "base codec io storage node server client ctl proto include",
}
PURE = {"base", "codec", *PURE_PARTS.split()}
# Lies in a pure folder for those that are not.
IMPURE = {"src/base/sync.h"}

# In pure folders. Each pattern with what to do instead.
PURE_BANNED_INCLUDES = {
    r"(thread|mutex|shared_mutex|condition_variable|future|atomic|semaphore|latch|barrier|stop_token)": "no threads or locks",
    r"base/sync\.h": "no threads or locks",
    r"(iostream|fstream|filesystem|unistd\.h|fcntl\.h|dlfcn\.h|sys/.*|netinet/.*|pthread\.h)": "no system calls or streams",
    r"(random|ctime|time\.h)": "draw from base/prng.h; time comes in with the request",
    r"(unordered_map|unordered_set)": "order must not come from a hash",
    r"absl/(synchronization|random|time/clock|log|debugging)/?.*": "no locks, clocks or global randomness",
    r"(grpc|grpcpp|google/protobuf|spdlog|yaml-cpp)/.*": "belongs to the edges: node, server, client",
}
PURE_BANNED_CALLS = {
    r"\bstd::(jthread|thread|mutex|shared_mutex|atomic\w*|async|this_thread|condition_variable)\b": "no threads or locks",
    r"\b(system|steady|high_resolution)_clock\b|\babsl::Now\b|\b(clock_gettime|gettimeofday)\s*\(|\bstd::time\s*\(": "no clocks",
    r"\b(rand|srand|random|drand48)\s*\(|\brandom_device\b|\bmt19937(_64)?\b": "draw from base/prng.h",
    r"\bstd::unordered_(multi)?(map|set)\b": "order must not come from a hash; a sorted container or an index",
    r"\b(getenv|fopen|malloc_trim|syscall|mmap)\s*\(|\bstd::c(out|err|log|in)\b": "no system calls or streams",
    r"\bstd::(reduce|transform_reduce|execution)\b": "the order of a sum is part of its value",
    r"\bthread_local\b": "no state outside the state machine",
}
GRPC_FREE = {"io", "storage", "include"}

MAX_FUNCTION, MAX_HEADER, MAX_SOURCE = 70, 250, 600
SKIPPED_FOLDERS = {".git", "build", ".venv", "__pycache__", ".pytest_cache", ".cache", "node_modules"}
TEXT = (".cc", ".h", ".py", ".proto", ".md", ".txt", ".cmake", ".json", ".yaml", ".yml", ".toml", ".sh", ".supp")

Finding = tuple[str, int, str]


class Tree:
    """The files of the repository, read once."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.files: list[str] = []
        for folder, names, files in os.walk(root):
            names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS and not n.endswith(".egg-info"))
            self.files += [pathlib.Path(folder, f).relative_to(root).as_posix() for f in sorted(files)]

    @functools.lru_cache(maxsize=None)
    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @functools.lru_cache(maxsize=None)
    def code(self, path: str) -> str:
        return cpp_text.code_only(self.read(path))

    def ending(self, *endings: str) -> list[str]:
        return [f for f in self.files if f.endswith(endings)]

    def cpp(self) -> list[str]:
        return self.ending(".cc", ".h")

    def python(self) -> list[str]:
        return [f for f in self.ending(".py") if not f.endswith(("_pb2.py", "_pb2_grpc.py"))]

    def text(self) -> list[str]:
        own = self.ending(*TEXT) + [f for f in self.files if f in ("dev", ".ci/run")]
        return [f for f in own if f not in ("tools/tidy.py", "tools/tidy_test.py")]

    def lists(self) -> dict[str, str]:
        return {f: self.read(f) for f in self.files if f.endswith("CMakeLists.txt")}


def layer_of(path: str) -> str | None:
    """The layer that a file belongs to: a folder of src, or include; None for tests, bench and tools."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return "include" if parts[0] == "include" else None


def included_layer(path: str) -> str | None:
    """The layer that an include names, or None for a dependency's header."""
    if path.startswith("forebay/v1/"):
        return "proto"
    if path.startswith("forebay/"):
        return "include"
    if path.startswith(("etcdserverpb/", "mvccpb/")):
        return "etcd-proto"
    first = path.split("/")[0]
    return first if "/" in path and first in MAY_INCLUDE else None


def matches(text: str, pattern: str, flags: int = 0) -> Iterator[tuple[int, str]]:
    for match in re.finditer(pattern, text, flags):
        yield cpp_text.line_of(text, match.start()), match.group()


def check_include_table(tree: Tree) -> Iterator[Finding]:
    """Section 11 of the design: layers look down, never up."""
    for path in tree.cpp():
        layer = layer_of(path)
        if layer is None:
            continue
        if layer != "include" and layer not in MAY_INCLUDE:
            yield path, 1, f"folder src/{layer} is not in the include table"
            continue
        allowed = {layer, *MAY_INCLUDE.get(layer, "").split()}
        for line, name in cpp_text.includes(tree.read(path)):
            other = included_layer(name)
            if other is not None and other not in allowed and name not in allowed:
                yield path, line, f"{layer} may not include {name} of {other}"


def check_include_path(tree: Tree) -> Iterator[Finding]:
    """An include of our own names an existing file from the include root."""
    known = set(tree.files)
    for path in tree.cpp():
        for line, name in cpp_text.includes(tree.read(path)):
            if included_layer(name) in ("proto", "etcd-proto"):
                root = "proto/" if included_layer(name) == "proto" else "proto/etcd/"
                proto = root + re.sub(r"(\.grpc)?\.pb\.h$", ".proto", name)
                exists = proto in known
            else:
                layer = included_layer(name)
                exists = layer is None or f"include/{name}" in known or f"src/{name}" in known
            if not exists:
                yield path, line, f"no such header: {name}"


def check_pure(tree: Tree) -> Iterator[Finding]:
    """The pure core has no threads, locks, clocks, system calls, gRPC or global randomness."""
    for path in tree.cpp():
        if layer_of(path) not in PURE or path in IMPURE:
            continue
        for line, name in cpp_text.includes(tree.read(path)):
            for pattern, reason in PURE_BANNED_INCLUDES.items():
                if re.fullmatch(pattern, name):
                    yield path, line, f"<{name}> in a pure folder: {reason}"
        for pattern, reason in PURE_BANNED_CALLS.items():
            for line, what in matches(tree.code(path), pattern):
                yield path, line, f"{what.rstrip('( ')} in a pure folder: {reason}"


def check_hash_order(tree: Tree) -> Iterator[Finding]:
    """In pure folders nobody walks a hash container, unless a comment `order-free: why` stands on the line or above it."""
    names: dict[str, set[str]] = {}
    declared = r"absl::(?:flat|node)_hash_(?:map|set)<[^;{}()]*>\s*&?\s*(\w+)\s*[;={,)]"
    for path in tree.cpp():
        if layer_of(path) in PURE:
            names.setdefault(layer_of(path), set()).update(re.findall(declared, tree.code(path)))
    for path in tree.cpp():
        for name in sorted(names.get(layer_of(path) or "", ())):
            walk = rf"for\s*\([^;{{}}()]*:\s*(?:\w+(?:\.|->))*{name}\s*\)|\b{name}\s*(?:\.|->)\s*c?begin\s*\("
            for line, _ in matches(tree.code(path), walk):
                if not any("order-free:" in l for l in tree.read(path).splitlines()[max(0, line - 2) : line]):
                    yield path, line, f"walks the hash container {name}"


def check_edges(tree: Tree) -> Iterator[Finding]:
    """liburing stays in src/io; gRPC stays out of the client's public headers, io and storage; locks are those that TSan sees."""
    for path in tree.cpp():
        layer = layer_of(path)
        for line, name in cpp_text.includes(tree.read(path)):
            if name.startswith("liburing") and layer != "io":
                yield path, line, "liburing is included in src/io alone"
            if layer in GRPC_FREE and re.match(r"(grpc|grpcpp|google/protobuf)/", name):
                yield path, line, f"{name} does not belong into {layer}"
            if re.match(r"absl/synchronization/", name) and layer != "main":
                yield path, line, "ThreadSanitizer does not see absl's locks: base/sync.h, or the standard library's"


def check_size(tree: Tree) -> Iterator[Finding]:
    """A function fits a screen; a file that outgrows its bound is telling something."""
    for path in tree.cpp() + tree.python():
        text = tree.read(path)
        bound = MAX_HEADER if path.endswith(".h") else MAX_SOURCE
        lines = text.count("\n")
        if lines > bound:
            yield path, bound, f"{lines} lines, at most {bound}"
        if path.endswith(".py"):
            spans = [
                (n.name, n.lineno, n.end_lineno - n.lineno + 1)
                for n in ast.walk(ast.parse(text))
                if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
        else:
            spans = [(f.name, f.first_line, f.lines) for f in cpp_text.functions(text)]
        for name, line, length in spans:
            if length > MAX_FUNCTION:
                yield path, line, f"function {name} has {length} lines, at most {MAX_FUNCTION}"


def check_header(tree: Tree) -> Iterator[Finding]:
    """A header opens with its purpose and its thread-safety, then `#pragma once`."""
    for path in tree.ending(".h"):
        lines = tree.read(path).splitlines()
        comment = []
        for line in lines:
            if not line.startswith("//"):
                break
            comment.append(line)
        if not comment:
            yield path, 1, "a header starts with a comment: purpose, thread-safety, what callers must ensure"
        elif path.startswith(("src/", "include/")) and not re.search(r"thread|plain|pure", " ".join(comment), re.IGNORECASE):
            yield path, 1, "the opening comment says nothing of threads (or: plain values, pure functions)"
        if not any(line.strip() == "#pragma once" for line in lines):
            yield path, 1, "no #pragma once"


def check_dead_file(tree: Tree) -> Iterator[Finding]:
    """Every source is built, every header is included, every folder of sources takes part in the build."""
    lists = tree.lists()
    included = {name for path in tree.cpp() for _, name in cpp_text.includes(tree.read(path))}
    for path in tree.ending(".cc"):
        folder, name = path.rsplit("/", 1) if "/" in path else ("", path)
        if name.endswith("_fuzz.cc"):
            name = f"forebay_fuzz({name.removesuffix('_fuzz.cc')}"
        listing = [
            text
            for at, text in lists.items()
            if folder == (home := at.rpartition("/")[0]) or not home or folder.startswith(home + "/")
        ]
        listing += [tree.read(f) for f in tree.ending(".cmake")]
        if not any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w.])", text) for text in listing):
            yield path, 1, "in no CMakeLists.txt, so it is never built"
    for path in tree.ending(".h"):
        known_as = {path, path.partition("/")[2], path.rpartition("/")[2]}
        if not known_as & included and not path.startswith("include/"):
            yield path, 1, "included by nobody"
    root = lists.get("CMakeLists.txt", "")
    for path in lists:
        folder = path.rpartition("/")[0]
        if re.fullmatch(r"src/\w+", folder) and not re.search(rf"(?<!\w){re.escape(folder)}(?!\w)", root):
            yield path, 1, f"{folder} is not in the root CMakeLists.txt"


def check_unlisted_test(tree: Tree) -> Iterator[Finding]:
    """A test runs only if its runner finds it."""
    for path in tree.cpp():
        tests = re.search(r"^(TEST|TEST_F|TEST_P|TYPED_TEST)\s*\(", tree.code(path), re.MULTILINE)
        if tests and not path.endswith("_test.cc"):
            yield path, cpp_text.line_of(tree.code(path), tests.start()), "tests live in files named *_test.cc"
        if path.endswith("_test.cc") and not path.startswith("tests/"):
            yield path, 1, "tests live under tests/"
    for path in tree.python():
        tests = re.search(r"^(async )?def test_", tree.read(path), re.MULTILINE)
        if tests and not re.search(r"(^|/)(test_\w+|\w+_test)\.py$", path):
            yield path, cpp_text.line_of(tree.read(path), tests.start()), "pytest collects test_*.py and *_test.py"


def check_unfinished(tree: Tree) -> Iterator[Finding]:
    """No promises, no tests that are switched off, none that cannot fail."""
    pattern = (
        r"\b(TODO|FIXME|XXX|HACK)\b|\bDISABLED_\w+|\bGTEST_SKIP\b|pytest\.mark\.(skip\w*|xfail)|pytest\.(skip|xfail)\("
        r"|\bimportorskip\b|\bunittest\.skip\w*|\.skipTest\("
        r"|\b(EXPECT|ASSERT)_TRUE\(true\)|\bassert True\b|\bNOLINT(?!\w*\([\w.,-]+\):)"
    )
    for path in tree.text():
        for line, what in matches(tree.read(path), pattern):
            yield path, line, f"{what}: finish it, or name the gap in an issue"


def check_sleep(tree: Tree) -> Iterator[Finding]:
    """A test waits for what it wants to see. The pause inside a polling loop says so: `poll: what is awaited`."""
    for path in tree.cpp() + tree.python():
        if not re.match(r"(tests|python/tests)/", path):
            continue
        lines = tree.read(path).splitlines()
        for number, line in enumerate(lines, 1):
            if re.search(r"\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor|time\.sleep|asyncio\.sleep)\s*\(", line):
                if not any("poll:" in l for l in lines[max(0, number - 2) : number]):
                    yield path, number, "sleeps for luck; await the condition, or say `poll: ...`"


def check_throw(tree: Tree) -> Iterator[Finding]:
    """Own code throws nothing: expected failure is absl::Status, a broken invariant is FOREBAY_CHECK."""
    for path in tree.cpp():
        if path.startswith(("src/", "include/")):
            for line, _ in matches(tree.code(path), r"\bthrow\b"):
                yield path, line, "own code throws nothing"


def check_machine_path(tree: Tree) -> Iterator[Finding]:
    """The repository knows no machine: no absolute home, no registry's host."""
    pattern = r"(?<![\w.}$-])/(work|root|home|Users)/\w[\w./-]*|://[^ /\"]*(debian|pypi|npmjs)[^ /\"]*\.(org|com)"
    for path in tree.text():
        for line, what in matches(tree.read(path), pattern):
            yield path, line, f"names a place of one machine or a registry: {what}"


def heading_anchors(markdown: str) -> set[str]:
    titles = re.findall(r"^#+\s+(.*?)\s*#*$", markdown, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles]
    return set(plain)


def check_link(tree: Tree) -> Iterator[Finding]:
    """Links in pages, and pages named in comments, lead somewhere."""
    for path in tree.ending(".md"):
        text = re.sub(r"```.*?```", lambda m: re.sub(r"[^\n]", " ", m.group()), tree.read(path), flags=re.DOTALL)
        for match in re.finditer(r"\[[^\]\n]*\]\(([^)\s]+)\)", text):
            target, _, anchor = match.group(1).partition("#")
            line = cpp_text.line_of(text, match.start())
            if re.match(r"\w+:", target):
                continue
            found = (tree.root / path).parent / target if target else tree.root / path
            if not found.exists():
                yield path, line, f"link to nothing: {match.group(1)}"
            elif anchor and found.suffix == ".md" and anchor not in heading_anchors(found.read_text()):
                yield path, line, f"no heading for #{anchor}"
    for path in tree.text():
        for line, page in matches(tree.read(path), r"(?<![\w/.-])docs/[\w/.-]+\.md\b"):
            if not (tree.root / page).exists():
                yield path, line, f"no such page: {page}"


def check_format_page(tree: Tree) -> Iterator[Finding]:
    """A page on a format has its grammar, an example, and a golden file that holds it, which a test reads and writes."""
    tests = " ".join(tree.read(f) for f in tree.cpp() if f.startswith("tests/"))
    for path in tree.ending(".md"):
        if not path.startswith("docs/formats/"):
            continue
        text = tree.read(path)
        for heading in ("Grammar", "Example", "Versions"):
            if not re.search(rf"^## {heading}$", text, re.MULTILINE):
                yield path, 1, f"no heading '## {heading}'"
        golden = re.findall(r"tests/golden/([\w.-]+\w)", text)
        if not golden:
            yield path, 1, "names no file of tests/golden"
        for name in golden:
            if f"tests/golden/{name}" not in tree.files:
                yield path, 1, f"no such file: tests/golden/{name}"
            elif name not in tests:
                yield path, 1, f"no test names tests/golden/{name}"


def check_proto(tree: Tree) -> Iterator[Finding]:
    """Every message, field, value and rpc of the contract is commented, on its line or above.

    An rpc speaks for its request and its response; a zero value named UNSPECIFIED speaks for itself.
    """
    entry = re.compile(
        r"^\s*(?:(?:message|enum|service|rpc|oneof)\s+\w+"
        r"|(?:optional\s+|repeated\s+)?(?:map<[^>]+>|[\w.]+)\s+\w+\s*=\s*\d+|[A-Z_0-9]+\s*=\s*\d+)"
    )
    for path in tree.ending(".proto"):
        lines = tree.read(path).splitlines()
        for number, line in enumerate(lines, 1):
            match = entry.match(line)
            above = lines[number - 2].strip() if number > 1 else ""
            spoken_for = re.search(r"message \w+(Request|Response) |_UNSPECIFIED = 0|^\s*reserved", line)
            if match and "//" not in line and not above.startswith("//") and not spoken_for:
                yield path, number, f"no comment: {line.strip()}"


def check_dependency(tree: Tree) -> Iterator[Finding]:
    """Each library that the build looks for has its reason in docs/dependencies.md."""
    page = tree.read("docs/dependencies.md").lower() if "docs/dependencies.md" in tree.files else ""
    for path in [*tree.lists(), *tree.ending(".cmake")]:
        pattern = r"^\s*(?:find_package\((\w[\w+-]*)|pkg_check_modules\((\w+))"
        for match in re.finditer(pattern, tree.read(path), re.MULTILINE):
            name = (match.group(1) or match.group(2)).lower()
            if name not in ("threads", "pkgconfig", "python3") and name not in page:
                yield path, cpp_text.line_of(tree.read(path), match.start()), f"{name} has no reason in docs/dependencies.md"


RULES = {name.removeprefix("check_").replace("_", "-"): rule for name, rule in globals().items() if name.startswith("check_")}


def run(root: pathlib.Path) -> list[tuple[str, int, str, str]]:
    """All findings as (file, line, rule, message), in order."""
    tree = Tree(root)
    return sorted((path, line, name, text) for name, rule in RULES.items() for path, line, text in rule(tree))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    findings = run(parser.parse_args().root.resolve())
    for path, line, rule, message in findings:
        print(f"{path}:{line}: {rule}: {message}")
    broken = len({rule for _, _, rule, _ in findings})
    print(f"{len(RULES) - broken} rules passed, {broken} failed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
