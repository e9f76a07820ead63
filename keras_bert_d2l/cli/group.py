"""How a command ends: the caller's mistakes as one line on stderr."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

_BAD_INPUT, _INTERRUPTED = 2, 130
_MISTAKES = (ValueError, OSError, ImportError, RuntimeError)
# ClickException, of typer or of click, as the version of typer has it.
_UsageError: type[Any] = typer.BadParameter.__mro__[2]


class Commands(TyperGroup):
    """Turns the caller's mistakes into one line each."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):  # no mistakes: typer knows them
            raise
        except KeyboardInterrupt as error:
            typer.echo(f"\n{str(error) or 'Interrupted.'}", err=True)
            raise typer.Exit(_INTERRUPTED) from error
        except _MISTAKES as error:
            if ctx.params.get("traceback"):
                raise
            _report(error)
            raise typer.Exit(_BAD_INPUT) from error

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except _UsageError as error:
            _report(error.format_message())
            sys.exit(_BAD_INPUT)
        sys.exit(code)


def _report(error: object) -> None:
    message = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        message = f"{error.strerror}: {str(error.filename)!r}."  # without the number of the error
    typer.echo("error: " + " ".join(message.split()), err=True)
