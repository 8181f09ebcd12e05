"""Calls to the daemon: channels that are opened lazily in each process, deadlines, retries, cancellation.

Thread-safe. A Connection may be used after fork: the child opens channels of its own.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import os
import random
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple, Type, TypeVar, Union

# Lets a process that has spoken to the daemon fork (DataLoader workers); read when grpc is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

import grpc  # noqa: E402

from . import _errors  # noqa: E402
from ._cluster import WATCH, Cluster, parse_seeds  # noqa: E402
from ._wire import Message  # noqa: E402

log = logging.getLogger("forebay")
Response = TypeVar("Response", bound=Message)

UNARY_TIMEOUT_S = 30.0
# Longer than anybody waits; gRPC takes no infinity.
_TIMEOUT_MAX_S = 10 * 365 * 86_400.0
# A daemon that was never reached is waited for no longer than this.
FIRST_CONTACT_S = 10.0
# What every daemon takes in one message, headers of HTTP/2 not counted. Nothing larger is sent, whatever a daemon's settings.
MESSAGE_BYTES_MAX = 16 << 20
_BACKOFF_MIN_S, _BACKOFF_MAX_S = 0.05, 2.0
_OPTIONS: List[Tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # retried here, where deadlines and reasons are known
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Else the name is looked up again only after 30 s, also when it is an address.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
]


@dataclass(frozen=True)
class TLS:
    """Files of a TLS connection. Without `ca` the system's roots are trusted; cert and key are for mutual TLS."""

    ca: Optional[str] = None
    cert: Optional[str] = None
    key: Optional[str] = None

    def credentials(self) -> grpc.ChannelCredentials:
        def read(path: Optional[str], what: bytes) -> Optional[bytes]:
            if path is None:
                return None
            with open(path, "rb") as file:
                text = file.read()
            # gRPC would say so in its own log alone.
            if what not in text:
                raise ValueError(f"tls: {path} holds no PEM {what.decode().lower()}")
            return text

        certificate = b"CERTIFICATE"
        return grpc.ssl_channel_credentials(
            read(self.ca, certificate), read(self.key, b"PRIVATE KEY"), read(self.cert, certificate)
        )


def _tls_hint(message: str, tls: bool) -> str:
    """What gRPC's words for a failed connection mean; it has no codes for these."""
    text = message.lower().replace("_", " ")
    if not tls:
        closed = "socket closed" in text or "connection reset by peer" in text
        return "TLS: it closed the connection; the daemon may ask for TLS: " if closed else ""
    if "certificate verify failed" in text:
        return "TLS: the daemon's certificate is not signed by the CA that was given: "
    if "hostname verification" in text:
        return "TLS: the daemon's certificate does not name this address: "
    if "wrong version number" in text:
        return "TLS: what listens there does not speak TLS: "
    if "socket closed" in text or "handshake" in text:
        return "TLS: it ended the handshake; the daemon may ask for a client's certificate of its CA: "
    return ""


class Scope:
    """What is cancelled together. Calls made while it is the current one end when it is cancelled."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._calls: Set[Any] = set()
        self._event = threading.Event()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        self._event.set()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def wait(self, seconds: float) -> bool:
        """Sleeps; returns early, and True, when cancelled."""
        return self._event.wait(max(0.0, seconds))

    @contextlib.contextmanager
    def holding(self, call: Any) -> Iterator[None]:
        with self._lock:
            self._calls.add(call)
        try:
            if self.cancelled:
                call.cancel()
            yield
        finally:
            with self._lock:
                self._calls.discard(call)


_current: contextvars.ContextVar[Optional[Scope]] = contextvars.ContextVar("scope", default=None)


@contextlib.contextmanager
def scoped(scope: Scope) -> Iterator[Scope]:
    """Makes `scope` the one that calls of this context belong to."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)


def current_scope(otherwise: Optional[Scope] = None) -> Scope:
    """The scope of this context; if there is none, `otherwise`, or a new one, which nobody cancels."""
    return _current.get() or otherwise or Scope()


class Backoff:
    """Growing pauses with jitter."""

    def __init__(self) -> None:
        self._next_s = _BACKOFF_MIN_S

    def next_s(self, at_least_s: float = 0.0) -> float:
        pause = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(_BACKOFF_MAX_S, self._next_s * 2)
        return max(pause, at_least_s)

    def reset(self) -> None:
        self._next_s = _BACKOFF_MIN_S


