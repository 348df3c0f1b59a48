"""Secrets made up by their issuers' documented formats, planted in texts as people and programs write them.

Everything is drawn from a seeded generator at run time: no file of the project holds anything that looks like a secret.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

LETTERS_AND_DIGITS = string.ascii_letters + string.digits
HEXADECIMAL = "0123456789abcdef"
URL_SAFE = f"{LETTERS_AND_DIGITS}-_"
BASE64 = f"{LETTERS_AND_DIGITS}+/"


@dataclass(frozen=True, slots=True)
class Secret:
    """What must not remain, and how it is written where its format or its use requires something around it."""

    kind: str
    value: str
    written: str
    """Holds `value`; what stands around it belongs to the kind: a header, a URL, a name."""


def draw(rng: random.Random, alphabet: str, length: int) -> str:
    """Random characters, with a digit, a small letter and a capital where the alphabet has them."""
    while True:
        drawn = "".join(rng.choices(alphabet, k=length))
        kinds = [string.digits, string.ascii_lowercase, string.ascii_uppercase]
        if all(set(kind) & set(drawn) for kind in kinds if set(kind) & set(alphabet)):
            return drawn


def jwt(rng: random.Random) -> str:
    """Header, payload and signature (RFC 7519)."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": str(rng.randrange(10**9)), "iat": rng.randrange(10**9)}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, draw(rng, URL_SAFE, 43)])


def private_key(rng: random.Random) -> str:
    """A PEM block with lines of 64 letters (RFC 7468)."""
    label = rng.choice(["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"])
    lines = [draw(rng, BASE64, 64) for _ in range(rng.randrange(3, 26))]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"{draw(rng, BASE64, 30)}==", f"-----END {label}-----"])


def _alone(make: Callable[[random.Random], str]) -> Callable[[random.Random], tuple[str, str]]:
    def made(rng: random.Random) -> tuple[str, str]:
        value = make(rng)
        return value, value

    return made


def _within(template: str, make: Callable[[random.Random], str]) -> Callable[[random.Random], tuple[str, str]]:
    def made(rng: random.Random) -> tuple[str, str]:
        value = make(rng)
        return value, template.replace("*", value)

    return made


def _drawn(prefix: str, alphabet: str, length: int) -> Callable[[random.Random], str]:
    return lambda rng: prefix + draw(rng, alphabet, length)


def _chosen(
    *makers: Callable[[random.Random], tuple[str, str]],
) -> Callable[[random.Random], tuple[str, str]]:
    return lambda rng: rng.choice(makers)(rng)


def _password(rng: random.Random) -> str:
    return draw(rng, LETTERS_AND_DIGITS + "!_-+", rng.randrange(8, 20))


