"""The folder of a pretraining or fine-tuning run: its files and checkpoints.

- `run.yaml`: the options;
- `best/`: the checkpoint with the best evaluation, for `load_pretrained`;
- `last/`: the complete training state, from which an interrupted run resumes;
- `adapter/`: with LoRA, the adapter of `best/`, for `load_adapter`;
- `metrics.jsonl`, `tensorboard/`: the metrics of each evaluation;
- `report.html`: a page about the run, and `report.jsonl`: what it needs besides the other files.

A pretraining run also has `config.json` and `vocab.txt`, and its `last/` is also a checkpoint.
"""

import contextlib
import json
import math
import os
import pathlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeVar

from keras_bert_d2l.checkpoints.location import BEST, CONFIG_FILE, LAST, RUN_FILE, STATE_FILE
from keras_bert_d2l.files import (
    CHECKSUMS,
    changed_files,
    check_local,
    disk_errors,
    lock_file,
    make_folder,
    recover,
    url,
    verify_checksums,
)
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.remote import mirrored
from keras_bert_d2l.text.vocab import JSON_FILE, VOCAB_FILE
from keras_bert_d2l.training.devices import is_first, wait_for_all
from keras_bert_d2l.training.options import OptionRecord
from keras_bert_d2l.types import PathLike, Say

R = TypeVar("R", bound=OptionRecord)

LOWER_IS_BETTER = ("loss", "entropy", "error")  # ends of the names of such metrics
_LOCK = ".lock"


