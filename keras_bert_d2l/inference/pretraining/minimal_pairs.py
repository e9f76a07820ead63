"""`minimal_pairs`: measure whether a model prefers grammatical sentences.

N: number of pairs.
"""

import dataclasses
import os
import pathlib

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.checks import check_bool, check_integer, has_surrogate, shown
from keras_bert_d2l.data.tasks.readers.cells import as_string
from keras_bert_d2l.data.tasks.readers.memory import InMemory, memory_file
from keras_bert_d2l.data.tasks.readers.tables import read_table
from keras_bert_d2l.data.tasks.readers.text_file import read_file
from keras_bert_d2l.inference.asked_model import asked_model
from keras_bert_d2l.inference.pretraining.perplexity import pseudo_log_likelihoods
from keras_bert_d2l.inference.results import Result
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike

_SENTENCES, _UID = ("sentence_good", "sentence_bad"), "UID"
_RESAMPLES = 10_000

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True, repr=False)
class MinimalPairs(Result):
    """How often a model prefers the grammatical sentence of a pair.

    Attributes:
        accuracy: Share of the pairs whose grammatical sentence has the higher
            pseudo-log-likelihood. A tie counts as wrong.
        interval: The 95% bootstrap interval of the accuracy, for resampled pairs.
        num_pairs: Number of pairs, N.
        by_uid: The accuracy of each phenomenon, in the order of the data. Empty if the pairs have
            no `UID`.
        interval_by_uid: The 95% bootstrap interval of each phenomenon.
        scores: The pseudo-log-likelihoods of both sentences of each pair, the grammatical one
            first, float64 `(N, 2)`.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    scores = np.array([[-9.5, -12.0]])
    kb.MinimalPairs(1.0, (1.0, 1.0), 1, {"agreement": 1.0}, {"agreement": (1.0, 1.0)}, scores)
    ```
    """

    accuracy: float
    interval: Interval
    num_pairs: int
    by_uid: dict[str, float]
    interval_by_uid: dict[str, Interval]
    scores: np.ndarray


def minimal_pairs(
    model: BERTModel | PathLike,
    pairs: PathLike | InMemory,
    *,
    word_wise: bool = False,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 256,
    seed: int = 0,
) -> MinimalPairs:
    """Measure how often a model prefers the grammatical sentence of a pair, as in BLiMP.

    A model prefers the sentence with the higher pseudo-log-likelihood: the sum of the log
    probabilities of its tokens, each masked once in its own row and predicted from all others. A
    sentence of n tokens therefore costs n rows.

    Source: Salazar et al. 2020 (Masked Language Model Scoring), sections 2 and 3.2; Warstadt et al.
    2020 (BLiMP); for `word_wise`, Kauf and Ivanova 2023 (A Better Way to Do Masked Language Model
    Scoring), "PLL-word-l2r".

    Args:
        model: The model, or the path or the name of its checkpoint.
        pairs: The pairs, with the columns `sentence_good` and `sentence_bad` and, optionally,
            `UID`, the name of the phenomenon: a file of JSON lines, CSV or TSV with a header (also
            .gz and .xz), a list of dictionaries, a DataFrame or a Dataset. Other columns are
            ignored.
        word_wise: Whether to mask, with each token, also the following tokens of its word. Rare
            words of several tokens are then no longer easy to predict from their own parts.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Masked copies of sentences per batch.
        seed: Seed of the bootstrap intervals.

    Raises:
        FileNotFoundError: There is no checkpoint or no file of pairs.
        ValueError: A pair lacks a sentence, a sentence is longer than the model's `max_len`, the
            model's checkpoint lacked the MLM head, or an option is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sits sit".split()))
    model = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    pairs = [{"sentence_good": "the cat sits", "sentence_bad": "the cat sit", "UID": "agreement"}]
    found = kb.minimal_pairs(model, pairs, tokenizer=tokenizer)
    found.accuracy, found.by_uid["agreement"]
    ```
    """
    model, tokenizer = asked_model(model, BERTModel, tokenizer=tokenizer)
    check_head(model, "mlm")
    check_bool("word_wise", word_wise)
    check_integer("batch_size", batch_size, 1)
    check_integer("seed", seed, 0)
    sentences, uids = _read_pairs(pairs)
    sums, _ = pseudo_log_likelihoods(
        model, tokenizer, sentences, batch_size=batch_size, word_wise=word_wise
    )
    scores = sums.reshape(-1, 2)
    is_right, rng = scores[:, 0] > scores[:, 1], np.random.default_rng(seed)
    groups = {uid: is_right[np.array(uids) == uid] for uid in dict.fromkeys(uids) if uid}
    return MinimalPairs(
        float(is_right.mean()),
        _interval(is_right, rng),
        len(scores),
        {uid: float(group.mean()) for uid, group in groups.items()},
        {uid: _interval(group, rng) for uid, group in groups.items()},
        scores,
    )


def _read_pairs(pairs: PathLike | InMemory) -> tuple[list[str], list[str]]:
    """Return the sentences, those of a pair one after the other, and the UID of each pair or ""."""
    if isinstance(pairs, str | os.PathLike):
        file = read_file(pathlib.Path(pairs))
    else:
        file = memory_file(pairs, "pairs")
    if not file.text.strip():
        name = os.fspath(file.path)
        raise ValueError(f"`pairs` must have at least one pair. Received: {name!r} is empty.")
    table = read_table(file, has_header=lambda first: True)
    sentences, uids = [], []
    for row in table.rows:
        cells = dict(zip(table.columns or (), row.cells, strict=False))
        for name in _SENTENCES:
            sentence = cells.get(name)
            if not isinstance(sentence, str) or not sentence.strip():
                raise file.error(
                    row.line,
                    f"a pair must have the texts {_SENTENCES[0]!r} and {_SENTENCES[1]!r}. "
                    f"Received: {name}={shown(sentence)}.",
                )
            if has_surrogate(sentence):
                raise file.error(
                    row.line,
                    "a sentence must not have half of a surrogate pair, which UTF-8 cannot encode. "
                    f"Received: {name}={shown(sentence)}. Remove the character.",
                )
            sentences.append(sentence)
        uids.append(as_string(cells.get(_UID)))
    if not uids:
        name = os.fspath(file.path)
        raise ValueError(f"`pairs` must have at least one pair. Received: {name!r} has none.")
    return sentences, uids


def _interval(is_right: np.ndarray, rng: np.random.Generator) -> Interval:
    """Return the 95% percentile interval of the accuracy over resampled pairs."""
    # The number of successes among n outcomes that are drawn with replacement is binomial.
    drawn = rng.binomial(len(is_right), is_right.mean(), _RESAMPLES) / len(is_right)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)
