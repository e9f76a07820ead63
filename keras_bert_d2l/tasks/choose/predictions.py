"""`choose`: find the choice that fits a text best; its evaluation, and the signature of exports.

B: texts in a batch, N: number of choices of a text.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import shown
from keras_bert_d2l.contract.task import Options
from keras_bert_d2l.inference.evaluation import Evaluation, evaluation_of, row_options
from keras_bert_d2l.inference.prediction import (
    Result,
    Texts,
    asked_model,
    one_per_text,
    rows_of,
    text_outputs,
)
from keras_bert_d2l.signatures.signature import CHOICES, TEXT, Answer, TextSignatures
from keras_bert_d2l.tasks.choose.examples import ChoiceExamples
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike


@dataclasses.dataclass(frozen=True, repr=False)
class Choice(Result):
    """The choice that fits a text best.

    Attributes:
        index: Its position among the choices, from 0.
        choice: The choice.
        score: Its probability.
        scores: The probabilities of all choices, which add up to 1.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Choice(index=1, choice="the door", score=0.8, scores=(0.2, 0.8))
    ```
    """

    index: int
    choice: str
    score: float
    scores: tuple[float, ...]


@one_per_text(Choice)
def choose(
    model: MultipleChoice | PathLike,
    texts: str | Texts,
    choices: Sequence[str] | Sequence[Sequence[str]],
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
    truncate: bool = True,
) -> Choice | list[Choice]:
    """Find the choice that fits each text best, such as the continuation of a story.

    As in training, a text and a choice that are too long together are truncated, the longer one
    first.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call.
        texts: A text, or a list of texts. For a question about an article, the article.
        choices: The N choices for the text, or a list of choices for each text; N may differ. For a
            question about an article, each begins with the question.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Pairs of a text and a choice per batch.
        max_len: Maximum number of tokens in a row, T. `None` means the model's maximum.
        truncate: Whether to truncate texts that are too long; a warning reports how many. With
            `False`, they raise an error.

    Returns: one `Choice` per text, in the order of the texts; for a single text, only its `Choice`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, a text has fewer than
            two choices, `texts` and `choices` differ in length, or a number is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] she opens the door sky".split())
    bert = kb.BERTModel(len(vocab), 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = kb.MultipleChoice(bert, tokenizer=kb.Tokenizer(vocab))
    found = kb.choose(model, "she opens", ["the door", "the sky"])
    print(found.choice, found.score)
    ```
    """
    model, tokenizer = asked_model(model, MultipleChoice, tokenizer=tokenizer)
    first = text_list("texts", texts)
    of_texts = _choices_of_texts(first, [choices] if isinstance(texts, str) else choices)
    repeated = [text for text, some in zip(first, of_texts, strict=True) for _ in some]
    flat = list(itertools.chain.from_iterable(of_texts))
    outputs = text_outputs(model, tokenizer, repeated, flat, batch_size, max_len, truncate)
    sizes = np.array([*map(len, of_texts)])
    is_choice = np.arange(max(sizes, default=0)) < sizes[:, None]
    logits = np.zeros(is_choice.shape, "float32")
    logits[is_choice] = list(outputs)
    found: list[Choice] = []
    answers = rows_of(model.answer(logits, is_choice)) if of_texts else []
    for some, one in zip(of_texts, answers, strict=True):
        best, scores = one["index"], tuple(one["scores"][: len(some)])
        found.append(Choice(best, some[best], one["score"], scores))
    return found[0] if isinstance(texts, str) else found


def _choices_of_texts(texts: list[str], choices: object) -> list[list[str]]:
    """Return the choices of each text as lists."""
    of_texts = text_list("choices", choices, words=True)
    if len(of_texts) != len(texts):
        raise ValueError(
            f"`choices` must have a list of choices for each of the {len(texts)} texts. Received: "
            f"{len(of_texts)}."
        )
    for some in of_texts:
        if isinstance(some, str) or len(some) < 2:
            raise ValueError(
                f"Each text must have a list of at least two choices. Received: {shown(some)}."
            )
    return of_texts


def evaluate_choices(
    model: MultipleChoice, examples: ChoiceExamples, options: Options
) -> Evaluation:
    """Evaluate choices."""
    found = choose(model, examples.texts, examples.choices, **row_options(options))
    pairs = zip(found, examples.labels or (), strict=True)
    decisions = [(one.score, one.index == label) for one, label in pairs]
    accuracy = sum(is_right for _, is_right in decisions) / len(found)
    return evaluation_of(examples, {"accuracy": accuracy}, found, decisions=decisions)


class ChoiceSignatures(TextSignatures):
    """Signature of a `MultipleChoice` model. The answers match `keras_bert_d2l.choose`."""

    specs = (TEXT, CHOICES)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the best choices.

        Args:
            *texts: `text`, strings `(B,)`, and `choices`, strings `(B, N)`. If texts have different
                numbers of choices, pad with empty strings, whose scores are 0.

        Returns: `choice`, strings, `index`, int32, and `score`, float32, each `(B,)`; `scores`,
            float32 `(B, N)`; and `truncated`, bool `(B,)`, whether the text or a choice was.
        """
        choices = texts[1]
        rows, shape = self.preprocess.flat_rows(*texts)
        is_choice = choices != ""
        truncated = tf.reshape(rows["num_tokens"] > self.preprocess.max_len(2), shape)
        logits = tf.reshape(self.run(**self.padded(rows))["logits"], shape)
        answer = cast(MultipleChoice, self.run.model).answer(logits, is_choice)
        answer["choice"] = tf.gather(choices, answer["index"], batch_dims=1)
        return {**answer, "truncated": tf.reduce_any(truncated & is_choice, axis=1)}
