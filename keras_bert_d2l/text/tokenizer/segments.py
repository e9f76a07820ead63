"""The book's `get_tokens_and_segments`, which joins lists of tokens (strings, not ids)."""

from collections.abc import Sequence

from keras_bert_d2l.checks import check_list
from keras_bert_d2l.text.vocab.vocab import BOOK_SPECIALS

_, _, CLS, SEP, _ = BOOK_SPECIALS


def get_tokens_and_segments(
    tokens_a: Sequence[str], tokens_b: Sequence[str] | None = None
) -> tuple[list[str], list[int]]:
    """Join one or two lists of tokens into a BERT input sequence (d2l.ai, section 15.8.4).

    The sequence is `<cls> a <sep>` or `<cls> a <sep> b <sep>`. Segment 0 ends with the first
    `<sep>`. The inputs are not changed.

    Args:
        tokens_a: Tokens of the first text.
        tokens_b: Tokens of the second text, or None for a single text.

    Returns:
        The tokens including the special tokens, and a list of the same length with the segment of
        each token, 0 or 1.

    Raises:
        ValueError: If an argument is a string instead of a list of tokens.

    Example:
        >>> import keras_bert_d2l as kb
        >>> kb.get_tokens_and_segments(["the", "cat"], ["sat"])
        (['<cls>', 'the', 'cat', '<sep>', 'sat', '<sep>'], [0, 0, 0, 0, 1, 1])
    """
    for name, tokens in (("tokens_a", tokens_a), ("tokens_b", tokens_b)):
        if isinstance(tokens, str):
            raise ValueError(
                f"`{name}` must be a list of tokens. Received the text {tokens!r}. "
                f"Split it first, for example with `{name}.split()`."
            )
        if tokens is not None or name == "tokens_a":
            check_list(name, tokens, "tokens")
    tokens = [CLS, *tokens_a, SEP]
    segments = [0] * len(tokens)
    if tokens_b is not None:
        tokens += [*tokens_b, SEP]
        segments += [1] * (len(tokens_b) + 1)
    return tokens, segments
