"""Save and restore the training state of a pretraining run, so that it resumes exactly.

`last/` is a checkpoint with two additional files: `optimizer.safetensors`, and
`training_state.json` with the step, the lowest loss, the fingerprint of the text, and the dropout
seeds, which Keras does not save.
"""

import dataclasses
import json
import math
import os
from typing import TypedDict, cast, get_type_hints

import keras

from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.callbacks import Progress
from keras_bert_d2l.training.run_folder import OPTIMIZER_FILE, STATE_FILE, RunFolder
from keras_bert_d2l.training.variable_files import (
    assign,
    damaged,
    read_variables,
    sync,
    write_variables,
)


@dataclasses.dataclass
class PretrainingProgress(Progress):
    """Progress of a pretraining run.

    Attributes:
        step: Number of completed optimizer steps.
        best_loss: Lowest held-out loss so far.
    """

    best_loss: float = math.inf


class _State(TypedDict):
    """The content of `training_state.json`."""

    step: int
    best_loss: float | None
    store_fingerprint: str
    seeds: list


def save_state(
    run: RunFolder,
    model: BERTModel,
    tokenizer: Tokenizer,
    progress: PretrainingProgress,
    store_fingerprint: str,
) -> None:
    """Write the model and the complete training state to `last/`."""
    sync(model)
    state: _State = {
        "step": progress.step,
        "best_loss": progress.best_loss if math.isfinite(progress.best_loss) else None,
        "store_fingerprint": store_fingerprint,
        "seeds": [keras.ops.convert_to_numpy(seed).tolist() for seed in _seeds(model)],
    }
    with replacing_folder(run.last) as folder:
        save_pretrained(model, folder, tokenizer)
        write_variables(folder / OPTIMIZER_FILE, model.optimizer.variables)
        write_text(folder / STATE_FILE, json.dumps(state) + "\n")


def restore_state(run: RunFolder, model: BERTModel, store_fingerprint: str) -> PretrainingProgress:
    """Restore the optimizer and dropout state.

    The model must be compiled and have the weights of `last/`.

    Returns: the progress of the run.

    Raises:
        ValueError: A file is damaged, or the text has changed since the run started.
    """
    state = _read(run)
    if state["store_fingerprint"] != store_fingerprint:
        raise ValueError(
            f"The text of the run {os.fspath(run)!r} has changed since it started, or its "
            "token store was built with different options, so the run cannot be resumed. Restore "
            f"the text, or start a new run with init={os.fspath(run.last)!r}."
        )
    assign(_seeds(model), dict(enumerate(state["seeds"])), run.state_file)
    read_variables(run.last / OPTIMIZER_FILE, model.optimizer.variables)
    run.drop_metrics_after(state["step"])
    best_loss = math.inf if state["best_loss"] is None else state["best_loss"]
    return PretrainingProgress(state["step"], best_loss)


def _read(run: RunFolder) -> _State:
    state = run.read_state()
    types = get_type_hints(_State)
    if state.keys() != types.keys():
        raise damaged(run.state_file, f"it must have exactly the keys {', '.join(types)}")
    for key, kind in types.items():
        if not isinstance(state[key], kind):
            raise damaged(run.state_file, f"its {key} is {state[key]!r:.80}")
    return cast(_State, state)


def _seeds(model: BERTModel) -> list[keras.Variable]:
    """Return the states of the dropout generators, in the order of the layers."""
    return [v for v in model.non_trainable_variables if v.name == "seed_generator_state"]
