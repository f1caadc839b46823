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
from functools import cache
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
# A stands for a letter or digit, B for one of base64, H for a hexadecimal digit, W for A, _ or -.
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
# Behind the programs that have such an option.
_OPTIONS = r"""
password curl \s[^\n]{0,200}?(?<=\s)(?:-u|--user)[\s=]{0,3}["']?[^\s:"']{1,80}:([^\s"']{1,200})
   literal
password docker,podman \slogin\s(?:[^\n|;]{0,200}?\s)??-p[\s=]{1,2}["']?([^\s"'`]{4,100}) typed
password ldap [a-z]{1,8}\s(?:[^\n|;]{0,200}?\s)??-w[\s=]{1,2}["']?([^\s"'`]{4,100}) typed
password mysql \w{0,8}\s[^\n|;]{0,200}?(?<=\s)-p(?!ort|rotocol)["']?([^\s"']{1,100}) literal
password redis-cli \s(?:[^\n|;]{0,200}?\s)??-a[\s=]{1,2}["']?([^\s"'`]{4,100}) typed
password sshpass \s-p\s{0,2}["']?([^\s"']{1,200}) literal
"""
_CLASSES = {"A": "[A-Za-z0-9]", "B": "[A-Za-z0-9+/]", "H": "[0-9a-f]", "W": "[A-Za-z0-9_-]"}
_LONG = 18  # characters; whatever is issued as one word has more
_TIME = re.compile(r"[0-9TZ:.+-]+")  # is long as well, and every memory has some
_BLANK = re.compile(r"[xX0*.#_…-]*+(?:your\w*+)?", re.IGNORECASE)  # where a token would stand
_DRAWN = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])")  # letters and digits by turns


class Found(NamedTuple):
    """A span of a text, and the kind of secret or personal data that stands there."""

    start: int
    end: int
    kind: str


class _Row(NamedTuple):
    kind: str
    hint: str
    pattern: str
    check: str


def _rows(table: str) -> Iterator[_Row]:
    for line in table.replace("\n  ", "").split("\n")[1:-1]:
        kind, hints, rest, *check = line.split(" ")
        rest = re.sub(r"[ABHW](?=[{)+*])", lambda match: _CLASSES[match[0]], rest)
        for hint in hints.split(","):
            # No token begins amid letters, unless these are an escape such as `\n`.
            start = r"(?:(?<![^\W_])|(?<=\\[nrt]))" if hint[0].isalnum() else ""
            whole = rest if check == ["whole"] else start + re.escape(hint) + rest
            yield _Row(kind, hint, whole, check[0] if check else "")


_PAIRS = "\n".join(f"{pair} W{{16,}}+ drawn" for pair in re.split(r"\n|  ", _PREFIXED)[1:-1])


def _by_hint(table: str) -> tuple[tuple[str, list[_Row]], ...]:
    """Return the rows under their hints, which are searched for first, and fast."""
    found: dict[str, list[_Row]] = {}
    for row in _rows(table):
        found.setdefault(row.hint, []).append(row)
    return tuple(found.items())


_BY_HINT, _BY_FOLDED_HINT = _by_hint(f"\n{_PAIRS}{_ISSUED}"), _by_hint(_FOLDED)
_BY_PROGRAM = _by_hint(_OPTIONS)
_NAMED_KINDS = ("password", "token", "api_key", "secret_key", "secret", "aws_secret_key")
_ROWS = [row for _, rows in (*_BY_HINT, *_BY_FOLDED_HINT) for row in rows]
SECRET_KINDS = tuple(dict.fromkeys([*(row.kind for row in _ROWS), *_NAMED_KINDS]))
_STEMS = ("pass", "pw", "secret", "token", "key", "credential", "kennwort", "contrase")
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def secrets(text: str) -> list[Found]:
    """Return every secret in a text, without its name, in order and never overlapping."""
    folded = text.lower()
    if len(folded) != len(text):  # `lower` makes two letters of some
        folded = text.translate(_SMALL)
    found = list(_private_keys(text)) if "PRIVATE KEY" in text else []
    words = [word for word in text.split() if len(word) >= _LONG and not _TIME.fullmatch(word)]
    if words:
        long = " ".join(words)
        for rows in [rows for hint, rows in _BY_HINT if hint in long]:
            found += _issued(rows, text, 0)
    for rows in [rows for hint, rows in _BY_FOLDED_HINT if hint in folded]:
        found += _issued(rows, text, re.IGNORECASE)
    if " -" in text:
        for rows in [rows for hint, rows in _BY_PROGRAM if hint in folded]:
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
    for row in rows:
        check = _CHECKS.get(row.check)
        for match in _compiled(row.pattern, flags).finditer(text):
            group = match.lastindex or 0
            value = match[group].removeprefix(row.hint)
            if not _BLANK.fullmatch(value) and (check is None or check(value)):
                yield Found(*match.span(group), row.kind)


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


