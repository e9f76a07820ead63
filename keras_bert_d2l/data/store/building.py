"""`build_store`: tokenize a corpus into a token store once, with one or more processes.

While the store DIRECTORY is being built, the folder DIRECTORY.building next to it contains one
shard for each piece of the corpus. A killed build resumes with the finished shards. The pieces
depend only on the corpus, so neither the number of processes nor interruptions change the bytes of
the store.
"""

import contextlib
import functools
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence

from keras_bert_d2l.checks import check_bool, check_integer, check_path, check_that
from keras_bert_d2l.data.store.shards import Task, make_shards, merge
from keras_bert_d2l.data.store.token_store import MANIFEST, VERSION, Origin, TokenStore, to_json
from keras_bert_d2l.files import (
    check_local,
    lock_file,
    recover,
    replacing_folder,
    user_cache,
    write_text,
)
from keras_bert_d2l.progress import stage
from keras_bert_d2l.text.corpus import Corpus, as_corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike

_ORIGIN, _LOCK = "origin.json", "lock"

Progress = Callable[[int, int, int], object]
"""Called with the number of finished parts, the total number of parts, and the tokens so far."""

MakeShards = Callable[[Sequence[Task], Tokenizer], Iterator[int]]
"""Makes shards and yields the number of tokens of each."""


def build_store(
    corpus: Corpus | Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    directory: PathLike,
    *,
    workers: int = 1,
    deduplicate: bool = False,
    progress: Progress | None = None,
) -> TokenStore:
    r"""Tokenize a corpus into a token store, or open the store if it already exists.

    The corpus is streamed, so memory does not grow with it. The folder appears when it is complete.
    Until then, the finished parts are in a folder next to it, named `directory` with `.building`
    appended. To resume an interrupted build, call the function again.

    Sentences without tokens and documents without sentences are skipped.

    Args:
        corpus: The text: a `Corpus`, or a list of documents, each a list of sentences.
        tokenizer: The tokenizer. Its vocabulary and options become part of the store.
        directory: Folder to write. If it already contains the store of this corpus (identified by
            its fingerprint) and this tokenizer, the store is opened.
        workers: Number of processes, each on one core. The number does not affect the bytes of
            the store. With more than one, a script must call this function under
            `if __name__ == "__main__":`.
        deduplicate: Whether to skip documents with the same text as an earlier one.
        progress: Called after each part with the number of finished parts, the total number of
            parts, and the number of tokens so far.

    Returns:
        The store, opened.

    Raises:
        ValueError: The corpus contains no tokens or changes while it is read, a file is not UTF-8
            text, the tokenizer is an instance of a subclass of `Tokenizer`, or `directory` or the
            folder next to it contains other files.
        BlockingIOError: Another process is building this store.
        ChildProcessError: One of the processes has died.
        OSError: The text cannot be read, the folder cannot be written, or the disk is full.

    Example:
        >>> import keras_bert_d2l as kb
        >>> with open("pets.txt", "w") as file:
        ...     print("The cat sat.", "It slept.", "", "A dog ran.", sep="\n", file=file)
        >>> corpus = kb.Corpus.open("pets.txt", layout="lines")
        >>> tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=50))
        >>> store = kb.build_store(corpus, tokenizer, "stores/pets")
        >>> store.num_documents, store.num_sentences
        (2, 3)
    """
    check_path("directory", directory)
    check_local("directory", directory)
    check_integer("workers", workers, 1)
    corpus = as_corpus(corpus)
    origin = origin_of(corpus, tokenizer, deduplicate)
    make = functools.partial(make_shards, workers=workers)
    return build_with(make, corpus, tokenizer, directory, origin, progress)


def cached_store(
    corpus: Corpus, tokenizer: Tokenizer, cache_dir: PathLike | None = None
) -> TokenStore:
    """Return the cached store of a corpus. The first call builds it, later calls open it.

    If another process is building the store, this call waits for it.

    Args:
        corpus: The text.
        tokenizer: The tokenizer.
        cache_dir: Folder for the stores. Each is in a subfolder named after the fingerprints of
            the corpus and the vocabulary. None: `keras_bert_d2l`
            in the user's cache folder, which is `$XDG_CACHE_HOME` or `~/.cache`. A store can be
            deleted at any time; it will be rebuilt.
    """
    if cache_dir is None:
        cache_dir = user_cache()
    check_path("cache_dir", cache_dir)
    check_local("cache_dir", cache_dir)
    origin = origin_of(corpus, tokenizer, deduplicate=False)
    directory = pathlib.Path(cache_dir, origin.name())
    make = functools.partial(make_shards, workers=1)
    return build_with(make, corpus, tokenizer, directory, origin, wait=True)


