"""`keras-bert-d2l predict`."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

from cyclopts import Parameter

from keras_bert_d2l.cli.arguments import (
    Aggregate,
    BatchSize,
    NullThreshold,
    OptionalOut,
    TaskModel,
    takes_options,
)
from keras_bert_d2l.cli.input_output import (
    STDIN,
    as_json_line,
    check_output,
    check_taken,
    load_task,
)
from keras_bert_d2l.progress import parts, without_bar
from keras_bert_d2l.training.finetuning.options import TaskRunOptions

_AT_ONCE = 1024  # number of examples after which results are written


@takes_options(TaskRunOptions, {"Data": "text text_b choices id header max_len"})
def predict(
    source: Annotated[str, Parameter(name="INPUT")],
    /,
    *,
    model: TaskModel,
    out: OptionalOut = None,
    context: Path | None = None,
    batch_size: BatchSize = 32,
    max_len: int | None = None,
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
    from keras_bert_d2l.cli.predict.predict_input import read_input
    from keras_bert_d2l.data.tasks.examples import how_many
    from keras_bert_d2l.training.finetuning.finetune import tuned_null_threshold

    options: dict[str, Any] = {"batch_size": batch_size, "max_len": max_len}
    if "null_threshold" in task.options:
        tuned = tuned_null_threshold(model)
        options["null_threshold"] = tuned if null_threshold is None else null_threshold
    if "aggregate" in task.options:
        options["aggregate"] = aggregate
    examples = read_input(task, source, columns, context, getattr(trained, "labels", ()))
    for remark in (*examples.remarks(columns), *examples.dropped_in_words()):
        print(f"{source.strip('<>') if source == STDIN else source}: {remark}", file=sys.stderr)
    num_examples = len(examples.ids)
    with _writable(out) as file:
        for part in parts("Predicting", num_examples, _AT_ONCE):
            some = examples.subset(range(part.start, part.stop))
            lines = [f"{as_json_line(record)}\n" for record in task.records(trained, some, options)]
            with without_bar():
                file.writelines(lines)
    if out is not None:
        print(f"{how_many(num_examples, 'prediction')} in {out}")


@contextlib.contextmanager
def _writable(out: Path | None) -> Iterator[IO[str]]:
    from keras_bert_d2l.files import replacing_file

    if out is None:
        yield sys.stdout
        return
    with replacing_file(out) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file
