"""Values under a name that says that they are secret: `password: …`, `export API_KEY=…`, `"client_secret": "…"`, `--token …`.

The stem of such a name is searched for, which is fast; where one stands, what follows must be the rest of a name, something that
assigns, and a value. Then three questions decide: does the whole name say it (`password_hash_algorithm` and `max_tokens` do not),
does the value only stand for a secret (plausible.py), and does it look like one: a password may be any literal, a token must be
random. In prose, where `password is` is followed by any word at all, a value must show more of itself, and the most where the
link between them is weak, as in `the password to …`, in a table and before the name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .plausible import contrived, opaque, stands_for
from .spans import Found

NAMED_KINDS = ("password", "token", "api_key", "secret_key", "secret", "aws_secret_key")
_STEMS = ("pass", "pw", "secret", "token", "key", "credential", "kennwort", "contrase")
# A value with so many further names in it is judged by what stands before the last of them: `token=token=token=…` would else be
# read anew for each name, and each of them has its own turn.
_CROWDED = re.compile(rf"(?:[^\s\"'`<>]*?(?:{'|'.join(_STEMS)})){{8}}")

_PASSWORDS = frozenset("password passwd passphrase passcode pwd pw pass passw passwort kennwort contraseña dbpass userpass".split())  # noqa: SIM905
_SECRETS = frozenset("secret secrets token credential credentials".split())  # noqa: SIM905
_PASSWORD_ENDINGS = ("password", "passwd", "passphrase", "passwort", "kennwort")
_ENDINGS = (*_PASSWORD_ENDINGS, "secret", "token")
# Of which a key is secret. There are others: primary, partition, cache, sort, public.
_KEYS = frozenset(
    """
    api apikey access secret private auth authentication encryption encrypt decryption signing signature account master client
    service storage admin deploy deployment webhook session subscription hmac aes jwt license licence app application write ssh gpg
    pgp bot shared django flask rails consumer integration
    """.split()  # noqa: SIM905
)
_JOINED_KEY = re.compile(r".*(?:api|access|secret|private|auth|encryption|signing|account|master|client|shared)key")
# May follow the name without changing what it says: DB_PASSWORD_PROD, tokenValue, api_key_2.
_SUFFIXES = frozenset(
    """
    value val prod production dev development staging stage test testing live local old new plain raw b64 base64 main primary
    secondary backup base s
    """.split()  # noqa: SIM905
)
# Before the name, they say that it is none: what a lexer, a pager or a language model calls a token, and a key for all to see.
_HARMLESS = frozenset(
    """
    public next page nextpage continuation previous prev last first current sync resume pad eos bos unk mask sep cls stop special
    start end begin max min num total input output prompt completion per lexer parser syntax string keyword identifier open close
    separator line indent dedent newline comma cancellation cancel pagination watermark design
    """.split()  # noqa: SIM905
)

_PHRASE_CHARACTERS = 8
# In quotes after such a name, they say that this is a message, a label or a rule; the others only link words.
_TALK = frozenset(
    """
    at least more less than contain contains do does don't cannot could be been are were ask asks stored kept used uses forgot
    confirm new old current show hide please only one two digit digits letter letters character characters symbol symbols if
    when then where by via case sensitive set given passwords tokens secrets keys
    """.split()  # noqa: SIM905
)
_LINKS = frozenset("a an the of to in on my our and or for from with this that it no as".split())  # noqa: SIM905

# What becomes of one, which stands behind its name in a mapping of states or of rules; so does whatever ends in -ed.
_STATES = frozenset(
    """
    done pending open todo okay fine good works working broken passes passing fails failing present absent strength digits letters
    symbols uppercase lowercase upper lower length minimum manual automatic never always sometimes later soon unsafe insecure
    safe secure critical high medium urgent review rotate expires obligatoria obligatorio erforderlich vergessen pflicht
    """.split()  # noqa: SIM905
)
_ACTIONS = frozenset("reset change changed forgot forgotten lost update check verify validate show hide has is require no".split())  # noqa: SIM905
# Of these a long hexadecimal number is one also where nothing links them.
_PLAINLY = frozenset("auth api access private secret bearer refresh signing encryption".split())  # noqa: SIM905
_STEPS = frozenset(
    "field step page screen stage slot input column form level layer phase user node test case task item view table type".split()  # noqa: SIM905
)
_APP_PASSWORD = re.compile(r"[a-z]{4}(?:[ ][a-z]{4}){3}(?![\w-]|[ \t]+\w)")  # as a provider of mail shows it, in four groups
_UNSPEAKABLE = re.compile(r"[^aeiouy ]{3}")
_BEFORE_NAME = re.compile(
    r"""(?<!\S)["'`]?(\S{6,64}?)["'`]?[ ]as[ ](?:(?:the|a|an|my|our|your|its|new)[ ]){0,2}(?:[a-z]{1,12}[ ])?"""
    r"(?:password|passwd|passphrase|passcode|pwd)\b",
    re.IGNORECASE,
)
_SUM = re.compile(r"([A-Za-z_]{2,30})\d{1,2} [+] \1\d")  # of two that are numbered
_VERSION = re.compile(r"[a-z]{3,20}[-@]?v?\d{1,2}(?:\.\d{1,3}){1,2}")
_EASTERN = re.compile(r"[\u2e80-\U0003ffff]")  # a sentence has no spaces there

