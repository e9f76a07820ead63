"""The model of Unigram tokenizers (SentencePiece), as in XLM-R, CamemBERT, ALBERT and DeBERTa-v3.

`Unigram` finds the pieces of a word with the highest total score. They equal those of the library
tokenizers, also for ties: scores are added in float64, from the left, and of equal sums the one
with the longer last piece wins. tensorflow-text's kernel adds in float32, which gives other pieces
in words such as "-----". A call on a few words costs as much as the number of operations, so that
the loops have few.

W: words, U: different words that the table lacks, N: characters of these words with one more at the
end of each, M: characters of the longest piece found in them, V: pieces.

Source: github.com/huggingface/tokenizers, `models/unigram/model.rs`; Kudo, 2018, "Subword
Regularization", section 3.2.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.normalization import decode, rows_of_values
from keras_bert_d2l.text.tokenizer.added_tokens import NO_TOKEN, table
from keras_bert_d2l.text.tokenizer.characters import following, places_of
from keras_bert_d2l.text.tokenizer.merges import WORD_START, byte_tokens, with_bytes
from keras_bert_d2l.text.unicode_forms import previous
from keras_bert_d2l.text.unicode_gaps import NUM_CODES

_UNKNOWN_PENALTY = 10.0  # below the lowest score of a piece
_CHUNK = 2**15  # words per call when the table is made, which bounds the memory


class Unigram(tf.Module):
    """Splits words into the pieces of the highest total score.

    The pieces of a word depend on the word alone.

    Args:
        tokens: The pieces; the position of each is its id.
        scores: The score of each piece.
        unk_id: Id of characters that no piece contains; several in a row become one piece.
        byte_fallback: Whether their bytes become pieces instead.

    Call arguments:
        words: Strings `(W,)` of at least one character.
        known: Ids of the words that are one piece, as `words_of_one_piece` gives them, int32
            `(W,)`. -1 for other words.

    Returns:
        Three int32 tensors with the pieces of all words: their ids, the word that each is part of,
        and the character of the word at which it starts.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        scores: Sequence[float],
        unk_id: int,
        byte_fallback: bool = False,
    ) -> None:
        super().__init__(name="unigram")
        ids = {token: number for number, token in enumerate(tokens)}
        self._byte_ids = byte_tokens(ids) if byte_fallback else None
        self._unknown = tokens[unk_id]
        self._num_tokens, self._unk_id = len(tokens), unk_id
        self._longest = max(map(len, tokens))
        # A character of no piece ends each word, so that no piece reaches the next word.
        alphabet = {*"".join(tokens)}
        self._end = next(c for c in map(chr, range(NUM_CODES - 1, 0, -1)) if c not in alphabet)
        with tf.init_scope():
            more = (-np.inf, min(scores) - _UNKNOWN_PENALTY)  # of no piece, of an unknown character
            self._scores = tf.constant([*scores, *more], tf.float64)
            self._trie = table(*_trie(tokens), tf.int64)

    def __call__(
        self, words: tf.Tensor, known: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        others = places_of(known == NO_TOKEN)
        numbers, no_offsets = tf.range(tf.size(words)), tf.zeros_like(known)

        def with_others() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            different, which = tf.unique(tf.gather(words, others))
            ids, offsets, splits = self._best(different)
            first = tf.size(words) + tf.gather(splits, which)
            limit = tf.size(words) + tf.gather(splits, which + 1)
            places = others[:, tf.newaxis]
            taken = tf.ragged.range(
                tf.tensor_scatter_nd_update(numbers, places, first),
                tf.tensor_scatter_nd_update(numbers + 1, places, limit),
            )
            return (
                tf.gather(tf.concat([known, ids], 0), taken.flat_values),
                tf.cast(rows_of_values(taken), tf.int32),
                tf.gather(tf.concat([no_offsets, offsets], 0), taken.flat_values),
            )

        return tf.cond(tf.size(others) > 0, with_others, lambda: (known, numbers, no_offsets))

    def words_of_one_piece(self, tokens: Sequence[str]) -> dict[str, int]:
        """Return the words that start as those of a text do and are one piece, and its id."""
        found: dict[str, int] = {}
        starts = [token for token in tokens if token.startswith(WORD_START)]
        starts.sort(key=len)  # the time of a call grows with its longest word
        for start in range(0, len(starts), _CHUNK):
            words = np.array(starts[start : start + _CHUNK])
            ids, _, splits = (values.numpy() for values in self._best(tf.constant(words)))
            is_one = np.diff(splits) == 1
            one = ids[splits[:-1]][is_one].tolist()
            found |= dict(zip(words[is_one].tolist(), one, strict=True))
        return found

    def _best(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Split words `(U,)`.

        Returns:
            The ids of the pieces, int32; the character of its word at which each starts, int32; and
            the first piece of each word, and the number of all pieces, int32 `(U + 1,)`.
        """
        codes = decode(tf.strings.join([words, self._end]))
        owners = tf.cast(rows_of_values(codes), tf.int32)
        splits = tf.cast(codes.row_splits, tf.int32)
        places = tf.range(tf.size(owners))
        within = places - tf.gather(splits, owners)
        # The characters at the same position of all words are neighbors, longest words first.
        lengths, order = tf.math.top_k(splits[1:] - splits[:-1], tf.size(words))
        counts = tf.searchsorted(-lengths, -tf.range(lengths[0]))
        packed = tf.gather(tf.cumsum(counts, exclusive=True), within)
        packed += tf.gather(tf.math.invert_permutation(order), owners)
        pieces = self._pieces(tf.cast(codes.flat_values, tf.int64), packed)
        width = tf.shape(pieces)[1]
        sizes = width - tf.gather(self._best_path(pieces, counts), packed)

        # Follow the best paths back from the last characters of the words.
        to = tf.where(within >= sizes, places - sizes, tf.size(places))
        ends = places_of(_reached(to, splits[1:] - 2, lengths[0]))
        sizes = tf.gather(sizes, ends)
        ids = tf.gather_nd(pieces, tf.stack([tf.gather(packed, ends), width - sizes], 1))
        starts, owners = tf.gather(within, ends) - sizes + 1, tf.gather(owners, ends)
        is_unknown = (ids > self._num_tokens) | (ids == self._unk_id)
        kept = places_of(~(is_unknown & previous(is_unknown, False) & (starts > 0)))
        ids = tf.gather(tf.where(is_unknown, self._unk_id, ids), kept)
        owners, starts = tf.gather(owners, kept), tf.gather(starts, kept)
        splits = tf.searchsorted(owners, tf.range(tf.size(splits)))
        if self._byte_ids is None:
            return ids, starts, splits
        longest = tf.fill(tf.shape(ids), lengths[0])  # a part ends where the next one starts
        sizes = tf.where(following(owners, -1) == owners, following(starts, 0) - starts, longest)
        texts = tf.strings.substr(tf.gather(words, owners), starts, sizes, unit="UTF8_CHAR")
        is_unknown = (ids == self._unk_id) & (texts != self._unknown)
        ids, rows, places = with_bytes(ids, texts, is_unknown, self._byte_ids)
        return ids, tf.gather(starts, rows), tf.cast(tf.gather(places, splits), tf.int32)

    def _pieces(self, codes: tf.Tensor, packed: tf.Tensor) -> tf.Tensor:
        """Return the ids of the pieces that end at each character, longest first, int32 `(N, M)`.

        V stands for no piece, and in the last column V + 1 for an unknown character.

        Args:
            codes: Code points of the words, int64 `(N,)`.
            packed: The row of the result for each, int32 `(N,)`.
        """
        none, longest = self._num_tokens, self._longest

        def step(
            number: tf.Tensor, places: tf.Tensor, nodes: tf.Tensor, found: tf.Tensor
        ) -> tuple[Any, ...]:
            """Add a character to the beginnings of pieces, `nodes` of the trie from `places`."""
            ends = places + tf.cast(number, tf.int64)
            nodes = self._trie.lookup(nodes * NUM_CODES + tf.gather(codes, ends))
            kept = places_of(nodes >= 0)
            places, nodes, ends = (tf.gather(values, kept) for values in (places, nodes, ends))
            key = ends * longest + tf.cast(number, tf.int64)
            ids = tf.minimum(nodes, none + tf.cast(number == 0, tf.int64))
            # TensorFlow 2.12 cannot run a `TensorArray` of dynamic size that 2.21 has saved.
            found = tf.concat([found, key * (none + 2) + ids], 0)
            return number + 1, places, nodes, found

        places = tf.range(tf.size(codes, tf.int64))
        first = tf.fill([tf.size(codes)], tf.constant(none, tf.int64))
        number, *_, found = tf.while_loop(
            lambda number, places, *_: (number == 0) | (tf.size(places) > 0),
            step,
            [0, places, first, tf.zeros([0], tf.int64)],
            shape_invariants=[tf.TensorShape(shape) for shape in ([], *[[None]] * 3)],
        )
        keys, ids = found // (none + 2), tf.cast(found % (none + 2), tf.int32)
        back = number - 1 - tf.cast(keys % longest, tf.int32)
        places = tf.gather(packed, keys // longest) * number + back
        no_pieces = tf.concat([tf.fill([number - 1], none), [none + 1]], 0)
        pieces = tf.tile(no_pieces, [tf.size(codes)])
        pieces = tf.tensor_scatter_nd_update(pieces, places[:, tf.newaxis], ids)
        return tf.reshape(pieces, [-1, number])

    def _best_path(self, pieces: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Return the place in `pieces` of the last piece of the best path to each character.

        Args:
            pieces: Output of `_pieces`, int32 `(N, M)`.
            counts: Number of words that have a character at each position, in the order of N.
        """
        parts = tf.TensorArray(tf.float64, tf.size(counts), element_shape=[None, None])
        parts = parts.split(tf.gather(self._scores, pieces), counts)
        longer = tf.fill([tf.shape(pieces)[1] - 1], tf.constant(-np.inf, tf.float64))
        begin = tf.tile([tf.concat([longer, [0.0]], 0)], [counts[0], 1])

        def step(number: tf.Tensor, window: tf.Tensor, chosen: tf.TensorArray) -> tuple[Any, ...]:
            """Extend paths; `window` has the sums up to the last M characters of each word."""
            part = parts.read(number)
            window = window[: tf.shape(part)[0]]
            sums = window + part
            best = tf.reduce_max(sums, 1, keepdims=True)
            chosen = chosen.write(number, tf.argmax(sums, 1, tf.int32))
            return number + 1, tf.concat([window[:, 1:], best], 1), chosen

        size = tf.size(counts)
        chosen = tf.TensorArray(tf.int32, size, infer_shape=False, element_shape=[None])
        *_, chosen = tf.while_loop(
            lambda number, *_: number < size,
            step,
            [0, begin, chosen],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, None]), None],
        )
        return chosen.concat()


def _reached(to: tf.Tensor, starts: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    """Return whether each place is reached from some places, bool `(N,)`.

    Args:
        to: The place to which each place points, int32 `(N,)`, or N.
        starts: The places that are reached at first, int32 `(U,)`.
        most: Largest number of steps from one of them.
    """
    size = tf.size(to)
    to = tf.concat([to, [size]], 0)
    marks = tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts), tf.shape(to))

    def step(steps: tf.Tensor, marks: tf.Tensor, to: tf.Tensor) -> tuple[tf.Tensor, ...]:
        reached = tf.scatter_nd(to[:, tf.newaxis], marks, tf.shape(marks))
        return steps * 2, tf.minimum(marks + reached, 1), tf.gather(to, to)

    _, marks, _ = tf.while_loop(lambda steps, *_: steps < most, step, [1, marks, to])
    return marks[:-1] > 0


def _trie(tokens: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of a trie: keys `node * 0x110000 + code point`, and the nodes they lead to.

    The node of a token is its id, the root is V, and other nodes have higher numbers.
    """
    lengths = np.array([*map(len, tokens)])
    starts = np.cumsum(lengths) - lengths
    codes = np.frombuffer("".join(tokens).encode("utf-32-le"), np.int32)
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
