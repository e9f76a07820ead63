"""The folder of a pretraining run: what it holds, and the whole state of training, kept exactly.

- `run.yaml`: the options, `PretrainingOptions`;
- `config.json`, `vocab.txt`: the architecture and the vocabulary;
- `best/`, `last/`: checkpoints that `load_pretrained` reads, `best/` of the lowest held-out loss.
  `last/` holds the rest of the state beside: `optimizer.safetensors`, and `training_state.json`
  with the step and the seeds of dropout, which Keras itself keeps in no file;
- `metrics.jsonl`, `tensorboard/`: the figures of each evaluation.
"""

import json
import math
import os
import pathlib
import shutil
from typing import Any

import keras

from keras_bert_d2l.checkpoints.formats.native import CONFIG_FILE, VOCAB_FILE
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.callbacks import METRICS_FILE, Progress
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.variables import (
    assign,
    damaged,
    read_variables,
    sync,
    value_of,
    write_variables,
)

OPTIONS_FILE = "run.yaml"
BEST, LAST = "best", "last"
_OPTIMIZER_FILE, _STATE_FILE = "optimizer.safetensors", "training_state.json"
_STATE_TYPES: dict[str, Any] = {
    "step": int,
    "best_loss": float | None,
    "store_fingerprint": str,
    "seeds": list,
}


