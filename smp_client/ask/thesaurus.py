"""Words of the trade that mean about the same: a question with one finds memories with another.

They weigh less than the words themselves, and count only where those do not cover a question. A
person adds groups of their own by the setting `ranking.synonyms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_LONGEST = 2  # words of one entry, such as "sign in"
_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e|y)$")
_LETTERS = 3  # at least, of a word without its ending
_TABLE = """
login, log in, sign in, signin, logon, auth, authentication, authenticate
logout, log out, sign out
permission, right, role, access, authorisation, authorization, privilege, allowed
password, passphrase, passcode, PIN
secret, credential, key, token, API key
encrypt, encryption, cipher, encrypted
account, profile, user
user, customer, client, member, visitor
person, people, somebody, staff, employee, colleague
boss, manager, lead, head
developer, engineer, programmer
backup, back up, restore, recovery, snapshot, copy
outage, downtime, down, unavailable, incident
failover, takeover, standby, replica, redundancy, high availability
error, failure, fault, bug, crash, defect, exception, broken
fix, repair, patch, correct, mend
warning, alert, alarm, notification, notify
message, notification, text message, SMS
mail, email, e-mail, letter
spam, junk
chat, messenger, conversation
phone, telephone, mobile, handset, smartphone, call
ring, call, dial
picture, photo, photograph, image
video, film, clip, recording
screen, page, view, display
button, control
layout, design, look, style, theme
website, site, web page, homepage
frontend, front end, user interface, UI, GUI, client
backend, back end, server
server, host, machine, node
host, hosting, data centre, data center, cloud, provider
deploy, deployment, release, roll out, rollout, ship, publish, launch
upgrade, update, new version, migration
version, release, edition
install, installation, set up, setup
configure, configuration, setting, option, preference, parameter
library, package, dependency, framework, module
language, programming language
service, microservice, application, app
speed, fast, slow, performance, latency, quick, response time
timeout, time limit, deadline, expire, expiry
limit, maximum, cap, quota, threshold, at most
minimum, least, at least
memory, RAM
disk, storage, store, drive, volume
database, DB, table, schema, postgres, sqlite, mysql
query, question, lookup, look up, search, find
index, catalogue, catalog
cache, buffer
queue, backlog, outbox
schedule, scheduler, cron, timetable, calendar
job, task, worker, process
nightly, every night, overnight
weekly, every week
daily, every day
monthly, every month
retry, try again, repeat, attempt
duplicate, twice, double, same again, idempotent, idempotency
delete, deletion, remove, removal, erase, drop, forget, destroy
keep, retain, retention, preserve, hold on to
archive, put away, retire
change, edit, modify, alter, amend, correct
add, create, insert, new
copy, duplicate, clone
move, migrate, transfer
send, deliver, dispatch, mail
receive, get, arrive
upload, send up, transmit
download, fetch, pull
import, intake, ingest, load
export, extract, dump
sync, synchronise, synchronize, synchronisation, replication
merge, combine, join, conflict
file, document
spreadsheet, Excel, xlsx, CSV
report, summary, statement, overview, digest
statistics, metrics, analytics, figures, KPI, measure
chart, diagram, graph, plot
dashboard, monitoring, observability
log, logging, record, trace, audit
monitor, watch, observe, supervise
test, check, verify, validate, prove
review, inspect, look at, approve
approve, confirm, accept, sign off, agree
reject, refuse, deny, decline
decide, choose, choice, decision, select, pick, go for
reason, why, because, cause
rule, policy, guideline, convention
plan, roadmap, schedule
deadline, due date, due
meeting, call, session
document, documentation, manual, guide, docs
comment, note, remark
name, title, label, call
identifier, id, key, number
date, day, time
time zone, timezone, UTC, local time
clock, time, timestamp
holiday, vacation, leave, day off
on call, on duty
emergency, urgent
money, price, cost, fee, charge, amount, expense, pay
pay, payment, purchase, buy, checkout
card, credit card
invoice, bill, billing, receipt
refund, money back, reimburse, chargeback
discount, rebate, reduction, reduced
tax, VAT, duty
currency, euro, dollar, cents
salary, wage, earn
account, bookkeeping, accounting, accountant
contract, agreement
subscription, plan, membership
order, purchase, booking, reservation
booking, reservation, book, reserve
cancel, cancellation, withdraw, revoke
ticket, issue, case
support, help desk, helpdesk, hotline, service desk
stock, inventory, supplies
warehouse, store, depot
parcel, package, shipment, delivery
shipping, delivery, carrier, freight
shop, store, market
basket, cart, trolley
product, item, article, goods
supplier, vendor, provider, seller
customer, buyer, guest
child, children, kid
old, outdated, obsolete, legacy, deprecated
privacy, personal data, GDPR, data protection
anonymise, anonymize, pseudonym, pseudonymise
consent, permission, agree
law, legal, compliance, regulation
security, safe, safety, secure, protect
attack, hack, exploit, abuse
vulnerability, hole, weakness, leak
firewall, network, VPN
network, connection, internet, online
offline, no connection, no internet
wifi, wireless, WLAN
location, position, GPS, coordinates, place
map, tile, route
branch, fork
commit, check in, change set
pull request, merge request, PR
pipeline, build, continuous integration, CI
container, docker, image
infrastructure, terraform, provisioning
load, traffic, rush, peak, spike
scale, grow, growth, capacity
rate limit, throttle, throttling
round, rounding, decimal, fraction
number, count, amount, quantity
integer, whole number
text, string
translate, translation, language, localisation, localization
font, typeface, lettering
colour, color
accessibility, screen reader, contrast
keyboard, shortcut, hotkey
mouse, pointer, cursor
tablet, iPad
iPhone, iOS, Apple
Android, Google
desktop, computer, laptop, PC
browser, Chrome, Firefox, Safari
JavaScript, JS, TypeScript, React
form, input, field, entry
save, autosave, store, keep
undo, revert, roll back, rollback
start, begin, launch, boot
stop, end, quit, terminate, shut down
wait, delay, pause
size, large, big
battery, power, charge
forecast, prediction, predict, estimate
estimate, guess, approximate
missing, gap, absent, lost
complete, whole, full
average, mean
train, learn, model
rule out, exclude, leave out
window, dialog, popup
link, URL, address
address, street, place
signature, sign, signed
certificate, TLS, SSL, HTTPS
proxy, gateway, load balancer
event, message, webhook
format, layout, shape
parse, parser, read
compile, compiler, build
type, class, kind
function, method, procedure
variable, field, value
syntax, grammar
memory leak, out of memory
thread, concurrency, parallel
lock, mutex, blocked
open source, licence, license
training, course, lesson
"""


@lru_cache(4096)
def stem(word: str) -> str:
    """Return a word without its ending, so that the forms of one word are alike."""
    word = word.lower()
    short = _ENDING.sub("", word)
    return short if len(short) >= _LETTERS else word


@lru_cache(8)
def _groups(own: tuple[tuple[str, ...], ...]) -> dict[str, tuple[str, ...]]:
    """Return the other words of each entry of the table, and of a person's own, by its stems."""
    lines = [line.split(", ") for line in _TABLE.strip().splitlines()]
    found: dict[str, dict[str, None]] = {}
    for group in (*lines, *own):
        for entry in group:
            others = found.setdefault(_key(entry.split()), {})
            others.update(dict.fromkeys(other for other in group if other != entry))
    return {entry: tuple(others) for entry, others in found.items()}


def _key(words: Iterable[str]) -> str:
    return " ".join(map(stem, words))


def synonyms(words: Sequence[str], own: tuple[tuple[str, ...], ...] = ()) -> list[str]:
    """Return other words for the words of a text, in one form each. Two may be one entry."""
    groups = _groups(own)
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        for entry in ([word], words[place : place + _LONGEST]):
            for other in groups.get(_key(entry), ()):
                found.setdefault(_key(other.split()), other)
    said = {stem(word) for word in words}
    return [other for key, other in found.items() if key not in said]
