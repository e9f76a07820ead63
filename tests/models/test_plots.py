"""Pictures of models, as docs/tutorials/inside_the_model.md describes them."""

import re
import shutil

import keras
import pytest

NAME = re.compile(r"<b>(\w+)</b>")
EDGE = re.compile(r"^(\d+) -> (\d+)", re.MULTILINE)

pytest.importorskip("pydot", reason="needs pydot")


def names_in(model):
    """Return the names of the layers in the picture."""
    return NAME.findall(keras.utils.model_to_dot(model, show_layer_names=True).to_string())


@pytest.fixture
def encoder(make_model):
    """The encoder as a model that Keras draws block by block."""
    model = make_model(embedding_norm=True)
    inputs = [keras.Input((None,), dtype="int32", name=name) for name in ("tokens", "segments")]
    return keras.Model(inputs, model.encoder.call(*inputs))


def test_the_picture_of_an_encoder_shows_embeddings_and_blocks(encoder):
    found = names_in(encoder)
    shown = {"tokens", "segments", "token_embedding", "segment_embedding", "embedding_ln", "blk_0"}
    assert shown <= set(found)
    graph = keras.utils.model_to_dot(encoder)
    boxes = {node.get_name().strip('"') for node in graph.get_nodes()}
    ends = [edge.get_destination() for edge in graph.get_edges()]
    starts = [edge.get_source() for edge in graph.get_edges()]
    blocks = [str(id(layer)) for layer in encoder.layers if layer.name.startswith("blk_")]
    assert set(starts) | set(ends) <= boxes
    assert set(blocks) <= set(ends)


def test_the_picture_of_a_block_shows_its_sublayers(make_model):
    states = keras.Input((None, 32), name="states")
    block = keras.Model(states, make_model().encoder.blks[0].call(states))
    assert {"states", "attention", "addnorm1", "ffn", "addnorm2"} <= set(names_in(block))


def test_keras_draws_a_model_as_a_single_box(make_model):
    model = make_model()
    assert names_in(model) == [model.name]


def test_plot_model_writes_the_picture(encoder, tmp_path):
    if shutil.which("dot") is None:
        pytest.skip("needs the program dot of Graphviz")
    keras.utils.plot_model(encoder, tmp_path / "encoder.svg", show_layer_names=True)
    assert "blk_0" in (tmp_path / "encoder.svg").read_text()
