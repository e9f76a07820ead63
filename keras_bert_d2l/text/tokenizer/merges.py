"""The merges of byte-pair encoding (BPE) as TensorFlow ops: from words to tokens.

N: bytes or characters of all words, W: words of all texts, U: different words that are no single
token.

Source: Sennrich et al. 2016, section 3.2; github.com/openai/gpt-2, `src/encoder.py`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text import definition as definitions
from keras_bert_d2l.text.definition import BYTES, token_bytes
from keras_bert_d2l.text.normalization import decode, encode, ragged_rows, rows_of_values
from keras_bert_d2l.text.tokenizer.added_tokens import table
from keras_bert_d2l.text.tokenizer.characters import following, places_of
from keras_bert_d2l.text.tokenizer.wordpiece import pieces_of_words
from keras_bert_d2l.text.unicode_forms import CodeTable, previous
from keras_bert_d2l.types import ConfigDict

LATIN = "ISO-8859-1"
MARK = b"\xfd"  # stands before the id of a token that stays whole; does not occur in UTF-8
WORD_START = "▁"
_PART = 128  # bytes of a part of a long word, which also has as many of the next part
_NO_RANK = 2**31 - 1


class Merges(tf.Module):
    """Joins adjacent symbols of words.

    In each word, the adjacent symbols whose merge has the lowest rank are joined, at all their
    places and in all words at once, until there are none. A long word is split into parts that
    overlap: two adjacent tokens do not depend on the rest of the word, so parts that have a token
    in common are joined before that token.

    Args:
        ids: The ids of the tokens of the model. The number of tokens stands for a missing one.
        merges: Pairs of tokens.
        sizes: The number of first symbols that each token joins.
    """

    def __init__(
        self, ids: Mapping[str, int], merges: Sequence[Sequence[str]], sizes: Sequence[int]
    ) -> None:
        super().__init__(name="merges")
        self._missing, self._sizes = len(ids), np.array([*sizes, 1], np.int64)
        keys = [ids[a] * len(self._sizes) + ids[b] for a, b in merges]
        ranks = {key: rank for rank, key in enumerate(keys)} or {-1: 0}  # a table is never empty
        self._ranks = table(np.array([*ranks]), np.array([*ranks.values()], np.int32), tf.int64)
        self._results = np.array([*(ids[a + b] for a, b in merges), 0], np.int32)
        first = {part: rank for rank, pair in reversed([*enumerate(merges)]) for part in pair}
        lower = [first.get(a + b, rank) < rank for rank, (a, b) in enumerate(merges)]
        self._has_lower = np.array([*lower, False]) if any(lower) else None

    def merge(self, symbols: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the tokens of the symbols `(N,)` of words, and their row splits `(U + 1,)`."""
        return tf.cond(
            tf.reduce_any(splits[1:] - splits[:-1] > 2 * _PART),
            lambda: self._join_parts(symbols, splits),
            lambda: self._merge(symbols, splits),
        )

    def _merge(self, symbols: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merge the symbols `(N,)` of words, whose row splits are `(U + 1,)`."""
        owners = rows_of_values(ragged_rows(symbols, splits))

        def step(_: tf.Tensor, symbols: tf.Tensor, owners: tf.Tensor) -> tuple[tf.Tensor, ...]:
            keys = tf.cast(symbols, tf.int64) * len(self._sizes)
            ranks = self._ranks.lookup(keys[:-1] + tf.cast(symbols[1:], tf.int64))
            ranks = tf.where((owners[:-1] == owners[1:]) & (ranks >= 0), ranks, _NO_RANK)
            best = tf.math.segment_min(ranks, owners[:-1])
            is_best = (ranks == tf.gather(best, owners[:-1])) & (ranks != _NO_RANK)
            # Of equal symbols in a row, each second pair is joined.
            number = tf.cumsum(tf.cast(is_best, tf.int32))
            is_start = is_best & ~previous(is_best, False)
            start = tf.concat([[0], tf.boolean_mask(number, is_start)], 0)
            number -= tf.gather(start, tf.cumsum(tf.cast(is_start, tf.int32)))
            joins = is_best & (number % 2 == 0)
            if self._has_lower is not None:  # the first join may allow one of a lower rank
                places = tf.where(joins, tf.range(tf.size(joins)), tf.size(joins))
                first = tf.gather(tf.math.segment_min(places, owners[:-1]), owners[:-1])
                joins &= ~tf.gather(
                    self._has_lower, tf.where(joins, ranks, len(self._results) - 1)
                ) | (first == places)
            new = tf.where(joins, tf.gather(self._results, tf.where(joins, ranks, 0)), symbols[:-1])
            symbols = tf.concat([new, symbols[-1:]], 0)
            kept = tf.where(tf.concat([[True], ~joins], 0)[: tf.size(symbols)])[:, 0]
            return tf.reduce_any(joins), tf.gather(symbols, kept), tf.gather(owners, kept)

        _, symbols, owners = tf.while_loop(
            lambda goes_on, *_: goes_on,
            step,
            [True, symbols, owners],
            shape_invariants=[tf.TensorShape(shape) for shape in ([], [None], [None])],
        )
        limits = tf.range(tf.size(splits, tf.int64))
        return symbols, tf.searchsorted(owners, limits, out_type=tf.int64)

    def _join_parts(self, symbols: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Do what `_merge` does, in parts of words, whose number of steps is limited."""
        lengths = splits[1:] - splits[:-1]
        numbers = tf.ragged.range(tf.minimum(lengths, tf.maximum((lengths - 1) // _PART, 1)))
        starts = tf.gather(splits, rows_of_values(numbers)) + numbers.flat_values * _PART

        def step(
            _: tf.Tensor, starts: tf.Tensor, ids: tf.Tensor, splits_of_ids: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            """Split the parts that start at some bytes, and drop starts where they differ."""
            words = tf.searchsorted(splits, starts, side="right", out_type=tf.int64) - 1
            limits = tf.gather(splits, words + 1)
            next_starts = following(starts, splits[-1])
            has_next = next_starts < limits
            is_first = ~previous(has_next, False)
            taken = tf.ragged.range(starts, tf.minimum(next_starts + _PART, limits))
            ids, part_splits = self._merge(tf.gather(symbols, taken.flat_values), taken.row_splits)
            parts = rows_of_values(ragged_rows(ids, part_splits))
            places = tf.cumsum(tf.gather(self._sizes, ids), exclusive=True)
            places += tf.gather(starts - taken.row_starts(), parts)
            shape = tf.stack([tf.size(starts, tf.int64) + 1, _PART])

            def tokens_after(starts: tf.Tensor, number: int) -> tf.Tensor:
                within = places - tf.gather(starts, parts)
                chosen = tf.where((within >= 0) & (within < _PART))
                indices = tf.stack([parts + number, within], 1)
                return tf.scatter_nd(
                    tf.gather_nd(indices, chosen), tf.gather_nd(ids + 1, chosen), shape
                )[:-1]

            own, of_previous = tokens_after(starts, 0), tokens_after(next_starts, 1)
            is_common = (own == of_previous) & (own > 0) & ~is_first[:, tf.newaxis]
            first = starts + tf.argmax(is_common, 1)
            last = tf.where(has_next, following(first, 0), limits)
            kept = (places >= tf.gather(first, parts)) & (places < tf.gather(last, parts))
            owners = tf.gather(words, tf.boolean_mask(parts, kept))
            is_right = is_first | tf.reduce_any(is_common, 1)
            return (
                ~tf.reduce_all(is_right),
                tf.boolean_mask(starts, is_right),
                tf.boolean_mask(ids, kept),
                tf.searchsorted(owners, tf.range(tf.size(splits, tf.int64)), out_type=tf.int64),
            )

        *_, ids, splits = tf.while_loop(
            lambda goes_on, *_: goes_on,
            step,
            [True, starts, symbols, splits],
            shape_invariants=[tf.TensorShape(shape) for shape in ([], [None], [None], [None])],
        )
        return ids, splits


class BytePairs(Merges):
    """Splits words into the tokens of a BPE model, with each byte as a character of Latin-1.

    A table has the words that are a single token.

    Args:
        tokens: The V tokens of the vocabulary.
        definition: The definition of the tokenizer.
    """

    def __init__(self, tokens: Sequence[str], definition: ConfigDict) -> None:
        model = definition["model"]
        own = tokens[: model["num_tokens"]]
        all_ids = {token: number for number, token in enumerate(tokens)}
        ids = {token: all_ids[token] for token in own}
        self.unk_id = ids.get(model.get("unk_token") or "")
        texts = [(token_bytes(token) or b"").decode(LATIN) for token in own]
        merges = model["merges"]
        super().__init__(ids, merges, [*map(len, texts)])
        self._byte_ids = np.array([ids.get(c, self._missing) for c in BYTES], np.int32)
        symbols = self._byte_ids[np.frombuffer("".join(texts).encode(LATIN), np.uint8)]
        made = _ranks([*map(len, texts)], symbols, ids, merges)
        single = {
            text: n for n, text in enumerate(texts) if n in made or model.get("ignore_merges")
        }
        added = [all_ids[token] for token in definitions.added_tokens(definition)]
        single |= {f"{MARK.decode(LATIN)}{number}": number for number in added}
        single.pop("", None)
        self._single = table([*single], np.array([*single.values()], np.int32))

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of words, strings `(W,)`, as ragged int32 `(W, None)`."""
        return pieces_of_words(words, self._single.lookup(words), self._split)

    def _split(self, words: tf.Tensor) -> tf.RaggedTensor:
        codes = decode(words)
        ids, splits = self.merge(tf.gather(self._byte_ids, codes.flat_values), codes.row_splits)
        if self.unk_id is not None:
            ids = tf.where(ids == self._missing, self.unk_id, ids)
        return ragged_rows(ids, splits)


class CharacterPairs(Merges):
    """Splits words into the tokens of a BPE model of characters, as SentencePiece's.

    Args:
        tokens: The tokens of the model, whose positions are their ids.
        model: The fields of the model.

    Call arguments:
        words: Strings `(W,)` of at least one character.
        known: Ids of the words that are one token, int32 `(W,)`. -1 for other words.

    Returns:
        Three int32 tensors with the tokens of all words: their ids, the word that each is part of,
        and the character of the word at which it starts.
    """

    def __init__(self, tokens: Sequence[str], model: ConfigDict) -> None:
        ids = {token: number for number, token in enumerate(tokens)}
        self._unk_id, self._fuses = ids.get(model.get("unk_token") or ""), model.get("fuse_unk")
        self._byte_ids = byte_tokens(ids) if model.get("byte_fallback") else None
        sizes = np.array([*map(len, tokens), 1], np.int32)
        self._characters = sizes.copy()
        if self._byte_ids is not None:
            sizes[self._byte_ids] = 1
            self._characters[self._byte_ids] = [n & 0xC0 != 0x80 for n in range(0x100)]
        super().__init__(ids, model["merges"], sizes[:-1].tolist())
        single = {ord(token): number + 1 for token, number in ids.items() if len(token) == 1}
        self._ids = CodeTable(single)
        codes = np.frombuffer("".join(tokens).encode("utf-32-le"), np.int32)
        symbols = np.array([single.get(code, 0) - 1 for code in codes.tolist()])
        symbols = np.where(symbols < 0, len(tokens), symbols)
        made = _ranks([*map(len, tokens)], symbols, ids, model["merges"])
        # Words may be split where no merge joins them, which makes more of them equal.
        joins = any(b[0] == WORD_START != a[-1] for a, b in model["merges"])
        self.splits_at_marks = WORD_START in ids and not (joins or model.get("ignore_merges"))
        self._is_word = np.isin(np.arange(len(tokens)), [*made]) | bool(model.get("ignore_merges"))

    def __call__(
        self, words: tf.Tensor, known: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        found = pieces_of_words(words, known, self._split)
        ids, owners = found.flat_values, tf.cast(rows_of_values(found), tf.int32)
        sizes = tf.gather(self._characters, ids)
        ends = tf.cumsum(sizes)
        before = tf.gather(tf.concat([[0], ends], 0), tf.gather(found.row_splits, owners))
        starts = ends - tf.maximum(sizes, 1) - before
        if self._unk_id is not None:
            is_missing = ids == self._missing
            ids = tf.where(is_missing, self._unk_id, ids)
            if self._fuses:
                kept = places_of(~(is_missing & previous(is_missing, False) & (starts > 0)))
                ids, owners, starts = (tf.gather(values, kept) for values in (ids, owners, starts))
        return ids, owners, starts

    def words_of_one_piece(self, tokens: Sequence[str]) -> dict[str, int]:
        """Return the words that are one token, and its id."""
        return {tokens[number]: number for number in np.flatnonzero(self._is_word).tolist()}

    def _split(self, words: tf.Tensor) -> tf.RaggedTensor:
        codes = decode(words)
        symbols, splits = self._ids(codes.flat_values) - 1, codes.row_splits
        is_missing = symbols < 0
        symbols = tf.where(is_missing, self._missing, symbols)
        if self._byte_ids is not None:
            texts = encode(codes.flat_values[:, tf.newaxis])
            symbols, _, places = with_bytes(symbols, texts, is_missing, self._byte_ids)
            splits = tf.gather(places, splits)
        return ragged_rows(*self.merge(symbols, splits))


def byte_tokens(ids: Mapping[str, int]) -> np.ndarray:
    """Return the ids of the tokens for the 256 bytes; -1 stands for a byte without one."""
    return np.array([ids.get(f"<0x{byte:02X}>", -1) for byte in range(0x100)], np.int32)


def with_bytes(
    ids: tf.Tensor, texts: tf.Tensor, chosen: tf.Tensor, byte_ids: np.ndarray
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Replace the chosen tokens by the bytes of their texts.

    Returns:
        The new ids, the token that each comes from, and the first new id of each token.
    """
    parts = decode(tf.strings.unicode_transcode(tf.where(chosen, texts, " "), LATIN, "UTF-8"))
    rows, of_bytes = rows_of_values(parts), tf.gather(byte_ids, parts.flat_values)
    ids = tf.where(tf.gather(chosen, rows), of_bytes, tf.gather(ids, rows))
    return ids, rows, parts.row_splits


def _ranks(
    lengths: Sequence[int],
    symbols: np.ndarray,
    ids: Mapping[str, int],
    merges: Sequence[Sequence[str]],
) -> dict[int, int]:
    """Return the ids of the tokens that merges make of their symbols, with the rank of the last.

    One merge per turn is done in all tokens at once.
    """
    size = len(lengths) + 1  # the last number stands for a missing token
    of_pair = {ids[a] * size + ids[b]: (rank, ids[a + b]) for rank, (a, b) in enumerate(merges)}
    keys = np.array([-1, *sorted(of_pair)], np.int64)
    ranks, results = np.array([(0, 0), *(of_pair[key] for key in keys[1:].tolist())]).T
    symbols, owners = symbols.astype(np.int64), np.repeat(np.arange(len(lengths)), lengths)
    found = {number: 0 for number, length in enumerate(lengths) if length == 1}
    while True:
        pairs = np.where(owners[:-1] == owners[1:], symbols[:-1] * size + symbols[1:], -2)
        pair = np.searchsorted(keys, pairs, side="right") - 1
        places = np.flatnonzero(keys[pair] == pairs)
        if not places.size:
            return found
        order = np.lexsort((places, ranks[pair[places]], owners[places]))
        active, first = np.unique(owners[places[order]], return_index=True)
        places = places[order][first]  # of the first merge of each token
        symbols[places] = results[pair[places]]
        last = dict(zip(active.tolist(), ranks[pair[places]].tolist(), strict=True))
        kept = np.zeros(len(lengths), bool)
        kept[active] = True  # other tokens are finished
        kept = kept[owners]
        kept[places + 1] = False
        symbols, owners = symbols[kept], owners[kept]
        counts = np.bincount(owners, minlength=len(lengths))
        found |= {number: rank for number, rank in last.items() if counts[number] == 1}
