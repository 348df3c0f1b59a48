"""The pages claim nothing that code or tests contradict: their figures are taken from what they describe."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from sessionlib.agent import LEAST_ROOM_FRACTION
from sessionlib.image_tokens import PIXELS_PER_TOKEN, Area, Patches, Tiles, image_rule
from sessionlib.media import MEDIA_LIMIT_BYTES
from sessionlib.media_tokens import PAGE_TEXT_TOKENS
from sessionlib.overflow import CUTS, UNREPORTED_OVERFLOW_RATIO
from sessionlib.policies.figures import RESULT_CAP_DIVISOR
from sessionlib.policies.log_merge import ACCEPTED_DIVISOR, FRESH_DIVISOR, MERGED_DIVISOR, LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.slots_shelf import SLOTS_PER_TIER, TIER_COUNT
from sessionlib.presets import SPEC_POLICY
from sessionlib.rotation import EXTRACTIVE_RATIO
from sessionlib.stores.contract import Limits
from sessionlib.window import LIMIT_FRACTION, TRIM_FRACTION
from tests.checker.faults import PLANTED
from tests.crash import cluster, test_blocked_summarizer, test_long_turn, test_server_kills, test_worker_kills
from workers.app import BACKGROUND_NICENESS
from workers.metrics import PORT
from workers.settings import DAY_SECONDS, Settings
from workers.waiting import LOOK_SECONDS, OUTAGE_SECONDS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
WORDS: Mapping[float, str] = {2: "a half", 3: "a third", 4: "a quarter", 5: "a fifth", 8: "an eighth"}

LIMITS, SETTINGS, POLICY, SLOTS = Limits(), Settings(), LogMerge(), Slots()
IDEMPOTENCY_DAYS = SETTINGS.idempotency_seconds / DAY_SECONDS
LEASE_AND_SWEEP = f"{SETTINGS.lease_seconds:g} s + {SETTINGS.sweep_seconds:g} s"


Rule = TypeVar("Rule")


@cache
def page(name: str) -> str:
    """A page with its line ends as blanks: a sentence may run over several lines."""
    return " ".join((ROOT / name).read_text().split())


def rule_of(model: str, kind: type[Rule]) -> Rule:
    rule = image_rule(model)
    assert isinstance(rule, kind)
    return rule


TILES, DEAR_TILES = rule_of("gpt-4o", Tiles), rule_of("gpt-4o-mini", Tiles)
PATCHES, MORE_PATCHES = rule_of("gpt-5-mini", Patches), rule_of("gpt-5.2", Patches)
CLAUDE, SHARP_CLAUDE = rule_of("claude-opus-4-6", Area), rule_of("claude-opus-4-7", Area)

FIGURES = [
    ("README.md", f"remembered for {IDEMPOTENCY_DAYS:g} days after its turn ended"),
    ("README.md", f"{test_worker_kills.FRONT_KILLS} front and {test_worker_kills.BACKGROUND_KILLS} background workers"),
    ("README.md", f"lease of {cluster.LEASE_SECONDS:g} s and a sweep of {cluster.SWEEP_SECONDS:g} s"),
    ("README.md", f"turn of {test_long_turn.ROUNDS} rounds and {test_long_turn.WHOLE_TOKENS:,} tokens"),
    ("README.md", f"survived {2 * test_long_turn.KILLS} kills"),
    ("README.md", f"{test_server_kills.KILLS} kills of the server"),
    ("README.md", f"{test_blocked_summarizer.FURTHER_TURNS} further turns were answered"),
    ("docs/design.md", f"`idempotency_seconds` ({IDEMPOTENCY_DAYS:g} days)"),
    ("docs/design.md", f"({SETTINGS.partitions}; 1 with the embedded server)"),
    ("docs/design.md", f"lease + sweep ({LEASE_AND_SWEEP}; tests use 1 s + 0.2 s)"),
    ("docs/design.md", f"hold {SETTINGS.turns_concurrency} or more model calls in flight"),
    ("docs/design.md", f"a look every {LOOK_SECONDS:g} s"),
    (
        "docs/design.md",
        f"({LIMIT_FRACTION:.2f} of the effective window less the output reserve), trim to {TRIM_FRACTION}",
    ),
    ("docs/design.md", f"({WORDS[RESULT_CAP_DIVISOR]} of the effective window)"),
    ("docs/design.md", f"{WORDS[round(1 / LEAST_ROOM_FRACTION)]} of the window is always left"),
    ("docs/design.md", f"tail {POLICY.tail_fraction:.2f}, at least the last two rounds"),
    ("docs/design.md", f"records {POLICY.record_fraction:.2f}; rotation line {POLICY.line_fraction:.2f})"),
    ("docs/design.md", f"at or below {POLICY.convergence_ratio} × line"),
    ("docs/design.md", f"`spec` has ratio {SPEC_POLICY.convergence_ratio} (strictly below)"),
    ("docs/design.md", f"accepted at ≤ {POLICY.merge_ratio} of its source"),
    ("docs/design.md", f"at most {WORDS[MERGED_DIVISOR]} of the records' budget"),
    ("docs/design.md", f"asked for within {WORDS[FRESH_DIVISOR]} of it and accepted up to {WORDS[ACCEPTED_DIVISOR]}"),
    ("docs/design.md", f"extractive, cut to {EXTRACTIVE_RATIO}"),
    ("docs/design.md", f"at most {SLOTS.verbatim_rounds}, as far as {SLOTS.tail_fraction:.2f} of the window"),
    ("docs/design.md", f"A tier holds {SLOTS_PER_TIER} slots"),
    ("docs/design.md", f"one slot of the next of {TIER_COUNT} tiers"),
    ("docs/design.md", f"at the {sum(SLOTS_PER_TIER ** (tier + 1) for tier in range(TIER_COUNT)) + 1}th rotation"),
    ("docs/design.md", f"A slot takes {SLOTS.slot_fraction} of the window at most"),
    ("docs/operators.md", f"lease + sweep ({LEASE_AND_SWEEP} by default)"),
    ("docs/operators.md", f"({IDEMPOTENCY_DAYS:g} days) after its turn ended"),
    ("docs/operators.md", f"-P threads -c {SETTINGS.turns_concurrency}`"),
    ("docs/operators.md", f"at nice {BACKGROUND_NICENESS}"),
    ("docs/operators.md", f"until the outage has lasted {OUTAGE_SECONDS:g} s"),
    ("docs/operators.md", f"`http://127.0.0.1:{PORT}/metrics`"),
    ("docs/providers.md", f"may carry {MEDIA_LIMIT_BYTES:,} bytes in all"),
    ("docs/providers.md", f"{TILES.base_tokens} tokens, and {TILES.tile_tokens} for each tile"),
    ("docs/providers.md", f"`gpt-4o-mini` {DEAR_TILES.base_tokens:,} and {DEAR_TILES.tile_tokens:,}"),
    ("docs/providers.md", f"at most {PATCHES.limit:,} patches of 32 pixels ({MORE_PATCHES.limit:,} of the larger"),
    (
        "docs/providers.md",
        f"height ÷ {PIXELS_PER_TOKEN}, at most {CLAUDE.most_tokens:,}; {SHARP_CLAUDE.most_tokens:,} from",
    ),
    ("docs/providers.md", f"its text, {PAGE_TEXT_TOKENS:,} tokens, and an image"),
    ("docs/providers.md", f"is cut to {WORDS[CUTS[0]]}, or to"),
    ("docs/providers.md", f"a step of {UNREPORTED_OVERFLOW_RATIO:g} less"),
    ("docs/store.md", f"now + {LIMITS.sweep_first_seconds:g} s, then 4, 8, … {LIMITS.sweep_last_seconds:g} s"),
]


@pytest.mark.parametrize(("name", "claim"), FIGURES, ids=[f"{name}: {claim}" for name, claim in FIGURES])
def test_a18_02_a_figure_on_a_page_is_that_of_the_code(name: str, claim: str) -> None:
    """Constants, defaults and the sizes of tests: whoever changes one is told which page speaks of it."""
    assert claim in page(name)


def test_a18_02_states_explored_are_those_of_the_proof() -> None:
    """README quotes the table of docs/proof.md."""
    (moments,) = re.findall(r"\| 7 \(all\) \| not counted \| [\d,]+ \| ([\d,]+) \|", page("docs/proof.md"))
    assert f"in every order that the store's rules allow ({moments} moments): 0 violations" in page("README.md")


def test_a18_02_planted_faults_are_as_many_as_the_page_lists() -> None:
    """Every fault that is planted for the checker has its row."""
    table = (ROOT / "docs/proof.md").read_text().split("**Planted faults**")[1].split("\n## ")[0]
    assert len(re.findall(r"^\| [^|]+ \| [^|]+ \| \d \|$", table, re.MULTILINE)) == len(PLANTED)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a18_01_03_what_a_page_cites_as_proof_is_there(path: Path) -> None:
    """Tests, modules and pages that a claim rests on can be run and read: no claim stands alone."""
    text = path.read_text()
    for cited in re.findall(r"`((?:tests|bench|docs|workers|sessionlib)/[\w/]+(?:\.\w+)?/?)`", text):
        assert (ROOT / cited).exists(), cited
    for module in re.findall(r"`python -m ((?:tests|bench|workers)[\w.]*)", text):
        assert importlib.util.find_spec(module), module


def test_t107_the_page_for_operators_says_what_may_fill_the_store() -> None:
    """No eviction, what grows, where its size is seen, and what makes room."""
    operators = page("docs/operators.md")
    assert "`noeviction`" in operators
    assert "`sessionctl ls` shows bytes per session" in operators
    assert "close sessions (`SESSIONLIB_RETENTION_SECONDS` counts from there) or purge them" in operators