_NAME_BEFORE = re.compile(r"[\w.-]{0,40}+(?: [A-Za-z]{1,20}+(?![\w.-])){0,2}", re.ASCII)  # read backwards
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zß-ÿ]+|\d+")
_VALUE = r"""
    (?: [fbruFBRU]{0,2}
        (?P<quote> \\{0,3}["'`] ) (?P<quoted> [^"'`\n\\]{1,500}+(?!'') | (?:''|(?!(?P=quote))(?:[^\n\\]|\\.)){1,500}+ ) (?P=quote)
      | (?P<plain> [^\s"'`<>]{1,500}+ ) )
"""
_AFTER = re.compile(
    r"""
    [\w.-]{0,40}+ (?P<name>)
    (?: \\{0,3}["'`] | \*{1,2} | [\])] ){0,4}+
    (?: [ ](?:for|of|on|to|at|from|für)[ ][^\n:=,;.!?"']{1,40}+(?=[:=]) | [ ]?\([^()\n]{1,30}\)(?=[:=])
      | [ ](?:for|of|on|to|at|from)(?:[ ][\w.-]{1,30}+){1,4}?(?=[ ](?:is|was)[ ]) )?
    (?: (?P<typed> [ ]{0,4}:[ ]{0,4}[A-Za-z_][\w.]{0,30}+ (?:\[[^\]\n]{0,40}\])? (?:[ ]?\|[ ]?None)? [ ]{0,4}=(?!=)[ ]{0,4} )
      | (?P<assigns> [ \t]{0,8}(?:=>|:=|\+=|={1,3}|[:：＝])\*{0,2}[ \t]{0,8} )
        (?: [|>][+-]?[ \t]{0,4} )?  (?P<break> \r?\n\s{0,20} | \\n[ ]{0,8} )?
      | (?P<apart> \\{0,3}["']?,?(?:\s|\\n){1,20}\\{0,3}["']?value\\{0,3}["']?[ ]{0,4}[:=][ ]{0,4} )
      | (?P<arrow> (?<!\))[ ]{1,4}(?:->|→)[ ]{1,4} )
      | (?P<beside> [ ](?=(?:0x)?[0-9a-fA-F]{32,128}\b) )
      | (?P<weak> [ ](?:(?:(?:has|had|have)[ ]been|is|was|got)[ ](?:changed|set|reset|updated)[ ])?to[ ] | [ ](?:is|was)[ ]now[ ]
          | [ ](?:will|should|shall|must)[ ](?:now[ ])?be[ ] | [ ]as[ ] | [ ]{1,8}\|[ ]{1,8} )
      | (?P<said> [ ](?:is|was|ist|lautet|equals|set[ ]to|changed[ ]to)[ ]:?[ ]? | ,[ ]{0,3}(?=["']) | [ ](?=') )
      | (?P<tag> > ) )
    """ + _VALUE,
    re.VERBOSE,
)  # fmt: skip
# After `--name`, in a Dockerfile and in some shells a space assigns.
_FLAG = re.compile(r"(?:--|\bENV[ ]|\bset[ ]-\w{1,3}[ ]|\bsetx[ ])(?P<name>[A-Za-z][\w.-]{0,40}+)[ =]" + _VALUE, re.VERBOSE)
_PLAIN_END = re.compile(r"""&(?:amp;)?[\w.%-]{1,60}= | [;,](?=[A-Za-z\ _]{1,40}=|$) | \\[nrt"'] | ,["'{\[] | \\\\$ """, re.VERBOSE)
# Beside the name of a user or a host, a password is one.
_NEIGHBOUR = re.compile(r"\b(?:user|user[_ ]?(?:name|id)|uid|login|e-?mail|host|server|account|benutzer)[\"'*]{0,3}\s{0,4}[:=]")
_AWS_SECRET = re.compile(r"[A-Za-z0-9+/]{40}")


