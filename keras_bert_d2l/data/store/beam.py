"""Build a token store with an Apache Beam pipeline, on many machines in parallel.

The pipeline makes one shard for each piece of the corpus. The process that starts the pipeline
checks and merges the shards. Both use the functions of `build_store`, so the store has the same
bytes. The workers and this process must share a file system.
"""

import functools
import pathlib
import re
import types
from collections.abc import Iterator, Sequence

from keras_bert_d2l.checks import check_path
from keras_bert_d2l.data.store.building import Progress, build_with, origin_of
from keras_bert_d2l.data.store.shards import Task, make_shard, tokens_if_complete
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.files import check_local
from keras_bert_d2l.text.corpus import Corpus, as_corpus
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import PathLike


def build_store_with_beam(
    corpus: Corpus | Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    directory: PathLike,
    *,
    pipeline_options: Sequence[str] = ("--runner=FnApiRunner",),
    deduplicate: bool = False,
    progress: Progress | None = None,
) -> TokenStore:
    r"""Tokenize a corpus into a folder as `build_store` does, with an Apache Beam pipeline.

    The store has the same bytes as one from `build_store`. An interrupted build resumes with the
    finished shards, no matter which of the two functions made them.

    The parent folder of `directory` must be on a file system that every worker has mounted under
    the same path. So must the text, unless it is in an object store. The workers need the same
    version of this package.

    Args:
        corpus: The text: a `Corpus`, or a list of documents, each a list of sentences.
        tokenizer: The tokenizer. Its vocabulary and options become part of the store.
        directory: Folder to write. If it already contains this store, the store is opened.
        pipeline_options: The runner and its options, as on a command line, such as
            `["--runner=FlinkRunner", "--flink_master=host:8081"]`. By default the pipeline runs in
            this process. (Without `--runner`, Beam uses its `DirectRunner`, which first tries to
            download a program to run the pipeline.)
        deduplicate: Whether to skip documents with the same text as an earlier one.
        progress: Called once per part after the pipeline has finished, with the number of checked
            parts, the total number of parts, and the number of tokens so far.

    Returns:
        The store, opened.

    Raises:
        ImportError: Apache Beam is not installed.
        ValueError: As for `build_store`.
        BlockingIOError: Another process is building this store.
        OSError: As for `build_store`; or a worker cannot access the folder.
        RuntimeError: The runner failed, or a worker could not read or write.

    Example:
        >>> import keras_bert_d2l as kb
        >>> with open("pets.txt", "w") as file:
        ...     print("The cat sat.", "It slept.", "", "A dog ran.", sep="\n", file=file)
        >>> corpus = kb.Corpus.open("pets.txt", layout="lines")
        >>> tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=50))
        >>> threads = ["--runner=FnApiRunner", "--direct_num_workers=4"]
        >>> store = kb.build_store_with_beam(
        ...     corpus, tokenizer, "stores/pets", pipeline_options=threads
        ... )
        >>> store.num_documents, store.num_sentences
        (2, 3)
    """
    check_path("directory", directory)
    check_local("directory", directory)
    directory = pathlib.Path(directory).absolute()  # workers may run in a different folder
    apache_beam()
    corpus = as_corpus(corpus)
    origin = origin_of(corpus, tokenizer, deduplicate)
    make = functools.partial(_make_shards, pipeline_options=tuple(pipeline_options))
    return build_with(make, corpus, tokenizer, directory, origin, progress)


def _make_shards(
    tasks: Sequence[Task], tokenizer: Tokenizer, *, pipeline_options: Sequence[str]
) -> Iterator[int]:
    """Make the shards in a pipeline, then yield the number of tokens of each."""
    beam = apache_beam()
    # Without a list, Beam would parse the command line of this process.
    options = beam.options.pipeline_options.PipelineOptions(list(pipeline_options))
    try:
        with beam.Pipeline(options=options) as pipeline:
            (
                pipeline
                | "Pieces" >> beam.Create(tasks)
                | "Spread" >> beam.Reshuffle()
                | "Tokenize" >> beam.Map(_Worker(tokenizer.vocab, tokenizer.options))
            )
    except RuntimeError as error:  # Beam raises it for any failure in a worker
        found = re.search(r"^ValueError: (.+) \[while running '.+'\]\s*\Z", str(error), re.M)
        if found:  # the last exception in the traceback: an error in the text
            raise ValueError(found[1]) from error
        raise RuntimeError(
            f"The tokenization pipeline failed: {error}. Finished parts are kept: run the build "
            "again to resume."
        ) from error
    for _, folder in tasks:
        num_tokens = tokens_if_complete(folder)
        if num_tokens is None:
            raise OSError(
                f"the pipeline finished without making {folder}: every worker must have this "
                "folder mounted under the same path, on a shared file system"
            )
        yield num_tokens


class _Worker:
    """Makes shards in one worker process, which creates the tokenizer only once."""

    def __init__(self, vocab: Vocab, options: TokenizerOptions) -> None:
        self._vocab = vocab
        self._options = options

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self._vocab, **self._options)

    def __call__(self, task: Task) -> None:
        piece, folder = task
        if not folder.parent.is_dir():  # do not create it on a disk that is not shared
            raise FileNotFoundError(
                f"This worker has no folder {folder.parent}: build the token store on a file "
                "system that all workers have mounted under the same path."
            )
        make_shard(piece, self._tokenizer, folder)


def apache_beam() -> types.ModuleType:
    """Return the module `apache_beam`, or raise an `ImportError` that says how to install it."""
    try:
        import apache_beam as beam
    except ImportError as error:
        raise ImportError(
            'Apache Beam is not installed. Install it with: pip install "keras-bert-d2l[beam]".'
        ) from error
    return beam
