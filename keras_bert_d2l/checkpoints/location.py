"""Where checkpoints are: local paths, runs, object stores, the package, and the Hugging Face Hub.

Checkpoints of the Hub are downloaded by huggingface_hub. A run folder contains `best/`, the
checkpoint with the best evaluation, and `last/`, the state from which the run resumes.
"""

import os
import pathlib
import re

from keras_bert_d2l.files import recover
from keras_bert_d2l.printing import printable_output
from keras_bert_d2l.remote import mirrored
from keras_bert_d2l.types import PathLike

SHORT_NAMES = {  # docs/checkpoints.md describes these models of the Hub
    "bert-tiny": "google/bert_uncased_L-2_H-128_A-2",
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "bert-base-cased": "google-bert/bert-base-cased",
    "bert-large-uncased": "google-bert/bert-large-uncased",
    "bert-large-cased": "google-bert/bert-large-cased",
    "bert-base-multilingual-cased": "google-bert/bert-base-multilingual-cased",
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "bert-base-ner": "dslim/bert-base-NER",
    "distilbert-base-uncased": "distilbert/distilbert-base-uncased",
    "distilbert-sst2": "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
    "roberta-base": "FacebookAI/roberta-base",
    "distilroberta-base": "distilbert/distilroberta-base",
    "twitter-sentiment": "cardiffnlp/twitter-roberta-base-sentiment-latest",
    "xlm-roberta-base": "FacebookAI/xlm-roberta-base",
    "camembert-base": "almanach/camembert-base",
    "electra-small": "google/electra-small-discriminator",
    "electra-base": "google/electra-base-discriminator",
    "albert-base-v2": "albert/albert-base-v2",
    "modernbert-base": "answerdotai/ModernBERT-base",
    "ettin-17m": "jhu-clsp/ettin-encoder-17m",
    "ettin-32m": "jhu-clsp/ettin-encoder-32m",
    "deberta-base": "microsoft/deberta-base",
    "deberta-v3-small": "microsoft/deberta-v3-small",
    "deberta-v3-base": "microsoft/deberta-v3-base",
    "mdeberta-v3-base": "microsoft/mdeberta-v3-base",
    "nli-deberta-small": "cross-encoder/nli-deberta-v3-small",
    "zeroshot-deberta": "MoritzLaurer/deberta-v3-base-zeroshot-v2.0",
    "mpnet": "sentence-transformers/all-mpnet-base-v2",
    "bge-small": "BAAI/bge-small-en-v1.5",
    "bge-base": "BAAI/bge-base-en-v1.5",
    "gte-small": "thenlper/gte-small",
    "gte-base": "thenlper/gte-base",
    "e5-small": "intfloat/e5-small-v2",
    "arctic-xs": "Snowflake/snowflake-arctic-embed-xs",
    "leaf-mt": "MongoDB/mdbr-leaf-mt",
    "granite-30m": "ibm-granite/granite-embedding-30m-english",
    "granite-small": "ibm-granite/granite-embedding-small-english-r2",
    "granite-base": "ibm-granite/granite-embedding-english-r2",
    "potion": "minishlab/potion-base-8M",
    "minilm-multilingual": "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    "e5-small-multilingual": "intfloat/multilingual-e5-small",
    "e5-base-multilingual": "intfloat/multilingual-e5-base",
    "ms-marco-minilm": "cross-encoder/ms-marco-MiniLM-L6-v2",
    "bge-reranker-base": "BAAI/bge-reranker-base",
    "bge-reranker": "BAAI/bge-reranker-v2-m3",
}

# Prompts of models whose folders on the Hub have none, by their ids. Source: their model cards and
# github.com/embeddings-benchmark/mteb, `mteb/models/model_implementations/`.
_PROMPTS = {
    r"BAAI/bge-(small|base|large)-en(-v1\.5)?": {
        "query": "Represent this sentence for searching relevant passages: "
    },
    r"intfloat/(multilingual-)?e5-(small|base|large)(-v2)?": {
        "query": "query: ",
        "document": "passage: ",
    },
}

_WEIGHTS = (  # only the first group that the model has is downloaded
    ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
    ("tf_model.h5", "tf_model.h5.index.json", "tf_model-*-of-*.h5"),
    ("model.weights.h5", "model.weights.json", "model_*.weights.h5", "task.weights.h5"),
)
_TOKENIZER = (
    "config.json",  # names the ids of a SentencePiece model
    *("vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"),
    *("sentencepiece.bpe.model", "spiece.model"),
    *("modules.json", "sentence_bert_config.json"),
    *("assets/tokenizer/vocabulary.txt", "metadata.json"),  # of KerasHub
)
# The folder of the first module: in old models of sentence-transformers, it is not the main one.
_PLACES = ("", "*_Transformer/", "*_StaticEmbedding/")
# The other files that the loader reads. The formats of other frameworks stay on the Hub.
_FILES = (
    *("task.json", "preprocessor.json", *_TOKENIZER),
    "config_sentence_transformers.json",
    *("*Pooling/config.json", "*_Normalize/config.json"),  # in numbered folders, such as 1_Pooling
    *("*_Dense/config.json", "*_Dense/model.safetensors", "*_Dense/pytorch_model.bin"),
)
_SCHEME = "hf://"  # as in KerasHub
_NAME = re.compile(rf"({_SCHEME})?(?P<model>[a-z0-9][\w.-]*(/[\w.-]+)?)(@[\w./-]+)?", re.I | re.A)


