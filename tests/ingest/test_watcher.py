"""The watcher against the real kernel: changes are reported, and a cookie comes after them.

Nothing here sleeps: a cookie is made after an action, and everything before it comes before it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from daemons import PATIENCE_S

from smp_client import Memory, Session
from smp_client.disk.tree import Tree
from smp_client.model.layout import COOKIES
from smp_daemon.ingest import watcher
from smp_daemon.ingest.watcher import RETRY_S, Changed, Cookie, Lost, Notice, Watcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Receiver:
    """Keeps the notices, and a copy of the tree that is brought up to date by them alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notices: list[Notice] = []
        self.copy: dict[str, bytes] = {}
        self.copy_at: dict[str, dict[str, bytes]] = {}  # by cookie, as it was when that came
        self.copies = False
        self._came = threading.Condition()

    def report(self, notice: Notice) -> None:
        if self.copies:
            self._bring_up_to_date(notice)
        with self._came:
            self.notices.append(notice)
            self._came.notify_all()

    def _bring_up_to_date(self, notice: Notice) -> None:
        """In the watcher's own thread: a notice that comes too early is found out."""
        if isinstance(notice, Cookie):
            self.copy_at[notice.name] = dict(self.copy)
            return
        top = notice.path if isinstance(notice, Changed) else ""
        for known in [name for name in self.copy if not top or f"{name}/".startswith(f"{top}/")]:
            del self.copy[known]
        for place in [top] if top else ["active", "global"]:
            self.copy |= files_below(self.root, place)

    def wait_for(
        self, there: Callable[[list[Notice]], object], within_s: float = PATIENCE_S
    ) -> list[Notice]:
        with self._came:
            came = self._came.wait_for(lambda: there(self.notices), within_s)
            assert came, f"not in {self.notices[-20:]}"
            return list(self.notices)

    def sync(self, within_s: float = PATIENCE_S, cookie: str = "") -> list[Notice]:
        """Everything that was reported before a cookie that is made now; forgets it."""
        cookie = cookie or make_cookie(self.root)
        self.wait_for(lambda notices: Cookie(cookie) in notices, within_s)
        with self._came:
            before, self.notices = self.notices[: self.notices.index(Cookie(cookie))], []
        (self.root / COOKIES / cookie).unlink()
        return before


def make_cookie(root: Path) -> str:
    name = uuid.uuid4().hex
    Tree(root).write_new(f"{COOKIES}/{name}", b"", durable=False)
    return name


def files_below(root: Path, place: str) -> dict[str, bytes]:
    """Name and content of all files; whatever disappears meanwhile is not there."""
    found: dict[str, bytes] = {}
    for directory, _, names in os.walk(root / place):
        for name in names:
            with contextlib.suppress(OSError):
                path = Path(directory, name)
                found[str(path.relative_to(root))] = path.read_bytes()
    with contextlib.suppress(OSError):
        found[place] = (root / place).read_bytes()
    return found


def changed(notices: list[Notice]) -> set[str]:
    return {notice.path for notice in notices if isinstance(notice, Changed)}


def lost(notices: list[Notice]) -> list[str]:
    return [notice.reason for notice in notices if isinstance(notice, Lost)]


@pytest.fixture
def root(session: Session, memory: Memory) -> Path:
    return memory.root


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def receiver(root: Path) -> Receiver:
    return Receiver(root)


@pytest.fixture
def watching(root: Path, receiver: Receiver, clock: Clock) -> Iterator[Watcher]:
    made = Watcher(root, receiver.report, polling_s=0.1, clock=clock)
    made.start()
    yield made
    made.stop()


def start_copying(root: Path, receiver: Receiver) -> None:
    receiver.copies = True
    receiver.copy = files_below(root, "active") | files_below(root, "global")


def assert_copy_is_true(root: Path, receiver: Receiver) -> list[Notice]:
    cookie = make_cookie(root)
    notices = receiver.sync(cookie=cookie)
    assert receiver.copy_at.pop(cookie) == files_below(root, "active") | files_below(root, "global")
    return notices


DECISIONS = "active/s1/decisions.yaml"


