"""`pretrain` on a token store, with different rows, masking strategies and objectives."""

import dataclasses
import hashlib
import pathlib
import shutil

import numpy as np
import pytest
import yaml

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from tests.training.conftest import training_eagerly

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def store(text, options, tmp_path_factory):
    tokenizer = Tokenizer(options["vocab"], compat="huggingface")
    folder = tmp_path_factory.mktemp("prepared") / "store"
    return build_store(Corpus.open(text, layout="lines"), tokenizer, folder)


@pytest.fixture(scope="module")
def of_store(options):
    """Options for a run of one step on a token store."""
    return {k: v for k, v in options.items() if k not in ("vocab", "layout")} | {"steps": 1}


@pytest.fixture(scope="module")
def first(store, of_store, tmp_path_factory):
    """A run on a token store without next sentences: its folder and the result of `pretrain`."""
    run = tmp_path_factory.mktemp("first") / "run"
    with training_eagerly():
        return run, pretrain(store.directory, run, **of_store, objective="none", rows="bucketed")


def weights(run):
    return hashlib.sha256((run / "last" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_run_on_a_store_equals_one_on_its_text_with_the_recorded_options(
    first, store, text, tmp_path
):
    run, result = first
    assert result.tokenizer.options == store.tokenizer_options
    recorded = yaml.safe_load((run / "run.yaml").read_text())
    assert recorded.pop("corpus") == str(store.directory)
    assert recorded["vocab"] == str(store.directory / "vocab.txt")
    pretrain(text, tmp_path / "text", verbose=0, **{**recorded, "layout": "lines"})
    assert weights(tmp_path / "text") == weights(run)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"vocab_size": 40}, "vocab_size=40"),
        ({"layout": "lines"}, "layout='lines'"),
        ({"lowercase": False}, "`tokenizer` must be the one.*'lowercase': False"),
        ({"vocab": Vocab([*"abcdefg", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}, "12 tokens"),
    ],
)
def test_options_that_contradict_the_store_are_rejected(store, of_store, option, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        pretrain(store, tmp_path / "run", **{**of_store, **option})


@pytest.mark.slow
def test_objective_none_trains_a_model_without_the_next_sentence_head(first):
    _, result = first
    assert (result.model.hidden, result.model.nsp) == (None, None)
    assert "val_nsp_accuracy" not in result.metrics[-1]
    assert "tokens/s" not in result.metrics[-1]


@pytest.mark.long
def test_pretraining_can_continue_without_the_next_sentence_head(store, of_store, tmp_path):
    run = tmp_path / "run"
    before = pretrain(store, run, **of_store)
    on = {k: v for k, v in of_store.items() if k != "bert_config"} | {"learning_rate": 1e-30}
    after = pretrain(store, tmp_path / "on", **on, init=run, objective="none")
    assert after.model.nsp is None
    encoders = (result.model.encoder.get_weights() for result in (before, after))
    for ours, theirs in zip(*encoders, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long
def test_pretraining_can_continue_with_a_new_next_sentence_head(first, store, of_store, tmp_path):
    run, before = first
    on = {k: v for k, v in of_store.items() if k != "bert_config"} | {"learning_rate": 1e-30}
    after = pretrain(store, tmp_path / "on", **on, init=run, objective="nsp")
    encoders = (result.model.encoder.get_weights() for result in (before, after))
    for ours, theirs in zip(*encoders, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-20)
    # A new head has no opinion yet.
    assert after.metrics[0]["val_nsp_cross_entropy"] == pytest.approx(np.log(2), abs=0.1)
    with pytest.raises(ValueError, match=r"lacks \['nsp', 'pooler'\]"):
        pretrain(store, tmp_path / "lora", **on, init=run, objective="nsp", lora=2)


@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_an_objective_requires_its_head(store, of_store, options, objective, tmp_path):
    config: BERTConfig = options["bert_config"]
    headless = dataclasses.replace(config, next_sentence=False, pooler=False)
    with pytest.raises(ValueError, match=rf"objective='{objective}'.*use objective='none'"):
        pretrain(
            store, tmp_path / "run", **{**of_store, "bert_config": headless}, objective=objective
        )


def test_a_damaged_store_is_rejected_at_the_start_of_a_run(store, of_store, tmp_path):
    copy = shutil.copytree(store.directory, tmp_path / "store")
    ids = np.fromfile(copy / "tokens.bin", store.tokens.dtype)
    ids[::2] = ids[0]  # possible ids, so only the checksum tells
    ids.tofile(copy / "tokens.bin")
    with pytest.raises(ValueError, match=r"damaged at .*tokens\.bin: its SHA-256"):
        pretrain(copy, tmp_path / "run", **of_store)


@pytest.mark.long
def test_a_run_on_documents_in_memory_equals_a_run_on_their_file(text, options, tmp_path):
    options = {**options, "steps": 1}
    blocks = pathlib.Path(text).read_text().split("\n\n")
    documents = [lines for block in blocks if (lines := block.strip().split("\n")) != [""]]
    pretrain(text, tmp_path / "file", **options)
    pretrain(documents, tmp_path / "run", **options)
    assert weights(tmp_path / "run") == weights(tmp_path / "file")
    with pytest.raises(ValueError, match="was in memory. Pass the same documents"):
        pretrain(None, tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="text"):
        pretrain(documents[1:], tmp_path / "run", resume=True)
    pretrain(documents, tmp_path / "run", resume=True)
