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


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("classify", "a.jsonl", '{"text": "a"}\n{"text": \n', "line 2: this is not JSON"),
        ("classify", "a.jsonl", '{"text": "a"}\n[1]\n', "line 2: must be a JSON object"),
        ("classify", "a.csv", 'text,label\n"not closed,x\nb,y\n', "line 2: this is not CSV"),
        ("classify", "a.tsv", b"text\tlabel\ncaf\xe9\tx\n", "must be UTF-8.*iconv"),
        ("classify", "a.tsv", "text\tlabel\n\tx\n", "at least one usable example.*empty text"),
        ("classify", "a.tsv", "text\tlabel\n", "at least one usable example.*only a header"),
        ("classify", "a.tsv", "\n", "a.tsv' is empty"),
        ("tag", "a.conll", "", "a.conll' is empty"),
        ("cluster", "a.tsv", "a", "`task` must be one of"),
        ("classify", "a.conllu", "1\tI" + "\t_" * 8 + "\n", "requires the task 'tag'"),
    ],
)
def test_files_that_cannot_be_read_are_rejected(task, name, content, message, write):
    with pytest.raises(ValueError, match=message):
        read_examples(task, write(name, content))
    with pytest.raises(FileNotFoundError):
        read_examples("classify", "none.tsv")


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


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("classify", {"separator": "|"}, r"`separator`.*`multi_label`.*separator='\|'"),
        ("tag", {"text_b": 2}, "`text_b` is for .*'classify', .*text_b=2, task='tag'"),
        ("tag", {"negative": 2}, "`negative` is for the task 'embed'"),
        ("classify", {"choices": 2}, "`choices` is for the task 'choose'"),
    ],
)
def test_an_option_of_another_kind_of_data_is_rejected(task, options, message, write):
    with pytest.raises(ValueError, match=message):
        read_examples(task, write("a.tsv", "text\tlabel\na b\tx\n"), **options)
