"""What providers say of a request above their window, in their words: told from other faults, and read for figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.errors import ProviderError, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.overflow_texts import READ_CHARACTERS, is_overflow, sizes_in
from sessionlib.providers.refusals import refusal
from sessionlib.window_facts import LARGEST_SANE_TOKENS, LEAST_SANE_TOKENS

CASES: dict[str, list[tuple[str, int | None, int | None]]] = {
    "OpenAI": [
        (
            "This model's maximum context length is 8192 tokens. However, you requested 8256 tokens (64 in the "
            "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            8_192,
            8_256,
        ),
        (
            "This model's maximum context length is 4097 tokens, however you requested 6539 tokens (6283 in your "
            "prompt; 256 for the completion). Please reduce your prompt; or completion length.",
            4_097,
            6_539,
        ),
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens. "
            "Please reduce the length of the messages.",
            272_000,
            289_650,
        ),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", None, None),
    ],
    "Azure": [
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. "
            "Please reduce the length of the messages.",
            128_000,
            204_308,
        ),
        (
            "This model's maximum context length is 32768 tokens. However, you requested 35969 tokens (9969 in the "
            "messages, 26000 in the completion). Please reduce the length of the messages or completion.",
            32_768,
            35_969,
        ),
        (
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 4106 tokens (4054 "
            "in the messages, 52 in the functions). Please reduce the length of the messages or functions.",
            4_096,
            4_106,
        ),
    ],
    "Anthropic": [
        ("prompt is too long: 213462 tokens > 200000 maximum", 200_000, 213_462),
        (
            "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
            "`max_tokens` and try again",
            191_808,
            199_759,
        ),
    ],
    "Gemini": [
        (
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            1_048_575,
            1_196_265,
        ),
    ],
    "vLLM": [
        (
            "This model's maximum context length is 4096 tokens. However, your request has 5104 input tokens. Please "
            "reduce the length of the input messages.",
            4_096,
            5_104,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 "
            "tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
            2_096,
            2_104,
        ),
        (
            "This model's maximum context length is 2048 tokens. However, your request has 8 input tokens plus 2045 "
            "'max_tokens'. Please reduce one or the other. (parameter=input_tokens, max_tokens, value=(8, 2045))",
            2_048,
            None,
        ),
        (
            "The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure that "
            "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
            4_096,
            25_938,
        ),
        ("Input prompt (2664 tokens) is too long and exceeds limit of 2048/2560", 2_048, 2_664),
        ("max_tokens must be at least 1, got -904.", None, None),
    ],
    "text-generation-inference": [
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens "
            "and 500 `max_new_tokens`",
            3_596,
            4_000,
        ),
        ("Input validation error: `inputs` must have less than 4096 tokens. Given: 4545", 4_096, 4_545),
    ],
    "llama.cpp": [
        ("the request exceeds the available context size, try increasing it", None, None),
        ("the request exceeds the available context size (8192 tokens), try increasing it", 8_192, None),
        ("request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", 8_192, 9_000),
        ("Requested tokens (2285) exceed context window of 2048", 2_048, 2_285),
    ],
    "Ollama": [
        ("the input length exceeds the context length", None, None),
        ("prompt too long; exceeded max context length by 4096 tokens", None, None),
    ],
    "LM Studio": [
        (
            "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with "
            "context length of only 7866 tokens, which is not enough.",
            7_866,
            10_136,
        ),
        ("The number of tokens to keep from the initial prompt is greater than the context length.", None, None),
    ],
    "SGLang": [
        (
            "Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total "
            "of 140000 tokens: 131808 tokens from the input messages and 8192 tokens for the completion.",
            131_072,
            140_000,
        ),
    ],
    "DashScope": [
        ("Range of input length should be [1, 30720]", 30_720, None),
        ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]", 204_800, None),
        ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1,983616]", 983_616, None),
    ],
    "Mistral": [
        (
            "Prompt contains 300000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
            131_072,
            300_000,
        ),
    ],
    "Groq": [
        ("Please reduce the length of the messages or completion.", None, None),
        (
            "Request too large for model `llama-3.3-70b-versatile` in organization `org_01jp8byqwpfx9sp1m0dbhb6a1e` "
            "service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 14810, please reduce your "
            "message size and try again. Visit https://console.groq.com/docs/rate-limits for more information.",
            6_000,
            14_810,
        ),
    ],
    "Cerebras": [
        (
            "Please reduce the length of the messages or completion. Current length is 17049 while limit is 8192",
            8_192,
            17_049,
        ),
    ],
    "Together": [
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 65537. Given: 79993 `inputs` tokens "
            "and 1024 `max_new_tokens`",
            64_513,
            79_993,
        ),
        ("The input (516368 tokens) is longer than the model's context length (262144 tokens).", 262_144, 516_368),
    ],
    "OpenRouter": [
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 "
            'of text input, 131072 in the output). Please reduce the length of either one, or use the "middle-out" '
            "transform to compress your prompt automatically.",
            131_072,
            138_956,
        ),
        ("Input length 265330 exceeds the maximum allowed input length of 262144 tokens.", 262_144, 265_330),
    ],
    "Bedrock": [
        ("Input is too long for requested model.", None, None),
        ("Too many input tokens. Max input tokens: 8192, request input token count: 9000", 8_192, 9_000),
    ],
    "xAI": [
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            131_072,
            537_812,
        ),
    ],
    "Kimi": [
        ("Your request exceeded model token limit: 262144 (requested: 300000)", 262_144, 300_000),
    ],
    "MiniMax": [
        ("invalid params, context window exceeds limit", None, None),
    ],
    "Cohere": [
        (
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a "
            "shorter prompt",
            4_081,
            5_000,
        ),
    ],
    "Copilot": [
        ("prompt token count of 145000 exceeds the limit of 128000", 128_000, 145_000),
    ],
    "Cloudflare": [
        (
            "The estimated number of input and maximum output tokens (40000) exceeded this model context window limit "
            "(24000).",
            24_000,
            40_000,
        ),
    ],
    "Replicate": [
        ("Your input is too long. Max input length is 4096 tokens, but you supplied 5441 tokens.", 4_096, 5_441),
    ],
    "DS4": [
        ("Prompt has 300,000 tokens, but the configured context size is 131,072 tokens", 131_072, 300_000),
    ],
}
"""Real texts by who says them, with the window and what was sent, as far as they tell (from their sources, and from
reports about them)."""

NO_OVERFLOWS = {
    "OpenAI": "max_tokens is too large: 400000. This model supports at most 16384 completion tokens, whereas you "
    "provided 400000.",
    "Anthropic": "max_tokens: 400000 > 128000, which is the maximum allowed number of output tokens for claude-x",
    "Groq": "max_tokens must be less than or equal to 16384, the maximum value for max_tokens is less than the "
    "context_window for this model",
    "DeepSeek": "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "DashScope": "Range of max_tokens should be [1, 8192]",
    "TGI": "Input validation error: `max_new_tokens` must be <= 1512. Given: 4000",
    "Bedrock": "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens "
    "value that is lower than 4096.",
    "Doubao": "The parameter `max_completion_tokens` specified in the request are not valid: integer above maximum "
    "value, expected a value <= 12288, but got 32000 instead.",
    "throttled": "Too many tokens, please wait before trying again.",
    "per minute": "maximum input tokens per minute: 40000 tokens rate context limit",
}
"""What sounds like it: an answer's limit that is larger than the model has, or a rate."""


