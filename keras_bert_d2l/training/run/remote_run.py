"""A run folder at a URL: its local copy, which trains, and the upload after each save.

The remote folder has the same files. `last/`, from which the run resumes, is uploaded after all
others, and `remote.publish` keeps a complete version of it, of `best/` and of `adapter/` at every
moment. There are no locks in object stores: two machines must not train the same run.
"""

import contextlib
import os
import pathlib
import shutil
import warnings
from collections.abc import Iterator, Sequence

from keras_bert_d2l.checkpoints.location import BEST, CONFIG_FILE, LAST, RUN_FILE
from keras_bert_d2l.files import CHECKSUMS, replacing_folder, write_text
from keras_bert_d2l.progress import stage
from keras_bert_d2l.remote import (
    delete,
    fetch,
    get_files,
    is_complete,
    listing,
    mirror_of,
    open_file,
    publish,
    put_file,
)
from keras_bert_d2l.text.vocab import JSON_FILE, VOCAB_FILE
from keras_bert_d2l.training.run.interruption import TrainingInterrupted

ADAPTER, TENSORBOARD = "adapter", "tensorboard"
# Files of a run before the first complete `last/`.
_BEGUN = {RUN_FILE, CONFIG_FILE, VOCAB_FILE, JSON_FILE, CHECKSUMS, LAST}
_READABLE = (".yaml", ".json", ".jsonl", ".txt")


class RemoteRun:
    """The folder of a run in an object store and its local copy.

    Args:
        address: The URL of the folder.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self.folder = mirror_of(address, "runs")
        self._known = self.folder.parent / f"{LAST}.{CHECKSUMS}"  # of the latest remote `last/`
        self._sent: dict[str, tuple[int, int]] = {}  # times and sizes of uploaded files

    def download(self) -> None:
        """Copy the remote folder to the local one, unless that has the same or a newer state.

        It has a newer one if an upload failed and the remote state is still the one before.

        Raises:
            FileExistsError: The remote folder contains other files than those of a run.
            OSError: The object store cannot be read.
        """
        sums = self._remote_sums(LAST)
        if sums and sums == self._known_sums() and self._local_sums(LAST):
            return
        found = {name.partition("/")[0] for name in listing(self.address)}
        if found - _BEGUN and not is_complete(f"{self.address}/{LAST}"):
            raise FileExistsError(
                f"{self.address!r} is not empty and does not contain a run. Choose a new or empty "
                "folder."
            )
        self._known.unlink(missing_ok=True)
        for entry in self.folder.glob("[!.]*"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.copy_to(self.folder, (BEST, ADAPTER, LAST))
        write_text(self._known, sums)

    def copy_to(self, folder: pathlib.Path, parts: Sequence[str]) -> None:
        """Copy checkpoints of the remote run, and the files next to them, to a local folder."""
        with stage(f"Downloading {self.address}"):
            for part in parts:
                if is_complete(f"{self.address}/{part}"):
                    fetch(f"{self.address}/{part}", folder / part)
            get_files(
                self.address,
                folder,
                lambda name: "/" not in name or name.startswith(f"{TENSORBOARD}/"),
            )

    @contextlib.contextmanager
    def uploading(self) -> Iterator[None]:
        """Upload what an earlier process could not, and what the block leaves.

        Raises:
            OSError: An upload failed.
        """
        if self._local_sums(LAST):
            self.upload()
        try:
            yield
        except TrainingInterrupted:
            self.upload()
            raise
        self.upload()

    def upload_state(self, step: int) -> None:
        """Upload the state after a step. If that fails, only warn, unless the run is new.

        Raises:
            OSError: The first upload of the run failed.
        """
        try:
            self.upload()
        except OSError as error:
            if not self._known_sums():
                raise
            warnings.warn(
                f"Step {step:,}: {error} The training continues, and the next save tries again.",
                RuntimeWarning,
                stacklevel=3,
            )

    def upload(self) -> None:
        """Upload what has changed, `last/` at the end.

        Raises:
            OSError: The object store cannot be written.
        """
        try:
            with stage(f"Uploading the run to {self.address}"):
                self._publish(BEST)
                self._publish(ADAPTER)
                self._put_files()
                self._publish(LAST)
        except (OSError, ValueError) as error:
            if not self._known_sums():
                raise
            raise OSError(
                f"The run could not be uploaded. {error} The complete run is in the local folder "
                f"{os.fspath(self.folder)!r}. To upload it, resume the run with its URL on this "
                "machine."
            ) from error

    def _publish(self, part: str) -> None:
        sums = self._local_sums(part)
        if not sums:
            return
        if sums != self._remote_sums(part):
            publish(self.folder / part, f"{self.address}/{part}")
        if part == LAST:
            write_text(self._known, sums)

    def _put_files(self) -> None:
        """Upload the files next to the checkpoints. `SHA256SUMS` is missing until all are new."""
        tags = {}
        for file in (*self.folder.glob("[!.]*"), *(self.folder / TENSORBOARD).rglob("*")):
            if file.is_file():
                status = file.stat()
                name = file.relative_to(self.folder).as_posix()
                tags[name] = (status.st_mtime_ns, status.st_size)
        if tags.items() <= self._sent.items():
            return
        delete(f"{self.address}/{CHECKSUMS}")
        self._sent.pop(CHECKSUMS, None)
        for name in sorted(tags, key=lambda name: name == CHECKSUMS):
            if tags[name] != self._sent.get(name):
                put_file(self.folder / name, f"{self.address}/{name}")
                self._sent[name] = tags[name]

    def _known_sums(self) -> str:
        return self._known.read_text() if self._known.is_file() else ""

    def _local_sums(self, part: str) -> str:
        file = self.folder / part / CHECKSUMS
        return file.read_text() if file.is_file() else ""

    def _remote_sums(self, part: str) -> str:
        try:
            with open_file(f"{self.address}/{part}/{CHECKSUMS}") as file:
                return file.read().decode()
        except FileNotFoundError:
            return ""


def copy_without_weights(address: str) -> pathlib.Path:
    """Copy those files of a remote run that describe it, and return the local folder."""
    local = mirror_of(address, "run_files")
    with replacing_folder(local) as folder:
        get_files(address, folder, lambda name: name.endswith(_READABLE))
    return local
