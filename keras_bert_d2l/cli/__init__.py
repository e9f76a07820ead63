"""The command `keras-bert-d2l`, whose commands are the functions in `commands`.

A command imports TensorFlow only when it runs, so that `--help`, `--version`, shell completion and
usage errors are immediate. Each command calls the public Python API.
"""

import contextlib
import functools
import gc
import inspect
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Group, Parameter, UnknownOptionError

from keras_bert_d2l import __version__, _import_hooks
from keras_bert_d2l.cli.arguments import STDIN, Flag
from keras_bert_d2l.printing import printable_output
from keras_bert_d2l.progress import showing_stages
from keras_bert_d2l.text_arguments import TruncationWarning

_BAD_INPUT, _BROKEN_PIPE, _DIVERGED = 2, 1, 1  # exit codes
_MISTAKES = (ValueError, OSError, ImportError, RuntimeError, FloatingPointError)
_NAME = "keras-bert-d2l"
# Groups of the help page in the order of a typical workflow, and their commands: the module in
# `commands`, which is imported when one of its commands is used, and the function.
GROUPS: dict[str, str] = {
    "Train": "train:quickstart train:vocab train:prepare train:pretrain finetune:finetune "
    "finetune:distill evaluate:report",
    "Ask": "ask:fill_mask ask:perplexity ask:embed ask:similar ask:rerank "
    "ask:playground predict:predict evaluate:evaluate",
    "Checkpoints": "checkpoints:inspect checkpoints:convert checkpoints:export checkpoints:serve",
}

_OPTIONS = Group("Options", sort_key=100)  # shown last
# Arguments of Python functions that the commands call by another name: the first that one has.
_RENAMED = {
    "size": ("vocab_size",),
    "corpus": ("texts",),
    "source": ("texts",),
    "path": ("out", "target"),
    "model": ("init",),
    "examples": ("data", "train"),
    "data": ("train",),
}


app = App(
    name=_NAME,
    help="""A complete BERT toolkit for Keras: from raw text to a served model.

Start with `keras-bert-d2l quickstart`, or `keras-bert-d2l COMMAND --help`.

Exit codes: 0 success, 1 findings or divergence, 2 error, 130 Ctrl-C.
""",
    help_format="markdown",
    version=f"{_NAME} {__version__}",
    version_format="plaintext",
    group_commands=_OPTIONS,
    group_parameters=_OPTIONS,
    default_parameter=Parameter(allow_repeating=True),  # the last occurrence of an option wins
    suppress_keyboard_interrupt=False,
)
app["--help"].help = "Show this page and exit."
app["--version"].help = "Show the version and exit."
app.meta.group_parameters = _OPTIONS
app.meta.suppress_keyboard_interrupt = False


def _summary(command: str) -> str:
    """Return the first line of a docstring from the source, which is faster than an import."""
    module, name = command.split(":")
    source = (Path(__file__).parent / "commands" / f"{module}.py").read_text(encoding="utf-8")
    return source.partition(f"\ndef {name}(")[2].split('"""')[1].splitlines()[0]


def _add_commands(summary: Callable[[str], str] | None = None) -> None:
    """Add all commands, with their own help pages or, with `summary`, for the page of all."""
    for number, (title, commands) in enumerate(GROUPS.items()):
        panel = Group(title, sort_key=number)
        for place, command in enumerate(commands.split()):
            name = command.partition(":")[2].replace("_", "-")
            if name in app:
                del app[name]
            help_text = None if summary is None else summary(command)
            path = f"{__name__}.commands.{command}"
            app.command(path, name=name, group=panel, sort_key=place, help=help_text)


_add_commands()


@app.meta.default
def _run(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    traceback: Annotated[
        Flag, Parameter(help="Show the traceback of an error, for bug reports.")
    ] = False,
) -> int | None:
    first = tokens[0] if tokens else "--help"
    command = app[first] if first in app and not first.startswith("-") else None
    try:
        run, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        if command is not None:
            _check_stdin(bound)
        with _readable_warnings(command):
            result: int | None = run(*bound.args, **bound.kwargs)
    except BrokenPipeError:
        raise
    except CycloptsError as error:
        _fail(error, command)
    except _MISTAKES as error:
        if traceback:
            from traceback import print_exception

            print_exception(error)
        _fail(error, command)
    return result


@contextlib.contextmanager
def _readable_warnings(command: App | None) -> Iterator[None]:
    """Print each warning of a command once, without its place in the source code.

    How many texts it truncated in all its parts is printed at the end, in one line.
    """
    found: list[Any] = []
    tell = functools.cache(lambda message: print(f"Warning: {message}", file=sys.stderr))
    with warnings.catch_warnings():
        warnings.simplefilter("always", TruncationWarning)
        warnings.showwarning = lambda one, kind, *place: (
            found.append(one) if kind is TruncationWarning else tell(message_of(one, command))
        )
        try:
            yield
        finally:
            if found:
                counts = sum(one.number for one in found), found[0].kind, found[0].max_len
                print(message_of(TruncationWarning(*counts), command), file=sys.stderr)


