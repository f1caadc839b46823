"""What a session that is there already gets of the files of an import that are no lists of records. See merging.py."""

from __future__ import annotations

from datetime import datetime

from ..append import with_id
from ..errors import SMPError
from ..layout import ACCESS_LOG, is_file_id
from ..privacy.redact import OFF
from ..records import state_history
from ..scopes import ARTIFACTS, STATES
from ..session_files import METADATA, artifact_file, parse_artifact, state_history_entry
from ..text.format import format_of
from ..text.mapping import load_mapping, replace_parts
from ..text.values import canonical
from .building import Building
from .entries import PROFILE
from .identity import IMPORTED, IMPORTED_ID, is_same, said
from .merge import Merge, Standing
from .pieces import artifact_content
from .purged import is_purged_file


class OtherFiles:
    """`gone` are the names of what was deleted here, `numbers` the highest that were given, by file."""

    def __init__(
        self, building: Building, standing: Standing, at: datetime, merge: Merge, gone: list[str], numbers: dict[str, int]
    ) -> None:
        self._building, self._standing, self._at, self._merge = building, standing, at, merge
        self._gone, self._numbers = gone, numbers

    def take(self, file: str, content: bytes, there: bytes | None) -> None:
        if there == content or file == ACCESS_LOG:
            self._merge.skipped += bool(stem(file, STATES, ".yaml") or stem(file, ARTIFACTS, ".md"))
            return
        if there is not None and file == METADATA:
            self._metadata(content, there)
            return
        named = stem(file, STATES, ".yaml") or stem(file, ARTIFACTS, ".md")
        if self._building.purged and is_purged_file(self._building.purged, file, content):
            self._building.left_out.append(named or PROFILE.removesuffix(".yaml"))
        elif there is None and named and (file, named) in self._standing.deleted:
            self._gone.append(named)
        elif agent := stem(file, STATES, ".yaml"):
            self._state(agent, file, content, there)
        elif artifact := stem(file, ARTIFACTS, ".md"):
            self._artifact(artifact, file, content, there)
        elif self._building.session == "global" and file == PROFILE and there is not None:
            self._profile(content, there)
        elif file.startswith("inbox/") and not file.startswith("inbox/rejected/"):
            self._merge.notes.append(f"{file} was left out: such a drop may have been taken in long ago.")
        elif there is not None:
            self._merge.problems.append(f"{file} is there already and says something else; it was left as it is.")
        elif file == METADATA:
            self._merge.whole[file] = content
        else:
            self._merge.copies[file] = content

    def _state(self, agent: str, file: str, content: bytes, there: bytes | None) -> None:
        """One that differs from the agent's own goes to its earlier ones."""
        if there is None:
            self._merge.whole[file] = content
            self._merge.count += 1
            return
        try:
            state, own = (load_mapping(one, "agent_state", file) for one in (content, there))
            entry = state_history_entry(content, agent, self._at, OFF)
        except SMPError as error:
            self._merge.problems.append(f"{file}: {error}")
            return
        kind = state_history(agent)
        if entry is None or is_same(state, own):
            self._merge.skipped += 1
            return
        earlier = format_of(kind).parse(self._standing.read(kind.file) or b"").records
        given = self._merge.added.get(kind.file, [])
        before = [record.value.get("state") for record in earlier] + [value.get("state") for value in given]
        if any(canonical(one) == canonical(entry[1]["state"]) for one in before):
            self._merge.skipped += 1
            return
        number = self._numbers.get(kind.file) or self._standing.highest(kind, self._standing.read(kind.file) or b"")
        self._numbers[kind.file] = number + 1
        if kind.file in self._merge.whole:
            grown = format_of(kind).insert(self._merge.whole[kind.file], with_id(kind, number + 1, entry[1]))
            self._merge.whole[kind.file] = grown
        else:
            self._merge.added.setdefault(kind.file, []).append(with_id(kind, number + 1, entry[1]))

    def _artifact(self, name: str, file: str, content: bytes, there: bytes | None) -> None:
        """One whose name is taken gets another one, with its old one in its front matter."""
        if there is None:
            self._merge.whole[file] = content
            self._merge.count += 1
            return
        head, text = parse_artifact(content)
        for number in range(1, 1000):
            new = f"{name[:48]}-imported-{number}"
            found = self._standing.read(artifact_file(new))
            if found is None:
                self._merge.whole[artifact_file(new)] = artifact_content({**head, "id": new, IMPORTED_ID: name}, text, None)
                self._merge.renamed[name] = new
                self._merge.count += 1
                return
            its_head, its_text = parse_artifact(found)
            if its_head.get(IMPORTED_ID) == name and its_text == text and said(its_head) == said(head):
                self._merge.skipped += 1
                return

    def _metadata(self, content: bytes, there: bytes) -> None:
        """What is here stays; what another layout said of the session, for whoever writes it again, is added if there is none."""
        try:
            new, own = (load_mapping(one, "session", METADATA) for one in (content, there))
        except SMPError as error:
            self._merge.problems.append(f"{METADATA}: {error}")
            return
        if IMPORTED in new and IMPORTED not in own:
            self._merge.whole[METADATA] = replace_parts(there, "session", {IMPORTED: new[IMPORTED]}, METADATA)

    def _profile(self, content: bytes, there: bytes) -> None:
        """What is said only there is added; where both say something else, what is here stays."""
        try:
            new, own = (load_mapping(one, "user_profile", PROFILE) for one in (content, there))
        except SMPError as error:
            self._merge.problems.append(f"{PROFILE}: {error}")
            return
        if further := {name: value for name, value in new.items() if name not in own}:
            self._merge.whole[PROFILE] = replace_parts(there, "user_profile", further, PROFILE)
        for name in new:
            if name in own and canonical(new[name]) != canonical(own[name]):
                self._merge.problems.append(f"{PROFILE}: {name!r} says something else here, and was left as it is.")


def stem(file: str, folder: str, ending: str) -> str:
    inner = file.removeprefix(f"{folder}/").removesuffix(ending)
    return inner if file == f"{folder}/{inner}{ending}" and is_file_id(inner) else ""
