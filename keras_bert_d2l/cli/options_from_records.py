"""Create command-line options from an option record: types, defaults and help texts."""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

from keras_bert_d2l.training.option_records import OptionRecord, absolute_path

_PANELS = "Run, Text, Data, Model, Examples, Training, Trainable weights, Devices"
_NEGATIVE, _ALIASES = {"lowercase": "--cased"}, {"model": "-m"}


def _integer(_: type, tokens: Sequence[Token]) -> int:
    try:
        return int(tokens[0].value)  # Cyclopts would round 3.5 to 4
    except ValueError:
        raise ValueError(f'"{tokens[0].value}" is not an integer.') from None


Integer = Annotated[int, Parameter(converter=_integer)]


@functools.cache
def panel(title: str) -> Group:
    """Return the option group with this title on the help pages."""
    return Group(title, sort_key=_PANELS.split(", ").index(title))


def takes_options(
    record: type[OptionRecord], groups: Mapping[str, str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the fields of a record to the options of a command.

    Types, defaults and help texts come from the record. The command receives only the given
    options, as keyword arguments.

    Args:
        record: The record.
        groups: Maps the title of each panel on the help page to its field names, separated by
            spaces.
    """
    options = [
        _parameter(record, name, panel(title))
        for title, names in groups.items()
        for name in names.split()
    ]

    names = {option.name for option in options}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in names
        ]

        def run(*arguments: object, **given: object) -> None:
            return command(*arguments, **{k: v for k, v in given.items() if v is not None})

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {one.name: one.annotation for one in (*own, *options)}
        run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return run

    return decorate


def help_text(record: type[OptionRecord], name: str) -> str:
    """Return the help text of an option, from the docstring of the record."""
    for owner in record.__mro__:
        entry = re.search(
            rf"^ {{8}}{name}: (.+(?:\n {{12}}.+)*)", owner.__doc__ or "", re.MULTILINE
        )
        if entry is not None:
            break
    else:
        raise ValueError(f"{record.__name__} does not document {name!r}.")
    text = " ".join(entry[1].split())
    [field] = (field for field in dataclasses.fields(record) if field.name == name)
    if not any(field.default is none for none in (None, False, dataclasses.MISSING)):
        text += f" Defaults to {field.default}."
    text = re.sub(r"`(\w+)`", lambda option: "--" + option[1].replace("_", "-"), text)
    return re.sub(r" Defaults to (.+)\.$", r" [default: \1]", text)


def _parameter(record: type[OptionRecord], name: str, group: Group) -> inspect.Parameter:
    described = Parameter(
        help=help_text(record, name),
        group=group,
        negative=_NEGATIVE.get(name),
        alias=_ALIASES.get(name),
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_types(record)[name] | None, described],  # type: ignore[arg-type]
    )


@functools.cache
def _types(record: type[OptionRecord]) -> dict[str, Any]:
    """Return the type that the command line parses for each field."""
    hints = typing.get_type_hints(record, include_extras=True)
    return {name: _parsed_type(hint) for name, hint in hints.items()}


def _parsed_type(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = typing.get_args(hint)[0]
    if hint is int or getattr(hint, "__origin__", None) is int:
        return Integer
    if typing.get_origin(hint) is not Annotated:
        return hint
    if absolute_path in hint.__metadata__:
        return Path
    return str if hint.__origin__ == str | int else hint.__origin__
