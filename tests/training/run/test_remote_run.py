"""Runs whose folder is in an object store."""

import json
import pathlib
import shutil
from unittest import mock

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l import quickstart, remote
from keras_bert_d2l.checkpoints.location import LAST, find_checkpoint, is_run
from keras_bert_d2l.files import verify_checksums, write_checksums
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.run import run_folder
from keras_bert_d2l.training.run.interruption import TrainingInterrupted
from keras_bert_d2l.training.run.remote_run import RemoteRun
from keras_bert_d2l.training.run.run_folder import RunFolder
from tests.training.conftest import AfterSteps, press_ctrl_c
from tests.training.finetuning.test_finetune import DEV, make_model, of_epoch

pytest.importorskip("fsspec")
from tests.object_stores import OPERATIONS, MemoryFileSystem, Stopped, stopping_after

pytestmark = [
    pytest.mark.slow,
    # Of the server of moto and of s3fs at shutdown.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]

in_memory = pytest.mark.parametrize("bucket", ["memory"], indirect=True)


@pytest.fixture
def address(bucket):
    return f"{bucket}/runs/mine"


@pytest.fixture
def on_another_machine(monkeypatch, tmp_path):
    """Return a function that changes to a cache, by default to an empty one."""
    caches = iter(range(100))

    def change(name=None):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / (name or f"cache{next(caches)}")))

    return change


def broken(*names):
    """Return a patch that makes operations of the memory file system fail."""
    failing = mock.Mock(side_effect=ConnectionError("the network is down"))
    return mock.patch.multiple(MemoryFileSystem, **dict.fromkeys(names or OPERATIONS, failing))


def assert_same_weights(model, other):
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def put(address, text):
    fs, name = remote.file_system(address)
    fs.makedirs(name.rpartition("/")[0], exist_ok=True)
    fs.pipe_file(name, text.encode())


def save(run, version):
    """Write the files of a fine-tuning run as a save does, all with the number of a version."""
    for part in ("best", "last"):
        shutil.rmtree(run.folder / part, ignore_errors=True)
        (run.folder / part).mkdir(parents=True)
        (run.folder / part / "weights.bin").write_text(f"{version}")
        (run.folder / part / f"only{version}.txt").write_text(f"{version}")
        write_checksums(run.folder / part)
    (run.folder / "tensorboard").mkdir(exist_ok=True)
    (run.folder / "tensorboard/events").write_text(f"{version}" * version)
    (run.folder / "run.yaml").write_text("task: classify")
    (run.folder / "metrics.json").write_text(f"{version}" * version)
    write_checksums(run.folder, ["run.yaml", "metrics.json"])


def version_of(run):
    """Check that the local files of a run are complete, and return the version of `last/`."""
    for folder in (run.folder, run.folder / "best", run.folder / "last"):
        verify_checksums(folder)
    version = (run.folder / "last/weights.bin").read_text()
    assert (run.folder / f"last/only{version}.txt").is_file()
    assert len(list((run.folder / "last").iterdir())) == 3
    return int(version)


@pytest.mark.long
@in_memory
def test_after_every_operation_of_an_upload_a_complete_version_can_be_downloaded(
    address, on_another_machine
):
    """The program is stopped after each operation in turn."""
    run = RemoteRun(address)
    run.download()
    save(run, 1)
    run.upload()
    save(run, 2)
    found = []
    for most in range(100):
        fresh = RemoteRun(address)  # a new process
        try:
            with stopping_after(most):
                fresh.upload()
        except Stopped:
            on_another_machine()
            other = RemoteRun(address)
            other.download()
            found.append(version_of(other))
            save(other, 1)  # restore the former version
            other.upload()
            on_another_machine("cache")
        else:
            break
    assert most > 20
    assert found == sorted(found)
    assert set(found) == {1, 2}
    on_another_machine()
    other = RemoteRun(address)
    other.download()
    assert version_of(other) == 2
    names = {name.partition("/")[0] for name in remote.listing(address)}
    assert names == {"run.yaml", "metrics.json", "SHA256SUMS", "tensorboard", "best", "last"}