class RunFolder:
    """The folder of one pretraining run.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        self.options_file = self.path / OPTIONS_FILE
        self.config_file = self.path / CONFIG_FILE
        self.vocab_file = self.path / VOCAB_FILE
        self.metrics_file = self.path / METRICS_FILE
        self.best, self.last = self.path / BEST, self.path / LAST

    def check_new(self) -> None:
        """Makes the folder, unless there is an empty one.

        Raises:
            FileExistsError: The folder holds a run, or anything else.
            OSError: The folder cannot be written.
        """
        name = os.fspath(self.path)
        if self.holds_run():
            raise FileExistsError(
                f"{name!r} holds a run already, at step {self._read_state()['step']:,}: resume it, "
                "or name another folder for the new one."
            )
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise FileExistsError(
                f"{name!r} is not empty, and holds no run of pretraining: name a new or an empty "
                "folder."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        if not os.access(self.path, os.W_OK):
            raise PermissionError(f"{name!r} cannot be written: name another folder for the run.")

    def create(self, model: BERTModel, tokenizer: Tokenizer) -> None:
        """Writes the architecture and the vocabulary."""
        model.bert_config.to_json(self.config_file)
        tokenizer.vocab.to_file(self.vocab_file)

    def write_options(self, options: PretrainingOptions) -> None:
        """Writes `run.yaml`, which makes the folder one of a run."""
        options.to_yaml(self.options_file)

    def open(self) -> PretrainingOptions:
        """Returns the options of the run, after mending what a killed process left behind.

        Raises:
            FileNotFoundError: The folder holds no run of pretraining.
            ValueError: `run.yaml` is damaged.
        """
        if not self.holds_run():
            raise FileNotFoundError(
                f"{os.fspath(self.path)!r} holds no run that could be resumed: it must have the "
                f"{OPTIONS_FILE} and the {CONFIG_FILE} that `pretrain` writes."
            )
        options = PretrainingOptions.read_yaml(self.options_file)
        for folder in (self.best, self.last):
            mend(folder)
        try:
            return PretrainingOptions.from_dict(options)
        except ValueError as error:
            raise ValueError(f"{os.fspath(self.options_file)!r}: {error}") from error

    def save_best(self, model: BERTModel, tokenizer: Tokenizer) -> None:
        """Writes `best/`."""
        sync(model)
        save_pretrained(model, self.best, tokenizer)

    def save_last(
        self, model: BERTModel, tokenizer: Tokenizer, progress: Progress, store_fingerprint: str
    ) -> None:
        """Writes `last/`: the model and everything that the steps to come depend on."""
        sync(model)
        state = {
            "step": progress.step,
            "best_loss": progress.best_loss if math.isfinite(progress.best_loss) else None,
            "store_fingerprint": store_fingerprint,
            "seeds": [value_of(seed).tolist() for seed in _seeds(model)],
        }
        with replacing_folder(self.last) as folder:
            save_pretrained(model, folder, tokenizer)
            write_variables(folder / _OPTIMIZER_FILE, model.optimizer.variables)
            write_text(folder / _STATE_FILE, json.dumps(state) + "\n")

    def restore(self, model: BERTModel, progress: Progress, store_fingerprint: str) -> None:
        """Gives a compiled model with the weights of `last/` the rest of its state.

        Raises:
            ValueError: A file is damaged, or the text is another one than the run has seen.
        """
        state = self._read_state()
        if state["store_fingerprint"] != store_fingerprint:
            raise ValueError(
                f"The text of the run {os.fspath(self.path)!r} has changed since it began, or its "
                "token store was built with other options, so that it cannot be resumed: put the "
                f"text back as it was, or begin a new run with init={os.fspath(self.last)!r}."
            )
        progress.step = state["step"]
        progress.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]
        assign(_seeds(model), dict(enumerate(state["seeds"])), self.last / _STATE_FILE)
        read_variables(self.last / _OPTIMIZER_FILE, model.optimizer.variables)
        self._forget_metrics_after(progress.step)

    def metrics(self) -> list[dict[str, Any]]:
        """Returns the figures of each evaluation; what was no finite number is not a number."""
        lines = [json.loads(line) for line in self._metrics_lines()]
        return [{k: math.nan if v is None else v for k, v in line.items()} for line in lines]

    def holds_run(self) -> bool:
        """Whether the folder holds a run of pretraining; fine-tuning writes a `run.yaml`, too."""
        return self.options_file.is_file() and self.config_file.is_file()

    def _forget_metrics_after(self, step: int) -> None:
        """Drops the figures of steps that are to be done again."""
        kept = [line for line in self._metrics_lines() if json.loads(line)["step"] <= step]
        write_text(self.metrics_file, "".join(f"{line}\n" for line in kept))

    def _metrics_lines(self) -> list[str]:
        if not self.metrics_file.exists():
            return []
        # A process that was killed may have written a part of the last line.
        return self.metrics_file.read_text(encoding="utf-8").split("\n")[:-1]

    def _read_state(self) -> dict[str, Any]:
        path = self.last / _STATE_FILE
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, FileNotFoundError) as error:
            raise damaged(path, error) from error
        if not isinstance(state, dict) or state.keys() != _STATE_TYPES.keys():
            raise damaged(path, f"it must hold exactly the keys {', '.join(_STATE_TYPES)}")
        for key, kind in _STATE_TYPES.items():
            if not isinstance(state[key], kind):
                raise damaged(path, f"its {key} is {state[key]!r:.80}")
        return state


def checkpoint_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the best checkpoint of the folder of a run; any other path is returned as it is.

    Args:
        path: The folder of a run of pretraining or of fine-tuning, or a checkpoint.

    Raises:
        FileNotFoundError: The run ended before its first checkpoint.
    """
    run = RunFolder(path)
    if not run.options_file.is_file() and not run.metrics_file.is_file():
        return run.path
    best, last = map(_in_place_or_aside, (run.best, run.last))
    if best.is_dir():
        return best
    if not (last / CONFIG_FILE).is_file():  # fine-tuning keeps the state of training alone
        raise FileNotFoundError(
            f"The run {os.fspath(path)!r} ended within its first epoch and has no checkpoint yet: "
            "go on with it first."
        )
    return last


def mend(folder: pathlib.Path) -> None:
    """Ends what a process that was killed while replacing `folder` had begun."""
    old = _in_place_or_aside(folder)
    if old != folder:  # it was moved aside, and the new one not yet in its place
        os.replace(old, folder)
    for ending in ("old", "tmp"):
        for left_over in folder.parent.glob(f".{folder.name}.*.{ending}"):
            shutil.rmtree(left_over, ignore_errors=True)


def _in_place_or_aside(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder, or where a process that is replacing it, or was killed, has put it."""
    aside = sorted(folder.parent.glob(f".{folder.name}.*.old"))
    return aside[-1] if aside and not folder.exists() else folder


def _seeds(model: BERTModel) -> list[keras.Variable]:
    """The states of the generators of dropout, in the order of the layers."""
    return [v for v in model.non_trainable_variables if v.name == "seed_generator_state"]
