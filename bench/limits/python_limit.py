"""What a bare Python grpcio client reaches against limit-server: raw bytes over a stream, nothing parsed.

grpcio sends bytes objects alone, and what an actor pushes are arrays that change from rollout to rollout. So a pushed
message is joined out of three arrays of one of four rollouts, as any client has to, and as ours does.

    python bench/limits/python_limit.py push --target 127.0.0.1:PORT --message-bytes 500000
    python bench/limits/python_limit.py fetch --target 127.0.0.1:PORT --message-bytes 1400000

Prints one line of JSON, with the fields that buffer-bench prints.
"""

import argparse
import itertools
import json
import os
import queue
import resource
import struct
import time
from collections.abc import Callable

import grpc

HEADER = struct.Struct("<II")  # answer bytes, bytes of the largest message of the answer
STREAM = "/forebay.limits.Limits/Stream"
STORE = "/forebay.limits.Limits/Store"


def own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def process_cpu_seconds(pid: int) -> float:
    if not pid:
        return 0.0
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stream:
    """A bidirectional stream with a window: requests go out while fewer than `window` are unanswered."""

    def __init__(self, channel: grpc.Channel, method: str, requests: Callable[[], bytes], window: int):
        self._tickets: queue.SimpleQueue = queue.SimpleQueue()
        self._next_request = requests
        for _ in range(window):
            self._tickets.put(True)
        # No serializers: bytes go in and come out as they are.
        self._answers = channel.stream_stream(method)(self._requests())

    def _requests(self):
        while self._tickets.get():
            yield self._next_request()

    def take(self, answer_bytes: int) -> None:
        left = answer_bytes
        while left > 0:
            left -= len(next(self._answers))
        if left < 0:
            raise ValueError(f"answer is {-left} bytes longer than {answer_bytes}")
        self._tickets.put(True)

    def close(self) -> None:
        self._tickets.put(False)
        self._answers.cancel()


def joined(head: bytes, size: int) -> Callable[[], bytes]:
    """Messages of `size` bytes: the head, then tokens, mask and log-probs of four rollouts in turn."""
    tokens = (size - len(head)) // 9
    rest = size - len(head) - 8 * tokens
    rollouts = [[bytearray(os.urandom(part)) for part in (4 * tokens, rest, 4 * tokens)] for _ in range(4)]
    turns = itertools.cycle(rollouts)
    return lambda: b"".join((head, *next(turns)))


def run(arguments: argparse.Namespace) -> dict:
    size = arguments.message_bytes
    if arguments.direction == "push":
        method, answer = STORE, 24
        requests = joined(HEADER.pack(answer, 0), size)
    else:
        method, answer = STREAM, size
        request = HEADER.pack(answer, arguments.frame_bytes) + bytes(56)

        def requests() -> bytes:
            return request

    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    for text in arguments.channel_argument:
        name, _, value = text.partition("=")
        options.append((name, int(value)))
    with grpc.insecure_channel(arguments.target, options=options) as channel:
        grpc.channel_ready_future(channel).result(timeout=10)
        stream = Stream(channel, method, requests, arguments.window)
        warm = time.monotonic() + arguments.warm_up_seconds
        while time.monotonic() < warm:
            stream.take(answer)
        begin, cpu = time.monotonic(), own_cpu_seconds()
        server_cpu = process_cpu_seconds(arguments.server_pid)
        operations = 0
        while time.monotonic() < begin + arguments.seconds:
            stream.take(answer)
            operations += 1
        seconds, cpu = time.monotonic() - begin, own_cpu_seconds() - cpu
        server_cpu = process_cpu_seconds(arguments.server_pid) - server_cpu
        stream.close()
    gigabytes = operations * size * 1e-9
    return {
        "name": f"python_{arguments.direction}_limit",
        "operations": operations,
        "seconds": round(seconds, 4),
        "ops_per_s": round(operations / seconds, 1),
        "gb_per_s": round(gigabytes / seconds, 4),
        "client_cpu_s_per_gb": round(cpu / gigabytes, 4),
        "server_cpu_s_per_gb": round(server_cpu / gigabytes, 4),
        "client_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("direction", choices=["push", "fetch"])
    parser.add_argument("--target", required=True, help="limit-server, host:port or unix:/path")
    parser.add_argument("--message-bytes", type=int, default=500_000, help="one rollout or micro-batch")
    parser.add_argument("--frame-bytes", type=int, default=1 << 20, help="fetch: largest message of an answer")
    parser.add_argument("--window", type=int, default=8, help="messages in flight")
    parser.add_argument("--warm-up-seconds", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--server-pid", type=int, default=0)
    parser.add_argument("--channel-argument", action="append", default=[], help="name=integer, to try settings")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