def build_with(
    make: MakeShards,
    corpus: Corpus,
    tokenizer: Tokenizer,
    directory: PathLike,
    origin: Origin,
    progress: Progress | None = None,
    *,
    wait: bool = False,
) -> TokenStore:
    """Build a store. The function `make` creates its shards, here or on other workers.

    Args:
        make: Function of the pieces, each with the folder of its shard, and of the tokenizer. It
            makes the missing shards and yields the number of tokens of each shard.
        corpus: The text.
        tokenizer: The tokenizer.
        directory: Folder to write.
        origin: `origin_of` the corpus and the tokenizer.
        progress: As for `build_store`.
        wait: Whether to wait for another process that is building the store.

    Returns:
        The store, opened.

    Raises:
        BlockingIOError: Another process is building this store, and `wait` is not set.
        ValueError: As for `build_store`, or raised by `make`.
        OSError: As for `build_store`, or raised by `make`.
    """
    directory = pathlib.Path(directory)
    building = directory.with_name(f"{directory.name}.building")
    if not (directory / MANIFEST).exists() or building.exists():
        _check_free(directory, building, origin, corpus)
        with _sole_writer(building, directory, wait):
            recover(directory)
            # If the store exists now, a killed build or another process has just completed it.
            if not (directory / MANIFEST).exists():
                write_text(building / _ORIGIN, to_json(origin))
                pieces = list(corpus.pieces())
                folders = [building / f"{number:06}" for number in range(len(pieces))]
                counts = make(list(zip(pieces, folders, strict=True)), tokenizer)
                if not _num_tokens(counts, len(pieces), progress):
                    for folder in folders:  # without shards, the folder `building` is removed
                        shutil.rmtree(folder)
                    raise ValueError(f"The corpus contains no text: {corpus.description}.")
                if corpus.fingerprint() != origin.corpus_fingerprint:
                    raise ValueError(
                        f"The text changed while it was read ({corpus.description}), so parts of "
                        "the token store may contain the old text. Delete the folder "
                        f"{building} and build again."
                    )
                with replacing_folder(directory) as temporary:
                    content = merge(folders, origin, temporary)
                    tokenizer.vocab.to_file(temporary / tokenizer.vocab.file_name)
                    (temporary / MANIFEST).write_text(to_json(content), encoding="utf-8")
            shutil.rmtree(building, ignore_errors=True)  # another process may have it open
    store = TokenStore.open(directory)
    store.check_origin(origin, tokenizer, corpus.description)
    return store


def _num_tokens(counts: Iterator[int], num_pieces: int, progress: Progress | None) -> int:
    """Wait for the shards, and return the number of tokens of all together."""
    num_tokens = 0
    with stage("Tokenizing the text", num_pieces) as work:
        for num_done, count in enumerate(counts, 1):
            num_tokens += count
            work.advance()
            work.remark = f"{num_tokens / 1e6:,.1f} million tokens"
            if progress is not None:
                progress(num_done, num_pieces, num_tokens)
    return num_tokens


def origin_of(corpus: Corpus, tokenizer: Tokenizer, deduplicate: bool) -> Origin:
    """Return everything that a store depends on. This reads the text, for its checksum."""
    check_bool("deduplicate", deduplicate)
    expected = "a `Tokenizer` and not of a subclass, because a store keeps only its options"
    advice = "Create one with `Tokenizer(vocab, **options)`."
    check_that(type(tokenizer) is Tokenizer, "tokenizer", expected, tokenizer, advice)
    return Origin(
        deduplicate=deduplicate,
        version=VERSION,
        corpus_fingerprint=corpus.fingerprint(),
        vocab_fingerprint=tokenizer.vocab.fingerprint,
        vocab_size=len(tokenizer.vocab),
        tokenizer=tokenizer.options,
    )


def _check_free(
    directory: pathlib.Path, building: pathlib.Path, origin: Origin, corpus: Corpus
) -> None:
    """Raise `ValueError` if a folder contains anything but this store."""
    for folder in (directory, building):
        ours = (folder / MANIFEST, folder / _ORIGIN, folder / _LOCK)
        if folder.is_file() or (
            folder.is_dir() and any(folder.iterdir()) and not any(file.exists() for file in ours)
        ):
            raise ValueError(
                f"A token store needs a folder of its own, but {folder} is a file or contains "
                "other files. Choose a new or empty folder."
            )
    begun = building / _ORIGIN
    if begun.exists() and begun.read_text(encoding="utf-8") != to_json(origin):
        raise ValueError(
            f"The folder {building} contains an unfinished token store with a different corpus, "
            f"tokenizer or options, or the text has changed since ({corpus.description}). Delete "
            "that folder or choose a different one."
        )


@contextlib.contextmanager
def _sole_writer(building: pathlib.Path, directory: pathlib.Path, wait: bool) -> Iterator[None]:
    """Reserve the folder `building` for this process.

    After an error, the folder is removed unless it contains a finished shard.
    """
    busy = (
        f"Another process is building the token store {directory}. Wait until it has finished, or "
        "choose a different folder."
    )
    with lock_file(building / _LOCK, busy, wait=wait):
        try:
            yield
        except BaseException:
            if not any(entry.is_dir() for entry in building.iterdir()):
                shutil.rmtree(building, ignore_errors=True)
            raise
