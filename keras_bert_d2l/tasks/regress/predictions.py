"""`regress`: predict the scores of texts.

B: number of texts, T: tokens per row, C: number of scores.
"""

import dataclasses
from typing import Unpack, overload

from keras_bert_d2l.inference.asked_model import asked_model
from keras_bert_d2l.inference.results import Result, ResultList
from keras_bert_d2l.inference.texts import RowOptions, Texts, text_outputs
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


@overload
def regress(
    model: SequenceRegressor | PathLike,
    texts: str,
    texts_b: str | None = None,
    **options: Unpack[RowOptions],
) -> Regression: ...


@overload
def regress(
    model: SequenceRegressor | PathLike,
    texts: Texts,
    texts_b: Texts | None = None,
    **options: Unpack[RowOptions],
) -> list[Regression]: ...


def regress(
    model: SequenceRegressor | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
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

    Returns: one `Regression` per text, in the order of the texts; for a single text, only its
        `Regression`.

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
    found: list[Regression] = ResultList()
    for outputs in text_outputs(model, tokenizer, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, outputs.astype("float64").tolist(), strict=True))
        found.append(Regression(scores[model.labels[0]], scores))
    return found[0] if isinstance(texts, str) else found
