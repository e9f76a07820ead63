"""`keras-bert-d2l quickstart`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt
from cyclopts.validators import Number

from keras_bert_d2l import quickstart as demo
from keras_bert_d2l.cli.arguments import Out


def quickstart(
    *,
    minutes: Annotated[float, Parameter(validator=Number(gte=0.1))] = demo.DEFAULT_MINUTES,
    steps: PositiveInt | None = None,
    run_dir: Path = demo.RUNS,
    out: Out = demo.SAVED_MODELS,
) -> None:
    """Go the whole way in minutes: from raw text to a model that answers strings.

    Learns a vocabulary from the docstrings of the installed tensorflow, keras and numpy, pretrains
    a small BERT on them and exports it as a SavedModel. Then it asks that model for two masked
    words, in a process that does not import this package. Nothing is downloaded.

    Args:
        minutes: Minutes to train; the number of steps is chosen to fit.
        steps: Train for this many steps instead.
        run_dir: Folder of the vocabulary and of the numbered runs.
        out: Folder of the numbered versions of the exported model.
    """
    print("Importing TensorFlow", flush=True)
    demo.run(minutes=minutes, steps=steps, run_dir=run_dir, out=out)
