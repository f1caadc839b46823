"""Whether a value can be a secret, or only stands for one: `${TOKEN}`, `<password>`, `os.environ["KEY"]`, `str`, `argon2id`."""

from __future__ import annotations

import re

# Each is tried on the whole value. None has two neighbouring repetitions of the same character, so each takes linear time.
_REFERENCES = (
    r"\$[({].*", r"\$env:.*", r"\$[A-Za-z_]\w*",  # of a shell
    r"[$#@]?\{.*", r"%\w*%", r"%\(\w*\)?s?", r"%[sdrv]", r"[:?]\w*", r"<.*", r"\(.*", r"\[.*",  # of a template, a format, SQL
    r"!(?:vault|Ref|Sub|GetAtt|secret|env|reference|Base64)(?:\s.*)?", r"[&*][A-Za-z_]\w*",  # tags and anchors of YAML
    r"[A-Za-z_][\w.:>?!-]*[(\[{].*", r"[A-Za-z_]\w*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)+",  # calls, look-ups, attributes
    r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",  # names of variables
    r"(?:vault|op|ref\+\w+|arn|ssm|env|file|secretref|keyring|keychain|awssm|gcpsm|projects|secrets?|urn|did|spki|kms|data)[:/].*",
    r"(?:sha\d{1,3}|md5|blake\d\w*|ENC|pbkdf2\w*|bcrypt|argon2\w*|ssh-\w+|ecdsa-\w+)[:\[-].*",  # digests, public keys
    r"[A-Za-z][\w+.-]*://.*",  # a URL, whose own password has a row of its own
    r"[A-Za-z]:\\.*", r"\\\\.*", r"~?/?\.{0,2}(?:/[\w.@-]+){2,}/?", r"(?:\.{1,2}/|~/).*", r"(?:[A-Za-z_.-]+/)+[\w.-]+",  # paths
)  # fmt: skip
# Numbers that say how much, when or which.
_FACTS = (
    r"[<>=~≥≤±+-]*\d+(?:[.,]\d+)*\s?(?:[-–+x/]\s?\d*)?\s?(?:%|°|chars?|characters?|bits?|bytes?|words?|[KMGT]i?B?|[kmg]b?|ms|[smhdwy]|"
    r"sec|secs|seconds?|mins?|minutes?|hours?|days?|weeks?|months?|years?|times|st|nd|rd|th|tokens?|usd|eur)?[.+]?",
    r"\d+-(?:bit|byte|char|character|digit|day|hour|minute|word|letter|factor|year|month|week|symbol)s?",
    r"\d{4}-\d{2}(?:-\d{2}(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?)?", r"\d{1,2}:\d\d(?::\d\d)?",  # times
    r"\d{1,2}[./]\d{1,2}[./]\d{2,4}",
    r"[vV]?\d+(?:\.\d+)+(?:[-+.]?(?:rc|alpha|beta|dev|post|a|b)?\.?\d*)?", r"[vV]\d{1,4}", r"#\d+",  # versions, numbers
    r"[A-Z]{2,10}-\d{1,6}", r"turn-\d+", r"session-\d{4}-?\d\d-?\d\d(?:-\w+)*", r"[Qq]\d", r"[A-Z]\d{1,3}",  # ids
    r"(?:sha|md|utf|base|aes|rsa|dsa|hs|rs|es|ps|oauth|argon|pbkdf|bcrypt|scrypt|blake|ed|x|curve|p|secp|http|h|ipv|pkcs|pkce|s|win|log4j|k8s|"
    r"i18n|l10n|web|fido|u|2fa|mfa|int|uint|float|str|varchar|char|http/|tls|ssl|ntlmv|crc|node|python|java|es)[-_/]?v?\d{1,4}"
    r"(?:[-_]?\d{1,4})?(?:id|r\d|k\d|[-_]?(?:hmac|cbc|gcm|sha\d+|bit|url|hashed|encoded|hash|based|string))?",
    r"(?:scram|pbkdf|argon2(?:id|i|d)?|bcrypt|scrypt|hmac|hkdf|kdf|sha|md|aes|nist|fips|sp)\d{0,3}"  # algorithms and standards
    r"(?:[-_/](?:(?:scram|pbkdf|hmac|sha|md|aes|gcm|cbc|ctr|plus|sp)\d{0,3}|\d{1,4}[a-z]?)){1,6}", r"argon2(?:id|i|d)?\$v=\d{1,3}",
    r"x:\d{1,10}:\d{1,10}(?::.*)?",  # a line of /etc/passwd
    r"2fa|1password|0auth|3des|3p0", r"0[xX][0-9A-Fa-f]{1,8}",
)  # fmt: skip
# Words that stand where a value would: types, states, and what a document says in place of one.
_WORDS = frozenset(
    """
    str string text char varchar bytes secretstr int integer number bool boolean object array list dict map any none null nil
    void undefined optional required true false yes no on off enabled disabled empty blank unset missing invalid incorrect wrong
    valid hidden masked secret private public internal redacted removed omitted encrypted hashed plaintext plain salted sealed
    rotated expired revoked leaked compromised forgotten unknown unchanged changed stored generated random default same see here
    there below above elsewhere as per the a an and or of to in is it was not must should may can will your my our their this
    that these those with without for from bcrypt scrypt argon argon2 sha md pbkdf jwt oauth saml oidc mfa totp basic bearer
    digest ntlm kerberos ldap vault keyring keychain env environment file prompt input stdin interactive password passwd
    passphrase pwd pass token key apikey credential credentials placeholder example sample dummy todo tbd fixme fill change
    changeme replace replaceme insert enter n/a na tba const let var self cls field column label type format schema property
    widget param parameter argument arg option value name user username email login authentication authorization authorisation
    policy strength length rotation reset rules minimum maximum minlength maxlength strong weak short long
    """.split()  # noqa: SIM905 - easier to look through
)
# What a form asks of a value: `required|string|min:8`.
_RULES = frozenset(
    """
    required nullable sometimes present filled bail string text integer numeric min max between size digits confirmed same
    different password current_password alpha alpha_num alpha_dash email unique exists mixed letters numbers symbols uncompromised
    required_if required_with required_without required_unless min_length max_length minlength maxlength
    """.split()  # noqa: SIM905
)
# One of these in it, and the whole is no value but says where one goes.
_BLANKS = frozenset(
    "your yours changeme changeit replace replaceme redacted placeholder insert enter fixme todo tbd xxx xxxx fill goes".split()  # noqa: SIM905
)
_REFERENCE = re.compile("|".join(_REFERENCES), re.DOTALL)
_FACT = re.compile("|".join(_FACTS), re.IGNORECASE)
_BLANK = re.compile(r"[xX*.•…?_#-]+|[xX]{3,}[-_xX\d]*|0+|\\u2022.*")
_RULE = re.compile(r"([a-z_]{2,20})(?::(?:\d{1,5}(?:,\d{1,5})?|[a-z_.,]{1,60}))?")
_SIGNS = frozenset("!@#$%^&*~")
_NO_SIGNS_OF_PASSWORDS = frozenset("[](){}<>|=/\\+`\"'")  # of programs, paths, formulas and regular expressions
_ADDRESS = re.compile(r"[\w.%-]+@[\w-]+\.[\w.-]+|[a-z\d_.-]+@[a-z\d-]+")  # also `name@1.2.3`, a package
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_PARTS = re.compile(r"[A-Za-z]+")


