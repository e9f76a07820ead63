"""The folder of a pretraining or fine-tuning run: its files and checkpoints.

- `run.yaml`: the options;
- `best/`: the checkpoint with the best evaluation, for `load_pretrained`;
- `last/`: the complete training state, from which an interrupted run resumes;
- `metrics.jsonl`, `tensorboard/`: the metrics of each evaluation.

A pretraining run also has `config.json` and `vocab.txt`, and its `last/` is also a checkpoint.
"""

import json
import math
import os
import pathlib
import shlex
from typing import Any

from keras_bert_d2l.checkpoints.formats.native import CONFIG_FILE, VOCAB_FILE
from keras_bert_d2l.files import CHECKSUMS, changed_files, read_folder, read_json_object, recover
from keras_bert_d2l.types import PathLike

STATE_FILE = "training_state.json"


class RunFolder:
    """Paths in the folder of a run, and operations on them.

    Args:
        path: The folder.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = pathlib.Path(path)
        self.options_file = self.path / "run.yaml"
        self.config_file = self.path / CONFIG_FILE
        self.vocab_file = self.path / VOCAB_FILE
        self.metrics_file = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.best, self.last = self.path / "best", self.path / "last"
        self.state_file = self.last / STATE_FILE

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def is_pretraining(self) -> bool:
        """Whether this is a pretraining run. Fine-tuning does not write `config.json` here."""
        return self.config_file.is_file()

    def repair(self) -> None:
        """Complete the replacement of a checkpoint if a process was killed during it."""
        for folder in (self.best, self.last):
            recover(folder)

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

    def check_new(self) -> None:
        """Raise `FileExistsError` unless a new run can be created in the folder.

        A new run begins with `run.yaml`, if it has one, and exists once it has a training state. If
        its creation was interrupted in between, there is nothing to resume, and it starts again.
        """
        name = os.fspath(self.path)
        if self.state_file.is_file():
            progress, _ = self.read_state()
            raise FileExistsError(
                f"{name!r} already contains a run at step {progress.get('step')}. Resume it "
                "(`resume=True`), or choose a different folder "
                "for the new run."
            )
        files = set(self.path.iterdir()) if self.path.is_dir() else {self.path}
        ours = {self.options_file, self.config_file, self.vocab_file}
        if self.path.exists() and files and (self.options_file not in files or files - ours):
            raise FileExistsError(
                f"{name!r} is not empty and does not contain a run. Choose a new or empty folder."
            )

    def make(self) -> None:
        """Create the folder.

        Raises:
            PermissionError: The folder is not writable.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not os.access(self.path, os.W_OK):
            raise PermissionError(
                f"{os.fspath(self.path)!r} is not writable. Choose a different folder for the run."
            )

    def metrics(self) -> list[dict[str, float]]:
        """Return the metrics of each evaluation, with NaN for values that are not finite.

        Raises:
            ValueError: `metrics.jsonl` is damaged.
        """
        if not self.metrics_file.exists():
            return []
        # A killed process may have left the last line incomplete.
        *lines, _ = self.metrics_file.read_text(encoding="utf-8").split("\n")
        try:
            found = [json.loads(line) for line in lines]
            return [{k: math.nan if v is None else v for k, v in m.items()} for m in found]
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{os.fspath(self.metrics_file)!r} is damaged: {error}.") from error

    def how_to_resume(self, command: str) -> str:
        """Return a sentence that explains how to resume the run.

        A run without `run.yaml` was started in Python and can only be resumed there.
        """
        if not self.options_file.is_file():
            return "Resume with `resume=True`."
        return f"Resume with: keras-bert-d2l {command} --resume {shlex.quote(os.fspath(self))}"


def damaged(path: pathlib.Path, reason: object) -> ValueError:
    """Return the error for a training state that cannot be read."""
    return ValueError(
        f"The training state at {os.fspath(path)!r} is damaged: {str(reason).rstrip('.')}. Start a "
        "new run from the weights of the last or best checkpoint; `pretrain` accepts a "
        "checkpoint as `init`."
    )


def checkpoint_folder(path: PathLike) -> pathlib.Path:
    """Return the best checkpoint of a run. Any other path is returned unchanged.

    Args:
        path: The folder of a pretraining or fine-tuning run, or a checkpoint.

    Raises:
        FileNotFoundError: The run was stopped before its first checkpoint.
    """
    run = RunFolder(path)
    if not any(path.exists() for path in (run.options_file, run.state_file, run.best)):
        return run.path
    if read_folder(run.best, run.best.is_dir):
        return run.best
    # `last/` of a fine-tuning run is not a checkpoint.
    if not read_folder(run.last, (run.last / CONFIG_FILE).is_file):
        raise FileNotFoundError(
            f"The run {os.fspath(path)!r} has no checkpoint yet, because its first epoch is not "
            "complete. Resume it first, if it was stopped."
        )
    return run.last
