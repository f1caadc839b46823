"""The daemon on a bad day: killed, without space, disk or watches, under a burst, for a long time, and told to stop."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness import CHANGING, Call, filled, mounted, needs_strace

from smp_client import Memory
from smp_client.model.layout import INDEX_FILE, STATUS_FILE

sys.path.insert(0, str(Path(__file__).parent.parent))
from daemons import (
    PATIENCE_S,
    SMP,
    Daemon,
    index_contents,
    running,
    settings_file,
    smp,
    status,
    wait_until,
    wait_until_true,
)

needs_root = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="needs Linux and root, to mount filesystems of its own"
)
needs_user_namespaces = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs Linux, root and unshare, to limit the watches of one process",
)

# What the daemon keeps true in metadata.yaml; all else in it is somebody's.
KEPT_TRUE = ("storage", "participants", "last_accessed")


def untouched(root: Path) -> dict[str, Any]:
    """All that the daemon must not change: every byte that is not derived, and of the metadata what is not."""
    found: dict[str, Any] = {}
    for path in sorted(root.glob("*/**/*")):
        name = str(path.relative_to(root))
        if path.is_file() and not name.startswith(".smp/") and path.parent.name != "indexes":
            found[name] = path.read_bytes()
            if path.name == "metadata.yaml":
                metadata = Memory(root).session(path.parent.name).metadata()
                found[name] = {key: value for key, value in metadata.items() if key not in KEPT_TRUE}
    return found


def add_sessions(memory: Memory, count: int, each: int = 3) -> None:
    """One that is made by the library, the others as copies of it, which is faster."""
    first = memory.create_session(id="s0", user="u", agents=["veritas"])
    for number in range(each):
        first.record_finding(f"Finding {number}", discovered_by="veritas", tags=["a.b"])
        first.record_decision(f"Decision {number}", made_by="architect")
        first.add_turn("veritas", f"Turn {number}", memory_refs=["FIND-001"])
    first.save_agent_state("veritas", {"working_on": "faults"})
    for number in range(1, count):
        shutil.copytree(memory.root / "active/s0", memory.root / f"active/s{number}")


# Killed while it indexes.

QUIET = {"log": {"level": "debug"}}
# The daemon with few calls of its own between those of the work.
QUIET_SMP = [sys.executable, "-c", "from smp_daemon import worker; worker.HEARTBEAT_S, worker.CANARY_S = 60, 3600\n"
             "from smp_daemon.cli import main; main()"]  # fmt: skip
DROP = "type: finding\nfinding: dropped\ndiscovered_by: somebody\nseverity: low\n"


def changed_tree(directory: Path) -> Path:
    """A tree with an index that lacks the last changes: sessions came, grew and went, and there is a drop."""
    memory = Memory(directory / "base")
    add_sessions(memory, 4)
    smp("sync", "--root", memory.root)
    memory.session("s1").record_finding("after the index", discovered_by="v", tags=["new"])
    memory.session("s1").update("DEC-001", confidence="high")
    shutil.rmtree(memory.root / "active/s2")
    shutil.copytree(memory.root / "active/s1", memory.root / "active/s9")
    (memory.root / "active/s3/inbox/drop.yaml").write_text(DROP)
    return memory.root


def run_under_strace(root: Path, directory: Path, *options: str) -> Daemon:
    """Until it has done all there is to do, or died of what was injected; with --seccomp-bpf strace 6.1 injects nothing."""
    prefix = ["strace", "-f", "-e", f"trace={','.join(CHANGING)}", *options]
    (directory / "log").unlink(missing_ok=True)
    daemon = Daemon([root], directory / "log", settings_file(directory, **QUIET), [*prefix, *QUIET_SMP])

    def is_over() -> bool:
        written = {line["session_id"] for line in daemon.lines() if line["event"] == "derived files written"}
        return daemon.process.poll() is not None or written >= {"s1", "s3", "s9"}

    wait_until(is_over, "all is done, or the daemon is dead")
    stop_traced(daemon)
    return daemon


def stop_traced(daemon: Daemon) -> None:
    """The daemon itself, which is the child of strace, is stopped; strace ends with it."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split():
            os.kill(int(child), 15)
    daemon.process.wait(PATIENCE_S)


