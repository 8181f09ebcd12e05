"""The Python package against a bare grpcio byte stream."""

from contextlib import contextmanager

from harness import ROOT, NotBuilt, Programs, Server

from .base import PairedMeasure

PAYLOAD_BYTES_MAX = 8 << 30
OURS = ROOT / "bench" / "python_load.py"


class PythonClient(PairedMeasure):
    """Ours is bench/python_load.py: the public API, with numpy arrays."""

    unit = "GB/s"
    figure = "gb_per_s"
    cpu = "client_cpu_s_per_gb"
    details = ("client_peak_rss_bytes",)
    at_least = 0.8

    def __init__(self, name: str, direction: str, message_bytes: int, window: int):
        self.name, self.direction, self.message_bytes, self.window = name, direction, message_bytes, window
        self.script = ""  # the bare client has one exchange, given by its flags

    def run(self, programs: Programs, server: Server, program: str, **flags: object) -> dict:
        settings = programs.settings
        flags = {"target": server.target, "server-pid": server.pid, "seconds": settings.seconds,
                 "warm-up-seconds": settings.warm_up_seconds, "window": self.window, **flags}
        return programs.json_of([settings.python, program, self.direction,
                                 *(f"--{name}={value}" for name, value in flags.items())])

    @contextmanager
    def ours(self, programs: Programs):
        if not OURS.exists():
            raise NotBuilt(f"{OURS.relative_to(ROOT)} does not exist")
        with programs.daemon(**{"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}) as server:
            yield lambda: self.run(programs, server, str(OURS), **{"message-bytes": self.message_bytes})

    @contextmanager
    def limit(self, programs: Programs):
        program = str(ROOT / "bench" / "limits" / "python_limit.py")
        with programs.limit_server() as server:
            yield lambda script: self.run(programs, server, program, **{"message-bytes": self.message_bytes})


MEASURES = [
    PythonClient("python_push_500k", "push", 500_000, window=256),
    PythonClient("python_fetch", "fetch", 1_114_112, window=4),
]
