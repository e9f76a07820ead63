"""A corpus in, a token store on disk out: built once, by several processes, and opened afterwards.

While the store DIRECTORY is being built there is a folder DIRECTORY.building beside it, with a
shard for each piece of the corpus. A build that was killed goes on with those that are whole. The
pieces depend on the corpus alone, so that the store has the same bytes, by however many processes
and in however many attempts it was built.
"""

import contextlib
import functools
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import numpy as np

from keras_bert_d2l.data.store import manifest
from keras_bert_d2l.data.store.manifest import MANIFEST, VOCAB, Origin, to_json
from keras_bert_d2l.data.store.merging import first_of_equals, merge, num_documents
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.data.store.workers import Task, make_shards
from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_ORIGIN, _LOCK, _SCRATCH = "origin.json", "lock", "keep.bin"

Progress = Callable[[int, int, int], None]
MakeShards = Callable[[Sequence[Task], Tokenizer], Iterator[int]]


def build_store(
    corpus: Corpus,
    tokenizer: Tokenizer,
    directory: str | os.PathLike[str],
    *,
    workers: int = 1,
    deduplicate: bool = False,
    progress: Progress | None = None,
) -> TokenStore:
    """Tokenises a corpus into a folder, or opens the folder where that was done before.

    The corpus is streamed: memory does not grow with it. The folder appears when it is whole. Until
    then the finished parts are in a folder beside it, `directory` with `.building` appended; a
    build that was stopped, by whatever, goes on from there when it is called again.

    Sentences without a token and documents without a sentence are left out.

    Args:
        corpus: The text.
        tokenizer: Makes the ids; its vocabulary and options become part of the store.
        directory: Folder to write. One that already holds the store of this corpus (by its
            fingerprint) and this tokenizer is opened as it is.
        workers: Number of processes, each on one core. The bytes of the store do not depend on
            it. With more than one, a script must call this under `if __name__ == "__main__":`.
        deduplicate: Whether a document is left out if one before it has the same text.
        progress: Called after each part with the number of parts done, the number of all, and the
            tokens so far.

    Returns: the store, opened.

    Raises:
        ValueError: The corpus holds no token or changes while it is read, a file is not UTF-8 text,
            the tokenizer gives an id outside its vocabulary, or `directory` or the folder beside
            it holds something else.
        BlockingIOError: Another process is building this store.
        ChildProcessError: One of the processes has died.
        OSError: The text cannot be read, the folder cannot be written, or the disk is full.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1. Received: workers={workers}.")
    make = functools.partial(make_shards, workers=workers)
    return build_with(
        make, corpus, tokenizer, directory, deduplicate=deduplicate, progress=progress
    )


def cached_store(
    corpus: Corpus, tokenizer: Tokenizer, cache_dir: str | os.PathLike[str] | None = None
) -> TokenStore:
    """The store of a corpus under `cache_dir`, built at the first call and opened afterwards.

    Where another process is building it, this one waits for it.

    Args:
        corpus: The text.
        tokenizer: Makes the ids.
        cache_dir: Folder of stores, each in a subfolder named by the fingerprints of the corpus
            and the vocabulary. None: `keras_bert_d2l` in the user's cache folder, which is
            `$XDG_CACHE_HOME` or `~/.cache`. A store may be deleted at any time; it is built anew.
    """
    if cache_dir is None:
        user_cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        cache_dir = pathlib.Path(user_cache, "keras_bert_d2l")
    directory = pathlib.Path(cache_dir, _origin(corpus, tokenizer, False).name())
    make = functools.partial(make_shards, workers=1)
    return build_with(make, corpus, tokenizer, directory, wait=True)


def build_with(
    make: MakeShards,
    corpus: Corpus,
    tokenizer: Tokenizer,
    directory: str | os.PathLike[str],
    *,
    deduplicate: bool = False,
    progress: Progress | None = None,
    wait: bool = False,
) -> TokenStore:
    """Does what `build_store` does, with shards that are made wherever `make` has them made.

    Args:
        make: Called with the pieces, each with the folder of its shard, and the tokenizer. Makes
            the shards that are not there and yields the number of tokens of each.
        corpus: The text.
        tokenizer: Makes the ids.
        directory: Folder to write.
        deduplicate: As of `build_store`.
        progress: As of `build_store`.
        wait: Whether to wait where another process is building the store.

    Returns: the store, opened.

    Raises:
        BlockingIOError: Another process is building this store, and `wait` is not set.
        ValueError: As `build_store`, or as `make`.
        OSError: As `build_store`, or as `make`.
    """
    directory = pathlib.Path(directory)
    origin = _origin(corpus, tokenizer, deduplicate)
    building = directory.with_name(f"{directory.name}.building")
    if not (directory / MANIFEST).exists() or building.exists():
        _check_free(directory, building, origin, corpus)
        with _explained(directory, building), _sole_writer(building, directory, wait):
            if not (directory / MANIFEST).exists():  # else it was killed, or waited, at the end
                _write(make, corpus, tokenizer, origin, directory, building, progress)
            shutil.rmtree(building, ignore_errors=True)  # another may be waiting in it
    store = TokenStore.open(directory)
    store.check_origin(origin, tokenizer, corpus.description)
    return store


def _origin(corpus: Corpus, tokenizer: Tokenizer, deduplicate: bool) -> Origin:
    return Origin(
        version=manifest.VERSION,
        corpus_fingerprint=corpus.fingerprint(),
        vocab_fingerprint=tokenizer.vocab.fingerprint,
        vocab_size=len(tokenizer.vocab),
        tokenizer=dict(tokenizer.options),
        deduplicate=deduplicate,
    )


def _write(
    make: MakeShards,
    corpus: Corpus,
    tokenizer: Tokenizer,
    origin: Origin,
    directory: pathlib.Path,
    building: pathlib.Path,
    progress: Progress | None,
) -> None:
    """Makes the shards that are missing, and of all of them the store."""
    _sweep(directory, building)
    write_text(building / _ORIGIN, to_json(origin))
    pieces = list(corpus.pieces())
    folders = [building / f"{number:06}" for number in range(len(pieces))]
    num_tokens = 0
    tasks = list(zip(pieces, folders, strict=True))
    for num_done, count in enumerate(make(tasks, tokenizer), 1):
        num_tokens += count
        if progress is not None:
            progress(num_done, len(pieces), num_tokens)
    if not num_tokens:
        for folder in folders:  # with them in it, `building` would be kept
            shutil.rmtree(folder)
        raise ValueError(f"The corpus holds no text: {corpus.description}.")
    if corpus.fingerprint() != origin.corpus_fingerprint:
        raise ValueError(
            f"The text changed while it was read ({corpus.description}), so that parts of the "
            f"token store may be of the old one. Delete the folder {building} and build again."
        )
    keep = np.broadcast_to(True, num_documents(folders))
    if origin.deduplicate:
        keep = first_of_equals(folders, building / _SCRATCH)
    with replacing_folder(directory) as temporary:
        content = merge(folders, origin, temporary, keep)
        tokenizer.vocab.to_file(temporary / VOCAB)
        (temporary / MANIFEST).write_text(to_json(content), encoding="utf-8")


def _sweep(directory: pathlib.Path, building: pathlib.Path) -> None:
    """Removes what a build that was killed has left half done."""
    half_done = re.compile(rf"\.{re.escape(directory.name)}\.[^.]+\.(tmp|old)")
    for entry in directory.parent.iterdir():
        if half_done.fullmatch(entry.name):
            shutil.rmtree(entry)
    for entry in building.iterdir():
        if entry.name.startswith("."):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _check_free(
    directory: pathlib.Path, building: pathlib.Path, origin: Origin, corpus: Corpus
) -> None:
    """Raises `ValueError` where a folder holds anything but this store."""
    for folder in (directory, building):
        ours = (folder / MANIFEST, folder / _ORIGIN, folder / _LOCK)
        if folder.is_file() or (
            folder.is_dir() and any(folder.iterdir()) and not any(file.exists() for file in ours)
        ):
            raise ValueError(
                f"A token store needs a folder of its own; {folder} is a file or holds other "
                "files. Name a new or an empty folder."
            )
    begun = building / _ORIGIN
    if begun.exists() and begun.read_text(encoding="utf-8") != to_json(origin):
        raise ValueError(
            f"The folder {building} holds an unfinished token store of another corpus, tokenizer "
            f"or option, or the text has changed since it was begun ({corpus.description}). Delete "
            "that folder or name another one."
        )


@contextlib.contextmanager
def _sole_writer(building: pathlib.Path, directory: pathlib.Path, wait: bool) -> Iterator[None]:
    """Makes the folder `building` this process's alone.

    A folder in which nothing was finished is removed again when an error comes.
    """
    with _locked(building, directory, wait):
        try:
            yield
        except BaseException:
            if not any(entry.is_dir() for entry in building.iterdir()):
                shutil.rmtree(building, ignore_errors=True)
            raise


@contextlib.contextmanager
def _locked(building: pathlib.Path, directory: pathlib.Path, wait: bool) -> Iterator[None]:
    import fcntl  # Windows has none, but no tensorflow-text to tokenise with either

    path = building / _LOCK
    while True:
        building.mkdir(parents=True, exist_ok=True)
        try:
            lock = open(path, "wb")  # noqa: SIM115
        except FileNotFoundError:  # who had the lock has just removed the folder
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise BlockingIOError(
                    f"Another process is building the token store {directory}. Wait for it to end, "
                    "or name another folder."
                ) from error
            if _is_at(lock, path):
                yield
                return


def _is_at(file: IO[bytes], path: pathlib.Path) -> bool:
    """Whether an open file is still the one at that path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _explained(directory: pathlib.Path, building: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (BlockingIOError, ChildProcessError):
        raise
    except OSError as error:
        raise type(error)(
            f"Could not build the token store {directory}: {error}. Needed are a corpus that can "
            "be read and a folder with write permission and free space; to use another folder, "
            f"set `cache_dir`. Finished parts are kept in {building}: run the same again to go on."
        ) from error
