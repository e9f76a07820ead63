"""The pieces of words with the highest total score in a Unigram model.

The result equals that of the library tokenizers, also for ties: scores are added in float64, from
the left, and of equal sums the one with the longer last piece wins. tensorflow-text's kernel adds
in float32, which gives other pieces in words such as "-----".

W: words, N: characters of all words, M: characters of the longest piece, V: pieces.

Source: github.com/huggingface/tokenizers, `models/unigram/model.rs`; Kudo, 2018, "Subword
Regularization", section 3.2.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.characters import previous
from keras_bert_d2l.text.unicode_gaps import NUM_CODES

_UNKNOWN_PENALTY = 10.0  # below the lowest score of a piece


class Unigram(tf.Module):
    """Splits words into the pieces of the highest total score.

    Args:
        tokens: The pieces; the position of each is its id.
        scores: The score of each piece.
        unk_id: Id of characters that no piece contains; several in a row become one piece.

    Call arguments:
        codes: Code points of all words, int32 `(N,)`.
        lengths: Number of characters of each word, at least 1, int32 `(W,)`.

    Returns:
        The ids of the pieces, int32; the place in `codes` at which each starts, int32; and the
        number of pieces of each word, int32 `(W,)`.
    """

    def __init__(self, tokens: Sequence[str], scores: Sequence[float], unk_id: int) -> None:
        super().__init__(name="unigram")
        self._num_tokens, self._unk_id = len(tokens), unk_id
        self._longest = max(map(len, tokens))
        with tf.init_scope():
            self._scores = tf.constant(
                [*scores, -np.inf, min(scores) - _UNKNOWN_PENALTY], tf.float64
            )
            self._trie = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(*_trie(tokens)), default_value=-1
            )

    def __call__(self, codes: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, ...]:
        ends = tf.cumsum(lengths)
        words = tf.repeat(tf.range(tf.size(lengths)), lengths)
        remaining = tf.gather(ends, words) - tf.range(tf.size(codes))
        pieces = self._pieces(codes, remaining)
        order = tf.argsort(-lengths)
        rank = tf.math.invert_permutation(order)
        within = tf.gather(lengths, words) - remaining
        # The characters at the same position of all words are neighbors, longest words first.
        counts = tf.math.bincount(within, minlength=1)
        packed = tf.gather(tf.cumsum(counts, exclusive=True), within) + tf.gather(rank, words)
        by_position = tf.scatter_nd(packed[:, tf.newaxis], pieces, tf.shape(pieces))
        sizes = tf.gather(self._best_path(tf.gather(self._scores, by_position), counts), packed)
        return self._chosen(pieces, sizes, words, within, lengths)

    def _pieces(self, codes: tf.Tensor, remaining: tf.Tensor) -> tf.Tensor:
        """Return the ids of the pieces that end at each character, longest first, int32 `(N, M)`.

        V stands for no piece, and V + 1 for an unknown character.
        """
        width, none, size = self._longest, self._num_tokens, tf.size(codes)
        places, ids = self._matches(codes, remaining)
        pieces = tf.tensor_scatter_nd_update(
            tf.fill([size * width], none), places[:, tf.newaxis], ids
        )
        pieces = tf.reshape(pieces, [size, width])
        alone = pieces[:, -1:]
        return tf.concat([pieces[:, :-1], tf.where(alone == none, none + 1, alone)], 1)

    def _matches(self, codes: tf.Tensor, remaining: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the places in `(N * M,)` of all pieces in the words, and their ids."""
        width, none = self._longest, self._num_tokens
        keys = tf.cast(codes, tf.int64)

        def step(
            number: tf.Tensor,
            places: tf.Tensor,
            nodes: tf.Tensor,
            found_places: tf.TensorArray,
            found_ids: tf.TensorArray,
        ) -> tuple[Any, ...]:
            nodes = self._trie.lookup(nodes * NUM_CODES + tf.gather(keys, places + number))
            exists = nodes >= 0
            places, nodes = tf.boolean_mask(places, exists), tf.boolean_mask(nodes, exists)
            is_piece = nodes < none
            ends = tf.boolean_mask(places, is_piece) + number
            found_places = found_places.write(number, ends * width + (width - 1 - number))
            found_ids = found_ids.write(number, tf.cast(tf.boolean_mask(nodes, is_piece), tf.int32))
            goes_on = tf.gather(remaining, places) > number + 1
            places, nodes = tf.boolean_mask(places, goes_on), tf.boolean_mask(nodes, goes_on)
            return number + 1, places, nodes, found_places, found_ids

        places = tf.range(tf.size(codes))
        arrays = [
            tf.TensorArray(tf.int32, 0, True, infer_shape=False, element_shape=[None])
            for _ in range(2)
        ]
        root = tf.fill([tf.size(codes)], tf.constant(none, tf.int64))
        _, _, _, *found = tf.while_loop(
            lambda number, places, *_: (number == 0) | (tf.size(places) > 0),
            step,
            [0, places, root, *arrays],
            shape_invariants=[
                tf.TensorShape([]),
                tf.TensorShape([None]),
                tf.TensorShape([None]),
                None,
                None,
            ],
        )
        places, ids = (array.concat() for array in found)
        return places, ids

    def _best_path(self, scores: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Return the length of the last piece of the best path to the end of each character.

        Args:
            scores: The scores of the pieces that end at each character, float64 `(N, M)`.
            counts: Number of words that have a character at each position, in the order of N.
        """
        begin = tf.fill([counts[0], self._longest], tf.constant(-np.inf, tf.float64))
        begin = tf.concat([begin[:, 1:], tf.zeros([counts[0], 1], tf.float64)], 1)

        def step(
            number: tf.Tensor, first: tf.Tensor, window: tf.Tensor, chosen: tf.TensorArray
        ) -> tuple[Any, ...]:
            """Extend paths; `window` has the sums up to the last M characters of each word."""
            count = counts[number]
            sums = window[:count] + scores[first : first + count]
            best = tf.reduce_max(sums, 1, keepdims=True)
            chosen = chosen.write(number, tf.argmax(sums, 1, tf.int32))
            return number + 1, first + count, tf.concat([window[:count, 1:], best], 1), chosen

        array = tf.TensorArray(tf.int32, tf.size(counts), infer_shape=False, element_shape=[None])
        *_, chosen = tf.while_loop(
            lambda number, *_: number < tf.size(counts),
            step,
            [0, 0, begin, array],
            shape_invariants=[
                tf.TensorShape([]),
                tf.TensorShape([]),
                tf.TensorShape([None, None]),
                None,
            ],
        )
        return self._longest - chosen.concat()

    def _chosen(
        self,
        pieces: tf.Tensor,
        sizes: tf.Tensor,
        words: tf.Tensor,
        within: tf.Tensor,
        lengths: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """Return the pieces on the best paths to the ends of words.

        Args:
            pieces: Output of `_pieces`, int32 `(N, M)`.
            sizes: Length of the last piece of the best path to the end of each character.
            words: The word of each character.
            within: The position of each character in its word.
            lengths: Number of characters of each word, `(W,)`.
        """
        size = tf.size(sizes)
        places = tf.range(size)
        # Each place points to the end of the piece before the one that ends there, or to `size`.
        to = tf.where(within >= sizes, places - sizes, size)
        is_end = within == tf.gather(lengths, words) - 1
        marks = tf.pad(tf.cast(is_end, tf.int32), [[0, 1]])
        to = tf.pad(to, [[0, 1]], constant_values=size)

        def step(steps: tf.Tensor, marks: tf.Tensor, to: tf.Tensor) -> tuple[tf.Tensor, ...]:
            reached = tf.scatter_nd(to[:, tf.newaxis], marks, tf.shape(marks))
            return steps * 2, tf.minimum(marks + reached, 1), tf.gather(to, to)

        most = tf.reduce_max(lengths)
        _, marks, _ = tf.while_loop(lambda steps, *_: steps < most, step, [1, marks, to])
        ends = tf.where(marks[:-1] > 0)[:, 0]
        sizes = tf.gather(sizes, ends)
        ids = tf.gather_nd(pieces, tf.stack([tf.cast(ends, tf.int32), self._longest - sizes], 1))
        starts = tf.cast(ends, tf.int32) - sizes + 1
        is_unknown = (ids > self._num_tokens) | (ids == self._unk_id)
        kept = ~(is_unknown & previous(is_unknown, False) & (tf.gather(within, starts) > 0))
        ids = tf.boolean_mask(tf.where(is_unknown, self._unk_id, ids), kept)
        starts = tf.boolean_mask(starts, kept)
        return ids, starts, tf.math.bincount(tf.gather(words, starts), minlength=tf.size(lengths))


def _trie(tokens: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of a trie: keys `node * 0x110000 + code point`, and the nodes they lead to.

    The node of a token is its id, the root is V, and other nodes have higher numbers.
    """
    lengths = np.array([*map(len, tokens)])
    starts = np.cumsum(lengths) - lengths
    codes = np.array([ord(character) for token in tokens for character in token], np.int64)
    ids, nodes = np.arange(len(tokens)), np.full(len(tokens), len(tokens))
    all_keys, all_nodes, count = [], [], len(tokens) + 1
    for position in range(lengths.max()):
        ids = ids[lengths[ids] > position]
        keys, places = np.unique(
            nodes[ids] * NUM_CODES + codes[starts[ids] + position], return_inverse=True
        )
        new = np.arange(count, count + len(keys))
        is_end = lengths[ids] == position + 1
        new[places[is_end]] = ids[is_end]
        nodes[ids] = new[places]
        all_keys.append(keys)
        all_nodes.append(new)
        count += len(keys)
    return np.concatenate(all_keys), np.concatenate(all_nodes)
