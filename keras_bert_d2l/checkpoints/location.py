"""Find the files of a checkpoint: a path, a run, a name on the Hub, or the package's own model.

A run folder contains `best/`, the checkpoint with the best evaluation, and `last/`, the state from
which the run resumes. This module imports neither TensorFlow nor Keras, so that `--help` is fast.
"""

import os
import pathlib

from keras_bert_d2l.checkpoints.hub import download, is_hub_name
from keras_bert_d2l.files import read_folder, url
from keras_bert_d2l.remote import files, is_complete, mirrored
from keras_bert_d2l.types import PathLike

RUN_FILE, BEST, LAST, STATE_FILE = "run.yaml", "best", "last", "training_state.json"
OWN_MODEL = "novels-small"
_OWN_FOLDER = pathlib.Path(__file__).parents[1] / "novels_small"
CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE = "config.json", "vocab.txt", "model.safetensors"


def find_checkpoint(checkpoint: PathLike) -> pathlib.Path:
    """Return the path of a checkpoint: of a run, its best one; of a name, the folder of the model.

    Args:
        checkpoint: A path, a URL of an object store, a name of the Hub, or `OWN_MODEL`. A string
            that is a local path is never taken as a name, and neither is a `pathlib.Path`.

    Raises:
        FileNotFoundError: The run was stopped before its first checkpoint, or there is neither a
            file nor a model of this name.
        OSError: The download failed.
        ValueError: The model of the Hub has no weights in safetensors.
    """
    if isinstance(checkpoint, str) and is_remote(checkpoint):
        return download(checkpoint)
    if isinstance(checkpoint, str) and is_own_model(checkpoint):
        return _OWN_FOLDER
    if (address := url(checkpoint)) is not None:
        return _mirrored_checkpoint(address)
    path = pathlib.Path(checkpoint)
    if not is_run(path):
        return path
    best, last = path / BEST, path / LAST
    if read_folder(best, best.is_dir):
        return best
    _check_last(last, path)
    return last


def _check_last(last: pathlib.Path, run: PathLike) -> None:
    """Raise `FileNotFoundError` unless `last/` is a checkpoint: that of fine-tuning is not."""
    if not read_folder(last, (last / CONFIG_FILE).is_file):
        raise FileNotFoundError(
            f"The run {os.fspath(run)!r} has no checkpoint yet, because its first epoch is not "
            "complete. Resume it first, if it was stopped."
        )


def _mirrored_checkpoint(address: str) -> pathlib.Path:
    """Return the local copy of a remote checkpoint, of a run as in `find_checkpoint`."""
    best, last = f"{address}/{BEST}", f"{address}/{LAST}"
    if is_complete(best):
        return mirrored(best)
    if not is_complete(last):
        return mirrored(address)
    local = mirrored(last)
    _check_last(local, address)
    return local


def is_run(path: PathLike) -> bool:
    """Return whether a local or remote folder is a pretraining or fine-tuning run."""
    address = url(path)

    def has(name: str) -> bool:
        if address is not None:
            return bool(files(f"{address}/{name}"))
        return pathlib.Path(path, name).exists()

    if has(WEIGHTS_FILE):  # a checkpoint with other checkpoints inside
        return False
    return any(map(has, (RUN_FILE, f"{LAST}/{STATE_FILE}", BEST)))


def is_remote(checkpoint: str) -> bool:
    """Return whether a checkpoint is the name of a model of the Hub and not a local path."""
    return is_hub_name(checkpoint) and not _is_local(checkpoint)


def is_own_model(checkpoint: str) -> bool:
    """Return whether a checkpoint is the name of the package's model and not a local path."""
    return checkpoint == OWN_MODEL and not _is_local(checkpoint)


def _is_local(checkpoint: str) -> bool:
    path = pathlib.Path(checkpoint)
    is_prefix = pathlib.Path(f"{checkpoint}.index").exists()  # of a TF1 checkpoint
    return is_prefix or read_folder(path, path.exists)
