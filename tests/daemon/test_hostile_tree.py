"""A tree with links, FIFOs, devices and far too deep directories, and names that lead out of it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from daemons import Daemon, no_hang, running, smp, status, wait_until
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from smp_client import Invalid, Memory, Session, SMPError, UnsafePath
from smp_client.disk.tree import READ_CAP_BYTES, Tree

SECRET = b"findings: secret, and not to be touched\n"
DEEP = 100


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A test that waits for a FIFO or a lock is ended instead of stopping the suite."""
    with no_hang():
        yield


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the root, which must stay as it is."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    yield folder
    assert [path.name for path in folder.iterdir()] == ["secret"]
    assert (folder / "secret").read_bytes() == SECRET


@pytest.fixture
def folder(session: Session, memory: Memory) -> Path:
    """The directory of a session with something in it."""
    session.record_finding("x", discovered_by="a")
    session.add_turn("user", "x")
    session.save_agent_state("veritas", {"a": 1})
    session.save_artifact("report-1", "text")
    return memory.root / "active/s1"


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a link to a file": lambda path, outside: path.symlink_to(outside / "secret"),
    "a link to itself": lambda path, _: path.symlink_to(path),
    "a hard link": lambda path, outside: os.link(outside / "secret", path),
    "an endless device": lambda path, _: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5)),
    "a directory": lambda path, _: path.mkdir(),
    "a file without end": lambda path, _: make_endless(path),
}


def make_endless(path: Path) -> None:
    """Larger than anything SMP reads, and empty on disk."""
    with path.open("wb") as file:
        file.truncate(READ_CAP_BYTES + 1)


USES: dict[str, list[Callable[[Session], object]]] = {
    "findings.yaml": [
        lambda s: s.records("finding"), lambda s: s.get("FIND-001"), lambda s: s.problems(),
        lambda s: s.pin("FIND-001"), lambda s: s.record_finding("y", discovered_by="a"),
        lambda s: commit(s),
    ],
    "conversation.md": [lambda s: s.turns(), lambda s: s.add_turn("user", "y"),
                        lambda s: s.turns(last=1), lambda s: s.pin("turn-1")],
    "metadata.yaml": [lambda s: s.metadata(), lambda s: s.state, lambda s: s.size(),
                      lambda s: s.update_metadata(status="idle")],
    "agent-states/veritas.yaml": [lambda s: s.agent_state("veritas"),
                                  lambda s: s.save_agent_state("veritas", {"a": 2})],
    "artifacts/report-1.md": [lambda s: s.artifact("report-1"),
                              lambda s: s.save_artifact("report-1", "new")],
}


def commit(session: Session) -> None:
    with session.transaction() as tx:
        tx.record_decision("d", made_by="a")
        tx.record_finding("y", discovered_by="a")


@pytest.mark.parametrize("file", USES)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_no_plain_file_is_neither_read_nor_written(
    folder: Path, memory: Memory, outside: Path, hostile: str, file: str
) -> None:
    (folder / file).unlink()
    HOSTILE[hostile](folder / file, outside)
    before = os.lstat(folder / file)
    session = Memory(memory.root).session("s1")
    for use in USES[file]:
        with pytest.raises(UnsafePath) as caught:
            use(session)
        assert caught.value.code == "MEM_E011"
    after = os.lstat(folder / file)
    assert before[:7] == after[:7]


@pytest.mark.parametrize(
    "place",
    ["active", "active/s1", ".smp", ".smp/locks", ".smp/tmp", ".smp/retired", ".smp/journal"],
)
@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_plain_directory_is_not_entered(
    folder: Path, memory: Memory, tmp_path: Path, place: str, kind: str
) -> None:
    path = memory.root / place
    moved = tmp_path / "moved"
    path.rename(moved)
    names = sorted(str(found) for found in moved.rglob("*"))
    if kind == "link":
        path.symlink_to(moved)
    else:
        path.write_bytes(SECRET)
    with pytest.raises(SMPError) as caught:
        session = Memory(memory.root).session("s1")
        session.pin("FIND-001")
        commit(session)
    assert isinstance(caught.value, UnsafePath)
    assert sorted(str(found) for found in moved.rglob("*")) == names


@pytest.mark.parametrize("file", USES)
def test_a_file_that_may_not_be_read_is_not_taken_for_an_empty_one(
    folder: Path, memory: Memory, file: str
) -> None:
    content = (folder / file).read_bytes()
    (folder / file).chmod(0)
    program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[number]) for number in (0, 1)]!r}
from test_hostile_tree import USES
from smp_client import Memory, StorageFailed
session = Memory(sys.argv[1]).session("s1")
for number, use in enumerate(USES[sys.argv[2]]):
    try:
        use(session)
        print("no error from use", number)
    except StorageFailed as error:
        assert "Permission denied" in str(error)