@in_memory
def test_only_what_has_changed_is_uploaded(address):
    run = RemoteRun(address)
    run.download()
    save(run, 1)
    run.upload()
    with stopping_after() as operations:
        run.upload()
    assert operations == []
    (run.folder / "metrics.jsonl").write_text("{}")
    with stopping_after() as operations:
        run.upload()
    assert operations.count("put_file") == 2  # and SHA256SUMS


@pytest.mark.long
@in_memory
def test_a_newer_local_state_is_kept_until_another_machine_has_continued(
    address, on_another_machine
):
    on_another_machine("first")
    first = RemoteRun(address)
    first.download()
    save(first, 1)
    first.upload()
    save(first, 2)
    with broken(), pytest.raises(OSError, match="could not be uploaded"):
        first.upload()
    again = RemoteRun(address)
    again.download()
    assert version_of(again) == 2
    on_another_machine("second")
    second = RemoteRun(address)
    second.download()
    assert version_of(second) == 1
    save(second, 3)
    second.upload()
    on_another_machine("first")
    again.download()
    assert version_of(again) == 3


@pytest.mark.long
def test_the_demo_needs_a_local_folder():
    with pytest.raises(
        ValueError, match="`run_dir` must be a local path. Received: 's3://bucket/runs'"
    ):
        quickstart.run(run_dir="s3://bucket/runs")


@pytest.mark.long
def test_a_folder_of_other_files_is_refused(bucket, text, options):
    put(f"{bucket}/folder/thesis/chapter.txt", "years of work")
    with pytest.raises(FileExistsError, match="folder' is not empty and does not contain a run"):
        kb.pretrain(text, f"{bucket}/folder", **options)
    assert list(remote.listing(bucket)) == ["folder/thesis/chapter.txt"]


@pytest.mark.long
@in_memory
def test_a_local_copy_of_a_deleted_run_is_not_used(address, text, options):
    with pytest.raises(FileNotFoundError, match=f"'{address}' does not contain a run to resume"):
        kb.pretrain(None, address, resume=True)
    run = RemoteRun(address)
    run.download()
    save(run, 1)
    run.upload()
    remote.delete(address)
    with pytest.raises(FileNotFoundError, match=f"'{address}' does not contain a run to resume"):
        kb.pretrain(None, address, resume=True)
    assert not run.folder.exists()


@pytest.mark.long
@in_memory
def test_a_run_starts_only_if_its_folder_can_be_written(address, text, options):
    steps = AfterSteps(1, pytest.fail)
    with broken(), pytest.raises(OSError, match=f"access '{address}.*network is down"):
        kb.pretrain(text, address, callbacks=[steps], **options)
    assert kb.pretrain(text, address, **{**options, "steps": 1}).metrics[-1]["step"] == 1


@pytest.mark.long
def test_a_run_resumes_exactly_from_its_url_with_an_empty_cache(
    address, text, options, finished, on_another_machine
):
    local, whole = finished.run, finished.result
    stop = AfterSteps(4, press_ctrl_c)
    with pytest.raises(TrainingInterrupted, match=f"pretrain --resume {address}$"):
        kb.pretrain(text, address, callbacks=[stop], **options)
    on_another_machine()
    resumed = kb.pretrain(None, pathlib.Path(address), resume=True, verbose=0)
    assert_same_weights(resumed.model, whole.model)
    assert_same_weights(kb.load_pretrained(address).model, kb.load_pretrained(local).model)
    on_another_machine()
    run = RemoteRun(address)
    run.download()
    verify_checksums(run.folder)
    names = {file.relative_to(local) for file in local.rglob("*") if file.is_file()}
    found = {file.relative_to(run.folder) for file in run.folder.rglob("*") if file.is_file()}
    assert {name for name in names ^ found if name.parts[0] != "tensorboard"} == set()
    with pytest.raises(FileExistsError, match=f"'{address}' already contains a run at step 7"):
        kb.pretrain(text, address, **options)


