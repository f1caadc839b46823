"""The watcher against the real kernel: what changes is reported, or Lost is; and a cookie comes after what was written before it.

Nothing here sleeps: a cookie is made after an action, and when it has come through, so has everything before it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smp_client import Memory, Session
from smp_client.files import Tree
from smp_client.status import COOKIES
from smp_daemon.ingest import polling, watcher
from smp_daemon.ingest.notices import Changed, Cookie, Lost, Notice, Outbox
from smp_daemon.ingest.watcher import Inotify, Observed, Watcher

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
pytestmark = linux
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the kernel's limits")
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
PATIENCE_S = 15.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Receiver:
    """Keeps the notices, and a copy of the tree that is brought up to date by them alone, as an index would be."""

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
        """At the earliest possible moment, in the watcher's own thread: a notice that comes too early is found out."""
        if isinstance(notice, Cookie):
            self.copy_at[notice.name] = dict(self.copy)
            return
        top = notice.path if isinstance(notice, Changed) else ""
        for known in [name for name in self.copy if not top or f"{name}/".startswith(f"{top}/")]:
            del self.copy[known]
        for place in [top] if top else ["active", "global"]:
            self.copy |= files_below(self.root, place)

    def wait_for(self, there: Callable[[list[Notice]], object], within_s: float = PATIENCE_S) -> list[Notice]:
        with self._came:
            assert self._came.wait_for(lambda: there(self.notices), within_s), f"not in {self.notices[-20:]}"
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
    Tree(root).create_cookie(f"{COOKIES}/{name}")
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


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the processes that run tests: whoever changes a kernel setting has it alone, whoever depends on it shares it."""
    path = tmp_path_factory.getbasetemp().parent / "inotify.lock"
    path.touch()
    return path


@contextlib.contextmanager
def holding(gate: Path, how: int) -> Iterator[None]:
    with gate.open() as file:
        fcntl.flock(file, how)
        yield


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
def watching(root: Path, receiver: Receiver, clock: Clock, gate: Path) -> Iterator[Watcher]:
    made = Watcher(root, receiver.report, polling_s=0.1, clock=clock)
    with holding(gate, fcntl.LOCK_SH):
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


# Every kind of change. Each is given the root and a directory outside it on the same disk.


def append(root: Path, outside: Path) -> None:
    with (root / "active/s1/decisions.yaml").open("a") as file:
        file.write("# more\n")


def truncate_and_write(root: Path, outside: Path) -> None:
    (root / "active/s1/decisions.yaml").write_text("decisions: []\n")


def rename_into_place(root: Path, outside: Path) -> None:
    (root / ".smp/tmp/new").write_text("decisions: []\n")
    (root / ".smp/tmp/new").rename(root / "active/s1/decisions.yaml")


def exchange(root: Path, outside: Path) -> None:
    (root / ".smp/retired/slot").write_text("decisions: []\n")
    Tree(root).exchange(".smp/retired/slot", "active/s1/decisions.yaml")


def unlink(root: Path, outside: Path) -> None:
    (root / "active/s1/decisions.yaml").unlink()


def move_out(root: Path, outside: Path) -> None:
    (root / "active/s1/decisions.yaml").rename(outside / "decisions.yaml")


def allow_reading_again(root: Path, outside: Path) -> None:
    (root / "active/s1/decisions.yaml").chmod(0o640)


def write_global(root: Path, outside: Path) -> None:
    (root / "global/user-profile.yaml").write_text("user_profile: {}\n")


def rename_file(root: Path, outside: Path) -> None:
    (root / "active/s1/decisions.yaml").rename(root / "active/s1/old.yaml")


def link_to_elsewhere(root: Path, outside: Path) -> None:
    (root / "active/s2").symlink_to(outside)


def archive(root: Path, outside: Path) -> None:
    (root / "active/s1").rename(root / "archived/s1")


def delete_session(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "active/s1")


KINDS: dict[Callable[[Path, Path], None], set[str]] = {
    append: {"active/s1/decisions.yaml"},
    truncate_and_write: {"active/s1/decisions.yaml"},
    rename_into_place: {"active/s1/decisions.yaml"},
    exchange: {"active/s1/decisions.yaml"},
    unlink: {"active/s1/decisions.yaml"},
    move_out: {"active/s1/decisions.yaml"},
    allow_reading_again: {"active/s1/decisions.yaml"},
    write_global: {"global/user-profile.yaml"},
    rename_file: {"active/s1/decisions.yaml", "active/s1/old.yaml"},
    link_to_elsewhere: {"active/s2"},
    archive: {"active/s1", "archived/s1"},
}


@pytest.mark.parametrize("source", [Inotify, Observed])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_change_is_reported_before_the_next_cookie(
    kind: Callable[[Path, Path], None], source: type[Inotify | Observed], root: Path, receiver: Receiver, tmp_path: Path,
    gate: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Exactly the paths that changed are reported, by the reader of inotify and by the observer that macOS uses."""
    monkeypatch.setattr(watcher, "Inotify", source)
    made = Watcher(root, receiver.report, polling_s=0.1)
    with holding(gate, fcntl.LOCK_SH):
        made.start()
    try:
        assert made.mode == source.mode
        kind(root, tmp_path)
        if source is Inotify:
            notices = receiver.sync()
            assert changed(notices) == KINDS[kind]
            assert lost(notices) == []
        else:
            # An observer tells of what is in a directory one by one as well, and of attributes not at all.
            assert changed(receiver.sync()) >= (KINDS[kind] if kind is not allow_reading_again else set())
        assert made.check() == []
    finally:
        made.stop()