def stands_for(value: str) -> bool:
    """A reference, a blank, a type, a measure: something that is written where a secret would be, and is none."""
    if _BLANK.fullmatch(value) or value.lower() in _WORDS or _FACT.fullmatch(value):
        return True
    if _asks_for_one(value):
        return True
    if _REFERENCE.fullmatch(value) and not _sealed_in_slashes(value):
        return True
    return any(part.lower() in _BLANKS for part in _PARTS.findall(value)) and not mixed(value)


def _asks_for_one(value: str) -> bool:
    """Rules; one alone only with a number, since `email:…` may be a name and its password."""
    if "|" not in value and not (":" in value and value[-1].isdigit()):
        return False
    return all((rule := _RULE.fullmatch(part)) and rule[1] in _RULES for part in value.split("|"))


def _sealed_in_slashes(value: str) -> bool:
    """Base64 has slashes too, but what stands between them are no names."""
    return "//" not in value[:12] and any(_scrambled(part) for part in value.split("/"))


def _scrambled(run: str) -> bool:
    """Capitals, small letters and digits in one run, in no order that a name has."""
    return len(run) >= 12 and run.isalnum() and bool(re.search(r"\d[A-Za-z]", run)) and len(_HUMP.findall(run)) >= 2


def mixed(value: str) -> bool:
    """Letters and digits in one long run; an identifier such as `sk-loading-wrapper-2` has none."""
    return any(not run.isalpha() or len(run) >= 32 for run in re.findall(r"[A-Za-z0-9]{12,}", value) if not run.isdigit())


def opaque(value: str) -> bool:
    """Random enough for a token: eight characters or more, in which letters and digits, or capitals and small ones, alternate."""
    if len(value) < 8 or not value.isascii():
        return False
    digits, letters = sum(map(str.isdigit, value)), sum(map(str.isalpha, value))
    if not letters:
        return digits >= 16
    if digits:
        parts = re.split(r"[-_.:/+=~ ]", value)
        return any(len(part) >= 6 and not part.isalpha() and not part.isdigit() and not _numbered(part) for part in parts)
    return len(value) >= 16 and len(_HUMP.findall(value)) * 4 >= len(value)


def contrived(value: str) -> bool:
    """Letters, a digit and a sign in one: what people think of when a password is wanted, and what is no word, name or number. A
    sign at the end may be that of the sentence, so there must be capitals and small letters as well."""
    core = value.strip("*_.,;:?")
    inner = core.rstrip("!").lstrip("^~@#$%&")
    if not 6 <= len(core) <= 64 or not core.isascii() or not _NO_SIGNS_OF_PASSWORDS.isdisjoint(core):
        return False
    if not (any(map(str.isdigit, inner)) and any(map(str.isalpha, inner))) or stands_for(inner):
        return False
    if _SIGNS.isdisjoint(inner):
        return core.endswith("!") and any(map(str.isupper, core)) and any(map(str.islower, core))
    return not _ADDRESS.fullmatch(inner)


def _numbered(part: str) -> bool:
    """A word or two with a number after it: `user12`, `getV2`, `node3`."""
    return bool(re.fullmatch(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*\d{1,2}|[A-Z]+\d{1,2}|\d{1,2}[A-Za-z][a-z]+", part))