def refused(message: str, **fields: Any) -> ProviderError:
    return refusal(400, {"error": {"message": message, **fields}}, {}, lambda _: False)


@pytest.mark.parametrize(
    ("message", "limit_tokens", "sent_tokens"),
    [pytest.param(*case, id=f"{who} {number}") for who, cases in CASES.items() for number, case in enumerate(cases)],
)
def test_an_overflow_is_understood_in_its_providers_words(
    message: str, limit_tokens: int | None, sent_tokens: int | None
) -> None:
    """Without a code that would say so; what prompt and answer take together, where that is what is too much."""
    error = refused(message)
    assert isinstance(error, WindowOverflow)
    assert (error.limit_tokens, error.sent_tokens) == (limit_tokens, sent_tokens)


@pytest.mark.parametrize("message", [pytest.param(message, id=who) for who, message in NO_OVERFLOWS.items()])
def test_a_bad_parameter_is_no_overflow(message: str) -> None:
    """No trim would help, and the figure is not the window's."""
    assert type(refused(message)) is ProviderRejected


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8192", 8_192),
        ("8,192", 8_192),
        ("1,048,576", 1_048_576),
        ("200_000", 200_000),
        ("200.000", 200_000),
        ("1 048 576", 1_048_576),
        ("200\u00a0000", 200_000),
        ("200\u2009000", 200_000),
        ("200\u202f000", 200_000),
        ("128k", 128_000),
        ("128 K", 128_000),
        ("1M", 1_000_000),
        ("1.5M", 1_500_000),
        ("100", None),
        ("1023", None),
        ("1024", 1_024),
        ("0.5k", None),
        ("900000000", None),
        ("900M", None),
        ("12345678901234567890", None),
        ("8192.55", None),
        ("-8192", None),
        ("8192%", None),
        ("128KB", None),
        ("32000 characters", None),
        ("2000 pages", None),
        ("(request id 20261130)", None),
        ("claude-20250514", None),
        ("400-1234", None),
        ("http://127.0.0.1:8192/v1", None),
        ("#123456", None),
        ("status: 4096", None),
    ],
)
def test_a_figure_is_read_as_people_write_it(text: str, tokens: int | None) -> None:
    """With groups of three or a scale; what is no number of tokens, or none that makes sense, is not read."""
    assert sizes_in(f"The context window limit is {text} tokens.") == (tokens, None)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("maximum context length is 128k tokens. However, your messages resulted in 130k tokens.", (128_000, 130_000)),
        ("context length exceeded: limit 200 000 tokens", (200_000, None)),
        ("Your tier's context window limit of 1,048,576 tokens was exceeded: 2,000,000", (1_048_576, 2_000_000)),
        ("exceeds the 8192-token context window", (8_192, None)),
        ("context window exceeded: you sent 9000 tokens, the limit is 8192", (8_192, 9_000)),
        ("Context window limit exceeded. See error 400-1234 for details", (None, None)),
        ("The context window limit is 100 pages of PDF", (None, None)),
        ("exceeds the maximum of 500 images and context tokens", (None, None)),
        ("context limit: 199000 + 512 > 200000", (199_488, None)),
        ("maximum context length is 4096 tokens; 9000000 of them", (4_096, None)),
    ],
)
def test_figures_are_told_apart(text: str, sizes: tuple[int | None, int | None]) -> None:
    """What was sent is more than the window, and not a hundred times more."""
    assert sizes_in(text) == sizes


