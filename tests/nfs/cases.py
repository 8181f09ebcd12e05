"""The cases: what happens to the server, the export or the guest while rollouts are pushed, and what must come of it."""

from __future__ import annotations

import time

from lab import DEGRADED, EXPORT_BYTES, OK, PAYLOAD_BYTES_MAX, SETTLE_S, SOFT, TRAIN_S, UNREACHABLE, Lab

HUNG = "the store of rollouts is hung"
NAMED_S = 20.0  # until status names a trouble: the deadline of writes, and an emulated machine
FROZEN_S = 30.0


def write_and_read_back(lab: Lab) -> None:
    """More than memory holds is pushed; what was evicted is read from the server."""
    lab.begin(150)
    console = lab.guest.said()
    lab.check("real_nfs", "vers=4.2" in console and "segments by io_uring" in console, console)
    lab.finish()
    moved = lab.metrics()
    read_back = moved['forebay_store_moved_bytes_total{kind="read_back"}']
    lab.check("was_read_back", read_back > PAYLOAD_BYTES_MAX, f"{read_back:,.0f} bytes")
    failed = moved["forebay_store_failed_writes_total"]
    lab.check("no_write_failed", failed == 0, f"{failed:.0f} writes failed")


def server_restart(lab: Lab) -> None:
    """The server is killed under load, and started again."""
    lab.begin(40)
    lab.server.kill()
    lab.await_status(DEGRADED, HUNG, NAMED_S)
    lab.hold(3)
    lab.server.start()
    lab.finish()


def server_frozen(lab: Lab) -> None:
    """The server answers nothing for longer than its leases last."""
    lab.begin(40)
    lab.server.freeze()
    thaw_at = time.monotonic() + FROZEN_S
    lab.await_status(DEGRADED, HUNG, NAMED_S)
    lab.hold(thaw_at - time.monotonic())
    lab.server.thaw()
    lab.finish()


def soft_mount(lab: Lab) -> None:
    """The server is away, and the mount gives up: writes end with errors, and nothing that failed is trusted again."""
    lab.begin(40, SOFT)
    lab.server.kill()
    lab.await_status(DEGRADED, "the store of rollouts is failing", FROZEN_S)
    lab.hold(5)
    lab.server.start()
    lab.finish()


def export_full(lab: Lab) -> None:
    """No space is left; later there is some again."""
    lab.begin(40)
    lab.server.resize(lab.server.used_bytes())
    lab.await_status(DEGRADED, "the store of rollouts is full", NAMED_S)
    lab.hold(5)
    lab.server.resize(EXPORT_BYTES)
    lab.finish()


def file_removed(lab: Lab) -> None:
    """Somebody removes the files that are written. What is in them is read from files that are still open."""
    lab.begin(40)
    removed = lab.server.segments()
    for path in removed:
        path.unlink()
    lab.await_status(DEGRADED, "the store of rollouts is incomplete", NAMED_S)
    lab.traffic.await_acknowledged(lab.traffic.acknowledged() + 40, SETTLE_S)
    lab.traffic.stop(SETTLE_S)
    written = set(lab.server.segments()) - set(removed)
    lab.check("new_files", bool(written), "nothing was written to a new file")
    lab.traffic.train_all(TRAIN_S)
    lab.await_status(OK, "", SETTLE_S)


def guest_killed(lab: Lab) -> None:
    """The client's machine loses its power under load; another one goes on with its disk and its store."""
    lab.begin(60)
    lab.guest.kill()
    lab.start_guest()
    lab.finish()


def ended_while_hung(lab: Lab) -> None:
    """While the server answers nothing bufferd ends when it is told to, and so does a start, which says what it waits for.

    The kernel keeps the process until the server has answered its closing of files.
    """
    lab.begin(40)
    lab.server.freeze()
    lab.await_status(DEGRADED, HUNG, NAMED_S)
    mark = lab.guest.mark()
    lab.guest.tell("killall -TERM bufferd")
    lab.guest.await_words("the store of rollouts hangs: ended without waiting for it", mark, NAMED_S)
    lab.await_status(UNREACHABLE, "", NAMED_S)
    lab.server.thaw()
    lab.guest.await_words("bufferd ended with 4", mark, NAMED_S)

    lab.server.freeze()
    mark = lab.guest.mark()
    lab.guest.tell("serve")
    lab.guest.await_words("the start waits for the store of rollouts", mark, NAMED_S)
    lab.guest.tell("killall -TERM bufferd")
    lab.guest.await_words("a signal ended the start", mark, NAMED_S)
    lab.server.thaw()
    lab.guest.await_words("bufferd ended with 4", mark, NAMED_S)
    lab.guest.serve()
    lab.finish()


CASES = {
    case.__name__: case
    for case in (
        server_frozen,
        soft_mount,
        ended_while_hung,
        file_removed,
        server_restart,
        guest_killed,
        export_full,
        write_and_read_back,
    )
}
