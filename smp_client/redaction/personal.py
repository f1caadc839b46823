"""Personal data in a text: e-mail addresses, phone numbers, IP addresses and paths.

A phone number must be written as people write one: dates, versions and ids have digits as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .found import Found, joined

_LOCAL_PART = re.compile(r"[\w.%+'-]{1,64}+")  # read backwards
_DOMAIN = re.compile(
    r"@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}(?!(?:png|jpe?g|gif|svg|webp|css|js)\b)"
    r"(?:[^\W\d_]{2,24}|xn--[\w-]{2,59})(?![\w-])"
)
_LOGIN = re.compile(r"://[^\s/]*\Z")
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = re.compile(rf"(?:(?<![\w.:-])|(?<=::ffff:))(?:{_BYTE}\.){{3}}{_BYTE}(?!\w|[.-]\w)")
_NOBODYS = re.compile(r"127\..*|0\..*|255\.255\..*|\d+\.0\.0\.0")
# Addresses that are given out begin so; `fade::bad` is a name in a program.
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[23][0-9A-Fa-f]{3}|[fF][c-fC-F][0-9A-Fa-f]{2}):[0-9A-Fa-f:]{1,34}(?![\w:])"
)
_VERSION_BEFORE = re.compile(
    r"(?:\b(?:v|ver\.?|version|release|build|rev|firmware|section|chapter)[ :=]{0,3}|[=<>~!]= ?"
    r"|[<>~^§] ?)\Z",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"""
      (?<![\w/.~@<>{}$%*\])!\\-]) /(?:[\w.@+~,-]++/)++[\w.@+~-]*+          # /srv/bob/notes.md
    | (?<=file://) /[\w.@+~/-]++
    | (?<![\w/.@\\-]) ~\w{0,32}/[\w.@+~/-]++                                # ~/notes.md
    | (?<![\w\\]) [A-Za-z]:(?:\\{1,2}|/(?!/))                               # C:\Program Files\…
      (?:[^\\/:*?"<>|\s,;]{1,100}+(?:[ ][^\\/:*?"<>|\s,;]{1,100}+){0,3}(?:\\{1,2}|/))*+
      [^\\/:*?"<>|\s,;)]*+
    | (?<![\w\\:]) \\\\[\w.-]{1,60}(?:\\[^\\/:*?"<>|\s,;]{1,100})++         # a share
    """,
    re.VERBOSE,
)
# The path of a request, and places that are the same for everybody.
_ROUTE_BEFORE = re.compile(
    r"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|route|endpoint):? ?[\"'`]?\Z"
)
_NOBODYS_PATH = re.compile(
    r"/(?:api|v\d+|graphql|rest|oauth2?|dev/(?:null|zero|u?random|std\w+|tty|shm)|proc|sys|s?bin"
    r"|usr/(?:local/)?bin)(?:/.*)?"
)
_PHONE = re.compile(
    r"""
      (?<![\w+.]) (?:(?!\+1[0-4](?:00|15|30|45)(?!\d))\+|(?<!\d[ ])00(?=[1-9]\d?[ (/.-]))
      [1-9](?:[ ]?[(]?[ ./-]?[)]?[ ]?\d){7,14}+                  # +49 170 1234567, but not +1000
    | (?<![\w.+/-]) (?:1[-. ])?\d{3}-\d{3}-\d{4}                              # 555-123-4567
    | (?<![\w.+/-])(?<!\d[ ]) (?:1[-. ])?
      (?:\([2-9]\d\d\)[ ]?(?:\d{3}[-.]|[2-9]\d\d[ ])|[2-9]\d\d\.\d{3}\.)\d{4} # (555) 234-5678
    | (?<![\w.+/,-])(?<!\d[ ]) 0\d([ .-])\d\d(?:\1\d\d){3}                    # 06 12 34 56 78
    | (?<![\w.+/,(-])(?<!\d[ ])
      (?:\(0\d{1,4}\)[ ]?|0\d{1,4}[ ]?[/ -][ ]?)\d{3,8}(?:[ -]\d{2,6}){0,3}   # 030 1234567
    """,
    re.VERBOSE,
)
_PHONE_NAMED = re.compile(
    r"\b(?:tel|telefon|telephone|phone|mobile|mobil|handy|cell|fax|whatsapp"
    r"|call(?: me)?(?: at| on)?)"
    r"(?:\.|[ _-]?(?:no|nr|number|nummer)\.?)?[\"']?\s{0,2}[:=]?\s{0,2}[\"']?"
    r"(\+?\(?\d(?:[ ]?[ ()./-]?[ ]?\d){6,14}+)(?![\w]|[.:,-]\d)",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"(?:19|20)\d\d[-./ ]?[01]\d[-./ ]?[0-3]\d|[0-3]\d[-./ ][01]\d[-./ ](?:19|20)\d\d"
)


def personal(text: str) -> list[Found]:
    """Return everything personal that has a form of its own, in order and never overlapping."""
    finders = (_emails, _addresses, _paths, _phones)
    return joined(Found(*found) for find in finders for found in find(text))


def _emails(text: str) -> Iterator[tuple[int, int, str]]:
    at = text.find("@")
    while at >= 0:
        after = at + 1
        domain = _DOMAIN.match(text, at)
        name = _LOCAL_PART.match(text[max(0, at - 65) : at][::-1])
        if domain and name and (local := name[0][::-1].lstrip(".'-")) not in ("", "git"):
            start = at - len(local)
            if not _LOGIN.search(text[max(0, start - 80) : start]):
                yield start, domain.end(), "email"
                after = domain.end()
        at = text.find("@", after)


def _addresses(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _IPV4.finditer(text):
        if not _NOBODYS.fullmatch(match[0]) and not _is_version(text, match.start()):
            yield *match.span(), "ip_address"
    for match in _IPV6.finditer(text):
        groups = match[0].split(":")
        is_short = match[0].count("::") == 1 and ":::" not in match[0] and len(groups) <= 8
        if max(map(len, groups)) <= 4 and (is_short or (len(groups) == 8 and all(groups))):
            yield *match.span(), "ip_address"


def _paths(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _PATH.finditer(text):
        path, start = match[0].rstrip(".,-+@~"), match.start()
        before = max(0, start - 12)
        is_nobodys = _NOBODYS_PATH.fullmatch(path) or not re.search(r"[^\W\d_]", path)
        if is_nobodys or _ROUTE_BEFORE.search(text, before, start):
            continue
        is_deep = path.strip("/").count("/") or not path.startswith("/")
        if is_deep or text.endswith("file://", before, start):
            yield start, start + len(path), "path"


def _phones(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _PHONE.finditer(text):
        after = text[match.end() : match.end() + 2]
        goes_on = after[:1].isalnum() or (after[:1] in tuple(".,:-/_") and after[1:].isalnum())
        is_version = "." in match[0] and _is_version(text, match.start())
        is_other = goes_on or is_version or _DATE.match(match[0])
        if 9 <= sum(map(str.isdigit, match[0])) <= 15 and not is_other:
            yield *match.span(), "phone"
    for match in _PHONE_NAMED.finditer(text):
        if not _DATE.match(match[1]):
            yield *match.span(1), "phone"


def _is_version(text: str, start: int) -> bool:
    return bool(_VERSION_BEFORE.search(text, max(0, start - 14), start))
