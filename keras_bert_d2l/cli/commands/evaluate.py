"""Commands that judge a model or a run: `evaluate` and `report`."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import Json, Model, Out, PositiveInt, refuse, takes_options
from keras_bert_d2l.cli.input_output import as_json_line, check_output, check_taken, load_task
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.finetuning.options import TaskRunOptions


@takes_options(
    TaskRunOptions,
    {"Data": "text text_b choices negative label label_names id separator header quotes max_len"},
)
def evaluate(
    *,
    data: Path,
    model: Model,
    batch_size: Annotated[
        PositiveInt | None, Parameter(help="Texts per batch. [default: 32; 256 for minimal pairs]")
    ] = None,
    precision: Literal["float32", "mixed_bfloat16"] = "float32",
    null_threshold: float | None = None,
    min_confidence: float | None = None,
    json: Json = False,
    max_len: int | None = None,
    **columns: Any,
) -> None:
    """Evaluate a model on labeled examples or on minimal pairs.

    A fine-tuned model gets metrics, a confusion matrix and its most confident errors. With
    --min-confidence, the metrics include the coverage, which is the share of the decisions with at
    least this probability, and their accuracy.

    A BERT without a task is evaluated on minimal pairs, as in BLiMP: how often it prefers the
    grammatical sentence, for each phenomenon and all pairs. A sentence of n tokens costs as much as
    n texts, because each token is masked once.

    For example:

    - `keras-bert-d2l evaluate --model runs/reviews --data test.tsv`
    - `keras-bert-d2l evaluate --model runs/pos --data test.conllu --label UPOS`
    - `keras-bert-d2l evaluate --model runs/mine --data blimp.jsonl`

    Args:
        data: Labeled examples, in any format that `finetune` reads; or minimal pairs, as JSON
            lines, CSV or TSV with `sentence_good`, `sentence_bad` and, optionally, `UID`, the
            phenomenon.
        precision: Keras dtype policy. On CPUs with fast bfloat16, mixed_bfloat16 takes a third of
            the time and changes the answer for about one minimal pair in 500.
        null_threshold: Count a question as unanswered when the no-answer score beats the best
            answer by more than this. [default: the best threshold for these examples]
        min_confidence: Least probability of a label or choice, up to 1, that counts as a decision.
    """
    import keras

    keras.config.set_dtype_policy(precision)
    trained, task = load_task(model, or_bert=True)
    settings: dict[str, Any] = {"model": model, "data": str(data)}
    if isinstance(trained, kb.BERTModel):
        columns |= {"null_threshold": null_threshold, "min_confidence": min_confidence}
        refuse("a fine-tuned model", max_len=max_len, **columns)
        settings["precision"] = precision
        _evaluate_pairs(trained, data, batch_size or 256, settings, json=json)
        return
    check_taken(task, model, null_threshold=null_threshold, min_confidence=min_confidence)
    several = getattr(trained, "multi_label", False)
    refuse("one label per text", min_confidence=min_confidence if several else None)
    examples = kb.read_examples(task.name, data, labeled=True, multi_label=several, **columns)
    for line in (*examples.notes, *examples.dropped_in_words()):
        print(line, file=sys.stderr)
    options: dict[str, Any] = {"max_len": max_len, "null_threshold": null_threshold}
    with stage(f"Evaluating on {len(examples):,} examples"):
        found = kb.evaluate(trained, examples, batch_size=batch_size or 32, **options)
    if min_confidence is not None and found.decisions is not None:
        selected = found.decisions.with_confidence(min_confidence)
        found.metrics.update(zip(("coverage", "selective_accuracy"), selected, strict=True))
    if not json:
        kb.print_evaluation(found)
        return
    facts = {
        **settings,
        "sha256": examples.sha256,
        "dropped": dict(examples.dropped),
        "task": found.task,
        "examples": found.num_examples,
        "metrics": found.metrics,
        "confusion": found.confusion
        and {"labels": found.confusion.labels, "counts": found.confusion.counts.tolist()},
        "errors": found.errors,
    }
    print(as_json_line(facts))


def _evaluate_pairs(
    bert: "kb.BERTModel", data: Path, batch_size: int, settings: dict[str, Any], *, json: bool
) -> None:
    """Print how often a BERT prefers the grammatical sentence of a minimal pair."""
    with stage("Scoring sentences"):
        found = kb.minimal_pairs(bert, data, batch_size=batch_size)
    if json:
        results = dataclasses.asdict(found)
        del results["scores"]
        print(as_json_line({**settings, **results}))
        return
    of_all = (f"(all {found.num_pairs:,} pairs)", found.accuracy)
    for uid, accuracy in (*found.by_uid.items(), of_all):
        print(f"{accuracy:6.1%}  {uid}")


def report(run: Path, /, *, out: Out) -> None:
    """Write the HTML report of a run.

    The page of a run shows curves, predictions, errors, options, data and machine. `pretrain` and
    `finetune` keep it in the run folder, as `report.html`. TensorBoard (the extra `tensorboard`)
    shows several runs together: `tensorboard --logdir runs`.

    For example:

    - `keras-bert-d2l report runs/mine --out page.html`

    Args:
        run: Folder or URL of a run of `pretrain` or `finetune`.
        out: Output file, .html.
    """
    check_output("out", out, suffixes=[".html"])
    print(f"{kb.run_report(run, out).title}: {out}")
