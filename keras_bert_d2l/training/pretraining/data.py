"""Data of a pretraining run: its rows, masks and batches, and what it records about its text.

How examples fill rows only affects the speed: a step trains on as many examples with packed rows as
with padded ones, in fewer rows.

S: sentences, T: tokens of the longest one with its special tokens, V: vocabulary size.
"""

import functools
import math
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bert_d2l.data.pretraining.dataset import Batch, pretraining_dataset
from keras_bert_d2l.data.pretraining.masking import Masking
from keras_bert_d2l.data.pretraining.packing import Rows, pack
from keras_bert_d2l.data.pretraining.pairs import (
    ExampleOptions,
    Objective,
    make_examples,
    split_documents,
)
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.replaced_tokens import ReplacedTokenDetection
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training.devices import process
from keras_bert_d2l.training.pretraining.options import Phase, PretrainingOptions

_MAX_EXAMPLES = 8  # in a packed row
_MAX_EVALUATED_ROWS = 4096  # keeps evaluations short on a large corpus
_MOST_TOKENS = 0.95  # packed rows must have at most this share of the tokens of padded rows
_SAMPLED_TOKENS = 1 << 20  # enough text to measure how well its examples fill rows
_NUM_SENTENCES, _NUM_ANSWERS = 8, 3
_MAX_TOKENS = 30  # of a sentence in the report


