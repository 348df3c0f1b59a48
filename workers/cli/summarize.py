"""`sessionctl summarize`: a summary of a recorded transcript, or the exact request for one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sessionlib.errors import InvalidInput, ProviderRejected
from workers.cli.common import Call, shared
from workers.cli.faults import ExitCode
from workers.cli.recorded import read_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessionlib.agent import Agent
    from sessionlib.catalog import Catalog
    from sessionlib.entries import Entry
    from sessionlib.jobs import Job
    from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Provider, Shape
    from sessionlib.summaries.contract import Generator, Settlement, SummaryRequest
    from sessionlib.workloads import WorkloadKind

OPTIONS = ("agents", "as_json")
"""It needs no store."""


def register(app: typer.Typer) -> None:
    app.command("summarize")(shared(summarize, OPTIONS))


def summarize(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The recording.", show_default=False)],
    purpose: Annotated[
        Literal["continuation", "handoff", "digest"],
        typer.Option("--purpose", help="What the summary is for.", show_default=False),
    ],
    task: Annotated[str, typer.Option("--task", metavar="TEXT", help="A handoff's: what the receiver is to do.")] = "",
    guidance: Annotated[str, typer.Option("--guidance", metavar="TEXT", help="What matters, and what does not.")] = "",
    offline: Annotated[bool, typer.Option("--offline", help="Extract sentences; ask no model.")] = False,
    show_request: Annotated[
        bool, typer.Option("--show-request", help="Print the exact request for a model, and send nothing.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Ask whom this agent of --agents asks.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Ask this one of --agents.")
    ] = None,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="With --provider.")] = "",
    effort: Annotated[str, typer.Option("--effort", metavar="NAME", help="With --provider: reasoning effort.")] = "",
    window: Annotated[
        int | None,
        typer.Option("--window", metavar="TOKENS", min=1, help="With --provider: the model's window."),
    ] = None,
    conversation: Annotated[
        str, typer.Option("--conversation", metavar="ID", help="Which one, where the file holds several.")
    ] = "",
) -> None:
    """Try out a summary of a recorded session, by the generator of all summaries here.

    Reads what `replay` reads. The evidence is projected and redacted, the request admitted by its size, the answer
    validated for its purpose. Tool results are cut further until all fits; what was cut is counted. Needs no server,
    and with --offline or --show-request no provider.

    \b
    Examples:
      sessionctl summarize chat.json --purpose digest --offline
      sessionctl summarize chat.json --purpose handoff --task "write the tests" --show-request
      sessionctl summarize chat.json --purpose digest --agents agents.toml --agent coder --json
      sessionctl summarize chat.json --purpose continuation --agents agents.toml --provider openai --model gpt-5

    Exit codes: 0 a valid summary, or the request; 1 none (its class and reason are printed); 2 bad input.
    """
    from sessionlib.counters import counter_named
    from sessionlib.jobs import Job
    from sessionlib.summaries.contract import Workload
    from sessionlib.summaries.purposes import Purpose
    from sessionlib.window_facts import known_window
    from sessionlib.workloads import WorkloadKind
    from workers.replay.history import recorded_entries

    if bool(task.strip()) != (purpose == "handoff"):
        raise InvalidInput("--task", task[:40], "must state the task of a handoff, and be absent otherwise")
    if provider is None and (model or effort or window is not None):
        raise InvalidInput("--provider", "", "must be given with --model, --effort and --window")
    if provider is not None and agent is not None:
        raise InvalidInput("--agent", agent, "must be absent with --provider")
    entries = tuple(recorded_entries(read_file(file, conversation)))
    job = Job(
        purpose=Purpose(purpose), name=file.name, first_seq=1, last_seq=len(entries), focus=task, guidance=guidance
    )
    catalog = call.settings.catalog()
    asked = (
        _described(provider, model, effort, window or known_window(model).tokens)
        if provider
        else catalog.agent(agent)
        if agent
        else None
    )
    if asked is None and not (offline or show_request):
        raise InvalidInput("--agent", "", "must be given, or --provider, --offline or --show-request")
    kind = WorkloadKind.CONSOLIDATION if purpose == "continuation" else WorkloadKind(purpose)
    if show_request:
        _show_request(call, job, entries, asked, catalog, kind)
        return
    workload = catalog.workload(asked, kind) if asked and not offline else Workload(summarizer="extractive")
    generator = catalog.generator(workload, counter_named("auto"))
    request = _request(job, entries, asked, generator)
    if workload.provider:
        call.say(f"asking {workload.provider}/{workload.model}")
    settlement = generator.generate(request, lambda: False)
    _show(call, settlement, request)
    if settlement.fault is not None:
        raise typer.Exit(ExitCode.FAILED)


def _described(provider: str, model: str, effort: str, window_tokens: int) -> Agent:
    """An agent all of whose summaries that model makes."""
    from sessionlib.agent import Agent, Journal
    from sessionlib.workloads import ConsolidationWorkload, SummaryWorkload

    workload = SummaryWorkload(effort=effort)
    return Agent(
        name="summarize",
        provider=provider,
        model=model,
        window_tokens=window_tokens,
        consolidation=ConsolidationWorkload(summarizer="model", effort=effort, window_tokens=window_tokens),
        handoff=workload,
        journal=Journal(digest=workload),
    )


def _request(job: Job, entries: Sequence[Entry], asked: Agent | None, generator: Generator) -> SummaryRequest:
    """What is asked for: all entries, their tool results cut as far as it must be."""
    from sessionlib.jobs import handoff_evidence

    instruction_tools: frozenset[str] = asked.instruction_tools if asked else frozenset()
    evidence = handoff_evidence((), entries, instruction_tools, lambda shown: generator.admits(job.request(shown)))
    return job.request(evidence)


def _show_request(
    call: Call, job: Job, entries: Sequence[Entry], asked: Agent | None, catalog: Catalog, kind: WorkloadKind
) -> None:
    """Print what a model would be sent: the provider's own bytes where it says them, else its parts."""
    from sessionlib.catalog import Catalog
    from sessionlib.counters import counter_named
    from sessionlib.summaries.contract import Workload

    workload = replace(catalog.workload(asked, kind) if asked else Workload(), summarizer="model")
    unsent = _Unsent(catalog.provider(workload.provider) if workload.provider else None)
    generator = Catalog(providers={workload.provider: unsent}).generator(workload, counter_named("auto"))
    request = _request(job, entries, asked, generator)
    settlement = generator.generate(request, lambda: False)
    if unsent.document is None:
        _show(call, settlement, request)
        raise typer.Exit(ExitCode.FAILED)
    call.answer(unsent.document, json.dumps(unsent.document, ensure_ascii=False, indent=2))