@pytest.mark.parametrize("way", ["made", "copied", "moved in", "renamed"])
def test_a_new_directory_is_watched_when_it_is_reported(
    way: str, root: Path, receiver: Receiver, watching: Watcher, tmp_path: Path
) -> None:
    """However a session's directory comes to be there, it is named, its files are found by looking, and later writes are seen."""
    start_copying(root, receiver)
    if way == "made":
        (root / "active/s2/artifacts/deep").mkdir(parents=True)
        (root / "active/s2/artifacts/deep/report.md").write_text("at once")
    elif way == "copied":
        subprocess.run(["cp", "-a", root / "active/s1", root / "active/s2"], check=True)
    elif way == "moved in":
        shutil.copytree(root / "active/s1", tmp_path / "s2")
        (tmp_path / "s2").rename(root / "active/s2")
    else:
        (root / "active/s1").rename(root / "active/s2")
    assert "active/s2" in changed(assert_copy_is_true(root, receiver))
    (root / "active/s2/artifacts/later.md").write_text("later")
    assert changed(assert_copy_is_true(root, receiver)) == {"active/s2/artifacts/later.md"}


def test_a_directory_that_left_is_watched_no_more(root: Path, receiver: Receiver, watching: Watcher, tmp_path: Path) -> None:
    """What happens to a session after it was moved out is not taken for a change of an active one; an archive is watched."""
    (root / "active/s1").rename(tmp_path / "s1")
    assert changed(receiver.sync()) == {"active/s1"}
    (tmp_path / "s1/decisions.yaml").write_text("not ours")
    (root / "archived/s9").mkdir()
    (root / "archived/s9/summary.yaml").write_text("archive: {}")
    assert changed(receiver.sync()) >= {"archived/s9"}
    (root / "archived/s9/summary.yaml").write_text("archive: {state: archived}")
    assert changed(receiver.sync()) == {"archived/s9/summary.yaml"}
    assert kernel_watches(watching) == len(directories(root))


def test_a_deleted_session_and_one_made_again_in_its_place(root: Path, receiver: Receiver, watching: Watcher) -> None:
    """A directory that is removed and made again, over and over, is watched in the end, and no watch is left over."""
    start_copying(root, receiver)
    for turn in range(20):
        shutil.rmtree(root / "active/s1")
        (root / "active/s1/inbox").mkdir(parents=True)
        (root / "active/s1/inbox/drop.yaml").write_text(f"{turn}")
    assert_copy_is_true(root, receiver)
    (root / "active/s1/inbox/drop.yaml").write_text("once more")
    assert changed(assert_copy_is_true(root, receiver)) == {"active/s1/inbox/drop.yaml"}
    assert kernel_watches(watching) == len(directories(root))