def _is_typed(value: str) -> bool:
    """Return whether it is no word, as a sentence about the option would have."""
    is_word = not any(sign.isdigit() or sign in "!@#$%^&*" for sign in value)
    return not is_word and _is_literal(value) and not _stands_for(value)


def _is_login(value: str) -> bool:
    """Return whether it is base64 of `user:password`, as basic authentication sends it."""
    try:
        plain = b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except ValueError:
        return False
    return plain.isprintable() and 0 <= plain.find(":") < len(plain) - 1


_CHECKS: dict[str, Callable[[str], bool]] = {
    "mixed": _mixed, "literal": _is_literal, "typed": _is_typed, "login": _is_login,
    "drawn": lambda value: _mixed(value) or len(_DRAWN.findall(value)) >= 4,
    "random": lambda value: _mixed(value) and not _stands_for(value),
}  # fmt: skip
_LABEL = r"(?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN, _END = re.compile(rf"-----BEGIN {_LABEL}"), re.compile(rf"-----END {_LABEL}")
_BETWEEN = (
    r"""(?:[\s"'`+>#*|,]|\\{1,4}[nrt"]?|(?:Proc-Type|DEK-Info|Version|Comment):[^\n\\]{0,100})*+"""
)
# Of a key that was cut off: full lines, and a shorter last one if nothing else stands on it.
_CUT = re.compile(
    rf"{_BETWEEN}[A-Za-z0-9+/=]{{16,}}+(?:{_BETWEEN}[A-Za-z0-9+/]{{40,}}+=*+)*+"
    rf"(?:{_BETWEEN}(?=[A-Za-z]*[0-9+/=])[A-Za-z0-9+/=]{{1,39}}+(?=[\s\"'\\….]|$))?"
)


def _private_keys(text: str) -> Iterator[Found]:
    """Yield private keys in PEM armour, line ends as they are or escaped, and keys cut off."""
    for begin in _BEGIN.finditer(text):
        # The search ends at the next armour, so many beginnings without an end stay linear.
        dashes = text.find("-----", begin.end())
        end = _END.match(text, dashes) if dashes >= 0 else None
        if end and not re.search("[A-Za-z0-9+/]{20}", text[begin.end() : dashes]):
            continue  # somebody explains the form
        if end := end or _CUT.match(text, begin.end()):
            yield Found(begin.start(), end.end(), "private_key")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names are judged by their last word, which the word before may deny, and some may follow.
