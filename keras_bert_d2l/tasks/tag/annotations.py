"""Exports of annotation tools: spans of characters, as words with BIO tags.

- doccano, JSONL: `{"text": ..., "label": [[start, end, type]]}`; with relations, `entities` have
  `start_offset`, `end_offset` and `label` (doccano/doccano, `backend/data_export`: `factories.py`
  of the pipeline, and `models.py`). Older exports call them `labels`.
- Label Studio, JSON: `data` and `annotations`, whose `result` has a `value` of `start`, `end` and
  `labels`; `was_cancelled` marks skipped ones (labelstud.io/guide/task_format). JSON_MIN: the
  fields of `data`, a list of such values, and `annotation_id` (HumanSignal/label-studio-converter,
  `convert_to_json_min`).
- Prodigy, JSONL: `text`, `spans` of `start`, `end` and `label`, `tokens`, and `answer`: accept,
  reject or ignore (prodi.gy/docs/api-interfaces).
- spaCy 2: `["text", {"entities": [[start, end, type]]}]`, one per line or in a list (v2.spacy.io,
  `usage/training`). NER Annotator: `classes`, and such a list as `annotations`
  (tecoholic/ner-annotator).
"""

import bisect
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.examples import how_many
from keras_bert_d2l.data.tasks.readers.cells import as_string, collect, unusable_if
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.tables import is_json, json_values
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, with_text
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.text.unspaced import word_places

_MAY_BE = re.compile(r'"start(?:_offset)?"|\[\s*\d+,\s*\d+,\s*"')
_ARE_SPANS = ("spans", "entities", "label", "labels")  # even if they are empty
_DONE = {"answer", "annotation_id"}  # fields of what somebody annotated

_Span: TypeAlias = tuple[int, int, list[Any], Any]
"""Where it starts and ends, its types, and its characters, if the file repeats them."""


def annotated_examples(file: TextFile, options: ReadingOptions) -> WordExamples | None:
    """Read an export of an annotation tool; return None if the file has another format.

    A span that begins or ends within a word is widened to the whole word, which a note counts.
    Texts with overlapping spans and texts without an annotation are dropped.
    """
    if options.given or not is_json(file) or not _MAY_BE.search(file.text):
        return None
    values = json_values(file)
    match [value for _, value in values]:
        case [str(), dict()] as line:  # a single one of spaCy
            values = [(1, line)]
        case [{"classes": list(), "annotations": list(lines)}]:
            values = [*enumerate(lines, 1)]
    rows = [(f"line {number:,}", {"id": number, **_plain(value)}) for number, value in values]
    if not any(map(_spans, (record for _, record in rows))):
        return None
    widened: list[str] = []

    def example(record: Mapping[str, Any]) -> dict[str, object]:
        text, labels = record.get("text", record.get("data")), None
        unusable_if(not isinstance(text, str) or not text.strip(), "no words")
        tokens = [x for x in record.get("tokens") or () if isinstance(x, dict) and "start" in x]
        places = [(x["start"], x["end"]) for x in tokens] or word_places(text)
        if options.labeled is not False:
            spans, answer = _spans(record), record.get("answer", "accept")
            unusable_if(answer != "accept", f"annotation not accepted: {answer}")
            unusable_if(spans is None, "no annotation")
            labels = _tags(text, spans or (), places, widened)
        words = tuple(text[start:end] for start, end in places)
        return {"ids": as_string(record["id"]), "words": words, "labels": labels}

    examples = collect(WordExamples, file, rows, example)
    notes = ["read spans of characters as BIO tags of words"]
    if widened:
        spans = how_many(len(widened), "span")
        notes.append(f"widened {spans} to whole words (first: {shown(widened[0])})")
    return dataclasses.replace(examples, notes=(*notes,))


def _plain(record: object) -> Mapping[str, Any]:
    """Return a record of spaCy or Label Studio with fields as those of the other tools."""
    match record := with_text(record):
        case {"data": dict(data), "annotations": list(done), **others}:
            done = [one for one in done if not one.get("was_cancelled")]
            done = [one for one in done if one.get("ground_truth")] or done
            values = [[part.get("value", {}) for part in one["result"]] for one in done]
            spans = [sorted((x for x in some if "labels" in x), key=repr) for some in values]
            texts = (text for text in data.values() if isinstance(text, str))
            answer = "accept" if spans[1:] == spans[:-1] else "annotators disagree"
            ids = {name: others[name] for name in others.keys() & {"id"}}
            plain = {"text": next(texts, None), **ids, **data}
            return {**plain, "spans": spans[0], "answer": answer} if spans else plain
        case dict():
            return record
    return {}


def _spans(record: Mapping[str, Any]) -> Sequence[_Span] | None:
    """Return the spans of a record, or None if nobody annotated it."""
    for name, cell in record.items():
        spans = [*map(_span, cell)] if isinstance(cell, list) else [None]
        if None not in spans and (spans or name in _ARE_SPANS):
            return [span for span in spans if span]
    return None if _DONE.isdisjoint(record) else ()


def _span(item: Any) -> _Span | None:
    """Return a span, or None for anything else."""
    match item:
        case [int(start), int(end), str(kind)]:
            return start, end, [kind], None
        case {"start_offset": int(start), "end_offset": int(end), "label": str(kind)}:
            return start, end, [kind], None
        case {"start": int(start), "end": int(end), "label": str(kind)}:
            return start, end, [kind], item.get("text")
        case {"start": int(start), "end": int(end), "labels": list(kinds)}:
            return start, end, kinds, item.get("text")
    return None


def _tags(
    text: str, spans: Sequence[_Span], places: Sequence[tuple[int, int]], widened: list[str]
) -> tuple[str, ...]:
    """Return the tag of every word, and append the spans that do not meet words to `widened`."""
    starts, ends = zip(*places, strict=True)
    tags, wider = ["O"] * len(places), []
    for start, end, kinds, said in spans:
        inside = text[max(start, 0) : end]
        is_there = inside.strip() and start >= 0 and end <= len(text)
        is_there = is_there and (not said or said.split() == inside.split())
        unusable_if(not is_there, "span without these characters of the text")
        start += len(inside) - len(inside.lstrip())
        end = start + len(inside.strip())
        words = slice(bisect.bisect_right(ends, start), bisect.bisect_left(starts, end))
        unusable_if(not tags[words], "span without a word")
        unusable_if(len(kinds) != 1 or {*tags[words]} != {"O"}, "overlapping spans")
        tags[words] = [f"{'I' if n else 'B'}-{kinds[0]}" for n in range(len(tags[words]))]
        if (starts[words.start], ends[words.stop - 1]) != (start, end):
            wider.append(inside)
    widened += wider
    return tuple(tags)
