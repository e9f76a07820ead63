"""Tags of words in, the stretches of words that they name out, and how many of these are right."""

import re
from collections.abc import Iterable, Sequence

# Letters of BIO, BIOES and BILOU, alone or before a type; IOB1 and IOBES use the same.
_TAG = re.compile(r"O|([BIESLU])(?:-(.+))?")
_SAME = {"L": "E", "U": "S"}  # last is end, unit is single

Span = tuple[str, int, int]


def has_scheme(labels: Iterable[str]) -> bool:
    """Tells whether labels are those of a scheme for spans: `B-PER`, `I-PER`, `O` and the like."""
    labels = set(labels)
    return bool(labels - {"O"}) and all(_TAG.fullmatch(label) for label in labels)


def spans(tags: Sequence[str]) -> list[Span]:
    """Finds the spans that the tags of a text name, whatever the scheme.

    A word belongs to the span of the word before if that one is tagged B or I, this one I or E,
    and both have the same type; any other word but O begins a span. So an I without a B begins
    one, as in IOB1, and a span that is never ended ends with its last word. This is the default
    reading of seqeval, and of the script of the CoNLL-2000 task.

    Args:
        tags: A tag for each word.

    Returns: type, first word and last word plus one of each span, in their order.

    Raises:
        ValueError: A tag is of no scheme.
    """
    found: list[Span] = []
    before, type_before = "O", ""
    for place, tag in enumerate(tags):
        match = _TAG.fullmatch(tag)
        if match is None:
            raise ValueError(
                "A tag must be O, or B, I, E or S (or L or U) and the type, such as 'B-PER'. "
                f"Received: {tag!r:.80}."
            )
        letter, type_ = _SAME.get(match[1], match[1]) or "O", match[2] or "_"
        if letter in "IE" and before in "BI" and type_ == type_before:
            found[-1] = (type_, found[-1][1], place + 1)
        elif letter != "O":
            found.append((type_, place, place + 1))
        before, type_before = letter, type_
    return found


def span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns precision, recall and F1 of the spans of all texts together.

    A span is right if the other side has one of the same type with the same words. What would be
    divided by zero is 0.

    Args:
        gold: The tags of the words of each text.
        predicted: As many.

    Returns: `precision`, `recall` and `f1`.
    """
    num_right = num_gold = num_predicted = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        wanted, found = set(spans(gold_tags)), set(spans(predicted_tags))
        num_right += len(wanted & found)
        num_gold += len(wanted)
        num_predicted += len(found)
    return {
        "precision": num_right / num_predicted if num_predicted else 0.0,
        "recall": num_right / num_gold if num_gold else 0.0,
        "f1": 2 * num_right / (num_gold + num_predicted) if num_right else 0.0,
    }
