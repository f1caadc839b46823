"""Who begins to speak in a line of a conversation, and when. See conversations.py."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

USERS = frozenset(("user", "human", "you", "me", "customer", "client"))
SPEAKERS = USERS | frozenset(
    """assistant ai bot agent system tool developer chatgpt gpt claude gemini copilot llama mistral bmad-master bmad-orchestrator
    architect analyst pm po sm dev qa ux-expert veritas""".split()  # noqa: SIM905
)
_LABELS = frozenset(
    """decision finding preference learning lesson rationale memory-stored note notes todo example warning important critical minor
    info high medium low date session started participants format-version last-turn speaker type tags memory-refs topic title status
    summary result output input question answer http https file error debug trace warn fatal""".split()  # noqa: SIM905
)
_LEVELS = frozenset("info error warn warning debug trace fatal critical notice".split())  # noqa: SIM905
_FIELDS = frozenset(  # of what is no conversation: changelogs, letters, recipes, headers
    """added changed deprecated removed fixed security breaking usage name names author authors license version description url
    link see returns return args arguments parameters params raises default options option required key value host port path step
    steps day week month year time age email e-mail mail phone address city country price cost total amount quantity size weight
    color id number subject from to cc bcc re sent received given when then and but feature scenario background ingredients method
    chapter part figure table section source sources reference references contact location owner priority severity assignee reporter
    component pros cons goal goals risk risks action actions attendees agenda keywords category abstract command""".split()  # noqa: SIM905
)
_NAME_WORDS = 3
_OURS = re.compile(r"(?:^|\s)(?:DEC|FIND|PREF|LEARN)-[A-Za-z0-9]", re.IGNORECASE)  # ids: what they begin is marked, and not spoken
_MOMENT = r"\d{4}-\d{2}-\d{2}[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:[ ]?(?:Z|UTC|[+-]\d{2}(?::?\d{2})?))?"
_OF_DAY = r"\d{1,2}:\d{2}(?::\d{2})?"
_TIME = rf"{_MOMENT}|{_OF_DAY}"
_NAME = r"(?P<name>[^\s*:\[\]()#`<>|{}\"][^*:\[\]()#`<>|{}\"\n]{0,63}?)"
_BLANKS = r"[ \t]{0,9}"  # not any number of them: a line may be nothing else
_BOLD = re.compile(rf"(?:\[(?P<early>{_TIME})\]{_BLANKS})?\*\*{_NAME}(?:{_BLANKS}[(\[](?P<time>{_TIME})[)\]])?"
                   rf"(?::\*\*|\*\*(?:{_BLANKS}[(\[](?P<late>{_TIME})[)\]])?{_BLANKS}:)[ \t]*(?P<text>.*)")  # fmt: skip
_STAMPED = re.compile(rf"(?:\[(?P<time>{_TIME})\]|(?P<early>{_MOMENT})"
                      rf"(?:{_BLANKS}[-–|])?){_BLANKS}<?{_NAME}>?:(?:[ \t]+(?P<text>.*)|[ \t]*$)")  # fmt: skip
_PLAIN = re.compile(rf"(?:(?P<early>{_OF_DAY})[ \t]{{1,9}})?{_NAME}(?:{_BLANKS}[(\[](?P<time>{_TIME})[)\]])?(?P<said> said)?:"
                    r"(?:[ \t]+(?P<text>.*)|[ \t]*$)")  # fmt: skip
_HEADING = re.compile(rf"#{{1,6}}[ \t]+(?:[^\w\s#][^\w\s]{{0,9}}{_BLANKS})?{_NAME}"
                      rf"(?:{_BLANKS}[-–(\[]{_BLANKS}(?P<time>{_TIME})[)\]]?)?{_BLANKS}:?{_BLANKS}#*")  # fmt: skip
_CLOCK = re.compile(_OF_DAY)


def names(open_lines: list[str], declared: Iterable[str], *, is_forced: bool) -> frozenset[str]:
    """Who is known to speak here; `declared` are lists of participants."""
    people = {one.strip().lower() for value in declared for one in value.split(",") if one.strip()}
    bold: Counter[str] = Counter()
    for before, line in zip(["", *open_lines], open_lines, strict=False):
        if (found := _BOLD.match(line)) and not before.strip():
            bold[found["name"].strip().lower()] += 1
    often = {name for name, count in bold.items() if count > 1 and name.replace(" ", "-") not in _LABELS}
    known = SPEAKERS | people | often | _unknown(open_lines, is_forced=is_forced)
    return frozenset(name for name in known if not _OURS.search(name))


def speaker(line: str, names: frozenset[str]) -> tuple[str, str | None, str] | None:
    """Who begins to speak in this line, when, and what the line says."""
    line = line.strip()
    for form in (_BOLD, _STAMPED, _PLAIN, _HEADING):
        found = form.fullmatch(line)
        if not found:
            continue
        parts = found.groupdict()
        name = parts["name"].strip()
        is_known = name.lower() in names
        if form is _STAMPED and name.lower() not in _LEVELS | _LABELS and len(name.split()) <= 4:
            is_known = not _OURS.search(name)
        if is_known:
            return name, parts.get("time") or parts.get("early") or parts.get("late"), (parts.get("text") or "").strip()
    return None


def _unknown(open_lines: list[str], *, is_forced: bool) -> set[str]:
    """Names that nobody has told of. Lists of fields look the same, so unless somebody insists, there must be several, one of them
    more than once, with capitals, and most of the lines or paragraphs must begin with one."""
    lines, paragraphs, found = Counter[str](), 0, 0
    for before, line in zip(["", *open_lines], open_lines, strict=False):
        begins = bool(line.strip()) and not before.strip()
        paragraphs += begins
        if name := _name_in(line, is_forced=is_forced):
            lines[name.lower()] += 1
            found += begins
    if is_forced:
        return set(lines)
    is_most = lines.total() * 2 > sum(bool(line.strip()) for line in open_lines) or found * 2 > paragraphs
    return set(lines) if is_most and len(lines) > 1 and max(lines.values()) > 1 else set()


def _name_in(line: str, *, is_forced: bool) -> str:
    parts = _BOLD.fullmatch(line.rstrip()) or _PLAIN.fullmatch(line.rstrip())
    name = parts["name"].strip() if parts else ""
    is_name = bool(name) and len(name.split()) <= _NAME_WORDS and name.lower().replace(" ", "-") not in _LABELS | _LEVELS
    is_like_one = bool(parts and parts["early"]) or name[:1].isupper()
    return name if is_name and (is_forced or (is_like_one and name.lower() not in _FIELDS)) else ""


def is_clock(text: str) -> bool:
    """A time of day without a day."""
    return _CLOCK.fullmatch(text) is not None
