"""The test's side of a fault: runs a program with a fault injected, then looks at the memory as whoever comes next would."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import programs
import pytest
from earlier import earlier_states

from smp_client import Memory, Session, SMPError
from smp_client.passes.tidy import tidy

# Debian keeps it where only root looks.
MKFS = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
needs_mounts = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0 or MKFS is None,
    reason="needs Linux, root and mkfs.ext4, to mount filesystems of its own",
)

PROGRAMS = Path(programs.__file__)

Call = tuple[str, int]  # a system call: its name, and how many of that name it is

# Between two of these the disk does not change, so that a kill before each stands for a kill at any system call.
MOVING = ("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir")
CHANGING = (
    "write", "pwrite64", "writev", "pwritev", "pwritev2", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat",
    "rmdir", "mkdir", "mkdirat", "ftruncate", "truncate", "fallocate", "fsync", "fdatasync", "utimensat", "fchmod", "fchmodat",
)  # fmt: skip
SYNCING = ("fsync", "fdatasync")
WRITING = ("write", "pwrite64", "writev")


@dataclass(frozen=True)
class Outcome:
    said: list[str]
    status: int  # negative: the signal it died of

    @property
    def killed(self) -> bool:
        return self.status < 0

    @property
    def acknowledged(self) -> int:
        return self.said.count("done")

    @property
    def failure(self) -> str | None:
        return next((text.removeprefix("failed ") for text in self.said if text.startswith("failed ")), None)


class Programs:
    """Runs operations of `programs.py`, each in a process of its own, with strace attached to it where there is a fault."""

    def __init__(self) -> None:
        command = [sys.executable, "-B", str(PROGRAMS), "serve"]  # a cached module would be one rename more
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()

    def run(self, operation: str, root: Path, *, variant: str = "sound", strace: Sequence[str] = (), **request: Any) -> Outcome:
        pid = self._ask({"operation": operation, "root": str(root), "variant": variant, **request})["pid"]
        with attached(pid, strace):
            answer = self._ask({"go": True})
        return Outcome(answer["said"], answer["status"])

    def calls(self, operation: str, root: Path, log: Path, variant: str = "sound", *, vain: bool = False) -> dict[Call, str]:
        """The system calls of an undisturbed run, each with the file below the root that it is about; those that fail only if wanted."""
        assert self.run(operation, root, variant=variant, strace=("-y", "-o", str(log))).status == 0
        seen: Counter[str] = Counter()
        found: dict[Call, str] = {}
        for name, path, rest in re.findall(r"^(\w+)\((?:\d+<([^>]*)>)?(.*)", log.read_text(errors="replace"), re.MULTILINE):
            seen[name] += 1
            if vain or " = -1 E" not in rest:
                found[name, seen[name]] = path.removeprefix(str(root))
        return found

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer


@contextmanager
def attached(pid: int, options: Sequence[str]) -> Iterator[None]:
    """strace on a process, from before the block until the process ends; none where there are no options."""
    if not options:
        yield
        return
    output = () if "-o" in options else ("-o", os.devnull)
    with subprocess.Popen(["strace", "-p", str(pid), *output, *options], stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr
        said = strace.stderr.readline()
        assert "attached" in said, said
        yield
        strace.communicate(timeout=60)


def injection(call: Call, what: str) -> tuple[str, ...]:
    name, number = call
    return ("-e", f"trace={name}", "-e", f"inject={name}:{what}:when={number}")


def state(memory: Memory) -> dict[str, Any]:
    """Everything that the sessions say to a reader."""
    return {session.id: _session_state(session) for session in memory._sessions()}  # which opens no index


def _session_state(session: Session) -> dict[str, Any]:
    kinds = {kind.name: [record.data for record in session.records(kind.name)] for kind in session.kinds}
    agents = {agent: (session.agent_state(agent), earlier_states(session, agent)) for agent in session.agent_states()}
    artifacts = {name: session.artifact(name).text for name in session.artifacts()}
    deleted = [{"id": f"deleted {item.id}"} for item in session.deleted()]
    return {"metadata": session.metadata(), **kinds, "agents": agents, "artifacts": artifacts, "deleted": deleted}


class Aftermath:
    """Compares what a run left with the states that it may leave: before or after each of its writes."""

    def __init__(self, operation: str, directory: Path) -> None:
        self.operation = operation
        self._directory = directory
        self._count = 0
        root = self.fresh()
        memory = programs.open_memory(root)
        self._states = [state(memory)]
        for action in programs.OPERATIONS[operation]:
            action(memory)
            self._states.append(state(memory))

    def fresh(self) -> Path:
        """A new memory to run in."""
        self._count += 1
        base = self._directory / "base"
        if not base.exists():
            programs.build(base)
        root = self._directory / str(self._count)
        shutil.copytree(base, root)
        return root

    def problems(self, root: Path, outcome: Outcome, *, write_first: bool, settled: bool | None = None) -> list[str]:
        """What is wrong with the memory at `root`; `settled` says whether the write under way must have happened, or must not."""
        without_it = self._states[outcome.acknowledged]
        with_it = self._states[min(outcome.acknowledged + 1, len(self._states) - 1)]
        allowed = {None: [without_it, with_it], False: [without_it], True: [with_it]}[settled]
        try:
            return list(self._problems(root, allowed, write_first=write_first))
        except (SMPError, OSError) as error:
            return [f"{type(error).__name__}: {error}"]

    def _problems(self, root: Path, allowed: list[dict[str, Any]], *, write_first: bool) -> Iterator[str]:
        memory = programs.open_memory(root)
        known: list[str] = []
        if not write_first:
            found = state(memory)
            if found not in allowed:
                yield f"the next reader sees neither the old state nor the new: {_differences(found, allowed)}"
            known = list(_ids(found))
        session = memory.session(programs.SESSION)
        new = [session.record_finding("afterwards", discovered_by="veritas").id]
        new += [session.record_decision("afterwards", made_by="architect").id]
        if {f"{programs.SESSION} {memory_id}" for memory_id in new} & set(known):
            yield f"ids were given twice: {new}"
        after = state(programs.open_memory(root))
        ids = list(_ids(after))
        if len(ids) != len(set(ids)):
            yield f"ids are not unique: {sorted(ids)}"
        if without(after, new) not in allowed:
            yield f"after another write it is neither the old state nor the new: {_differences(without(after, new), allowed)}"
        yield from self._leftovers(root, session)

    def _leftovers(self, root: Path, session: Session) -> Iterator[str]:
        for action in programs.OPERATIONS["update"] + programs.OPERATIONS["save"]:
            action(programs.open_memory(root))
        session.add_turn("user", "afterwards")
        with pytest.MonkeyPatch.context() as patch:
            # As it is after the while that old versions have to stay; a deletion that is finished now leaves some itself.
            patch.setattr("smp_client.disk.rewrite.GRACE_S", -1.0)
            for _ in range(2):
                tidy(programs.open_memory(root))
        for directory in ("journal", "retired"):
            if left := sorted(os.listdir(root / ".smp" / directory)):
                yield f".smp/{directory} still holds {left}"
        yield from (f"{problem}" for problem in session.problems())
        for file, count in (("findings.yaml", 2), ("decisions.yaml", 1)):
            if (root / "active" / programs.SESSION / file).read_bytes().count(programs.COMMENT) != count:
                yield f"{file} has lost a comment"


def without(found: dict[str, Any], ids: Iterable[str]) -> dict[str, Any]:
    """The state without some records."""

    def kept(part: Any) -> Any:
        return [record for record in part if record["id"] not in ids] if isinstance(part, list) else part

    return {session: {name: kept(part) for name, part in parts.items()} for session, parts in found.items()}


def _ids(found: dict[str, Any]) -> Iterator[str]:
    for session, parts in found.items():
        for part in parts.values():
            if isinstance(part, list):
                yield from (f"{session} {record['id']}" for record in part)


def _differences(found: dict[str, Any], allowed: list[dict[str, Any]]) -> str:
    """By what the state differs from each that is allowed, in few words."""
    return " | ".join(
        ", ".join(
            f"{session} {name}" for session in found.keys() | other.keys()
            for name in found.get(session, {}).keys() | other.get(session, {}).keys()
            if found.get(session, {}).get(name) != other.get(session, {}).get(name)
        )
        for other in allowed
    )  # fmt: skip


def outside_of_smp(root: Path) -> dict[str, bytes]:
    """Return every file but those that the daemon keeps for itself, without the metadata that it keeps true."""
    kept_true = rb"\n  (storage|participants|last_accessed|statistics):.*(\n    .*)*"
    return {
        str(path.relative_to(root)): re.sub(kept_true, b"", path.read_bytes())
        for path in sorted(root.rglob("*")) if path.is_file() and ".smp" not in path.parts and path.parent.name != "indexes"
    }  # fmt: skip


def left_behind(root: Path) -> list[str]:
    """The names of everything that a change which was cut off leaves in `.smp/`."""
    return [path.name for name in ("journal", "leaving", "retired", "tmp") for path in (root / ".smp" / name).glob("*")]


def kill_and_repeat(
    runner: Programs, operation: str, base: Path, calls_at: Sequence[str], again: Callable[[Path], dict[str, Any]],
    *, variant: str = "sound", cap: int = 10_000,
) -> Iterator[str]:  # fmt: skip
    """Kill a run before each of these calls, do it again, and compare with a run that was not disturbed."""
    undisturbed, root = base.parent / "undisturbed", base.parent / "killed"
    shutil.copytree(base, undisturbed)
    calls = runner.calls(operation, undisturbed, base.parent / "calls", variant)
    wanted = again(undisturbed)
    assert not [part for part in ("left", "secret", "problems") if wanted.get(part)]
    every = [call for call in calls if call[0] in calls_at]
    # Unpacking and packing make hundreds of calls that are alike: then some, spread over all.
    some, killed = every[:: -(-len(every) // cap)], 0
    for call in some:
        shutil.copytree(base, root)
        # A run that is not slowed down by a full trace may make fewer calls, and then is not killed.
        killed += runner.run(operation, root, variant=variant, strace=injection(call, "signal=KILL")).killed
        found = again(root)
        if found != wanted:
            names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
            yield f"killed before {call}, these differ: {names}"
        shutil.rmtree(root)
    assert killed > 0.9 * len(some) - 1, f"only {killed} of {some} were made"


@contextmanager
def mounted(source: str, target: Path, kind: str, options: str) -> Iterator[Path]:
    target.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, source, str(target)], check=True)
    try:
        yield target
    finally:
        subprocess.run(["umount", str(target)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[Callable[[], None]]:
    """A disk without a free page, or without a free inode, until the function is called."""
    filler = disk / "filler"
    filler.mkdir()
    free = partial(shutil.rmtree, filler, ignore_errors=True)
    try:
        with suppress(OSError):
            for number in itertools.count():
                (filler / str(number)).write_bytes(b"\0" * (16 if os.statvfs(disk).f_bfree > 32 else 1) * 4096)
        yield free
    finally:
        free()
