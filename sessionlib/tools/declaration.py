"""Tools: Python functions with typed signatures, declared to the model by their schema and run by the worker."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from sessionlib.errors import InvalidInput
from sessionlib.media import Media, require_media
from sessionlib.providers.contract import CallRequest, ToolDeclaration
from sessionlib.steps import ToolOutput

_POSITIONS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Handed to a tool that asks for it. Its key goes with one call: tools run at least once."""

    session_id: str
    turn_id: str
    call_id: str
    round: int = 0
    """A model may number its calls anew in each answer: within a turn only round and call id name one call."""

    @property
    def key(self) -> str:
        """An idempotency key within the session."""
        return f"{self.turn_id}/{self.round}/{self.call_id}"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns that shows images or files beside its text. Raises InvalidInput for anything else."""

    text: str = ""
    media: tuple[Media, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "media", tuple(self.media))
        if not isinstance(self.text, str):
            raise InvalidInput("text", self.text, "must be a string")
        require_media(self.media)


ToolFunction = Callable[[str, ToolContext], str | ToolResult]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its declaration and the function behind it."""

    declaration: ToolDeclaration
    run: ToolFunction
    """Takes the arguments as the model wrote them; raises InvalidInput where they do not fit the schema."""
    instructions: bool = False
    """Its results are instructions that the agent follows (a skill, a policy): summaries are shown them whole."""

    @classmethod
    def from_function(
        cls, function: Callable[..., Any], *, name: str | None = None, instructions: bool = False
    ) -> Tool:
        """Declare a function: its name, docstring and annotations. A ToolContext parameter is filled in, not declared.

        Raises InvalidInput for what is no function, for a coroutine function, and for a parameter without annotation or
        that takes no keyword.
        """
        if not inspect.isroutine(function):
            raise InvalidInput("tool", function, "must be a function")
        if inspect.iscoroutinefunction(function):
            raise InvalidInput("tool", function.__name__, "must not be a coroutine function: tools run in threads")
        signature = _Signature.of(function)
        declaration = ToolDeclaration(
            name=name or function.__name__,
            description=inspect.cleandoc(function.__doc__ or ""),
            parameters=signature.schema(),
        )

        def run(arguments: str, context: ToolContext) -> str | ToolResult:
            try:
                keywords = signature.keywords(arguments, context)
            except ValidationError as exc:
                rule = f"must fit the schema of {declaration.name} ({validation_details(exc)})"
                raise InvalidInput("arguments", arguments, rule) from None
            return as_result(function(**keywords))

        return cls(declaration, run, instructions)


@dataclass(frozen=True, slots=True)
class _Signature:
    """A function's parameters: the model of what is declared, and the name of the one that takes the context."""

    model: type[BaseModel]
    field_names: Mapping[str, str]
    """Parameters by the name of their field: fields are numbered, so that a parameter may be called `json` or `copy`,
    which are methods of a model."""
    context_name: str | None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Signature:
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        field_names: dict[str, str] = {}
        context_name = None
        for parameter in inspect.signature(function).parameters.values():
            where = f"{function.__name__}({parameter.name})"
            if parameter.kind in _POSITIONS:
                raise InvalidInput("tool", where, "must take its parameters by name")
            if parameter.name not in hints:
                raise InvalidInput("tool", where, "must have annotated parameters")
            if hints[parameter.name] is ToolContext:
                context_name = parameter.name
                continue
            field = f"field_{len(fields)}"
            alias = Field(alias=parameter.name, title=parameter.name)
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[field] = (Annotated[hints[parameter.name], alias], default)
            field_names[field] = parameter.name
        model: type[BaseModel] = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        return cls(model, field_names, context_name)

    def schema(self) -> dict[str, Any]:
        schema = self.model.model_json_schema()
        schema.pop("title", None)
        for declared in schema.get("properties", {}).values():
            declared.pop("title", None)
        return {**schema, "type": "object"}

    def keywords(self, arguments: str, context: ToolContext) -> dict[str, Any]:
        """The function's keywords. Raises pydantic.ValidationError."""
        values = self.model.model_validate_json(arguments.strip() or "{}")
        keywords = {name: getattr(values, field) for field, name in self.field_names.items()}
        return {**keywords, self.context_name: context} if self.context_name else keywords


def validation_details(error: ValidationError) -> str:
    """What is wrong with arguments, by field, in one line; their values are left out."""
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())


def as_result(value: object) -> str | ToolResult:
    """A tool's return value as the model gets it: text, or text and media. Raises InvalidInput for too large media.

    Media may come alone, or in a list or tuple that has nothing but media and texts; the texts become lines of one.
    Anywhere else they are refused: as JSON their bytes would be text.
    """
    if isinstance(value, ToolResult):
        return value
    if not _holds_media(value):
        return as_text(value)
    items = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(item, Media | str) for item in items):
        rule = "must hold images and files in a ToolResult, or in a list with nothing but texts beside them"
        raise InvalidInput("result", type(value).__name__, rule)
    texts = [item for item in items if isinstance(item, str)]
    return ToolResult("\n".join(texts), tuple(item for item in items if isinstance(item, Media)))


def _holds_media(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_media, value.values()))
    return any(map(_holds_media, value)) if isinstance(value, list | tuple) else isinstance(value, Media | ToolResult)


def as_text(value: object) -> str:
    """A tool's return value as the model reads it: a string as it is, None as "", anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(TypeAdapter(Any).dump_python(value, mode="json"), ensure_ascii=False)


def run_tool(
    tools: Mapping[str, Tool], call: CallRequest, context: ToolContext, passing: tuple[type[Exception], ...] = ()
) -> ToolOutput:
    """Run one call. Whatever the tool raises, but for *passing*, is the model's to read, as an error result."""
    tool = tools.get(call.name)
    if tool is None:
        return ToolOutput(f"InvalidInput: there is no tool {call.name!r}", is_error=True)
    try:
        result = tool.run(call.arguments, context)
        return ToolOutput(result) if isinstance(result, str) else ToolOutput(result.text, media=result.media)
    except passing:
        raise
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - a tool may raise anything; the model decides what to do
        return ToolOutput(f"{type(exc).__name__}: {exc}", is_error=True)
