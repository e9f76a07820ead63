"""Check the output files of the commands before the work starts."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from cyclopts import Token

from keras_bert_d2l.files import check_local


def nonempty_path(_: type, tokens: Sequence[Token]) -> Path:
    """Convert the value of an option to a path, unless it is empty.

    Otherwise, `Path("")` would be the working directory.
    """
    if not tokens[0].value:
        raise ValueError('The path must not be empty. Received: "". Add a path.')
    return Path(tokens[0].value)


def check_output(
    name: str,
    out: Path | None,
    *,
    inputs: Iterable[str | PurePath | None] = (),
    suffixes: Sequence[str] = (),
) -> None:
    """Raise an error if a command cannot or must not write an output file.

    Devices and named pipes, such as `/dev/stdout`, are accepted.

    Args:
        name: The argument, for the message.
        out: The file. `None`, of an option that is not given, is accepted.
        inputs: The files that the command reads, which must not be replaced. Values that are not
            paths of files are ignored.
        suffixes: The possible ends of the name. Empty: any.

    Raises:
        ValueError: The path is a URL, a folder or an input, has another suffix, or is below a file.
        PermissionError: The folder is not writable.
    """
    if out is None:
        return
    check_local(name, out)
    if out.is_dir():
        raise ValueError(
            f"`{name}` must be a file. Received: the folder {str(out)!r}. Add the name of a file."
        )
    if out.exists() and not out.is_file():
        return
    if suffixes and out.suffix not in suffixes:
        raise ValueError(f"`{name}` must end in {' or '.join(suffixes)}. Received: {str(out)!r}.")
    if out.exists():
        for path in inputs:
            if path is not None and os.path.exists(path) and os.path.samefile(path, out):
                raise ValueError(
                    f"`{name}` must not be an input, because it would be replaced. Received: "
                    f"{str(out)!r}. Choose a different path."
                )
    folder = next(parent for parent in Path(os.path.realpath(out)).parents if parent.exists())
    if not folder.is_dir():
        raise ValueError(
            f"`{name}` must be in a folder. Received: {str(out)!r}, but {str(folder)!r} is a file. "
            "Choose a different path."
        )
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{str(folder)!r} is not writable. Choose a different folder.")


def check_teacher_stays(out: Path, model: str) -> None:
    """Raise `ValueError` if the student would replace its teacher.

    Args:
        out: Folder of the student.
        model: Folder or name of the teacher.
    """
    if out.exists() and os.path.exists(model) and os.path.samefile(model, out):
        raise ValueError(
            f"`out` must not be the folder of the teacher, because it would be replaced. Received: "
            f"{str(out)!r}. Choose a different path."
        )
