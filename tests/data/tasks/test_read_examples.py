import gzip
import json
import lzma

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples


def test_an_example_with_half_a_surrogate_pair_is_dropped(write):
    good = {"text": "so \U0001f600", "label": "x", "id": "1"}
    reason = "broken character (half of a surrogate pair)"
    halves = ({**good, name: "so \ud83d"} for name in good)
    path = write("a.jsonl", "\n".join(map(json.dumps, [*halves, good])))
    for options in ({}, {"multi_label": True}):
        examples = read_examples("classify", path, **options)
        assert (examples.texts, examples.dropped) == ((good["text"],), {reason: 3})
    tokens = [{"tokens": ["a", last], "tags": ["O", "O"]} for last in ("b", "\udc00")]
    assert read_examples("tag", tokens).dropped == {reason: 1}


def test_compressed_files_are_decompressed(write):
    content = b"text\tlabel\na\tx\n"
    for name, pack in (("a.tsv.xz", lzma.compress), ("A.TSV.GZ", gzip.compress)):
        assert read_examples("classify", write(name, pack(content))).texts == ("a",)


@pytest.mark.slow
def test_real_files_are_read_completely(data_dir):
    dev = read_examples("classify", data_dir / "sst2/dev.tsv.gz")
    assert (len(dev), dev.label_names, dict(dev.dropped)) == (872, ("0", "1"), {})
    snli = read_examples("classify", data_dir / "nli/snli_dev.jsonl.gz")
    assert len(snli) == 9_842
    assert snli.label_names == ("contradiction", "entailment", "neutral")
    pos = read_examples("tag", data_dir / "ud_ewt/en_ewt-ud-dev.conllu.gz")
    assert (len(pos), len(pos.label_names)) == (2_001, 17)
    assert sum(map(len, pos.words)) == 25_147
    squad = read_examples("answer", data_dir / "squad/dev-v1.1.json.gz")
    assert (len(squad), len(set(squad.titles)), dict(squad.dropped)) == (10_570, 48, {})
