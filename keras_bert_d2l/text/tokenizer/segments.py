"""One or two token lists in, one BERT input sequence and its segment ids out."""

from collections.abc import Sequence

from keras_bert_d2l.text.vocab.vocab import BOOK_SPECIALS

_, _, CLS, SEP, _ = BOOK_SPECIALS


def get_tokens_and_segments(
    tokens_a: Sequence[str], tokens_b: Sequence[str] | None = None
) -> tuple[list[str], list[int]]:
    """Joins one or two token lists into a BERT input sequence.

    The sequence is `<cls> a <sep>` or `<cls> a <sep> b <sep>`; segment 0 runs up to and including
    the first `<sep>`. Neither input is changed. (d2l.ai, section 15.8.4.)

    Args:
        tokens_a: Tokens of the first text.
        tokens_b: Tokens of the second text, or None for a single text.

    Returns: the tokens, specials included, and as many segment ids, 0 or 1.

    Raises:
        ValueError: A text was passed where a list of tokens is expected.
    """
    for name, tokens in (("tokens_a", tokens_a), ("tokens_b", tokens_b)):
        if isinstance(tokens, str):
            raise ValueError(
                f"`{name}` must be a list of tokens. Received the text {tokens!r}; "
                f"split it first, for instance with `{name}.split()`."
            )
    tokens = [CLS, *tokens_a, SEP]
    segments = [0] * len(tokens)
    if tokens_b is not None:
        tokens += [*tokens_b, SEP]
        segments += [1] * (len(tokens_b) + 1)
    return tokens, segments
