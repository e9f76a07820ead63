"""WikiText-2 as batches of the book's seven arrays for pretraining (d2l.ai, section 15.9).

Each example has P = `round(0.15 * max_len)` prediction slots. Masks and pairs are drawn once, as in
the book. To draw new ones in every epoch, from any text, use `kb.pretraining_dataset`.

The functions with an underscore have a keyword argument `rng` and draw from it in the same order as
the book. With the same seed, they give the book's results, except for the differences described in
their docstrings.
"""

import itertools
import os
import pathlib
import random
import types
from collections.abc import Sequence
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.book.vocabulary import Vocab, check_vocab, tokenize
from keras_bert_d2l.checks import check_bool, check_choice, check_integer, check_list, check_path
from keras_bert_d2l.text.text_files import read_lines
from keras_bert_d2l.text.tokenizer.framing import get_tokens_and_segments
from keras_bert_d2l.text.vocab import BOOK_SPECIALS
from keras_bert_d2l.types import PathLike

PAD, _, CLS, SEP, MASK = BOOK_SPECIALS
RESERVED_TOKENS = (PAD, MASK, CLS, SEP)

MASK_RATE, UNCHANGED_RATE = 0.8, 0.5  # the second rate applies to tokens that are not masked
PREDICTION_RATE = 0.15

# A random generator, or the module `random`.
RandomSource: TypeAlias = random.Random | types.ModuleType
Sentence = list[str]
Paragraph = list[Sentence]


def _read_wiki(
    data_dir: PathLike, *, split: str = "train", rng: RandomSource = random
) -> list[list[str]]:
    r"""Read the paragraphs of WikiText-2 that have at least two sentences, in random order.

    Args:
        data_dir: Folder with `wiki.train.tokens`, optionally compressed (`.gz`, `.xz`).
        split: `"train"`, `"valid"` or `"test"`.
        rng: Random generator for the order.

    Returns:
        One list of lowercase sentences per paragraph.

    Raises:
        FileNotFoundError: The folder does not contain the file.
        ValueError: No line of the file contains two sentences, or the file is damaged or not UTF-8.

    Example:
        >>> import pathlib
        >>> from keras_bert_d2l import book as d2l
        >>> text = "The cat sat . It slept .\n"
        >>> size = pathlib.Path("wiki.train.tokens").write_text(text)
        >>> d2l._read_wiki(".")
        [['the cat sat', 'it slept .']]
    """
    check_path("data_dir", data_dir)
    check_choice("split", split, ("train", "valid", "test"))
    path = _wiki_file(data_dir, split)
    paragraphs = [line.strip().lower().split(" . ") for line in read_lines(path) if " . " in line]
    if not paragraphs:
        raise ValueError(
            f"No line of {str(path)!r} contains two sentences. Expected one paragraph per line, "
            "with ' . ' between its sentences, as in WikiText-2."
        )
    rng.shuffle(paragraphs)
    return paragraphs


def _wiki_file(data_dir: PathLike, split: str) -> pathlib.Path:
    name = f"wiki.{split}.tokens"
    for ending in ("", ".gz", ".xz"):
        path = pathlib.Path(data_dir, name + ending)
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"No {name} (or {name}.gz, {name}.xz) in {os.fspath(data_dir)!r}. Nothing is downloaded: "
        "pass the folder of an unpacked WikiText-2 as `data_dir`."
    )


def _get_next_sentence(
    sentence: Sentence,
    next_sentence: Sentence,
    paragraphs: Sequence[Paragraph],
    *,
    rng: RandomSource = random,
) -> tuple[Sentence, Sentence, bool]:
    """Keep the next sentence half of the time; otherwise draw one from a different paragraph.

    The book has a bug: it draws from all paragraphs, so a "random" sentence can be the true next
    sentence. This function never draws from a paragraph that contains `next_sentence`.

    Returns:
        The sentence, its partner, and whether the partner is the next sentence.

    Raises:
        ValueError: Every paragraph contains `next_sentence`, so there is no negative to draw.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> paragraphs = [[["a"], ["b"]], [["c"], ["d"]]]
        >>> first, second, is_next = d2l._get_next_sentence(["a"], ["b"], paragraphs)
        >>> is_next == (second == ["b"])
        True
    """
    if rng.random() < 0.5:
        return sentence, next_sentence, True
    paragraph = rng.choice(paragraphs)
    if next_sentence in paragraph:
        others = [paragraph for paragraph in paragraphs if next_sentence not in paragraph]
        if not others:
            raise ValueError(
                "A negative pair needs a second sentence from a different paragraph. Received: "
                f"{len(paragraphs)} paragraph(s), each with the true next sentence. Use more text."
            )
        paragraph = rng.choice(others)
    return sentence, rng.choice(paragraph), False


