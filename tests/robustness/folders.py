"""Every kind of folder that the package writes: how to write a small one, and how to load it."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest import mock

import keras
import numpy as np

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import find_checkpoint
from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.server.served_model import ServedModel
from keras_bert_d2l.training.finetuning.trainer import Trainer as Finetuning
from keras_bert_d2l.training.pretraining.trainer import Trainer as Pretraining

WORDS = "the a dog cat owl sees hears finds hare bird mouse . good bad ##s ##ing".split()
VOCAB = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
SIZES = {
    "num_hiddens": 8,
    "ffn_num_hiddens": 16,
    "num_heads": 2,
    "num_blks": 1,
    "dropout": 0.1,
    "max_len": 16,
}
TEXTS = ["the dog sees the hare .", "a cat hears the bird .", "the owl finds a mouse ."]


class Content:
    """Digest of everything that a loaded folder contains."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, *parts: object) -> "Content":
        for part in parts:
            if isinstance(part, np.ndarray):
                # The bytes of an array of strings are addresses.
                content = repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes()
                self._digest.update(f"{part.dtype}{part.shape}".encode() + content)
            else:
                self._digest.update(json.dumps(part, sort_keys=True, default=str).encode())
        return self

    def variables(self, variables: Iterable[keras.Variable]) -> "Content":
        return self.add(*map(keras.ops.convert_to_numpy, variables))

    def __str__(self) -> str:
        return self._digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of folder.

    Attributes:
        write: Writes a folder or file to a path.
        load: Loads it and returns a digest of its content.
        suffix: File name extension.
        errors: Exceptions with which a damaged file may be rejected.
        megabytes: Limit for the memory that a damaged folder needs more than the original.
    """

    write: Callable[[Path], object]
    load: Callable[[Path], Content]
    suffix: str = ""
    errors: tuple[type[Exception], ...] = (ValueError, OSError)
    megabytes: float = 64


def _tokenizer() -> kb.Tokenizer:
    return kb.Tokenizer(VOCAB)


GOOGLE = {
    "layer_norm_epsilon": 1e-12,
    "embedding_norm": True,
    "embedding_dropout": 0.1,
    "tie_embeddings": True,
}


def _bert(**options: object) -> kb.BERTModel:
    keras.utils.set_random_seed(1)
    return kb.BERTModel.from_bert_config(kb.BERTConfig(len(VOCAB), **{**SIZES, **options}))


def _classifier(**options: object) -> kb.SequenceClassifier:
    return kb.SequenceClassifier(_bert(**options), ["good", "bad"], tokenizer=_tokenizer())


def _checkpoint(
    format: str,
    make: Callable[..., kb.BERTModel | kb.SequenceClassifier] = _bert,
    **options: object,
) -> Kind:
    def write(path: Path) -> None:
        kb.save_pretrained(make(**options), path, tokenizer=_tokenizer(), format=format)

    return Kind(write, _load_checkpoint)


def _load_checkpoint(path: Path) -> Content:
    model, tokenizer, config = kb.load_pretrained(path)
    task = model.task_config() if isinstance(model, TaskModel) else None
    vocab = tokenizer and [tokenizer.vocab.tokens, tokenizer.options]
    return Content().add(config.to_dict(), vocab, task).variables(model.weights)


def _load_keras_file(path: Path) -> Content:
    model = keras.saving.load_model(path)
    return Content().add(model.bert_config.to_dict()).variables(model.weights)


def _write_store(path: Path) -> kb.TokenStore:
    text = path.parent / f"{path.name}.txt"
    sentences = [f"{text}\n{other}\n" for text in TEXTS for other in TEXTS]
    text.write_text("\n".join(sentences))
    return kb.build_store(kb.Corpus.open(text, layout="lines"), _tokenizer(), path)


def _load_store(path: Path) -> Content:
    """Load a store as `pretrain` does, and read some batches."""
    store = kb.TokenStore.open(path)
    store.verify()
    tokenizer = store.tokenizer()
    for number in range(store.num_documents):
        store.document(number)
    arrays = (store.tokens, store.sentence_offsets, store.document_offsets, store.document_hashes)
    return Content().add(store.tokenizer_options, tokenizer.vocab.tokens, *map(np.array, arrays))


def _write_pretraining_run(path: Path) -> None:
    store = path.parent / f"{path.name}.store"
    config, vocab = path.parent / f"{path.name}.config.json", path.parent / f"{path.name}.vocab.txt"
    _write_store(store)
    _bert().bert_config.to_json(config)
    VOCAB.to_file(vocab)
    files = {"vocab": vocab, "bert_config": config}
    kb.pretrain(*(store, path), **files, steps=2, batch_size=2, max_len=16, held_out=0.3, verbose=0)


def _write_finetuning_run(path: Path) -> None:
    model, data = path.parent / f"{path.name}.bert", path.parent / f"{path.name}.csv"
    kb.save_pretrained(_bert(), model, tokenizer=_tokenizer())
    data.write_text("text,label\n" + "".join(f"{text},good\n{text} .,bad\n" for text in TEXTS))
    files = {"model": model, "train": data, "dev": data}
    kb.finetune_files(path, task="classify", **files, epochs=1, batch_size=2, verbose=0)


class _RestoredError(Exception):
    """Ends a resumed run before it trains."""


def _resumed(resume: Callable[[Path], object], trainer: type) -> Callable[[Path], Content]:
    """Return a function that restores the state of a run and does not train."""

    def load(path: Path) -> Content:
        content = Content()

        def train(self: Pretraining | Finetuning, *_: object) -> None:
            state = [dataclasses.asdict(self.options), dataclasses.asdict(self.progress)]
            content.add(*state).variables(self.model.variables)
            content.variables(self.model.optimizer.variables)
            raise _RestoredError

        with mock.patch.object(trainer, "train", train):
            try:
                resume(path)
            except _RestoredError:
                return content
        raise AssertionError("The run was not resumed.")

    return load


def _pretrain(path: Path) -> None:
    kb.pretrain(None, path, resume=True, verbose=0)


def _finetune(path: Path) -> None:
    kb.finetune_files(path, resume=True, verbose=0)


def _load_best(path: Path) -> Content:
    return _load_checkpoint(find_checkpoint(path))


def _write_export(path: Path) -> None:
    kb.export_saved_model(_classifier(), path)


def _load_export(path: Path) -> Content:
    model = ServedModel(path)
    answers = model.ask("serving_default", {"text": np.array(TEXTS, object)})
    content = Content().add(model.version, *(answers[name] for name in sorted(answers)))
    weights = model.model.signatures["serving_default"].variables
    return content.add(*(weight.numpy() for weight in weights))


def _write_onnx(path: Path) -> None:
    kb.export_onnx(_classifier(), path)


def _load_onnx(path: Path) -> Content:
    """Check the files as `sha256sum --check` does; ONNX runtimes read them without this package."""
    verify_checksums(path)
    configs = ("config.json", "model_card.json")
    tokenizer = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
    files = (path / name for name in ("model.onnx", *configs, *tokenizer))
    return Content().add(*(np.frombuffer(file.read_bytes(), np.uint8) for file in files))


KINDS: dict[str, Kind] = {
    "checkpoint": _checkpoint("native", **GOOGLE),
    "task checkpoint": _checkpoint("native", _classifier),
    "huggingface": _checkpoint("huggingface", **GOOGLE),
    "huggingface task": _checkpoint("huggingface", _classifier, **GOOGLE),
    "google": _checkpoint("google", **GOOGLE),
    "book": _checkpoint("book", layer_norm_epsilon=1e-5),
    # Keras reads this file, and its errors are of various kinds.
    ".keras file": Kind(lambda path: _bert().save(path), _load_keras_file, ".keras", (Exception,)),
    "token store": Kind(_write_store, _load_store),
    "pretraining run": Kind(_write_pretraining_run, _load_best),
    "pretraining run, resumed": Kind(_write_pretraining_run, _resumed(_pretrain, Pretraining)),
    "fine-tuning run": Kind(_write_finetuning_run, _load_best),
    "fine-tuning run, resumed": Kind(_write_finetuning_run, _resumed(_finetune, Finetuning)),
    # TensorFlow reads all of `saved_model.pb`, and with it the 128 MB of a sparse mutant.
    "export": Kind(_write_export, _load_export, megabytes=192),
    "ONNX": Kind(_write_onnx, _load_onnx),
}