_PASSWORD = re.compile(
    r"pass|pw|passw|passcode|pwd|contraseña|.*(?:passwo?r?d|passphrase|passwort|kennwort)|(?:db|user)pass"
)
_SECRET = re.compile(
    r"secrets|credentials?|.*secret|.*token"
    r"|.*(?:api|access|secret|private|auth|encryption|signing|account|master|client|shared)key"
)
# Of which a key is secret. There are others: primary, partition, cache, sort, public.
_KEYS = _words(
    """
    api access secret private auth authentication encryption encrypt decryption signing
    signature account master client service storage admin deploy deployment webhook session
    subscription hmac aes jwt license licence app application write ssh gpg pgp bot shared
    django flask rails consumer integration
    """
)
_SUFFIXES = _words(
    """
    value val prod production dev development staging stage test testing live local old new
    plain raw b64 base64 main primary secondary backup base s
    """
)
# Before a name: a token of a pager, a lexer or a model.
_DENIALS = _words(
    """
    public next page nextpage continuation previous prev last first current sync resume pad eos
    bos unk mask sep cls stop special start end max min total input output prompt completion
    lexer parser string keyword cancellation pagination design
    """
)
_ACTIONS = _words(
    """
    reset change forgot lost update check verify validate show has is no
    """
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zß-ÿ]+|\d+")
_NAME_BEFORE = re.compile(r"[\w.-]{0,40}+(?: [A-Za-z]{1,20}+(?![\w.-])){0,2}", re.ASCII)
_PLAIN_CHARACTERS = 200
_VALUE = rf"""
    (?: [fbru]{{0,2}} (?P<quote> \\{{0,3}}["'`] )
        (?P<quoted> [^"'`\n\\]{{1,500}}+(?!'') | (?:''|(?!(?P=quote))(?:[^\n\\]|\\.)){{1,500}}+ )
        (?P=quote)
      | (?P<plain> [^\s"'`<>]{{1,{_PLAIN_CHARACTERS}}}+ ) )
"""
# What follows the stem of a name.
_ASSIGNED = re.compile(
    r"""
    [\w.-]{0,40}+ (?P<name>) (?: \\{0,3}["'`] | \*{1,2} | [\])] ){0,4}+
    (?: [ ]{0,4}:[ ]{0,4}[A-Za-z_][\w.]{0,30}+ (?:\[[^\]\n]{0,40}\])? (?:[ ]?\|[ ]?None)?
        [ ]{0,4}(?P<typed>=)(?!=)[ ]{0,4}
      | [ \t]{0,8}(?P<sign>=>|:=|\+=|={1,3}|[:：＝])\*{0,2}(?P<space>[ \t]{0,8})
        (?: [|>][+-]?[ \t]{0,4} )? (?P<break> \r?\n\s{0,20} | \\n[ ]{0,8} )?
      | (?P<apart> \\{0,3}["']?,?(?:\s|\\n){1,20}\\{0,3}["']?value\\{0,3}["']?[ ]{0,4}[:=][ ]{0,4} )
      | (?P<beside> ,[ ]{0,3}(?=["']) | [ ](?=') )
      | (?P<tag> > ) )"""
    + _VALUE,
    re.VERBOSE | re.IGNORECASE,
)
# After `--name`, in a Dockerfile and in some shells a space assigns.
_FLAG = re.compile(
    r"(?:--|\bENV[ ]|\bset[ ]-\w{1,3}[ ]|\bsetx[ ])(?P<name>[A-Za-z][\w.-]{0,40}+)[ =]" + _VALUE,
    re.VERBOSE,
)
_ANOTHER = re.compile(r"([\w.-]{1,40}+)[:=]")
_REST = re.compile(r"[^\s\"'`<>]*+")
_PLAIN_END = re.compile(
    r"""&(?:amp;)?[\w.%-]{1,60}= | [;,](?=[A-Za-z\ _]{1,40}=|$) | \\[nrt"'] | ,["'{\[] | \\\\$""",
    re.VERBOSE,
)
# As a provider of mail shows it: in four groups, which cannot all be spoken.
_APP_PASSWORD = re.compile(
    r"(?=[a-z ]{0,16}?[^aeiouy\W\d_]{3})[a-z]{4}(?:[ ][a-z]{4}){3}(?![\w-]|[ \t]+\w)"
)
_NEIGHBOUR = re.compile(
    r"\b(?:user|user[_ ]?(?:name|id)|uid|login|e-?mail|host|server|account)[\"'*]{0,3}\s{0,4}[:=]"
)


class _Assigned(NamedTuple):
    words: list[str]  # of the name, in small letters
    value: str
    begin: int
    end: int
    is_quoted: bool = False
    sign: str = "="  # empty where another line or a comma stands between name and value
    is_sure: bool = False  # only a value can stand there: `NAME=value`, beside the name of a user


def _named(text: str, folded: str, stems: list[str]) -> Iterator[Found]:
    """Yield the values whose name says that they are secret."""
    for stem in stems:
        at = folded.find(stem)
        while at >= 0:
            after = at + len(stem)
            match = _ASSIGNED.match(text, after)
            one = _assigned(text, folded, at, match) if match else None
            if one and (kind := _kind(one)):
                after = _end(text, one)
                yield Found(one.begin, after, kind)
            at = folded.find(stem, after)
    if "--" in text or "ENV " in text or "set" in text:
        for match in _FLAG.finditer(text):
            one = _Assigned(_words_of(match["name"]), *_value(match), match["quoted"] is not None)
            if kind := _kind(one):
                yield Found(one.begin, _end(text, one), kind)


def _assigned(text: str, folded: str, at: int, match: re.Match[str]) -> _Assigned | None:
    """Return the value with its whole name, whose stem stands before the match."""
    backwards = _NAME_BEFORE.match(text[max(0, at - 60) : at][::-1])
    first = at - (backwards.end() if backwards else 0)
    name = text[first : match.start("name")]
    words = _words_of(name)
    if not _says_secret(words) or text.endswith("redacted: ", 0, first):
        return None
    first += len(name) - len(name := name.split(" ")[-1])
    before = folded[max(0, first - 100) : first]
    if match["tag"] and not ("<" in before and text.startswith("</", match.end())):
        return None
    if match["apart"] and not re.search(r"(?:name|key)\W{0,6}\Z", before[-12:]):
        return None
    value, begin, end = _value(match)
    is_in_a_row = before[-1:] in ("?", "&", ";") or text[end : end + 1] == ";"
    is_bare = match["sign"] == "=" and not match["space"] and (name.isupper() or is_in_a_row)
    is_sure = is_bare or bool(_NEIGHBOUR.search(f"{before}\n{folded[end : end + 60]}"))
    sign = "" if match["break"] or match["beside"] else match["sign"] or match["typed"] or ":"
    return _Assigned(words, value, begin, end, match["quoted"] is not None, sign, is_sure)