@pytest.mark.long
@in_memory
def test_the_training_goes_on_after_a_failed_upload(address, text, options, on_another_machine):
    network = broken()
    events = [AfterSteps(1, network.start), AfterSteps(4, network.stop)]
    message = rf"Step 3: The run could not be uploaded\. Could not access '{address}"
    with pytest.warns(RuntimeWarning, match=message) as warned:
        result = kb.pretrain(text, address, callbacks=events, **options)
    assert len([one for one in warned if issubclass(one.category, RuntimeWarning)]) == 1
    on_another_machine()
    again = kb.pretrain(None, address, resume=True, verbose=0)
    assert again.metrics == result.metrics
    assert_same_weights(again.model, result.model)


@pytest.mark.long
@in_memory
def test_a_run_that_cannot_be_uploaded_names_its_local_folder_and_is_uploaded_later(
    address, text, options, finished, on_another_machine
):
    network = broken()
    events = [AfterSteps(4, network.start), AfterSteps(4, press_ctrl_c)]
    with (
        pytest.warns(RuntimeWarning, match="the next save tries again"),
        pytest.raises(OSError, match="The complete run is in the local folder") as error,
    ):
        kb.pretrain(text, address, callbacks=events, **options)
    assert f"'{RemoteRun(address).folder}'" in str(error.value)
    network.stop()
    steps = AfterSteps(3, pytest.fail)  # two are left
    result = kb.pretrain(None, address, resume=True, callbacks=[steps], verbose=0)
    on_another_machine()
    for found in (result, kb.pretrain(None, address, resume=True, verbose=0)):
        assert_same_weights(found.model, finished.result.model)


@pytest.mark.long
@in_memory
def test_fine_tuning_resumes_exactly_from_a_url(address, eager, tmp_path, on_another_machine):
    given = {"epochs": 2, "learning_rate": 2e-2, "verbose": 0}
    whole = kb.finetune(make_model(), of_epoch, DEV, tmp_path / "whole", **given)
    stop = AfterSteps(1, press_ctrl_c)
    with pytest.raises(TrainingInterrupted):
        kb.finetune(make_model(), of_epoch, DEV, address, callbacks=[stop], **given)
    on_another_machine()
    resumed = kb.finetune(make_model(), of_epoch, DEV, address, resume=True, **given)
    assert resumed.metrics == whole.metrics
    assert_same_weights(resumed.model, whole.model)
    fs, name = remote.file_system(f"{address}/metrics.json")
    assert json.loads(fs.cat_file(name)) == whole.metrics
    assert find_checkpoint(address).name == "best"
    assert "report.html" in remote.listing(address)


@pytest.mark.long
@in_memory
def test_commands_read_a_run_at_its_url(
    address, text, options, finished, tmp_path, on_another_machine
):
    local = finished.run
    kb.pretrain(text, address, **options)
    on_another_machine()
    assert is_run(address)
    assert not is_run(f"{address}/best")
    fs, name = remote.file_system(f"{address}/report.html")
    for page in (kb.run_report(address).html, fs.cat_file(name).decode()):
        assert f"pretrain --resume {address}" in page
    assert not list(tmp_path.glob("cache0/**/*.safetensors"))  # reports do not need the weights
    ours, theirs = (kb.doctor(run) for run in (address, local))
    assert ours.skipped == theirs.skipped
    assert [one.name for one in ours.findings] == [one.name for one in theirs.findings]
    with pytest.raises(FileNotFoundError, match="is not a run of `pretrain` or `finetune`"):
        kb.doctor(f"{address}/nothing")


@pytest.mark.long
@in_memory
def test_another_process_reads_the_state_without_the_copy_of_the_first(
    address, text, options, on_another_machine, monkeypatch
):
    kb.pretrain(text, address, **{**options, "steps": 3})
    on_another_machine()
    monkeypatch.setattr(run_folder, "is_first", lambda: False)
    opened = run_folder.opened_run(
        RunFolder(address), PretrainingOptions, {}, resume=True, is_complete=False, say=print
    )
    with opened as (run, _, is_resumed):
        assert is_resumed
        assert run.remote is None
        assert run.read_state()[0]["step"] == 3
        assert (run.path / LAST / "model.safetensors").is_file()
    assert not RemoteRun(address).folder.exists()