def _get_nsp_data_from_paragraph(
    paragraph: Paragraph,
    paragraphs: Sequence[Paragraph],
    vocab: Vocab,
    max_len: int,
    *,
    rng: RandomSource = random,
) -> list[tuple[list[str], list[int], bool]]:
    """Return one next-sentence example for each pair of adjacent sentences.

    Pairs that are longer than `max_len`, including their three special tokens, are dropped.
    `vocab` is unused; it is accepted because the book passes it.

    Returns:
        `(tokens, segments, is_next)` for each example.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> paragraphs = [[["a"], ["b"]], [["c"], ["d"]]]
        >>> vocab = d2l.Vocab()
        >>> examples = d2l._get_nsp_data_from_paragraph(paragraphs[0], paragraphs, vocab, 8)
        >>> [(tokens, segments, is_next)] = examples
        >>> segments
        [0, 0, 0, 1, 1]
    """
    examples = []
    for sentence, next_sentence in itertools.pairwise(paragraph):
        tokens_a, tokens_b, is_next = _get_next_sentence(
            sentence, next_sentence, paragraphs, rng=rng
        )
        if len(tokens_a) + len(tokens_b) + 3 <= max_len:
            examples.append((*get_tokens_and_segments(tokens_a, tokens_b), is_next))
    return examples


def _replace_mlm_tokens(
    tokens: Sequence[str],
    candidate_pred_positions: list[int],
    num_mlm_preds: int,
    vocab: Vocab,
    *,
    rng: RandomSource = random,
) -> tuple[list[str], list[tuple[int, str]]]:
    """Corrupt some positions: 80% become `<mask>`, 10% a random word, 10% are unchanged.

    The book has a bug: a random "word" can be a special token. This function draws again instead.

    Args:
        tokens: Tokens of one BERT input sequence. The sequence is not modified.
        candidate_pred_positions: Positions to choose from. They are shuffled in place.
        num_mlm_preds: Number of positions to choose, at most the number of candidates.
        vocab: Vocabulary to draw random words from.
        rng: Random generator.

    Returns:
        The corrupted tokens, and `(position, original token)` for each chosen position.

    Raises:
        ValueError: The vocabulary contains only special tokens.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> vocab = d2l.Vocab(["a", "b"])
        >>> corrupted, predictions = d2l._replace_mlm_tokens(["<cls>", "a"], [1], 1, vocab)
        >>> predictions
        [(1, 'a')]
    """
    corrupted = list(tokens)
    rng.shuffle(candidate_pred_positions)
    chosen = candidate_pred_positions[:num_mlm_preds]
    for position in chosen:
        if rng.random() < MASK_RATE:
            corrupted[position] = MASK
        elif rng.random() >= UNCHANGED_RATE:
            corrupted[position] = _random_word(vocab, rng)
    return corrupted, [(position, tokens[position]) for position in chosen]


def _random_word(vocab: Vocab, rng: RandomSource) -> str:
    # Tokens are distinct, so there is a word unless the first six tokens are all special.
    if set(vocab.idx_to_token[: len(BOOK_SPECIALS) + 1]) <= set(BOOK_SPECIALS):
        raise ValueError(
            "The vocabulary must contain a word to draw at random. Received: only special tokens, "
            f"{vocab.idx_to_token}. Use more text, or a `Vocab` with a lower `min_freq`."
        )
    while (word := rng.choice(vocab.idx_to_token)) in BOOK_SPECIALS:
        pass
    return word


