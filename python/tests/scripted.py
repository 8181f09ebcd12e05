"""A daemon for tests of what a real one does seldom: streams that break, leases that are lost, odd answers."""

import threading
from concurrent import futures

import grpc

import forebay as fb
from forebay._messages import actor, admin, trainer

METHODS = {**actor.METHODS, **trainer.METHODS, **admin.METHODS}
MESSAGE_BYTES_MAX = 16 << 20  # as of a real daemon


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, daemon):
        self.daemon = daemon

    def service(self, details):
        if details.method not in METHODS:
            return None
        request, _ = METHODS[details.method]
        name = details.method.rpartition("/")[2]
        if name in ("Push", "PushGroup", "Fetch"):
            return grpc.stream_stream_rpc_method_handler(getattr(self.daemon, name.lower()))

        def answer(body, context):
            with self.daemon.changed:
                self.daemon.calls.append((name, request.decode(body)))
                self.daemon.changed.notify_all()
            return self.daemon.answer(name, request.decode(body), context).encode()

        return grpc.unary_unary_rpc_method_handler(answer)


class ScriptedDaemon:
    """Hands out `assignments`; takes what is pushed. Behaviour is changed by setting attributes."""

    def __init__(self):
        self.changed = threading.Condition()
        self.calls = []  # (method, request)
        self.frames = []  # (stream, PushFrame)
        self.streams = 0
        self.assignments = []  # not handed out yet
        self.renew_actions = {}  # attempt: (action, reason)
        self.outcomes = {}  # attempt: PushOutcome
        self.break_streams = 0  # so many push streams end at their first frame, unanswered
        self.may_break = threading.Event()  # they wait for it
        self.may_break.set()
        self.refused_with = {}  # attempt: (status, details) that a frame with it ends the stream with
        self.refused_rewards = set()  # attempts; a SetReward with one of them is refused as a whole
        self.answers = {}  # method: a list of messages or statuses, used up before the usual answer
        self.fetched = []  # FetchRequests
        self.micro_batch = None  # FetchRequest -> list of FetchFrame
        self.renew_interval_ms = 50
        self.server = grpc.server(
            futures.ThreadPoolExecutor(32),
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)],
        )
        self.server.add_generic_rpc_handlers((_Handlers(self),))
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()
        self.runs = []

    def stop(self):
        for run in self.runs:
            run.close(timeout=1)
        self.server.stop(None)

    def connect(self, **options):
        run = fb.connect(self.target, **options)
        self.runs.append(run)
        return run

    def assign(self, count, first=1, **fields):
        with self.changed:
            self.assignments += [
                actor.Assignment(
                    attempt_id=first + i,
                    token=7,
                    group_id=1,
                    attempt=i,
                    source=3,
                    version=5,
                    external_id=f"task-{first + i}",
                    payload=b'{"prompt": "2+2"}',
                    **fields,
                )
                for i in range(count)
            ]
            self.changed.notify_all()

    def wait(self, condition, timeout=20):
        """Waits until the condition holds; fails the test if it does not."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout), "it did not happen"

    def requests(self, method):
        with self.changed:
            return [request for name, request in self.calls if name == method]

    # ---- answers

    def answer(self, name, request, context):
        with self.changed:
            scripted = self.answers.get(name)
            answer = scripted.pop(0) if scripted else None
        if isinstance(answer, tuple):
            status, details, *retry_after_ms = answer
            context.set_trailing_metadata([("retry-after-ms", str(ms)) for ms in retry_after_ms])
            context.abort(status, details)
        if answer is not None:
            return answer
        if name == "OpenSession":
            return actor.OpenSessionResponse(run=1, renew_interval_ms=self.renew_interval_ms)
        if name == "Acquire":
            return self.acquire(request)
        if name == "Renew":
            actions = [self.renew_actions.get(a, (0, "")) for a in request.attempt_ids]
            return actor.RenewResponse(actions=[a for a, _ in actions], reasons=[r for _, r in actions])
        if name == "SetReward":
            if self.refused_rewards.intersection(entry.attempt_id for entry in request.rewards):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "attempt_ids: 3 names shard 9")
            return actor.SetRewardResponse(results=[1] * len(request.rewards))
        return METHODS[next(m for m in METHODS if m.endswith("/" + name))][1]()

    def acquire(self, request):
        with self.changed:
            self.changed.wait_for(lambda: self.assignments, min(request.wait_ms / 1000, 0.2))
            given, self.assignments = self.assignments[: request.max], self.assignments[request.max :]
        info = actor.SourceInfo(source=3, name="math", sampling_json='{"temperature": 0.5}')
        return actor.AcquireResponse(
            assignments=given, sources=[info], reason="" if given else "no_tasks", retry_after_ms=10
        )

    def push(self, frames, context):
        with self.changed:
            self.streams += 1
            stream = self.streams
            breaks = self.break_streams > 0
            self.break_streams -= breaks
        begun, missing = [], 0
        for body in frames:
            frame = actor.PushFrame.decode(body)
            with self.changed:
                self.frames.append((stream, frame))
                self.changed.notify_all()
            for rollout in frame.rollouts:
                if rollout.attempt_id in self.refused_with:
                    context.abort(*self.refused_with[rollout.attempt_id])
            if breaks:
                assert self.may_break.wait(20)
                context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
            if frame.rollouts:
                begun = frame.rollouts
                missing = sum(column.bytes for rollout in begun for column in rollout.columns)
            missing -= len(frame.payload)
            outcomes = []
            if missing == 0:
                for index, rollout in enumerate(begun):
                    outcome = self.outcomes.get(rollout.attempt_id)
                    if outcome is not None:
                        outcome.index = index
                        outcomes.append(outcome)
            accepted = len(begun) - len(outcomes) if missing == 0 else 0
            yield actor.PushReply(frame=frame.frame, accepted=accepted, outcomes=outcomes).encode()

    def fetch(self, requests, context):
        for body in requests:
            request = trainer.FetchRequest.decode(body)
            with self.changed:
                self.fetched.append(request)
            for frame in self.micro_batch(request):
                if isinstance(frame, grpc.StatusCode):
                    context.abort(frame, "going away")
                frame.id = request.id
                yield frame.encode()
