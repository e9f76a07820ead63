"""Entity spans, which tags such as `B-PER` and `I-PER` mark, and the metrics of tags and spans."""

import re
from collections.abc import Sequence

from keras_bert_d2l.checks import shown
from keras_bert_d2l.inference.evaluation import library
from keras_bert_d2l.tasks.tag.schemes import scheme_of

# The letters of BIO, BIOES and BILOU, alone or before a type. IOB1 and IOBES use the same letters.
_TAG = re.compile(r"O|([BIESLU])(?:-(.+))?")
_SAME = {"L": "E", "U": "S"}  # L (last) equals E (end), and U (unit) equals S (single)

Span = tuple[str, int, int]


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans that are marked by the tags of a text, as `scheme_of` returns them.

    A word continues the span of the previous word if the previous word is tagged B or I, the word
    itself is tagged I or E, and both have the same type. Any other word, except O, starts a new
    span. So an I without a B starts a span, as in IOB1, and an unfinished span ends with its last
    word. seqeval (by default) and the CoNLL-2000 script interpret tags in the same way.

    Args:
        tags: One tag per word.

    Returns: the type, the index of the first word, and the index after the last word of each span,
        in order.

    Raises:
        ValueError: A tag does not belong to any scheme.
    """
    found: list[Span] = []
    before, type_before = "O", ""
    for place, tag in enumerate(tags):
        match = _TAG.fullmatch(tag)
        if match is None:
            raise ValueError(
                "A tag must be O, or B, I, E or S (or L or U) and the type, such as 'B-PER'. "
                f"Received: {shown(tag)}."
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
    """Return precision, recall and F1 over the spans of all texts.

    A predicted span is correct if a gold span has the same type and the same words. A division by
    zero gives 0.

    Args:
        gold: The correct tags of each text's words.
        predicted: The predicted tags, with the same lengths.

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


def tagging_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Return the metrics for texts with tagged words.

    Args:
        gold: The correct tags of each text's words.
        predicted: The predicted tags, with the same lengths.
        labels: The labels of the model. They determine whether tags mark spans (`B-PER`, `I-PER`,
            `O`, in any scheme of `scheme_of`) or single words (`NOUN`).

    Returns: `accuracy` over all words; if tags mark spans, also `precision`, `recall` and `f1` of
        the spans, as seqeval computes them by default.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    of_gold, of_predicted = ([tag for tags in texts for tag in tags] for texts in (gold, predicted))
    scores = {"accuracy": float(library("sklearn.metrics").accuracy_score(of_gold, of_predicted))}
    scheme = scheme_of({*labels, *of_gold, *of_predicted})
    if scheme is None:
        return scores
    tags = ([[scheme[tag] for tag in texts] for texts in both] for both in (gold, predicted))
    return {**scores, **span_scores(*tags)}
