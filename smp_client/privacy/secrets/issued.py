"""Secrets that show what they are: keys and tokens of the form that their issuer gives them.

One row of the table is one form: the kind, the letters it begins with, the pattern of what follows them, and, where the form alone
is not proof enough, a check. A text is searched for the letters first, which is fast, and only where they stand is the rest tried.

Time is linear in the length of the text, whatever the text: where a pattern can fail after a long run, the run is bounded, and
where the run is not bounded, the pattern cannot fail any more and what it has seen is not looked at again.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from .pem import private_keys
from .plausible import contrived, mixed, opaque, stands_for
from .spans import Found

# What documents write where a key would stand.
_BLANK = re.compile(r"[xX0*.#_\-…]*+(?:your\w*+)?", re.IGNORECASE)
_Check = Callable[[str], bool] | None


class Row(NamedTuple):
    kind: str
    hint: str  # how it begins
    pattern: str  # of all of it; its group 1, if there is one, is the secret
    check: _Check
    folded: bool  # in small or large letters

    def match(self, text: str, at: int) -> re.Match[str] | None:
        # Amid letters stands no token, but `://` does.
        if self.hint[0].isalnum() and not _begins_a_word(text, at):
            return None
        return _compiled(self.pattern, self.folded).match(text, at)


@cache
def _compiled(pattern: str, folded: bool = False) -> re.Pattern[str]:
    """When first needed: most texts need none, and all of them together would take longer to compile than a command to run."""
    return re.compile(pattern, re.ASCII | (re.IGNORECASE if folded else 0))


def _has_password(value: str) -> bool:
    """Base64 of `user:password`, as a basic authentication sends it."""
    try:
        plain = b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (NotBase64, UnicodeDecodeError):
        return False
    return plain.isprintable() and 0 <= plain.find(":") < len(plain) - 1


def _is_private_key(value: str) -> bool:
    return b"PRIVATE KEY" in b64decode((_ARMOUR + value)[:80])


def _has_claims(value: str) -> bool:
    """A signed token carries readable claims; an encrypted one has five parts."""
    return ".eyJ" in value or value.count(".") == 4


def _is_literal(value: str) -> bool:
    """Not `${PASSWORD}`, `<password>`, `%s` or `***`; a word is taken for what it is, as nothing else can stand there."""
    return not re.fullmatch(r"\$.*|%\w*%?|<.*|\{.*|\[.*|:.*|(?:[xX*.…•])+", value)


def _is_bearer(value: str) -> bool:
    """Not `of-this-letter1234`, words with a number behind them."""
    return opaque(value) and not stands_for(value) and not _NUMBERED_WORDS.fullmatch(value)


def _is_typed(value: str) -> bool:
    """A literal that is no word, as a sentence about the option would have."""
    return _is_literal(value) and not stands_for(value) and any(sign.isdigit() or sign in "!@#$%^&*" for sign in value)


def _is_of_a_session(value: str) -> bool:
    return mixed(value) and not stands_for(value)


def _is_numbered(value: str) -> bool:
    """Where a token must stand, a digit is enough to tell it from a word that stands for it; of one that looks like an attribute,
    several in a long part."""
    digits = sum(map(str.isdigit, value))
    return digits > 0 and (not stands_for(value) or (digits >= 3 and bool(_DOTTED.fullmatch(value)) and mixed(value)))


def _has_numbered_parts(value: str) -> bool:
    """The ids of a team and of a user, before a last part that may be letters alone."""
    return bool(re.match(r"\d{9,}-", value)) or mixed(value)


def _is_random(value: str) -> bool:
    """Not the hash of a commit."""
    return mixed(value) and any(map(str.isupper, value)) and any(map(str.islower, value))


def _names_a_secret_place(value: str) -> bool:
    return value.count("/") == 2 or mixed(value)


_ARMOUR = "LS0tLS1CRUdJTi"  # -----BEGIN in base64
_LONG = 18  # characters; what the first table describes has more
_NUMBERED_WORDS = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)+\d*")
_DOTTED = re.compile(r"\w+(?:\.\w+)+")
_TIME = re.compile(r"[0-9TZ:.+-]+")  # long as well, every memory has some, and no beginning is made of these alone
_OPTION = r"(?:[^\n|;]{{0,200}}?\s)??-{}[\s=]{{1,2}}[\"']?([^\s\"'`]{{4,100}})"
_SIGNS = "\"'=_/:"
_HEX32, _WORD = "[0-9a-f]{32}", r"[A-Za-z0-9_\-]"

# kind, the beginnings (each is searched for), what follows, and the check.
_FORMS: tuple[tuple[str, str, str, _Check], ...] = (
    ("aws_access_key", "AKIA ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])", None),
    # In the neighbourhood of the key there is hardly anything else that looks like this.
    ("aws_secret_key", "AKIA ASIA",
     r"[A-Z0-9]{16}(?![A-Za-z0-9])[\s\S]{0,60}?(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/])", _is_random),
    ("aws_bedrock_key", "ABSK", r"[A-Za-z0-9+/]{100,}+={0,2}", None),
    ("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{30,}+", None),
    ("github_token", "github_pat_", r"\w{40,}+", None),
    ("gitlab_token", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glimt- glagent- gloas- glffct-",
     rf"{_WORD}{{20,}}+(?:\.{_WORD}{{2,}}+)*", None),
    ("gitlab_token", "GR1348941", rf"{_WORD}{{20,}}+", None),
    ("slack_token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe.xoxb- xoxe.xoxp- xoxc- xoxd-", r"[A-Za-z0-9%\-]{10,}+",
     _has_numbered_parts),
    ("slack_token", "xapp-", r"[0-9]-[A-Za-z0-9\-]{10,}+", None),
    ("slack_webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/([A-Za-z0-9/]{20,}+)", _names_a_secret_place),
    ("discord_webhook", "discord.com/api/ discordapp.com/api/", rf"(?:v\d{{1,2}}/)?webhooks/\d{{10,25}}/({_WORD}{{40,}}+)", None),
    ("teams_webhook", "webhook.office.com/webhookb2/", r"([A-Za-z0-9@\-/]{40,}+)", None),
    ("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{16,}+", None),
    ("stripe_webhook_secret", "whsec_", r"[A-Za-z0-9+/=]{24,}+", None),
    ("google_api_key", "AIza", rf"{_WORD}{{35}}(?!{_WORD})", None),
    ("google_oauth_secret", "GOCSPX-", rf"{_WORD}{{20,}}+", None),
    ("google_oauth_token", "ya29.", r"[\w\-.]{20,}+", mixed),
    ("google_oauth_token", "1//0", rf"{_WORD}{{38,}}+", mixed),
    ("firebase_key", "AAAA", rf"{_WORD}{{7}}:APA91b{_WORD}{{100,}}+", None),
    ("anthropic_key", "sk-ant-", rf"{_WORD}{{20,}}+", None),
    ("openai_key", "sk-", rf"{_WORD}{{20,}}+", mixed),
    ("groq_key", "gsk_", r"[A-Za-z0-9]{40,}+", None),
    ("xai_key", "xai-", r"[A-Za-z0-9]{60,}+", None),
    ("perplexity_key", "pplx-", r"[A-Za-z0-9]{40,}+", None),
    ("replicate_token", "r8_", r"[A-Za-z0-9]{36,}+", None),
    ("pinecone_key", "pcsk_", r"\w{40,}+", None),
    ("tavily_key", "tvly-", rf"{_WORD}{{28,}}+", mixed),
    ("langsmith_key", "lsv2_pt_ lsv2_sk_", r"[0-9a-f]{32}_[0-9a-f]{10}", None),
    ("huggingface_token", "hf_ api_org_", r"[A-Za-z0-9]{30,}+", None),
    ("npm_token", "npm_", r"[A-Za-z0-9]{36,}+", None),
    ("pypi_token", "pypi-Ag", rf"{_WORD}{{40,}}+", None),
    ("rubygems_key", "rubygems_", r"[0-9a-f]{48}", None),
    ("crates_token", "cio", r"[A-Za-z0-9]{32}(?![A-Za-z0-9])", mixed),
    ("nuget_key", "oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])", mixed),
    ("clojars_token", "CLOJARS_", r"[0-9a-z]{60}", None),
    ("sendgrid_key", "SG.", rf"{_WORD}{{16,40}}\.{_WORD}{{16,}}+", mixed),
    ("sendinblue_key", "xkeysib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}", None),
    ("mailgun_key", "key-", rf"{_HEX32}(?![A-Za-z0-9])", None),
    ("twilio_key", "SK", rf"{_HEX32}(?![A-Za-z0-9])", None),
    ("jwt", "eyJ", rf"{_WORD}{{10,2000}}+(?:\.\.?{_WORD}++){{1,4}}", _has_claims),
    ("age_key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{40,}+", None),
    ("private_key", _ARMOUR, r"[A-Za-z0-9+/]{66,}+={0,2}", _is_private_key),
    ("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{64}", None),
    ("vault_token", "hvs. hvb. hvr.", rf"{_WORD}{{24,}}+", mixed),
    ("databricks_token", "dapi", rf"{_HEX32}(?:-\d)?(?![A-Za-z0-9])", None),
    ("shopify_token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}", None),
    ("square_token", "sq0atp- sq0csp- sq0idp-", rf"{_WORD}{{22,}}+", None),
    ("square_token", "EAAA", rf"{_WORD}{{60}}(?!{_WORD})", mixed),
    ("facebook_token", "EAA", r"[A-Za-z0-9]{90,}+", mixed),
    ("linear_key", "lin_api_ lin_oauth_", r"[A-Za-z0-9]{40,}+", None),
    ("notion_token", "ntn_", r"[A-Za-z0-9]{40,}+", None),
    ("notion_token", "secret_", r"[A-Za-z0-9]{43}(?![A-Za-z0-9])", mixed),
    ("docker_token", "dckr_pat_ dckr_oat_", rf"{_WORD}{{27,}}+", None),
    ("heroku_key", "HRKU-", rf"{_WORD}{{36,}}+", mixed),
    ("cloudflare_key", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{100,}+", None),
    ("atlassian_token", "ATATT3 ATCTT3", r"[\w\-=]{60,}+", None),
    ("atlassian_token", "ATBB", r"[A-Za-z0-9]{32}(?![A-Za-z0-9])", mixed),
    ("figma_token", "figd_", rf"{_WORD}{{40,}}+", None),
    ("dropbox_token", "sl.", rf"(?:u\.)?{_WORD}{{130,}}+", None),
    ("doppler_token", "dp.pt. dp.st. dp.ct. dp.sa.", r"[A-Za-z0-9.\-_]{40,}+", None),
    ("grafana_token", "glsa_", r"[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}", None),
    ("grafana_token", "glc_eyJ", r"[A-Za-z0-9+/]{32,}+={0,2}", None),
    ("newrelic_key", "NRAK- NRJS-", r"[A-Za-z0-9]{19,}+", None),
    ("postman_key", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}", None),
    ("airtable_token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}", None),
    ("planetscale_token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w\-.=]{32,}+", None),
    ("supabase_key", "sbp_ sb_secret_", r"\w{20,}+", mixed),
    ("fly_token", "fm2_", r"[A-Za-z0-9+/=]{80,}+", None),
    ("sentry_token", "sntrys_ sntryu_", r"[\w+/=]{40,}+", None),
    ("netlify_token", "nfp_", r"[A-Za-z0-9]{36,}+", None),
    ("render_key", "rnd_", r"[A-Za-z0-9]{28,}+", mixed),
    ("buildkite_token", "bkua_", r"[0-9a-f]{40}", None),
    ("circleci_token", "CCIPAT_", r"\w{40,}+", None),
    ("sonar_token", "squ_ sqp_ sqa_", r"[0-9a-f]{40}", None),
    ("artifactory_key", "AKCp", r"[A-Za-z0-9]{60,}+", None),
    ("contentful_token", "CFPAT-", rf"{_WORD}{{40,}}+", None),
    ("alibaba_key", "LTAI", r"[A-Za-z0-9]{16,24}(?![A-Za-z0-9])", mixed),
    ("tencent_key", "AKID", r"[A-Za-z0-9]{32}(?![A-Za-z0-9])", mixed),
    ("azure_sas", "sig=", r"((?:[A-Za-z0-9+/_\-]|%[0-9A-Fa-f]{2}){40,}+={0,2})", None),
    ("presigned_url", "X-Amz-Signature= X-Goog-Signature=", r"([0-9a-f]{40,}+)", None),
)  # fmt: skip
# The same, of what has spaces in it, can be short, or is written in small or large letters.
_FOLDED_FORMS: tuple[tuple[str, str, str, _Check], ...] = (
    ("bearer_token", "bearer", r"(?:\s|%20|\+){1,4}([A-Za-z0-9._~+/\-]{12,}+={0,2})", _is_bearer),
    ("bearer_token", "authorization",
     r"[\"']?\s{0,4}[:=,]\s{0,4}[\"']?(?:bearer|token|api-?key)\s{1,4}([\w.~+/=\-]{8,}+)", _is_numbered),
    ("basic_auth", "auth' auth\" _auth", r"\s{0,4}[:=]\s{0,4}[\"']?([A-Za-z0-9+/]{8,}+={0,2})", _has_password),  # of a registry
    ("basic_auth", "basic", r"(?:\s|%20){1,4}([A-Za-z0-9+/]{8,}+={0,2})", _has_password),
    ("password", "machine ", r"\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(\S{1,200})", _is_literal),  # .netrc
    ("password", "login: credentials: creds:", r"\s{0,2}[^\s/]{1,64}\s{0,2}/\s{0,2}([^\s\"'`]{6,64})", contrived),
    ("session_cookie", "cookie: cookie\":",
     r"\s{0,2}+[\"']?(?:[^\n;=]{1,60}+=[^\n;]{0,300}+;\s{0,2}+){0,8}?"
     r"[\w.\-]{0,20}(?:sess|sid|auth|token)[\w.\-]{0,16}=[\"']?([\w%.~+/\-]{16,}+={0,2})", _is_of_a_session),
    ("password", "identified by ", r"[\"']([^\"'\n]{1,200})[\"']", _is_literal),  # SQL
    ("private_key", "private-lines: ", r"\d{1,3}(?:\s|\\n)*((?:[A-Za-z0-9+/]{20,80}={0,2}(?:\s|\\n)*)++)", None),
    ("okta_token", "ssws ", rf"(00{_WORD}{{40}})(?!{_WORD})", None),
    # What stands between the colon and the host of a URL. A port is no password, and `image:tag@sha256:` no host.
    ("url_password", "://", r"""[^\s/:@"'<>`\[\](){}]{0,128}:(?!\d{1,5}(?:[/?#,;|)\]]|$))((?:[^\s/"'<>`]|/(?!/)){1,256}?)@"""
     r"(?!sha\d{3}:)(?:[\w.\-]{1,255}+(?![@\w])|[\[$%{])", _is_literal),
    ("url_password", "jdbc:oracle:thin:", r"[\w$#]{1,64}/([^\s@]{1,128})@", _is_literal),
    ("azure_storage_key", "accountkey= sharedaccesskey=", r"([A-Za-z0-9+/]{40,}+={0,2})", None),
)  # fmt: skip
# The same, of options: only behind the programs that have them.
_OPTIONS: tuple[tuple[str, str, str, _Check], ...] = (
    ("password", "curl ", r"[^\n]{0,200}?(?<=\s)(?:-u|--user)[\s=]{0,3}[\"']?[^\s:\"']{1,80}:([^\s\"']{1,200})", _is_literal),
    ("password", "sshpass ", r"-p\s{0,2}[\"']?([^\s\"']{1,200})", _is_literal),
    ("password", "mysql", r"\w{0,8}\s[^\n|;]{0,200}?(?<=\s)-p(?!ort|rotocol)[\"']?([^\s\"']{1,100})", _is_literal),
    ("password", "docker login ", _OPTION.format("p"), _is_typed),
    ("password", "podman login ", _OPTION.format("p"), _is_typed),
    ("password", "redis-cli ", _OPTION.format("a"), _is_typed),
    ("password", "ldap", r"[a-z]{1,8}\s" + _OPTION.format("w"), _is_typed),
)
# Of those whose beginning is not fixed, what is; what stands before it, and what follows.
_INNER = (
    ("terraform_token", ".atlasv1.", r"[A-Za-z0-9]{14}", r"[\w\-=]{50,}+"),
    ("azure_client_secret", "8Q~", r"[\w~.\-]{3}", r"[\w~.\-]{31,}+"),
    ("telegram_token", ":AA", r"(?<!\d)\d{8,10}", rf"{_WORD}{{32,}}+"),
    ("discord_token", ".", rf"(?<![\w\-])[MNO]{_WORD}{{23,27}}", rf"{_WORD}{{6}}\.{_WORD}{{27,}}+"),
)


