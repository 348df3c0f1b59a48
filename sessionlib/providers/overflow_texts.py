"""What a provider's error text says of a request that is above its window: that it is, the window, and what was sent.

Providers word it as they like, so this reads the words that they are known to use (tests/sessionlib/test_overflow_texts
has them by provider). A figure that makes no sense as a number of tokens is passed over: a limit that is read wrong
would shrink a session for good, and one that is not read costs one more trim.
"""

from __future__ import annotations

import re

from sessionlib.window_facts import LARGEST_SANE_TOKENS, LEAST_SANE_TOKENS

READ_CHARACTERS = 4_000
"""The beginning of a text, of which the rest is not read."""

LARGEST_RATIO = 100
"""A number that is larger than this many windows is not what was sent."""

Sizes = tuple[int | None, int | None]
"""The window, and what was sent, in the provider's tokens; None for what is not said."""

_CERTAIN = re.compile(
    r"range of input length"  # DashScope
    r"|inputs\W{1,3}tokens \+|inputs\W{1,3}must have less than"  # text-generation-inference, Together
    r"|max_tokens must be at least \d+, got -"  # vLLM: what the prompt leaves to the answer
    r"|request too large.{0,300}tokens per min",  # Groq: more than a minute's allowance, which no wait changes
    re.IGNORECASE | re.DOTALL,
)
"""Above the window, whatever else is said."""

_OTHERWISE = re.compile(
    r"at most \S+ (?:completion|output) tokens|number of output tokens|maximum tokens you requested"
    r"|max\w*_tokens\W{1,3}(?:must|should|has to|is limited)"
    r"|rate.?limit|too many requests|throttl|wait before|per minute",
    re.IGNORECASE,
)
"""Another fault in much the same words: an answer's limit that is larger than the model has, or a rate."""

_ABOVE = re.compile(
    r"context.{0,20}(?:length|window|size|limit)|(?:prompt|input)(?: is)? too long|too many (?:input )?tokens"
    r"|maximum (?:allowed )?(?:input|prompt|number of tokens)|exceed(?:s|ed)?.{0,40}\btokens?\b"
    r"|\btokens?\b.{0,40}exceed|reduce the length of",
    re.IGNORECASE,
)

_NAME = re.compile(r"#\S*|\b(?:id|code|status|http)\b[\s:=]*[\w-]*\d[\w-]*", re.IGNORECASE)
"""Numbers that name something."""

_UNIT = r"(?:char(?:acter)?s?|bytes?|[kmg]i?b|pages?|images?|files?|messages|requests|items|ms|seconds?|minutes?)"
_FIGURE = re.compile(
    r"(?<![\w.#-])(?<!\d:)"
    r"(?:(?P<scaled>\d{1,6}(?:\.\d{1,3})?) ?(?P<scale>[km])"
    r"|(?P<whole>\d{1,3}(?P<mark>[,_.' \u00a0\u2009\u202f])\d{3}(?:(?P=mark)\d{3}){0,2}|\d{1,12}))"
    rf"(?![\w%]|[.,]\d|/[a-z]|-(?!tokens?\b)|\s*{_UNIT}\b)",
    re.IGNORECASE,
)
"""A number by itself: "8192", "200,000", "1 048 576", "128k", "1.5 M"; no part of a name, date or address."""

_SCALES = {"k": 1_000, "m": 1_000_000}

# From here on a figure is written `#8192`: see `_marked`.
_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:>|<=|less than) #(\d+)",  # "210000 tokens > 200000 maximum", "190000 + 8192 > 200000", "must be <= 4096"
        r"#(\d+)(?: |-tokens? | tokens? )(?:max(?:imum)? )?context",  # "for model with 32768 maximum context length"
        r"should be \[[^#\]]{0,3}(?:#\d+)?, ?#(\d+)",  # "Range of input length should be [1, 30720]"
        r"context.{0,10}(?:length|window|size|limit)(?: limit)?(?: is| of|:)?(?: only)?\W{0,3}#(\d+)",
        # "maximum number of tokens allowed (1048576)", "limit of 272000 tokens", "cannot exceed 4081"
        r"(?:\bmax(?:imum)?\b|limit|window|size|up to|not exceed)"
        r"(?:(?!sent|requested|given|got|received|contain|result)[^#]){0,60}?(?<!by )#(\d+)",
    )
)
"""How the window is named, the surest first."""

_SUMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"#(?P<prompt>\d+) \+ #(?P<answer>\d+) >",  # "190000 + 16384 > 200000"
        r"#(?P<answer>\d+) > #\d+ - #(?P<prompt>\d+)",  # "2000 > 4096 - 2104"
        # "Given: 4000 `inputs` tokens and 500 `max_new_tokens`"
        r"#(?P<prompt>\d+) `?input`?s?`? tokens (?:and|plus) #(?P<answer>\d+)",
    )
)
"""How prompt and answer are named where the window is that of both together."""


def is_overflow(text: str) -> bool:
    """Whether *text* says that a request is above the window."""
    text = text[:READ_CHARACTERS]
    if _CERTAIN.search(text):
        return True
    return bool(_ABOVE.search(text)) and not _OTHERWISE.search(text)


def sizes_in(text: str) -> Sizes:
    """What the text of an overflow names: the window, and what was sent, the largest figure that is above it.

    Where the answer that was asked for takes its share of the window, what is left is the window.
    """
    marked = _FIGURE.sub(_marked, _NAME.sub(" ", text[:READ_CHARACTERS]))
    named = (int(limit) for pattern in _LIMITS for limit in pattern.findall(marked))
    limit = next((size for size in named if LEAST_SANE_TOKENS <= size <= LARGEST_SANE_TOKENS), None)
    if limit is None:
        return None, None
    both = next(filter(None, (pattern.search(marked) for pattern in _SUMS)), None)
    if both:
        left, sent = limit - int(both["answer"]), int(both["prompt"])
        return (left, sent if sent > left else None) if left >= LEAST_SANE_TOKENS else (limit, None)
    largest = min(LARGEST_RATIO * limit, LARGEST_SANE_TOKENS)
    sizes = map(int, re.findall(r"#(\d+)", marked))
    return limit, max((size for size in sizes if limit < size <= largest), default=None)


def _marked(figure: re.Match[str]) -> str:
    if figure["scale"]:
        return f"#{round(float(figure['scaled']) * _SCALES[figure['scale'].lower()])}"
    return f"#{re.sub(r'[^0-9]', '', figure['whole'])}"
