"""The watcher where watching fails: it reports Lost, polls while it must, and says why."""

from __future__ import annotations

import ctypes
import fcntl
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import test_watcher
from test_watcher import (
    PATIENCE_S,
    Clock,
    Receiver,
    append,
    assert_copy_is_true,
    changed,
    descriptors,
    directories,
    holding,
    kernel_watches,
    linux,
    lost,
    make_cookie,
    start_copying,
)

from smp_client.model.layout import COOKIES
from smp_daemon.ingest import watcher
from smp_daemon.ingest.watcher import RETRY_S, Changed, Cookie, Notice, Watcher

pytestmark = linux
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")

# The same fixtures.
gate, root, clock = test_watcher.gate, test_watcher.root, test_watcher.clock
receiver, watching = test_watcher.receiver, test_watcher.watching


class SlowReceiver(Receiver):
    """Takes its first notice when it is released, so that the kernel's queue fills up."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reached, self.released = threading.Event(), threading.Event()

    def report(self, notice: Notice) -> None:
        self.reached.set()
        assert self.released.wait(PATIENCE_S)
        super().report(notice)


def overflow(root: Path, receiver: SlowReceiver, events: int) -> None:
    """More events than the queue holds; then, unseen, a new directory and a cookie."""
    append(root, root)
    assert receiver.reached.wait(PATIENCE_S)
    one, other = (
        (root / f"active/s1/artifacts/{name}.md").open("ab", buffering=0) for name in "ab"
    )
    with one, other:
        for _ in range(events):
            one.write(b".")
            other.write(b".")
    (root / "active/new").mkdir()
    (root / "active/new/findings.yaml").write_text("findings: []\n")
    (root / "active/s1").rename(root / "active/renamed")


def test_an_overflow_is_lost_and_then_all_is_watched_again(root: Path, gate: Path) -> None:
    """Lost comes before the next cookie, also one whose event was lost."""
    receiver = SlowReceiver(root)
    made = Watcher(root, receiver.report, polling_s=60)
    with holding(gate, fcntl.LOCK_SH):
        made.start()
        slots = int(QUEUE.read_text())
    try:
        start_copying(root, receiver)
        overflow(root, receiver, slots)
        waiting = make_cookie(root)
        receiver.released.set()
        notices = receiver.wait_for(lambda notices: Cookie(waiting) in notices)
        assert lost(notices) == ["the kernel's queue of events overflowed"]
        assert_copy_is_true(root, receiver)
        (root / "active/new/findings.yaml").write_text("later")
        (root / "active/renamed/artifacts/a.md").write_text("later")
        assert changed(assert_copy_is_true(root, receiver)) == {
            "active/new/findings.yaml",
            "active/renamed/artifacts/a.md",
        }
        assert kernel_watches(made) == len(directories(root))
        assert made.check() == ""
    finally:
        receiver.released.set()
        made.stop()


def test_a_failing_receiver_costs_a_scan_and_not_the_watcher(
    root: Path, watching: Watcher, receiver: Receiver, clock: Clock
) -> None:
    """Where `report` raises, Lost comes at once, and `check` begins again."""
    sound = receiver.report

    def report(notice: Notice) -> None:
        if notice == Changed("active/s1/bad.md"):
            raise RuntimeError("no room")
        sound(notice)

    object.__setattr__(watching._outbox, "report", report)
    clock.now += 1000
    (root / "active/s1/bad.md").write_text("once")
    assert "no room" in lost(receiver.sync())[0]
    object.__setattr__(watching._outbox, "report", sound)
    assert watching.check() == ""
    assert lost(receiver.sync())
    append(root, root)
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml"}
    assert watching.mode == "inotify"


def kill_reader(made: Watcher, root: Path) -> None:
    """Ends the reader's thread from outside, as nothing but a defect would."""
    reader = made._source._reader  # type: ignore[union-attr]
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(reader.ident), ctypes.py_object(SystemExit)
    )
    while reader.is_alive():
        append(root, root)
        reader.join(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_reader_is_replaced(
    root: Path, watching: Watcher, receiver: Receiver, clock: Clock
) -> None:
    """`check` begins again and reports Lost."""
    open_before, clock.now = descriptors(), 10.0
    kill_reader(watching, root)
    with pytest.raises(AssertionError):
        receiver.sync(within_s=0.3)
    assert watching.check() == ""
    assert lost(receiver.sync()) == ["the thread that reads the events has died"]
    append(root, root)
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml"}
    kill_reader(watching, root)
    problem = watching.check()
    assert "the thread that reads the events has died" in problem
    assert watching.mode == "polling"
    append(root, root)
    assert lost(receiver.sync())
    clock.now += RETRY_S
    assert watching.check() == ""
    assert watching.mode == "inotify"
    assert lost(receiver.sync())[-1] == "changes are watched again"
    assert descriptors() == open_before
    assert kernel_watches(watching) == len(directories(root))


@pytest.mark.parametrize("place", ["active", COOKIES])
def test_a_watched_place_that_is_replaced_is_watched_again(
    place: str, root: Path, watching: Watcher, receiver: Receiver, clock: Clock, tmp_path: Path
) -> None:
    """Removed and made again, with the same inode or another, or moved away."""
    for remove in (shutil.rmtree, lambda path: path.rename(tmp_path / "away")):
        clock.now += 1000
        remove(root / place)
        (root / place).mkdir(mode=0o700)
        receiver.wait_for(lambda _: watching._source.trouble())  # type: ignore[union-attr]
        assert watching.check() == ""
        assert watching.mode == "inotify"
        assert lost(receiver.sync())
        (root / place / "new").mkdir()
        assert changed(receiver.sync()) == ({f"{place}/new"} if place != COOKIES else set())


def test_a_system_without_inotify_is_polled(
    root: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "sys", SimpleNamespace(platform="darwin"))
    made = Watcher(root, receiver.report, polling_s=0.05)
    made.start()
    try:
        assert (made.mode, made.check()) == ("polling", "")
        start_copying(root, receiver)
        for _ in range(5):
            append(root, root)
            assert set(lost(assert_copy_is_true(root, receiver))) == {"polling"}
        receiver.wait_for(lambda notices: len(notices) > 3)
    finally:
        made.stop()