def directories(root: Path) -> list[str]:
    """Those that ought to be watched."""
    below = [directory for place in ("active", "global", "archived") for directory, _, _ in os.walk(root / place)]
    return [*below, "deleted", COOKIES]


def kernel_watches(made: Watcher) -> int:
    """How many watches the kernel itself counts."""
    descriptor = made._source._reader._inotify_fd  # type: ignore[union-attr]
    return Path(f"/proc/self/fdinfo/{descriptor}").read_text().count("inotify wd:")


def test_own_work_causes_no_notices(root: Path, receiver: Receiver, watching: Watcher, session: Session) -> None:
    """Writing through the client reports the written file alone: no lock, temporary, journal or index; reading reports nothing."""
    decision = session.record_decision("Use OAuth", made_by="architect")
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml"}
    session.pin(decision.id)  # a rewrite, by exchange
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml"}
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
        doings = [self._write] * 4 + [self._replace, self._make, self._move, self._leave_and_return, self._remove, self._exchange]
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
            str((self._outside / "slot").relative_to(self._outside.parent)), str(target.relative_to(self._outside.parent))
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


def disturb_and_compare(root: Path, receiver: Receiver, outside: Path, seed: int) -> None:
    start_copying(root, receiver)
    outside.mkdir()
    (root / "active/s1").rename(root / "active/s2")
    assert_copy_is_true(root, receiver)
    (root / "active/s2/artifacts/report.md").write_text("deep in what was renamed")
    assert_copy_is_true(root, receiver)
    disturbance = Disturbance(root, outside, seed)
    for _ in range(4):
        disturbance.run(100)
        assert_copy_is_true(root, receiver)


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_that_follows_the_notices_is_the_tree(
    seed: int, root: Path, receiver: Receiver, watching: Watcher, tmp_path: Path
) -> None:
    """After any history of writes, moves and removals, whoever looks only where the notices say, when they say it, knows all."""
    disturb_and_compare(root, receiver, tmp_path / "outside", seed)
    assert kernel_watches(watching) == len(directories(root))
    assert watching.check() == []


def only_the_top(self: Inotify, top: str) -> set[int]:
    return {self._add(top)}


def never_removed(self: Inotify, path: str, mask: int) -> None:
    if mask & watcher._CREATE:
        self._cover(path)