def changing_calls(log: Path) -> list[Call]:
    """Each changing call of the run with how many of its thread and name it is, which is how strace counts."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[Call, None] = {}
    for thread, name in re.findall(r"^(\d+) +(\w+)\(", log.read_text(errors="replace"), re.MULTILINE):
        seen[thread, name] += 1
        found[name, seen[thread, name]] = None
    return list(found)


def problems_after(root: Path, before: dict[str, Any], directory: Path) -> Iterator[str]:
    """What is wrong when the next daemon is ready and has nothing left to do."""
    with running(root, log=directory / "next") as daemon:
        wait_until(lambda: not list((root / "active/s3/inbox").glob("*.yaml")), "the drop is taken in")
        if smp("sync", "--root", root).returncode:
            yield f"it cannot be asked: {daemon.log.read_text()}"
        wait_until_true(root)
        assert daemon.stop() == 0
    (directory / "next").unlink()
    after = untouched(root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if unexpected := changed - {"active/s3/inbox/drop.yaml", "active/s3/findings.yaml"}:
        yield f"changed: {sorted(unexpected)}"
    texts = [record.text for record in Memory(root).session("s3").records("finding")]
    if sorted(texts) != ["Finding 0", "Finding 1", "Finding 2", "dropped"]:
        yield f"the drop became {texts}"


def kill_at(calls: list[Call], base: Path, directory: Path) -> Iterator[str]:
    before = untouched(base)
    root = directory / "root"
    killed = 0
    for name, number in calls:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base, root)
        daemon = run_under_strace(root, directory, "-o", os.devnull, "-e", f"inject={name}:signal=KILL:when={number}")
        killed += daemon.process.returncode == -signal.SIGKILL
        for problem in problems_after(root, before, directory):
            yield f"killed at {name} {number}: {problem}"
    # No two runs are quite the same: some have fewer calls of a name.
    assert 2 * killed > len(calls), f"only {killed} of {len(calls)} runs were killed"


def all_calls(base: Path, directory: Path) -> list[Call]:
    root = directory / "undisturbed"
    shutil.copytree(base, root)
    run_under_strace(root, directory, "-o", str(directory / "calls"))
    calls = changing_calls(directory / "calls")
    assert {"pwrite64", "renameat"} <= {name for name, _ in calls}
    return calls


@pytest.mark.slow
@needs_strace
def test_killed_at_most_kinds_of_system_calls_of_a_batch(tmp_path: Path) -> None:
    """The next daemon makes the index that a rebuild gives, takes the drop in once, and no byte that is not derived differs. At
    every third of the renames, removals, fsyncs and the like, and at every 24th of the calls that come by the hundred."""
    base = changed_tree(tmp_path)
    frequent = {"pwrite64", "mkdirat", "write"}
    calls = [(name, number) for name, number in all_calls(base, tmp_path) if name not in frequent or number % 8 == 0]
    assert list(kill_at(calls[random.randrange(3) :: 3], base, tmp_path)) == []


# Without space.


@pytest.mark.slow
@needs_root
def test_a_full_disk_under_the_index(tmp_path: Path) -> None:
    """The tree has grown and its disk is full to the last page: the daemon lives, status is degraded and says why, `smp sync` does
    not claim success, and nothing is cut off; it does not try again more than about once a second. With space again all is well
    without anybody's help."""
    with mounted("tmpfs", tmp_path / "disk", "tmpfs", "size=6m") as disk:
        memory = Memory(disk / "root")
        add_sessions(memory, 3)
        with running(memory.root, log=tmp_path / "log") as daemon:
            smp("sync", "--root", memory.root)
            room = disk / "room"
            room.write_bytes(b"\0" * 600_000)
            with filled(disk) as filler:
                room.unlink()
                large = "\n".join(f"{number} {random.Random(number).random()}" for number in range(22_000))
                (memory.root / "active/s1/artifacts/large.md").write_text(f"---\nid: large\n---\n{large}\n")
                began = time.monotonic()
                wait_until(lambda: daemon.said("indexing failed"), "the index cannot be written")
                found = wait_until(lambda: (found := status(memory.root))["health"] != "ok" and found, "status has noticed")
                assert found["health"] == "degraded"
                named = ("The index cannot be written", "The disk is full")
                assert any(words in problem for words in named for problem in found["problems"])
                before = untouched(memory.root)
                assert smp("sync", "--root", memory.root, "--timeout", 2).returncode != 0
                assert daemon.process.poll() is None
                assert len(daemon.said("indexing failed")) < 5 + 1.5 * (time.monotonic() - began)
                assert untouched(memory.root) == before
                filler.unlink()
            wait_until(lambda: status(memory.root)["health"] == "ok", "it is well again")
            assert smp("sync", "--root", memory.root).returncode == 0
            wait_until_true(memory.root)
            assert any("large" in row for row in index_contents(memory.root)["memories"])
            assert untouched(memory.root) == before
            assert not daemon.said("the worker failed")


