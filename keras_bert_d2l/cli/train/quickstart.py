"""`keras-bert-d2l quickstart`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from keras_bert_d2l import quickstart as demo
from keras_bert_d2l.cli.arguments import Out, PositiveInt


def quickstart(
    *,
    minutes: Annotated[float, Parameter(validator=Number(gte=0.1))] = demo.DEFAULT_MINUTES,
    steps: PositiveInt | None = None,
    run_dir: Path = demo.RUNS,
    out: Out = demo.SAVED_MODELS,
) -> None:
    """Run the whole workflow in minutes: from raw text to a model that accepts strings.

    Learns a vocabulary from the docstrings of the installed tensorflow, keras and numpy, pretrains
    a small BERT on them and exports it as a SavedModel. Then it predicts two masked words with
    that model, in a process that does not import this package. Nothing is downloaded.

    Args:
        minutes: Training time in minutes, which determines the number of steps.
        steps: Train for this many steps instead.
        run_dir: Folder for the vocabulary and the numbered runs.
        out: Folder for the numbered versions of the exported model.
    """
    print("Importing TensorFlow", flush=True)
    demo.run(minutes=minutes, steps=steps, run_dir=run_dir, out=out)
