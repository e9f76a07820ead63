"""What a person sees: texts, labels, tokens and names without characters that a terminal obeys.

Terminals execute control characters, and everything that displays text follows those for the
direction of writing. `printable` writes them as escapes. It is applied where text leaves the
package: to the output of commands, to pages, and to what functions print.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

# Control characters except tabs and line breaks, those for the direction of writing, other line
# ends, and halves of surrogate pairs, which stand for bytes of file names that are not UTF-8.
_OBEYED = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXTS, _IN_LINES = re.compile(f"[{_OBEYED}]"), re.compile(rf"[\t\n{_OBEYED}]")


def printable(text: str) -> str:
    r"""Return a text in which control characters are escapes such as `\u001b`.

    Tabs and line breaks stay. The escapes are those of JSON, so a line of JSON keeps its content.
    """
    return _IN_TEXTS.sub(_escape, text)


def one_line(text: str) -> str:
    """Return a text as `printable` does, with escapes for tabs and line breaks as well."""
    return _IN_LINES.sub(_escape, text)


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def cell(text: str, style: str = "") -> "Text":
    """Return a line of text for Rich, which would read brackets in a string as styles."""
    from rich.text import Text

    return Text(one_line(text), style)


class _Output:
    """A stream to which texts are written as `printable` returns them.

    Rich, which colors text by control characters, writes to the stream itself.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextlib.contextmanager
def printable_output(is_printable: bool = True) -> Iterator[None]:
    """Make everything printable that is written to standard output and standard error.

    Args:
        is_printable: False: leave the output as it is, for a program with a display of its own.
    """
    before = sys.stdout, sys.stderr
    plain = (getattr(stream, "rich_proxied_file", stream) for stream in before)
    made: Any = (_Output(one) if is_printable and one is not None else one for one in plain)
    sys.stdout, sys.stderr = made
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