class Assigned(NamedTuple):
    """A value, what it is called, and how it was written."""

    words: list[str]  # of the name, in small letters
    name: str
    value: str
    begin: int
    end: int
    quoted: bool
    prose: bool  # said rather than assigned
    link: str  # between the name and it, where that is weak: weak, arrow, beside
    bare: bool  # `NAME=value`, without spaces
    equals: bool
    around: str  # what stands nearby, in small letters


def named(text: str, folded: str) -> list[Found]:
    """The values in a text whose name says what they are; `folded` is the same text in small letters, as long as it."""
    found: list[Found] = []
    for stem in [stem for stem in _STEMS if stem in folded]:
        at = folded.find(stem)
        while at >= 0:
            after = at + len(stem)
            if (match := _AFTER.match(text, after)) and (one := _judged(_assignment(text, folded, at, match))):
                found.append(one)
                after = one.end
            at = folded.find(stem, after)
    if "--" in text or "ENV " in text or "set -" in text or "setx " in text:
        found.extend(one for match in _FLAG.finditer(text) if (one := _judged(_flag(match, folded))))
    if " as " in folded and ("pass" in folded or "pwd" in folded):
        found.extend(Found(*match.span(1), "password") for match in _BEFORE_NAME.finditer(text) if contrived(match[1]))
    return found


def _assignment(text: str, folded: str, at: int, match: re.Match[str]) -> Assigned | None:
    backwards = _NAME_BEFORE.match(text[max(0, at - 60) : at][::-1])
    first = at - (backwards.end() if backwards else 0)
    name = text[first : match.start("name")]
    words = _words_of(name)
    if not says_secret(words) or text.endswith("redacted: ", 0, first):
        return None
    first += len(name) - len(name := name.split(" ")[-1])
    if match["tag"] is not None and not ("<" in text[max(0, first - 60) : first] and text.startswith("</", match.end())):
        return None
    if match["apart"] is not None and not re.search(r"(?:name|key)\W{0,6}\Z", folded[max(0, first - 12) : first]):
        return None
    value, begin, end = _value(match, folded)
    if _SUM.match(text, begin):
        return None
    in_a_row = text[max(0, first - 1) : first] in ("?", "&", ";") or text[end : end + 1] == ";"
    bare = match["assigns"] == "=" and (name.isupper() or in_a_row)
    around = folded[max(0, first - 100) : first] + "\n" + folded[end : end + 60]
    link = next((link for link in ("weak", "arrow", "beside") if match[link] is not None), "")
    if link == "arrow" and _arrows(text, first, end) > 1:
        return None
    prose = bool(link) or match["said"] is not None or match["break"] is not None
    equals, quoted = "=" in (match["assigns"] or ""), match["quoted"] is not None
    return Assigned(words, name, value, begin, end, quoted, prose, link, bare, equals, around)


def _arrows(text: str, start: int, end: int) -> int:
    """How many of them nearby on the line: with several, it says what follows what."""
    line = text[max(0, start - 100) : start].rpartition("\n")[2] + text[start : end + 100].partition("\n")[0]
    return line.count("->") + line.count("→")


def _flag(match: re.Match[str], folded: str) -> Assigned | None:
    words = _words_of(match["name"])
    if not says_secret(words):
        return None
    value, begin, end = _value(match, folded)
    return Assigned(words, match["name"], value, begin, end, match["quoted"] is not None, False, "", False, True, "")


def _value(match: re.Match[str], folded: str) -> tuple[str, int, int]:
    """Return the text to judge, and the span of the value, which may be longer."""
    if match["quoted"] is not None:
        return match["quoted"], *match.span("quoted")
    value, (begin, end) = match["plain"], match.span("plain")
    if (groups := _APP_PASSWORD.match(match.string, begin)) and _is_app_password(groups[0]):
        return groups[0], *groups.span()
    if crowded := _CROWDED.match(folded, begin, end):
        return value[: len(crowded[0])], begin, end
    if cut := _PLAIN_END.search(value):
        value = value[: cut.start()]
    value = value.rstrip(".,;:)]}\\")
    return value, begin, begin + len(value)


def _is_app_password(value: str) -> bool:
    """Four words of four letters can be a sentence; letters that were drawn cannot all be spoken."""
    words = value.split()
    return bool(_UNSPEAKABLE.search(value)) and not any(word in _TALK or word in _STATES or stands_for(word) for word in words)


