"""Fixtures for the tests of checkpoints: each model is built and saved once, then copied."""

import shutil

import pytest

from keras_bert_d2l import Tokenizer, save_pretrained
from tests.checkpoints.small import OF_FORMAT, VOCAB, random_model


@pytest.fixture(scope="session")
def models():
    """A model for each format, by the name of the format."""
    return {format: random_model(config) for format, config in OF_FORMAT.items()}


@pytest.fixture(scope="session")
def saved(models, tmp_path_factory):
    """A folder with a checkpoint of each format, by the name of the format."""
    folders = {}
    for format, model in models.items():
        folders[format] = tmp_path_factory.mktemp("saved") / "new" / "checkpoint"
        save_pretrained(model, folders[format], tokenizer=Tokenizer(VOCAB), format=format)
    return folders


@pytest.fixture
def checkpoint(saved, tmp_path):
    """A folder with a checkpoint in the native format."""
    return shutil.copytree(saved["native"], tmp_path / "checkpoint")


@pytest.fixture
def editable(checkpoint):
    """The folder of the fixture `checkpoint`, without checksums, so that its files may change."""
    (checkpoint / "SHA256SUMS").unlink()
    return checkpoint