"""
    # Permissions do not count for root.
    limits = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    command = [*(limits if os.geteuid() == 0 else []), sys.executable, "-c", program]
    command += [str(memory.root), file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (folder / file).chmod(0o600)
    assert (folder / file).read_bytes() == content


def test_an_odd_file_costs_a_daemon_only_its_session(memory: Memory, tmp_path: Path) -> None:
    """A hard link at the metadata, as a backup tool makes it."""
    bad = memory.create_session(id="bad")
    good = memory.create_session(id="good")
    with running(memory.root, log=tmp_path / "log") as daemon:
        os.link(memory.root / "active/bad/metadata.yaml", tmp_path / "backup")
        bad.record_decision("In the odd session", made_by="a")
        named = "Keeping indexes and metadata of bad up to date failed"
        wait_until(lambda: named in " ".join(status(memory.root)["problems"]), "status names it")
        for session in (bad, good):
            drop = memory.root / f"active/{session.id}/inbox/a.yaml"
            drop.write_text(f"type: decision\ntext: dropped into {session.id}\nby: x\n")
        done = smp("sync", "--root", memory.root)
        assert (done.returncode, done.stderr) == (0, "")
        assert {record.session for record in memory.search("dropped")} == {"bad", "good"}
        indexes = memory.root / "active/good/indexes/topics.yaml"
        wait_until(indexes.exists, "the other session gets its indexes")
        assert not daemon.said("indexing failed")
        assert not daemon.said("work failed")
        (tmp_path / "backup").unlink()
        bad.record_decision("In a sound session", made_by="a")
    with running(memory.root, log=tmp_path / "log2"):
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well again")


def peak_kb(daemon: Daemon) -> int:
    """Return the most memory that a daemon has had."""
    used = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", used)
    return int(peak)


def test_a_file_of_more_than_four_quotas_is_named_and_not_parsed(
    memory: Memory, tmp_path: Path
) -> None:
    """One long line, as a program writes that appends without a look. The neighbours answer."""
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="a")
    session.record_finding("OAuth is slow", discovered_by="a")
    path = memory.root / "active/s1/decisions.yaml"
    sound = path.read_bytes()
    with running(memory.root, log=tmp_path / "log") as daemon:
        before_kb = peak_kb(daemon)
        with path.open("a") as file:
            file.write(f"  - id: DEC-long\n    decision: {'long ' * 8_500_000}\n")
        with (memory.root / "active/s1/findings.yaml").open("a") as file:
            file.write("  - no mapping\n")
        named = "(s1/decisions.yaml, s1/findings.yaml). smp check says why"
        wait_until(lambda: named in " ".join(status(memory.root)["problems"]), "status names it")
        assert peak_kb(daemon) - before_kb < 150_000
        said = smp("check", "--root", memory.root).stdout
        why = "bytes, which is more than 4 times the quota of its session, and is not read"
        assert f"active/s1/decisions.yaml has {path.stat().st_size:,} {why}" in said
        assert "s1/findings.yaml:" in said
        assert {record.id for record in memory.search("oauth")} == {"DEC-001", "FIND-001"}
        path.write_bytes(sound)

        def is_mended() -> bool:
            return "decisions.yaml" not in " ".join(status(memory.root)["problems"])

        wait_until(is_mended, "nothing is said of the file any more")


def test_a_file_of_more_than_four_quotas_is_parsed_when_its_session_has_a_larger_one(
    memory: Memory,
) -> None:
    session = memory.create_session(id="s1", quota_bytes=20_000_000)
    session.record_decision("Use OAuth", made_by="a")
    path = memory.root / "active/s1/decisions.yaml"
    with path.open("a") as file:
        file.write(f"  - id: DEC-long\n    decision: {'l' * 43_000_000}\n")
    assert [record.id for record in session.records("decision")] == ["DEC-001", "DEC-long"]
    assert len(memory.search("oauth")) == 1
    assert session.get("DEC-long").id == "DEC-long"


# Directories inside directories, far deeper than anybody goes.


def nest(directory: Path, name: str = "d") -> None:
    """One inside the other, with a file in the last."""
    path = os.fspath(directory)
    for _ in range(DEEP):
        path += f"/{name}"
        os.mkdir(path)
    with open(f"{path}/deep.md", "w") as file:
        file.write("far down")


@pytest.mark.usefixtures("short_grace")
def test_a_daemon_goes_on_and_the_session_stays_until_somebody_moves_it(
    memory: Memory, tmp_path: Path
) -> None:
    """No bundle can hold such directories."""
    session = memory.create_session(id="deep")
    nest(memory.root / "active/deep")
    with running(memory.root, log=tmp_path / "log"):
        session.record_decision("seen all the same", made_by="a")
        nest(memory.root / "active/deep", "e")
        assert smp("sync", "--root", memory.root).returncode == 0
        assert "seen all the same" in smp("search", "seen", "--root", memory.root).stdout
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
        for leave in (memory.archive_session, partial(memory.delete_session, reason="done")):
            with pytest.raises(UnsafePath, match="No bundle can hold"):
                leave("deep")
    assert len(session.records("decision")) == 1
    for name in "de":
        Tree(memory.root).remove_directory(f"active/deep/{name}")
    assert memory.archive_session("deep").success


# Names.

PIECES = [
    "..", ".", "/", "\\", "\0", "~", "a", "S1", "-", "_", " ", "\n", "%2e", "．．", "／", "C:", "é",
    "\ud800", "x" * 70, "+",
]  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=80)
PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
PLAIN_MEMORY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def uses_of(memory: Memory, session: Session, name: str) -> Iterator[Callable[[], object]]:
    """Yield every call that makes a path of the name, or takes it for the id of a memory.

    Calls for which the name is a good one are left out.
    """
    if not PLAIN_ID.fullmatch(name):
        yield from (
            lambda: memory.session(name), lambda: memory.create_session(id=name),
            lambda: memory.create_session(agents=[name]), lambda: session.agent_state(name),
            lambda: session.save_agent_state(name, {"a": 1}), lambda: session.artifact(name),
            lambda: session.save_artifact(name, "x"),
        )  # fmt: skip
    if not PLAIN_MEMORY_ID.fullmatch(name):
        yield from (
            lambda: session.get(name), lambda: session.pin(name), lambda: session.unpin(name),
            lambda: session.update(name, a=1),
            lambda: session.resolve_finding(name, resolved_by="a", action_taken="b"),
        )  # fmt: skip
        of_session, _, last = name.rpartition("/")
        if not (PLAIN_ID.fullmatch(of_session) and PLAIN_MEMORY_ID.fullmatch(last)):
            yield lambda: session.relate(name, "DEC-001", "led_to")
            yield lambda: session.relate("DEC-001", name, "led_to")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=NAMES)
@example(name="../../../../etc/passwd")
@example(name="s1\0")
@example(name="DEC-001\n")
@example(name="x" * 5000)
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_touched(
    session: Session, memory: Memory, name: str
) -> None:
    before = sorted(memory.root.parent.rglob("*"))
    for use in uses_of(memory, session, name):
        with pytest.raises(Invalid):
            use()
    assert sorted(memory.root.parent.rglob("*")) == before


EVERYTHING = """
import os, sys
from pathlib import Path
os.umask(0)
from smp_client import Memory
memory = Memory(sys.argv[1])
session = memory.create_session(id="s1")
session.record_finding("x", discovered_by="a")
with open(memory.root / "active/s1/findings.yaml", "ab") as file:
    file.write(b"  - id: FIND-002 # smp\\n    finding: torn")
