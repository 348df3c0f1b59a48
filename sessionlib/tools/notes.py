"""The private notes tools, as they are declared and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sessionlib.entries import Entry
from sessionlib.projection import Projection, exceeds
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.tools.declaration import Tool, ToolContext
from sessionlib.tools.notebook import Fits, Notebook, list_files, read_file, search_contents, write_file


def _declared(tool: str, description: str, required: Sequence[str] = (), **types: str) -> ToolDeclaration:
    """A declaration in few tokens, since each request carries it: what its parameters mean, their names say."""
    properties = {name: {"type": type} for name, type in types.items()}
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return ToolDeclaration(name=f"notes.{tool}", description=description, parameters=schema)


NOTES_DECLARATIONS: tuple[ToolDeclaration, ...] = (
    _declared(
        "list_files",
        "List this conversation's notes. They stay when older messages leave your window.",
        prefix="string",
        limit="integer",
    ),
    _declared(
        "read_file",
        "Read lines of a note.",
        ["name"],
        name="string",
        first_line="integer",
        last_line="integer",
        offset_chars="integer",
    ),
    _declared(
        "search_contents",
        "Find text in the notes, ignoring case.",
        ["query"],
        query="string",
        prefix="string",
        max_files="integer",
        max_matches="integer",
    ),
    _declared("append_to_file", "Add to the end of a note.", ["name", "content"], name="string", content="string"),
    _declared("write_file", "Write or replace a note.", ["name", "content"], name="string", content="string"),
)


def notes_tools(notebook: Notebook, projection: Projection) -> dict[str, Tool]:
    """The private tools by name, for one turn. What they return is never shortened when it is sent."""

    def reader(read: Callable[[str, Notebook, Fits], str]) -> Callable[[str, ToolContext], str]:
        return lambda arguments, context: read(arguments, notebook, lambda text: _fits(text, context, projection))

    def writer(*, append: bool) -> Callable[[str, ToolContext], str]:
        return lambda arguments, context: write_file(arguments, notebook, key=context.key, append=append)

    runs = (
        reader(list_files),
        reader(read_file),
        reader(search_contents),
        writer(append=True),
        writer(append=False),
    )
    return {declared.name: Tool(declared, run) for declared, run in zip(NOTES_DECLARATIONS, runs, strict=True)}


def _fits(text: str, context: ToolContext, projection: Projection) -> bool:
    return not exceeds(Entry.tool_result(context.call_id, text), projection.cap_tokens, projection.counter)