def _check_stdin(bound: inspect.BoundArguments) -> None:
    """Raise `ValueError` if - stands for an argument other than all texts of a command."""
    for name, value in bound.arguments.items():
        values = value if isinstance(value, tuple) else (value,)
        if STDIN in map(str, values) and (name not in ("texts", "inputs") or len(values) > 1):
            raise ValueError(
                f"`{name}` must not be -, which stands for standard input in place of all texts. "
                "Give a path."
            )


@printable_output()
def main(tokens: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit.

    An error prints one line on stderr and exits with code 2, or with code 1 if a training run
    diverges. Ctrl-C exits with code 130, SIGTERM with 143, SIGHUP with 129. docs/troubleshooting.md
    lists all exit codes.

    Args:
        tokens: Command and arguments. Defaults to `sys.argv[1:]`.
    """
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    given = sys.argv[1:] if tokens is None else tokens
    if tokens is None:
        _import_hooks.while_loading = _loading_less
        for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _interrupt)
    try:
        words = [token for token in given if token not in (*app.help_flags, "--traceback")]
        is_command = bool(words) and words[0] in app and not words[0].startswith("-")
        _add_commands(None if is_command else _summary)
        if not is_command and "--install-completion" not in app:  # a slow import
            app.register_install_completion_command(help="Install shell completion and exit.")
        code = None
        if not words or (is_command and len(words) == 1 and given[-1] in app.help_flags):
            app.help_print(words)  # without parsing arguments first
        else:
            with showing_stages():
                code = app.meta(
                    [STDIN if token == "-" else token for token in given],  # Cyclopts rejects -
                    exit_on_error=False,
                    print_error=False,
                    result_action="return_value",
                )
        if sys.stdout is not None:
            sys.stdout.flush()  # otherwise Python prints a traceback when it fails at the end
    except KeyboardInterrupt as error:
        with contextlib.suppress(OSError):  # after SIGHUP, the terminal may be gone
            print(f"\n{str(error) or 'Interrupted.'}", file=sys.stderr)
        code = 128 + getattr(error, "signal_number", signal.SIGINT)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _discard_output()
        code = _BROKEN_PIPE
    except OSError as error:  # a help page or the last output does not fit on the disk
        _discard_output()
        _fail(error, None)
    sys.exit(code)


@contextlib.contextmanager
def _loading_less() -> Iterator[None]:
    """Import TensorFlow and Keras in half the time, in a process that only runs a command.

    Keras imports pandas, for data frames in `fit`, and scikit-learn, for its interface, if they are
    installed. The modules stay until the process ends, so that the garbage collector, which would
    otherwise examine them again and again and at the end, can ignore them.
    """
    hidden = [name for name in ("pandas", "sklearn") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not installed
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        if collects:
            gc.freeze()
            gc.enable()


def _discard_output() -> None:
    """Discard the rest of standard output, which Python would write and fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Interrupted(KeyboardInterrupt):
    """Exception raised by SIGTERM and SIGHUP, which end a command in the same way as Ctrl-C."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.signal_number = signal_number


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise _Interrupted(signal_number)


def message_of(error: Exception, command: App | None) -> str:
    """Return a one-line message for an error of a command, which names options, not arguments.

    Args:
        error: The error.
        command: The command, or `None` if there is no such command.
    """
    message = str(error)
    if isinstance(error, OSError) and error.strerror:  # without the errno
        file = "" if error.filename is None else f": {str(error.filename)!r}"
        return f"{error.strerror}{file}."
    if isinstance(error, CycloptsError):
        message = f"{message.strip():.400}"  # which may quote a long argument
        if isinstance(error, UnknownOptionError) and not message.startswith("Unknown option: --"):
            message += " Write -- before texts if one of them begins with -."
        page = f"{command.name[0]} --help" if command else "--help"
        return f"{message} See `keras-bert-d2l {page}`."
    if command is not None:
        arguments = command.assemble_argument_collection()
        options = {argument.field_info.name: argument.name for argument in arguments}
        for argument, names in _RENAMED.items():
            for name in names:
                if name in options:
                    options.setdefault(argument, options[name])
        options |= {f"{a.field_info.name}=False": a.negatives[0] for a in arguments if a.negatives}

        def setting(found: re.Match[str]) -> str:
            option = options.get(found[1])
            if option is None:
                return found[0]
            flags = {"True": option, "False": options.get(f"{found[1]}=False", option)}
            return flags.get(found[2], f"{option} {found[2]}")

        # Of "--text 2 (text=2 in Python)" and "(see --id; `id` in Python)", the option is enough.
        message = re.sub(r" \([^();]* in Python\)|; [^();]* in Python(?=\))", "", message)
        message = re.sub(r"`(\w+)`", lambda found: options.get(found[1], found[0]), message)
        message = re.sub(r"`?\b(\w+)=(True\b|False\b|[^\s])`?", setting, message)
    return " ".join(message.split())


def _fail(error: Exception, command: App | None) -> NoReturn:
    print(f"error: {message_of(error, command)}", file=sys.stderr)
    code = _DIVERGED if isinstance(error, FloatingPointError) else _BAD_INPUT
    if "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized():
        sys.stderr.flush()
        os._exit(code)  # at a normal exit, JAX would wait for the other processes of the run
    sys.exit(code)
