"""`keras-bert-d2l evaluate`."""

import dataclasses
import functools
import json as json_format
import sys
from pathlib import Path
from typing import Any

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import BatchSize, Json, OptionalOut, TaskModel, takes_options
from keras_bert_d2l.cli.input_output import check_output, check_taken, load_task
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.finetuning.options import TaskRunOptions


@takes_options(
    TaskRunOptions, {"Data": "text text_b choices negative label id separator header max_len"}
)
def evaluate(
    *,
    data: Path,
    model: TaskModel,
    batch_size: BatchSize = 32,
    null_threshold: float | None = None,
    out: OptionalOut = None,
    json: Json = False,
    max_len: int | None = None,
    **columns: Any,
) -> None:
    """Evaluate a fine-tuned model: metrics, confusion matrix and most confident errors.

    For example:

    - `keras-bert-d2l evaluate --model runs/reviews --data test.tsv`
    - `keras-bert-d2l evaluate --model runs/pos --data test.conllu --label UPOS --out pos.json`

    Args:
        data: Labeled examples, in any format that `finetune` reads.
        null_threshold: Count a question as unanswered when the no-answer score beats the best
            answer by more than this. [default: the best threshold for these examples]
        out: Also write metrics and errors to this JSON file.
    """
    check_output("out", out, inputs=[data])
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
    for line in examples.dropped_in_words():
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
    if out is not None:
        from keras_bert_d2l.files import write_json

        write_json(out, facts)
        print(f"Written to {out}", file=sys.stderr if json else sys.stdout)
