"""A model and its tokenizer in, a numbered SavedModel that answers strings out."""

import os
import pathlib
from collections.abc import Mapping

import keras
import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.files import replacing_folder
from keras_bert_d2l.inference.pretraining.fill_mask import check_top_k
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.heads import QuestionAnswerer
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.export.audit import check_saved_model
from keras_bert_d2l.serving.export.model_card import write_model_card
from keras_bert_d2l.serving.export.warmup import write_warmup
from keras_bert_d2l.serving.signatures.pretraining import TextSignatures, TokenSignatures
from keras_bert_d2l.serving.signatures.requests import PREDICT, Signature
from keras_bert_d2l.serving.signatures.tasks import PAIR_TASKS, task_signatures
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.finetuning.finetune import tuned_null_threshold

_VOCAB_FILE = pathlib.PurePath("assets", "vocab.txt")
_FINGERPRINT_FILE = "fingerprint.pb"


def export_saved_model(
    model: BERTModel | TaskModel,
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    version: int | None = None,
    *,
    pairs: bool = False,
    top_k: int = 5,
    null_threshold: float | None = None,
    run_dir: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Writes a model, with its tokenizer in the graph, as a SavedModel for TensorFlow Serving.

    The version appears in `path` as a whole and in one step, so that a server that watches `path`
    never sees a part of it. It needs neither this package nor Keras: with `tensorflow` and, for
    strings, `tensorflow_text` imported, `tf.saved_model.load(folder).signatures` holds the
    signatures below, of any number of texts; docs/serving_signatures.md has all their tensors.

    - `serving_default`, strings in:

      - of a `BERTModel`: `text` -> `embedding`, `pooled`, `nsp` (`TextSignatures.describe`);
      - of a `SequenceClassifier`: `text`, for `pairs` also `text_b` -> `labels`, `scores`, and
        `label`, `score`, `id` or for any number of labels `is_label` (`LabelAnswers`);
      - of a `SequenceRegressor`: the same texts -> `labels`, `scores` (`ScoreAnswers`);
      - of a `TokenClassifier`: `text` -> `words`, `labels`, `scores`, `ids`, `starts`, `ends`
        (`WordAnswers`);
      - of a `QuestionAnswerer`: `question`, `context` -> `answer`, `score`, `start`, `end`,
        `null_score`, and the best `top_k`: `answers`, `scores`, `starts`, `ends`
        (`SpanAnswers`);
      - of a `TextEmbedder`: `text` -> `embedding` (`VectorAnswers`);

      each with `truncated`, which texts lost their end;
    - `embed`: `text` -> `embedding`, `truncated`;
    - `nsp`, of a `BERTModel`: `text`, `text_b` -> `nsp`, `truncated` (`TextSignatures.nsp`);
    - `fill_mask`, of a `BERTModel`: `text` -> `tokens`, `scores`, `ids`, `positions`,
      `truncated` (`TextSignatures.fill_mask`);
    - `tf_example`: `examples`, which hold the strings of `serving_default` -> what that returns.
      Of a `SequenceClassifier` and of a `SequenceRegressor` of one score it is what the server's
      `Classify` and `Regress` take: `inputs` -> `classes` and `scores`, or `outputs`;
    - `tokens`: `tokens`, `segments`, `valid_lens`, of a `BERTModel` also `pred_positions` ->
      logits (`TokenSignatures.tokens`, `TaskTokenSignatures.tokens`).

    Without a tokenizer `serving_default` is `tokens`, and there are no others. A `BERTModel`
    without a pooler or without next-sentence prediction leaves out their outputs, and `nsp`.

    Beside the graph and the weights the version holds `model_card.json` (what it is), with a
    tokenizer `assets/vocab.txt`, and, where tensorflow-serving-api is installed, the requests with
    which the server warms up, one for each signature. The graph is audited (`audit_saved_model`)
    before the version appears.

    Args:
        model: The model.
        path: The folder of all versions of the model, for instance `"saved_models/demo"`.
        tokenizer: The model's tokenizer; `None`: that which a model of a task has. Without one
            the export answers token ids alone.
        version: The number of the version, at least 1; `None`: the next one, 1 in a new folder.
        pairs: Whether a `SequenceClassifier` or a `SequenceRegressor` is asked pairs of texts.
        top_k: Number of tokens that `fill_mask` predicts for each mask, or of answers that a
            `QuestionAnswerer` gives.
        null_threshold: A `QuestionAnswerer` says that there is no answer, by the empty string as
            the first, where its `null_score` is above this. `None`: what was best for the
            development data of the fine-tuning in `run_dir`; where there is no such figure, there
            always is an answer.
        run_dir: The folder of the run that trained the model, for the summary in its card and for
            the threshold.

    Returns: the folder of the version, `path/version`.

    Raises:
        ValueError: The backend is not TensorFlow, the vocabulary is not of the model's size,
            `version`, `top_k` or `null_threshold` is out of range, the model knows no pairs, or
            it has no threshold.
        RuntimeError: The graph has operations that TensorFlow Serving does not know.
        FileExistsError: There is such a version already.
        FileNotFoundError: `run_dir` is no folder of a run.
        OSError: The folder cannot be written.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "A SavedModel is written by the TensorFlow backend. Received: the backend "
            f"{keras.backend.backend()!r}; save the model with `save_pretrained`, and load and "
            "export it in a process with KERAS_BACKEND=tensorflow."
        )
    if not isinstance(model, BERTModel | TaskModel):
        raise ValueError(f"`model` must be a BERTModel or a task's. Received: {model!r:.80}.")
    if tokenizer is None and isinstance(model, TaskModel):
        tokenizer = model.tokenizer
    _check_pairs(model, tokenizer, pairs)
    null_threshold = _null_threshold(model, tokenizer, null_threshold, run_dir)
    folder = _version_folder(pathlib.Path(path), version)
    name = folder.resolve().parent.name
    signatures = _signatures(model, tokenizer, pairs, top_k, null_threshold)
    with replacing_folder(folder) as temporary:
        _save(signatures, tokenizer, temporary)
        _set_methods(temporary, signatures)
        check_saved_model(temporary)
        if tokenizer is not None:
            tokenizer.vocab.to_file(temporary / _VOCAB_FILE)
        write_warmup(temporary, name, signatures)
        write_model_card(
            temporary,
            name=name,
            version=int(folder.name),
            model=model,
            tokenizer=tokenizer,
            pairs=pairs,
            null_threshold=null_threshold,
            run_dir=run_dir,
        )
        _refuse_existing(folder)  # another process may have written this version meanwhile
    return folder


