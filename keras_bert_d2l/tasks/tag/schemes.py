"""Tagging schemes: which labels mark the parts of entities, and how data sets write them."""

import functools
import re
from collections.abc import Iterable, Mapping

from keras_bert_d2l.checks import shown

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


def scheme_note(labels: Iterable[str]) -> tuple[str, ...]:
    """Return a remark if labels look as if they marked entities, but form no scheme."""
    labels = set(labels)
    forms = (_USUAL, *_OTHERS)
    odd = min(
        (sorted(label for label in labels if not form.fullmatch(label)) for form in forms), key=len
    )
    odd = [label for label in odd if label not in _OUTSIDE]
    is_scheme = scheme_of(labels) is not None
    if is_scheme or not odd or not (labels & {*_OUTSIDE} or 2 * len(odd) < len(labels)):
        return ()
    return (
        "the tags form no scheme of entities such as B-PER, I-PER and O, because of "
        f"{shown(odd[0])}; so evaluation has accuracy only, without the F1 of entities",
    )
