"""`regress`: predict the scores of texts; their evaluation.

B: number of texts, T: tokens per row, C: number of scores.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import cast

import numpy as np

from keras_bert_d2l.contract.task import Options
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import (
    Evaluation,
    Mistake,
    evaluation_of,
    library,
    row_options,
)
from keras_bert_d2l.inference.prediction import (
    Result,
    Texts,
    asked_model,
    one_per_text,
    text_answers,
)
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike


@dataclasses.dataclass(frozen=True, repr=False)
class Regression(Result):
    """The predicted score, or scores, of a text.

    Attributes:
        score: The score, or the first one if there are several.
        scores: All scores by name.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Regression(score=3.8, scores={"similarity": 3.8})
    ```
    """

    score: float
    scores: dict[str, float]


@one_per_text(Regression)
def regress(
    model: SequenceRegressor | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
    truncate: bool = True,
) -> Regression | list[Regression]:
    """Predict the scores of texts or pairs of texts.

    Args:
        model: The regressor, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: As for `classify`.
        texts_b: As for `classify`.
        tokenizer: As for `classify`.
        batch_size: As for `classify`.
        max_len: As for `classify`.
        truncate: As for `classify`.

    Returns: one `Regression` per text, in the order of the texts; for a single text or pair,
        only its `Regression`.

    Raises:
        FileNotFoundError, ValueError: As for `classify`.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a cat sat".split()))
    bert = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    regressor = kb.SequenceRegressor(bert, tokenizer=tokenizer)
    kb.regress(regressor, "a cat", "a cat sat").score
    ```
    """
    model, tokenizer = asked_model(model, SequenceRegressor, tokenizer=tokenizer)
    answers = text_answers(model, tokenizer, texts, texts_b, batch_size, max_len, truncate)
    by_name = [dict(zip(model.labels, one["scores"], strict=True)) for one in answers]
    found = [Regression(scores[model.labels[0]], scores) for scores in by_name]
    return found[0] if isinstance(texts, str) and isinstance(texts_b, str | None) else found


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return the metrics for texts with scores.

    Args:
        gold: The correct score of each text.
        predicted: The predicted score of each text.

    Returns: `pearson` and `spearman`, the correlations of values and of ranks, which are 0 if
        either sequence is constant; and `mean_squared_error`.

    Raises:
        ImportError: scipy is not installed.
    """
    stats = library("scipy.stats")
    of_gold, of_predicted = np.asarray(gold, "float64"), np.asarray(predicted, "float64")
    scores = {"pearson": 0.0, "spearman": 0.0}
    if min(np.ptp(of_gold), np.ptp(of_predicted)) > 0:
        with warnings.catch_warnings():  # about values that are almost constant
            warnings.simplefilter("ignore")
            scores["pearson"] = float(stats.pearsonr(of_gold, of_predicted).statistic)
            scores["spearman"] = float(stats.spearmanr(of_gold, of_predicted).statistic)
    return {**scores, "mean_squared_error": float(np.square(of_gold - of_predicted).mean())}


def evaluate_scores(
    model: SequenceRegressor, examples: TextExamples, options: Options
) -> Evaluation:
    """Evaluate the scores of texts."""
    found = regress(model, examples.texts, examples.texts_b, **row_options(options))
    gold = cast("tuple[float, ...]", examples.labels)
    predicted = [one.score for one in found]
    mistakes = score_mistakes(examples, predicted, np.abs(np.subtract(predicted, gold)))
    return evaluation_of(examples, regression_scores(gold, predicted), found, mistakes)


def score_mistakes(
    examples: TextExamples, predicted: Sequence[float], errors: np.ndarray
) -> list[Mistake]:
    """Return the texts or pairs of texts whose predicted score has an error."""
    columns = examples.ids, examples.shown_texts, examples.labels or (), predicted, errors.tolist()
    return [
        Mistake(name, text, f"{score:g}", f"{one:.4g}", error)
        for name, text, score, one, error in zip(*columns, strict=True)
        if error
    ]
