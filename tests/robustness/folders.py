"""Every kind of folder that the package writes: how to write a small one, and how to load it."""

import dataclasses
import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import keras
import numpy as np

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import find_checkpoint
from keras_bert_d2l.files import verify_checksums, write_checksums
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.server.served_model import ServedModel
from keras_bert_d2l.training.finetuning.trainer import Trainer as Finetuning
from keras_bert_d2l.training.pretraining.trainer import Trainer as Pretraining
from tests.checkpoints.small import write_google

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


def digest(*parts: object) -> str:
    """Return the digest of everything that a loaded folder contains."""
    found = hashlib.sha256()
    for part in parts:
        array = keras.ops.convert_to_numpy(part) if isinstance(part, keras.Variable) else part
        if not isinstance(array, np.ndarray):
            found.update(json.dumps(array, sort_keys=True, default=str).encode())
            continue
        # The bytes of an array of strings are addresses.
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        found.update(f"{array.dtype}{array.shape}".encode() + content)
    return found.hexdigest()


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
    load: Callable[[Path], str]
    suffix: str = ""
    errors: tuple[type[Exception], ...] = (ValueError, OSError)
    megabytes: float = 64


def _tokenizer() -> kb.Tokenizer:
    return kb.Tokenizer(VOCAB)


def _bert(preset: str = "d2l") -> kb.BERTModel:
    keras.utils.set_random_seed(1)
    config = kb.BERTConfig.preset(preset, vocab_size=len(VOCAB), **SIZES)
    return kb.BERTModel.from_bert_config(config)


def _classifier(preset: str = "d2l") -> kb.SequenceClassifier:
    return kb.SequenceClassifier(_bert(preset), ["good", "bad"], tokenizer=_tokenizer())


def _checkpoint(
    format: str, preset: str, make: Callable[[str], kb.BERTModel | kb.SequenceClassifier] = _bert
) -> Kind:
    def write(path: Path) -> None:
        kb.save_pretrained(make(preset), path, tokenizer=_tokenizer(), format=format)

    return Kind(write, _load_checkpoint)


def _copied(folder: str) -> Kind:
    """Return a kind of which `tests/checkpoints` has a folder."""

    def write(path: Path) -> None:
        shutil.copytree(Path(__file__).parents[1] / "checkpoints" / folder, path)
        write_checksums(path)

    return Kind(write, _load_checkpoint)


def _write_google(path: Path) -> None:
    write_google(_bert("google"), path, VOCAB)
    write_checksums(path)


def _write_tf_model(path: Path) -> None:
    file = Path(__file__).parents[1] / "checkpoints/formats/originals/tf_model_h5.zip"
    with zipfile.ZipFile(file) as archive:
        archive.extractall(path, [x for x in archive.namelist() if x.startswith("classification/")])
    for file in (path / "classification").iterdir():
        file.rename(path / file.name)
    (path / "classification").rmdir()
    write_checksums(path)


def _load_checkpoint(path: Path) -> str:
    model, tokenizer, config = kb.load_pretrained(path)
    task = model.task_config() if isinstance(model, TaskModel) else None
    vocab = tokenizer and [tokenizer.vocab.tokens, tokenizer.options]
    return digest(config.to_dict(), vocab, task, *model.weights)


def _load_keras_file(path: Path) -> str:
    model = keras.saving.load_model(path)
    return digest(model.bert_config.to_dict(), *model.weights)


def _write_store(path: Path) -> kb.TokenStore:
    text = path.parent / f"{path.name}.txt"
    sentences = [f"{text}\n{other}\n" for text in TEXTS for other in TEXTS]
    text.write_text("\n".join(sentences))
    return kb.build_store(kb.Corpus.open(text, layout="lines"), _tokenizer(), path)


def _load_store(path: Path) -> str:
    """Load a store as `pretrain` does, and read some batches."""
    store = kb.TokenStore.open(path)
    store.verify()
    tokenizer = store.tokenizer()
    for number in range(store.num_documents):
        store.document(number)
    arrays = (store.tokens, store.sentence_offsets, store.document_offsets, store.document_hashes)
    return digest(store.tokenizer_options, tokenizer.vocab.tokens, *map(np.array, arrays))


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


def _resumed(resume: Callable[[Path], object], trainer: type) -> Callable[[Path], str]:
    """Return a function that restores the state of a run and does not train."""

    def load(path: Path) -> str:
        def train(self: Pretraining | Finetuning, *_: object) -> None:
            state = [dataclasses.asdict(self.options), dataclasses.asdict(self.progress)]
            variables = *self.model.variables, *self.model.optimizer.variables
            raise _RestoredError(digest(*state, *variables))

        with mock.patch.object(trainer, "train", train):
            try:
                resume(path)
            except _RestoredError as restored:
                return str(restored)
        raise AssertionError("The run was not resumed.")

    return load


def _pretrain(path: Path) -> None:
    kb.pretrain(None, path, resume=True, verbose=0)


def _finetune(path: Path) -> None:
    kb.finetune_files(path, resume=True, verbose=0)


def _load_best(path: Path) -> str:
    return _load_checkpoint(find_checkpoint(path))


def _write_export(path: Path) -> None:
    kb.export_saved_model(_classifier(), path)


def _load_export(path: Path) -> str:
    model = ServedModel(path)
    answers = model.ask("serving_default", {"text": np.array(TEXTS, object)})
    weights = (weight.numpy() for weight in model.model.signatures["serving_default"].variables)
    return digest(model.version, *(answers[name] for name in sorted(answers)), *weights)


def _write_onnx(path: Path) -> None:
    kb.export_onnx(_classifier(), path)


def _load_onnx(path: Path) -> str:
    """Check the files as `sha256sum --check` does; ONNX runtimes read them without this package."""
    verify_checksums(path)
    configs = ("config.json", "model_card.json")
    tokenizer = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
    files = (path / name for name in ("model.onnx", *configs, *tokenizer))
    return digest(*(np.frombuffer(file.read_bytes(), np.uint8) for file in files))


SPIECE = (Path(__file__).parents[1] / "text/tokenizer/unigram/spiece.model").read_bytes()

KINDS: dict[str, Kind] = {
    "checkpoint": _checkpoint("native", "google"),
    "task checkpoint": _checkpoint("native", "d2l", _classifier),
    "huggingface": _checkpoint("huggingface", "huggingface"),
    "huggingface task": _checkpoint("huggingface", "huggingface", _classifier),
    "pytorch": _copied("torch_files/bert-zip"),
    "tf_model.h5": Kind(_write_tf_model, _load_checkpoint),
    "kerashub": _checkpoint("kerashub", "google", _classifier),
    "google": Kind(_write_google, _load_checkpoint),
    "tensorflow hub": _copied("formats/originals/tensorflow_hub/with_mlm"),
    "model garden": _copied("formats/originals/model_garden/pretraining"),
    "book": _checkpoint("book", "d2l-torch"),
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
