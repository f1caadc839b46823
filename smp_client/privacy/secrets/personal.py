"""What says who somebody is, or where: e-mail addresses, phone numbers, IP addresses, IBANs, card numbers, paths of files.

Numbers with check digits are believed only if these are right, and one without (a phone number) only if it is written as people
write one: a date, a version, an id and a sum of money have digits as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from .spans import Found, joined

PERSONAL_KINDS = ("email", "iban", "card", "ip_address", "path", "phone")

_LOCAL_PART = re.compile(r"[\w.%+'-]{1,64}+")  # read backwards
_DOMAIN = re.compile(
    r"@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}(?!(?:png|jpe?g|gif|svg|webp|css|js)\b)(?:[^\W\d_]{2,24}|xn--[\w-]{2,59})(?![\w-])"
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?=[ -]?[A-Za-z0-9]{4})")
_SMALL_IBAN = re.compile(r"[a-z]{2}\d\d(?:[a-z]{4})?\d+")  # with letters amid the digits it may as well be a hash
# How long an IBAN is: the country decides.
_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in (
        entry.split(":")
        for entry in """
        15:NO 16:BE 18:DK,FO,FI,GL,NL,SD,FK 19:MK,SI 20:AT,BA,EE,KZ,LT,LU,XK,MN 21:HR,LV,LI,CH
        22:BH,BG,CR,GE,DE,IE,ME,RS,GB,VA 23:TL,GI,IL,AE,IQ,OM,SO 24:AD,CZ,MD,PK,RO,SA,SK,ES,SE,TN,VG 25:PT,ST,LY
        26:IS,TR 27:FR,GR,IT,MC,MR,SM,BI,DJ 28:AL,AZ,CY,DO,GT,HU,LB,PL,BY,SV,NI 29:BR,EG,PS,QA,UA 30:JO,KW,MU 31:MT,SC 32:LC 33:RU
        """.split()  # noqa: SIM905
    )
    for country in countries.split(",")
}
_CARD = re.compile(r"(?<![\w.+#/-])(?:\d(?:[ -]?\d){11,18}|\d{4}(?:\.\d{4}){3})(?![\w/]|[.,-]\d)")
_CARD_GROUPS = re.compile(r"\d+|\d{4}([ .-])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|\d{4}([ -])\d{6}\2\d{4,5}")
_CARD_PREFIX = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}"
    r"|(?:6011|65\d\d|64[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}|(?:50|5[6-8]|6[37])\d{10,17}"
)
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = re.compile(rf"(?:(?<![\w.:-])|(?<=::ffff:))(?:{_BYTE}\.){{3}}{_BYTE}(?!\w|[.-]\w)")
_VERSION_BEFORE = re.compile(
    r"(?:\b(?:v|ver\.?|version|release|build|rev|firmware|section|chapter)[ :=]{0,3}|[=<>~!]= ?|[<>~^§] ?)\Z", re.IGNORECASE
)
_NOBODYS = re.compile(r"127\..*|0\..*|255\.255\..*|\d+\.0\.0\.0")
# Addresses that are given out begin so; `fade::bad` is a name in a program.
_IPV6 = re.compile(r"(?<![\w:.])(?:[23][0-9A-Fa-f]{3}|[fF][c-fC-F][0-9A-Fa-f]{2}):[0-9A-Fa-f:]{1,34}(?![\w:])")
_PATH = re.compile(
    r"""
      (?<![\w/.~@<>{}$%*\])!\\-]) /(?:[\w.@+~,-]++/)++[\w.@+~-]*+      # /srv/bob/notes.md
    | (?<=file://) /[\w.@+~/-]++
    | (?<![\w/.@\\-]) ~\w{0,32}/[\w.@+~/-]++                            # ~/notes.md
    | (?<![\w\\]) [A-Za-z]:(?:\\{1,2}|/(?!/))                        # C:\\Program Files\\…
      (?:[^\\/:*?"<>|\s,;]{1,100}+(?:[ ][^\\/:*?"<>|\s,;]{1,100}+){0,3}(?:\\{1,2}|/))*+[^\\/:*?"<>|\s,;)]*+
    | (?<![\w\\:]) \\\\[\w.-]{1,60}(?:\\[^\\/:*?"<>|\s,;]{1,100})++     # a share
    """,
    re.VERBOSE,
)
# The path of a request, and places that are the same for everybody.
_ROUTE_BEFORE = re.compile(r"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|route|endpoint):? ?[\"'`]?\Z")
_NOBODYS_PATH = re.compile(
    r"/(?:api|v\d+|graphql|rest|oauth2?|dev/(?:null|zero|u?random|std\w+|tty|shm)|proc|sys|s?bin|usr/(?:local/)?bin)(?:/.*)?"
)
_PHONE = re.compile(
    r"""
      (?<![\w+.]) (?:(?!\+1[0-4](?:00|15|30|45)(?!\d))\+|(?<!\d[ ])00(?=[1-9]\d?[ (/.-]))                  # +49 170 1234567
      [1-9](?:[ ]?[(]?[ ./-]?[)]?[ ]?\d){7,14}+                                                       # but +1000 is a time zone
    | (?<![\w.+/-]) (?:1[-. ])?\d{3}-\d{3}-\d{4}                                                       # 555-123-4567
    | (?<![\w.+/-])(?<!\d[ ]) (?:1[-. ])?(?:\([2-9]\d\d\)[ ]?(?:\d{3}[-.]|[2-9]\d\d[ ])|[2-9]\d\d\.\d{3}\.)\d{4}  # (555) 234-5678
    | (?<![\w.+/,-])(?<!\d[ ]) 0\d([ .-])\d\d(?:\1\d\d){3}                                             # 06 12 34 56 78
    | (?<![\w.+/,(-])(?<!\d[ ]) (?:\(0\d{1,4}\)[ ]?|0\d{1,4}[ ]?[/ -][ ]?)\d{3,8}(?:[ -]\d{2,6}){0,3}  # 030 1234567
    """,
    re.VERBOSE,
)
_PHONE_NAMED = re.compile(
    r"\b(?:tel|telefon|telephone|phone|mobile|mobil|handy|cell|fax|whatsapp|call(?: me)?(?: at| on)?)"
    r"(?:\.|[ _-]?(?:no|nr|number|nummer)\.?)?"
    r"[\"']?\s{0,2}[:=]?\s{0,2}[\"']?(\+?\(?\d(?:[ ]?[ ()./-]?[ ]?\d){6,14}+)(?![\w]|[.:,-]\d)",
    re.IGNORECASE,
)
_DATE = re.compile(r"(?:19|20)\d\d[-./ ]?[01]\d[-./ ]?[0-3]\d|[0-3]\d[-./ ][01]\d[-./ ](?:19|20)\d\d")


def personal(text: str) -> list[Found]:
    """Everything personal in a text that has a form of its own; never overlapping, in order. Names of people have none."""
    finders: tuple[Callable[[str], Iterator[Found]], ...] = (_emails, _ibans, _cards, _addresses, _paths, _phones)
    return joined(found for find in finders for found in find(text))


def _emails(text: str) -> Iterator[Found]:
    at = text.find("@")
    while at >= 0:
        after = at + 1
        domain = _DOMAIN.match(text, at)
        name = _LOCAL_PART.match(text[max(0, at - 65) : at][::-1])
        if domain and name:
            local = name[0][::-1].lstrip(".'-")
            start = at - len(local)
            # In a URL it is a login, of which the password has gone; and git@ is nobody.
            if local and local != "git" and not re.search(r"://[^\s/]*\Z", text[max(0, start - 80) : start]):
                yield Found(start, domain.end(), "email")
                after = domain.end()
        at = text.find("@", after)


def _ibans(text: str) -> Iterator[Found]:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2].upper())
        whole = _iban_of(length).match(text, match.start()) if length else None
        if whole:
            plain = re.sub("[ -]", "", whole[0])
            number = int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4]))
            if number % 97 == 1 and (plain.isupper() or _SMALL_IBAN.fullmatch(plain)):
                yield Found(*whole.span(), "iban")


@cache
def _iban_of(length: int) -> re.Pattern[str]:
    return re.compile(rf"[A-Za-z0-9](?:[ -]?[A-Za-z0-9]){{{length - 1}}}(?![A-Za-z0-9])")


def _cards(text: str) -> Iterator[Found]:
    for match in _CARD.finditer(text):
        digits = re.sub("[ .-]", "", match[0])
        if _CARD_PREFIX.fullmatch(digits) and _CARD_GROUPS.fullmatch(match[0]) and _luhn(digits):
            yield Found(*match.span(), "card")


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return len(set(digits)) > 1 and (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _addresses(text: str) -> Iterator[Found]:
    for match in _IPV4.finditer(text):
        if not _NOBODYS.fullmatch(match[0]) and not _VERSION_BEFORE.search(text, max(0, match.start() - 14), match.start()):
            yield Found(*match.span(), "ip_address")
    for match in _IPV6.finditer(text):
        if _is_ipv6(match[0]):
            yield Found(*match.span(), "ip_address")


def _is_ipv6(value: str) -> bool:
    groups = value.split(":")
    if any(len(group) > 4 for group in groups) or ":::" in value or value.count("::") > 1:
        return False
    return len(groups) <= 8 if "::" in value else len(groups) == 8 and all(groups)


def _paths(text: str) -> Iterator[Found]:
    for match in _PATH.finditer(text):
        path = match[0].rstrip(".,-+@~")
        before = max(0, match.start() - 12)
        if _NOBODYS_PATH.fullmatch(path) or not re.search(r"[^\W\d_]", path) or _ROUTE_BEFORE.search(text, before, match.start()):
            continue
        if path.strip("/").count("/") or not path.startswith("/") or text.endswith("file://", before, match.start()):
            yield Found(match.start(), match.start() + len(path), "path")


def _phones(text: str) -> Iterator[Found]:
    for match in _PHONE.finditer(text):
        digits = sum(map(str.isdigit, match[0]))
        if 9 <= digits <= 15 and _stands_alone(text, match.end()) and not _is_date_or_version(text, match):
            yield Found(*match.span(), "phone")
    for match in _PHONE_NAMED.finditer(text):
        if not _DATE.match(match[1]):
            yield Found(*match.span(1), "phone")


def _is_date_or_version(text: str, match: re.Match[str]) -> bool:
    start = match.start()
    return bool(_DATE.match(match[0]) or ("." in match[0] and _VERSION_BEFORE.search(text, max(0, start - 14), start)))


def _stands_alone(text: str, end: int) -> bool:
    """No part of something longer: nothing that goes on with a letter, a digit, or a separator and a digit."""
    after = text[end : end + 2]
    return not after[:1].isalnum() and not (after[:1] in tuple(".,:-/_") and after[1:].isalnum())
