"""What the form of a question says about its answer: who is asked about, when it was, and what an answer looks like.

Each is a factor that only such a question switches on; a few words to look for are no question. The words are English; a question
in another language is answered without these hints.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date

_SPEAKER, _OF_HERSELF = 1.3, 1.125  # said by the one person who is named; and of her own
_GENERIC = frozenset(("user", "users", "assistant", "system", "agent", "agents", "human", "bot"))
_ASKS = 0.85  # a question is seldom the answer to one
_LIKE_AN_ANSWER = 1.4
_ON_THE_DAY, _IN_THE_WEEK, _IN_THE_MONTH = 5.0, 3.0, 2.0
# Forms of a word that no stemmer brings together.
_GROUPS = """
become became, begin began begun, break broke broken, bring brought, build built, buy bought, catch caught, choose chose chosen,
come came, draw drew drawn, drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feel felt, fight fought,
find found, fly flew flown, forget forgot forgotten, get got gotten, give gave given, go went gone, grow grew grown, hear heard,
hold held, keep kept, know knew known, lead led, leave left, lend lent, lose lost, make made, mean meant, meet met, pay paid,
ride rode ridden, ring rang rung, rise rose risen, run ran, say said, see saw seen, sell sold, send sent, shoot shot,
sing sang sung, sit sat, sleep slept, speak spoke spoken, spend spent, stand stood, steal stole stolen, swim swam swum,
take took taken,
teach taught, tell told, think thought, throw threw thrown, understand understood, wake woke woken, wear wore worn, win won,
write wrote written, child children, man men, woman women, person people, foot feet, wife wives, mouse mice, tooth teeth
"""
FORMS = {word: tuple(group.split()) for group in _GROUPS.split(",") for word in group.split()}
_MONTHS = {
    "january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8, "september": 9, "october": 10,
    "november": 11, "december": 12,
}  # fmt: skip
_NAMES = "|".join(_MONTHS)
_DATE = re.compile(
    rf"(?:(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?\b({_NAMES})\b(?:,? (\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d))?(?:,? ?(?:of )?(\d{{4}}))?"
)
_DOUBTFUL = re.compile(r"\b(?:in|of|early|late|mid|during|by|on|last|since) (?:may|march)\b")  # else they may be other words
_QUESTION = re.compile(
    r"\?\s*$|^(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|has|have|had|can|could|would|will|should)\b"
)
_WHEN = re.compile(r"when\b|what (?:year|month|day|date|time)\b|on (?:what|which) (?:day|date)\b")
_SAYS_WHEN = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|ago|last|next|weeks?|weekends?|months?|years?|days?|mornings?|recently|since|\d{4}|"
    rf"{_NAMES.replace('may|', '')}|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b"
)
_HOW_MANY, _HOW_LONG = re.compile(r"how (?:many|much|often)\b"), re.compile(r"how long\b")
_SAYS_HOW_MANY = re.compile(
    r"\b(?:\d+|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|twice|once|several|few|couple)\b"
)
_SAYS_HOW_LONG = re.compile(r"\b(?:years?|months?|weeks?|days?|hours?|minutes?|since|ago|decades?)\b")
_SAYS_I = re.compile(r"\b(?:I|[Mm]y|[Ww]e|[Oo]ur)\b")
_WHICH_ONE = re.compile(r"(?:where|who|which)\b|.*\b(?:name|city|country|state)\b")
_NAMES_ONE = re.compile(r"(?<=[a-z,;] )[A-Z][A-Za-z]{2,}|\"")
_WORD = re.compile(r"\w+")


class Question:
    def __init__(self, text: str, is_actor: Callable[[str], bool]) -> None:
        lowered = text.strip().lower()
        words = list(dict.fromkeys(_WORD.findall(lowered)))
        self.asks = len(words) > 2 and _QUESTION.search(lowered) is not None
        names = [word for word in words if word not in _GENERIC and is_actor(word)] if self.asks else []
        self._names = frozenset(names)
        self._speaker = names[0] if len(names) == 1 else None
        self._answer = next(
            (answer for question, answer in ((_WHEN, _SAYS_WHEN), (_HOW_MANY, _SAYS_HOW_MANY), (_HOW_LONG, _SAYS_HOW_LONG),
                                      (_WHICH_ONE, _NAMES_ONE))
             if self.asks and question.match(lowered)), None,
        )  # fmt: skip
        self._dates = _dates(lowered) if self.asks else []

    def names(self, word: str) -> bool:
        """Whether the word is the name of somebody who is asked about."""
        return word in self._names

    def suits(self, actor: str, text: str, day: str) -> float:
        """How much more likely a memory is the answer by who said it, how it reads, and when it was."""
        factor = 1.0
        if self._speaker and actor.lower() == self._speaker:
            factor *= _SPEAKER * (_OF_HERSELF if _SAYS_I.search(text) else 1.0)
        if self.asks and text.rstrip().endswith("?"):
            factor *= _ASKS
        if self._answer and self._answer.search(text if self._answer is _NAMES_ONE else text.lower()):
            factor *= _LIKE_AN_ANSWER
        return factor * _nearness(self._dates, day) if self._dates else factor


def _dates(text: str) -> list[tuple[int | None, int, int | None]]:
    """The year, month and day of each date that is named."""
    found = []
    for before, month, behind, year in _DATE.findall(text):
        if month in ("may", "march") and not (before or behind or year) and not _DOUBTFUL.search(text):
            continue
        day = int(before or behind or 0)
        found.append((int(year) if year else None, _MONTHS[month], day if 1 <= day <= 31 else None))
    return found


def _nearness(dates: list[tuple[int | None, int, int | None]], day: str) -> float:
    try:
        at = date.fromisoformat(day)
    except ValueError:
        return 1.0
    best = 1.0
    for year, month, number in dates:
        same_month = at.month == month and year in (None, at.year)
        best = max(best, _IN_THE_MONTH if same_month else 1.0)
        if number:
            with suppress(ValueError):  # the 31st of April
                days = abs((at - date(year or at.year, month, number)).days)
                best = max(best, _ON_THE_DAY if days <= 1 else _IN_THE_WEEK if days <= 7 else 1.0)
    return best