@given(st.text(st.sampled_from(list("0123456789,._ kM#>+<=-[]()`'\"/max limit tokens context length")), max_size=200))
def test_whatever_is_read_makes_sense(text: str) -> None:
    """Any text can be read, and no figure of it is outside of what a window may be."""
    is_overflow(text)
    limit_tokens, sent_tokens = sizes_in(text)
    if limit_tokens is None:
        assert sent_tokens is None
    else:
        assert LEAST_SANE_TOKENS <= limit_tokens <= LARGEST_SANE_TOKENS
        assert sent_tokens is None or limit_tokens < sent_tokens <= LARGEST_SANE_TOKENS


def test_a_long_text_is_read_at_its_beginning() -> None:
    """However much follows: it takes no time, and says nothing."""
    text = "maximum context length " + "max limit 1 " * 1_000_000
    assert sizes_in(text) == (None, None)
    assert not is_overflow("x" * READ_CHARACTERS + " maximum context length is 8192 tokens")


SAID = "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"


@pytest.mark.parametrize(
    "answer",
    [
        {"object": "error", "message": SAID, "type": "invalid_request_error", "param": None, "code": "3051"},
        {"error": SAID, "error_type": "validation"},
        {"detail": SAID},
        [{"error": {"code": 400, "message": SAID, "status": "INVALID_ARGUMENT"}}],
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps({"m": SAID})}}},
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 40_000,
                "n_ctx": 32_768,
            }
        },
    ],
    ids=["Mistral", "text-generation-inference", "FastAPI", "Gemini", "OpenRouter", "llama.cpp"],
)
def test_an_overflow_is_found_where_its_provider_puts_it(answer: Any) -> None:
    """Not everybody has an object named `error`."""
    error = refusal(400, answer, {}, lambda _: False)
    assert isinstance(error, WindowOverflow)
    assert (error.limit_tokens, error.sent_tokens) == (32_768, 40_000)


@pytest.mark.parametrize(("limit_tokens", "sent_tokens"), [(256, 1_407), ("8192", None), (8_192, 4_000), (None, None)])
def test_fields_that_make_no_sense_are_not_believed(limit_tokens: Any, sent_tokens: Any) -> None:
    """As with figures in a text."""
    error = refused("boom", type="exceed_context_size_error", n_ctx=limit_tokens, n_prompt_tokens=sent_tokens)
    assert isinstance(error, WindowOverflow)
    assert error.sent_tokens is None
    assert error.limit_tokens in {None, 8_192}


def test_a_rate_is_waited_for_whatever_it_says_of_tokens() -> None:
    """The same text with the status of a rate limit is one."""
    said = {"error": {"message": "Request too large on tokens per min (TPM): Limit 30000, Requested 31000."}}
    assert isinstance(refusal(429, said, {}, lambda _: False), ProviderUnavailable)
