"""A corpus in, a token store out, tokenised by an Apache Beam pipeline: on many machines at once.

The pipeline makes the shards, the pieces of the corpus being its elements; where it was started
they are checked and joined. Both is done by the functions that `build_store` calls, so that the
store has the same bytes. Workers and the process that starts them meet in a file system.
"""

import functools
import os
import pathlib
import types
from collections.abc import Iterator, Sequence

from keras_bert_d2l.data.store.building import Progress, build_with
from keras_bert_d2l.data.store.shards import make_shard, tokens_of_whole
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.data.store.workers import Task
from keras_bert_d2l.files import write_text
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer, TokenizerOptions
from keras_bert_d2l.text.vocab.vocab import Vocab


def build_store_with_beam(
    corpus: Corpus,
    tokenizer: Tokenizer,
    directory: str | os.PathLike[str],
    *,
    pipeline_options: Sequence[str] = ("--runner=FnApiRunner",),
    deduplicate: bool = False,
    progress: Progress | None = None,
) -> TokenStore:
    """Tokenises a corpus into a folder as `build_store` does, by an Apache Beam pipeline.

    The store has the bytes of `build_store`'s. A build that was stopped goes on with the shards
    that are whole, whichever of the two functions made them.

    The text and the parent folder of `directory` must be on a file system that every worker has
    under the same path, and the workers need this package, of the same version.

    Args:
        corpus: The text.
        tokenizer: Makes the ids; its vocabulary and options become part of the store.
        directory: Folder to write; that of the same store is opened as it is.
        pipeline_options: Which runner, and its options, as on a command line:
            `["--runner=FlinkRunner", "--flink_master=host:8081"]`. By default the pipeline runs in
            this process. (Where no runner is named Beam takes its `DirectRunner`, which downloads a
            program to run the pipeline and, where it cannot, runs it as here.)
        deduplicate: Whether a document is left out if one before it has the same text.
        progress: Called when the pipeline has ended, after each part that was checked, with the
            number of parts checked, the number of all, and the tokens so far.

    Returns: the store, opened.

    Raises:
        ImportError: Apache Beam is not installed.
        ValueError: As `build_store`.
        BlockingIOError: Another process is building this store.
        OSError: As `build_store`; or a worker does not see the folder.
        RuntimeError: The runner has failed, or a worker could not read or write.
    """
    make = functools.partial(_make_shards, pipeline_options=tuple(pipeline_options))
    directory = pathlib.Path(directory).absolute()  # workers may stand in another folder
    _apache_beam()
    return build_with(
        make, corpus, tokenizer, directory, deduplicate=deduplicate, progress=progress
    )


def _make_shards(
    tasks: Sequence[Task], tokenizer: Tokenizer, *, pipeline_options: Sequence[str]
) -> Iterator[int]:
    """Makes the shards in a pipeline, then yields the number of tokens of each."""
    beam = _apache_beam()
    mistakes = [_mistake_file(folder) for _, folder in tasks]
    for file in mistakes:  # of an earlier attempt
        file.unlink(missing_ok=True)
    # Without a list Beam takes the arguments of this process.
    options = beam.options.pipeline_options.PipelineOptions(list(pipeline_options))
    try:
        with beam.Pipeline(options=options) as pipeline:
            (
                pipeline
                | "Pieces" >> beam.Create(tasks)
                | "Spread" >> beam.Reshuffle()
                | "Tokenise" >> beam.Map(_Worker(tokenizer.vocab, tokenizer.options))
            )
    except RuntimeError as error:  # whatever went wrong in a worker
        raise RuntimeError(
            f"The pipeline that tokenises has failed: {error}. What is finished is kept: run the "
            "same again to go on."
        ) from error
    for file in mistakes:
        if file.exists():
            raise ValueError(file.read_text(encoding="utf-8"))
    for _, folder in tasks:
        num_tokens = tokens_of_whole(folder)
        if num_tokens is None:
            raise OSError(
                f"the pipeline has ended without making {folder}: every worker must have the "
                "folder under this path, on a file system that all share"
            )
        yield num_tokens


class _Worker:
    """Makes the shards that one worker is given, with one tokenizer."""

    def __init__(self, vocab: Vocab, options: TokenizerOptions) -> None:
        self._vocab = vocab
        self._options = options

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self._vocab, **self._options)

    def __call__(self, task: Task) -> None:
        piece, folder = task
        if not folder.parent.is_dir():  # it would be made on a disk that nobody else sees
            raise FileNotFoundError(
                f"This worker has no folder {folder.parent}: a token store is built on a file "
                "system that all workers have under the same path."
            )
        try:
            make_shard(piece, self._tokenizer, folder)
        except ValueError as error:  # a runner would try again, and then bury the sentence
            write_text(_mistake_file(folder), str(error))


def _mistake_file(folder: pathlib.Path) -> pathlib.Path:
    """Where a worker tells what is wrong with the text of a shard."""
    return folder.with_suffix(".mistake")


def _apache_beam() -> types.ModuleType:
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(
            'Building a token store with Apache Beam needs it: pip install "keras-bert-d2l[beam]".'
        ) from error
    return apache_beam
