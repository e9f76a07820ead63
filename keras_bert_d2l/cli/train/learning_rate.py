"""`--lr-find` of `pretrain` and `finetune`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import nonempty_path, panel
from keras_bert_d2l.progress import stage
from keras_bert_d2l.types import Tensor

LrFind = Annotated[
    Path | None,
    Parameter(
        help="Test learning rates instead of training: up to 100 steps with rising rates. Print "
        "the proposed rate and write the plot to this SVG file.",
        converter=nonempty_path,
        group=panel("Run"),
    ),
]


def report_learning_rate(
    model: "kb.BERTModel | kb.SequenceClassifier", batches: Iterable[Tensor], plot: Path
) -> None:
    """Print the proposal of `find_learning_rate` and write its plot."""
    with stage("Testing learning rates"):
        found = kb.find_learning_rate(model, batches)
    print(proposal(found))
    found.plot(plot)
    print(f"Plot: {plot}")


def proposal(found: "kb.RangeTest") -> str:
    """Return the proposed option and its reason in one line."""
    first, lowest, rate = found.smoothed[0], found.smoothed[found.best], found.rates[found.best]
    if found.proposal is None:
        return (
            f"No proposal: no learning rate up to {found.rates[-1]:.1g} lowers the loss, "
            f"{first:.3f}, in so few steps. Keep the default rate, or test a larger --batch-size."
        )
    return (
        f"Proposed: --learning-rate {found.proposal:.1e}. The loss falls from {first:.3f} to "
        f"{lowest:.3f} at {rate:.1e}; the test ended at {found.rates[-1]:.1e}."
    )
