"""A small network of namespaces on one bridge, and who cannot hear whom. One thread uses it.

Each host has a namespace and an address of its own; whoever calls this is at HUB. A cut drops what one address sends to another,
in this direction alone: connections stay, and nothing comes any more, as behind a broken switch.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

PREFIX = "10.77.0."
HUB = PREFIX + "254"
TABLE = "bridge chaos"


def _do(*words: str) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


class Network:
    """Needs a network namespace of its own, and root in it."""

    def __init__(self) -> None:
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        _do("ip", "link", "set", "lo", "up")
        _do("ip", "link", "add", "hub", "type", "bridge")
        _do("ip", "addr", "add", f"{HUB}/24", "dev", "hub")
        _do("ip", "link", "set", "hub", "up")
        _do("nft", f"add table {TABLE}")
        _do("nft", f"add set {TABLE} cut {{ type ipv4_addr . ipv4_addr; }}")
        for hook in ("input", "forward", "output"):
            _do("nft", f"add chain {TABLE} {hook} {{ type filter hook {hook} priority 0; }}")
            _do("nft", f"add rule {TABLE} {hook} ip saddr . ip daddr @cut drop")

    def host(self, name: str, number: int) -> str:
        """Makes a host; returns its address."""
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        assert holder.stdout is not None
        holder.stdout.readline()  # it is in its namespace
        self._holders[name] = holder
        address, pid = f"{PREFIX}{number}", str(holder.pid)
        _do("ip", "link", "add", f"v-{number}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        _do("ip", "link", "set", f"v-{number}", "master", "hub", "up")
        inside = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip")
        _do(*inside, "link", "set", "lo", "up")
        _do(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        _do(*inside, "link", "set", "eth0", "up")
        return address

    def within(self, name: str, command: list[str]) -> list[str]:
        """The command that runs `command` on that host."""
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net", "--", *command]

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """From now on nothing comes from the first address of a pair to the second."""
        elements = ", ".join(f"{sender} . {receiver}" for sender, receiver in sorted(set(pairs)))
        _do("nft", f"add element {TABLE} cut {{ {elements} }}")

    def heal(self) -> None:
        _do("nft", f"flush set {TABLE} cut")

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        _do("nft", f"delete table {TABLE}")
        _do("ip", "link", "delete", "hub")


def both_ways(ones: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    others = list(others)
    return [pair for one in ones for other in others if one != other for pair in ((one, other), (other, one))]
