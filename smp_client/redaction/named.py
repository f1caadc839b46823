"""Values whose name says that they are secret: `password: geheim`, `API_KEY=abc`.

A value that is given to its name, as in `name: value` and `name=value`, is secret whatever it looks
like. One that only stands beside it, as in `password hunter2` and `password is hunter2`, must have
a digit. A value stays that stands for another (`${TOKEN}`, `argon2id`, `12 characters`), or that is
a common word (`required`, `str`). Sentences are not understood further.

Time is linear in the length of the text: each run that a pattern can fail after is bounded, and a
run without bound ends a match, behind which the search goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache

from .common import COMMON, FORMS
from .found import Found

NAMED_KINDS = ("password", "token", "api_key", "secret_key", "secret", "aws_secret_key")
_LEAST_CHARACTERS = 3  # of a secret
_LAST_LATIN = "\u024f"


class Bond(Enum):
    """How a name and its value stand together."""

    BESIDE = "password hunter2"
    SAID = "token: opaque and short"  # words go on behind it
    GIVEN = "password: geheim"  # or under a key
    SET = "PASSWORD=geheim"  # or in quotes


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names are judged by their last word, which the word before may deny, and some may follow.
_PASSWORD = re.compile(
    r"pass|pw|passw|passcode|pwd|.*(?:passwo?r?d|passphrase|passwort)|(?:db|user)pass"
)
_SECRET = re.compile(
    r"secrets|credentials?|.*secret|.*token"
    r"|.*(?:api|access|secret|private|auth|encryption|signing|account|master|client|shared)key"
)
# Of which a key is secret. There are others: primary, partition, cache, sort, public.
_KEYS = _words(
    "api access secret private auth authentication encryption encrypt decryption signing "
    "signature account master client service storage admin deploy deployment webhook session "
    "subscription hmac aes jwt license licence app application write ssh gpg pgp bot shared "
    "django flask rails consumer integration"
)
_SUFFIXES = _words(
    "value val prod production dev development staging stage test testing live local old new "
    "plain raw b64 base64 main primary secondary backup base s"
)
# Before a name: a token of a pager, a lexer or a model.
_DENIALS = _words(
    "public next page nextpage continuation previous prev last first current sync resume pad eos "
    "bos unk mask sep cls stop special start end max min total input output prompt completion "
    "lexer parser string keyword cancellation pagination design"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAME_BEFORE = re.compile(r"[\w.-]{0,40}+(?: [A-Za-z]{1,20}+(?![\w.-])){0,2}", re.ASCII)
_PLAIN_CHARACTERS = 200
# The rest of a name behind its stem, a type perhaps, the sign, and the value. Without a sign, a
# blank or a word such as `is` joins the two.
_ASSIGNED = re.compile(
    rf"""
    [\w.-]{{0,40}}+ (?P<name>) (?: \\{{0,3}}["'`] | \*{{1,2}} | [\])] ){{0,4}}+
    (?: [ ]{{0,4}}:[ ]{{0,4}}[A-Za-z_][\w.]{{0,30}}+ (?:\[[^\]\n]{{0,40}}\])? (?:[ ]?\|[ ]?None)?
        [ ]{{0,4}}=(?!=)[ ]{{0,4}}
      | (?: [ ](?:is|was|ist|lautet) )?+
        [ \t]{{0,8}}(?:=>|:=|\+=|={{1,3}}|[:：＝])\*{{0,2}}[ \t]{{0,8}}
      | (?P<joint> (?: [ ] | \t{{1,4}} ) (?: (?:is|was|ist|lautet)[ ] )?+ ) )
    (?: [fbru]{{0,2}} (?P<quote> \\{{0,3}}["'`] )
        (?P<quoted> [^"'`\n\\]{{1,500}}+(?!'') | (?:''|(?!(?P=quote))(?:[^\n\\]|\\.)){{1,500}}+ )
        (?P=quote)
      | (?P<plain> [^\s"'`<>]{{1,{_PLAIN_CHARACTERS}}}+ ) )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_ANOTHER = re.compile(r"([\w.-]{1,40}+)[:=]")
_REST = re.compile(r"[^\s\"'`<>]*+")
_PLAIN_END = re.compile(
    r"""&(?:amp;)?[\w.%-]{1,60}= | [;,](?=[A-Za-z\ _]{1,40}=|$) | \\[nrt"'] | ,["'{\[] | \\\\$""",
    re.VERBOSE,
)


def named(text: str, folded: str, stems: list[str]) -> Iterator[Found]:
    """Yield the values whose name says that they are secret."""
    for stem in stems:
        at = folded.find(stem)
        while at >= 0:
            after = at + len(stem)
            match = _ASSIGNED.match(text, after)
            if match and (found := _judged(text, at, match)):
                yield found
                after = found.end
            at = folded.find(stem, after)


def _judged(text: str, at: int, match: re.Match[str]) -> Found | None:
    """Return the value behind a name whose stem stands at `at`; None if it is not a secret."""
    if match["joint"] and not _DIGIT.search(match[0]) and "--" not in text[max(0, at - 62) : at]:
        return None  # as most words that stand beside a name
    backwards = _NAME_BEFORE.match(text[max(0, at - 60) : at][::-1])
    first = at - (backwards.end() if backwards else 0)
    if text.endswith("redacted: ", 0, first):
        return None
    name = text[first : match.start("name")]
    value, begin, end = _value(match)
    kind = kind_of(name, value, _bond(text, first, match))
    if kind is None:
        return None
    if match["plain"] and len(value) == _PLAIN_CHARACTERS:
        rest = _REST.match(text, end)  # it was judged by its beginning
        end = rest.end() if rest else end
    return Found(begin, end, kind)


def _bond(text: str, first: int, match: re.Match[str]) -> Bond:
    """Return how a name that begins at `first` and its value stand together."""
    is_quoted = match["quoted"] is not None
    if match["joint"]:
        is_option = match["joint"] == " " and "--" in text[max(0, first - 2) : match.start()]
        # `--password TEXT` describes the option.
        is_described = not is_quoted and match["plain"].isalpha() and match["plain"].isupper()
        return Bond.GIVEN if is_option and not is_described else Bond.BESIDE
    # The colons of `:token:` and `arn:…:secret:name` join the parts of one name.
    if text[max(0, first - 1) : first] == ":":
        return Bond.BESIDE
    sign = text[match.end("name") : match.start("quoted" if is_quoted else "plain")]
    if is_quoted or sign == "=":
        return Bond.SET
    if "==" in sign:
        return Bond.BESIDE
    goes_on = ":" in sign and text[match.end() : match.end() + 2].strip(" (").isalpha()
    is_said = goes_on and _is_prose(text[first : match.start("name")])
    return Bond.SAID if is_said else Bond.GIVEN


def _is_prose(name: str) -> bool:
    """Return whether a name is written as in a sentence: not `api_key`, `apiKey` or `SECRET`."""
    words = name.split()
    has_plain = any(word.islower() or word.istitle() for word in words)
    return has_plain and all(
        word.isalpha() and word[1:] in (word[1:].lower(), word[1:].upper()) for word in words
    )


def _value(match: re.Match[str]) -> tuple[str, int, int]:
    """Return the value to judge, and its span in the text."""
    if match["quoted"] is not None:
        return match["quoted"], *match.span("quoted")
    value, begin = match["plain"], match.start("plain")
    if cut := _PLAIN_END.search(value):
        value = value[: cut.start()]
    elif len(value) == _PLAIN_CHARACTERS:
        return value, begin, match.end("plain")
    value = value.rstrip(".,;:)]}\\")
    return value, begin, begin + len(value)


@lru_cache(maxsize=1024)
def says_secret(name: str) -> str:
    """Return the word of a name that says that its value is secret; empty if none does."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdigit()):
        words.pop()
    last, before = words[-1] if words else "", words[-2] if len(words) > 1 else ""
    if last == "key":
        return f"{before}key" if before in _KEYS else ""
    is_secret = _PASSWORD.fullmatch(last) or _SECRET.fullmatch(last)
    return last if is_secret and before not in _DENIALS else ""


def kind_of(name: str, value: str, bond: Bond) -> str | None:
    """Return of which kind of secret the value of a name is; None if it is not a secret."""
    word = says_secret(name)
    if not word or len(value) < _LEAST_CHARACTERS or " " in value:
        return None
    another = _ANOTHER.match(value)  # has its own turn
    if (another and says_secret(another[1])) or (stands_for(value) and not value.isdigit()):
        return None
    is_password = _PASSWORD.fullmatch(word) is not None
    if bond is Bond.BESIDE and (word in _VERBS or not _has_digit(value)):
        return None
    if word in _VERBS and value.isdigit() and len(value) < _COUNT_DIGITS:
        return None
    looks_secret = _is_password(value) if is_password else _is_opaque(value)
    if not looks_secret and _is_told(value, name, bond, is_password=is_password):
        return None
    if is_password:
        return "password"
    if word.endswith("key"):
        if re.fullmatch("[A-Za-z0-9+/]{40}", value) and re.search("(?i)aws|access", name):
            return "aws_secret_key"
        return "api_key" if word == "apikey" else "secret_key"
    return "token" if word.endswith("token") else "secret"


_VERBS = ("pass", "pw")  # of `pass embed=True` and `pass: 1204 tests`
_COUNT_DIGITS = 6
_STANDARD = re.compile(r"[A-Z]{2,8}-?\d{1,5}")  # as `OAUTH2` and `RFC8018`
_WORDS = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*")
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)+|[A-Za-z]+[a-z][A-Z][A-Za-z]*\d?")


def _has_digit(value: str) -> bool:
    """Return whether a word behind a blank has a digit, and is not an option or an address."""
    is_other = value[0] in "-#*" or "=" in value or "@" in value or _STANDARD.fullmatch(value)
    is_count = value.isdigit() and len(value) < _COUNT_DIGITS
    return not is_other and any(map(str.isdigit, value)) and not is_count


def _is_told(value: str, name: str, bond: Bond, *, is_password: bool) -> bool:
    """Return whether a value that does not look secret only says something about its name."""
    if bond is Bond.BESIDE:
        return True
    word = value.rstrip(".,;:!?").lower()
    is_word = len(word) >= _LEAST_CHARACTERS and word[0].isalnum() and any(map(str.isalpha, word))
    if not is_word or name.lower().endswith(word) or "=" in word or max(word) > _LAST_LATIN:
        return True
    known = FORMS if is_password and bond is Bond.SET else COMMON
    common = [part in known for part in word.split("-")]
    is_name = _IDENTIFIER.fullmatch(value) is not None  # in a program
    if is_password:  # which may have common words among others, as in `my-dog-rex`
        refers = is_name and bond is not Bond.SET and bool(says_secret(value))
        return all(common) or refers
    goes_on = bond is Bond.SAID and _WORDS.fullmatch(value) is not None
    return any(common) or is_name or goes_on


def _is_password(value: str) -> bool:
    core = value.rstrip(".,;:!?")
    if not core.isascii() or (core != value and stands_for(core) and not core.isdigit()):
        return False
    digits = sum(map(str.isdigit, value))
    has_sign = any(sign in "!@#$%^&*+~?=|" for sign in value)
    if not any(map(str.isalpha, value)):
        return digits >= 4 or (has_sign and digits >= 2)
    return bool(digits) or (has_sign and not re.fullmatch(r"[A-Za-z]+[?!*]+", value))


# Written where a value would stand: references, and numbers that say how much, when or which.
# Each is tried on the whole value; no two neighbouring repetitions share a character.
_REFERENCE = re.compile(
    r"""
    [$#@]?[{(<\[].* | \$env:.* | \$[A-Za-z_]\w* | %\w*% | %\(\w*\)?s? | %[sdrv] | [:?]\w*
    | !(?:vault|Ref|Sub|GetAtt|secret|env|reference|Base64)(?:\s.*)? | [&*][A-Za-z_]\w*
    | [A-Za-z_][\w.:>?!-]*[(\[{].* | [A-Za-z_]\w*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)+
    | [A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+ | (?:sha\d{1,3}|md5|ENC|ssh-\w+|ecdsa-\w+)[:\[-].*
    | (?:vault|op|ref\+\w+|arn|ssm|env|file|secretref|keyring|projects|secrets?|urn|kms|data)[:/].*
    | [A-Za-z][\w+.-]*://.* | [A-Za-z]:\\.* | \\\\.* | ~?/?\.{0,2}(?:/[\w.@-]+){2,}/?
    | (?:\.{1,2}/|~/).* | (?:[A-Za-z_.-]+/)+[\w.-]+
    """,
    re.VERBOSE | re.DOTALL,
)
_ALGORITHM = (
    r"(?:(?:scram|pbkdf|argon|bcrypt|scrypt|hmac|hkdf|sha|md|aes|gcm|cbc|rsa|hs|rs|es|ed|nist|fips"
    r"|sp|oauth|base|utf|jwt|plus|v=)\d{0,5}(?:crypt|[a-z]{0,2})|\d{1,4}[a-z]?|bits?|url|hashed"
    r"|encoded|salt)"
)
_FACT = re.compile(
    rf"""
    [xX*.•…?_\#-]+ | x{{3,}}[-_x\d]* | 0+ | \\u2022.* | 0x[0-9a-f]{{1,8}} | 1password
    | v\d{{1,4}} | \#\d+
    | [<>=~≥≤±+-]*\d+(?:[.,]\d+)*\s?(?:[-–+x/]\s?\d*)?\s?
      (?:%|char(?:acter)?s?|bits?|bytes?|words?|tokens?|[kmgt]i?b?|ms|[smhdwy]
      |secs?|seconds?|mins?|minutes?|hours?|days?|weeks?|months?|years?)?[.+]?
    | \d{{4}}-\d{{2}}(?:-\d{{2}}(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?)?
    | \d{{1,2}}[./:]\d\d(?:[./:]\d{{2,4}})?
    | v?\d+(?:\.\d+)+(?:[-+.]?(?:rc|alpha|beta|dev|post|a|b)?\.?\d*)?
    | x:\d{{1,10}}:\d{{1,10}}(?::.*)?
    | (?-i:[A-Z]{{2,10}})-\d{{1,6}} | turn-\d+ | session-\d{{4}}-?\d\d-?\d\d(?:-\w+)*
    | {_ALGORITHM}(?:[-_/+$]{_ALGORITHM}){{0,8}}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_NUMBERED = re.compile(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*\d{1,2}|[A-Z]+\d{1,2}|\d{1,2}[A-Za-z][a-z]+")


def stands_for(value: str) -> bool:
    """Return whether it is written where a secret would be, and is none."""
    if _FACT.fullmatch(value):
        return True
    if _REFERENCE.fullmatch(value):  # base64 has slashes too, but no names between them
        return "//" in value[:12] or not any(map(_is_scrambled, value.split("/")))
    is_blank = re.search(
        r"(?<![a-z])(?:yours?|redacted|replace|insert|goes|change(?:me|it)|xxx+)(?![a-z])",
        value.lower(),
    )
    return bool(is_blank) and not is_mixed(value)


def _is_scrambled(run: str) -> bool:
    """Return whether capitals, small letters and digits stand in no order that a name has."""
    is_one = len(run) >= 12 and run.isalnum() and bool(re.search(r"\d[A-Za-z]", run))
    return is_one and len(_HUMP.findall(run)) >= 2


def _is_opaque(value: str) -> bool:
    """Return whether it is random enough for a token."""
    if len(value) < 8 or not value.isascii():
        return False
    if not any(map(str.isalpha, value)):
        return sum(map(str.isdigit, value)) >= 16
    if not any(map(str.isdigit, value)):
        return len(value) >= 16 and len(_HUMP.findall(value)) * 4 >= len(value)
    parts = [part for part in re.split(r"[-_.:/+=~ ]", value) if len(part) >= 6]
    mixtures = [part for part in parts if not part.isalpha() and not part.isdigit()]
    return any(not _NUMBERED.fullmatch(part) for part in mixtures)


def is_mixed(value: str) -> bool:
    """Return whether letters and digits stand in one long run, as in no identifier."""
    runs = re.findall(r"[A-Za-z0-9]{12,}", value)
    return any(not run.isalpha() or len(run) >= 32 for run in runs if not run.isdigit())
