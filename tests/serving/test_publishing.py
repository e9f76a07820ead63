"""Tests of exporting versions while another process polls the folder, like TensorFlow Serving."""

import json
import subprocess
import sys
import textwrap

import pytest

from keras_bert_d2l.serving.saved_model import export_saved_model

NUM_VERSIONS = 12
SECONDS = 120

# Loads each new version as soon as it appears, calls it, and checks that it is the right version.
SERVER = """
    import json, pathlib, sys, time
    import tensorflow as tf

    path, last = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    row = tf.constant([[2, 3]])
    lengths, places = tf.constant([2]), tf.constant([[1]])
    print("ready", flush=True)
    seen, polls, newest, found = [], 0, 0, 0
    while newest < last:
        polls += 1
        versions = [int(entry.name) for entry in path.iterdir() if entry.name.isdecimal()]
        found = max(versions, default=0)
        if found == newest:
            time.sleep(0.001)
            continue
        newest = found
        folder = path / str(newest)
        assert json.loads((folder / "model_card.json").read_text())["version"] == newest
        model = tf.saved_model.load(str(folder))
        answer = model.signatures["tokens"](
            tokens=row, segments=0 * row, valid_lens=lengths, pred_positions=places
        )
        assert abs(answer["nsp_logits"].numpy()[0, 1] - newest) < 1e-3
        seen.append(newest)
    print(json.dumps([polls, seen]))
"""


@pytest.mark.long
def test_a_polling_server_sees_only_complete_versions(make_model, tmp_path):
    model, path = make_model(num_blks=1), tmp_path / "demo"
    path.mkdir()
    model.nsp.dense.kernel.assign(0 * model.nsp.dense.kernel)
    command = [sys.executable, "-c", textwrap.dedent(SERVER), path, str(NUM_VERSIONS)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout.readline() == "ready\n"
            for version in range(1, NUM_VERSIONS + 1):
                model.nsp.dense.bias.assign([0.0, version])
                export_saved_model(model, path)
                assert server.poll() is None, "the server failed"
            printed, _ = server.communicate(timeout=SECONDS)
        finally:
            server.kill()
    assert server.returncode == 0
    polls, seen = json.loads(printed)
    assert seen == sorted(set(seen))
    assert seen[-1] == NUM_VERSIONS
    assert len(seen) > NUM_VERSIONS // 2 < polls
