"""Rewrite sections in the style of Keras for Griffe, which reads the docstrings for the site."""

import re

import griffe

REPLACEMENTS = {
    r"^(Returns|Yields): (?=\S)": r"\1:\n    ",  # a section in one line
    r"^Call arguments:$": "Other Args: Call arguments:",  # a list with this title
    r"^Example:(?=\n +>>>)": "Examples:",  # a doctest
}


class KerasSections(griffe.Extension):
    """Rewrite the headings of sections as Griffe expects them."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the docstring of an object that has been loaded."""
        if obj.docstring:
            text = obj.docstring.value
            for pattern, replacement in REPLACEMENTS.items():
                text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
            obj.docstring.value = text
