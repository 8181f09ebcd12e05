"""Rollouts pushed and micro-batches fetched by the C++ client: GB a second."""

from contextlib import contextmanager

from harness import Programs

from .base import PairedMeasure, Result, median_of

PAYLOAD_BYTES_MAX = 8 << 30


class Payload(PairedMeasure):
    unit = "GB/s"
    figure = "gb_per_s"
    cpu = "server_cpu_s_per_gb"
    details = ("client_cpu_s_per_gb", "server_peak_rss_bytes")
    at_least = 0.85

    def __init__(self, name: str, channels: int, window: int):
        self.name = name if channels == 1 else f"{name}_{channels}_channels"
        self.channels, self.window = channels, window

    @contextmanager
    def limit(self, programs: Programs):
        with programs.limit_server() as server:
            yield lambda script: programs.bench(
                server, "limit", script=script, channels=self.channels, window=self.window)


class Push(Payload):
    """Rollouts of `size` bytes, `window` in flight on each channel."""

    def __init__(self, name: str, size: int, channels: int, window: int):
        super().__init__(name, channels, window)
        self.size = size
        self.group_size = 16 if size < 16 << 20 else 2  # open groups hold their bytes
        frame = 1 << 20
        self.script = f"store:{frame}x{size // frame}>8" if size > frame else f"store:{size}>8"

    @contextmanager
    def ours(self, programs: Programs):
        programs.require("push")
        with programs.daemon(**{"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}) as server:
            yield lambda: programs.bench(
                server, "push", rollout_bytes=self.size, channels=self.channels, window=self.window,
                group_size=self.group_size)

    def beside(self, programs: Programs, script: str) -> dict:
        """What a server reaches that drops the bytes, without the one copy and its crc."""
        with self.limit(programs) as limit:
            runs = [limit(script.replace("store:", "stream:")) for _ in range(programs.settings.rounds)]
        return {"discard": median_of(runs, self.figure), "discard_cpu_s_per_gb": median_of(runs, self.cpu),
                "discard_command": runs[0]["command"]}


class FetchMicroBatch(Payload):
    """Micro-batches of 64k tokens with five columns (tokens, loss_mask, logprobs, teacher_logprobs, values)."""

    script = "stream:128>1114112/1048576"  # 65,536 x (4 + 1 + 4 + 4 + 4) bytes

    @contextmanager
    def ours(self, programs: Programs):
        programs.require("fetch")
        with programs.daemon(**{"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}) as server:
            yield lambda: programs.bench(
                server, "fetch", tokens=65536, channels=self.channels, window=self.window)


class FetchSlice(Payload):
    """What a stage of a pipeline takes of micro-batches of 16k tokens: tokens, loss_mask, logprobs as bf16, and the recorded
    routes of 15 of 60 layers (i16, 10 experts a token): 307 of 1,209 bytes a token, of 158 MB that lie in memory."""

    tokens, layers = 16_384, 15
    asked = tokens * (4 + 1 + 2 + layers * 10 * 2)
    script = f"stream:128>{asked}/1048576"

    @contextmanager
    def ours(self, programs: Programs):
        programs.require("fetch")
        with programs.daemon(**{"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}) as server:
            yield lambda: programs.bench(
                server, "fetch", tokens=self.tokens, micro_batches=8, stage_layers=self.layers, channels=self.channels,
                window=self.window)

    def result(self, ours: list[dict], limits: list[dict], beside: dict) -> Result:
        for run in ours:
            run["sent_bytes"] = int(run["script"].split(">")[1].split("/")[0])
        if ours:
            beside = {**beside, "asked_bytes": self.asked, "sent_bytes": median_of(ours, "sent_bytes")}
        return super().result(ours, limits, beside)

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        taken = super().results(programs, limits_only)
        if limits_only:
            return taken
        sent = taken[0].details["sent_bytes"] / self.asked
        return [*taken, Result(f"{self.name}_bytes", sent, "sent/asked", taken[0].command, bound="value <= 1.01")]


MEASURES = [
    Push("push_500k", 500_000, channels=1, window=8),
    Push("push_500k", 500_000, channels=4, window=8),
    Push("push_64m", 64 << 20, channels=1, window=1),
    Push("push_64m", 64 << 20, channels=4, window=1),
    FetchMicroBatch("fetch_micro_batch", channels=1, window=4),
    FetchMicroBatch("fetch_micro_batch", channels=4, window=4),
    FetchSlice("fetch_slice", channels=1, window=4),
    FetchSlice("fetch_slice", channels=4, window=4),
]
