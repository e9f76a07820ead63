"""Load the model that a command runs or exports."""

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from keras_bert_d2l.checkpoints.location import is_remote
from keras_bert_d2l.progress import stage
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:
    from keras_bert_d2l import Pretrained


def stage_of_loading(title: str, checkpoint: PathLike) -> contextlib.AbstractContextManager[object]:
    """Show the stage of a command that loads a checkpoint. Downloads show their own progress."""
    is_download = isinstance(checkpoint, str) and is_remote(checkpoint)
    return contextlib.nullcontext() if is_download else stage(title)


def load(model: PathLike, *, heads: bool = True, as_embedder: bool | None = False) -> "Pretrained":
    """Load the checkpoint of `--model`.

    Args:
        model: The checkpoint.
        heads: Whether to report missing weights of heads, on stderr.
        as_embedder: Whether to return a `TextEmbedder`. `None` means if the folder defines how to
            pool texts, as folders of sentence-transformers do.
    """
    title = "Loading TensorFlow and the model"
    with stage_of_loading(title, model), contextlib.redirect_stdout(sys.stderr):
        from keras_bert_d2l.checkpoints import loading
        from keras_bert_d2l.models.tasks import TextEmbedder

        if as_embedder:
            return loading.load_task(TextEmbedder, model, verbose=False)
        reported = loading.HEADS if heads else ()
        if as_embedder is None:
            return loading.load_as_defined(model, heads=reported)
        return loading.load_pretrained(model, heads=reported, verbose=False)


def load_embedder(model: PathLike) -> Any:
    """Return a `TextEmbedder`, for a plain BERT with the pooling of its folder, or the mean."""
    return load(model, as_embedder=True).model


def load_task(model: PathLike) -> tuple[Any, str]:
    """Load a fine-tuned model and return it with the name of its task.

    Raises:
        ValueError: The checkpoint does not contain a fine-tuned model.
    """
    loaded = load(model, heads=False, as_embedder=None).model
    from keras_bert_d2l.inference.evaluation.checks import TASK_MODELS

    if getattr(loaded, "task", None) in TASK_MODELS:
        return loaded, loaded.task
    raise ValueError(
        f"{os.fspath(model)!r} must contain a model for {', '.join(TASK_MODELS)}. Received: a "
        f"{type(loaded).__name__}; fine-tune it with `keras-bert-d2l finetune` first."
    )