def random_id() -> int:
    """A random 64-bit id, not 0."""
    return int.from_bytes(os.urandom(8), "little") or 1


def retry_after_s(error: grpc.RpcError) -> float:
    """When the daemon wants to be asked again; 0 if it did not say."""
    metadata = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    for key, value in metadata or ():
        if key == "retry-after-ms":
            with contextlib.suppress(ValueError):
                return int(value) / 1000
    return 0.0


def encoded(message: Message, what: str) -> bytes:
    """The message's bytes; raises InvalidRequest, which names `what`, for values that its fields cannot hold."""
    try:
        return message.encode()
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
        raise _errors.InvalidRequest(f"{what}: cannot be encoded: {error}") from error


def may_retry(error: grpc.RpcError) -> bool:
    """Whether asking again can help: the daemon is away, or says when to ask again.

    RESOURCE_EXHAUSTED without a time is a limit that no repetition moves, as of a message that is too large.
    """
    code = error.code()
    return code is grpc.StatusCode.UNAVAILABLE or (
        code is grpc.StatusCode.RESOURCE_EXHAUSTED and retry_after_s(error) > 0
    )


class Moved(grpc.RpcError):  # type: ignore[misc]
    """What a stream ends with when another node has come to lead."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "another node leads"

    def trailing_metadata(self) -> Tuple[Any, ...]:
        return ()


class _Node:
    """The channels to one node, of one purpose each, so that calls never queue behind payload bytes."""

    def __init__(self, address: str, open_channel: Callable[[str], grpc.Channel]) -> None:
        self.address = address
        self.left = False  # another one leads: what was under way has ended, and nothing begins
        self._open = open_channel
        self._lock = threading.RLock()
        self._channels: Dict[str, grpc.Channel] = {}
        self._stubs: Dict[Tuple[str, str], Any] = {}

    def stub(self, kind: str, method: str, purpose: str, decode: Optional[Callable[[bytes], Any]] = None) -> Any:
        with self._lock:
            stub = self._stubs.get((method, purpose)) if decode is None else None
            if stub is None:
                channel = self._channels.get(purpose)
                if channel is None:
                    channel = self._channels[purpose] = self._open(self.address)
                    if self.left:
                        channel.close()  # whoever calls on it is told as if it had been there before
                # No serializers: messages are encoded and decoded here.
                stub = getattr(channel, kind)(method, response_deserializer=decode)
                if decode is None:
                    self._stubs[method, purpose] = stub
            return stub

    def close(self, left: bool = False) -> None:
        """Ends all calls."""
        with self._lock:
            self.left = self.left or left
            channels, self._channels, self._stubs = self._channels, {}, {}
        for channel in channels.values():
            channel.close()


class Stream:
    """A stream to the node that leads: iterates over the answers. It ends with Moved when another one comes to lead."""

    def __init__(self, connection: "Connection", node: _Node, revision: int, call: Any) -> None:
        self._connection, self._node, self._call = connection, node, call
        self._cancelled = False
        self.revision = revision  # for Connection.pause

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Any:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            if self._node.left and not self._cancelled:
                raise Moved() from None
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._connection._cluster.failed(self._node.address, error)
            raise

    def cancel(self) -> None:
        # What was ended before, by leaving the node, is to be told as that.
        self._cancelled = not self._node.left
        self._call.cancel()


class Connection:
    """A target, which may be several nodes of a cluster, and how to call it: the node that leads, if there are several."""

    def __init__(
        self,
        target: str,
        token: Optional[str] = None,
        tls: Union[None, bool, str, TLS] = None,
        timeout: float = UNARY_TIMEOUT_S,
        alone: bool = False,
    ) -> None:
        """`alone`: it is known that there is no cluster."""
        self._seeds = parse_seeds(target)
        if not timeout >= 0:  # written so that NaN fails
            raise ValueError(f"timeout is {timeout}, must be a number of seconds, at least 0")
        self.target = target
        self.timeout = timeout
        self._tls = TLS() if tls is True else TLS(ca=tls) if isinstance(tls, str) else tls or None
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        self._lock = threading.RLock()
        self._pid = 0
        self._alone = alone
        self._nodes: Dict[str, _Node] = {}
        self._cluster = self._new_cluster()
        self._reached = False
        self._closed = False

    def __getstate__(self) -> Dict[str, Any]:
        """Pickled for workers: all but what belongs to this process."""
        state = dict(self.__dict__)
        for name in ("_lock", "_nodes", "_cluster"):
            del state[name]
        return {**state, "_pid": 0}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock(), _nodes={})
        self._cluster = self._new_cluster()

    def _new_cluster(self) -> Cluster:
        cluster = Cluster(self._seeds, self._open_watch, self._moved)
        if self._alone:
            cluster.be_alone()
        return cluster

    def _leader(self) -> Tuple[_Node, int]:
        """The node to call, and what is known now: for `pause`, should the call fail."""
        if self._pid != os.getpid():
            self._begin_process()
        address, revision = self._cluster.current
        return self._node(address), revision

    def _node(self, address: str) -> _Node:
        with self._lock:
            if self._closed:
                raise _errors.Cancelled("the connection was closed")
            node = self._nodes.get(address)
            if node is None:
                node = self._nodes[address] = _Node(address, self._open)
            return node

    def _moved(self, leader: str) -> None:
        """Ends what is under way elsewhere: a node that is frozen never would."""
        with self._lock:
            left = [node for address, node in self._nodes.items() if address != leader]
            self._nodes = {address: node for address, node in self._nodes.items() if address == leader}
        for node in left:
            node.close(left=True)

    def _open_watch(self, address: str, request: bytes) -> Any:
        # Of its own, if it is not the one that is called: it goes on when others are left.
        stub = self._node(address).stub("unary_stream", WATCH, "calls" if address == self._cluster.current[0] else "watch")
        return stub(request, metadata=self._metadata)

    def pause(self, seconds: float, scope: Scope, since: int) -> bool:
        """Before what failed is begun again: sleeps, but no longer than until there is a better place for it.

        `since`: the revision of what failed. Returns early, and True, when cancelled.
        """
        return self._cluster.pause(seconds, scope, since)

    def _begin_process(self) -> None:
        """After a fork: the parent's channels are its own, and its threads may have held the lock."""
        with _fork_lock:
            if self._pid != os.getpid():
                _inherited.append((self._nodes, self._cluster))  # never closed here
                self._lock = threading.RLock()
                self._nodes, self._cluster, self._reached = {}, self._new_cluster(), False
                self._pid = os.getpid()

    def _open(self, address: str) -> grpc.Channel:
        # glibc gives freed memory back to the system above twice the largest block that was freed so far; messages of
        # megabytes would come in fresh pages each time, which cost more than their copies. A block that is never touched:
        bytes(16 << 20)
        options = [*_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        if self._tls is not None:
            return grpc.secure_channel(address, self._tls.credentials(), options=options)
        return grpc.insecure_channel(address, options=options)

    def stream(
        self,
        method: str,
        requests: Iterator[bytes],
        purpose: str = "calls",
        timeout: Optional[float] = None,
        decode: Optional[Callable[[bytes], Any]] = None,
    ) -> Stream:
        """Begins a stream of encoded messages; what is returned iterates over what `decode` makes of the answers.

        gRPC's thread calls `decode` as soon as it has the bytes. It must neither raise nor return None.
        """
        if timeout is not None:
            timeout = min(timeout, _TIMEOUT_MAX_S)
        return self._begin(
            lambda node: node.stub("stream_stream", method, purpose, decode)(
                requests, timeout=timeout, metadata=self._metadata
            )
        )

    def watch(self, method: str, request: Message) -> Stream:
        """Begins a call that is answered by a stream."""
        body = request.encode()
        return self._begin(lambda node: node.stub("unary_stream", method, "calls")(body, metadata=self._metadata))

    def _begin(self, begin: Callable[[_Node], Any]) -> Stream:
        while True:
            node, revision = self._leader()
            try:
                return Stream(self, node, revision, begin(node))
            except ValueError:  # so gRPC says that the channel was closed meanwhile
                if not node.left:
                    raise

    def call(
        self,
        method: str,
        request: Message,
        response: Type[Response],
        timeout: Optional[float] = None,
        scope: Optional[Scope] = None,
        wait: bool = False,
        repeated: Optional[Callable[[], None]] = None,
    ) -> Response:
        """One call; repeated while the daemon is unavailable or overloaded, until `timeout` (seconds) is over.

        With `wait` a daemon that was never reached is waited for as long as one that was. `repeated` is called before
        each repetition. Raises InvalidRequest for a request of more than MESSAGE_BYTES_MAX bytes, which is not sent.
        """
        scope = scope or current_scope()
        body = encoded(request, method.rpartition("/")[2])
        if len(body) > MESSAGE_BYTES_MAX:
            what = method.rpartition("/")[2]
            raise _errors.InvalidRequest(f"{what}: the request has {len(body)} bytes, at most {MESSAGE_BYTES_MAX}")
        begin = time.monotonic()
        deadline = begin + (self.timeout if timeout is None else timeout)
        backoff = Backoff()
        failure: Optional[_errors.ForebayError] = None
        while True:
            left = deadline - time.monotonic()
            node, revision = self._leader()
            stub = node.stub("unary_unary", method, "calls")
            try:
                call = stub.future(body, timeout=min(max(left, 0.001), _TIMEOUT_MAX_S), metadata=self._metadata)
            except ValueError:  # so gRPC says that the channel was closed meanwhile
                if node.left:
                    continue
                raise _errors.Cancelled(f"the connection was closed ({method})") from failure
            with scope.holding(call):
                try:
                    answer = call.result()
                    self._reached = True
                    self._cluster.answered()
                    return response.decode(answer)
                except (grpc.FutureCancelledError, grpc.RpcError) as raised:
                    error = self._reason(raised, node, scope)
            if error is None:
                raise _errors.Cancelled(f"cancelled ({method})")
            if failure is not None and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise failure from None  # what the last whole try said, says more
            pause = self._pause_before_retry(error, method, backoff, begin, deadline, wait)
            failure = self._failure(error, method)
            if repeated is not None:
                repeated()
            if self.pause(pause, scope, revision):
                raise _errors.Cancelled(f"cancelled ({method})") from failure

    def _reason(self, error: Exception, node: _Node, scope: Scope) -> Optional[grpc.RpcError]:
        """Why a call failed, as the cluster's keeper is told; None if it was cancelled here."""
        ended = isinstance(error, grpc.FutureCancelledError)
        cut_off = not ended and error.code() is grpc.StatusCode.CANCELLED  # type: ignore[attr-defined]
        # A daemon that ends cuts calls off in this way, too.
        if not scope.cancelled and not self._closed and (cut_off or (ended and node.left)):
            return Moved()
        if ended:
            return None
        assert isinstance(error, grpc.RpcError)
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            self._cluster.failed(node.address, error)
        return error

    def _pause_before_retry(
        self,
        error: grpc.RpcError,
        method: str,
        backoff: Backoff,
        begin: float,
        deadline: float,
        wait: bool,
    ) -> float:
        """How long to wait until the next try; raises if there is none."""
        if may_retry(error):
            if not self._reached and not self._cluster.heard and not wait:
                deadline = min(deadline, begin + FIRST_CONTACT_S)
            pause = backoff.next_s(retry_after_s(error))
            left = deadline - time.monotonic()
            # With several nodes one may come to lead any moment.
            if pause < left or (self._cluster.several and left > 0):
                return min(pause, left)
        raise self._failure(error, method) from None

    def _failure(self, error: grpc.RpcError, method: str) -> _errors.ForebayError:
        failure = _errors.from_rpc(error, method)
        if isinstance(failure, _errors.Unavailable):
            hint = _tls_hint(str(failure), self._tls is not None)
            asked = self._cluster.asked()
            asked = f"; asked: {asked}" if asked else ""
            return _errors.Unavailable(f"{self.target} is not available: {hint}{failure}{asked}")
        return failure

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # of a parent, or never used
        self._cluster.close()
        with self._lock:
            self._closed = True  # whoever comes later opens no channel any more
            nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            node.close()


_serial = itertools.count(1)
_inherited: List[Any] = []
_fork_lock = threading.RLock()


def _renew_fork_lock() -> None:
    global _fork_lock
    _fork_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_fork_lock)


def thread_name(purpose: str) -> str:
    """Names for the package's threads, as debuggers show them."""
    return f"forebay-{purpose}-{next(_serial)}"