session.record_finding("sets the torn record aside", discovered_by="a")
for number in range(2):
    session.save_agent_state("veritas", {"step": number})
    session.save_artifact("report-1", str(number))
with session.transaction() as tx:
    tx.add_turn("user", "x")
    tx.record_decision("d", made_by="a")
memory.everywhere.record_preference("p")
memory.everywhere.save_profile(name="x")
kept = open(memory.root / "active/s1/findings.yaml", "ab")
session.pin("FIND-001")
for path in [memory.root, *memory.root.rglob("*")]:
    wanted = 0o40700 if path.is_dir() else 0o100600
    assert path.stat().st_mode == wanted, path
assert any((memory.root / ".smp/retired").iterdir()), "no old file was kept"
assert any((memory.root / "quarantine/s1").iterdir()), "nothing was set aside"
assert any((memory.root / ".smp/locks/s1").iterdir())
"""


def test_everything_is_private_from_its_first_moment(tmp_path: Path) -> None:
    """Directories are 0700 and files 0600, and none was ever open to others before."""
    trace = tmp_path / "trace"
    calls = "open,openat,creat,mkdir,mkdirat,chmod,fchmod,fchmodat,renameat2"
    traced = ["strace", "-f", "-o", str(trace), "-e", f"trace={calls}"]
    program = [*traced, sys.executable, "-c", EVERYTHING, str(tmp_path / "sessions")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(program, check=True, timeout=120, env=environment)
    lines = trace.read_text().splitlines()
    made = [line for line in lines if "O_CREAT" in line or "mkdir" in line]
    assert len([line for line in made if "mkdir" in line]) > 10
    assert len([line for line in made if "O_CREAT" in line]) > 20
    assert any("journal/" in line or ".json" in line for line in lines)
    for line in made:
        # The test's own, on a file that is there, counts for nothing.
        if "findings.yaml" not in line or "O_APPEND" not in line:
            assert re.search(r", 0600\)|, 0700\)", line), line
    assert not any("chmod" in line for line in lines)
