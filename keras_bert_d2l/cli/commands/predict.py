"""The command `predict`: a model of any task answers texts, a file or standard input."""

import contextlib
import dataclasses
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import IO, Annotated, Any

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.checks import shown
from keras_bert_d2l.cli.arguments import (
    STDIN,
    Aggregate,
    BatchSize,
    Flag,
    Json,
    MinConfidence,
    Model,
    NullThreshold,
    OptionalOut,
    PositiveInt,
    Truncate,
    given,
    refuse,
    takes_options,
)
from keras_bert_d2l.cli.input_output import (
    as_json_line,
    check_output,
    check_taken,
    load_task,
    read_texts,
    regular_file,
)
from keras_bert_d2l.contract.task import AnyTask
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, read_file
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.files import replacing_file
from keras_bert_d2l.progress import parts, without_bar
from keras_bert_d2l.text.text_files import bare_suffix
from keras_bert_d2l.training.finetuning.options import TaskRunOptions

_AT_ONCE = 1024  # number of examples after which results are written
_LINES = (".txt", ".text")  # extensions of files with one text per line
_FILES = {*_LINES, *".tsv .csv .json .jsonl .ndjson .conll .conllu .iob .bio".split()}


@takes_options(TaskRunOptions, {"Data": "text text_b choices id header quotes max_len"})
def predict(
    *inputs: Annotated[str, Parameter(name="INPUT")],
    model: Model,
    out: OptionalOut = None,
    json: Json = False,
    pairs: Flag = False,
    labels: Annotated[list[str] | None, Parameter(name="--label", negative="")] = None,
    template: str | None = None,
    multi_label: Flag = False,
    context: Path | None = None,
    batch_size: BatchSize = 32,
    max_len: int | None = None,
    truncate: Truncate = True,
    null_threshold: NullThreshold = None,
    aggregate: Aggregate = "none",
    min_confidence: MinConfidence = None,
    top_k: Annotated[PositiveInt | None, Parameter(alias="-k")] = None,
    explain: Flag = False,
    **columns: Any,
) -> None:
    """Predict with a model of any task, for texts or a file.

    The model decides what is predicted: labels or scores of texts, labels of words or entities,
    answers to questions, or the choice that fits a text. Texts give a readable line each, a file
    and standard input one JSON object per example.

    For example:

    - `keras-bert-d2l predict "what a film" "a bore" --model runs/reviews`
    - `keras-bert-d2l predict reviews.txt --model runs/reviews --out labels.jsonl`
    - `keras-bert-d2l predict pairs.tsv --model runs/nli --text premise --text-b hypothesis`
    - `keras-bert-d2l predict --pairs "a man sleeps" "a man is awake" --model runs/nli`
    - `keras-bert-d2l predict "the match ended 3 : 1" --label sports --label arts --model runs/nli`
    - `keras-bert-d2l predict "Ada lived in London." --aggregate first --model runs/names`
    - `keras-bert-d2l predict "who wrote it?" "ada wrote it in 1843" --model runs/squad`
    - `keras-bert-d2l predict questions.txt --context article.txt --model runs/squad`
    - `keras-bert-d2l predict "she opens" "the door" "the sky" --model runs/swag`
    - `echo "what a film" | keras-bert-d2l predict - --model runs/reviews`

    Args:
        inputs: Texts; or one file: a text per line, TSV, CSV or JSONL with named columns, CoNLL or
            SQuAD JSON; or - for standard input. A question is followed by the text that answers it,
            a text by its choices.
        out: Output file. [default: standard output]
        pairs: Read pairs of texts. A BERT without a task predicts the probability that the second
            text follows the first.
        labels: Choose from these labels instead of those of the model, which must be for natural
            language inference (NLI). Repeat the option for each label.
        template: With --label, the hypothesis about a text, with {} in place of the label.
            [default: This example is {}.]
        multi_label: With --label, judge each label alone: a text can have any number of them.
        context: File with the text that all questions are about. INPUT then contains the questions.
        min_confidence: Least probability of a label or choice, up to 1. Below it, there is no
            decision: JSON has null instead, and the most likely one as `guess`.
            [default: always decide]
        top_k: Number of answers to a question, with their scores. [default: the best answer]
        explain: Also show how much each word changes the prediction (integrated gradients), which
            takes at least 20 times as long. It describes the model, and is no proof of a cause.
    """
    if not inputs:
        raise ValueError("INPUT is missing: texts, a file, or - for standard input.")
    source = _source_of(inputs)
    check_output("out", out, inputs=[source, context])
    asked = given(template=template, multi_label=multi_label)
    if labels:
        asked["labels"] = labels
    else:
        refuse("--label", **asked)
    texts = tuple(read_texts(inputs, None)) if source is None else ()
    if texts and columns:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in columns)
        raise ValueError(f"INPUT must be a file with {named}. Received: {shown(inputs[0])}.")
    trained, task = load_task(model, or_bert=pairs)
    check_taken(
        task,
        model,
        aggregate=None if aggregate == "none" else aggregate,
        context=context,
        null_threshold=null_threshold,
        min_confidence=min_confidence,
        pairs=pairs or None,
        top_k=top_k,
        explain=explain or None,
    )
    if multi_label or getattr(trained, "multi_label", isinstance(trained, kb.BERTModel)):
        refuse("one label per text", min_confidence=min_confidence)
    from keras_bert_d2l.tasks.explanations import with_explanations
    from keras_bert_d2l.training.run.run_folder import tuned_null_threshold

    options: dict[str, Any] = {"batch_size": batch_size, "max_len": max_len}
    if "null_threshold" in task.options:
        tuned = tuned_null_threshold(model)
        options["null_threshold"] = tuned if null_threshold is None else null_threshold
    given_to_tasks = {"aggregate": aggregate, "truncate": truncate}
    options |= {name: value for name, value in given_to_tasks.items() if name in task.options}
    about = None if context is None else read_file(context).text
    if top_k is not None:
        options["top_k"] = top_k
    if source is None:
        examples = _examples_of_texts(task, texts, about, pairs=pairs)
    else:
        examples = _examples_of_source(task, source, columns, about, getattr(trained, "labels", ()))
        if pairs and getattr(examples, "texts_b", None) is None:
            raise ValueError(f"--pairs needs two texts in each row. Received: {source!r}.")
        for remark in (*examples.notes, *examples.dropped_in_words()):
            print(f"{source.strip('<>') if source == STDIN else source}: {remark}", file=sys.stderr)
    num_examples = len(examples.ids)
    in_json = json or source is not None or out is not None
    decided: list[bool] = []
    with _writable(out) as file:
        for part in parts("Predicting", num_examples, _AT_ONCE):
            some = examples.subset(range(part.start, part.stop))
            records = _records(trained, task, some, options, asked if labels else {})
            if min_confidence is not None:
                records = [_decided(record, min_confidence, decided) for record in records]
            if explain:
                records = with_explanations(trained, some, records, max_len=max_len)
            line = as_json_line if in_json else functools.partial(_readable, ranked=bool(labels))
            lines = [f"{line(record)}\n" for record in records]
            with without_bar():
                print(*lines, sep="", end="", file=file)
    if decided:
        number, share = decided.count(False), decided.count(False) / len(decided)
        print(f"No decision: {number:,} of {len(decided):,} ({share:.1%})", file=sys.stderr)
    if out is not None:
        print(f"{how_many(num_examples, 'prediction')} in {out}")


