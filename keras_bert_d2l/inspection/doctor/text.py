"""Checks of the text: documents, and how the vocabulary fits it.

V vocabulary.
"""

import numpy as np

from keras_bert_d2l.data.report.duplicates import Copies
from keras_bert_d2l.inspection.doctor.finding import Finding
from keras_bert_d2l.text.vocab.vocab import Vocab

_MAX_EPOCHS = 40


def few_documents(number: int) -> Finding:
    """Return the number of documents.

    The default holds out 5% of them: with fewer than 40, the metrics come from one or two, and
    sentences that are not next come from few topics.
    """
    return Finding(
        name="few documents",
        measures="documents in the text",
        number=number,
        low=40,
        severity="learns less",
        meaning="There are too few documents to hold some out and to draw other sentences from.",
        remedy="Add documents, or split long files into documents with blank lines "
        "(`--layout lines`).",
    )


def duplicate_documents(copies: Copies) -> Finding:
    """Return the share of documents that are copies of earlier ones.

    Lee et al. 2022 find 3 to 14% near duplicates in web corpora, which models then repeat. 10% of
    exact copies are more than any of these.
    """
    return Finding(
        name="duplicate documents",
        measures="share of documents that are copies",
        number=copies.share,
        high=0.1,
        severity="learns less",
        meaning="The model learns the same documents again and again.",
        remedy="Build the token store with `keras-bert-d2l prepare --deduplicate`.",
    )


def epochs(num_tokens: float, store_tokens: int) -> Finding:
    """Return the number of passes over the text.

    Muennighoff et al. 2023: up to 4 passes are almost as good as new text, after 40 nothing is
    gained.

    Args:
        num_tokens: Tokens that the run trains on, without padding.
        store_tokens: Tokens of the text.
    """
    return Finding(
        name="passes over the text",
        measures="passes over the text",
        number=num_tokens / store_tokens,
        high=_MAX_EPOCHS,
        severity="learns less",
        meaning="The text is too short for this number of steps.",
        remedy="Add text, or train fewer steps.",
    )


def unknown_words(counts: np.ndarray, vocab: Vocab) -> Finding:
    """Return the share of tokens that are `[UNK]`.

    WordPiece vocabularies leave less than 0.1% of a text that they fit. 2% are several in each row.

    Args:
        counts: Count of each id in the text, `(V,)`.
        vocab: The vocabulary.
    """
    return Finding(
        name="unknown words",
        measures="share of tokens that are [UNK]",
        number=float(counts[vocab.unk_id] / counts.sum()),
        high=0.02,
        severity="learns less",
        meaning="The vocabulary lacks characters or words of the text.",
        remedy="Learn a vocabulary from this text (`--vocab-size`), or check language, casing and "
        "encoding.",
    )


def pieces_per_word(counts: np.ndarray, vocab: Vocab) -> Finding:
    """Return the number of tokens per word.

    About 1.2 for English text with its own vocabulary. The vocabularies of single languages that
    Rust et al. 2021 compare stay below 2.

    Args:
        counts: Count of each id in the text, `(V,)`.
        vocab: The vocabulary.
    """
    is_start = np.array([not token.startswith("##") for token in vocab.tokens])
    return Finding(
        name="pieces per word",
        measures="tokens per word",
        number=float(counts.sum() / max(counts[is_start].sum(), 1)),
        high=2.0,
        severity="learns less",
        meaning="The vocabulary splits words into many pieces: it was learned from other text.",
        remedy="Learn a vocabulary from this text (`--vocab-size`), or choose a model of its "
        "language.",
    )


def unigram_entropy(counts: np.ndarray) -> float:
    """Return the entropy of the tokens in nats: the MLM loss of a model that ignores context."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
