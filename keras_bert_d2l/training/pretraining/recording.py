"""What a run records for its report: its text, and predictions for held-out sentences.

S: sentences, T: tokens of the longest one with its special tokens, V: vocabulary size.
"""

from typing import Any

import numpy as np
from keras import ops

from keras_bert_d2l.data.pretraining.pairs import split_documents
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training.pretraining.options import PretrainingOptions

_NUM_SENTENCES, _NUM_ANSWERS = 8, 3
_MAX_TOKENS = 30  # of a sentence, the rest of which the report does not need
_MIN_LETTERS = 3  # shorter words are mostly function words, which are easy
_MAX_TRIES = 1000


def describe(model: BERTModel, store: TokenStore, options: PretrainingOptions) -> dict[str, object]:
    """Return records that describe the model and the text.

    Args:
        model: The model, with its tokenizer.
        store: The text.
        options: The options of the run.
    """
    config = model.bert_config
    return {
        "model": {
            "Model": f"{config.num_blks} blocks, {config.num_heads} heads, width "
            f"{config.num_hiddens}, {model.count_params():,} weights"
        },
        "data": {
            "documents": store.num_documents,
            "held-out documents": len(_held_out(store, options)),
            "sentences": store.num_sentences,
            "tokens": store.num_tokens,
            "tokens per sentence": store.num_tokens / store.num_sentences,
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
        sentences = set()
        for document in random.choice(_held_out(store, options), _MAX_TRIES):
            sentence = int(random.integers(*store.document_offsets[document : document + 2]))
            if sentence in sentences or len(self._sentences) == _NUM_SENTENCES:
                continue
            sentences.add(sentence)
            ids = store.sentence(sentence).tolist()
            words = self._words(ids)
            if places := [place for place in words if place < limit]:
                self._sentences.append((ids[:limit], int(random.choice(places))))

    def predict(self, model: BERTModel) -> list[dict[str, Any]]:
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
        """Return the places of words that are a single token: the longer ones, if there are any."""
        tokens = [self._vocab.as_text(n) for n in ids]
        is_start = [*~self._vocab.continues[ids], True]
        is_start[0] = True
        places = [
            n for n, token in enumerate(tokens) if token.isalnum() and all(is_start[n : n + 2])
        ]
        return [n for n in places if len(tokens[n]) >= _MIN_LETTERS] or places

    def _joined(self, ids: list[int]) -> str:
        spaces = np.where(self._vocab.continues[ids], "", " ").tolist()
        words = map(self._vocab.as_text, ids)
        return "".join(map(str.__add__, spaces, words)).strip()


def _held_out(store: TokenStore, options: PretrainingOptions) -> np.ndarray:
    return split_documents(store.document_hashes, "held_out", options.held_out)
