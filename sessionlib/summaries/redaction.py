"""Redaction: secrets in text are replaced by what kind they are, and counted; nothing is ever refused for them.

A secret is known by its issuer's documented format, or by where it stands: in a header, in a URL, behind a name such
as `password =`. Time is linear in the length of the text, whatever that is: each expression starts with rare letters
or at the start of a word, and what it repeats is either the last thing that it asks for or of bounded length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Redacted:
    """Text without its secrets, and how many were replaced."""

    text: str
    count: int


def redact(text: str) -> Redacted:
    """*text* with every secret that is recognised replaced by `[redacted: KIND]`.

    What is replaced once is not found again: redacting the outcome changes nothing and counts 0. So a text with secrets
    is looked at again: what was none beside a secret may be one beside what stands for it.
    """
    count = 0
    while True:
        text, found = _redacted_once(text)
        if not found:
            return Redacted(text, count)
        count += found


def _redacted_once(text: str) -> tuple[str, int]:
    count = 0
    for kind, expression in _FORMATS:
        text, found = expression.subn(f"[redacted: {kind}]", text)
        count += found
    for place in _PLACES:
        text, found = place.redacted(text)
        count += found
    return text, count


def _word(start: str) -> str:
    """An expression for *start* at the start of a word, after a line break of JSON included.

    What stands right behind something that was replaced is no start: it was none before. Looking back comes second: an
    expression that begins with letters is searched for many times faster.
    """
    return rf"{start}(?:(?<![A-Za-z0-9_-]{start})(?<![a-z]\]{start})|(?<=\\[nrt]{start}))"


# An expression ends with its greedy part: whether it matches does not hang on what follows, which may be replaced too.
_FORMATS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(expression, re.DOTALL))
    for kind, expression in (
        # docs.aws.amazon.com, "IAM identifiers"
        ("aws-access-key-id", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}+"),
        # RFC 7468 and the older PEM (RFC 1421), OpenSSH, PGP (RFC 4880, 6.2); without an end where the text was cut
        (
            "private-key",
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"|(?:\\[nr]|[A-Za-z0-9+/=\s])*+)",
        ),
        # docs.github.com, "About authentication to GitHub": token prefixes
        ("github-token", r"gh[pousr]_[A-Za-z0-9]{36,}+|github_pat_[A-Za-z0-9_]{36,}+"),
        # docs.gitlab.com, "Token overview": token prefixes
        (
            "gitlab-token",
            r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_.-]{20,}+|GR1348941[\w-]{20,}+",
        ),
        # docs.slack.dev, "Tokens", and "Sending messages using incoming webhooks"
        ("slack-token", r"xox[abceoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}+|xapp-[0-9]-[A-Za-z0-9-]{10,}+"),
        ("slack-webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,}+"),
        # docs.stripe.com, "API keys" and "Webhooks"
        ("stripe-key", r"sk_(?:live|test)_[A-Za-z0-9]{10,}+"),
        ("stripe-key", r"rk_(?:live|test)_[A-Za-z0-9]{10,}+"),
        ("stripe-key", r"whsec_[A-Za-z0-9+/=]{20,}+"),
        # platform.claude.com and platform.openai.com, "API keys": sk- and what kind of key it is
        ("anthropic-key", _word("sk-ant-") + r"[A-Za-z0-9_-]{20,}+"),
        ("openai-key", _word("sk-") + r"(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}+|[A-Za-z0-9]{32,}+)"),
        # cloud.google.com, "Manage API keys"; developers.google.com, "Using OAuth 2.0": client secrets, access tokens
        ("google-key", r"AIza[A-Za-z0-9_-]{35,}+|GOCSPX-[A-Za-z0-9_-]{20,}+|ya29\.[A-Za-z0-9_-]{20,}+"),
        # npm's documentation, "About access tokens"
        ("npm-token", r"npm_[A-Za-z0-9]{36,}+"),
        # PyPI's help on API tokens: macaroons, which begin with their version and location
        ("pypi-token", r"pypi-AgE[A-Za-z0-9_-]{50,}+"),
        # sendgrid.com, "API keys"; twilio.com, "API keys"; documentation.mailgun.com, "API keys"
        ("sendgrid-key", _word("SG") + r"\.[A-Za-z0-9_-]{16,40}+\.[A-Za-z0-9_-]{30,}+"),
        ("twilio-key", _word("SK") + r"[0-9a-f]{32,}+"),
        ("mailgun-key", _word("key-") + r"[0-9a-f]{32,}+"),
        # the documentation of DigitalOcean, Databricks, Hugging Face, Shopify, Vault and Docker, each on its tokens
        ("digitalocean-token", r"do[opr]_v1_[0-9a-f]{64,}+"),
        ("databricks-token", _word("dapi") + r"[0-9a-f]{32,}+"),
        ("huggingface-token", _word("hf_") + r"[A-Za-z]{30,}+"),
        ("shopify-token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}+"),
        ("vault-token", _word("hv[sbr]") + r"\.[A-Za-z0-9_-]{24,}+"),
        ("docker-token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}+"),
        # the same of Grafana, Linear, Groq, xAI and Atlassian
        ("api-token", r"glsa_\w{32,}+|lin_api_\w{32,}+|gsk_[A-Za-z0-9]{40,}+|xai-[A-Za-z0-9]{60,}+|ATATT3[\w=-]{40,}+"),
        # RFC 7519 and RFC 7515: three parts in base64url, the first two of them JSON objects
        ("jwt", _word("eyJ") + r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{8,}+"),
        # core.telegram.org/bots, "Authenticating your bot"
        ("telegram-token", r"(?<![A-Za-z0-9_-])(?<![a-z]\])[0-9]{8,10}:AA[A-Za-z0-9_-]{32,}+"),
    )
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where secrets stand, whatever they look like: only the value is replaced, what leads to it stays."""

    kind: str
    expression: re.Pattern[str]
    """Its value is the one of the groups `_VALUE_GROUPS` that took part; `name` is what the value is called."""
    is_secret: Callable[[re.Match[str], str], bool]
    """Has the last word on a match, given its value."""

    def redacted(self, text: str) -> tuple[str, int]:
        """*text* without the secrets in such places, and how many there were."""
        count = 0

        def replacement(match: re.Match[str]) -> str:
            nonlocal count
            group = next(name for name in _VALUE_GROUPS if match.groupdict().get(name) is not None)
            if not self.is_secret(match, match[group]):
                return match[0]
            count += 1
            before, after = match.start(group) - match.start(), match.end(group) - match.start()
            return f"{match[0][:before]}[redacted: {self.kind}]{match[0][after:]}"

        return self.expression.sub(replacement, text), count