def _source_of(inputs: Sequence[str]) -> str | None:
    """Return the file or standard input from which to read, or `None` if the inputs are texts."""
    files = [one for one in inputs if one == STDIN or _is_file(one)]
    if files and len(inputs) > 1:
        raise ValueError(
            f"INPUT must be one file, or texts. Received: the file {files[0]!r}, and "
            f"{len(inputs) - 1} more. Pass one file per call."
        )
    return files[0] if files else None


def _is_file(text: str) -> bool:
    """Return whether a text is a path: of a file that exists, or with the name of a data file."""
    return os.path.exists(text) or (
        bare_suffix(PurePath(text)) in _FILES and not re.search(r"\s", text)
    )


def _examples_of_texts(
    task: AnyTask, texts: tuple[str, ...], context: str | None, *, pairs: bool
) -> TaskExamples:
    """Return the examples of texts on the command line, numbered from 1."""
    if not pairs:
        examples: Any = task.from_arguments(texts, context)
    elif len(texts) % 2:
        raise ValueError(f"--pairs needs an even number of texts. Received: {len(texts)}.")
    else:
        examples = TextExamples(task=task.name, texts=texts[::2], texts_b=texts[1::2])
    numbers = range(1, len(examples) + 1)
    return dataclasses.replace(examples, ids=tuple(map(str, numbers)))


def _examples_of_source(
    task: AnyTask,
    source: str,
    columns: Mapping[str, Any],
    context: str | None,
    labels: Sequence[str],
) -> TaskExamples:
    """Read a file or standard input.

    Args:
        task: The task of the model.
        source: The path, or `STDIN`.
        columns: The columns that the command names.
        context: The text that all questions are about, if each line is one of them.
        labels: Labels of the model, which help to recognize a table of words.
    """
    with regular_file(None if source == STDIN else Path(source)) as path:
        is_lines = context is not None or bare_suffix(path) in _LINES
        file = read_file(path) if is_lines else None
        if file is None or (context is None and (columns or task.is_table(file, labels))):
            return read_examples(task.name, path, **columns, labeled=False)
        return _line_examples(task, file, context)


