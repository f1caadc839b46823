"""Common words: sentences, forms and programs put these behind the name of a secret.

`password: required`, `token: str` and `secret: keep it simple` tell no secret. The words are those
that say something about a secret, and not those that people like as a password.
"""

from __future__ import annotations

_SENTENCES = """
about absent accepted accessed across active add added after again against agreed all allow allowed
along already also always among another any apply are around ask asked assigned attach attached
available avoid bad based because become becomes been before begin begins behind being belong
belongs below better between both bound broken build built but bypassed call called can cannot
carried case change changed changes cheap check checked checks choose chosen clear cleared come
comes common compare compared compromised configure configured consider contain contains copied copy
correct could create created current currently default define defined delete deleted denied
deprecated derived describe described did different disable disabled display displayed does done
drop dropped during each either else empty enable enabled enforce enforced ensure enter entered even
every everybody everyone everything except exist exists expect expected expire expired expires
explain exposed fail failed fails few find finds first fix fixed follow follows for forbidden forget
forgot forgotten found four from generate generated get gets getting give given gives goes good
granted had handle handled has have having held her here hide his hold holds how however identical
ignore ignored implement implemented include included includes incorrect inherited inject injected
insert inside inspect instead into issue issued its itself just keep keeps kept known last later
leak leaked leave left less let like limit limited list live lives load loaded locked log logged
logs long longer look looks lost made mailed make makes managed many masked match matched matches
may maybe means might minimum missing mount mounted move moved moves must need needed needs neither
never new next nobody none nor not nothing now off often old omit omitted once one only onto
optional other otherwise our out outside over own parse parsed part passed per perhaps pick placed
please possible prefer preferred present prevent print printed printing private prompt prompted
prompts protected provide provided provides public publish published put random rather read reads
ready received recommended recover refresh refused rejected release remain remains remember remove
removed rename renamed renew renewed replace replaced request requested require required requires
reset resets return returned returns reuse reused revoke revoked right rolled rotate rotated rotates
rotation safe salted same save saved see seem seems seen send sends sent set sets several shall
share shared she short should show shown shows signed similar simple since single six skip skipped
small some somebody someone something soon split stale start started starts stay stays still stolen
stop store stored stores strong such supplied support supported take taken takes temporary ten
tested than that the their them then there these they thing this those though three through too trim
trimmed trust trusted try turn two type typed unchanged under unexpected unique unknown unless
unlimited unset until unused update updated upon use used user users uses using usually valid
validate validated verified verify very via visible wait want wants was way weak were what when
where whether which while who whose why will with within without work works would write writes
written wrong yes yet you your yours zero
"""
_PROGRAMS = """
address admins algorithm alias anonymous api apis app application argument arguments array async
attr attribute attributes auth authentication authorization auto automatic await aws base64 basic
bearer binding blank bool boolean bot branch break button byte bytes cached callable char character
characters class client code colon column comma command comment config configuration const constant
consumer container context cookie cookies credential credentials custom database date days dialog
dict digits directory disk docker docs document domain double dummy email encoded encrypted endpoint
enum env environment eof error errors event example exception expiry explicit expression external
falling false field fields file files filter finding fine flag float flow folder form format func
function functions getpass github gitlab global grant group guid handler hardcoded hash hashed
hashes header headers helper hex hidden hint hours html http https identifier identity import input
insecure int integer interface internal invalid item iterable json jwt key keychain keyring keys
keyword label lambda layer length level lexeme lexing line lines link links literal local logging
login logins manual map mapping max maximum memory message metadata method mfa min minutes mismatch
module months name names namespace newline nil node null nullable num number oauth object oidc okay
opaque open operator option options order page parameter parameters params parser passphrase passwd
password passwords path pattern payload pending permission permissions personal placeholder plain
plaintext policy position property protocol provider proxy punctuation query readonly record
redacted regex registry repository response restricted role rule saml schema scope scoped scopes
screen script seconds secret secrets section secure semicolon separator sequence server service
session sessions setting settings shell signature source space sso stack stage static status stdin
stdout step storage str stream string struct submit submitted symbol symmetric syntax system table
tag tags team template tests text time todo token tokenizer tokens true tuple undefined unicode unit
url username uuid validation value values variable vault version void volume webhook weeks
whitespace word words xml yaml years
"""
_GERMAN = """
aber abgelaufen abgelehnt alle als angeben angegeben auch aus ausgelaufen bei benutzer bitte das
dass dem den der des die durch ein eine einem einen einer eingeben entfernt erforderlich erneuert
falsch fehlt festgelegt für geben gelöscht gesetzt gespeichert gesperrt geändert gleich gültig hier
ist kein keine leer liegt mindestens mit muss nach nein neu nicht nie noch nur oder ohne setzen
sicher siehe sind steht und ungültig unter vergessen vom von vor werden wie wird wurde zum zur über
"""
# Words of forms and of programs: also `PASSWORD=required` and `password: "string"` are no secrets.
_PLACEHOLDERS = """
changed empty env example false file hidden input invalid missing nil none null optional pass passwd
password placeholder prompt required secret stdin str string text token true undefined unset wrong
"""
FORMS = frozenset(_PLACEHOLDERS.split())
COMMON = FORMS.union(f"{_SENTENCES} {_PROGRAMS} {_GERMAN}".split())