def append(root: Path, outside: Path) -> None:
    with (root / DECISIONS).open("a") as file:
        file.write("# more\n")


def rename_into_place(root: Path, outside: Path) -> None:
    (root / ".smp/tmp/new").write_text("decisions: []\n")
    (root / ".smp/tmp/new").rename(root / DECISIONS)


def exchange(root: Path, outside: Path) -> None:
    (root / ".smp/retired/slot").write_text("decisions: []\n")
    Tree(root).exchange(".smp/retired/slot", DECISIONS)


# Each kind of change is given the root and a directory outside it on the same disk.
KINDS: dict[str, tuple[Callable[[Path, Path], object], set[str]]] = {
    "append": (append, {DECISIONS}),
    "rewrite": (lambda root, _: (root / DECISIONS).write_text("decisions: []\n"), {DECISIONS}),
    "rename into place": (rename_into_place, {DECISIONS}),
    "exchange": (exchange, {DECISIONS}),
    "unlink": (lambda root, _: (root / DECISIONS).unlink(), {DECISIONS}),
    "move out": (lambda root, outside: (root / DECISIONS).rename(outside / "d"), {DECISIONS}),
    "chmod": (lambda root, _: (root / DECISIONS).chmod(0o640), {DECISIONS}),
    "global": (lambda root, _: (root / "global/p.yaml").write_text("p\n"), {"global/p.yaml"}),
    "rename": (
        lambda root, _: (root / DECISIONS).rename(root / "active/s1/old.yaml"),
        {DECISIONS, "active/s1/old.yaml"},
    ),
    "link": (lambda root, outside: (root / "active/s2").symlink_to(outside), {"active/s2"}),
    "archive": (
        lambda root, _: (root / "active/s1").rename(root / "archived/s1"),
        {"active/s1", "archived/s1"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_change_is_reported_before_the_next_cookie(
    kind: str, root: Path, receiver: Receiver, watching: Watcher, tmp_path: Path
) -> None:
    change, expected = KINDS[kind]
    change(root, tmp_path)
    notices = receiver.sync()
    assert (changed(notices), lost(notices)) == (expected, [])
    assert (watching.mode, watching.check()) == ("inotify", "")


def directories(root: Path) -> list[str]:
    """Those that ought to be watched."""
    places = ("active", "global", "archived")
    below = [directory for place in places for directory, _, _ in os.walk(root / place)]
    return [*below, COOKIES]


def kernel_watches(made: Watcher) -> int:
    """How many watches the kernel itself counts."""
    descriptor = made._source._reader._inotify_fd  # type: ignore[union-attr]
    return Path(f"/proc/self/fdinfo/{descriptor}").read_text().count("inotify wd:")


def test_own_work_causes_no_notices(
    root: Path, receiver: Receiver, watching: Watcher, session: Session
) -> None:
    """Writing reports the written file."""
    decision = session.record_decision("Use OAuth", made_by="architect")
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml"}
    session.pin(decision.id)  # a rewrite, by exchange, and the version before
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml", "active/s1/history.yaml"}
    with session.transaction() as tx:
        tx.record_finding("No MFA", discovered_by="veritas")
    assert changed(receiver.sync()) == {"active/s1/findings.yaml"}
    session.get(decision.id)
    for name in ("index.db", "index.db-wal", "status.json", "tmp/t", "locks/l", "journal/j"):
        (root / ".smp" / name).write_text("own")
    assert (root / "active/s1/access.log").exists()
    assert changed(receiver.sync()) == set()


class Disturbance:
    """Random changes of a tree, the same for the same seed."""

    def __init__(self, root: Path, outside: Path, seed: int) -> None:
        self._root, self._outside, self._random = root / "active", outside, random.Random(seed)
        self._count = 0

    def run(self, steps: int) -> None:
        doings = [self._write] * 4 + [self._replace, self._make, self._move]
        doings += [self._leave_and_return, self._remove, self._exchange]
        for _ in range(steps):
            self._count += 1
            self._random.choice(doings)()

    def _some_directory(self) -> Path:
        return self._random.choice([Path(found) for found, _, _ in os.walk(self._root)])

    def _some_file(self) -> Path:
        files = [Path(found, name) for found, _, names in os.walk(self._root) for name in names]
        return self._random.choice(files) if files else self._some_directory() / "first"

    def _write(self) -> None:
        with (self._some_directory() / f"f{self._random.randrange(8)}").open("a") as file:
            file.write(f"{self._count}\n")

    def _replace(self) -> None:
        (self._outside / "new").write_text(f"replaced {self._count}")
        (self._outside / "new").replace(self._some_file())

    def _exchange(self) -> None:
        (self._outside / "slot").write_text(f"exchanged {self._count}")
        target = self._some_file()
        target.touch()
        Tree(self._outside.parent).exchange(
            str((self._outside / "slot").relative_to(self._outside.parent)),
            str(target.relative_to(self._outside.parent)),
        )

    def _make(self) -> None:
        new = self._some_directory() / f"d{self._count}/e"
        if len(new.parts) - len(self._root.parts) < 8:
            new.mkdir(parents=True)
            (new / "f0").write_text(f"{self._count}")

    def _move(self) -> None:
        source, target = self._some_directory(), self._some_directory()
        if source != self._root and not target.is_relative_to(source):
            source.rename(target / f"m{self._count}")

    def _leave_and_return(self) -> None:
        source = self._some_directory()
        if source != self._root:
            source.rename(self._outside / "away")
            if self._random.random() < 0.3:
                source.mkdir()
            (self._outside / "away").rename(self._some_directory() / f"r{self._count}")

    def _remove(self) -> None:
        source = self._some_directory()
        if source != self._root and self._random.random() < 0.5:
            shutil.rmtree(source)


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_follows_the_notices_is_the_tree(
    seed: int, root: Path, receiver: Receiver, watching: Watcher, tmp_path: Path
) -> None:
    """After any history of changes, a copy that follows only the notices equals the tree."""
    start_copying(root, receiver)
    (tmp_path / "outside").mkdir()
    disturbance = Disturbance(root, tmp_path / "outside", seed)
    for _ in range(4):
        disturbance.run(100)
        assert_copy_is_true(root, receiver)
    assert kernel_watches(watching) == len(directories(root))
    assert watching.check() == ""


def test_cookies_that_were_there_before_are_named(root: Path, receiver: Receiver) -> None:
    """A cookie from before the start is reported at the start, and again after a Lost."""
    Tree(root).make_directory(COOKIES)
    cookie = make_cookie(root)
    made = Watcher(root, receiver.report, polling_s=0.1)
    made.start()
    try:
        (root / COOKIES / "not a cookie").mkdir()
        made._outbox.lost("a reason")
        assert receiver.sync() == [Cookie(cookie), Lost("a reason"), Cookie(cookie)]
    finally:
        made.stop()


def descriptors() -> int:
    gc.collect()  # what other tests have left open is not to go in between
    return len(os.listdir("/proc/self/fd"))


def test_stopping_ends_everything(root: Path, receiver: Receiver) -> None:
    made = Watcher(root, receiver.report, polling_s=0.05)
    threads, open_before = threading.active_count(), descriptors()
    for _ in range(3):
        made.start()
        made.restart("soon after the start")
        assert made.mode == "polling"
        made.stop()
        made.stop()
        assert (made.mode, made.check()) == ("stopped", "The watcher is stopped.")
    assert (threading.active_count(), descriptors()) == (threads, open_before)
    receiver.notices.clear()
    append(root, root)
    assert receiver.notices == []


# Where watching fails, the watcher reports Lost, polls while it must, and says why.


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


def test_an_overflow_is_lost_and_then_all_is_watched_again(root: Path) -> None:
    """Lost comes before the next cookie, also one whose event was lost."""
    receiver = SlowReceiver(root)
    made = Watcher(root, receiver.report, polling_s=60)
    made.start()
    try:
        start_copying(root, receiver)
        overflow(root, receiver, int(QUEUE.read_text()))
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
    assert lost(receiver.sync())[-1] == "the watcher is tried again"
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
