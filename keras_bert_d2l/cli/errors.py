"""Error messages of the commands, which name options instead of Python arguments."""

import re
from collections.abc import Mapping

from cyclopts import App, CycloptsError, UnknownOptionError

_MOST_CHARACTERS = 400  # of a message about the usage, which may quote a long argument

# Arguments of Python functions that the commands call by another name: the first that one has.
_RENAMED = {
    "size": ("vocab_size",),
    "corpus": ("texts",),
    "source": ("texts",),
    "name": ("preset",),
    "path": ("out", "target"),
    "directory": ("out",),
    "model": ("init",),
    "examples": ("data", "train"),
    "pairs": ("data",),
    "data": ("train",),
    "class_weights": ("class_weight",),
}
# "--text 2 (text=2 in Python)" and "(see --multi-label; `multi_label` in Python)".
_PYTHON = re.compile(r" \([^();]* in Python\)|; [^();]* in Python(?=\))")


def message_of(error: Exception, command: App | None) -> str:
    """Return a one-line message for an error of a command.

    Args:
        error: The error.
        command: The command, or `None` if there is no such command.
    """
    message = str(error)
    if isinstance(error, OSError) and error.strerror:  # without the errno
        file = "" if error.filename is None else f": {str(error.filename)!r}"
        return f"{error.strerror}{file}."
    if isinstance(error, CycloptsError):
        message = str(error).strip()
        if len(message) > _MOST_CHARACTERS:
            message = f"{message[:_MOST_CHARACTERS]}..."
        if isinstance(error, UnknownOptionError) and not message.startswith("Unknown option: --"):
            message += " Write -- before texts if one of them begins with -."
        page = f"{command.name[0]} --help" if command else "--help"
        return f"{message} See `keras-bert-d2l {page}`."
    if command is not None:
        message = _with_options(message, _options(command))
    return " ".join(message.split())


def _options(command: App) -> dict[str, str]:
    """Return the option or the placeholder for each Python argument of a command."""
    arguments = command.assemble_argument_collection()
    options = {argument.field_info.name: argument.name for argument in arguments}
    options |= {f"{a.field_info.name}=False": a.negatives[0] for a in arguments if a.negatives}
    renamed = {
        python: options[name]
        for python, names in _RENAMED.items()
        for name in reversed(names)
        if name in options
    }
    return renamed | options


def _with_options(message: str, options: Mapping[str, str]) -> str:
    """Write "--batch-size 0" for "`batch_size`" and "batch_size=0".

    The names in Python of a message that has both are removed.
    """

    def name(found: re.Match[str]) -> str:
        return options.get(found[1], found[0])

    def setting(found: re.Match[str]) -> str:
        if found[1] not in options:
            return found[0]
        option = options[found[1]]
        flags = {"True": option, "False": options.get(f"{found[1]}=False", option)}
        return flags.get(found[2], f"{option} {found[2]}")

    message = _PYTHON.sub("", message)
    message = re.sub(r"`(\w+)`", name, message)
    return re.sub(r"`?\b(\w+)=(True\b|False\b|[^\s])`?", setting, message)