def _get_mlm_data_from_tokens(
    tokens: Sequence[str], vocab: Vocab, *, rng: RandomSource = random
) -> tuple[list[int], list[int], list[int]]:
    """Mask 15% of a BERT input sequence for the masked language model.

    The number of predictions is 15% of all tokens, including special tokens, rounded as in Python,
    and at least one. `<cls>` and `<sep>` are never chosen. `<unk>`, which is frequent in
    WikiText-2, may be chosen.

    Returns:
        Ids of the corrupted tokens, positions to predict in ascending order, and label ids.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> specials = ["<pad>", "<mask>", "<cls>", "<sep>"]
        >>> vocab = d2l.Vocab(["a", "b"], reserved_tokens=specials)
        >>> tokens = ["<cls>", "a", "<sep>"]
        >>> ids, positions, labels = d2l._get_mlm_data_from_tokens(tokens, vocab)
        >>> positions, vocab.to_tokens(labels)
        ([1], ['a'])
    """
    candidates = [position for position, token in enumerate(tokens) if token not in (CLS, SEP)]
    num_mlm_preds = max(1, round(len(tokens) * PREDICTION_RATE))
    corrupted, predictions = _replace_mlm_tokens(tokens, candidates, num_mlm_preds, vocab, rng=rng)
    predictions.sort()
    positions = [position for position, _ in predictions]
    return vocab[corrupted], positions, vocab[[token for _, token in predictions]]


def _pad_bert_inputs(
    examples: Sequence[tuple[list[int], list[int], list[int], list[int], bool]],
    max_len: int,
    vocab: Vocab,
) -> tuple[np.ndarray, ...]:
    """Pad examples to `max_len` tokens and P predictions.

    Args:
        examples: `(token_ids, pred_positions, mlm_label_ids, segments, is_next)` per example.
        max_len: The sequence length T to pad to.
        vocab: The vocabulary, for the id of `<pad>`.

    Returns:
        The book's seven arrays, which contain for each example: token ids int32 `(T,)`, segments
        int32 `(T,)`, valid length float32, positions int32 `(P,)`, weights float32 `(P,)` (1 for a
        prediction, 0 for padding), labels int32 `(P,)`, is-next int32.

    Raises:
        ValueError: An example is longer than `max_len` or has more than P predictions.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> vocab = d2l.Vocab(reserved_tokens=["<pad>"])
        >>> example = [3, 5, 4], [1], [5], [0, 0, 0], True
        >>> tokens, *_ = d2l._pad_bert_inputs([example], 8, vocab)
        >>> tokens.tolist()
        [[3, 5, 4, 1, 1, 1, 1, 1]]
    """
    token_ids, pred_positions, mlm_labels, segments, is_next = (
        zip(*examples, strict=True) if examples else ((),) * 5
    )
    num_mlm_preds = round(max_len * PREDICTION_RATE)
    weights = [[1.0] * len(labels) for labels in mlm_labels]
    return (
        padded(token_ids, max_len, vocab[PAD], "tokens", np.int32),
        padded(segments, max_len, 0, "segments", np.int32),
        np.asarray([len(ids) for ids in token_ids], np.float32),
        padded(pred_positions, num_mlm_preds, 0, "predictions", np.int32),
        padded(weights, num_mlm_preds, 0.0, "weights", np.float32),
        padded(mlm_labels, num_mlm_preds, 0, "labels", np.int32),
        np.asarray(is_next, np.int32),
    )


def padded(
    rows: Sequence[Sequence[float]], width: int, fill: float, name: str, dtype: type
) -> np.ndarray:
    """Pad rows to `width`; raise `ValueError` if one is too long."""
    for index, row in enumerate(rows):
        if len(row) > width:
            raise ValueError(
                f"An example can have at most {width} {name} with this `max_len`. Received: "
                f"{len(row)} in example {index}. Increase `max_len`, or drop the example."
            )
    return keras.utils.pad_sequences(rows, width, dtype, padding="post", value=fill)


