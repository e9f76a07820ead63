"""Text normalization before tokenization, as TensorFlow ops.

The rules are those of `BasicTokenizer` in google-research/bert's `tokenization.py`, or of
`BertNormalizer` in Hugging Face's tokenizers. The tokenizer and vocabulary learning share them.
B: texts in the batch.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, cast

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import check_bool, check_choice, check_list, check_that
from keras_bert_d2l.text.unicode_forms import NormalForm
from keras_bert_d2l.text.unicode_gaps import CHINESE, character_class, replacements, used_codes

COMPATIBLE = ("google", "huggingface")
SIDES = ("right", "left")  # of a text, which truncation removes
CORPUS_UNKNOWN = "[UNK]"  # spelling in corpora, independent of the vocabulary
MARK = "\x01"  # a control character, which normalized text does not contain otherwise
_UNMARKED = "\x02"  # stands in for a MARK in the input; later removed as a control character
_OWN_MARK = "\x03"  # a MARK around one of the user's special tokens, until `_hide` replaces it
# Added to the characters of the user's special tokens. No op changes or splits the result, which is
# a private-use character.
HIDDEN = 0x100000
_MOST_CHARACTERS = 90  # of a special token, whose hidden form must fit into one word of WordPiece
_NO_CHARACTER = 0x10FFFF  # replaces bytes that are not UTF-8; no vocabulary contains it

# Unicode categories Cc and Cf and the replacement character, except tab, line ends and MARK.
_REMOVED = r"[\x{00}\x02-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\x{fffd}]+"
# Texts with only these characters need no more than ASCII lowercasing: ASCII, symbols and
# punctuation of Latin-1, dashes, quotation marks, currency signs and the minus sign.
_PLAIN = (
    r"[\t\n\r -~\x{a1}-\x{ac}\x{ae}-\x{bf}\x{d7}\x{f7}"
    r"\x{2010}-\x{2027}\x{2030}-\x{2038}\x{20a0}-\x{20bf}\x{2212}]*"
)
_PRIVATE = r"\p{Co}"  # removed by Hugging Face
_ACCENTS = r"\p{Mn}+"
_CHINESE = re.sub(r"(\w+)-(\w+) ?", r"\\x{\1}-\\x{\2}", CHINESE)
_WORD_OF_ITS_OWN = rf"([!-/:-@\[-`{{-~\p{{P}}{_CHINESE}])"
# White space of more than one byte in UTF-8, and the other white space of normalized texts.
_LONG_SPACES = r"[\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
SHORT_SPACES = r"[\t\n\r ]"


class TokenizerOptions(TypedDict, total=False):
    """Keyword arguments of `Tokenizer`, apart from the vocabulary."""

    lowercase: bool
    compat: str
    split_special_tokens: bool
    strip_accents: bool | None
    tokenize_chinese_chars: bool
    special_tokens: Sequence[str]
    normalized_tokens: Sequence[str]
    truncation_side: str


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Cleans texts before they are split into words.

    Control and format characters are removed. With `lowercase`, text is lowercased; with
    `strip_accents`, accents are removed (NFD without category Mn). A special token in the text
    becomes its marker, which is a separate word, unless `split_special_tokens` is set.

    Args:
        standard_tokens: Padding, unknown, start, separator and mask token of the vocabulary.
        lowercase: Whether to lowercase.
        compat: Which tokenizer's rules to follow, `"google"` or `"huggingface"`.
        split_special_tokens: Whether to treat special tokens in a text as ordinary text.
        strip_accents: Whether to remove accents. `None` means the value of `lowercase`.
        tokenize_chinese_chars: Whether each Chinese character is a separate word.
        special_tokens: More special tokens, which are matched before anything else is done.
        normalized_tokens: Tokens that stay whole in the normalized text. `WordPieces` finds them.

    Raises:
        ValueError: If an option has an invalid value.
    """

    standard_tokens: Sequence[str]
    lowercase: bool = True
    compat: str = "google"
    split_special_tokens: bool = False
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    special_tokens: Sequence[str] = ()
    normalized_tokens: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("compat", self.compat, COMPATIBLE)
        for name in ("lowercase", "split_special_tokens", "tokenize_chinese_chars"):
            check_bool(name, getattr(self, name))
        check_choice("strip_accents", self.strip_accents, (None, True, False))
        has_google = self.tokenize_chinese_chars and self.strips_accents == self.lowercase
        expected = "'huggingface' for `strip_accents` and `tokenize_chinese_chars`"
        advice = "google-research/bert does not have these options."
        check_that(has_google or self.compat != "google", "compat", expected, self.compat, advice)
        check_list("normalized_tokens", self.normalized_tokens, "strings")
        for token in self.normalized_tokens:
            is_text = isinstance(token, str) and token.strip() == token != ""
            check_that(is_text, "normalized_tokens", "strings without spaces at their ends", token)
        self._check_special_tokens()
        for name in ("standard_tokens", "special_tokens", "normalized_tokens"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # can be hashed

    def _check_special_tokens(self) -> None:
        """Raise a `ValueError` unless the user's special tokens can be told from other text."""
        own = self.special_tokens
        check_list("special_tokens", own, "strings")
        if not own:
            return
        is_whole, expected = not self.split_special_tokens, "False with `special_tokens`"
        check_that(is_whole, "split_special_tokens", expected, True, "Remove one of the two.")
        expected = (
            f"different strings of 1 to {_MOST_CHARACTERS} characters, which do not overlap "
            f"{' '.join(self.standard_tokens)} and have no control, private-use or rare characters"
        )
        changed, others = self._replacements, (*self.standard_tokens, CORPUS_UNKNOWN)
        for token in own:
            is_right = (
                isinstance(token, str)
                and 0 < len(token) <= _MOST_CHARACTERS
                and list(own).count(token) == 1
                and not any(_overlap(token, other) for other in others)
                and not any(
                    ord(c) in changed or ord(c) > 0xFFFD or unicodedata.category(c)[0] == "C"
                    for c in token
                )
            )
            check_that(is_right, "special_tokens", expected, token)

    def options(self) -> TokenizerOptions:
        """Return the arguments other than `standard_tokens`, and without empty lists."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[1:]}
        lists = {name: list(options.pop(name)) for name in ("special_tokens", "normalized_tokens")}
        given = {name: tokens for name, tokens in lists.items() if tokens}
        return cast(TokenizerOptions, options | given)

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed."""
        return self.lowercase if self.strip_accents is None else self.strip_accents

    @property
    def markers(self) -> dict[str, str]:
        """The word that replaces each special token in a normalized text."""
        # A "/", as in "</s>", would be a word.
        names = {token: token[1:-1].replace("/", "x") for token in self.standard_tokens}
        if self.lowercase:
            names = {token: name.lower() for token, name in names.items()}
        for token in self.special_tokens:
            names[token] = "".join(chr(ord(c) + HIDDEN) for c in token)
        return {token: f"{MARK}{name}{MARK}" for token, name in names.items()}

    @property
    def _own_tokens(self) -> str:
        """A regular expression for the user's special tokens that prefers the longest match."""
        longest_first = sorted(self.special_tokens, key=len, reverse=True)
        return "|".join("".join(rf"\x{{{ord(c):x}}}" for c in token) for token in longest_first)

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalize UTF-8 texts: strings `(B,)` to strings `(B,)`."""
        is_other = ~tf.strings.regex_full_match(texts, _PLAIN)
        if self.special_tokens:
            is_other |= tf.strings.regex_full_match(texts, f"(?s).*({self._own_tokens}).*")
        others = tf.where(is_other)
        plain = self._mark_special_tokens(texts)
        if self.lowercase:
            plain = tf.strings.lower(plain)

        def with_others() -> tf.Tensor:
            cleaned = self.clean(self.mark(tf.gather_nd(texts, others)))
            return tf.tensor_scatter_nd_update(plain, others, cleaned)

        # For plain texts both branches are equivalent, but cleaning is several times slower.
        return tf.cond(tf.size(others) > 0, with_others, lambda: plain)

    def mark(self, texts: tf.Tensor) -> tf.Tensor:
        """Replace the brackets of special tokens with MARK and add spaces around them.

        The user's special tokens keep their brackets, hidden like their other characters, and get
        a MARK on each side. No other character is added or removed. Some are replaced by one that
        `clean` handles.
        """
        texts = self._replace(texts)
        if self.special_tokens:  # first, because they may begin or end with spaces
            texts = self._hide_own_tokens(texts)
        return self._mark_special_tokens(texts)

    def _mark_special_tokens(self, texts: tf.Tensor) -> tf.Tensor:
        if self.split_special_tokens:
            return texts
        left, right = self.standard_tokens[0][0], self.standard_tokens[0][-1]
        names = "|".join(token[1:-1] for token in self.standard_tokens if token[0] == left)
        mark = rf" {MARK}\1{MARK} "
        texts = tf.strings.regex_replace(texts, rf"\{left}({names})\{right}", mark)
        if "/" in names:
            texts = tf.strings.regex_replace(texts, f"{MARK}/", f"{MARK}x")
        if left == CORPUS_UNKNOWN[0]:
            return texts
        mark = mark.replace(r"\1", self.standard_tokens[1][1:-1])
        return tf.strings.regex_replace(texts, re.escape(CORPUS_UNKNOWN), mark)

    def _hide_own_tokens(self, texts: tf.Tensor) -> tf.Tensor:
        """Hide the user's special tokens from all later ops, which would change or split them."""
        mark = rf" {_OWN_MARK}\1{_OWN_MARK} "
        codes = decode(tf.strings.regex_replace(texts, f"({self._own_tokens})", mark))
        values = codes.flat_values
        is_mark = values == ord(_OWN_MARK)
        is_hidden = tf.cumsum(tf.cast(is_mark, tf.int32)) % 2 == 1
        values = tf.where(is_hidden, values + HIDDEN, values)
        return encode(codes.with_flat_values(tf.where(is_mark, ord(MARK), values)))

    @functools.cached_property
    def clean(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Normalizes the output of `mark`, character by character (except for final sigmas)."""
        return in_graph(self._clean)

    def _clean(self, marked: tf.Tensor) -> tf.Tensor:
        texts = tf.strings.regex_replace(marked, _REMOVED, "")
        texts = tf.strings.regex_replace(texts, _LONG_SPACES, " ")
        if self.lowercase:
            # Unicode lowercasing depends on the locale: Turkish turns I into a dotless i. If ASCII
            # is lowercased first, locales only differ in dots above i, which are accents.
            if not self.strips_accents:
                texts = tf.strings.regex_replace(texts, "İ", "i\u0307")
            texts = tf.strings.lower(tf.strings.lower(texts), encoding="utf-8")
        if not self.strips_accents:
            return texts
        parts = split_at(texts, _with_accents())
        values = parts.flat_values
        first = tf.gather(parts.row_splits, rows_of_values(parts))
        within = tf.range(tf.size(values, tf.int64)) - first
        places = tf.where(within % 2 == 1)
        runs, place = tf.unique(tf.gather_nd(values, places))
        plain = tf.strings.regex_replace(_decomposed()(runs), _ACCENTS, "")
        values = tf.tensor_scatter_nd_update(values, places, tf.gather(plain, place))
        return tf.strings.reduce_join(parts.with_flat_values(values), axis=1)

    @property
    def _replacements(self) -> dict[int, int]:
        marks = MARK + _OWN_MARK if self.special_tokens else MARK
        return dict.fromkeys(map(ord, marks), ord(_UNMARKED)) | replacements(
            self.compat, self.lowercase, self.strips_accents, self.tokenize_chinese_chars
        )

    def _replace(self, texts: tf.Tensor) -> tf.Tensor:
        """Replace characters that `mark` and `clean` would handle incorrectly. They are rare."""
        new = self._replacements
        private = _PRIVATE if self.compat == "huggingface" else ""
        wanted = private + character_class(new)
        places = tf.where(tf.strings.regex_full_match(texts, f"(?s).*[{wanted}].*"))

        def replaced() -> tf.Tensor:
            some = tf.gather_nd(texts, places)
            if private:
                some = tf.strings.regex_replace(some, private, _UNMARKED)
            codes = decode(some)
            old, values = np.array(sorted(new.items()), np.int32).T
            place = tf.minimum(tf.searchsorted(old, codes.flat_values), len(old) - 1)
            is_old = tf.gather(old, place) == codes.flat_values
            values = tf.where(is_old, tf.gather(values, place), codes.flat_values)
            some = encode(codes.with_flat_values(values))
            return tf.tensor_scatter_nd_update(texts, places, some)

        return tf.cond(tf.size(places) > 0, replaced, lambda: texts)


@functools.cache
def _decomposed() -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the function that brings texts into the normalization form NFD."""
    form = NormalForm("NFD")

    def decomposed(texts: tf.Tensor) -> tf.Tensor:
        codes = decode(texts)
        rows = tf.cast(rows_of_values(codes), tf.int32)
        values, rows, _ = form(codes.flat_values, rows)
        limits = tf.range(tf.size(codes.row_splits))
        return encode(ragged_rows(values, tf.searchsorted(rows, limits, out_type=tf.int64)))

    return in_graph(decomposed)


@functools.cache
def _with_accents() -> str:
    """Return a regular expression for accents, and for characters that NFD changes or moves."""
    codes = [
        code
        for code in used_codes()
        if unicodedata.combining(chr(code)) or not unicodedata.is_normalized("NFD", chr(code))
    ]
    return rf"[\p{{Mn}}{character_class(codes)}]+"


def normalization_of(options: TokenizerOptions, tokens: Sequence[str] = ()) -> Normalization:
    """Return the normalization of a `Tokenizer` with these options, after checking all of them.

    `tokens` are its `standard_tokens`.
    """
    check_choice("truncation_side", options.get("truncation_side", SIDES[0]), SIDES)
    own: Any = {name: value for name, value in options.items() if name != "truncation_side"}
    return Normalization(tokens, **own)


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Split normalized texts at white space and around punctuation and Chinese characters.

    Args:
        texts: Output of a `Normalization` with Google's rules, strings `(B,)`.

    Returns:
        The words, ragged strings `(B, None)`.
    """
    return tf.strings.split(tf.strings.regex_replace(texts, _WORD_OF_ITS_OWN, r" \1 "))


def split_at_spaces(texts: tf.Tensor) -> tf.RaggedTensor:
    """Split normalized texts at each byte of white space, ragged strings `(B, None)`."""
    # If the pattern had the plain space, too, this would take nine times as long.
    return split_at_byte(tf.strings.regex_replace(texts, r"[\t\n\r]", " "), b" ")


def decode(texts: tf.Tensor) -> tf.RaggedTensor:
    """Return the code points of texts, ragged int32 `(B, None)`."""
    return tf.strings.unicode_decode(texts, "UTF-8", replacement_char=_NO_CHARACTER)


def split_at(texts: tf.Tensor, pattern: str, sides: str = "both") -> tf.RaggedTensor:
    """Split texts before and after each match of a pattern, unlike `regex_split` also beyond NUL.

    Args:
        texts: Strings `(B,)` in UTF-8.
        pattern: A regular expression.
        sides: Where to split: `"before"` a match, `"after"` it, or `"both"`.

    Returns:
        Ragged strings `(B, None)`. With both sides, every second value of a text, from the second
        on, is a match. The others may be empty.
    """
    mark = b"\xfe"  # does not occur in UTF-8
    before, after = (mark if sides in (side, "both") else b"" for side in ("before", "after"))
    texts = tf.strings.regex_replace(texts, pattern, before + rb"\0" + after)
    return split_at_byte(texts, mark)


def split_at_byte(texts: tf.Tensor, mark: bytes) -> tf.RaggedTensor:
    """Split texts at a separator, as `tf.strings.split` does with more operations in a graph."""
    places, values, _ = tf.raw_ops.StringSplitV2(input=texts, sep=mark)
    splits = tf.searchsorted(
        places[:, 0], tf.range(tf.size(texts, tf.int64) + 1), out_type=tf.int64
    )
    return ragged_rows(values, splits)


def in_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of strings `(B,)`, because operations run several times faster in a graph.

    The result hides the graph, so that a SavedModel does not store it a second time.
    """
    graph = tf.function(function, [tf.TensorSpec([None], tf.string)], autograph=False)
    return lambda texts: graph(texts)


def ragged_rows(values: tf.Tensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """Return a ragged tensor whose splits are known to be valid."""
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def rows_of_values(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Return the row of each value, as `value_rowids` does with many more operations in a graph."""
    values = tf.range(ragged.row_splits[-1])
    return tf.searchsorted(ragged.row_splits[1:], values, side="right", out_type=tf.int64)


def encode(codes: tf.Tensor) -> tf.Tensor:
    """Return the texts of code points `(B, None)`, dense or ragged, as strings `(B,)`."""
    return tf.strings.unicode_encode(codes, "UTF-8")


def _overlap(token: str, standard: str) -> bool:
    """Return whether a text could contain two special tokens that share characters."""
    ends = any(token.endswith(standard[:n]) for n in range(1, len(standard)))
    return ends or token in standard or standard in token
