"""The daemon on a bad day: without space, disk or watches, under a burst, and for a long time."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemons import (
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
from harness import filled, mounted, needs_mounts, outside_of_smp

from smp_client import Memory

needs_user_namespaces = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs Linux, root and unshare, to limit the watches of one process",
)


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


@pytest.mark.slow
@needs_mounts
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
            with filled(disk) as free:
                room.unlink()
                large = "\n".join(f"{number} {random.Random(number).random()}" for number in range(22_000))
                (memory.root / "active/s1/artifacts/large.md").write_text(f"---\nid: large\n---\n{large}\n")
                began = time.monotonic()
                wait_until(lambda: daemon.said("indexing failed"), "the index cannot be written")
                found = wait_until(lambda: (found := status(memory.root))["health"] != "ok" and found, "status has noticed")
                assert found["health"] == "degraded"
                named = ("The index cannot be written", "The disk is full")
                assert any(words in problem for words in named for problem in found["problems"])
                before = outside_of_smp(memory.root)
                assert smp("sync", "--root", memory.root, "--timeout", 2).returncode != 0
                assert daemon.process.poll() is None
                assert len(daemon.said("indexing failed")) < 5 + 1.5 * (time.monotonic() - began)
                assert outside_of_smp(memory.root) == before
                free()
            wait_until(lambda: status(memory.root)["health"] == "ok", "it is well again")
            assert smp("sync", "--root", memory.root).returncode == 0
            wait_until_true(memory.root)
            assert any("large" in row for row in index_contents(memory.root)["memories"])
            assert outside_of_smp(memory.root) == before
            assert not daemon.said("the worker failed")


@needs_mounts
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
