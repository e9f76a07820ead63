"""Pairs of texts that are similar, and the labels from which a model learns it.

N: examples.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from keras_bert_d2l.contract.task import EncodingOptions
from keras_bert_d2l.data.tasks.examples import Label
from keras_bert_d2l.data.tasks.texts import TextExamples

if TYPE_CHECKING:
    import numpy as np

    from keras_bert_d2l.data.tasks.rows import Fields
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class PairExamples(TextExamples):
    """Pairs of texts from which a `TextEmbedder` learns which texts are similar.

    Args:
        texts: N texts, the anchors.
        texts_b: The text that belongs to each anchor, such as the answer to a question.
        negatives: A text that does not belong to each anchor, although it looks similar. Optional.
        labels: How similar the texts of each pair are, as numbers on any scale. Without scores,
            all pairs are similar. With negatives, margins: by how much the score of each pair is
            higher than that of its anchor and its negative, according to a larger model.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: `texts_b` is missing.

    Example:

        >>> import keras_bert_d2l as kb
        >>> pairs = kb.PairExamples(texts=["who wrote it?"], texts_b=["ada did"])
        >>> len(pairs), pairs.has_labels
        (1, True)
    """

    sequences: ClassVar[tuple[str, ...]] = ("texts", "texts_b", "negatives", "labels")

    negatives: tuple[str, ...] | None = None
    task: str = "embed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.texts_b is None:
            raise ValueError("`texts_b` must have the second text of each pair. Received: None.")

    @property
    def kind(self) -> str:
        """What they are, for the choice of a loss and for messages."""
        kind = "pairs" if self.negatives is None else "triplets"
        return kind if self.labels is None else f"{kind} with scores"

    @property
    def are_scored(self) -> bool:
        return self.kind == "pairs with scores"

    @property
    def has_labels(self) -> bool:
        return True  # which texts are pairs is all that a model needs

    @property
    def have_pairs_in_rows(self) -> bool:
        return False  # each text is a row of its own


def encoded_pairs(
    examples: PairExamples, tokenizer: "Tokenizer", options: EncodingOptions
) -> "Fields":
    """Encode each text of a pair, or of a triplet, as a row of its own, one after the other."""
    import numpy as np

    from keras_bert_d2l.data.tasks.rows import encoded_texts

    sides = [side for side in (examples.texts, examples.texts_b, examples.negatives) if side]
    number, model = len(sides), options.model
    names = ("query", "document", "document")[:number]
    prompts = [model.prompt(name) if model else "" for name in names]
    lens = None
    if model and not model.include_prompt:
        of_sides = [model.prompt_len(tokenizer, prompt, options.max_len) for prompt in prompts]
        lens = np.tile(np.array(of_sides, np.int32), len(examples))
    together = zip(*sides, strict=True)
    texts = TextExamples(
        texts=tuple(
            prompt + text
            for example in together
            for prompt, text in zip(prompts, example, strict=True)
        )
    )
    fields = encoded_texts(texts, tokenizer, options)
    full_lengths = fields["full_lengths"].reshape(-1, number)
    return {
        **fields,
        "labels": _cosines_or_groups(examples, number),
        "examples": np.arange(len(texts), dtype=np.int32) // number,
        "full_lengths": full_lengths.max(axis=1),
        "num_truncated": int((full_lengths > options.max_len).any(axis=1).sum()),
        "rows_together": True,
        "prompt_lens": lens,
    }


def _cosines_or_groups(examples: PairExamples, number: int) -> "np.ndarray":
    """Return the label of each of the N * `number` texts.

    With scores, these are the cosines to learn or, for triplets, scores whose differences are the
    margins. Otherwise, they are groups of similar texts: pairs that share a text are in the same
    group, so that no text is a negative of itself. The label of a negative is -1, or if its text is
    in a pair of group g, `negative_of(g)`.
    """
    import numpy as np

    from keras_bert_d2l.checks import negative_of

    if examples.labels is not None and examples.negatives is not None:
        margins = np.array(examples.labels, np.float32)
        return np.stack([0 * margins, margins, 0 * margins], axis=1).ravel()
    if examples.labels is not None:
        return np.repeat(as_cosines(examples.labels), number)
    texts = [*examples.texts, *(examples.texts_b or ()), *(examples.negatives or ())]
    ids = np.unique(np.array(texts, object), return_inverse=True)[1].reshape(number, -1)
    pairs, groups, before = ids[:2], np.arange(len(examples)), None
    while before is None or (groups != before).any():
        before = groups  # each text passes the smallest group of its pairs on to all of them
        of_text = np.full(ids.max() + 1, len(examples))
        np.minimum.at(of_text, pairs.ravel(), np.tile(groups, 2))
        groups = of_text[pairs].min(axis=0)
    labels = np.repeat(groups[:, np.newaxis], number, axis=1)
    of_negatives = of_text[ids[2:].T]
    is_in_a_pair = of_negatives < len(examples)
    labels[:, 2:] = np.where(is_in_a_pair, negative_of(of_negatives), -1)
    return labels.ravel().astype(np.int32)


def as_cosines(scores: Sequence[Label], like: Sequence[Label] | None = None) -> "np.ndarray":
    """Return scores as cosines, float32 `(N,)`.

    Args:
        scores: The scores.
        like: Scores that define the scale, such as those of the training data. If some are outside
            [-1, 1], their range is mapped to [0, 1], linearly. `None`: `scores`.
    """
    import numpy as np

    values = np.array(scores, np.float32)
    known = values if like is None else np.array(like, np.float32)
    if np.abs(known).max() > 1:
        lowest, highest = known.min(), known.max()
        values = (values - lowest) / max(highest - lowest, np.float32(1e-12))
    return np.clip(values, -1, 1)