def _judged(one: Assigned | None) -> Found | None:
    if one is None or len(one.value) < 4 or (stands_for(one.value) and not one.value.isdigit()):
        return None
    if one.link and not _is_linked(one):
        return None
    if not (_is_password(one) if _names_password(one.words) else _is_token(one)):
        return None
    return Found(one.begin, one.end, _kind(one.words, one.value))


def _is_linked(one: Assigned) -> bool:
    """Whether it shows so much of itself that a weak link is enough."""
    if not _names_password(one.words):
        return one.link == "beside" and len(one.words) > 1 and one.words[-2] in _PLAINLY
    if contrived(one.value):
        return one.words[-1] != "pass"
    numbered = re.fullmatch(r"([a-z]{4,20})\d{1,6}", one.value)
    return one.link == "arrow" and bool(numbered and numbered[1] not in _STEPS)


def _words_of(name: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdigit()):
        words.pop()
    return words


def _names_password(words: list[str]) -> bool:
    return words[-1] in _PASSWORDS or words[-1].endswith(_PASSWORD_ENDINGS)


def says_secret(words: list[str]) -> bool:
    """By its last word; the words before it can only say which, or that it is another thing of that name."""
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if before in _HARMLESS:
        return False
    if last == "key":
        return before in _KEYS
    return last in _PASSWORDS or last in _SECRETS or last.endswith(_ENDINGS) or bool(_JOINED_KEY.fullmatch(last))


def _is_token(one: Assigned) -> bool:
    if " " in one.value:
        return one.words[-1] in ("secret", "secrets") and one.equals and _is_phrase(one)
    return opaque(one.value) and (not one.prose or len(one.value) >= 12)


def _is_password(one: Assigned) -> bool:
    value = one.value
    if " " in value:
        return not one.quoted or _is_phrase(one)
    stripped = value.rstrip(".,;:!?")
    if _EASTERN.search(value) or (stripped != value and stands_for(stripped) and not stripped.isdigit()):
        return False
    if one.words in (["pw"], ["pass"]) and not one.quoted and _VERSION.fullmatch(value):
        return False  # of a program or a step, which are called so as well
    letters, digits = any(map(str.isalpha, value)), sum(map(str.isdigit, value))
    if one.prose:
        return (bool(letters and digits and len(value) >= 6) or opaque(value)) and not says_secret(_words_of(value))
    others = any(char in "!@#$%^&*+~?=|" for char in value)
    if not letters:
        return digits >= 5 or (others and digits >= 2)
    if digits or others:
        return one.quoted or not re.fullmatch(r"[A-Za-z]+[?!*]+", value)
    return _is_word_as_password(one)


def _is_phrase(one: Assigned) -> bool:
    """Several words in quotes: a secret if one of them is no word, or if together they say nothing about secrets. A label or a
    sentence begins with a capital."""
    words = one.value.split()
    if any(opaque(word) and not stands_for(word) for word in words):
        return len(words) <= 6
    if one.prose or not one.quoted or not 2 <= len(words) <= 12 or len(one.value) < _PHRASE_CHARACTERS:
        return False
    plain = [word.lower().strip(".,;:!?'") for word in words]
    return not one.value[0].isupper() and not any(word in _TALK or (stands_for(word) and word not in _LINKS) for word in plain)


def _is_word_as_password(one: Assigned) -> bool:
    """A word is a password where only a value can stand: in quotes, in an environment or a query, beside the name of a user."""
    value = one.value.rstrip(".,;:!?")
    if not one.bare and (value in _STATES or value.endswith("ed") or (len(one.words) > 1 and one.words[-2] in _ACTIONS)):
        return False
    parts = re.split(r"[-_.]", value)
    if len(parts) > 1:
        return one.quoted and len(parts) >= 4
    if not value.isascii() or (not value.islower() and says_secret(_words_of(value))):
        return False
    if one.bare or (len(value) >= 20 and value.islower()):
        return True
    if one.words == ["pass"]:  # of tests as well
        return bool(_NEIGHBOUR.search(one.around))
    capitalised = value[0].isupper() and value[1:].islower()
    return not capitalised and (one.quoted or bool(_NEIGHBOUR.search(one.around)))


def _kind(words: list[str], value: str) -> str:
    last = words[-1]
    if _names_password(words):
        return "password"
    if last.endswith("key"):
        if _AWS_SECRET.fullmatch(value) and ("aws" in words or words[-3:] == ["secret", "access", "key"]):
            return "aws_secret_key"
        return "api_key" if "api" in words or last == "apikey" else "secret_key"
    return "token" if last.endswith("token") else "secret"