def _repository(name: str) -> tuple[str, str]:
    """Return the id and the revision of a model of the Hub; the revision may be empty."""
    model, _, revision = name.removeprefix(_SCHEME).partition("@")
    return SHORT_NAMES.get(model, model), revision


def _download(name: str, *, only_tokenizer: bool) -> pathlib.Path:
    """Download the files that the loader reads, unless they are in the cache; return the folder."""
    repo, revision = _repository(name)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise FileNotFoundError(
            f"There is no file or folder {name!r}. To download a model of this name from the "
            'Hugging Face Hub, run: pip install "keras-bert-d2l[hub]".'
        ) from error
    try:
        for weights in _WEIGHTS:
            files = _TOKENIZER if only_tokenizer else (*_FILES, *weights)
            wanted = [folder + file for file in files for folder in _PLACES]
            with printable_output(False):  # it shows bars
                folder = snapshot_download(repo, revision=revision or None, allow_patterns=wanted)
            local = pathlib.Path(folder)
            found = (local.glob(one + file) for file in weights[:2] for one in _PLACES)
            if only_tokenizer or any(map(any, found)):
                return local
    except Exception as error:  # the client and its libraries have many of their own
        reason = " ".join(str(error.__cause__ or error).split()).rstrip(".")
        raise FileNotFoundError(
            f"There is no file or folder {name!r}, and downloading the model {repo!r} from the "
            f"Hugging Face Hub failed: {reason}. Correct the path or the name, check your internet "
            "connection and, for a private or gated model, run `hf auth login` or set HF_TOKEN."
        ) from error
    names = " nor ".join(weights[0] for weights in _WEIGHTS)
    raise ValueError(
        f"The model {repo!r} on the Hugging Face Hub has neither {names}. Pass another model, or a "
        "revision that has one of these files, such as a pull request: @refs/pr/1."
    )


RUN_FILE, BEST, LAST, STATE_FILE = "run.yaml", "best", "last", "training_state.json"
OWN_MODEL = "novels-small"
_OWN_FOLDER = pathlib.Path(__file__).parents[1] / "novels_small"
CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE = "config.json", "vocab.txt", "model.safetensors"


def find_checkpoint(checkpoint: PathLike, *, only_tokenizer: bool = False) -> pathlib.Path:
    """Return the path of a checkpoint: of a run, its best one; of a name, the folder of the model.

    Args:
        checkpoint: A path, a URL of an object store, a name of the Hub, or `OWN_MODEL`. A string
            that is a local path is never taken as a name, and neither is a `pathlib.Path`.
        only_tokenizer: Whether to download only the files of the tokenizer from the Hub.

    Raises:
        FileNotFoundError: The run was stopped before its first checkpoint, or there is no file of
            this name, and the download of a model failed.
        ValueError: The model of the Hub has weights neither in safetensors nor of PyTorch,
            TensorFlow or KerasHub.
    """
    if isinstance(checkpoint, str) and is_remote(checkpoint):
        return _download(checkpoint, only_tokenizer=only_tokenizer)
    if isinstance(checkpoint, str) and is_own_model(checkpoint):
        return _OWN_FOLDER
    path = mirrored(checkpoint)
    recover(path)
    if not is_run(path):
        return path
    best, last = path / BEST, path / LAST
    recover(best)
    if best.is_dir():
        return best
    recover(last)
    if not (last / CONFIG_FILE).is_file():  # that of fine-tuning is only a training state
        raise FileNotFoundError(
            f"The run {os.fspath(checkpoint)!r} has no checkpoint yet, because its first epoch is "
            "not complete. Resume it first, if it was stopped."
        )
    return last


def is_run(path: PathLike) -> bool:
    """Return whether a local or remote folder is a pretraining or fine-tuning run."""
    path = mirrored(path)
    if (path / WEIGHTS_FILE).exists():  # a checkpoint with other checkpoints inside
        return False
    return any((path / name).exists() for name in (RUN_FILE, f"{LAST}/{STATE_FILE}", BEST))


def is_remote(checkpoint: str) -> bool:
    """Return whether a checkpoint is the name of a model of the Hub and not a local path.

    It is a short name or has the form `owner/model`. `hf://` may precede it, and `@revision` may
    follow. Paths that start with `.`, `~` or `/`, or have several slashes, never have these forms.
    """
    found = _NAME.fullmatch(checkpoint)
    is_name = found is not None and ("/" in found["model"] or found["model"] in SHORT_NAMES)
    return is_name and not _is_local(checkpoint)


def known_prompts(checkpoint: PathLike) -> dict[str, str]:
    """Return the prompts with which a model of the Hub was trained although its folder has none."""
    if not isinstance(checkpoint, str) or not is_remote(checkpoint):
        return {}
    repo, _ = _repository(checkpoint)
    return next((found for ids, found in _PROMPTS.items() if re.fullmatch(ids, repo)), {})


def is_own_model(checkpoint: str) -> bool:
    """Return whether a checkpoint is the name of the package's model and not a local path."""
    return checkpoint == OWN_MODEL and not _is_local(checkpoint)


def _is_local(checkpoint: str) -> bool:
    path = pathlib.Path(checkpoint)
    is_prefix = pathlib.Path(f"{checkpoint}.index").exists()  # of a TF1 checkpoint
    return is_prefix or path.exists()
