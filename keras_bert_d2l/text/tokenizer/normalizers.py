"""The normalizers of `tokenizer.json` as steps on characters, for all kinds but WordPiece.

Source: github.com/huggingface/tokenizers, `normalizers`.
"""

from keras_bert_d2l.reading import DAMAGE, errors_naming
from keras_bert_d2l.text.tokenizer import characters
from keras_bert_d2l.text.tokenizer.charsmap import Charsmap
from keras_bert_d2l.text.unicode_gaps import accents, lowercase_of, white_space
from keras_bert_d2l.types import ConfigDict


def normalizer(fields: ConfigDict) -> characters.Step:
    """Return the step for one normalizer of a definition.

    Raises:
        ValueError: If a field is missing or damaged.
    """
    problem, remedy = " in the normalizer is not valid", "Copy the tokenizer's files again."
    with errors_naming(fields["type"], problem, remedy, (*DAMAGE, AttributeError, TypeError)):
        return _step(fields)


def _step(fields: ConfigDict) -> characters.Step:
    kind = fields["type"]
    if kind == "Precompiled":
        return Charsmap(fields["precompiled_charsmap"])
    if kind == "Strip":
        return characters.strip(fields["strip_left"], fields["strip_right"])
    if kind == "Replace" and "String" in fields["pattern"]:
        return characters.replace_text(fields["pattern"]["String"], fields["content"])
    if kind == "Replace":
        pattern = fields["pattern"]["Regex"]
        codes = white_space() if pattern.startswith(r"\s") else {ord(" ")}
        singles = map(ord, "\n\r\t" if "|" in pattern else "")
        return characters.replace_runs(codes, singles, fields["content"])
    if kind == "Lowercase":
        return characters.map_characters(lowercase_of())
    if kind == "StripAccents":
        return characters.map_characters(dict.fromkeys(accents(), ""))
    return characters.normal_form(kind)
