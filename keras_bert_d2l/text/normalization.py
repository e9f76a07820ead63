"""Strings in, normalised strings or words out: google's rules as TensorFlow ops.

These are the rules of `BasicTokenizer` in `tokenization.py` of google-research/bert, which the
tokenizer and the learner of vocabularies share. B: texts in the batch.
"""

from collections.abc import Sequence

import tensorflow as tf

from keras_bert_d2l.text._tensorflow_text import tensorflow_text

MAX_WORD_CHARACTERS = 200  # a longer word becomes the unknown token
_MARK = "\x01"  # a control character: the normalised text has none of its own
_BOOK_UNKNOWN = "<unk>"  # WikiText and the book's corpora write it where a rare word was

# Unicode categories Cc and Cf and the replacement character, without tab and line ends.
_REMOVED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\x{fffd}]+"
_ACCENTS = r"\p{Mn}+"
_CHINESE = (
    r"\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}"
    r"\x{2b740}-\x{2b81f}\x{2b820}-\x{2ceaf}\x{2f800}-\x{2fa1f}"
)
_WORD_OF_ITS_OWN = rf"([!-/:-@\[-`{{-~\p{{P}}{_CHINESE}])"
# Without the space itself: rewriting each would take nine times as long.
_OTHER_SPACES = r"[\t\n\r\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"
# Some text that may hold a word of more than 200 characters. The exact class (with \p{P}) times
# 201 outgrows the engine and is 80 times slower; this one lets a few harmless texts through.
_MAYBE_LONG = (
    r"(?s).*[^\x00-/:-@\[-`{-\x7f\x{2000}-\x{206f}\x{3000}-\x{30ff}\x{3400}-\x{9fff}"
    rf"\x{{ff00}}-\x{{ff0f}}]{{{MAX_WORD_CHARACTERS + 1}}}.*"
)


def special_markers(special_tokens: Sequence[str], lowercase: bool) -> list[str]:
    """Returns the words that stand for `special_tokens` in a normalised text, in that order."""
    names = [token[1:-1].lower() if lowercase else token[1:-1] for token in special_tokens]
    return [f"{_MARK}{name}{_MARK}" for name in names]


def normalize(texts: tf.Tensor, special_tokens: Sequence[str], lowercase: bool) -> tf.Tensor:
    """Cleans texts as google's BERT does before it splits them into words.

    Control and format characters vanish; with `lowercase` the text is lowered and stripped of its
    accents (NFD, without category Mn). A special token written in the text becomes its marker, a
    word of its own; so do `<unk>`, whatever the spelling, and a word of more than 200 characters:
    both become the marker of the unknown token.

    Args:
        texts: Strings `(B,)`, UTF-8.
        special_tokens: Padding, unknown, start, separator and mask as the vocabulary spells them.
        lowercase: Whether the vocabulary is of lowered words.

    Returns: strings `(B,)`.
    """
    texts = tf.strings.regex_replace(texts, _REMOVED, "")
    texts = _mark_specials(texts, special_tokens)
    if lowercase:
        # Unicode lowering follows the locale of the process: a Turkish one turns I into dotless i.
        # With ASCII lowered first, the locales differ in accents alone, and those go.
        texts = tf.strings.lower(tf.strings.lower(texts), encoding="utf-8")
        texts = tensorflow_text().normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, _ACCENTS, "")
    unknown = special_markers(special_tokens, lowercase)[1]
    return tf.cond(
        tf.reduce_any(tf.strings.regex_full_match(texts, _MAYBE_LONG)),
        lambda: _replace_long_words(texts, unknown),
        lambda: texts,
    )


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits normalised texts at white space and around punctuation and Chinese characters.

    Args:
        texts: What `normalize` returned, strings `(B,)`.

    Returns: words, ragged strings `(B, None)`.
    """
    texts = tf.strings.regex_replace(texts, _OTHER_SPACES, " ")
    return tf.strings.split(tf.strings.regex_replace(texts, _WORD_OF_ITS_OWN, r" \1 "))


def _mark_specials(texts: tf.Tensor, special_tokens: Sequence[str]) -> tf.Tensor:
    left, right = special_tokens[0][0], special_tokens[0][-1]
    names = "|".join(token[1:-1] for token in special_tokens)
    mark = rf" {_MARK}\1{_MARK} "
    texts = tf.strings.regex_replace(texts, rf"\{left}({names})\{right}", mark)
    unknown = special_tokens[1]
    if unknown != _BOOK_UNKNOWN:
        texts = tf.strings.regex_replace(texts, _BOOK_UNKNOWN, mark.replace(r"\1", unknown[1:-1]))
    return texts


def _replace_long_words(texts: tf.Tensor, unknown: str) -> tf.Tensor:
    words = split_words(texts)
    is_long = tf.strings.length(words.flat_values, unit="UTF8_CHAR") > MAX_WORD_CHARACTERS
    words = words.with_flat_values(tf.where(is_long, unknown, words.flat_values))
    return tf.strings.reduce_join(words, axis=1, separator=" ")
