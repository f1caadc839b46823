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
from collections.abc import Callable, Iterator
from functools import cache
from string import ascii_lowercase, ascii_uppercase

from .found import Found, joined
from .named import NAMED_KINDS, is_mixed, named, stands_for

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
_ROWS = [row for rows in (*_BY_HINT.values(), *_BY_FOLDED_HINT.values()) for row in rows]
SECRET_KINDS = tuple(dict.fromkeys([*(row[0] for row in _ROWS), *NAMED_KINDS]))
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
        found += named(text, folded, stems)
    return joined(found) if len(found) > 1 else found


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
    "mixed": is_mixed, "literal": _is_literal, "login": _is_login,
    "drawn": lambda value: is_mixed(value) or len(_DRAWN.findall(value)) >= 4,
    "random": lambda value: is_mixed(value) and not stands_for(value),
}  # fmt: skip