def _check_pairs(model: BERTModel | TaskModel, tokenizer: Tokenizer | None, pairs: bool) -> None:
    if pairs and (tokenizer is None or not isinstance(model, PAIR_TASKS)):
        tasks = " or a ".join(task.__name__ for task in PAIR_TASKS)
        raise ValueError(
            f"With `pairs` the answers of a {tasks} with a tokenizer are to pairs of texts. "
            f"Received: a {type(model).__name__}{'' if tokenizer else ' without a tokenizer'}; "
            "leave `pairs` out."
        )


def _null_threshold(
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    given: float | None,
    run_dir: str | os.PathLike[str] | None,
) -> float | None:
    """The threshold that was given, or that of the run."""
    if tokenizer is not None and isinstance(model, QuestionAnswerer):
        return tuned_null_threshold(run_dir) if given is None and run_dir is not None else given
    if given is not None:
        raise ValueError(
            "`null_threshold` is for a QuestionAnswerer with a tokenizer. Received: a "
            f"{type(model).__name__}{'' if tokenizer else ' without a tokenizer'}; leave "
            "`null_threshold` out."
        )
    return None


def _signatures(
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    pairs: bool,
    top_k: int,
    null_threshold: float | None,
) -> dict[str, Signature]:
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    if isinstance(model, TaskModel):
        return task_signatures(
            model, tokenizer, pairs=pairs, top_k=top_k, null_threshold=null_threshold
        )
    of_tokens = TokenSignatures(model)
    if tokenizer is None:
        return of_tokens.signatures()
    check_top_k(top_k, len(tokenizer.vocab))
    of_text = TextSignatures(of_tokens, tokenizer, top_k)
    return {**of_text.signatures(), **of_tokens.signatures()}


def _save(
    signatures: Mapping[str, Signature], tokenizer: Tokenizer | None, folder: pathlib.Path
) -> None:
    """Writes the graph and its variables.

    Functions that are already traced are saved as they are; of others, as a
    `keras.export.ExportArchive` has them, the saving would trace each once more.
    """
    saved = tf.Module()
    saved.tokenizer = tokenizer
    traced = {
        name: tf.function(signature.function, autograph=False).get_concrete_function(
            *signature.specs
        )
        for name, signature in signatures.items()
    }
    used = {id(variable): variable for one in traced.values() for variable in one.variables}
    saved.all_variables = list(used.values())
    default = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    traced.setdefault(default, next(iter(traced.values())))
    tf.saved_model.save(saved, os.fspath(folder), signatures=traced)


def _set_methods(folder: pathlib.Path, signatures: Mapping[str, Signature]) -> None:
    """Says which signatures are not for the server's method `Predict` alone."""
    methods = {name: one.method for name, one in signatures.items() if one.method != PREDICT}
    if methods:
        updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(os.fspath(folder))
        for name, method in methods.items():
            updater.replace_method_name(name, method)
        updater.save()
        # It is that of the file as it was; whoever needs one makes it anew.
        (folder / _FINGERPRINT_FILE).unlink(missing_ok=True)


def _version_folder(path: pathlib.Path, version: int | None) -> pathlib.Path:
    if version is None:
        taken = [int(entry.name) for entry in path.glob("*") if entry.name.isdecimal()]
        return path / str(max(taken, default=0) + 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"`version` must be an integer of at least 1. Received: {version!r}.")
    folder = path / str(version)
    _refuse_existing(folder)
    return folder


def _refuse_existing(folder: pathlib.Path) -> None:
    if folder.exists():
        raise FileExistsError(
            f"{os.fspath(folder)!r} exists, and an export never replaces a version: choose another "
            "number, or leave `version` out for the next one."
        )