_VALUE_GROUPS = ("secret", "escaped", "quoted", "bare")

_STAND_IN = re.compile(
    r"\[redacted|(.)\1*+$|\.{0,2}/|~/|\.\.\.|<.*>$|(?-i:\$[A-Z_][A-Z0-9_]*+$)|\$[{(]|\{.*\}$|%\(|%[A-Za-z_]*+%?$"
    r"|(?:none|null|nil|true|false|undefined|string|required|optional|redacted|hidden|missing|invalid)$"
    r"|(?:your|example|placeholder|insert)\b|(?:os|process|self|this|config|settings|env|args|options)\.",
    re.IGNORECASE,
)
"""How a value begins that stands for a secret, or says where one is kept."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LETTERS_OF_BASE64 = re.compile(r"[A-Za-z0-9+/]{32,}+=*+")


def _is_credential(match: re.Match[str], value: str) -> bool:  # noqa: ARG001 - every place's
    """Whatever stands there, if it does not stand for something else."""
    return not _STAND_IN.match(value)


def _is_random(match: re.Match[str], value: str) -> bool:  # noqa: ARG001 - every place's
    """Capitals, small letters and digits: random base64 has them all, a hash in hexadecimals and most paths do not."""
    return all(re.search(kind, value) for kind in ("[A-Z]", "[a-z]", "[0-9]"))


def _is_token(match: re.Match[str], value: str) -> bool:
    """One long word of letters and digits, no path; a UUID is as often the number of a request as a token."""
    if _LETTERS_OF_BASE64.fullmatch(value) and _is_random(match, value):
        return True
    if len(value) < 8 or " " in value or _STAND_IN.match(value):
        return False
    if _UUID.fullmatch(value) and match.groupdict().get("name", "").lower() == "token":
        return False
    return bool(re.search("[0-9]", value) and re.search("[A-Za-z]", value))


def _is_password(match: re.Match[str], value: str) -> bool:
    """One word in quotes; without them, one that is no mere name, or a setting such as `password=word`."""
    if _STAND_IN.match(value) or (" " in value and "phrase" not in match["name"].lower()):
        return False
    # The argument of a call, `connect(password=given)`, is followed by one of these.
    is_setting = match["separator"] == "=" and match.string[match.end() : match.end() + 1] not in (",", ")")
    return match["bare"] is None or (is_setting and "." not in value) or not re.fullmatch(r"[A-Za-z_.:/-]+", value)


# A name ends with one of these words: `password_file` and `token_count` are names of something else.
_PASSWORD_NAMES = r"pass(?:word|wd|phrase|wort|code)|pwd|[_.-]pass"
_KEYS = ("api", "access", "secret", "private", "account", "encryption", "signing", "master", "client", "auth")
_KEY = "key(?:" + "|".join(rf"(?<={word}key)|(?<={word}[_ -]key)" for word in _KEYS) + ")"  # found faster by its end
_TOKEN_NAMES = rf"secret|token|credentials?|authorization|_auth|[?&]sig|{_KEY}"
_SEPARATOR = r"[ \t]{0,8}(?::=|=>|={1,3}|:)[ \t]{0,8}|[ \t]{1,4}is[ \t]{1,4}|[ \t]{1,4}(?=['\"`])"
_BEFORE_RANDOM = r"|[ \t]{1,4}(?=[A-Za-z0-9+]{24}|[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/]))"  # a token may just follow
_VALUE = (
    r"(?:\\\"(?P<escaped>[^\"\\\r\n]{4,512}+)(?=\\\")"
    r"|(?P<quote>[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\\\r\n]|\\.){4,512}+)(?=(?P=quote))"
    r"|(?P<bare>(?:[^\s\"'`,;&|<>(){}\[\]\\]|[,;&|](?![\w .-]{0,30}=|[\s,;&|\"'`<>(){}\[\]\\]|$)){6,}+)(?![\[({]))"
)


def _assigned(names: str, separator: str = _SEPARATOR) -> re.Pattern[str]:
    """A name, in quotes or a subscript perhaps, a separator, and a value."""
    return re.compile(rf"(?i:(?P<name>{names}))[0-9]{{0,2}}(?:\\?[\"'`]\]?)?(?P<separator>{separator}){_VALUE}")


def _option(names: str) -> re.Pattern[str]:
    """An option of a command, and its argument after a blank."""
    return re.compile(rf"--(?:[a-z]{{1,20}}-){{0,3}}(?P<name>{names})(?P<separator>[ \t]{{1,4}}){_VALUE}")


_BASE64 = r"[A-Za-z0-9/+]"
_NO_BASE64 = r"[^A-Za-z0-9/+\n\[]"

_PLACES = (
    # docs.aws.amazon.com, "Manage access keys": the secret has 40 letters and no mark; in prose it follows the key's id
    _Place(
        "aws-secret-access-key",
        re.compile(
            rf"\[redacted: aws-access-key-id\](?:{_NO_BASE64}{{1,8}}+{_BASE64}{{1,39}}+(?!{_BASE64})){{0,8}}?"
            rf"{_NO_BASE64}{{1,8}}+(?P<secret>{_BASE64}{{40}}+)(?!{_BASE64})"
        ),
        _is_random,
    ),
    # twilio.com, "Auth tokens": the token follows the account's id, as the password of its basic authentication
    _Place("twilio-auth-token", re.compile(r"AC[0-9a-f]{32}[\"',:\s]{1,6}+(?P<secret>[0-9a-f]{32,}+)"), _is_credential),
    # RFC 3986, 3.2.1: the password in a URL, of a database or anything else
    _Place("url-password", re.compile(r"://[^\s/?#:@\"'<>\\]*+:(?P<secret>[^\s/\"'<>\\]+)@"), _is_credential),
    # RFC 6750 and RFC 7617: bearer tokens and basic authentication
    _Place("bearer-token", re.compile(r"(?i:bearer)[ \t]{1,8}(?P<secret>[A-Za-z0-9._~+/=-]{12,}+)"), _is_token),
    _Place(
        "authorization",
        re.compile(
            r"(?i:authorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?\w{1,20}+)[ \t]{1,4}"
            r"(?P<secret>[^\s\"'\\,;]{6,}+)"
        ),
        _is_credential,
    ),
    # curl's manual, --user
    _Place(
        "password",
        re.compile(r"(?:-u|--user)[ =][\"']?(?![0-9]+:)[\w.@-]{1,64}+:(?P<secret>[^\s\"'\\:]{4,}+)"),
        _is_credential,
    ),
    _Place("password", re.compile(r"(?i:<(?:password|passwd|pwd)>)(?P<secret>[^<>\s]{4,}+)"), _is_credential),
    _Place("password", _option(_PASSWORD_NAMES), _is_credential),
    _Place("password", _assigned(_PASSWORD_NAMES), _is_password),
    _Place("secret", _option(_TOKEN_NAMES), _is_token),
    _Place("secret", _assigned(_TOKEN_NAMES, _SEPARATOR + _BEFORE_RANDOM), _is_token),
)