def _rows(forms: tuple[tuple[str, str, str, _Check], ...], folded: bool) -> list[Row]:
    return [
        Row(kind, hint, re.escape(hint) + rest, check, folded)
        for kind, hints, rest, check in forms
        for hint in ([hints] if hints.endswith(" ") else hints.split())
    ]


def _sign_of(hint: str) -> str:
    return next((sign for sign in _SIGNS if sign in hint), "")


_ROWS, _FOLDED, _OPTION_ROWS = _rows(_FORMS, False), _rows(_FOLDED_FORMS, True), _rows(_OPTIONS, True)
_HINTS = [(row.hint, row) for row in _ROWS]
# Under a sign that each of them has, which is looked for faster than they are; all under "" are looked for.
_BY_SIGN = {sign: [(row.hint, row) for row in _FOLDED if _sign_of(row.hint) == sign] for sign in ("", *_SIGNS)}
_BY_SIGN[" -"] = [(row.hint, row) for row in _OPTION_ROWS]
ISSUED_KINDS = tuple(dict.fromkeys(["private_key", *(row.kind for row in (*_ROWS, *_FOLDED)), *(row[0] for row in _INNER)]))


def issued(text: str, folded: str) -> list[Found]:
    """The keys and tokens in a text; `folded` is the same text in small letters, as long as it."""
    found = private_keys(text) if "PRIVATE KEY" in text else []
    # Most are one long word, and a text seldom has any.
    if long := " ".join([word for word in text.split() if len(word) >= _LONG and not _TIME.fullmatch(word)]):
        for row in [row for hint, row in _HINTS if hint in long]:
            found.extend(_of(row, text, text))
        for kind, hint, before, after in _INNER:
            if hint in long:
                found.extend(_around(kind, hint, before, after, text))
    for sign, hints in _BY_SIGN.items():
        if sign in folded:
            for row in [row for hint, row in hints if hint in folded]:
                found.extend(_of(row, text, folded))
    return found


def _of(row: Row, text: str, searched: str) -> Iterator[Found]:
    at = searched.find(row.hint)
    while at >= 0:
        after = at + len(row.hint)
        if match := row.match(text, at):
            after = match.end()
            group = match.lastindex or 0
            value = match[group].removeprefix(row.hint)
            if not _BLANK.fullmatch(value) and (row.check is None or row.check(value)):
                yield Found(*match.span(group), row.kind)
        at = searched.find(row.hint, after)


def _around(kind: str, hint: str, before: str, after: str, text: str) -> Iterator[Found]:
    at = text.find(hint)
    while at >= 0:
        match = _compiled(after).match(text, at + len(hint))
        if match and (first := _compiled(before + r"\Z").search(text, max(0, at - 40), at)):
            yield Found(first.start(), match.end(), kind)
        at = text.find(hint, match.end() if match else at + len(hint))


def _begins_a_word(text: str, at: int) -> bool:
    """No letter or digit stands before, other than that of an escape such as `\\n`."""
    if not at or not text[at - 1].isalnum():
        return True
    return text[at - 1] in "nrt" and at > 1 and text[at - 2] == "\\"
