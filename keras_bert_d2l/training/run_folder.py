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
import shutil

from keras_bert_d2l.checkpoints.formats.native import CONFIG_FILE, VOCAB_FILE
from keras_bert_d2l.files import read_json_object, write_text
from keras_bert_d2l.training.variable_files import damaged
from keras_bert_d2l.types import PathLike

STATE_FILE, OPTIMIZER_FILE = "training_state.json", "optimizer.safetensors"


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
        return self.options_file.is_file() and self.config_file.is_file()

    def is_unfinished(self) -> bool:
        """Whether the creation of a pretraining run was interrupted. It writes `run.yaml` last."""
        later = (self.options_file, self.metrics_file, self.best)
        return (self.last / CONFIG_FILE).is_file() and not any(file.exists() for file in later)

    def repair(self) -> None:
        """Complete the replacement of a checkpoint if a process was killed during it."""
        for folder in (self.best, self.last):
            if (old := _in_place_or_aside(folder)) != folder:  # the new one is not in place
                os.replace(old, folder)
            for ending in ("old", "tmp"):
                for leftover in self.path.glob(f".{folder.name}.*.{ending}"):
                    shutil.rmtree(leftover, ignore_errors=True)

    def read_state(self) -> dict[str, object]:
        """Return the JSON part of the training state.

        Raises:
            ValueError: The file is missing or damaged.
        """
        try:
            return read_json_object(self.state_file)
        except (ValueError, OSError) as error:
            raise damaged(self.state_file, error) from error

    def check_new(self) -> None:
        """Raise `FileExistsError` unless the folder can be used for a new run.

        A `run.yaml` alone is allowed, because fine-tuning on files writes it first. So is a
        pretraining run whose creation was interrupted: there is nothing to resume.
        """
        if self.is_unfinished():
            return
        name = os.fspath(self.path)
        if self.state_file.is_file():
            step = self.read_state().get("step")
            reached = "" if step is None else f" at step {step}"
            raise FileExistsError(
                f"{name!r} already contains a run{reached}. Resume it (`resume=True`, or "
                "`--resume` on the command line), or choose a different folder for the new run."
            )
        files = self.path.iterdir() if self.path.is_dir() else [self.path]
        if self.path.exists() and any(file != self.options_file for file in files):
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
        """Return the metrics of each evaluation, with NaN for values that are not finite."""
        lines = [json.loads(line) for line in self._metrics_lines()]
        return [{k: math.nan if v is None else v for k, v in line.items()} for line in lines]

    def drop_metrics_after(self, step: int) -> None:
        """Remove the metrics of later steps, which are about to be repeated."""
        kept = [line for line in self._metrics_lines() if json.loads(line)["step"] <= step]
        write_text(self.metrics_file, "".join(f"{line}\n" for line in kept))

    def _metrics_lines(self) -> list[str]:
        if not self.metrics_file.exists():
            return []
        # A killed process may have left the last line incomplete.
        return self.metrics_file.read_text(encoding="utf-8").split("\n")[:-1]


def checkpoint_folder(path: PathLike) -> pathlib.Path:
    """Return the best checkpoint of a run. Any other path is returned unchanged.

    Args:
        path: The folder of a pretraining or fine-tuning run, or a checkpoint.

    Raises:
        FileNotFoundError: The run was stopped before its first checkpoint.
    """
    run = RunFolder(path)
    if not run.options_file.is_file() and not run.metrics_file.is_file():
        return run.path
    # Change nothing: the files may belong to a process that is still training.
    best, last = map(_in_place_or_aside, (run.best, run.last))
    if best.is_dir():
        return best
    if not (last / CONFIG_FILE).is_file():  # `last/` of a fine-tuning run is not a checkpoint
        raise FileNotFoundError(
            f"The run {os.fspath(path)!r} has no checkpoint yet, because its first epoch is not "
            "complete. Resume it first, if it was stopped."
        )
    return last


def _in_place_or_aside(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder, or its backup if a process is replacing the folder."""
    aside = sorted(folder.parent.glob(f".{folder.name}.*.old"))
    return aside[-1] if aside and not folder.exists() else folder