def _value(match: re.Match[str]) -> tuple[str, int, int]:
    """Return the value to judge, and its span in the text."""
    if match["quoted"] is not None:
        return match["quoted"], *match.span("quoted")
    value, (begin, end) = match["plain"], match.span("plain")
    if groups := _APP_PASSWORD.match(match.string, begin):
        return groups[0], *groups.span()
    if cut := _PLAIN_END.search(value):
        value = value[: cut.start()]
    elif len(value) == _PLAIN_CHARACTERS:
        return value, begin, end
    value = value.rstrip(".,;:)]}\\")
    return value, begin, begin + len(value)


def _end(text: str, one: _Assigned) -> int:
    """Return where a secret ends, which was judged by its beginning. No other value is read on."""
    is_cut = not one.is_quoted and len(one.value) == _PLAIN_CHARACTERS
    rest = _REST.match(text, one.end) if is_cut else None
    return rest.end() if rest else one.end


def _words_of(name: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdigit()):
        words.pop()
    return words


def _says_secret(words: list[str]) -> bool:
    last, before = words[-1] if words else "", words[-2] if len(words) > 1 else ""
    if before in _DENIALS:
        return False
    if last == "key":
        return before in _KEYS
    return bool(_PASSWORD.fullmatch(last) or _SECRET.fullmatch(last))


def _kind(one: _Assigned) -> str | None:
    """Return of which kind of secret a value is; None where it is none."""
    value = one.value
    another = _ANOTHER.match(value)  # has its own turn
    if len(value) < 4 or (another and _says_secret(_words_of(another[1]))):
        return None
    if not _says_secret(one.words) or (_stands_for(value) and not value.isdigit()):
        return None
    last = one.words[-1]
    if _PASSWORD.fullmatch(last):
        return "password" if _is_password(one) else None
    if " " in value:
        return "secret" if last == "secret" and one.sign == "=" and _is_phrase(one) else None
    if not _is_opaque(value) or (not one.sign and len(value) < 12):
        return None
    if last.endswith("key"):
        if re.fullmatch("[A-Za-z0-9+/]{40}", value) and {"aws", "access"} & set(one.words):
            return "aws_secret_key"
        return "api_key" if "api" in one.words or last == "apikey" else "secret_key"
    return "token" if last.endswith("token") else "secret"


def _is_password(one: _Assigned) -> bool:
    value, core = one.value, one.value.rstrip(".,;:!?")
    if " " in value:
        return not one.is_quoted or _is_phrase(one)
    if not core.isascii() or (core != value and _stands_for(core) and not core.isdigit()):
        return False
    if core.isalpha() and core.lower().endswith("ed") and not one.is_sure:
        return False  # what became of it
    letters, digits = any(map(str.isalpha, value)), sum(map(str.isdigit, value))
    if not one.sign:
        return bool(letters and digits and len(value) >= 6) and not _says_secret(_words_of(value))
    signs = any(sign in "!@#$%^&*+~?=|" for sign in value)
    if not letters:
        return digits >= 5 or (signs and digits >= 2)
    if digits or signs:
        # A step or a program may be called so as well.
        is_other = one.words in (["pw"], ["pass"]) and bool(_VERSIONED.fullmatch(value))
        return one.is_quoted or not (is_other or re.fullmatch(r"[A-Za-z]+[?!*]+", value))
    if one.is_sure or (len(core) >= 20 and core.islower()):
        return core.isalnum() and (core.islower() or not _says_secret(_words_of(core)))
    if not one.is_quoted or one.words == ["pass"] or (_ACTIONS & set(one.words[-2:-1])):
        return False
    if parts := re.findall(r"[-_.]", core):
        return len(parts) >= 3
    return not core.istitle() and not _says_secret(_words_of(core))


def _is_phrase(one: _Assigned) -> bool:
    """Return whether several words are a secret: one is random, or none speaks of secrets."""
    words = one.value.split()
    if any(_is_opaque(word) and not _stands_for(word) for word in words):
        return len(words) <= 6
    if not one.sign or not 2 <= len(words) <= 12 or len(one.value) < 8 or one.value[0].isupper():
        return False
    plain = [word.lower().strip(".,;:!?'") for word in words]
    return not any(word.endswith("ed") or _stands_for(word) for word in plain)


