"""White space, and the words between spaces.

W: words.
"""

import functools
from typing import NamedTuple

import numpy as np

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SPACE = ord(" ")
_WORDS_AT_ONCE = 1 << 14  # so that intermediate results stay in the processor's cache
_POWER_BITS = 17


class Words(NamedTuple):
    """The words of a text in bytes: word w is `text[starts[w] : ends[w]]`.

    `hashes` has an equal number for equal words, whose high bits depend on all of its bytes,
    uint64 `(W,)`.
    """

    starts: np.ndarray
    ends: np.ndarray
    hashes: np.ndarray


def single_spaced(text: str) -> str:
    """Return the words of a text with one space between them, as `" ".join(text.split())`.

    Most lines already have such spaces, which is several times faster to find out.
    """
    # The plain space is the only printable character that is white space.
    if text.isprintable() and "  " not in text:
        return text.strip(" ")
    return " ".join(text.split())


def split_at_spaces(text: bytes) -> Words:
    """Split a text at every plain space. Its last byte must be a space."""
    content = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(content == _SPACE)
    starts = np.append(0, ends[:-1] + 1)
    hashes = np.empty(len(ends), np.uint64)
    for first in range(0, len(ends), _WORDS_AT_ONCE):
        some = slice(first, first + _WORDS_AT_ONCE)
        start, end = starts[first], ends[some][-1] + 1
        prefixes = content[start:end].astype(np.uint64)
        powers, inverses = _powers(1 << max(int(end - start).bit_length(), _POWER_BITS))
        prefixes *= powers[: end - start]
        np.cumsum(prefixes, out=prefixes)
        # A polynomial in the bytes of each word and the space after it, from the lowest power on.
        hashes[some] = np.diff(prefixes[ends[some] - start], prepend=np.uint64(0))
        hashes[some] *= inverses[starts[some] - start]
    return Words(starts, ends, scattered(hashes))


def scattered(values: np.ndarray) -> np.ndarray:
    """Return hashes whose high bits depend on every bit of the values."""
    return (values ^ (values >> np.uint64(32))) * _FACTOR


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first powers of the factor, and of its inverse modulo 2**64, uint64 `(count,)`."""
    inverse = np.uint64(pow(int(_FACTOR), -1, 1 << 64))
    powers, inverses = np.full((2, count), np.array([[_FACTOR], [inverse]]))
    return np.cumprod(powers), np.cumprod(inverses)
