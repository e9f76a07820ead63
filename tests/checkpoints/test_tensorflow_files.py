"""Checkpoints of `tf.train.Checkpoint` are read by the names of their variables."""

import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from keras_bert_d2l.checkpoints.tensorflow_files import OBJECT_GRAPH, open_tf, variables_of
from tests.checkpoints.small import save_tensors

A = np.arange(6, dtype=np.float32).reshape(2, 3)
END = "/.ATTRIBUTES/VARIABLE_VALUE"
KEYS = {f"layer/{key}{END}": f"dense/{key}" for key in "ab"}
FIRST, SECOND = KEYS


def graph(nodes):
    """Return an object graph with one node per variable."""
    found = TrackableObjectGraph()
    for key, name in nodes.items():
        attributes = found.nodes.add().attributes
        attributes.add(name="VARIABLE_VALUE", full_name=name, checkpoint_key=key)
    return found.SerializeToString()


GRAPH = graph(KEYS)


def write(prefix, content, keys=KEYS):
    """Write a checkpoint with the given object graph."""
    arrays = dict.fromkeys(keys, A) | ({} if content is None else {OBJECT_GRAPH: content})
    with tf.device("CPU"):
        save_tensors(prefix, arrays)


def test_variables_have_their_names_and_those_of_optimizers_are_left_out(tmp_path):
    model, other, optimizer = tf.Module(), tf.Module(), tf.Module()
    model.kernel = tf.Variable(A, name="dense/kernel")
    model.half = tf.Variable(tf.cast(A, tf.bfloat16), name="half")
    model.one, other.two = (tf.Variable(A + n, name="twice/bias") for n in (1, 2))
    optimizer.m = tf.Variable(A, name="m/dense/kernel")
    counters = {"step": tf.Variable(3), "rate": tf.Variable(0.1), "ids": tf.Variable([1, 2])}
    saved = tf.train.Checkpoint(model=model, other=other, optimizer=optimizer, **counters)
    saved.write(str(tmp_path / "ckpt"))
    arrays = variables_of(open_tf(tmp_path / "ckpt"))
    assert arrays.dtypes["half"] == "bfloat16"
    expected = {"dense/kernel": A, "half": A, "model/one": A + 1, "other/two": A + 2}
    assert arrays.shapes == dict.fromkeys(expected, (2, 3))
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays.read(name), value)


def test_edges_of_the_graph_are_not_followed(tmp_path):
    circular = TrackableObjectGraph.FromString(GRAPH)
    for number, node in enumerate(circular.nodes):
        node.children.add(node_id=1 - number, local_name="a")
        node.children.add(node_id=2**31 - 1, local_name="b")
        node.slot_variables.add(original_variable_node_id=-7, slot_variable_node_id=number)
    write(tmp_path / "ckpt", circular.SerializeToString())
    assert variables_of(open_tf(tmp_path / "ckpt")).shapes == {"dense/a": (2, 3), "dense/b": (2, 3)}


def test_variables_without_names_have_paths(tmp_path):
    write(tmp_path / "ckpt", graph(dict.fromkeys(KEYS, "")))
    assert variables_of(open_tf(tmp_path / "ckpt")).shapes.keys() == {"layer/a", "layer/b"}


def change(old, new, ending="index"):
    """Return a function that writes a checkpoint and changes a file."""

    def edit(prefix):
        write(prefix, GRAPH)
        [file] = prefix.parent.glob(f"*.{ending}")
        content = file.read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new, 1))

    return edit


def cut(ending, size):
    def edit(prefix):
        write(prefix, GRAPH)
        [file] = prefix.parent.glob(f"*.{ending}")
        os.truncate(file, size)

    return edit


def holding(content, keys=KEYS):
    return lambda prefix: write(prefix, content, keys)


LENGTH = bytes([len(GRAPH) & 127 | 128, len(GRAPH) >> 7])
NO_GRAPH, SAME = "has no valid object graph", {FIRST: "same", SECOND: "same"}
SIZE = len(GRAPH) + 6  # with its length and a checksum
ENTRY, SHAPE = b" 0(" + bytes([SIZE & 127 | 128, SIZE >> 7]), b"\x12\x02\x08\x02"
HOSTILE = {
    "no graph": (holding(None), "no text '_CHECKPOINTABLE_OBJECT_GRAPH'"),
    "a variable that is missing": (holding(graph(KEYS | {"c" + END: ""})), "lists 'c/.* without"),
    "a variable that is not listed": (holding(graph({FIRST: "a"})), "does not list .layer/b"),
    "a name that is the path of another": (
        holding(graph(SAME | {"c" + END: "layer/a"}), (*KEYS, "c" + END)),
        "path of another",
    ),
    "a graph of 4 MB": (holding(bytes(2**22)), "no text .* of at most"),
    "a changed name": (change(b"dense/a", b"dense/b", "data*"), "[Cc]hecksum"),
    "a text of a terabyte": (
        change(LENGTH, b"\x80" * 5 + b"\x20", "data*"),
        "not have 1,099,511,627,776",
    ),
    "a huge shape": (change(SHAPE, b"\x12\x02\x08\x7f"), r"\(127, 3\) of float32 in 24 bytes"),
    "an unknown rank": (change(b"\x12\x08" + SHAPE, b"\x12\x08\x18\x01\x12\x00"), "24 bytes"),
    "a graph behind the end": (change(ENTRY, b" 0(\x80\x7f"), "has no 16,256 bytes at"),
    "another data file": (change(ENTRY, b"\x18\x02" + ENTRY[2:]), "no file .*00002-of-00001"),
    "a sparse index": (cut("index", 2**40), "it has more than 4,194,304 bytes"),
    "a data file cut off": (cut("data*", 40), "has no .* bytes at"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_checkpoint_is_refused(kind, tmp_path):
    """TensorFlow's reader would end the process, or reserve a terabyte, for some of them."""
    make, match = HOSTILE[kind]
    make(tmp_path / "ckpt")
    with pytest.raises((ValueError, FileNotFoundError), match=match) as error:
        variables_of(open_tf(tmp_path / "ckpt"))
    assert str(tmp_path / "ckpt") in str(error.value)
    assert len(str(error.value)) < 700
