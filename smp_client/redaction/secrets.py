"""Secrets in a text: tokens and keys of a form that their issuer gives them, and `name[:=]value`.

Of a name and its value, the name must say that the value is secret (`password_hash` and
`max_tokens` do not), and the value must not stand for one (`${TOKEN}`, `str`, `argon2id`). A
password may be any literal; a token must look random. Sentences about secrets are not understood.

Time is linear in the length of the text: each run that a pattern can fail after is bounded, and a
run without bound ends a match, behind which the search goes on.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

# Kinds and the beginnings of tokens, behind which letters and digits stand in no order.
_PREFIXED = """
age_key AGE-SECRET-KEY-1  anthropic_key sk-ant-  artifactory_key AKCp  buildkite_token bkua_
circleci_token CCIPAT_  clojars_token CLOJARS_  contentful_token CFPAT-  figma_token figd_
digitalocean_token dop_v1_,doo_v1_,dor_v1_  github_token ghp_,gho_,ghu_,ghs_,ghr_,github_pat_
grafana_token glsa_,glc_eyJ  groq_key gsk_  heroku_key HRKU-  huggingface_token hf_,api_org_
langsmith_key lsv2_pt_,lsv2_sk_  linear_key lin_api_,lin_oauth_  netlify_token nfp_  npm_token npm_
newrelic_key NRAK-,NRJS-  notion_token ntn_  openai_key sk-  perplexity_key pplx-
pinecone_key pcsk_  postman_key PMAK-  pypi_token pypi-Ag  render_key rnd_  replicate_token r8_
rubygems_key rubygems_  sendinblue_key xkeysib-  shopify_token shpat_,shpca_,shppa_,shpss_
sonar_token squ_,sqp_,sqa_  tavily_key tvly-  supabase_key sbp_,sb_secret_
vault_token hvs.,hvb.,hvr.  xai_key xai-
"""
# Kind, beginnings, what follows, and a check: a group is the secret, a line may go on in the next.
# A, B, H, W and Z stand for their classes below.
_ISSUED = r"""
airtable_token pat A{14}\.H{64}
alibaba_key LTAI A{16,24}(?!A) mixed
atlassian_token ATATT3,ATCTT3 [\w=-]{60,}+
atlassian_token ATBB A{32}(?!A) mixed
aws_access_key AKIA,ASIA [A-Z0-9]{16}(?!A)
aws_bedrock_key ABSK B{100,}+={0,2}
aws_secret_key AKIA,ASIA [A-Z0-9]{16}(?!A)[\s\S]{0,60}?(?<!B)
  (?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(B{40})(?!B)
azure_client_secret 8Q~ [\w~.-]{3}8Q~[\w~.-]{31,}+ whole
azure_sas sig= ((?:[A-Za-z0-9+/_-]|%[0-9A-Fa-f]{2}){40,}+={0,2})
cloudflare_key v1.0- H{24}-H{100,}+
crates_token cio A{32}(?!A) mixed
databricks_token dapi H{32}(?:-\d)?(?!A)
discord_token . (?<![\w-])[MNO]W{23,27}\.W{6}\.W{27,}+ whole
discord_webhook discord.com/api/,discordapp.com/api/ (?:v\d{1,2}/)?webhooks/\d{10,25}/(W{40,}+)
docker_token dckr_pat_,dckr_oat_ W{27,}+
doppler_token dp.pt.,dp.st.,dp.ct.,dp.sa. [A-Za-z0-9._-]{40,}+
dropbox_token sl. (?:u\.)?W{130,}+
facebook_token EAA A{90,}+ mixed
firebase_key AAAA W{7}:APA91bW{100,}+
fly_token fm2_ [A-Za-z0-9+/=]{80,}+
gitlab_token glpat-,gldt-,glrt-,glcbt-,glptt-,glft-,glsoat-,glimt-,glagent-,gloas-,glffct-,GR1348941
   W{20,}+(?:\.W{2,}+)*
google_api_key AIza W{35}(?!W)
google_oauth_secret GOCSPX- W{20,}+
google_oauth_token ya29. [\w.-]{20,}+ mixed
google_oauth_token 1//0 W{38,}+ mixed
jwt eyJ W{10,2000}+\.(?:eyJW++(?:\.W++)?|W*+(?:\.W*+){3})
mailgun_key key- H{32}(?!A)
notion_token secret_ A{43}(?!A) mixed
nuget_key oy2 [a-z0-9]{43}(?!A) mixed
planetscale_token pscale_tkn_,pscale_pw_,pscale_oauth_ [\w.=-]{32,}+
presigned_url X-Amz-Signature=,X-Goog-Signature= (H{40,}+)
private_key LS0tLS1CRUdJTi (?:BQUklW|BSU0Eg|BPUEVO|BFQyBQ|BFTkNS|BEU0Eg|BQR1AgUFJJ)B{60,}+={0,2}
sendgrid_key SG. W{16,40}\.W{16,}+ mixed
sentry_token sntrys_,sntryu_ [\w+/=]{40,}+
slack_token xoxb-,xoxp-,xoxa-,xoxr-,xoxs-,xoxo-,xoxe-,xoxe.xoxb-,xoxe.xoxp-,xoxc-,xoxd-
   (?=[A-Za-z%-]{0,20}\d\d)[A-Za-z0-9%-]{20,}+
slack_token xapp- [0-9]-[A-Za-z0-9-]{10,}+
slack_webhook hooks.slack.com/ (?:services|workflows|triggers)/([A-Za-z0-9/]{20,}+)
square_token sq0atp-,sq0csp-,sq0idp- W{22,}+
square_token EAAA W{60}(?!W) mixed
stripe_key sk_live_,sk_test_,rk_live_,rk_test_ A{16,}+
stripe_webhook_secret whsec_ [A-Za-z0-9+/=]{24,}+
teams_webhook webhook.office.com/webhookb2/ ([A-Za-z0-9@/-]{40,}+)
telegram_token :AA (?<!\d)\d{8,10}:AAW{32,}+ whole
tencent_key AKID A{32}(?!A) mixed
terraform_token .atlasv1. (?<!A)A{14}\.atlasv1\.[\w=-]{50,}+ whole
twilio_key SK H{32}(?!A)
"""
# In small or large letters, or with spaces.
_FOLDED = r"""
azure_storage_key key= (?:account|sharedaccess)key=(B{40,}+={0,2}) whole
basic_auth auth',auth",_auth \s{0,4}[:=]\s{0,4}["']?(B{8,}+={0,2}) login
basic_auth basic (?:\s|%20){1,4}(B{8,}+={0,2}) login
bearer_token bearer (?:\s|%20|\+){1,4}([\w.~+/-]{12,}+={0,2}) random
bearer_token authorization ["']?\s{0,4}[:=,]\s{0,4}["']?(?:bearer|token|api-?key)\s{1,4}
  (?=(?:[^\s\d]{0,99}\d){3})([\w.~+/=-]{8,}+)
private_key -----begin \s(?:[A-Z0-9]{1,20}\s){0,4}private\skey(?:\sblock)?-----(?:
  (?=(?:[^-]|-(?!----)){0,9999}?B{20})(?:[^-]|-(?!----))*+-----end\s[A-Z0-9\s]{0,80}-----
  |Z*+[A-Za-z0-9+/=]{16,}+(?:Z*+B{40,}+=*+)*+
  (?:Z*+(?=[A-Za-z]*[0-9+/=])[A-Za-z0-9+/=]{1,39}+(?=[\s"'\\….]|$))?)
okta_token ssws \s(00W{40})(?!W)
private_key private-lines: \s\d{1,3}(?:\s|\\n)*((?:B{20,80}={0,2}(?:\s|\\n)*)++)
session_cookie cookie ["']?:\s{0,2}+["']?(?:[^\n;=]{1,60}+=[^\n;]{0,300}+;\s{0,2}+){0,8}?
  [\w.-]{0,20}(?:sess|sid|auth|token)[\w.-]{0,16}=["']?([\w%.~+/-]{16,}+={0,2}) mixed
url_password :// [^\s/:@"'<>`\[\](){}]{0,128}:(?!\d{1,5}(?:[/?#,;|)\]]|$))
  ((?:[^\s/"'<>`]|/(?!/)){1,256}?)@(?!sha\d{3}:)(?:[\w.-]{1,255}+(?![@\w])|[\[$%{]) literal
url_password jdbc:oracle:thin: [\w$#]{1,64}/([^\s@]{1,128})@ literal
password identified \sby\s["']([^"'\n]{1,200})["'] literal
password machine \s\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(\S{1,200}) literal
"""
_CLASSES = {
    "A": "[A-Za-z0-9]", "B": "[A-Za-z0-9+/]", "H": "[0-9a-f]", "W": "[A-Za-z0-9_-]",
    # Between the lines of a private key.
    "Z": r"""(?:[\s"'`+>#*|,]|\\{1,4}[nrt"]?|[A-Z][\w-]{6,8}:[^\n\\]{0,100})""",
}  # fmt: skip
_LONG = 18  # characters; whatever is issued as one word has more
_TIME = re.compile(r"[0-9TZ:.+-]+")  # is long as well, and every memory has some
_BLANK = re.compile(r"[xX0*.#_…-]*+(?:your\w*+)?", re.IGNORECASE)  # where a token would stand
_DRAWN = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])")  # letters and digits by turns


class Found(NamedTuple):
    """A span of a text, and the kind of secret or personal data that stands there."""

    start: int
    end: int
    kind: str


_Row = tuple[str, str, str, str]  # kind, hint, pattern and check


def _by_hint(table: str) -> dict[str, list[_Row]]:
    """Return the rows under their hints, which are searched for first, and fast."""
    found: dict[str, list[_Row]] = {}
    for line in table.replace("\n  ", "").split("\n")[1:-1]:
        kind, hints, rest, *check = line.split(" ")
        rest = re.sub(r"[ABHWZ](?=[{)+*])", lambda match: _CLASSES[match[0]], rest)
        for hint in hints.split(","):
            # No token begins amid letters, unless these are an escape such as `\n`.
            start = r"(?:(?<![^\W_])|(?<=\\[nrt]))" if hint[0].isalnum() else ""
            whole = rest if check == ["whole"] else start + re.escape(hint) + rest
            found.setdefault(hint, []).append((kind, hint, whole, "".join(check)))
    return found


_PAIRS = "\n".join(f"{pair} W{{16,}}+ drawn" for pair in re.split(r"\n|  ", _PREFIXED)[1:-1])
_BY_HINT, _BY_FOLDED_HINT = _by_hint(f"\n{_PAIRS}{_ISSUED}"), _by_hint(_FOLDED)
_NAMED_KINDS = ("password", "token", "api_key", "secret_key", "secret", "aws_secret_key")
_ROWS = [row for rows in (*_BY_HINT.values(), *_BY_FOLDED_HINT.values()) for row in rows]
SECRET_KINDS = tuple(dict.fromkeys([*(row[0] for row in _ROWS), *_NAMED_KINDS]))
_STEMS = ("pass", "pw", "secret", "token", "key", "credential")
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def secrets(text: str) -> list[Found]:
    """Return every secret in a text, without its name, in order and never overlapping."""
    folded = text.lower()
    if len(folded) != len(text):  # `lower` makes two letters of some
        folded = text.translate(_SMALL)
    found: list[Found] = []
    words = [word for word in text.split() if len(word) >= _LONG and not _TIME.fullmatch(word)]
    if words:
        long = " ".join(words)
        for rows in [rows for hint, rows in _BY_HINT.items() if hint in long]:
            found += _issued(rows, text, 0)
    for rows in [rows for hint, rows in _BY_FOLDED_HINT.items() if hint in folded]:
        found += _issued(rows, text, re.IGNORECASE)
    if stems := [stem for stem in _STEMS if stem in folded]:
        found += _named(text, folded, stems)
    return joined(found) if len(found) > 1 else found


def joined(found: Iterable[Found]) -> list[Found]:
    """Return the finds in order. Those that overlap are one, of the kind that was given first."""
    kept: list[tuple[int, Found]] = []
    for rank, one in sorted(enumerate(found), key=lambda pair: pair[1].start):
        if kept and one.start < kept[-1][1].end:
            first, last = min(kept[-1], (rank, one)), kept.pop()[1]
            rank, one = first[0], Found(last.start, max(last.end, one.end), first[1].kind)
        kept.append((rank, one))
    return [one for _, one in kept]


def _issued(rows: list[_Row], text: str, flags: int) -> Iterator[Found]:
    for kind, hint, pattern, name in rows:
        check = _CHECKS.get(name)
        for match in _compiled(pattern, flags).finditer(text):
            group = match.lastindex or 0
            value = match[group].removeprefix(hint)
            if not _BLANK.fullmatch(value) and (check is None or check(value)):
                yield Found(*match.span(group), kind)


@cache
def _compiled(pattern: str, flags: int) -> re.Pattern[str]:
    """Compile a pattern when it is first needed: most texts need none, and all take long."""
    return re.compile(pattern, re.ASCII | flags)


def _mixed(value: str) -> bool:
    """Return whether letters and digits stand in one long run, as in no identifier."""
    runs = re.findall(r"[A-Za-z0-9]{12,}", value)
    return any(not run.isalpha() or len(run) >= 32 for run in runs if not run.isdigit())


def _is_literal(value: str) -> bool:
    """Not `${PASSWORD}`, `<password>`, `%s` or `***`."""
    return not re.fullmatch(r"\$.*|%\w*%?|[<{\[:].*|[xX*.…•]+", value)


def _is_login(value: str) -> bool:
    """Return whether it is base64 of `user:password`, as basic authentication sends it."""
    try:
        plain = b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except ValueError:
        return False
    return plain.isprintable() and 0 <= plain.find(":") < len(plain) - 1


_CHECKS: dict[str, Callable[[str], bool]] = {
    "mixed": _mixed, "literal": _is_literal, "login": _is_login,
    "drawn": lambda value: _mixed(value) or len(_DRAWN.findall(value)) >= 4,
    "random": lambda value: _mixed(value) and not _stands_for(value),
}  # fmt: skip


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
# The rest of a name behind its stem, a type perhaps, the sign, and the value.
_ASSIGNED = re.compile(
    rf"""
    [\w.-]{{0,40}}+ (?P<name>) (?: \\{{0,3}}["'`] | \*{{1,2}} | [\])] ){{0,4}}+
    (?: [ ]{{0,4}}:[ ]{{0,4}}[A-Za-z_][\w.]{{0,30}}+ (?:\[[^\]\n]{{0,40}}\])? (?:[ ]?\|[ ]?None)?
        [ ]{{0,4}}=(?!=)[ ]{{0,4}}
      | [ \t]{{0,8}}(?:=>|:=|\+=|={{1,3}}|[:：＝])\*{{0,2}}[ \t]{{0,8}} | (?P<flag> [ ] ) )
    (?: [fbru]{{0,2}} (?P<quote> \\{{0,3}}["'`] )
        (?P<quoted> [^"'`\n\\]{{1,500}}+(?!'') | (?:''|(?!(?P=quote))(?:[^\n\\]|\\.)){{1,500}}+ )
        (?P=quote)
      | (?P<plain> [^\s"'`<>]{{1,{_PLAIN_CHARACTERS}}}+ ) )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ANOTHER = re.compile(r"([\w.-]{1,40}+)[:=]")
_REST = re.compile(r"[^\s\"'`<>]*+")
_PLAIN_END = re.compile(
    r"""&(?:amp;)?[\w.%-]{1,60}= | [;,](?=[A-Za-z\ _]{1,40}=|$) | \\[nrt"'] | ,["'{\[] | \\\\$""",
    re.VERBOSE,
)


def _named(text: str, folded: str, stems: list[str]) -> Iterator[Found]:
    """Yield the values whose name says that they are secret."""
    for stem in stems:
        at = folded.find(stem)
        while at >= 0:
            after = at + len(stem)
            match = _ASSIGNED.match(text, after)
            # A blank alone stands before the value of an option, and of nothing else.
            if match and (match["flag"] is None or "--" in text[max(0, at - 62) : at]):
                backwards = _NAME_BEFORE.match(text[max(0, at - 60) : at][::-1])
                first = at - (backwards.end() if backwards else 0)
                is_flag = "--" in text[max(0, first - 2) : at]
                value, begin, end = _value(match)
                is_none = text.endswith("redacted: ", 0, first) or (match["flag"] and not is_flag)
                sign = text[match.end("name") : begin]
                is_set = match["quoted"] is not None or sign == "="
                kind = kind_of(text[first : match.start("name")], value, is_set=is_set)
                if kind and not is_none:
                    if match["plain"] and len(value) == _PLAIN_CHARACTERS:
                        rest = _REST.match(text, end)  # it was judged by its beginning
                        end = rest.end() if rest else end
                    yield Found(begin, end, kind)
                    after = end
            at = folded.find(stem, after)


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
    """Return the word of a name that says that its value is secret; empty where none does."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdigit()):
        words.pop()
    last, before = words[-1] if words else "", words[-2] if len(words) > 1 else ""
    if last == "key":
        return f"{before}key" if before in _KEYS else ""
    is_secret = _PASSWORD.fullmatch(last) or _SECRET.fullmatch(last)
    return last if is_secret and before not in _DENIALS else ""


def kind_of(name: str, value: str, *, is_set: bool = False) -> str | None:
    """Return of which kind of secret the value of a name is; None where it is none.

    A password has a digit or a sign, or is a word that is set: `PASSWORD=word`, `password: "word"`.
    A token must look random.
    """
    word = says_secret(name)
    if not word or len(value) < 4 or " " in value:
        return None
    another = _ANOTHER.match(value)  # has its own turn
    if (another and says_secret(another[1])) or (_stands_for(value) and not value.isdigit()):
        return None
    if _PASSWORD.fullmatch(word):
        is_word = is_set and value.isascii() and value[0].isalnum()
        is_word = is_word and value != name and value.lower() not in _NO_PASSWORDS
        return "password" if is_word or _is_password(value) else None
    if not _is_opaque(value):
        return None
    if word.endswith("key"):
        if re.fullmatch("[A-Za-z0-9+/]{40}", value) and re.search("(?i)aws|access", name):
            return "aws_secret_key"
        return "api_key" if word == "apikey" else "secret_key"
    return "token" if word.endswith("token") else "secret"


# Words that code and forms set a password to, and that are none.
_NO_PASSWORDS = _words(
    "none null nil true false undefined empty unset hidden required optional string text str "
    "password passwd pass secret token prompt stdin input changed wrong invalid missing env file"
)


def _is_password(value: str) -> bool:
    core = value.rstrip(".,;:!?")
    if not core.isascii() or (core != value and _stands_for(core) and not core.isdigit()):
        return False
    letters, digits = any(map(str.isalpha, value)), sum(map(str.isdigit, value))
    has_sign = any(sign in "!@#$%^&*+~?=|" for sign in value)
    if not letters:
        return digits >= 5 or (has_sign and digits >= 2)
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
    r"|sp|oauth|base|utf|jwt|plus|v=)\d{0,5}[a-z]{0,2}|\d{1,4}[a-z]?|bits?|url|hashed|encoded|salt)"
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


def _stands_for(value: str) -> bool:
    """Return whether it is written where a secret would be, and is none."""
    if _FACT.fullmatch(value):
        return True
    if _REFERENCE.fullmatch(value):  # base64 has slashes too, but no names between them
        return "//" in value[:12] or not any(map(_is_scrambled, value.split("/")))
    is_blank = re.search(
        r"(?<![a-z])(?:yours?|redacted|replace|insert|goes|change(?:me|it)|xxx+)(?![a-z])",
        value.lower(),
    )
    return bool(is_blank) and not _mixed(value)


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