class _Unsent:
    """A provider in the place of another: keeps the request as that would send it, and sends nothing."""

    shape: Shape

    def __init__(self, provider: Provider | None) -> None:
        from sessionlib.providers.contract import Shape

        self.shape, self._provider = Shape.STATELESS, provider
        self.document: Any = None

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        del on_delta
        body = getattr(self._provider, "body", None)
        self.document = json.loads(body(request)) if body else _parts(request)
        raise ProviderRejected("shown, not sent")

    def dispose(self, handle: str, until: str = "") -> None:
        """Nothing is held."""


def _parts(request: ModelRequest) -> dict[str, Any]:
    return {
        "model": request.model,
        "parameters": dict(request.parameters),
        "instructions": request.instructions,
        "messages": [entry.text for entry in request.entries],
    }


def _show(call: Call, settlement: Settlement, request: SummaryRequest) -> None:
    """Print the summary, or why there is none."""
    from sessionlib.codec import plain

    evidence = request.evidence
    figures = {
        "purpose": request.purpose,
        "evidence_items": len(evidence.items),
        "evidence_redactions": evidence.redaction_count,
        "evidence_omitted_characters": evidence.omitted_characters,
    }
    notes = [f"{len(evidence.items):,} items of evidence"]
    if evidence.omitted_characters:
        notes.append(f"{evidence.omitted_characters:,} characters of tool results left out")
    if secrets := evidence.redaction_count + settlement.redaction_count:
        notes.append(f"{secrets} secrets replaced")
    if settlement.prompt_tokens:
        notes.append(f"{settlement.prompt_tokens:,} + {settlement.completion_tokens:,} tokens")
    notes.append(f"{len(settlement.unsupported_values)} values that are not in the evidence")
    call.say("; ".join(notes))
    if settlement.unsupported_values:
        call.say(f"not in the evidence: {', '.join(settlement.unsupported_values)}")
    if settlement.fault is not None:
        call.say(f"no summary ({settlement.fault}): {settlement.reason}")
    call.answer({**figures, **plain(settlement)}, settlement.text)
