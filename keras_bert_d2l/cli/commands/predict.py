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
    NullThreshold,
    OptionalOut,
    TaskModel,
    Truncate,
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
_BEGINS_JSON = re.compile(r'(?:\[\s*)?\{\s*"')  # plain text may also start with a bracket


@takes_options(TaskRunOptions, {"Data": "text text_b choices id header quotes max_len"})
def predict(
    *inputs: Annotated[str, Parameter(name="INPUT")],
    model: TaskModel,
    out: OptionalOut = None,
    json: Json = False,
    pairs: Flag = False,
    labels: Annotated[list[str] | None, Parameter(name="--label", negative="")] = None,
    template: str = "This example is {}.",
    multi_label: Flag = False,
    context: Path | None = None,
    batch_size: BatchSize = 32,
    max_len: int | None = None,
    truncate: Truncate = True,
    null_threshold: NullThreshold = None,
    aggregate: Aggregate = "none",
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
        multi_label: With --label, judge each label alone: a text can have any number of them.
        context: File with the text that all questions are about. INPUT then contains the questions.
    """
    if not inputs:
        raise ValueError("INPUT is missing: texts, a file, or - for standard input.")
    source = _source(inputs)
    check_output("out", out, inputs=[source, context])
    if source is None:
        texts = tuple(read_texts(inputs, None))
        if columns:
            given = ", ".join(f"--{name.replace('_', '-')}" for name in columns)
            raise ValueError(f"INPUT must be a file with {given}. Received: {shown(inputs[0])}.")
    trained, task = load_task(model, or_bert=pairs)
    if task.no_predictions:
        raise ValueError(
            f"{model!r} is a {type(trained).__name__}, which predicts nothing. "
            f"{task.no_predictions}"
        )
    check_taken(
        task,
        model,
        aggregate=None if aggregate == "none" else aggregate,
        context=context,
        null_threshold=null_threshold,
        pairs=pairs or None,
    )
    from keras_bert_d2l.training.finetuning.finetune import tuned_null_threshold

    options: dict[str, Any] = {"batch_size": batch_size, "max_len": max_len}
    if "null_threshold" in task.options:
        tuned = tuned_null_threshold(model)
        options["null_threshold"] = tuned if null_threshold is None else null_threshold
    given_to_tasks = {"aggregate": aggregate, "truncate": truncate}
    options |= {name: value for name, value in given_to_tasks.items() if name in task.options}
    if source is None:
        about = None if context is None else read_file(context).text
        if not pairs:
            examples = task.from_arguments(texts, about)
        elif len(texts) % 2:
            raise ValueError(f"--pairs needs an even number of texts. Received: {len(texts)}.")
        else:
            examples = TextExamples(task=task.name, texts=texts[::2], texts_b=texts[1::2])
        numbers = range(1, len(examples) + 1)
        examples = dataclasses.replace(examples, ids=tuple(map(str, numbers)))
    else:
        of_model = getattr(trained, "labels", ())
        ending = functools.partial(_ending, is_table=bool(columns))
        with regular_file(None if source == STDIN else Path(source), ending) as path:
            examples = _read_examples(task, path, columns, context, of_model)
        if pairs and getattr(examples, "texts_b", None) is None:
            raise ValueError(f"--pairs needs two texts in each row. Received: {source!r}.")
        for remark in (*examples.remarks(columns), *examples.dropped_in_words()):
            print(f"{source.strip('<>') if source == STDIN else source}: {remark}", file=sys.stderr)
    given_labels = {"labels": labels, "template": template, "multi_label": multi_label}
    asked = given_labels if labels else None
    num_examples = len(examples.ids)
    in_json = json or source is not None or out is not None
    with _writable(out) as file:
        for part in parts("Predicting", num_examples, _AT_ONCE):
            some = examples.subset(range(part.start, part.stop))
            records = _records(trained, task, some, options, asked)
            line = as_json_line if in_json else functools.partial(_readable, ranked=bool(labels))
            lines = [f"{line(record)}\n" for record in records]
            with without_bar():
                print(*lines, sep="", end="", file=file)
    if out is not None:
        print(f"{how_many(num_examples, 'prediction')} in {out}")


def _source(inputs: Sequence[str]) -> str | None:
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


def _records(
    trained: Any,
    task: AnyTask,
    examples: Any,
    options: Mapping[str, Any],
    asked: Mapping[str, Any] | None,
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


def _readable(record: Mapping[str, Any], *, ranked: bool) -> str:
    """Return the line, or the lines for words and entities, that a terminal shows of a record.

    Args:
        record: The record.
        ranked: Whether to show the scores of all labels, highest first.
    """
    texts = " | ".join(record[name] for name in ("text", "text_b", "question") if name in record)
    found = record.get("tags", record.get("entities"))
    if found is not None:
        rows = [(one.get("word", one.get("text")), one["label"], one["score"]) for one in found]
        widths = [max((len(row[place]) for row in rows), default=0) for place in (0, 1)]
        lines = (f"{a:{widths[0]}}  {b:{widths[1]}}  {score:.3f}" for a, b, score in rows)
        return "\n    ".join([texts, *lines])
    scores = record.get("scores")
    if isinstance(scores, Mapping) and (ranked or "label" not in record):
        names = sorted(scores, key=scores.__getitem__, reverse=True) if ranked else record["labels"]
        return f"{', '.join(f'{one} {scores[one]:.3f}' for one in names) or '-'}  {texts}"
    said = [record[name] for name in ("label", "choice", "answer") if name in record]
    known = " ".join(str(said[0]).split()) if said and said[0] else "(no answer)"
    score = f" {record['score']:.3f}" if "score" in record else ""
    return f"{known if said else 'score'}{score}  {texts}"


@contextlib.contextmanager
def _writable(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    with replacing_file(out) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file


def _ending(content: bytes, *, is_table: bool) -> str:
    """Return the file name extension that matches the content of standard input."""
    text = content.decode("utf-8-sig", errors="replace").lstrip()
    if _BEGINS_JSON.match(text):
        return ".json"
    if is_table:
        return ".tsv" if "\t" in "".join(text.splitlines()[:1]) else ".csv"
    return ".txt"


def _read_examples(
    task: AnyTask,
    path: Path,
    columns: Mapping[str, Any],
    context: Path | None,
    labels: Sequence[str],
) -> TaskExamples:
    is_lines = context is not None or bare_suffix(path) in _LINES
    file = read_file(path) if is_lines else None
    if file is None or (context is None and (columns or task.is_table(file, labels))):
        return read_examples(task.name, path, **columns, labeled=False)
    return _line_examples(task, file, context)


def _line_examples(task: AnyTask, file: TextFile, context: Path | None) -> TaskExamples:
    """Return one example per line of a file, with the line number as its id."""
    lines = file.lines()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise ValueError(f"{str(file.path)!r} contains no text.")
    empty = sorted(set(range(filled[0], filled[-1])) - set(filled))
    texts = tuple(lines[number - 1] for number in filled)
    about = None if context is None else read_file(context).text
    return dataclasses.replace(
        task.from_lines(texts, about),
        ids=tuple(map(str, filled)),
        dropped={"empty line": len(empty)} if empty else {},
        first_dropped={"empty line": f"line {empty[0]:,}"} if empty else {},
    )
