#!/usr/bin/env python3
"""A cluster on this machine, for trying things out: etcd and some nodes on loopback, in one directory.

    ./dev cluster [--nodes N] [--shards N] [--dir DIR] [--port PORT] [--bufferd FILE] [-- --ENTRY=VALUE ...]

Prints the addresses, starts again what ends, and stops everything on Ctrl-C. Started again with the same directory the run
goes on. What follows `--` goes to every bufferd. All of it is one machine: it shows how a cluster behaves, and keeps nothing
safe from the loss of that machine.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
HOST = "127.0.0.1"
RESTART_S = 1.0  # between the end of a process and its next start
STOP_S = 15.0
LOOK_S = 0.1
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """In the child: it does not outlive this script, whatever ends that."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclasses.dataclass
class Program:
    name: str
    words: list[str]
    log: pathlib.Path
    process: subprocess.Popen | None = None
    ended: float = 0.0

    def start(self) -> None:
        with self.log.open("ab") as log:
            # Ctrl-C is for this script: it ends the others in their order.
            self.process = subprocess.Popen(
                self.words, stdout=log, stderr=log, start_new_session=True, preexec_fn=end_with_parent
            )

    def look(self) -> None:
        """Starts it again if it has ended."""
        assert self.process is not None
        code = self.process.poll()
        if code is None:
            return
        now = time.monotonic()
        if not self.ended:
            self.ended = now
            print(f"{self.name} ended with {code}, and is started again; see {self.log}", flush=True)
        elif now - self.ended >= RESTART_S:
            self.ended = 0.0
            self.start()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            print(f"{self.name} does not end, and is killed", flush=True)
            self.process.kill()
            self.process.wait()


def check_ports(ports: list[int]) -> None:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                sys.exit(f"cluster: port {port} cannot be used ({error.strerror}); choose others with --port")


def programs(args: argparse.Namespace, directory: pathlib.Path) -> list[Program]:
    client, peer = (f"{HOST}:{args.port + 100 + i}" for i in range(2))
    out = [
        Program(
            "etcd",
            [
                "etcd",
                "--name=etcd",
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls=http://{client}",
                f"--advertise-client-urls=http://{client}",
                f"--listen-peer-urls=http://{peer}",
                f"--initial-advertise-peer-urls=http://{peer}",
                f"--initial-cluster=etcd=http://{peer}",
            ],
            directory / "etcd.log",
        )
    ]
    for node in range(1, args.nodes + 1):
        port = args.port + 2 * (node - 1)
        out.append(
            Program(
                f"node {node}",
                [
                    str(args.bufferd),
                    f"--listen.grpc={HOST}:{port}",
                    f"--listen.http={HOST}:{port + 1}",
                    "--listen.unix=",
                    f"--cluster.etcd={client}",
                    f"--cluster.node={node}",
                    f"--cluster.replicas={min(args.nodes, 3)}",
                    f"--cluster.min_in_sync={min(args.nodes, 2)}",
                    f"--shards={args.shards}",
                    f"--storage.directory={directory / f'node-{node}'}",
                    f"--storage.segment_directory={directory / 'rollouts'}",
                    *args.entries,
                ],
                directory / f"node-{node}.log",
            )
        )
    return out


def parse() -> argparse.Namespace:
    words = sys.argv[1:]
    entries: list[str] = []
    if "--" in words:
        at = words.index("--")
        words, entries = words[:at], words[at + 1 :]
    parser = argparse.ArgumentParser(prog="./dev cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3, help="how many (default 3)")
    parser.add_argument("--shards", type=int, default=1, help="how many (default 1)")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build" / "cluster", help="where all of it lies")
    parser.add_argument("--port", type=int, default=7411, help="the first node's; each has two, etcd those 100 above")
    parser.add_argument("--bufferd", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "bufferd")
    args = parser.parse_args(words)
    if not 1 <= args.nodes <= 16:
        parser.error("--nodes: 1 to 16")
    args.entries = entries
    return args


def main() -> int:
    args = parse()
    if shutil.which("etcd") is None:
        sys.exit("cluster: there is no program etcd: install the package etcd-server (./dev setup cluster)")
    directory = args.dir.resolve()
    (directory / "rollouts").mkdir(parents=True, exist_ok=True)
    check_ports([args.port + i for i in range(2 * args.nodes)] + [args.port + 100, args.port + 101])
    started = programs(args, directory)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: stopping.append(received))
    try:
        for program in started:
            program.start()
        addresses = ",".join(f"{HOST}:{args.port + 2 * i}" for i in range(args.nodes))
        print(f"etcd        {HOST}:{args.port + 100}")
        for i in range(args.nodes):
            print(f"node {i + 1}      {HOST}:{args.port + 2 * i}   metrics http://{HOST}:{args.port + 2 * i + 1}/metrics")
        print(f"all of it   {directory}\n")
        print(f"export FOREBAY_ADDRESS={HOST}:{args.port}   # any node's; clients may have all: {addresses}")
        print("buffer-ctl nodes; buffer-ctl shards; buffer-ctl status\nCtrl-C stops the cluster.", flush=True)
        while not stopping:
            for program in started:
                program.look()
            time.sleep(LOOK_S)
    finally:
        print("stopping", flush=True)
        for program in reversed(started):
            program.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
