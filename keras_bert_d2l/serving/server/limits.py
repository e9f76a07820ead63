"""Limits of one request, so that it cannot exhaust the memory of the server."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the command line imports this module before TensorFlow
    from keras_bert_d2l.serving.protocol import Arrays, Specs

_BYTES_PER_TOKEN = 4  # of ordinary text
_SIGNS_PER_TOKEN = 16  # commas and brackets, in several inputs


class TooLargeError(ValueError):
    """A request exceeds a limit of the server. The HTTP status is 413."""


class Limits(NamedTuple):
    """Limits of one request.

    Attributes:
        max_rows: Maximum number of rows.
        max_tokens: Maximum number of tokens, including padding.
        max_outputs: Maximum number of numbers and strings in the response.
        max_bytes: Maximum size of the body in bytes.
    """

    max_rows: int = 1024
    max_tokens: int = 2**15
    max_outputs: int = 2**24
    max_bytes: int = 16 * 2**20

    def check_body(self, body: bytes) -> None:
        """Raise `TooLargeError` if JSON has too many values, before they are parsed.

        Commas and opening brackets count, except in strings. A value takes up to 30 times as much
        memory as its bytes in the body.
        """
        most = _SIGNS_PER_TOKEN * self.max_tokens
        if sum(map(body.count, b",[{")) > most:
            import numpy as np

            text = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
            is_outside = ~np.logical_xor.accumulate(text == ord('"'))
            size = sum(np.count_nonzero(is_outside & (text == sign)) for sign in b",[{")
            if size > most:
                raise TooLargeError(
                    f"A request may have at most {most} values. Received: {size}. Send fewer or "
                    "shorter rows, or start the server with a larger `--max-tokens`."
                )

    def check_rows(self, columns: Mapping[str, object], specs: "Specs") -> None:
        """Raise `TooLargeError` if there are too many rows, before they are converted.

        Args:
            columns: Nested lists by name.
            specs: Inputs of the signature. Rows are the elements of those with variable size.
        """
        for name, spec in specs.items():
            values, has_rows = columns.get(name), spec.shape and spec.shape[0] is None
            if has_rows and isinstance(values, list) and len(values) > self.max_rows:
                raise TooLargeError(
                    f"A request may have at most {self.max_rows} rows. Received: {len(values)}. "
                    "Split it, or start the server with a larger `--max-rows`."
                )

    def check_tokens(self, inputs: "Arrays", max_len: int | None) -> None:
        """Raise `TooLargeError` if there are too many tokens.

        The number of tokens in texts is estimated without tokenizing them. A text has at most one
        token per byte.

        Args:
            inputs: Arrays by name.
            max_len: Length to which the model truncates and pads texts. `None`: it reads all of
                them, in about one token per four bytes.
        """
        size = max((array.size for array in inputs.values()), default=0)
        lengths = [[len(text) for text in x.flat] for x in inputs.values() if x.dtype == object]
        if max_len is None:
            size = max(size, sum(map(sum, lengths)) // _BYTES_PER_TOKEN)
        else:
            longest = sum(max(texts, default=0) for texts in lengths)
            size *= max(1, min(longest, max_len))
        if size > self.max_tokens:
            raise TooLargeError(
                f"A request may have at most {self.max_tokens} tokens. Received: up to {size}, "
                "including padding to the longest row. Send fewer or shorter rows, or start the "
                "server with a larger `--max-tokens`."
            )

    def check_outputs(self, outputs: "Arrays") -> None:
        """Raise `TooLargeError` if there are too many values to convert to JSON."""
        size = sum(array.size for array in outputs.values())
        if size > self.max_outputs:
            raise TooLargeError(
                f"A response may have at most {self.max_outputs} values. Received: {size}. Send "
                "fewer or shorter rows."
            )