# Written where a value would stand: references, numbers that say how much, when or which, and words.
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
    r"(?:(?:scram|pbkdf|argon|bcrypt|scrypt|hmac|hkdf|sha|md|aes|gcm|cbc|rsa|hs|rs|es|ed|nist|fips|sp"
    r"|oauth|base|utf|jwt|plus|v=)\d{0,5}[a-z]{0,2}|\d{1,4}[a-z]?|bits?|url|hashed|encoded|salt)"
)
_FACT = re.compile(
    rf"""
    [xX*.•…?_\#-]+ | x{{3,}}[-_x\d]* | 0+ | \\u2022.* | 0x[0-9a-f]{{1,8}} | 1password | v\d{{1,4}} | \#\d+
    | [<>=~≥≤±+-]*\d+(?:[.,]\d+)*\s?(?:[-–+x/]\s?\d*)?\s?(?:%|char(?:acter)?s?|bits?|bytes?|words?|tokens?
      |[kmgt]i?b?|ms|[smhdwy]|secs?|seconds?|mins?|minutes?|hours?|days?|weeks?|months?|years?)?[.+]?
    | \d{{4}}-\d{{2}}(?:-\d{{2}}(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?)? | \d{{1,2}}[./:]\d\d(?:[./:]\d{{2,4}})?
    | v?\d+(?:\.\d+)+(?:[-+.]?(?:rc|alpha|beta|dev|post|a|b)?\.?\d*)? | x:\d{{1,10}}:\d{{1,10}}(?::.*)?
    | (?-i:[A-Z]{{2,10}})-\d{{1,6}} | turn-\d+ | session-\d{{4}}-?\d\d-?\d\d(?:-\w+)*
    | {_ALGORITHM}(?:[-_/+$]{_ALGORITHM}){{0,8}}
    """,
    re.VERBOSE | re.IGNORECASE,
)
# What a form asks of a value: `required|string|min:8`.
_RULE = re.compile(
    r"(?:required|nullable|present|string|integer|numeric|min|max|between|size|digits|confirmed|same"
    r"|password|alpha|email|unique|mixed|letters|numbers|symbols)\w*(?::[\w.,]{1,60})?"
)
_WORDS = _words(
    """
    string text char varchar bytes secretstr integer number bool boolean object array list dict
    none null void undefined optional required true false empty blank unset missing invalid
    incorrect wrong valid hidden secret private public internal plaintext plain unknown random
    default same see here there below above elsewhere not must should may can will your their
    these those without bcrypt scrypt argon argon2 oauth saml oidc totp basic bearer digest ntlm
    kerberos ldap vault keyring keychain environment file prompt input stdin interactive
    password passwd passphrase pwd pass token key apikey credential credentials placeholder
    example sample dummy todo tbd fixme fill change changeme changeit replace replaceme insert
    enter const self field column label type format schema property widget param parameter
    argument option value name user username email login authentication authorization policy
    strength length rotation reset rules minimum maximum minlength maxlength strong weak short
    long done pending open okay fine good works working broken passes passing fails failing
    present absent digit digits letter letters symbol symbols character characters uppercase
    lowercase manual automatic never always later soon unsafe insecure safe secure critical high
    medium urgent review rotate expires vergessen erforderlich obligatoria at least more than
    contain contains cannot been are were ask kept used forgot confirm new old current show hide
    please only set when where via case sensitive passwords tokens secrets keys
    """
)
_VERSIONED = re.compile(r"pass\d|[a-z]{3,20}[-@]?v?\d{1,2}(?:\.\d{1,3}){1,2}")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_NUMBERED = re.compile(
    r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*\d{1,2}|[A-Z]+\d{1,2}|\d{1,2}[A-Za-z][a-z]+"
)


def _stands_for(value: str) -> bool:
    """Return whether it is written where a secret would be, and is none."""
    low = value.lower()
    if low in _WORDS or _FACT.fullmatch(value):
        return True
    is_list = "|" in value or (":" in value and value[-1].isdigit())
    if is_list and all(map(_RULE.fullmatch, value.split("|"))):
        return True
    if _REFERENCE.fullmatch(value):  # base64 has slashes too, but no names between them
        return "//" in value[:12] or not any(map(_is_scrambled, value.split("/")))
    is_blank = re.search(r"(?<![a-z])(?:yours?|redacted|replace|insert|goes|xxx+)(?![a-z])", low)
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