class _WikiTextDataset:
    """The pretraining examples of WikiText-2, with pairs and masks drawn once.

    `dataset[i]` is the book's seven-element tuple, described in `_pad_bert_inputs`. `arrays` and
    the book's attributes contain the seven arrays of all examples.

    Args:
        paragraphs: Lists of sentences, as `_read_wiki` returns them.
        max_len: Maximum length of a BERT input sequence. Longer pairs are dropped.
        vocab: Vocabulary to encode with. For held-out text, pass the vocabulary of the training
            data. `None`: the words that occur at least five times in `paragraphs`.
        rng: Random generator for pairs and masks.

    Raises:
        ValueError: No pair of adjacent sentences fits into `max_len`.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> specials = ["<pad>", "<mask>", "<cls>", "<sep>"]
        >>> vocab = d2l.Vocab(["cat", "dog"], reserved_tokens=specials)
        >>> paragraphs = [["the cat sat", "it slept"], ["a dog ran", "it came"]]
        >>> len(d2l._WikiTextDataset(paragraphs, 16, vocab))
        2
    """

    def __init__(
        self,
        paragraphs: Sequence[list[str]],
        max_len: int,
        vocab: Vocab | None = None,
        *,
        rng: RandomSource = random,
    ) -> None:
        check_list("paragraphs", paragraphs, "paragraphs")
        check_integer("max_len", max_len, 1)
        if vocab is not None:
            check_vocab(vocab)
        tokenized = [tokenize(paragraph) for paragraph in paragraphs]
        if vocab is None:
            sentences = [sentence for paragraph in tokenized for sentence in paragraph]
            vocab = Vocab(sentences, min_freq=5, reserved_tokens=RESERVED_TOKENS)
        self.vocab = vocab
        pairs = [
            pair
            for paragraph in tokenized
            for pair in _get_nsp_data_from_paragraph(paragraph, tokenized, vocab, max_len, rng=rng)
        ]
        if not pairs:
            raise ValueError(
                f"No pair of adjacent sentences fits into max_len={max_len} tokens, three of them "
                f"special. Received: {len(paragraphs)} paragraph(s). Increase `max_len`."
            )
        examples = [
            (*_get_mlm_data_from_tokens(tokens, vocab, rng=rng), segments, is_next)
            for tokens, segments, is_next in pairs
        ]
        self.arrays = _pad_bert_inputs(examples, max_len, vocab)
        self.all_token_ids, self.all_segments, self.valid_lens, *others = self.arrays
        self.all_pred_positions, self.all_mlm_weights, self.all_mlm_labels, self.nsp_labels = others

    def __getitem__(self, idx: int) -> tuple[np.ndarray, ...]:
        return tuple(array[idx] for array in self.arrays)

    def __len__(self) -> int:
        return len(self.all_token_ids)


def load_data_wiki(
    batch_size: int,
    max_len: int,
    data_dir: PathLike = "../data/wikitext-2",
    *,
    split: str = "train",
    vocab: Vocab | None = None,
    seed: int = 0,
    drop_remainder: bool = False,
) -> tuple[tf.data.Dataset, Vocab]:
    r"""Load WikiText-2 from a folder as shuffled batches of the book's seven tensors.

    The book downloads the corpus; this function reads it from an existing folder. To load held-out
    text with `split="valid"`, pass the vocabulary of the training data.

    Args:
        batch_size: Batch size B.
        max_len: Length T of every BERT input sequence.
        data_dir: Folder with `wiki.train.tokens`, optionally compressed (`.gz`, `.xz`).
        split: `"train"`, `"valid"` or `"test"`.
        vocab: Vocabulary to encode with. `None`: the words that occur at least five times.
        seed: Random seed for the pairs, the masks and the order. The same seed gives the same
            batches.
        drop_remainder: Whether to drop the last batch of an epoch if it is smaller. All shapes are
            then static, as required by XLA, and `fit` is faster.

    Returns:
        The dataset and the vocabulary. A batch consists of tokens `(B, T)`, segments `(B, T)`,
        valid lengths `(B,)`, positions to predict `(B, P)`, weights `(B, P)`, labels `(B, P)` and
        is-next `(B,)`. Valid lengths and weights are float32, all others int32.

    Example:
        >>> import pathlib
        >>> from keras_bert_d2l import book as d2l
        >>> text = "the cat sat . it slept .\na dog ran . it came home .\n"
        >>> size = pathlib.Path("wiki.train.tokens").write_text(5 * text)
        >>> train_iter, vocab = d2l.load_data_wiki(4, 16, ".")
        >>> len(next(iter(train_iter))), vocab["cat"] > 0
        (7, True)
    """
    check_integer("batch_size", batch_size, 1)
    check_integer("seed", seed, 0)
    check_bool("drop_remainder", drop_remainder)
    rng = random.Random(seed)
    paragraphs = _read_wiki(data_dir, split=split, rng=rng)
    examples = _WikiTextDataset(paragraphs, max_len, vocab, rng=rng)
    dataset = (
        tf.data.Dataset.from_tensor_slices(examples.arrays)
        .shuffle(len(examples), seed=seed)
        .batch(batch_size, drop_remainder=drop_remainder)
        .prefetch(tf.data.AUTOTUNE)
    )
    return dataset, examples.vocab