KINDS: Mapping[str, Callable[[random.Random], tuple[str, str]]] = {
    "AWS access key id": _alone(_drawn("AKIA", string.ascii_uppercase + "234567", 16)),
    "AWS secret access key": _chosen(
        _within("aws_secret_access_key = *", _drawn("", BASE64, 40)),
        _within('"SecretAccessKey": "*"', _drawn("", BASE64, 40)),
        _within("AWS_SECRET_ACCESS_KEY=*", _drawn("", BASE64, 40)),
        _within("key AKIAIOSFODNN7EXAMPLE with the secret *", _drawn("", BASE64, 40)),
    ),
    "GitHub classic token": _chosen(*(_alone(_drawn(p, LETTERS_AND_DIGITS, 36)) for p in ("ghp_", "gho_", "ghs_"))),
    "GitHub fine-grained token": _alone(
        lambda rng: f"github_pat_{draw(rng, LETTERS_AND_DIGITS, 22)}_{draw(rng, LETTERS_AND_DIGITS, 59)}"
    ),
    "GitLab token": _alone(_drawn("glpat-", URL_SAFE, 20)),
    "Slack token": _alone(
        lambda rng: (
            f"xoxb-{rng.randrange(10**11, 10**12)}-{rng.randrange(10**12, 10**13)}-" + draw(rng, LETTERS_AND_DIGITS, 24)
        )
    ),
    "Slack webhook": _within(
        "https://hooks.slack.com/services/*",
        lambda rng: (
            f"T{draw(rng, string.ascii_uppercase + string.digits, 10)}/"
            f"B{draw(rng, string.ascii_uppercase + string.digits, 10)}/{draw(rng, LETTERS_AND_DIGITS, 24)}"
        ),
    ),
    "Stripe key": _chosen(*(_alone(_drawn(p, LETTERS_AND_DIGITS, 24)) for p in ("sk_" + "live_", "rk_" + "live_"))),
    "OpenAI key": _chosen(_alone(_drawn("sk-proj-", URL_SAFE, 156)), _alone(_drawn("sk-", LETTERS_AND_DIGITS, 48))),
    "Anthropic key": _alone(lambda rng: f"sk-ant-api03-{draw(rng, URL_SAFE, 93)}AA"),
    "Google API key": _alone(_drawn("AIza", URL_SAFE, 35)),
    "private key": _alone(private_key),
    "JSON web token": _alone(jwt),
    "npm token": _alone(_drawn("npm_", LETTERS_AND_DIGITS, 36)),
    "PyPI token": _alone(_drawn("pypi-AgEIcHlwaS5vcmc", URL_SAFE, 150)),
    "SendGrid key": _alone(lambda rng: f"SG.{draw(rng, URL_SAFE, 22)}.{draw(rng, URL_SAFE, 43)}"),
    "Twilio token": _chosen(
        _alone(_drawn("SK", HEXADECIMAL, 32)),
        _within("TWILIO_AUTH_TOKEN=*", _drawn("", HEXADECIMAL, 32)),
        _within('"auth_token": "*"', _drawn("", HEXADECIMAL, 32)),
    ),
    "Azure storage connection string": _within(
        "DefaultEndpointsProtocol=https;AccountName=media;AccountKey=*;EndpointSuffix=core.windows.net",
        lambda rng: f"{draw(rng, BASE64, 86)}==",
    ),
    "basic authentication in a URL": _within("https://deploy:*@git.example.com/team/app.git", _password),
    "bearer header": _chosen(
        _within("Authorization: Bearer *", _drawn("", URL_SAFE, 40)),
        _within('-H "Authorization: Bearer *"', _drawn("", URL_SAFE, 32)),
        _within("'Authorization': 'Bearer *'", _drawn("", HEXADECIMAL, 48)),
    ),
    "password assignment": _chosen(
        *(
            _within(template, _password)
            for template in ("password=*", "DB_PASSWORD='*'", 'password: "*"', '"password": "*"', "--password *")
        )
    ),
    "database URL": _chosen(
        *(
            _within(template, _password)
            for template in (
                "postgresql://app:*@db.internal:5432/orders",
                "mysql+pymysql://root:*@10.0.0.7/shop",
                "mongodb+srv://svc:*@cluster0.example.net/test",
                "redis://:*@cache:6379/0",
                "amqp://worker:*@queue:5672//",
            )
        )
    ),
}
"""Each kind with how one is drawn: its value, and the value as it is written."""

SETTINGS: Mapping[str, Callable[[str], str]] = {
    "prose": lambda written: f"Sure, use {written} for now, I will change it after the release on Friday.",
    "JSON": lambda written: json.dumps({"step": 3, "output": f"exit 0\n{written}\ndone", "ok": True}),
    "code": lambda written: f"def connect():\n    value = '''{written}'''\n    return Client(value, retries=3)\n",
    "environment file": lambda written: f"# production\nREGION=eu-west-1\nVALUE={written}\nDEBUG=0\n",
    "log": lambda written: f"2026-03-04T10:11:12.131Z WARN [worker-3] request 7f3c failed ({written}) after 31 ms\n",
}


def planted(seed: int, count: int) -> Iterator[tuple[Secret, str, str]]:
    """*count* secrets, of every kind in turn, each with the name of its setting and the text that it stands in."""
    rng = random.Random(seed)
    kinds = list(KINDS.items())
    for number in range(count):
        kind, make = kinds[number % len(kinds)]
        setting, around = list(SETTINGS.items())[(number // len(kinds)) % len(SETTINGS)]
        value, written = make(rng)
        yield Secret(kind, value, written), setting, around(written)