# Without its disk.


@needs_root
@pytest.mark.parametrize("how", ["unmounted", "covered"])
def test_a_root_that_is_unmounted(tmp_path: Path, how: str) -> None:
    """The disk goes, or an empty one is mounted over it: the index there forgets nothing, nothing is written to the empty mount
    point, and status cannot tell. The disk comes back: what was written to it meanwhile is indexed, and all is well."""
    with mounted("tmpfs", tmp_path / "disk", "tmpfs", "size=20m") as disk:
        kept, root = disk / "root", tmp_path / "mounted"
        add_sessions(Memory(kept), 2)
        root.mkdir()
        subprocess.run(["mount", "--bind", kept, root], check=True)
        try:
            with running(root, log=tmp_path / "log") as daemon:
                smp("sync", "--root", root)
                wait_until(lambda: status(root)["health"] == "ok", "it is well")
                memories = index_contents(root)["memories"]
                away = ["umount", "-l", str(root)] if how == "unmounted" else ["mount", "-t", "tmpfs", "tmpfs", str(root)]
                subprocess.run(away, check=True)
                wait_until(lambda: daemon.said("root is missing"), "it has noticed")
                Memory(kept).session("s0").record_finding("while away", discovered_by="v")
                assert smp("status", "--root", root).returncode == 3
                assert index_contents(kept)["memories"] == memories
                assert list(root.iterdir()) == []
                back = ["mount", "--bind", str(kept), str(root)] if how == "unmounted" else ["umount", str(root)]
                subprocess.run(back, check=True)
                wait_until(lambda: daemon.said("root is back"), "it has noticed")
                wait_until(lambda: status(root)["health"] == "ok", "it is well again")
                assert smp("sync", "--root", root).returncode == 0
                wait_until_true(root)
                assert any("while away" in row for row in index_contents(root)["memories"])
                assert daemon.stop() == 0
        finally:
            subprocess.run(["umount", "-l", root], check=True)


# Without watches, and with more events than it can take.


