"""`sessionctl providers`: whether the configured providers answer, and what they say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sessionlib.errors import InvalidInput
from workers.cli.common import Call, shared
from workers.cli.faults import ExitCode, report_of

if TYPE_CHECKING:
    from rich.table import Table

    from sessionlib.providers.checking import Checked

OPTIONS = ("agents", "as_json")
"""It needs no store."""

HELP = "Whether the configured providers answer, and what they say of themselves."


def register(app: typer.Typer) -> None:
    group = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
    group.command("check")(shared(check, OPTIONS))
    app.add_typer(group, name="providers")


def check(
    call: Call,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]…", help="Only these providers. Not given: all.", show_default=False),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="For each call.")] = 30.0,
) -> None:
    """Make one tiny call to each provider, with each model that an agent or a choice asks it for.

    Prints how long the answer took, what the provider counted beside what we count, and the window: declared by the
    agent, reported by the provider's models endpoint (the smaller wins), or from the table of known models. Costs a
    few tokens for each model. Keys are read where the agents file says; none is shown.

    \b
    Examples:
      sessionctl providers check --agents agents.toml
      sessionctl providers check openai --agents agents.toml --json

    Exit codes: 0 all answered; 1 one did not; 2 bad input.
    """
    from sessionlib.providers import checking

    catalog = call.settings.catalog()
    if unknown := sorted(set(names or ()) - set(catalog.provider_names)):
        known = ", ".join(catalog.provider_names) or "(none)"
        raise InvalidInput("NAME", unknown[0], f"must be one of the catalog's providers: {known}")
    asked = [one for one in checking.models_of(catalog) if not names or one[0] in names]
    if not asked:
        raise InvalidInput("--agents", call.settings.agents, "must name a file or module with providers")
    results = []
    for provider, model, window_tokens in asked:
        call.say(f"asking {provider}{f' for {model}' if model else ''}")
        results.append(checking.check(catalog, provider, model, window_tokens, timeout))
    catalog.close()
    call.answer({"providers": [_figures(result) for result in results]}, _table(results))
    for result in results:
        if result.error is not None:
            report = report_of(result.error)
            call.say(f"{result.provider}: error ({report.whose}): {report.message}\n  {report.advice}")
    if not all(result.is_fine for result in results):
        raise typer.Exit(ExitCode.FAILED)


def _figures(result: Checked) -> dict[str, Any]:
    report = report_of(result.error) if result.error is not None else None
    window = result.window
    return {
        "provider": result.provider,
        "model": result.model,
        "is_fine": result.is_fine,
        "shape": result.shape,
        "seconds": round(result.seconds, 3),
        "prompt_tokens": result.prompt_tokens,
        "counted_tokens": result.counted_tokens,
        "completion_tokens": result.completion_tokens,
        "window_tokens": window.tokens if window else None,
        "window_source": window.source if window else None,
        "error": {"code": report.code, "fault": report.whose, "message": report.message} if report else None,
    }


def _table(results: list[Checked]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("provider", "model", "answered in", "prompt tokens", "window"):
        table.add_column(heading)
    for result in results:
        if result.error is not None:
            table.add_row(result.provider, result.model, f"failed: {report_of(result.error).code}", "", "")
            continue
        counted = f"{result.prompt_tokens:,} reported, {result.counted_tokens:,} counted"
        window = f"{result.window.tokens:,} ({result.window.source})" if result.window else ""
        table.add_row(result.provider, result.model, f"{result.seconds * 1000:,.0f} ms", counted, window)
    return table
