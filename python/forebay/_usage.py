"""What this process and this package cost it: CPU, memory, bytes. Thread-safe."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Dict, List, Set

from ._messages.actor import ClientUsage

# Threads that gRPC's core starts for itself are known by name only.
_GRPC_THREADS = ("grpc", "event_engine", "timer_manager", "default-exec", "resolver-exec", "lifeguard")


@dataclass(frozen=True)
class Usage:
    """Cumulative since the start of the process."""

    cpu_s: float
    resident_bytes: int
    pushed_bytes: int
    fetched_bytes: int
    library_cpu_s: float  # spent by the package's own threads and gRPC's


class Meter:
    """Counts bytes, and the CPU of the threads that are registered with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: Set[threading.Thread] = set()
        self._ended_cpu_s = 0.0
        self.pushed_bytes = 0
        self.fetched_bytes = 0
        self.host_load = 0.0

    def pushed(self, count: int) -> None:
        with self._lock:
            self.pushed_bytes += count

    def fetched(self, count: int) -> None:
        with self._lock:
            self.fetched_bytes += count

    def spent(self, cpu_s: float) -> None:
        """CPU of a thread that is not registered."""
        with self._lock:
            self._ended_cpu_s += cpu_s

    def enter_thread(self) -> None:
        """Called by a thread of the package at its start."""
        with self._lock:
            self._threads.add(threading.current_thread())

    def leave_thread(self) -> None:
        """Called by the same thread at its end."""
        with self._lock:
            if threading.current_thread() in self._threads:
                self._threads.discard(threading.current_thread())
                self._ended_cpu_s += time.thread_time()

    def usage(self) -> Usage:
        with self._lock:
            library = self._ended_cpu_s + sum(map(_thread_cpu_s, self._threads)) + _grpc_cpu_s()
            return Usage(
                cpu_s=time.process_time(),
                resident_bytes=_resident_bytes(),
                pushed_bytes=self.pushed_bytes,
                fetched_bytes=self.fetched_bytes,
                library_cpu_s=library,
            )

    def message(self) -> ClientUsage:
        usage = self.usage()
        return ClientUsage(
            cpu_ms=int(usage.cpu_s * 1000),
            resident_bytes=usage.resident_bytes,
            pushed_bytes=usage.pushed_bytes,
            fetched_bytes=usage.fetched_bytes,
            library_cpu_ms=int(usage.library_cpu_s * 1000),
            host_load=self.host_load,
        )


def _thread_cpu_s(thread: threading.Thread) -> float:
    if not hasattr(time, "pthread_getcpuclockid") or thread.ident is None or not thread.is_alive():
        return 0.0
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    except OSError:  # it ended meanwhile
        return 0.0


def _grpc_cpu_s() -> float:
    ticks = 0
    for stat in _thread_stats():
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if name.startswith(_GRPC_THREADS):
            fields = rest.split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0


def _thread_stats() -> List[str]:
    stats: List[str] = []
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:  # no Linux
        return stats
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/stat", encoding="utf-8", errors="replace") as file:
                stats.append(file.read())
        except OSError:  # it ended meanwhile
            continue
    return stats


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_meters: Dict[int, Meter] = {}


def meter() -> Meter:
    """The meter of this process; a forked child has its own."""
    pid = os.getpid()
    return _meters.get(pid) or _meters.setdefault(pid, Meter())
