"""Any JSON as the arguments of any tool: an answer or a plain sentence, and nothing written by what is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from clients import Agent, desk_in, tell
from hypothesis import given, settings
from hypothesis import strategies as st
from once import copied

from smp_client import Memory
from smp_daemon.mcp.desk import Desk
from smp_daemon.mcp.parameter import Parameter
from smp_daemon.mcp.tools import TOOLS

_IDS = ["DEC-001", "login/DEC-001", "login/FIND-001", "turn-1", "login/", "/DEC-001", "../x/DEC-001", "global/GPREF-001", "x"]
_WORDS = ["login", "resolves login/FIND-001", "replaces DEC-001", "*", "last 7 days", "2026-01-11", "latest", "resolved",
          "superseded", "open", "high", "\u0000", "a" * 5000, "--", '"', "(", "NEAR/", "ghp_" + "a1B2" * 9]  # fmt: skip
_texts = st.one_of(st.sampled_from([*_IDS, *_WORDS]), st.text(max_size=30))
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=8,
)


def _fitting(one: Parameter) -> st.SearchStrategy[Any]:
    """Return values that are right, or nearly, so that calls get past the check."""
    word = st.sampled_from(one.choices) if one.choices else _texts
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "string": word, "integer": st.integers(one.least - 1, one.most + 1), "boolean": st.booleans(),
        "array": st.lists(word, max_size=4),
    }  # fmt: skip
    return st.one_of(by_type[one.type], by_type[one.type], _json)


_calls = st.sampled_from(TOOLS).flatmap(
    lambda tool: st.tuples(
        st.just(tool.name),
        st.one_of(
            st.fixed_dictionaries(
                {one.name: _fitting(one) for one in tool.parameters if one.required},
                optional={one.name: _fitting(one) for one in tool.parameters if not one.required},
            ),
            st.dictionaries(st.one_of(st.sampled_from([one.name for one in tool.parameters]), _texts), _json, max_size=4),
        ),
    )
)


def _files(desk: Desk) -> dict[str, bytes]:
    kept = ("active", "archived", "deleted", "global")
    paths = [path for place in kept for path in (desk.memory.root / place).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if path.name != "access.log"}


@settings(max_examples=20, deadline=None)
@given(st.lists(_calls, min_size=1, max_size=12))
def test_any_json_is_answered_or_refused_in_a_sentence(calls: list[tuple[str, dict[str, Any]]]) -> None:
    async def story(agent: Agent) -> None:
        for tool, arguments in calls:
            before = _files(desk)
            said = await agent.raw(tool, arguments)
            shown = f"{tool} {arguments!r} -> {said.text}"
            said.text.encode()
            assert said.size_bytes <= desk.budget, shown
            assert not any(word in said.text for word in ("Traceback", "pydantic", "inside SMP", "validation error")), shown
            if said.is_error:
                assert "\n" not in said.text.strip(), shown
                assert said.text.rstrip().endswith((".", "?")), shown
                assert _files(desk) == before, shown

    with tempfile.TemporaryDirectory() as directory:
        desk = desk_in(Path(directory) / "shop")
        copied(_with_memories, desk.memory.root)
        tell(desk, story)


def _with_memories(root: Path) -> None:
    login = Memory(root).create_session(id="login", project="shop")
    login.record_decision("Use OAuth 2.0", made_by="jane")
    login.record_finding("The login has no limit", discovered_by="jane")
    login.add_turn("jane", "Shall we?")
