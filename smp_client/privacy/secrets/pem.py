"""Private keys in PEM armour: the whole block, with line ends as they are or escaped, and also one that was cut off."""

from __future__ import annotations

import re

from .spans import Found

_LABEL = r"(?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN = re.compile(rf"-----BEGIN {_LABEL}")
_END = re.compile(rf"-----END {_LABEL}")
_RUN = re.compile(r"[A-Za-z0-9+/]{24}")
_BETWEEN = r"""(?:[\s"'`+>#*|,]|\\{1,4}[nrt"]?|(?:Proc-Type|DEK-Info|Version|Comment|Hash):[^\n\\]{0,100})*+"""
# Full lines, and a last one that is shorter, if nothing else stands on it.
_CUT = re.compile(
    rf"{_BETWEEN}[A-Za-z0-9+/=]{{16,}}+(?:{_BETWEEN}[A-Za-z0-9+/]{{40,}}+=*+)*+"
    rf"(?:{_BETWEEN}(?=[A-Za-z]*[0-9+/=])[A-Za-z0-9+/=]{{1,39}}+(?=[\s\"'\\….]|$))?"
)
_ESCAPE = re.compile(r"\\{1,4}[nrt]")


def private_keys(text: str) -> list[Found]:
    found = []
    for begin in _BEGIN.finditer(text):
        # Each search ends where the next armour begins, so that many beginnings without an end take no longer than one.
        dashes = text.find("-----", begin.end())
        end = _END.match(text, dashes) if dashes >= 0 else None
        if end and _holds_a_key(text[begin.end() : dashes]):
            found.append(Found(begin.start(), end.end(), "private_key"))
        elif not end and (cut := _CUT.match(text, begin.end())):
            found.append(Found(begin.start(), cut.end(), "private_key"))
    return found


def _holds_a_key(body: str) -> bool:
    """Not `…` and not the words of somebody who explains the form."""
    if _RUN.search(body):
        return True
    lines = _ESCAPE.sub("\n", body).split()
    return any(re.fullmatch(r"[A-Za-z0-9+/=]{6,}", line) for line in lines) and not re.search(r"[a-z] [a-z]", body)