@pytest.mark.parametrize("broken", [{"_cover": only_the_top}, {"_follow": never_removed}], ids=["flat", "deaf to moves"])
def test_a_copy_finds_a_watcher_out_that_follows_badly(
    broken: dict[str, object], root: Path, receiver: Receiver, tmp_path: Path, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: one that watches no deeper than it must, and one that takes no notice of moves, lose changes."""
    for name, function in broken.items():
        monkeypatch.setattr(Inotify, name, function)
    made = Watcher(root, receiver.report, polling_s=60)
    with holding(gate, fcntl.LOCK_SH):
        made.start()
    try:
        with pytest.raises(AssertionError):
            disturb_and_compare(root, receiver, tmp_path / "outside", seed=0)
    finally:
        made.stop()


def write_many(root: Path, count: int) -> set[str]:
    for number in range(count):
        (root / ".smp/tmp/new").write_text(f"{number}")
        (root / ".smp/tmp/new").rename(root / f"active/s1/artifacts/a{number}.md")
    return {f"active/s1/artifacts/a{number}.md" for number in range(count)}


def test_a_cookie_comes_after_ten_thousand_writes(root: Path, receiver: Receiver, watching: Watcher) -> None:
    """All that was written before a cookie is reported before it, however long the queue is."""
    start_copying(root, receiver)
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context((root / f"active/s1/artifacts/a{n}.md").open("ab", buffering=0)) for n in range(50)]
        for turn in range(200):
            for file in files:
                file.write(b"%d\n" % turn)
    assert len(assert_copy_is_true(root, receiver)) > 50


def test_watchdogs_own_observer_lets_a_cookie_overtake(root: Path, tmp_path: Path, gate: Path) -> None:
    """Why its observers are not used on Linux: with one schedule for each place, a cookie overtakes what was written before it,
    because an exchange holds up what follows it for half a second.

    Should this fail with a later watchdog, the watcher may become simpler.
    """
    from watchdog.events import FileCreatedEvent, FileModifiedEvent, FileSystemEventHandler
    from watchdog.observers import Observer

    order: list[str] = []
    all_three = threading.Event()

    class Note(FileSystemEventHandler):
        def dispatch(self, event: object) -> None:
            order.append(os.path.basename(event.src_path))  # type: ignore[attr-defined]
            if len(set(order)) == 3:
                all_three.set()

    observer = Observer()
    for place, recursive in (("active", True), (COOKIES, False)):
        (root / place).mkdir(exist_ok=True)
        observer.schedule(Note(), str(root / place), recursive=recursive, event_filter=[FileCreatedEvent, FileModifiedEvent])
    with holding(gate, fcntl.LOCK_SH):
        observer.start()
    exchange(root, tmp_path)
    (root / "active/s1/findings.yaml").write_text("findings: []\n")
    cookie = make_cookie(root)
    assert all_three.wait(PATIENCE_S)
    observer.stop()
    observer.join()
    assert order.index(cookie) < order.index("findings.yaml")


class SlowReceiver(Receiver):
    """Its first notice is not taken before it is released, so that the kernel's queue fills up behind it."""

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
    one, other = ((root / f"active/s1/artifacts/{name}.md").open("ab", buffering=0) for name in "ab")
    with one, other:
        for _ in range(events):
            one.write(b".")
            other.write(b".")
    (root / "active/new").mkdir()
    (root / "active/new/findings.yaml").write_text("findings: []\n")
    (root / "active/s1").rename(root / "active/renamed")


@pytest.mark.parametrize("reports", [True, False], ids=["sound", "broken"])
def test_an_overflow_is_lost_and_then_all_is_watched_again(
    reports: bool, root: Path, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an overflow of the real queue Lost comes before the next cookie, cookies whose event was lost included, and
    directories made meanwhile are watched. The broken variant does what watchdog's users get, nothing: its copy is wrong."""
    if not reports:
        monkeypatch.setattr(Inotify, "on_queue_overflow", lambda self: None)
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
        if not reports:
            # The first cookie is lost as well; the second comes, and vouches for what nobody saw.
            with pytest.raises(AssertionError):
                assert_copy_is_true(root, receiver)
            return
        notices = receiver.wait_for(lambda notices: Cookie(waiting) in notices)
        assert lost(notices) == ["the kernel's queue of events overflowed"]
        assert_copy_is_true(root, receiver)
        (root / "active/new/findings.yaml").write_text("later")
        (root / "active/renamed/artifacts/a.md").write_text("later")
        assert changed(assert_copy_is_true(root, receiver)) == {"active/new/findings.yaml", "active/renamed/artifacts/a.md"}
        assert kernel_watches(made) == len(directories(root))
        assert made.check() == []
    finally:
        receiver.released.set()
        made.stop()


@needs_root
def test_a_queue_of_64_events_loses_nothing_silently(root: Path, receiver: Receiver, gate: Path) -> None:
    """2,000 atomic writes against the smallest sensible queue: the copy is the tree when the cookie comes."""
    made = Watcher(root, receiver.report, polling_s=60)
    with holding(gate, fcntl.LOCK_EX):
        before = QUEUE.read_text()
        try:
            QUEUE.write_text("64")
            made.start()
        finally:
            QUEUE.write_text(before)
    try:
        start_copying(root, receiver)
        write_many(root, 2_000)
        assert_copy_is_true(root, receiver)
        assert made.check() == []
    finally:
        made.stop()


# Runs where the number of watches is limited for it alone. Says what the watcher made of it.
LIMITED = """
import json, sys, time
from pathlib import Path
from smp_daemon.ingest import watcher
from smp_daemon.ingest.notices import Changed, Cookie, Lost

root, at_first, broken = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "broken"
limit = Path("/proc/sys/user/max_inotify_watches")
now, notices, said = 0.0, [], {}

def until(there):
    end = time.monotonic() + (1 if broken else 15)
    while not there():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True

def cookie(name):
    (root / ".smp/cookies" / name).touch()
    return until(lambda: Cookie(name) in notices)

if broken:
    def add(self, path, sound=watcher.Inotify._add):
        try:
            return sound(self, path)
        except OSError:
            return -1
    watcher.Inotify._add = add
limit.write_text(str(at_first))
made = watcher.Watcher(root, notices.append, 0.05, clock=lambda: now)
made.start()
said["first"] = [made.mode, made.check()]
(root / "active/late").mkdir()
(root / "active/late/decisions.yaml").write_text("decisions: []")
said["cookie"] = cookie("one")
said["lost before it"] = any(isinstance(notice, Lost) for notice in notices)
said["then"] = [made.check(), made.mode]
del notices[:]
(root / "active/late/decisions.yaml").write_text("decisions: [1]")
said["noticed"] = until(lambda: Lost("polling") in notices or Changed("active/late/decisions.yaml") in notices)
limit.write_text("1000")
now += 61
said["after"] = [made.check(), made.mode]
del notices[:]
(root / "active/late/decisions.yaml").write_text("decisions: [2]")
said["watched again"] = cookie("two") and Changed("active/late/decisions.yaml") in notices[: notices.index(Cookie("two"))]
made.stop()
print(json.dumps(said))
"""


def run_limited(root: Path, limit: int, variant: str = "sound") -> dict[str, object]:
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", LIMITED, str(root), str(limit), variant]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    return said


@needs_root
@pytest.mark.parametrize("spare", [-1, 0], ids=["at the start", "later"])
def test_at_the_watch_limit_it_polls_and_says_so(spare: int, root: Path) -> None:
    """With too few watches for the tree, or for a directory that is added, changes and cookies come through by polling, `check`
    names the limit, and once it is raised everything is watched again."""
    Tree(root).make_directory(COOKIES)
    said = run_limited(root, len(directories(root)) + spare)
    problem = "fs.inotify.max_user_watches"
    first_mode, first_problems = said["first"]  # type: ignore[misc]
    assert (first_mode, problem in str(first_problems)) == (("inotify", False) if spare == 0 else ("polling", True))  # type: ignore[has-type]
    assert said["cookie"]
    assert said["lost before it"]
    then_problems, then_mode = said["then"]  # type: ignore[misc]
    assert problem in str(then_problems)  # type: ignore[has-type]
    assert then_mode == "polling"  # type: ignore[has-type]
    assert said["noticed"]
    assert said["after"] == [[], "inotify"]
    assert said["watched again"]


@needs_root
def test_a_watcher_that_ignores_the_limit_is_found_out(root: Path) -> None:
    """The test above can fail: one that goes on without the watch, as watchdog's observer does, reports no loss and no change."""
    Tree(root).make_directory(COOKIES)
    said = run_limited(root, len(directories(root)), "broken")
    assert said["then"] == [[], "inotify"]
    assert said["cookie"]
    assert not said["lost before it"]
    assert not said["noticed"]


def test_a_failing_receiver_costs_a_scan_and_not_the_watcher(root: Path, watching: Watcher, receiver: Receiver) -> None:
    """Where `report` raises, Lost comes as soon as it works again, before anything else; also by the next check."""
    failing = threading.Event()
    sound = receiver.report

    def report(notice: Notice) -> None:
        if failing.is_set() or notice == Changed("active/s1/bad.md"):
            failed.set()
            raise RuntimeError("no room")
        sound(notice)

    failed = threading.Event()
    watching._outbox._report = report
    (root / "active/s1/bad.md").write_text("once")
    assert "no room" in lost(receiver.sync())[0]
    append(root, root)
    receiver.wait_for(lambda notices: Changed("active/s1/decisions.yaml") in notices)
    failing.set()
    failed.clear()
    append(root, root)
    assert failed.wait(PATIENCE_S)
    cookie = make_cookie(root)
    failing.clear()
    assert watching.check() == []
    notices = receiver.wait_for(lambda notices: Cookie(cookie) in notices)
    assert lost(notices[: notices.index(Cookie(cookie))])
    append(root, root)
    assert changed(receiver.sync()) >= {"active/s1/decisions.yaml"}
    assert watching.mode == "inotify"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_the_outbox_a_failing_receiver_ends_the_reader(
    root: Path, watching: Watcher, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: handed over directly, the exception ends the thread, and only `check` brings it back."""
    reader = watching._source._reader  # type: ignore[union-attr]
    monkeypatch.setattr(Outbox, "send", lambda self, notice: 1 / 0)
    monkeypatch.setattr(Inotify, "on_event", Inotify._handle)
    append(root, root)
    reader.join(PATIENCE_S)
    assert not reader.is_alive()


def kill_reader(made: Watcher, root: Path) -> None:
    """Ends the reader's thread from outside, as nothing but a defect would."""
    reader = made._source._reader  # type: ignore[union-attr]
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(reader.ident), ctypes.py_object(SystemExit))
    while reader.is_alive():
        append(root, root)
        reader.join(0.01)


def descriptors() -> int:
    gc.collect()  # what other tests have left open is not to go in between
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_reader_is_replaced(root: Path, watching: Watcher, receiver: Receiver, clock: Clock) -> None:
    """`check` begins again and reports Lost; a second death soon after means polling until it is time to try again; nothing
    leaks. Without the check (the first assertion) the watcher stays deaf."""
    open_before, clock.now = descriptors(), 10.0
    kill_reader(watching, root)
    with pytest.raises(AssertionError):
        receiver.sync(within_s=0.3)
    assert watching.check() == []
    assert lost(receiver.sync()) == ["the thread that reads the events has died"]
    append(root, root)
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml"}
    kill_reader(watching, root)
    (problem,) = watching.check()
    assert "the thread that reads the events has died" in problem
    assert watching.mode == "polling"
    append(root, root)
    assert lost(receiver.sync())
    clock.now += polling.LONGEST_RETRY_S
    assert watching.check() == []
    assert watching.mode == "inotify"
    assert lost(receiver.sync())[-1] == "changes are watched again"
    assert descriptors() == open_before
    assert kernel_watches(watching) == len(directories(root))


def test_a_deaf_watcher_can_be_told_to_begin_again(root: Path, watching: Watcher, receiver: Receiver, clock: Clock) -> None:
    """Whoever sends canaries may know better than the watcher: `restart` arms it anew and reports Lost."""
    clock.now = 10.0
    watching._source._reader.remove_callbacks(  # type: ignore[union-attr]
        [(wd, number) for wd, (_, number) in watching._source._watches.items()]  # type: ignore[union-attr]
    )
    with pytest.raises(AssertionError):
        receiver.sync(within_s=0.3)
    watching.restart()
    assert len(lost(receiver.sync())) == 1
    assert watching.mode == "inotify"


@pytest.mark.parametrize("place", ["active", "global", "deleted", COOKIES])
def test_a_watched_place_that_is_replaced_is_watched_again(
    place: str, root: Path, watching: Watcher, receiver: Receiver, clock: Clock, tmp_path: Path
) -> None:
    """Removed and made again, with the same inode or another, or moved away: the next check arms the watches anew."""
    for remove in (shutil.rmtree, lambda path: path.rename(tmp_path / "away")):
        clock.now += 1000
        remove(root / place)
        (root / place).mkdir(mode=0o700)
        receiver.wait_for(lambda _: watching._source.trouble())  # type: ignore[union-attr]
        assert watching.check() == []
        assert watching.mode == "inotify"
        assert lost(receiver.sync())
        (root / place / "new").mkdir()
        assert changed(receiver.sync()) == ({f"{place}/new"} if place != COOKIES else set())


def test_a_root_that_is_gone_is_said_and_nothing_is_made_in_its_place(
    root: Path, watching: Watcher, receiver: Receiver, clock: Clock
) -> None:
    """With an empty directory where the root was, as after an unmount, `check` says so and writes nothing; later it recovers."""
    away = root.with_name("away")
    root.rename(away)
    root.mkdir()
    clock.now += 10
    (problem,) = watching.check()
    assert f"{root / 'active'} is missing" in problem
    assert list(root.iterdir()) == []
    root.rmdir()
    away.rename(root)
    clock.now += polling.LONGEST_RETRY_S
    assert watching.check() == []
    assert "changes are watched again" in lost(receiver.sync())
    append(root, root)
    assert changed(receiver.sync()) == {"active/s1/decisions.yaml"}


def test_a_remote_filesystem_is_polled(root: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others' changes are not announced, every change is found by a scan, and cookies keep their promise."""
    mounted = subprocess.run(["stat", "-f", "-c", "%T", root], capture_output=True, text=True, check=True).stdout
    kinds = {line.split(" - ")[1].split()[0] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    monkeypatch.setattr(polling, "REMOTE", frozenset(kinds))
    made = Watcher(root, receiver.report, polling_s=0.05)
    made.start()
    try:
        assert made.mode == "polling", mounted
        assert "does not announce what others change" in made.check()[0]
        start_copying(root, receiver)
        for _ in range(5):
            append(root, root)
            assert set(lost(assert_copy_is_true(root, receiver))) == {"polling"}
        receiver.wait_for(lambda notices: len(notices) > 3)
    finally:
        made.stop()


def test_this_filesystem_is_watched(root: Path) -> None:
    """A disk of the machine itself is not taken for a remote one."""
    assert polling.remote_filesystem(root) is None


def test_cookies_that_were_there_before_are_named_once(root: Path, receiver: Receiver, gate: Path) -> None:
    """Whoever asked while nobody watched is answered at the start, and not a second time by a Lost that comes later."""
    Tree(root).make_directory(COOKIES)
    cookie = make_cookie(root)
    made = Watcher(root, receiver.report, polling_s=0.1)
    with holding(gate, fcntl.LOCK_SH):
        made.start()
    try:
        (root / COOKIES / "not a cookie").mkdir()
        made._outbox.lost("a reason")
        assert receiver.sync() == [Cookie(cookie), Lost("a reason")]
    finally:
        made.stop()


def test_stopping_ends_everything(root: Path, receiver: Receiver, gate: Path) -> None:
    """`stop` takes less than two seconds in either mode, can be repeated, and leaves no thread, descriptor or notice behind."""
    made = Watcher(root, receiver.report, polling_s=0.05)
    assert made.mode == "stopped"
    made.stop()
    threads, open_before = threading.active_count(), descriptors()
    for turn in range(6):
        with holding(gate, fcntl.LOCK_SH):
            made.start()
            made.start()
        assert made.mode == "inotify"
        if turn % 2:
            made._retry.note(time.monotonic())
            made.restart("an example")
            assert made.mode == "polling"
        began = time.monotonic()
        made.stop()
        made.stop()
        assert time.monotonic() - began < 2
        assert made.mode == "stopped"
        assert made.check() == ["The watcher is stopped."]
    assert (threading.active_count(), descriptors()) == (threads, open_before)
    receiver.notices.clear()
    append(root, root)
    assert receiver.notices == []


def test_checking_is_cheap(watching: Watcher) -> None:
    """A check of a healthy watcher takes well under a millisecond."""
    began = time.process_time()
    for _ in range(200):
        assert watching.check() == []
    assert (time.process_time() - began) / 200 < 0.002


def test_retries_come_at_once_after_a_calm_time_and_then_less_often() -> None:
    """1, 2, 4 … 60 seconds between tries while it keeps failing, and 1 again after it has held."""
    retry, now, waits = polling.Retry(), 0.0, []
    for _ in range(9):
        retry.note(now)
        wait = next(step for step in range(100) if retry.is_due(now + step))
        waits.append(wait)
        now += wait
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    retry.note(now + 1000)
    assert retry.is_due(now + 1001)