def _line_examples(task: AnyTask, file: TextFile, context: str | None) -> TaskExamples:
    """Return one example per line of a file, with the line number as its id."""
    lines = file.lines()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise ValueError(f"{str(file.path)!r} contains no text.")
    empty = sorted(set(range(filled[0], filled[-1])) - set(filled))
    texts = tuple(lines[number - 1] for number in filled)
    return dataclasses.replace(
        task.from_lines(texts, context),
        ids=tuple(map(str, filled)),
        dropped={"empty line": len(empty)} if empty else {},
        first_dropped={"empty line": f"line {empty[0]:,}"} if empty else {},
    )


def _records(
    trained: Any, task: AnyTask, examples: Any, options: Mapping[str, Any], asked: Mapping[str, Any]
) -> Iterable[Mapping[str, Any]]:
    """Return a record per example: of the task, of other labels, or of a BERT that judges pairs."""
    if not asked and not isinstance(trained, kb.BERTModel):
        return task.records(trained, examples, options)
    texts_b: Any = getattr(examples, "texts_b", None)
    if asked:
        if texts_b is not None or not isinstance(examples, TextExamples):
            raise ValueError("--label needs single texts and a model for pairs of texts (NLI).")
        found = kb.zero_shot(trained, examples.texts, **options, **asked)
        said = [dataclasses.asdict(one) for one in found]
        sides = {"text": examples.texts}
    else:
        if options["max_len"] is not None:
            raise ValueError("--max-len needs a fine-tuned model. Received: a BERT without a task.")
        sides = {"text": examples.texts, "text_b": texts_b}
        known = {name: options[name] for name in ("batch_size", "truncate")}
        scores: Any = kb.next_sentence_score(trained, *sides.values(), **known)
        said = [{"score": float(score)} for score in scores]
    return [
        {"id": one, **dict(zip(sides, texts, strict=True)), **fields}
        for one, *texts, fields in zip(examples.ids, *sides.values(), said, strict=True)
    ]


def _decided(record: Mapping[str, Any], least: float, decided: list[bool]) -> dict[str, Any]:
    """Return a record in which a label or choice that is too uncertain is `None`.

    Args:
        record: The record, which gets the most likely label or choice as `guess`.
        least: The least probability of a decision.
        decided: Gets whether each label or choice is decided.
    """
    name = next(name for name in ("tags", "entities", "choice", "label") if name in record)
    if isinstance(record[name], list):
        return {**record, name: [_decided(one, least, decided) for one in record[name]]}
    decided.append(record["score"] >= least)
    return {**record, name: record[name] if decided[-1] else None, "guess": record[name]}


def _readable(record: Mapping[str, Any], *, ranked: bool) -> str:
    """Return the line, or the lines for words and entities, that a terminal shows of a record.

    Args:
        record: The record.
        ranked: Whether to show the scores of all labels, highest first.
    """
    if record.get("explanations"):
        shown = [_readable({**record, "explanations": None}, ranked=ranked)]
        for one in record["explanations"]:
            of_word = "" if one["word"] is None else f"{one['words'][one['word']]['word']} "
            words = ", ".join(f"{word['word']} {word['value']:+.3f}" for word in one["words"])
            shown.append(f"{of_word}{one['target']}: {words}")
        return "\n    ".join(shown)
    texts = " | ".join(record[name] for name in ("text", "text_b", "question") if name in record)
    found = record.get("tags", record.get("entities"))
    if found is not None:
        rows = ((one.get("word", one.get("text")), one["label"], one["score"]) for one in found)
        lines = (f"{word}  {label or '(no decision)'} {score:.3f}" for word, label, score in rows)
        return "\n    ".join([texts, *lines])
    if "answers" in record:
        several = ((one["text"] or "(no answer)", one["score"]) for one in record["answers"])
        lines = (f"{' '.join(text.split())} {score:.3f}" for text, score in several)
        return "\n    ".join([texts, *lines])
    scores = record.get("scores")
    if isinstance(scores, Mapping) and (ranked or "label" not in record):
        names = sorted(scores, key=scores.__getitem__, reverse=True) if ranked else record["labels"]
        return f"{', '.join(f'{one} {scores[one]:.3f}' for one in names) or '-'}  {texts}"
    said = [record[name] for name in ("label", "choice", "answer") if name in record]
    nothing = "(no decision)" if "guess" in record else "(no answer)"
    known = " ".join(str(said[0]).split()) if said and said[0] else nothing
    score = f" {record['score']:.3f}" if "score" in record else ""
    return f"{known if said else 'score'}{score}  {texts}"


@contextlib.contextmanager
def _writable(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    with replacing_file(out) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file
