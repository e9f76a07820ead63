"""`pretraining_dataset`: build batches for `fit` from a corpus or a token store.

B: batch size, T: tokens per row, P: predicted positions per row, E: maximum number of examples
per packed row.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from keras_bert_d2l.checks import check_bool, check_choice, check_integer, check_that
from keras_bert_d2l.data.pretraining.epochs import Reader
from keras_bert_d2l.data.pretraining.masking import (
    Batch,
    MaskedRows,
    Masking,
    Strategy,
    mask_tokens,
)
from keras_bert_d2l.data.pretraining.packing import ROWS, Rows
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, Objective, split_documents
from keras_bert_d2l.data.store.building import cached_store
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.corpus import Corpus, as_corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike

# Number of rows built per call: larger chunks amortize TensorFlow's per-op and per-stage overhead.
_ROWS_PER_CALL = 2048


def pretraining_dataset(
    corpus_or_store: Corpus | TokenStore | Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    *,
    batch_size: int,
    max_len: int = 128,
    num_predictions: int | None = None,
    masking: Strategy | Masking = "token",
    objective: Objective = "nsp",
    short_seq_prob: float = 0.0,
    causal: bool = False,
    rows: Rows = "padded",
    max_examples: int = 8,
    seed: int = 0,
    epochs: int | None = 1,
    first_step: int = 0,
    shard: tuple[int, int] = (0, 1),
    split: str | None = None,
    held_out: float = 0.05,
    drop_remainder: bool = True,
    cache_dir: PathLike | None = None,
) -> tf.data.Dataset:
    r"""Return a dataset of pretraining batches for `fit`: MLM and NSP by default.

    A row is `[CLS] A [SEP] B [SEP]` followed by padding. Every epoch has new pairs, a new order and
    new masks, all determined by `seed`: row i of an epoch is the same in every process, for any
    batch size and any number of shards, except with bucketed rows, whose order depends on the rows
    per step. With `first_step=k`, the dataset continues after the first
    k steps. Starting at a later step takes no longer than starting at step 0.

    All epochs have the same number of steps as epoch 0; for `epochs=1` this is the `cardinality()`
    of the dataset. Later epochs draw new pairs and may have slightly more or fewer; the surplus is
    dropped, and missing rows are filled with repeats under new masks.

    BERT trains in two phases, with 90% of the steps on short rows. Create one dataset with
    `max_len=128` for the first phase, and one with `max_len=512` and a different `seed` for the
    second.

    Args:
        corpus_or_store: The training text: a corpus, a token store, or a list of documents, each a
            list of sentences. Text is tokenized on first use and cached on disk.
        tokenizer: The tokenizer. For a store, it must be the one the store was built with.
        batch_size: Rows per batch, B.
        max_len: Tokens per row, T.
        num_predictions: Predicted positions per row, P. None: enough for a full row, which is
            `round(0.15 * max_len)` by default; see `Masking.num_predictions`.
        masking: A strategy (`"token"`, `"whole_word"`, `"ngram"` or `"span"`), or a `Masking` with
            all options.
        objective: `"nsp"`: next-sentence prediction (BERT). `"sop"`: sentence-order prediction, in
            which A and B are swapped half of the time (ALBERT). `"none"`: masked tokens only, in
            rows of full sentences (RoBERTa); segments are 0, and there are no `nsp` labels or
            weights.
        short_seq_prob: Probability that an example gets a random target length instead of
            `max_len`. Google's BERT uses 0.1.
        causal: For `objective="none"`: whether to predict every token from the tokens before it,
            instead of masked tokens. P is then T - 1, no token is masked, and only the `exclude`
            of `masking` has an effect. The feature `attention_mask (B, T, T)`, uint8, hides later
            tokens. Source: Gisserot-Boukhlef et al. 2025 (arXiv 2507.00994).
        rows: `"padded"`: one example per row. `"packed"`: several examples per row where they fit,
            for a model that keeps them separate. `"bucketed"`: batches of rows of similar length,
            where T is the longest length, rounded up to a multiple of 8.
        max_examples: Maximum number of examples in a packed row, E.
        seed: Random seed, at least 0.
        epochs: Passes over the text. None: endless.
        first_step: First step of the dataset, counted across epochs. Use it to resume a run.
        shard: `(index, count)`: this is worker `index` of `count` and reads its own `batch_size`
            rows of every step. Concatenated, the batches of all workers equal those of a single
            worker with a batch size `count` times as large.
        split: `"train"` or `"held_out"` for one part of the documents, None for all. The documents
            with the smallest hashes are held out. The split does not depend on their order, and
            identical documents are always in the same part.
        held_out: Share of documents to hold out, in (0, 1). Each part has at least two documents.
        drop_remainder: Whether to drop the rows that do not fill a batch. Use False for evaluation:
            the last batch is then filled up with empty rows of weight 0, so epoch 0 contains every
            example exactly once and weighted metrics are exact.
        cache_dir: Folder for the token stores of corpora. None: `keras_bert_d2l` in the user's
            cache folder, which is `$XDG_CACHE_HOME` or `~/.cache`.

    Returns:
        A dataset of `(features, labels, weights)` with static shapes, except T for bucketed rows.
        Features: `tokens (B, T)`, `segments (B, T)`, `valid_lens (B,)` and `pred_positions (B, P)`,
        int32. Labels: `mlm (B, P)` and `nsp (B,)`, int32. Weights: `mlm (B, P)` and `nsp (B,)`,
        float32. With `causal`, P is T - 1, and there is `attention_mask (B, T, T)`, uint8. Packed
        rows also have the features `example_ids (B, T)`, which number the examples
        from 1 and are 0 for padding, `position_ids (B, T)` and `cls_positions (B, E)`. Their `nsp`
        is `(B, E)`, with weight 0 in unused slots, and the predictions are 15% of the row, not of
        each example.

    Raises:
        ValueError: An argument is out of range, the text has too few documents or examples, or
            the store was built with a different vocabulary.
        OSError: The text cannot be read, or the cache folder cannot be written.

    Example:
        >>> import keras_bert_d2l as kb
        >>> with open("pets.txt", "w") as file:
        ...     print("The cat sat.", "It slept.", "", "A dog ran.", sep="\n", file=file)
        >>> corpus = kb.Corpus.open("pets.txt", layout="lines")
        >>> tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=50))
        >>> dataset = kb.pretraining_dataset(
        ...     corpus, tokenizer, batch_size=2, max_len=16, cache_dir="stores"
        ... )
        >>> features, labels, weights = next(iter(dataset))
        >>> features["tokens"].shape, labels["mlm"].shape
        (TensorShape([2, 16]), TensorShape([2, 2]))
    """
    check_bool("drop_remainder", drop_remainder)
    if check_bool("causal", causal) and (objective != "none" or num_predictions is not None):
        raise ValueError(
            "`causal` predicts all tokens, and [CLS] does not see the texts: it requires "
            f"objective='none' and no `num_predictions`. Received: causal=True, {objective=}, "
            f"{num_predictions=}."
        )
    masking = Masking.of(masking)
    options = ExampleOptions(
        max_len=max_len, objective=objective, seed=seed, short_seq_prob=short_seq_prob
    )
    if num_predictions is None:
        num_predictions = masking.num_predictions(max_len)
    check_integer("batch_size", batch_size, 1)
    check_integer("max_examples", max_examples, 1)
    check_integer("epochs", 1 if epochs is None else epochs, 1)
    check_integer("first_step", first_step, 0)
    check_integer("num_predictions", num_predictions, 1)
    expected = f"at most max_len={max_len}"
    check_that(num_predictions <= max_len, "num_predictions", expected, num_predictions)
    check_choice("rows", rows, ROWS)
    is_shard = isinstance(shard, tuple | list) and [type(n) for n in shard] == [int, int]
    is_shard = is_shard and 0 <= shard[0] < shard[1]
    check_that(is_shard, "shard", "(index, count) with an index from 0 to count - 1", shard)
    if isinstance(corpus_or_store, TokenStore):
        store = corpus_or_store
        store.check_tokenizer(tokenizer)
    else:
        store = cached_store(as_corpus(corpus_or_store, "corpus_or_store"), tokenizer, cache_dir)
    masking = excluding_own_tokens(masking, tokenizer)
    documents = split_documents(store.document_hashes, split, held_out)
    reader = Reader(
        store=store,
        vocab=tokenizer.vocab,
        options=dataclasses.replace(
            options, documents=documents, num_separators=tokenizer.vocab.num_separators
        ),
        rows=rows,
        max_examples=max_examples if rows == "packed" else 1,
        batch_size=batch_size,
        shard=shard,
        drop_remainder=drop_remainder,
    )
    return _batches(reader, masking, num_predictions, epochs, first_step, causal=causal)


def excluding_own_tokens(masking: Masking, tokenizer: Tokenizer) -> Masking:
    """Return the masking without the user's special tokens.

    They carry no more information about a word than `[CLS]` does.
    """
    vocab = tokenizer.vocab
    added = (vocab.definition or {}).get("added_tokens", ())
    special = [entry["content"] for entry in added if entry.get("special")]
    own = vocab[[*tokenizer.options.get("special_tokens", ()), *special]]
    return dataclasses.replace(masking, exclude=(*masking.exclude, *own))


def _batches(
    reader: Reader,
    masking: Masking,
    num_predictions: int,
    epochs: int | None,
    first_step: int,
    *,
    causal: bool,
) -> tf.data.Dataset:
    """Return the dataset that reads the rows of each step and masks them."""
    if epochs is None:
        last, cardinality = tf.int64.max, tf.data.INFINITE_CARDINALITY
    else:
        last = epochs * reader.num_steps
        cardinality = last - first_step
        most = f"at most {last}, the steps of {epochs} epochs of {reader.num_steps} steps"
        check_that(cardinality >= 0, "first_step", most, first_step)
    specs = _specs(reader)
    # Build the batches of several steps together, unless their rows differ in length.
    num_steps = 1 if reader.rows == "bucketed" else max(1, _ROWS_PER_CALL // reader.batch_size)

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and conversion is slow
    def batches_from(step: tf.Tensor) -> Batch:
        """Return the rows of `num_steps` batches in one batch, which `rebatch` divides."""
        arrays = tf.numpy_function(
            reader.read,
            [step, tf.minimum(step + num_steps, last)],
            [spec.dtype for spec in specs.values()],
        )
        for array, spec in zip(arrays, specs.values(), strict=True):
            array.set_shape(spec.shape)
        features = dict(zip(specs, arrays, strict=True))
        nsp_labels, nsp_weights = features.pop("labels"), features.pop("weights")
        tokens, valid_lens, keys = features["tokens"], features["valid_lens"], features.pop("keys")
        if causal:  # no token is masked
            excluded = masking.excluded_ids(reader.vocab).tolist()
            masked = next_tokens(tokens, valid_lens, features.get("example_ids"), excluded)
        else:
            masked = mask_tokens(
                tokens,
                valid_lens,
                keys,
                vocab=reader.vocab,
                masking=masking,
                num_predictions=num_predictions,
            )
        features |= {"tokens": masked.tokens, "pred_positions": masked.positions}
        labels, weights = {"mlm": masked.labels}, {"mlm": masked.weights}
        if not reader.options.are_pairs:
            features.pop("cls_positions", None)  # only the next-sentence head reads them
        elif reader.rows == "packed":
            labels["nsp"], weights["nsp"] = nsp_labels, nsp_weights
        else:
            labels["nsp"], weights["nsp"] = nsp_labels[:, 0], nsp_weights[:, 0]
        return features, labels, weights

    batches = (
        tf.data.Dataset.range(first_step, last, num_steps)
        .map(batches_from, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .rebatch(reader.batch_size, drop_remainder=True)  # drops nothing; makes the size static
    )
    if causal:  # for one batch at a time, because the masks of `num_steps` steps are large
        batches = batches.map(_with_causal_mask, num_parallel_calls=tf.data.AUTOTUNE)
    counted = batches.apply(tf.data.experimental.assert_cardinality(cardinality))
    return counted.prefetch(tf.data.AUTOTUNE)


def _specs(reader: Reader) -> dict[str, tf.TensorSpec]:
    """Return the name, shape and dtype of each array that `Reader.read` returns."""
    by_token = (None, None if reader.rows == "bucketed" else reader.options.max_len)
    by_example = (None, reader.max_examples)
    specs = {
        "keys": tf.TensorSpec((None,), tf.int64),
        "tokens": tf.TensorSpec(by_token, tf.int32),
        "segments": tf.TensorSpec(by_token, tf.int32),
        "valid_lens": tf.TensorSpec((None,), tf.int32),
        "labels": tf.TensorSpec(by_example, tf.int32),
        "weights": tf.TensorSpec(by_example, tf.float32),
    }
    if reader.rows == "packed":
        specs["example_ids"] = specs["position_ids"] = tf.TensorSpec(by_token, tf.int32)
        specs["cls_positions"] = tf.TensorSpec(by_example, tf.int32)
    return specs


def next_tokens(
    tokens: tf.Tensor,
    valid_lens: tf.Tensor,
    example_ids: tf.Tensor | None,
    not_predicted: Sequence[int],
) -> MaskedRows:
    """Predict the next token at every position but the last, so P = T - 1.

    Args:
        tokens: int32 `(B, T)`.
        valid_lens: int32 `(B,)`, the number of tokens before the padding.
        example_ids: int32 `(B, T)`, the examples of packed rows. The first token of an example is
            not predicted. `None`: one example per row.
        not_predicted: Ids of the tokens that are not predicted, such as `[SEP]`.

    Returns:
        The batch; its tokens are not corrupted.
    """
    labels = tokens[:, 1:]  # (B, T - 1)
    positions = tf.zeros_like(labels) + tf.range(tf.shape(labels)[1])
    is_predicted = positions + 1 < valid_lens[:, None]
    is_predicted &= tf.reduce_all(labels[..., None] != list(not_predicted), axis=-1)
    if example_ids is not None:
        is_predicted &= example_ids[:, 1:] == example_ids[:, :-1]
    return MaskedRows(
        tokens=tokens,
        positions=positions,
        labels=tf.where(is_predicted, labels, 0),
        weights=tf.cast(is_predicted, tf.float32),
    )


def _with_causal_mask(
    features: dict[str, tf.Tensor], labels: dict[str, tf.Tensor], weights: dict[str, tf.Tensor]
) -> Batch:
    """Add the mask that limits attention to the token itself and those before it.

    It is uint8 `(B, T, T)`, because `MirroredStrategy` cannot divide bool tensors.
    """
    tokens = features["tokens"]
    places = tf.range(tf.shape(tokens)[1])
    is_before = tf.cast(places[:, None] >= places, tf.uint8)  # (T, T)
    mask = tf.tile(is_before[None], (tf.shape(tokens)[0], 1, 1))
    features["attention_mask"] = tf.ensure_shape(mask, (*tokens.shape, tokens.shape[1]))
    return features, labels, weights
