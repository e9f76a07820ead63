"""Commands that apply a fine-tuned model to the examples of a file: `predict` and `evaluate`."""

import contextlib
import dataclasses
import functools
import json as json_format
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import (
    STDIN,
    Aggregate,
    BatchSize,
    Json,
    NullThreshold,
    OptionalOut,
    TaskModel,
    Truncate,
    takes_options,
)
from keras_bert_d2l.cli.input_output import as_json_line, check_output, check_taken, load_task
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, read_file
from keras_bert_d2l.files import replacing_file
from keras_bert_d2l.progress import parts, stage, without_bar
from keras_bert_d2l.tasks.task import AnyTask
from keras_bert_d2l.text.text_files import bare_suffix
from keras_bert_d2l.training.finetuning.options import TaskRunOptions

_AT_ONCE = 1024  # number of examples after which results are written
_LINES = (".txt", ".text")  # extensions of files with one text per line
_BEGINS_JSON = re.compile(r'(?:\[\s*)?\{\s*"')  # plain text may also start with a bracket


@takes_options(TaskRunOptions, {"Data": "text text_b choices id header quotes max_len"})
def predict(
    source: Annotated[str, Parameter(name="INPUT")],
    /,
    *,
    model: TaskModel,
    out: OptionalOut = None,
    context: Path | None = None,
    batch_size: BatchSize = 32,
    max_len: int | None = None,
    truncate: Truncate = True,
    null_threshold: NullThreshold = None,
    aggregate: Aggregate = "none",
    **columns: Any,
) -> None:
    """Run a fine-tuned model on every text of a file and write one JSON object per line.

    Each object contains the `id` and the text of its example and, depending on the task, `label`,
    `score` and `scores`; `labels`; `score`; `tags` or `entities`; `choice` with its `index`,
    `score` and `scores`; or `answer` with its position in the text.

    For example:

    - `keras-bert-d2l predict reviews.txt --model runs/reviews --out labels.jsonl`
    - `keras-bert-d2l predict pairs.tsv --model runs/nli --text premise --text-b hypothesis`
    - `keras-bert-d2l predict lines.txt --model runs/names --aggregate first`
    - `keras-bert-d2l predict questions.txt --context article.txt --model runs/qa`
    - `echo "what a film" | keras-bert-d2l predict - --model runs/reviews`

    Args:
        source: File with one text per line; or TSV, CSV or JSONL with named columns, CoNLL or SQuAD
            JSON; or - for standard input.
        out: Output file. [default: standard output]
        context: File with the text that all questions are about. INPUT then contains the questions.
    """
    check_output("out", out, inputs=[source, context])
    trained, task = load_task(model)
    if task.no_predictions:
        raise ValueError(
            f"{model!r} is a {type(trained).__name__}, which predicts nothing. "
            f"{task.no_predictions}"
        )
    given = None if aggregate == "none" else aggregate
    check_taken(task, model, aggregate=given, context=context, null_threshold=null_threshold)
    from keras_bert_d2l.training.finetuning.finetune import tuned_null_threshold

    options: dict[str, Any] = {"batch_size": batch_size, "max_len": max_len}
    if "null_threshold" in task.options:
        tuned = tuned_null_threshold(model)
        options["null_threshold"] = tuned if null_threshold is None else null_threshold
    given_to_tasks = {"aggregate": aggregate, "truncate": truncate}
    options |= {name: value for name, value in given_to_tasks.items() if name in task.options}
    labels = getattr(trained, "labels", ())
    with _named_file(source, is_table=bool(columns)) as path:
        examples = _read_examples(task, path, columns, context, labels)
    for remark in (*examples.remarks(columns), *examples.dropped_in_words()):
        print(f"{source.strip('<>') if source == STDIN else source}: {remark}", file=sys.stderr)
    num_examples = len(examples.ids)
    with _writable(out) as file:
        for part in parts("Predicting", num_examples, _AT_ONCE):
            some = examples.subset(range(part.start, part.stop))
            lines = [f"{as_json_line(record)}\n" for record in task.records(trained, some, options)]
            with without_bar():
                print(*lines, sep="", end="", file=file)
    if out is not None:
        print(f"{how_many(num_examples, 'prediction')} in {out}")


@contextlib.contextmanager
def _writable(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    with replacing_file(out) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file


@contextlib.contextmanager
def _named_file(source: str, *, is_table: bool) -> Iterator[Path]:
    """Yield the path of a file, or of a temporary copy of standard input."""
    if source != STDIN:
        yield Path(source)
        return
    content = sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"stdin{_ending(content, is_table=is_table)}")
        path.write_bytes(content)
        try:
            yield path
        except ValueError as error:
            raise ValueError(str(error).replace(repr(str(path)), "standard input")) from error


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


@takes_options(
    TaskRunOptions,
    {"Data": "text text_b choices negative label id separator header quotes max_len"},
)
def evaluate(
    *,
    data: Path,
    model: TaskModel,
    batch_size: BatchSize = 32,
    null_threshold: float | None = None,
    json: Json = False,
    max_len: int | None = None,
    **columns: Any,
) -> None:
    """Evaluate a fine-tuned model: metrics, confusion matrix and most confident errors.

    For example:

    - `keras-bert-d2l evaluate --model runs/reviews --data test.tsv`
    - `keras-bert-d2l evaluate --model runs/pos --data test.conllu --label UPOS`

    Args:
        data: Labeled examples, in any format that `finetune` reads.
        null_threshold: Count a question as unanswered when the no-answer score beats the best
            answer by more than this. [default: the best threshold for these examples]
    """
    trained, task = load_task(model)
    check_taken(task, model, null_threshold=null_threshold)
    several = getattr(trained, "multi_label", False)
    read = functools.partial(kb.read_examples, task.name, data, multi_label=several, **columns)
    try:
        examples = read(labeled=True)
    except ValueError as error:
        try:
            read(labeled=False)
        except ValueError:  # the labels are not the reason
            raise error from None
        kind = type(trained).__name__
        raise ValueError(
            f"{error} {model!r} is a {kind}, so the data must have labels for {task.name!r}."
        ) from error
    for line in (*examples.notes, *examples.dropped_in_words()):
        print(line, file=sys.stderr)
    with stage(f"Evaluating on {len(examples):,} examples"):
        found = kb.evaluate(
            trained, examples, batch_size=batch_size, max_len=max_len, null_threshold=null_threshold
        )
    facts = {
        "model": model,
        "data": str(data),
        "sha256": examples.sha256,
        "dropped": dict(examples.dropped),
        "task": found.task,
        "examples": found.num_examples,
        "metrics": found.metrics,
        "confusion": found.confusion
        and {"labels": found.confusion.labels, "counts": found.confusion.counts.tolist()},
        "errors": [dataclasses.asdict(mistake) for mistake in found.errors],
    }
    if json:
        print(json_format.dumps(facts))
    else:
        kb.print_evaluation(found)