class RunBatches:
    """The batches of a run, in several processes those of this process.

    Args:
        options: The options of the run.
        store: The text.
        tokenizer: The tokenizer of the model.
        objective: The objective of the run.
        replicas: Number of devices of all processes. The rows of a step are a multiple of it.

    Attributes:
        rows: How examples fill rows. `"auto"` becomes `"packed"` if that saves at least 5% of the
            tokens, counting padding, and `"padded"` otherwise. The choice depends only on the text
            and the options.
        phases: The phases of the run, with their rows per step.
    """

    def __init__(
        self,
        options: PretrainingOptions,
        store: TokenStore,
        tokenizer: Tokenizer,
        objective: Objective | Literal["rtd"],
        replicas: int,
    ) -> None:
        self.options, self.store, self.tokenizer = options, store, tokenizer
        self.has_generator, self.replicas = objective == "rtd", replicas
        self.objective: Objective = "none" if objective == "rtd" else objective
        self.rows, self.phases = self._choose_rows()
        self._cached_held_out = functools.lru_cache(maxsize=1)(self._held_out)

    def _choose_rows(self) -> tuple[Rows, list[Phase]]:
        rows, padded = self.options.rows, self.options.phases()
        if rows == "padded" or rows == "bucketed":
            return rows, padded
        shares = {length: self._rows_per_example(length) for length in {p.max_len for p in padded}}
        packed = []
        for phase in padded:
            number = phase.batch_size * shares[phase.max_len] / self.replicas
            packed.append(phase._replace(batch_size=math.ceil(number) * self.replicas))
        if rows == "auto" and _num_tokens(packed) > _MOST_TOKENS * _num_tokens(padded):
            return "padded", padded
        return "packed", packed

    def _rows_per_example(self, max_len: int) -> float:
        """Return the number of packed rows divided by the number of examples, in a sample."""
        options, store = self.options, self.store
        documents = split_documents(store.document_hashes, "train", options.held_out)
        step = max(1, min(store.num_tokens // _SAMPLED_TOKENS, len(documents) // 2))
        sample = ExampleOptions(
            max_len=max_len,
            objective=self.objective,
            seed=options.seed,
            documents=documents[::step],
            short_seq_prob=options.short_seq_prob,
            num_separators=self.tokenizer.vocab.num_separators,
        )
        lengths = make_examples(store, sample, epoch=0).lengths()
        if not len(lengths):
            return 1.0
        random = np.random.default_rng(options.seed)
        _, splits = pack(lengths, max_len=max_len, max_examples=_MAX_EXAMPLES, random=random)
        return (len(splits) - 1) / len(lengths)

    def training(self, phase: Phase, first_step: int = 0) -> tf.data.Dataset:
        """Return the training batches of a phase from a step on, without an end."""
        return self._dataset(phase, "train", first_step)

    def held_out(self, phase: Phase) -> tf.data.Dataset:
        """Return held-out batches with as many tokens per row as the phase.

        Longer rows would have positions that are not trained yet. Rows and masks are the same for
        all recipes, so that the metrics can be compared.
        """
        return self._cached_held_out(phase.max_len)

    def _held_out(self, max_len: int) -> tf.data.Dataset:
        rows = math.ceil(self.options.batch_size / self.options.micro_batches)
        rows = math.ceil(rows / self.replicas) * self.replicas
        number = math.ceil(_MAX_EVALUATED_ROWS / rows)
        rows *= self.options.max_len // max_len
        held_out = Phase(0, 0, rows, max_len, Masking.rate)
        return self._dataset(held_out, "held_out").take(number)

    def _dataset(
        self, phase: Phase, split: Literal["train", "held_out"], first_step: int = 0
    ) -> tf.data.Dataset:
        is_training = split == "train"
        index, processes = process()
        masked = self.options.mask_replace_prob
        others = (1 - masked) / 2
        dataset = pretraining_dataset(
            self.store,
            self.tokenizer,
            batch_size=phase.batch_size // processes,
            shard=(index, processes),
            max_len=phase.max_len,
            seed=self.options.seed,
            split=split,
            held_out=self.options.held_out,
            epochs=None if is_training else 1,
            first_step=first_step,
            drop_remainder=is_training,
            objective=self.objective,
            causal=phase.causal,
            masking=Masking(
                self.options.masking, rate=phase.mask_rate, replace=(masked, others, others)
            ),
            rows=self.rows,
            max_examples=_MAX_EXAMPLES,
            short_seq_prob=self.options.short_seq_prob,
        )
        return dataset.map(_with_originals) if self.has_generator else dataset


@tf.autograph.experimental.do_not_convert  # nothing to convert
def _with_originals(*batch: tf.Tensor) -> Batch:
    """Add what `ReplacedTokenDetection` needs: it compares all tokens but padding.

    Its labels are those that it computes itself, and not the zeros here.
    """
    features, labels, weights = batch
    tokens = features["tokens"]
    is_token = tf.range(tf.shape(tokens)[1]) < features["valid_lens"][:, None]
    features, labels = features | {"originals": labels["mlm"]}, labels | {"rtd": 0 * tokens}
    return features, labels, weights | {"rtd": tf.cast(is_token, tf.float32)}


def _num_tokens(phases: list[Phase]) -> int:
    return sum((phase.end - phase.start) * phase.batch_size * phase.max_len for phase in phases)


def describe(model: BERTModel | ReplacedTokenDetection, store: TokenStore) -> dict[str, object]:
    """Return records that describe the model and the text."""
    config = model.bert_config
    return {
        "model": {
            "Model": f"{config.num_blks} blocks, {config.num_heads} heads, width "
            f"{config.num_hiddens}, {model.count_params():,} weights"
        },
        "data": {
            "documents": store.num_documents,
            "sentences": store.num_sentences,
            "tokens": store.num_tokens,
            "vocabulary": config.vocab_size,
        },
    }


class MaskedWords:
    """A few held-out sentences, each with a masked word.

    Args:
        store: The text.
        vocab: Its vocabulary.
        options: The options of the run.
    """

    def __init__(self, store: TokenStore, vocab: Vocab, options: PretrainingOptions) -> None:
        self._vocab = vocab
        self._sentences: list[tuple[list[int], int]] = []  # with the place of the masked word
        limit = min(options.max_len - 2, _MAX_TOKENS)
        random = np.random.default_rng(options.seed)
        documents = split_documents(store.document_hashes, "held_out", options.held_out)
        for document in random.permutation(documents)[:_NUM_SENTENCES]:
            sentence = int(random.integers(*store.document_offsets[document : document + 2]))
            ids = store.sentence(sentence)[:limit].tolist()
            if words := self._words(ids):
                self._sentences.append((ids, int(random.choice(words))))

    def predict(self, model: BERTModel | ReplacedTokenDetection) -> list[dict[str, Any]]:
        """Return the most likely tokens for each masked word, as records."""
        if not self._sentences:
            return []
        logits = model(self._batch(), training=False)["mlm"]  # (S, 1, V)
        scores = ops.convert_to_numpy(ops.softmax(ops.cast(logits[:, 0], "float32")))  # (S, V)
        samples = []
        for (ids, place), row in zip(self._sentences, scores, strict=True):
            best = np.argsort(-row, kind="stable")[:_NUM_ANSWERS].tolist()
            samples.append(
                {
                    "text": self._joined(ids[:place]),
                    "gold": self._vocab.as_text(ids[place]),
                    "after": self._joined(ids[place + 1 :]),
                    "answers": [[self._vocab.as_text(n), round(float(row[n]), 4)] for n in best],
                    "is_right": best[0] == ids[place],
                }
            )
        return samples

    def _batch(self) -> dict[str, np.ndarray]:
        vocab, num_tokens = self._vocab, max(len(ids) for ids, _ in self._sentences) + 2
        tokens = np.full((len(self._sentences), num_tokens), vocab.pad_id, "int32")
        for row, (ids, place) in zip(tokens, self._sentences, strict=True):
            row[: len(ids) + 2] = [vocab.cls_id, *ids, vocab.sep_id]
            row[place + 1] = vocab.mask_id
        return {
            "tokens": tokens,
            "segments": np.zeros_like(tokens),
            "valid_lens": np.array([len(ids) + 2 for ids, _ in self._sentences], "int32"),
            "pred_positions": np.array([[place + 1] for _, place in self._sentences], "int32"),
        }

    def _words(self, ids: list[int]) -> list[int]:
        """Return the places of words that are a single token."""
        is_start = [True, *~self._vocab.continues[ids][1:], True]
        tokens = map(self._vocab.as_text, ids)
        return [n for n, token in enumerate(tokens) if token.isalnum() and all(is_start[n : n + 2])]

    def _joined(self, ids: list[int]) -> str:
        spaces = np.where(self._vocab.continues[ids], "", " ").tolist()
        words = map(self._vocab.as_text, ids)
        return "".join(map(str.__add__, spaces, words)).strip()
