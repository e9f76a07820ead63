"""Arguments of the commands: those they share, with help texts, and fields of option records."""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from keras_bert_d2l.checks import shown

if TYPE_CHECKING:
    from keras_bert_d2l.training.options import OptionRecord

STDIN = "<standard input>"  # replaces the argument "-"

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


PositiveInt = Annotated[Integer, Parameter(validator=Number(gt=0))]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Out = Annotated[Path, Parameter(alias="-o")]
OptionalOut = Annotated[Path | None, Parameter(alias="-o")]
Corpus = Annotated[
    list[str],
    Parameter(
        name="TEXT", help='Text files, folders or globs (also .gz, .xz), or the word "docstrings".'
    ),
]
Texts = Annotated[
    str, Parameter(name="TEXT", help="Texts, or - to read one per line from standard input.")
]
File = Annotated[
    Path | None,
    Parameter(alias="-f", help="Read the texts from the lines of this UTF-8 file (also .gz, .xz)."),
]
Model = Annotated[
    str,
    Parameter(
        alias="-m",
        help="Checkpoint, run folder (its best checkpoint is used), or name on the Hugging Face "
        "Hub. `novels-small` is part of the package.",
    ),
]
BatchSize = Annotated[PositiveInt, Parameter(help="Texts per batch.")]
TopK = Annotated[PositiveInt, Parameter(alias="-k", help="Number of results.")]
Truncate = Annotated[
    bool,
    Parameter(
        help="Truncate texts that are too long and report how many; otherwise, they are an error."
    ),
]
TruncateDim = Annotated[
    PositiveInt | None,
    Parameter(
        help="Number of first elements of each vector to keep, for models trained for it "
        "(Matryoshka). [default: that of the model]"
    ),
]
Json = Annotated[Flag, Parameter(help="Print JSON, one object per line.")]
Aggregate = Annotated[
    Literal["none", "simple", "first", "average", "max"],
    Parameter(
        help="Join labels such as B-PER and I-PER into entities. A word has the label of its first "
        "token (first), the label with the highest mean probability over its tokens (average), or "
        "the label of its most certain token (max). simple joins tokens instead of words."
    ),
]
NullThreshold = Annotated[
    float | None,
    Parameter(
        help='Answer "none" when the no-answer score beats the best answer by more than this. '
        "[default: best threshold on the development data; without one, always answer]"
    ),
]
MinConfidence = Annotated[float | None, Parameter(validator=Number(gt=0, lte=1))]
OutFolder = Annotated[Path, Parameter(alias="-o", help="Output folder.")]

RunDir = Annotated[
    Path | None,
    Parameter(help="Folder for the new run: an empty folder or a new path.", group=panel("Run")),
]
Resume = Annotated[
    Path | None,
    Parameter(
        help="Folder of the run to resume. Its own options apply. If it contains no run "
        "yet, start one with the given options.",
        group=panel("Run"),
    ),
]
Config = Annotated[
    Path | None,
    Parameter(
        help="YAML file with options, such as the run.yaml of another run. Names are as below, "
        "with _ instead of -. Options on the command line take precedence.",
        group=panel("Run"),
    ),
]


def takes_options(
    record: "type[OptionRecord]", groups: Mapping[str, str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the fields of a record to the options of a command.

    Types, defaults and help texts come from the record. The command receives only the given
    options, as keyword arguments.

    Args:
        record: The record.
        groups: Maps the title of each panel on the help page to its field names, separated by
            spaces.
    """
    hints = typing.get_type_hints(record, include_extras=True)
    docstrings = "\n".join(inspect.getdoc(owner) or "" for owner in reversed(record.__mro__))
    entries = dict(re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", docstrings, re.MULTILINE))
    defaults = {field.name: field.default for field in dataclasses.fields(record)}
    options = [
        _parameter(name, hints[name], _help_text(entries[name], defaults[name]), panel(title))
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


def _help_text(entry: str, default: object) -> str:
    """Return the help text of an option, from its entry in the docstring of the record."""
    text = " ".join(entry.split())
    if not any(default is none for none in (None, False, dataclasses.MISSING)):
        text += f" Defaults to {default}."
    text = re.sub(r"`(\w+)`", lambda option: "--" + option[1].replace("_", "-"), text)
    return re.sub(r" Defaults to (.+)\.$", r" [default: \1]", text)


def _parameter(name: str, hint: Any, help_text: str, group: Group) -> inspect.Parameter:
    described = Parameter(
        help=help_text,
        group=group,
        negative=_NEGATIVE.get(name),
        alias=_ALIASES.get(name),
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_parsed_type(hint) | None, described],
    )


def _parsed_type(hint: Any) -> Any:
    """Return the type that the command line parses for the type of a field."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = typing.get_args(hint)[0]
    if hint is int or getattr(hint, "__origin__", None) is int:
        return Integer
    if typing.get_origin(hint) is not Annotated:
        return hint
    from keras_bert_d2l.training.options import absolute_path

    if absolute_path in hint.__metadata__:
        return Path
    return str if hint.__origin__ == str | int else hint.__origin__


def given(**options: Any) -> dict[str, Any]:
    """Return the options that have a value."""
    return {name: x for name, x in options.items() if x is not None and x is not False}


def refuse(kind: str, **options: Any) -> None:
    """Raise `ValueError` if one of the options, which are for another kind of call, has a value."""
    for name, value in given(**options).items():
        raise ValueError(f"`{name}` is for {kind}. Received: {shown(value)}; omit it.")


def run_folder(run_dir: Path | None, resume: Path | None) -> Path:
    """Return the folder of the run, which need not exist yet."""
    if run_dir is not None and resume is not None:
        raise ValueError(
            "--run-dir is for a new run and --resume continues one, in its own folder. Received: "
            "both; remove one of them."
        )
    folder = resume or run_dir
    if folder is None:
        raise ValueError("--run-dir FOLDER is missing, or --resume FOLDER to continue a run.")
    return folder
