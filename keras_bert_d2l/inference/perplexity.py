"""How well a model predicts each token of a text from the others, and what follows from it.

`pseudo_perplexity` measures texts, and `minimal_pairs` compares sentences. N: number of pairs.
"""

import dataclasses
import math
import os
import pathlib
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.checks import check_integer, shown
from keras_bert_d2l.data.tasks.readers.cells import as_string
from keras_bert_d2l.data.tasks.readers.tables import read_table
from keras_bert_d2l.data.tasks.readers.text_file import InMemory, memory_file, read_file
from keras_bert_d2l.inference.prediction import (
    Result,
    TextRows,
    Texts,
    asked_model,
    length_batches,
    one_per_text,
    padded_length,
    predict_batch,
)
from keras_bert_d2l.layers.kernels.fusion import cross_entropy
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.progress import stage
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import has_surrogate, text_list
from keras_bert_d2l.types import PathLike


def pseudo_log_likelihoods(
    model: BERTModel,
    tokenizer: Tokenizer,
    texts: list[str],
    *,
    batch_size: int,
    truncate: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the log probabilities of each text's tokens.

    Each token is masked in its own copy of the text. Copies of similar length form a batch, also if
    they belong to different texts.

    Args:
        model: The model.
        tokenizer: The tokenizer.
        texts: The texts.
        batch_size: Masked copies per batch.
        truncate: Whether to truncate texts that are too long, instead of raising an error.

    Returns: the sums, float64 `(texts,)`, and the numbers of predicted tokens, int `(texts,)`.

    Raises:
        ValueError: A text has no token to predict, or is too long with `truncate=False`.
    """
    vocab = tokenizer.vocab
    of_texts = TextRows(Preprocessor(model, tokenizer), [texts], truncate)
    rows = {name: np.asarray(values) for name, values in of_texts(0, len(texts)).items()}
    # Equal texts get equal results, which float errors in different batches would prevent.
    tokens, first, places = np.unique(
        rows["tokens"], axis=0, return_index=True, return_inverse=True
    )  # (different texts, T), (different texts,), (texts,)
    lengths = rows["valid_lens"][first]
    not_predicted = (vocab.pad_id, vocab.cls_id, vocab.sep_id, vocab.mask_id)
    is_predicted = ~np.isin(tokens, not_predicted)  # (different texts, T)
    counts = is_predicted.sum(axis=1)
    if not counts.all():
        text = texts[int(first[counts.argmin()])]
        raise ValueError(f"Each text must have a token to predict. Received: {shown(text)}.")
    sums = np.zeros(len(tokens))
    is_tensorflow = keras.backend.backend() == "tensorflow"
    step = 1 if is_tensorflow else 8
    # A second batch uses the cores that the first one leaves idle between its matrix products.
    # Under JAX, calls may not overlap: each takes over the memory of the model's state.
    at_a_time = 2 if is_tensorflow else 1
    numbers, positions = np.nonzero(is_predicted)  # one masked copy per predicted token

    def losses_of(chosen_copies: np.ndarray) -> np.ndarray:
        """Return the cross entropies of a batch of masked copies, `(B,)`."""
        number, position = numbers[chosen_copies], positions[chosen_copies]
        copies = tokens[number, : padded_length(lengths[number], step)]  # (B, T)
        targets = copies[np.arange(len(number)), position]
        is_masked = np.arange(copies.shape[1]) == position[:, None]
        batch = {
            "tokens": np.where(is_masked, vocab.mask_id, copies).astype("int32"),
            "segments": np.zeros_like(copies),
            "valid_lens": lengths[number],
            "pred_positions": position[:, None].astype("int32"),
        }
        logits = predict_batch(model, batch)["mlm"][:, 0]  # (B, V)
        losses = cross_entropy(*map(ops.convert_to_tensor, (targets, logits)))  # (B,)
        return ops.convert_to_numpy(losses)

    batches = list(length_batches(lengths[numbers], batch_size))
    with stage("Predicting", int(counts @ lengths)) as work, ThreadPoolExecutor(at_a_time) as pool:
        for chosen, losses in zip(batches, pool.map(losses_of, batches), strict=True):
            np.subtract.at(sums, numbers[chosen], losses)
            work.advance(int(lengths[numbers[chosen]].sum()))
    return sums[places], counts[places]


@dataclasses.dataclass(frozen=True, repr=False)
class Perplexity(Result):
    """The perplexity of a text: how surprising it is for a model.

    Attributes:
        perplexity: The average number of equally likely tokens that the model has to choose from.
        num_tokens: Number of predicted tokens.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Perplexity(perplexity=12.5, num_tokens=7)
    ```
    """

    perplexity: float
    num_tokens: int


@one_per_text(Perplexity)
def pseudo_perplexity(
    model: keras.Model | PathLike,
    texts: str | Texts,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> Perplexity | list[Perplexity]:
    """Measure how well a model predicts each token of a text from all other tokens.

    Each token is masked once, in its own row, so a text of n tokens costs n rows. The result is
    `exp(-mean(log p))` over the tokens. Special tokens are not predicted, except the unknown token.

    Source: Salazar et al. 2020 (Masked Language Model Scoring), section 2.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call.
        texts: A text, or several, as for `classify`.
        tokenizer: The tokenizer. `None` means `model.tokenizer`. Perplexities are comparable only
            for the same vocabulary.
        batch_size: Rows per batch. A batch may contain rows from several texts.
        truncate: As for `classify`. Truncated tokens are not predicted.

    Returns: the `Perplexity` of the text; for a list of texts, a list. `joint_perplexity` combines
        such a list.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model's checkpoint lacked the MLM head, a text has no token to predict or is
            too long with `truncate=False`, or the vocabulary does not have the model's size.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model.tokenizer = tokenizer
    kb.pseudo_perplexity(model, "the cat sat").perplexity  # about 8: it is untrained
    ```
    """
    model, tokenizer = asked_model(model, BERTModel, tokenizer=tokenizer)
    check_head(model, "mlm")
    check_integer("batch_size", batch_size, 1)
    asked = text_list("texts", texts)
    if not asked:
        return []
    sums, counts = pseudo_log_likelihoods(
        model, tokenizer, asked, batch_size=batch_size, truncate=truncate
    )
    found = [
        Perplexity(_exp(-total / count), int(count))
        for total, count in zip(sums, counts, strict=True)
    ]
    return found[0] if isinstance(texts, str) else found


def joint_perplexity(perplexities: Iterable[Perplexity]) -> Perplexity:
    """Combine the perplexities of several texts into one, weighting all tokens equally.

    Raises:
        ValueError: There are no texts.
    """
    parts = list(perplexities)
    num_tokens = sum(one.num_tokens for one in parts)
    if not num_tokens:
        raise ValueError("There must be at least one text with predicted tokens. Received: none.")
    total = sum(one.num_tokens * math.log(one.perplexity) for one in parts)
    return Perplexity(_exp(total / num_tokens), num_tokens)


def _exp(x: float) -> float:
    """Return e^x, or infinity if that is too large for a float."""
    return math.exp(x) if x < math.log(sys.float_info.max) else math.inf


_SENTENCES, _UID = ("sentence_good", "sentence_bad"), "UID"


@dataclasses.dataclass(frozen=True, repr=False)
class MinimalPairs(Result):
    """How often a model prefers the grammatical sentence of a pair.

    Attributes:
        accuracy: Share of the pairs whose grammatical sentence has the higher
            pseudo-log-likelihood. A tie counts as wrong.
        num_pairs: Number of pairs, N.
        by_uid: The accuracy of each phenomenon, in the order of the data. Empty if the pairs have
            no `UID`.
        scores: The pseudo-log-likelihoods of both sentences of each pair, the grammatical one
            first, float64 `(N, 2)`.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    scores = np.array([[-9.5, -12.0]])
    kb.MinimalPairs(1.0, 1, {"agreement": 1.0}, scores)
    ```
    """

    accuracy: float
    num_pairs: int
    by_uid: dict[str, float]
    scores: np.ndarray


def minimal_pairs(
    model: keras.Model | PathLike,
    pairs: PathLike | InMemory,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 256,
    truncate: bool = True,
) -> MinimalPairs:
    """Measure how often a model prefers the grammatical sentence of a pair, as in BLiMP.

    A model prefers the sentence with the higher pseudo-log-likelihood: the sum of the log
    probabilities of its tokens, each masked once in its own row and predicted from all others. A
    sentence of n tokens therefore costs n rows.

    Source: Salazar et al. 2020 (Masked Language Model Scoring), sections 2 and 3.2; Warstadt et al.
    2020 (BLiMP).

    Args:
        model: The model, or the path or the name of its checkpoint.
        pairs: The pairs, with the columns `sentence_good` and `sentence_bad` and, optionally,
            `UID`, the name of the phenomenon: a file of JSON lines, CSV or TSV with a header (also
            .gz and .xz), a list of dictionaries, a DataFrame or a Dataset. Other columns are
            ignored.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Masked copies of sentences per batch.
        truncate: As for `classify`. Sentences that differ only in the truncated part are a tie.

    Raises:
        FileNotFoundError: There is no checkpoint or no file of pairs.
        ValueError: A pair lacks a sentence, a sentence is too long with `truncate=False`, the
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
    check_integer("batch_size", batch_size, 1)
    sentences, uids = _read_pairs(pairs)
    sums, _ = pseudo_log_likelihoods(
        model, tokenizer, sentences, batch_size=batch_size, truncate=truncate
    )
    scores = sums.reshape(-1, 2)
    is_right, of_pairs = scores[:, 0] > scores[:, 1], np.array(uids)
    by_uid = {uid: float(is_right[of_pairs == uid].mean()) for uid in dict.fromkeys(uids) if uid}
    return MinimalPairs(float(is_right.mean()), len(scores), by_uid, scores)


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
            if not isinstance(sentence, str) or not sentence.strip() or has_surrogate(sentence):
                raise file.error(
                    row.line,
                    f"a pair must have the texts {_SENTENCES[0]!r} and {_SENTENCES[1]!r}, without "
                    f"half of a surrogate pair. Received: {name}={shown(sentence)}.",
                )
            sentences.append(sentence)
        uids.append(as_string(cells.get(_UID)))
    if not uids:
        name = os.fspath(file.path)
        raise ValueError(f"`pairs` must have at least one pair. Received: {name!r} has none.")
    return sentences, uids
