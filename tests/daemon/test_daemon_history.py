"""After any history of writes, moves, kills and restarts the index equals a rebuild."""

from __future__ import annotations

import tempfile
from pathlib import Path

from daemons import Daemon, smp, wait_until_true
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smp_client import Memory

STEPS = ("record", "update", "turn", "state", "hand", "replace", "break", "drop", "rename",
         "remove", "kill", "sync")


class History:
    """One root and its daemon; four sessions that stay, and one that comes and goes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.memory = Memory(directory / "sessions")
        for number in range(4):
            session = self.memory.create_session(id=f"s{number}")
            session.record_decision("first", made_by="a", tags=["x"])
        self.renamed = 0
        self.daemon = Daemon([self.memory.root], self.directory / "log")

    def step(self, name: str, number: int) -> None:
        session = self.memory.session(f"s{number % 4}")
        folder, guest = self.memory.root / f"active/{session.id}", self.memory.root / "active/guest"
        decisions = folder / "decisions.yaml"
        self.renamed += 1
        if name == "record":
            session.record_decision(f"number {number}", made_by="a", tags=["y"])
        elif name == "update":
            session.update("DEC-001", confidence="high", n=number)
        elif name == "turn":
            session.add_turn("user", f"turn {number}")
        elif name == "state":
            session.save_agent_state("veritas", {"n": number})
        elif name in ("hand", "break"):
            broken = "[" if name == "break" else "by hand"
            with decisions.open("a") as file:
                file.write(f"  - {{id: {name}-{number}, decision: {broken}}}\n")
        elif name == "replace":
            (folder / ".new").write_bytes(decisions.read_bytes() + b"# a comment\n")
            (folder / ".new").rename(decisions)
        elif name == "drop":
            text = "type: learning\nlearning: dropped\nlearned_by: a\n"
            (folder / f"inbox/{number}.yaml").write_text(text)
        elif name == "rename":
            if guest.exists():
                guest.rename(self.memory.root / f"active/guest{self.renamed}")
            self.memory.create_session(id="guest").record_finding("guest", discovered_by="a")
        elif name == "remove" and guest.exists():
            guest.rename(self.directory / f"gone{self.renamed}")
        elif name == "kill":
            self.daemon.kill()
            self.daemon = Daemon([self.memory.root], self.directory / "log")
        elif name == "sync":
            assert smp("sync", "--root", self.memory.root).returncode == 0
            wait_until_true(self.memory.root)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 99)), min_size=5, max_size=25))
def test_after_any_history_the_index_equals_a_rebuild(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        history = History(Path(directory))
        try:
            for name, number in [*steps, ("sync", 0)]:
                history.step(name, number)
        finally:
            history.daemon.kill()
