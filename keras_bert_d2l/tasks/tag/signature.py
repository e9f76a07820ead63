"""The signatures of a tagger: labels and entities, of texts and of texts split into words.

B: texts in a batch, W: maximum number of words per text, E: maximum number of entities per text.
"""

from typing import cast

import numpy as np
import tensorflow as tf

from keras_bert_d2l.signatures.characters import Characters
from keras_bert_d2l.signatures.signature import (
    TEXT,
    Answer,
    ExportedModel,
    Signature,
    TextOptions,
    TextSignatures,
    traced_once,
)
from keras_bert_d2l.tasks.tag.entities import tags_of
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import answer_of_words
from keras_bert_d2l.tasks.tag.rows import Split, split_texts, split_words
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

WORDS = tf.TensorSpec((None, None), tf.string, name="words")


def _ragged(dtype: tf.DType) -> tf.RaggedTensorSpec:
    return tf.RaggedTensorSpec((None, None), dtype, ragged_rank=1)


_SPLIT = Split(*map(_ragged, (tf.int32, tf.int64, tf.int32, tf.int32)))
_TAGS = (TEXT, *map(_ragged, (tf.int32, tf.int32, tf.int32, tf.float32)))


class TaggerSignatures(TextSignatures):
    """Signatures of a `TokenClassifier`.

    The outputs match `keras_bert_d2l.tag`: a text of any length is read in windows that overlap by
    half. Words are those of the tokenizer, unless they are given: texts are split at whitespace
    and, with WordPiece, around punctuation. The first token of a word determines its label.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: None apply.
    """

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self._tokenizer, self._labels = tokenizer, np.array(run.model.labels, object)
        self._tags = traced_once(self._tags_of, (_SPLIT,))
        self._of_text = traced_once(self._tags_of_texts, (TEXT,))
        self._of_words = traced_once(self._tags_of_words, (WORDS,))
        self._columns = traced_once(self._columns_of, _TAGS)
        self._join = traced_once(self._entities_of, _TAGS)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the words of texts and their labels.

        Args:
            *texts: `text`, strings `(B,)`.

        Returns: each `(B, W)`, padded with empty strings and zeros: `words`, strings; `labels`,
            strings, the most likely label of each word; `scores`, float32, the probabilities of
            the labels; `ids`, int32, the ids of the labels; `starts` and `ends`, int32, the index
            of the word's first character in the text and the index after its last one. Also
            `truncated`, bool `(B,)`, which is always false.
        """
        return self._columns(*self._of_text(*texts))

    def words(self, words: tf.Tensor) -> Answer:
        """Return the labels of given words.

        Args:
            words: Strings `(B, W)`. Empty strings at the end of a row are padding.

        Returns: as `answer` does for texts, which are the words joined by spaces.
        """
        return self._columns(*self._of_words(words))

    def entities(self, text: tf.Tensor) -> Answer:
        """Return the entities that the labels of words mark, as `tag` with `aggregate="first"`.

        Args:
            text: Strings `(B,)`.

        Returns: each `(B, E)`, padded with empty strings and zeros: `texts`, strings; `labels`,
            strings, the types; `scores`, float32, the means of the words' probabilities; `starts`
            and `ends`, int32, as of words. Also `truncated`, which is always false.
        """
        return self._join(*self._of_text(text))

    def word_entities(self, words: tf.Tensor) -> Answer:
        """Return what `entities` does, for given words as `words` takes them."""
        return self._join(*self._of_words(words))

    def signatures(self) -> dict[str, Signature]:
        return super().signatures() | {
            "entities": self.of_strings(self.entities, TEXT),
            "words": self.of_strings(self.words, WORDS),
            "word_entities": self.of_strings(self.word_entities, WORDS),
        }

    def _tags_of_texts(self, text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return text, *self._tags(split_texts(text, self._tokenizer))

    def _tags_of_words(self, words: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the words as texts, in which a space separates them, and their tags."""
        places = tf.where(words != "", 1 + tf.range(tf.shape(words)[1], dtype=tf.int64), 0)
        sizes = tf.reduce_max(tf.pad(places, [[0, 0], [1, 0]]), axis=1)  # there may be no column
        split = split_words(tf.RaggedTensor.from_tensor(words, sizes), self._tokenizer)
        return tf.strings.reduce_join(words, axis=1, separator=" "), *self._tags(split)

    def _tags_of(self, split: Split) -> tuple[tf.RaggedTensor, ...]:
        """Return the starts, the ends, the label ids and the scores of words, `(B, None)`."""
        rows, firsts = self.preprocess.of_split(split), split.firsts
        logits = self.in_steps(self.padded(rows), "logits")["logits"]
        places = tf.stack(rows["windows"].places(firsts.value_rowids(), firsts.values), axis=1)
        model = cast(TokenClassifier, self.run.model)
        found = answer_of_words(model, tf.gather_nd(logits, places), firsts)
        return split.starts, split.ends, *(firsts.with_values(found[x]) for x in ("id", "score"))

    def _columns_of(self, texts: tf.Tensor, *tags: tf.RaggedTensor) -> Answer:
        values = [column.values for column in tags]
        columns = dict(zip(("starts", "ends", "ids", "scores"), values, strict=True))
        columns["words"] = Characters(texts).spans(tags[0].value_rowids(), *values[:2])
        columns["labels"] = tf.gather(tf.constant(self._labels), columns["ids"])
        return _dense(columns, tags[0], texts)

    def _entities_of(self, texts: tf.Tensor, *tags: tf.RaggedTensor) -> Answer:
        rows = tags[0].value_rowids()
        starts, ends, ids, scores = (x.values for x in tags)
        tag_parts = [tag.partition("-") for tag in tags_of(self.run.model.labels).values()]
        types = [kind or "_" for *_, kind in tag_parts]
        is_open, goes_on, is_inside = (
            tf.gather(tf.constant([letter in letters for letter, *_ in tag_parts]), ids)
            for letters in ("BI", "IE", "BIES")
        )
        kinds = tf.gather(tf.constant([types.index(kind) for kind in types]), ids)
        # The first word has no word before it, so it must not be compared with the last one.
        is_same = (tf.roll(kinds, 1, 0) == kinds) & (tf.pad(rows + 1, [[1, 0]])[:-1] == rows + 1)
        is_first = is_inside & ~(tf.roll(is_open, 1, 0) & goes_on & is_same)
        number = tf.boolean_mask(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, is_inside)
        rows, kinds, starts = (tf.boolean_mask(x, is_first) for x in (rows, kinds, starts))
        scores, ends = (tf.boolean_mask(x, is_inside) for x in (scores, ends))
        ends = tf.math.unsorted_segment_max(ends, number, tf.size(rows))
        columns = {
            "texts": Characters(texts).spans(rows, starts, ends),
            "labels": tf.gather(tf.constant(np.array(types, object)), kinds),
            "scores": tf.math.unsorted_segment_mean(scores, number, tf.size(rows)),
            "starts": starts,
            "ends": ends,
        }
        of_texts = tf.RaggedTensor.from_value_rowids(rows, rows, tags[0].nrows())
        return _dense(columns, of_texts, texts)


def _dense(columns: Answer, of_texts: tf.RaggedTensor, texts: tf.Tensor) -> Answer:
    """Return columns of values as `(B, None)`, of which `of_texts` has as many for each text."""
    dense = {name: of_texts.with_values(x).to_tensor() for name, x in columns.items()}
    return {**dense, "truncated": tf.zeros(tf.shape(texts), tf.bool)}
