"""Nothing that a person sees has characters that a terminal obeys, and JSON stays exact."""

import io
import json
import sys
import unicodedata

import pytest
from rich.console import Console

import keras_bert_d2l as kb
from keras_bert_d2l.cli import main
from keras_bert_d2l.inference.evaluation import Confusion, Evaluation, Mistake, print_evaluation
from keras_bert_d2l.pages import render
from keras_bert_d2l.printing import one_line, printable, printable_output
from keras_bert_d2l.progress import Stage
from keras_bert_d2l.training.finetuning.options import TaskRunOptions

HOSTILE = "\x1b]0;owned\x07\u202e\x9b31m[bold][/]<b>`"
SEEN = r"\u001b]0;owned\u0007\u202e\u009b31m[bold][/]<b>"
OBEYED = {*"Cc Cs Zl Zp LRE RLE LRO RLO PDF LRI RLI FSI PDI".split()}  # classes of Unicode


def is_obeyed(x):
    classes = {unicodedata.category(x), unicodedata.bidirectional(x)}
    return bool(classes & OBEYED) or x in "\u061c\u200e\u200f"


def is_clean(text):
    return not any(is_obeyed(x) for x in text if x not in "\n\t")


def test_exactly_the_characters_that_a_terminal_obeys_become_escapes():
    for code in range(0x10000):
        expected = f"\\u{code:04x}" if is_obeyed(chr(code)) else chr(code)
        assert one_line(chr(code)) == expected
    assert printable(f"a\tb\n{HOSTILE}") == f"a\tb\n{SEEN}`"


def test_a_line_of_json_keeps_its_content():
    record = {"text": HOSTILE + "\x7f\ud800\u2028 \U0001f469\u200d\U0001f680", "tab": "\t\n\0"}
    line = printable(json.dumps(record, ensure_ascii=False))
    assert is_clean(line)
    assert json.loads(line) == record


def test_output_is_printable_and_stays_colored(capsys):
    with printable_output():
        print(HOSTILE)
        print("a", HOSTILE, file=sys.stderr)
        Console(force_terminal=True, color_system="standard").print("red", style="red")
        with printable_output(False):
            print("\rbar")
    out, err = capsys.readouterr()
    assert out == f"{SEEN}`\n\x1b[31mred\x1b[0m\n\rbar\n"
    assert err == f"a {SEEN}`\n"


def test_tables_are_printable(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    console = Console(file=io.StringIO())
    confusion = Confusion.of(["a", HOSTILE], [HOSTILE, "a"], ["a", HOSTILE])
    mistakes = [Mistake(HOSTILE, HOSTILE, HOSTILE, f"{HOSTILE}\n", 0.9)]
    print_evaluation(Evaluation("classify", {"f1": 1.0}, [], mistakes, confusion, 2), console)
    assert is_clean(console.file.getvalue())
    assert f"{SEEN}`\\u000a" in console.file.getvalue()


def test_pages_stages_and_options_are_printable(tmp_path):
    page, file = render("page/page.html.jinja", HOSTILE, styles=[]), tmp_path / "run.yaml"
    assert f"{SEEN.replace('<b>', '&lt;b&gt;')}`" in page.html
    assert Stage(f"{HOSTILE}\n").title == f"{SEEN}`\\u000a"
    text = f"größer{HOSTILE}"
    TaskRunOptions(task="classify", model="bert", train="a", text=text).to_yaml(file)
    assert TaskRunOptions.read_yaml(file)["text"] == text
    assert all(map(is_clean, (page.title, page.html)))


@pytest.mark.slow
def test_commands_print_labels_and_texts_without_control_characters(
    tmp_path, capsys, monkeypatch, eager_models
):
    monkeypatch.chdir(tmp_path)
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a b".split()))
    config = kb.BERTConfig.preset("google", vocab_size=7, num_hiddens=8, num_blks=1, num_heads=1)
    labels, texts = [HOSTILE, f"{HOSTILE}\n"], ["a\n", f"b {HOSTILE}"]
    model = kb.SequenceClassifier(kb.BERTModel.from_bert_config(config), labels)
    kb.save_pretrained(model, HOSTILE, tokenizer=tokenizer, format="huggingface")
    for options in ([], ["--context", HOSTILE, "--traceback"], ["--json"]):
        with pytest.raises(SystemExit):
            main(["predict", *texts, "--model", HOSTILE, *options])
        out, err = capsys.readouterr()
        assert is_clean(out + err)
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["text"] for one in found] == texts
    assert {*found[0]["scores"]} == {*labels}