class RunFolder:
    """Paths in the folder of a run, and operations on them.

    Args:
        path: The folder.

    Attributes:
        path: The folder.
        name: The folder for messages, or the URL from which it was copied.

    Raises:
        ValueError: `path` is a URL.
    """

    def __init__(self, path: PathLike) -> None:
        check_local("run_dir", path)
        self.path = pathlib.Path(path)
        self.name = os.fspath(path)
        self.options_file = self.path / RUN_FILE
        self.config_file = self.path / CONFIG_FILE
        self.metrics_file = self.path / "metrics.jsonl"
        self.summary_file = self.path / "metrics.json"  # of a fine-tuning run
        self.records_file = self.path / "report.jsonl"
        self.report = self.path / "report.html"
        self.tensorboard = self.path / "tensorboard"
        self.best, self.last = self.path / BEST, self.path / LAST
        self.adapter = self.path / "adapter"
        self.state_file = self.last / STATE_FILE

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @classmethod
    def for_reading(cls, path: PathLike) -> Self:
        """Return the folder of a run, or a local copy of a folder in an object store."""
        if isinstance(path, cls):
            return path
        run = cls(mirrored(path))
        run.name = url(path) or run.name
        return run

    def exists(self) -> bool:
        """Whether the folder contains a run that can be resumed."""
        recover(self.last)
        return self.last.is_dir()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, keep other processes out, and remove what a killed process left.

        Raises:
            BlockingIOError: Another process is using the run.
            FileExistsError: The path is a file.
            PermissionError: The folder is not writable.
        """
        name = self.name
        make_folder(self.path)
        lock = self.path / _LOCK
        busy = f"Another process is using the run {name!r}. Wait until it ends, or stop it."
        with lock_file(lock, busy), disk_errors(self.path):
            try:
                for temporary in self.path.glob(".*.tmp"):
                    recover(self.path / temporary.name.removeprefix(".").rsplit(".", 2)[0])
                yield
            finally:
                lock.unlink()
                with contextlib.suppress(OSError):
                    self.path.rmdir()  # only if nothing was written

    def read_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the progress and the settings in the training state.

        Raises:
            ValueError: A file of `last/` is missing or damaged.
        """
        for file in changed_files(self.last):
            raise damaged(file, f"it does not match {CHECKSUMS!r}")
        try:
            progress = read_json_object(self.state_file)
            return progress, dict(progress.pop("settings"))
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise damaged(self.state_file, error) from error

    def read_json(self, path: PathLike) -> dict[str, Any]:
        """Return the content of a JSON file of the run.

        Returns: an empty dictionary if there is no such file.

        Raises:
            ValueError: The file is damaged.
        """
        try:
            return read_json_object(path)
        except FileNotFoundError:
            return {}

    def check_new(self) -> None:
        """Raise `FileExistsError` unless a new run can be created in the folder.

        A new run begins with `run.yaml`, if it has one, and exists once it has a training state. If
        its creation was interrupted in between, there is nothing to resume, and it starts again.
        """
        name = self.name
        if self.exists():
            progress, _ = self.read_state()
            raise FileExistsError(
                f"{name!r} already contains a run at step {progress.get('step')}. Resume it "
                "(`resume=True`), or choose a different folder for the new run."
            )
        files = {file.name for file in self.path.iterdir()} - {_LOCK}
        ours = {RUN_FILE, CONFIG_FILE, VOCAB_FILE, JSON_FILE}
        if files and (self.options_file.name not in files or files - ours - {CHECKSUMS}):
            raise FileExistsError(
                f"{name!r} is not empty and does not contain a run. Choose a new or empty folder."
            )

    def metrics(self) -> list[dict[str, float]]:
        """Return the metrics of each evaluation, with NaN for values that are not finite.

        Raises:
            ValueError: `metrics.jsonl` is damaged.
        """
        return [
            {name: math.nan if value is None else value for name, value in line.items()}
            for line in _json_lines(self.metrics_file)
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return the records for the report: of each start, and of each evaluation.

        Raises:
            ValueError: `report.jsonl` is damaged.
        """
        return _json_lines(self.records_file)

    def how_to_resume(self, command: str) -> str:
        """Return a sentence, without the full stop, that explains how to resume the run.

        A run without `run.yaml` was started in Python and can only be resumed there.
        """
        if not self.options_file.is_file():
            return "Resume with `resume=True`"
        return f"Resume with: keras-bert-d2l {command} --resume {shlex.quote(self.name)}"


def tuned_null_threshold(run_dir: PathLike) -> float | None:
    """Return the best no-answer threshold on the development data of a run.

    Returns `None` if the folder is not a fine-tuning run or if all questions have answers.

    Raises:
        ValueError: `metrics.json` is damaged.
    """
    run = RunFolder.for_reading(run_dir)
    if not run.summary_file.is_file():
        return None
    verify_checksums(run)
    best = read_json_object(run.summary_file).get("best") or {}
    threshold: float | None = best.get("val_null_threshold")
    return threshold


def damaged(path: pathlib.Path, reason: object) -> ValueError:
    """Return the error for a training state that cannot be read."""
    return ValueError(
        f"The training state at {os.fspath(path)!r} is damaged: {str(reason).rstrip('.')}. Start a "
        "new run from the weights of the last or best checkpoint; `pretrain` accepts a "
        "checkpoint as `init`."
    )


@contextlib.contextmanager
def opened_run(
    run: RunFolder, record: type[R], given: Mapping[str, Any], *, resume: bool, say: Say
) -> Iterator[tuple[RunFolder, R, bool]]:
    """Open a run in each of its processes: check and lock it, and yield its options.

    Only the first process uses the run folder. The others get temporary folders for the small files
    that they write, in which they also find the state of a run to resume.

    With `resume`, it reports if there is no run yet, because the path may be mistyped.

    Args:
        run: The run folder.
        record: The type of the options.
        given: The options that the caller specified.
        resume: Whether to resume the run if it exists.
        say: Prints messages.

    Yields: the folder of this process, the options, and whether the run is resumed instead of
        started.

    Raises:
        FileExistsError: The folder is not empty, and `resume` is not set.
        FileNotFoundError: There is no run to resume, and too few options to start one.
        ValueError: An option is invalid or differs from the run, or a file is damaged.
    """
    with contextlib.ExitStack() as stack:
        if not is_first():
            wait_for_all()  # the first process has locked and recovered the folder
            temporary = stack.enter_context(tempfile.TemporaryDirectory())
            run = _view(run, pathlib.Path(temporary, run.path.name))
        has_options = resume and run.options_file.is_file()
        if resume and not has_options and (run.exists() or record.missing(given)):
            raise FileNotFoundError(
                f"{run.name!r} does not contain a run to resume: {run.options_file.name} "
                "is missing. To start a run there, specify all options."
            )
        settings = None if has_options else record.from_dict(given)
        stack.enter_context(run.locked())
        if settings is None:
            verify_checksums(run.path)
            settings = record.of_run(run.options_file, given)
        is_resumed = resume and run.exists()
        if not is_resumed:
            run.check_new()
        if resume and not is_resumed:
            say(f"{run.name!r} contains no run to resume yet. Starting a new one.")
        if is_first():
            wait_for_all()
        wait_for_all()  # the first process may write now
        yield run, settings, is_resumed
        wait_for_all()  # the processes end together


def _view(run: RunFolder, path: pathlib.Path) -> RunFolder:
    """Return a folder with copies of the small files of a run, and with its checkpoints."""
    view = RunFolder(path)
    view.best = run.best
    path.mkdir()
    for file in run.path.glob("[!.]*"):
        if file.is_file():
            shutil.copy(file, path)
    if run.last.is_dir():
        view.last.symlink_to(run.last.resolve())
    return view


def _json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    # A killed process may have left the last line incomplete.
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(dict(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"Line {number} of {os.fspath(path)!r} is damaged.") from error
    return found
