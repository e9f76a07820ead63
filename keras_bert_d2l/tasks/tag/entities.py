"""Entity spans, which tags such as `B-PER` and `I-PER` mark, and the metrics of tags and spans.

Data sets write these tags in different schemes, which `scheme_of` recognizes.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

Span = tuple[str, int, int]
# B: begin; I, M (middle): inside; E, L (last): end; S, U (unit), W (whole): single.
_LETTERS = dict(zip("BIMELSUW", "BIIEESSS", strict=True))
_OUTSIDE = ("O", "o", "0")
_USUAL = re.compile(r"(?P<letter>[BIESLU])(?:-(?P<type>.+))?")
_OTHERS = (
    re.compile(r"(?P<letter>[BIESLUMW])(?:-(?P<type>.+))?", re.IGNORECASE),
    re.compile(r"(?P<letter>[BIESLUMW])[_:./|](?P<type>.+)", re.IGNORECASE),
    re.compile(r"(?P<type>.+)[-_:./|](?P<letter>[BIESLUMW])", re.IGNORECASE),
)


def scheme_of(labels: Iterable[str]) -> Mapping[str, str] | None:
    """Return the tags of labels, such as `{"PER_b": "B-PER", "0": "O"}`; None without a scheme.

    All labels must have one form. Labels of IOB, IOBES and BILOU, such as `B-PER`, are a scheme in
    any combination. Other letters and forms are one if some label is outside of entities, or if an
    entity can go on, because parts of speech may look like them.
    """
    return _scheme_of(frozenset(labels))


@functools.lru_cache
def _scheme_of(labels: frozenset[str]) -> Mapping[str, str] | None:
    for outside in (*map(frozenset, _OUTSIDE), frozenset(_OUTSIDE)):
        rest = labels - outside
        for form in (_USUAL, *_OTHERS):
            tags = {label: _tag(form, label) for label in rest}
            known = {label: tag for label, tag in tags.items() if tag}
            letters = {tag[0] for tag in known.values()}
            is_likely = bool(letters & {"B", "I"}) and (outside & labels or letters > {"B"})
            is_certain = form is _USUAL and outside == {"O"}
            if rest and known.keys() == rest and (is_likely or is_certain):
                return {**known, **dict.fromkeys(outside, "O")}
    return None


def _tag(form: re.Pattern[str], label: str) -> str | None:
    found = form.fullmatch(label)
    if found is None:
        return None
    letter = _LETTERS[found["letter"].upper()]
    return f"{letter}-{found['type']}" if found["type"] else letter


def tags_of(labels: Iterable[str]) -> dict[str, str]:
    """Return the tag of every label for `spans`. Without a scheme, equal ones form one span."""
    scheme = scheme_of(labels)
    if scheme is not None:
        return {label: scheme[label] for label in labels}
    kept = re.compile("O|[BIESLU]-.*", re.DOTALL)
    return {label: label if kept.fullmatch(label) else f"I-{label}" for label in labels}


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
    """
    found: list[Span] = []
    before, type_before = "O", ""
    for place, tag in enumerate(tags):
        letter, _, type_ = tag.partition("-")
        if letter in "IE" and before in "BI" and type_ == type_before:
            found[-1] = (type_ or "_", found[-1][1], place + 1)
        elif letter != "O":
            found.append((type_ or "_", place, place + 1))
        before, type_before = letter, type_
    return found


def allowed_moves(labels: Sequence[str]) -> np.ndarray | None:
    """Return which label may follow which in the schemes BIO and BIOES; `None` without a scheme.

    An inside continues a span of its type. If the labels have ends and single words, as in BIOES, a
    span goes on to its end. In all other schemes, it may end anywhere.

    Returns: bool `(L + 1, L + 1)`, as `CRF.viterbi` takes it: from the label of the row, or the
        start of a text, to the label of the column, or to the end of a text.
    """
    scheme = scheme_of(labels)
    if scheme is None:
        return None
    tags = [*(scheme[label].partition("-") for label in labels), ("O", "", "")]
    has_ends = {"E", "S"} <= {letter for letter, *_ in tags}
    is_open, goes_on = (
        np.array([letter in letters for letter, *_ in tags]) for letters in ("BI", "IE")
    )
    types = np.array([type_ for *_, type_ in tags])
    is_same = is_open[:, None] & goes_on & (types[:, None] == types)
    is_new = ~goes_on & ~is_open[:, None] if has_ends else np.tile(~goes_on, (len(tags), 1))
    return is_same | is_new


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
    """
    of_gold, of_predicted = ([tag for tags in texts for tag in tags] for texts in (gold, predicted))
    num_right = sum(a == b for a, b in zip(of_gold, of_predicted, strict=True))
    scores = {"accuracy": num_right / max(len(of_gold), 1)}
    scheme = scheme_of({*labels, *of_gold, *of_predicted})
    if scheme is None:
        return scores
    tags = ([[scheme[tag] for tag in texts] for texts in both] for both in (gold, predicted))
    return {**scores, **span_scores(*tags)}
