"""Texts that a caller passes: which values count, and how many texts are truncated."""

from collections.abc import Iterable
from typing import Any

from keras_bert_d2l.checks import is_of_numpy, shown


def has_surrogate(value: object) -> bool:
    """Return whether a string, or one in a list, has half of a surrogate pair.

    JSON may have one, but UTF-8 cannot encode it. Programs that truncate an emoji leave one.
    """
    if not isinstance(value, str):
        return isinstance(value, tuple | list) and any(map(has_surrogate, value))
    if value.isascii():  # faster than encoding it
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def text_list(name: str, texts: Any, *, words: bool = False) -> list[Any]:
    """Return texts as a list of strings.

    Args:
        name: Name of the argument, for the message.
        texts: One text, or several: a list, a tuple, a column, an array or a tensor of strings.
            Bytes are decoded.
        words: Whether the items may be lists of words instead, such as the words of each text.

    Raises:
        ValueError: It is something else, or an item is not a text, such as None, NaN or a number.
    """
    items = [texts] if isinstance(texts, str) else texts
    if hasattr(items, "to_list"):  # a column of a table, or a ragged tensor
        items = items.to_list()
    elif not isinstance(items, list | tuple):
        import numpy as np

        items = np.asarray(items, object).tolist()
    if not isinstance(items, list | tuple) or hasattr(texts, "columns"):
        raise ValueError(f"`{name}` must be a text or a list of texts. Received: {shown(texts)}.")
    found = [
        item if type(item) is str and item.isascii() else _text(name, item, words, index)
        for index, item in enumerate(items)
    ]
    for index, item in enumerate(found if words else ()):
        if type(item) is not type(found[0]):
            received = f"{shown(item)} at index {index}"
            raise ValueError(f"`{name}` must be all strings or all lists. Received: {received}.")
    return found


def _text(name: str, item: Any, words: bool, index: int) -> str | list[str]:
    text = item.numpy() if hasattr(item, "numpy") else item  # a tensor
    is_list = isinstance(text, list | tuple) or is_of_numpy(text, "ndarray")
    if words and (is_list or hasattr(text, "to_list")):
        return text_list(f"{name}[{index}]", text)
    expected, advice = "strings", "Remove the example, or replace the value with a string."
    if isinstance(text, str | bytes):
        try:
            return (text.encode() if isinstance(text, str) else text).decode()
        except UnicodeError:
            expected = "valid UTF-8, without half of a surrogate pair"
            advice = "Read the text with the right encoding."
    received = f"Received: {shown(text)} at index {index}."
    raise ValueError(f"`{name}` must be {expected}. {received} {advice}")


def check_filled(kind: str, texts: Iterable[str]) -> None:
    """Raise a `ValueError` if a text is empty. `kind` names the texts, such as "question"."""
    for index, text in enumerate(texts):
        if not text.strip():
            raise ValueError(
                f"A {kind} must not be empty. Received: {shown(text)} at index {index}."
            )


class TruncationWarning(UserWarning):
    """How many texts, or pairs of texts, were too long and lost their last tokens.

    Args:
        number: Number of texts or pairs.
        kind: What is counted, "text" or "pair".
        max_len: Number of tokens that are left, including special tokens.
    """

    def __init__(self, number: int, kind: str, max_len: int) -> None:
        self.number, self.kind, self.max_len = number, kind, max_len
        super().__init__(
            f"Truncated to {max_len} tokens, including special tokens: {number:,} "
            f"{kind if number == 1 else kind + 's'}. Where `truncate=False` is an option, it makes "
            "this an error."
        )