@needs_user_namespaces
def test_without_watches_it_polls_and_says_so(tmp_path: Path) -> None:
    """Three watches in all: status says polling and why, `smp sync` works, and what is written is found without it too."""
    memory = Memory(tmp_path / "root")
    add_sessions(memory, 3)
    limit = 'echo 3 > /proc/sys/user/max_inotify_watches && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh", *SMP]
    daemon = Daemon([memory.root], tmp_path / "log", settings_file(tmp_path, watch={"polling_s": 0.5}), prefix)
    try:
        daemon.wait_ready()
        found = wait_until(lambda: (found := status(memory.root))["problems"] and found, "status has noticed")
        assert (found["health"], found["watching"]) == ("degraded", "polling")
        assert "fs.inotify.max_user_watches" in found["problems"][0]
        memory.session("s1").record_decision("asked for", made_by="a")
        assert smp("sync", "--root", memory.root).stdout == "sync done, by the daemon\n"
        assert any("asked for" in row for row in index_contents(memory.root)["memories"])
        memory.session("s2").record_decision("not asked for", made_by="a")
        wait_until(lambda: any("not asked for" in row for row in index_contents(memory.root)["memories"]), "it is found")
        wait_until_true(memory.root)
        assert daemon.stop() == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize("files", [3_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_burst_of_files(tmp_path: Path, files: int) -> None:
    """More than the debounce holds: all are in the index when `smp sync` returns, and it equals a rebuild."""
    memory = Memory(tmp_path / "root")
    add_sessions(memory, 20, each=1)
    with running(memory.root, log=tmp_path / "log"):
        for number in range(files):
            path = memory.root / f"active/s{number % 20}/artifacts/a{number}.md"
            path.write_text(f"---\nid: a{number}\n---\nBurst {number}\n")
        assert smp("sync", "--root", memory.root, "--timeout", 120).returncode == 0
        assert sum("artifact" in row for row in index_contents(memory.root)["memories"]) == files
        wait_until_true(memory.root)


# For a long time.


def used(daemon: Daemon) -> dict[str, int]:
    """Resident KiB, open descriptors and threads."""
    process = Path(f"/proc/{daemon.process.pid}")
    resident = re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
    assert resident
    return {"KiB": int(resident[1]), "fds": len(os.listdir(process / "fd")), "threads": len(os.listdir(process / "task"))}


def write_many(memory: Memory, start: int, count: int) -> None:
    """Files that come, are replaced and go, each under one of 400 names."""
    for number in range(start, start + count):
        folder = memory.root / f"active/s{number % 4}/agent-states"
        temporary = folder / f".tmp{number % 50}"
        temporary.write_text(f"agent_state:\n  agent_id: a{number % 100}\n  working_on: number {number}\n")
        temporary.rename(folder / f"a{number % 100}.yaml")


@pytest.mark.parametrize("writes", [2_000, pytest.param(205_000, marks=pytest.mark.slow)])
def test_many_writes_leave_it_as_small_as_it_was(memory: Memory, tmp_path: Path, writes: int) -> None:
    """Memory, descriptors and threads after the warm-up stay within a fixed bound, and the index is right in the end. Each write is
    five events: the slow form is more than a million."""
    add_sessions(memory, 4)
    rounds = 10
    with running(memory.root, log=tmp_path / "log") as daemon:
        samples: list[dict[str, int]] = []
        for number in range(rounds):
            write_many(memory, number * writes // rounds, writes // rounds)
            assert smp("sync", "--root", memory.root).returncode == 0
            few = max((each["fds"] for each in samples[:3]), default=used(daemon)["fds"]) + 4

            def at_rest(few: int = few) -> dict[str, int] | None:
                return sample if (sample := used(daemon))["fds"] <= few else None

            # What a pass has open for a moment it closes again; what is kept would never be closed.
            samples.append(wait_until(at_rest, f"it has no more than {few} files open again, after {samples}"))
        warm, rest = samples[2], samples[3:]
        for sample in rest:
            assert sample["KiB"] < warm["KiB"] + 12_000, samples
            assert sample["threads"] <= max(each["threads"] for each in samples[:3]) + 1, samples
        assert smp("sync", "--root", memory.root).returncode == 0
        wait_until_true(memory.root)
        assert daemon.stop() == 0


# Told to stop.


def has_begun(daemon: Daemon, root: Path) -> bool:
    """It handles signals, and is about to scan: it has given its first sign."""
    with suppress(FileNotFoundError, ValueError):
        return bool(json.loads((root / STATUS_FILE).read_text())["pid"] == daemon.process.pid)
    return False


@pytest.mark.slow
def test_sigterm_at_many_moments_of_a_large_scan(memory: Memory, tmp_path: Path) -> None:
    """300 sessions without an index: told to stop at moments spread over the whole scan, it exits with 0 each time,
    and whoever comes next makes the index whole."""
    add_sessions(memory, 300)
    daemon = Daemon([memory.root], tmp_path / "log")
    wait_until(lambda: has_begun(daemon, memory.root), "it has begun")
    began = time.monotonic()
    daemon.wait_ready()
    whole_s = time.monotonic() - began
    assert daemon.stop() == 0
    for part in range(4):
        (memory.root / INDEX_FILE).unlink()
        daemon = Daemon([memory.root], tmp_path / "log")
        wait_until(lambda now=daemon: has_begun(now, memory.root), "it has begun")
        due = time.monotonic() + whole_s * part / 3
        wait_until(lambda at=due: time.monotonic() >= at, "the moment has come")
        assert daemon.stop() == 0
    with running(memory.root, log=tmp_path / "log"):
        smp("sync", "--root", memory.root)
        wait_until_true(memory.root)
