import functools
import gzip
import json
import re

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.cli.commands import ask, predict
from keras_bert_d2l.inference.heads import next_sentence_score
from keras_bert_d2l.inference.perplexity import joint_perplexity, minimal_pairs, pseudo_perplexity
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import answer
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.choose.predictions import choose
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import classify, zero_shot
from keras_bert_d2l.tasks.embed.predictions import embed, similar
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.regress.predictions import regress
from keras_bert_d2l.tasks.tag.model import TokenClassifier

LINES = ["the dog sees the hare .", "the owl hears the mouse .", "the fox ."]
LONG = "the dog " * 2000


@pytest.fixture(scope="session")
def texts(folder):
    (folder / "texts.txt").write_text("".join(f"{line}\n" for line in LINES))
    return "texts.txt"


@pytest.fixture(scope="session")
def bert(trained):
    return ask.load(trained)


@pytest.fixture(scope="session")
def tasks(bert, folder):
    """Checkpoints of untrained task models, named by task."""
    models = {
        "classify": SequenceClassifier(bert.model, ["bad", "good"]),
        "regress": SequenceRegressor(bert.model),
        "tag": TokenClassifier(bert.model, ["NOUN", "X"]),
        "choose": MultipleChoice(bert.model),
        "answer": QuestionAnswerer(bert.model),
        "nli": SequenceClassifier(bert.model, ["entailment", "contradiction"]),
    }
    for name, model in models.items():
        save_pretrained(model, folder / "tasks" / name)
    return folder / "tasks"


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
def test_embed_writes_the_vectors_of_the_python_function(run, texts, trained, bert, folder):
    expected = embed(bert.model, LINES)
    out = run("embed", "--file", texts, "--model", trained, "--out", "made/vectors.npy").stdout
    assert out == "3 vectors with 128 dimensions in made/vectors.npy\n"
    np.testing.assert_array_equal(np.load(folder / "made/vectors.npy"), expected)
    rows = objects(run("embed", *LINES, "--model", trained).stdout)
    assert [row["text"] for row in rows] == LINES
    np.testing.assert_array_equal(np.array([r["vector"] for r in rows], "float32"), expected)
    options = ("--prompt", "the ", "--truncate-dim", 8)
    rows = objects(run("embed", *LINES, "--model", trained, *options).stdout)
    expected = embed(bert.model, LINES, prompt="the ", truncate_dim=8)
    np.testing.assert_array_equal(np.array([r["vector"] for r in rows], "float32"), expected)


@pytest.mark.slow
def test_similar_lists_the_most_similar_texts(run, texts, trained, bert):
    expected = similar(bert.model, LINES[1], LINES, top_k=2)
    command = ("similar", LINES[1], "--file", texts, "--model", trained, "--top-k", 2)
    out = run(*command).stdout.splitlines()
    assert out == [f"{m.score:6.3f}  {m.index + 1}  {m.text}" for m in expected]
    assert out[0] == f" 1.000  2  {LINES[1]}"
    assert [row["index"] for row in objects(run(*command, "--json").stdout)] == [
        match.index for match in expected
    ]
    run("embed", "--file", texts, "--model", trained, "--out", "made/lines.npy")
    assert run(*command, "--vectors", "made/lines.npy").stdout.splitlines() == out


@pytest.mark.slow
def test_rerank_sorts_the_texts(run, texts, bert, tmp_path):
    reranker = kb.Reranker(bert.model)
    kb.save_pretrained(reranker, tmp_path / "reranker")
    expected = kb.rerank(reranker, LINES[1], LINES, top_k=2)
    command = ("rerank", LINES[1], "--file", texts, "--model", tmp_path / "reranker", "--top", 2)
    out = run(*command).stdout.splitlines()
    assert out == [f"{one.score:6.3f}  {one.index + 1}  {one.text}" for one in expected]
    assert [row["index"] for row in objects(run(*command, "--json").stdout)] == [
        one.index for one in expected
    ]


@pytest.mark.slow
def test_perplexity_measures_each_text_and_all_texts_together(run, texts, trained, bert):
    expected = pseudo_perplexity(bert.model, LINES)
    joint = joint_perplexity(expected)
    lines = run("perplexity", "--file", texts, "--model", trained).stdout.splitlines()
    assert lines == [
        f"{one.perplexity:10.2f}  {one.num_tokens:>6}  {text}"
        for one, text in zip([*expected, joint], [*LINES, "(all 3 texts)"], strict=True)
    ]
    rows = objects(run("perplexity", *LINES, "--json", "--model", trained).stdout)
    assert [row["num_tokens"] for row in rows] == [one.num_tokens for one in [*expected, joint]]
    assert rows[-1]["num_texts"] == len(LINES)
    assert rows[-1]["perplexity"] == pytest.approx(joint.perplexity, rel=1e-5)


@pytest.mark.slow
def test_evaluate_prints_the_accuracy_of_each_phenomenon(run, error, folder, trained, bert):
    good, bad = LINES[0], "the the dog hare sees ."
    pairs = [("order", good, bad), ("other", good, good), ("other", bad, bad)]
    columns = ("UID", "sentence_good", "sentence_bad")
    rows = [dict(zip(columns, pair, strict=True)) for pair in pairs]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = ("evaluate", "--model", trained, "--data", "pairs.jsonl")
    lines = run(*command).stdout.splitlines()
    expected = minimal_pairs(bert.model, rows)
    names, shares = ["order", "other", "(all 3 pairs)"], [*expected.by_uid.values()]
    accuracies = zip([*shares, expected.accuracy], names, strict=True)
    assert lines == [f"{accuracy:6.1%}  {name}" for accuracy, name in accuracies]
    [found] = objects(run(*command, "--json").stdout)
    assert found["by_uid"] == expected.by_uid == {**found["by_uid"], "other": 0}  # ties are wrong
    assert found["precision"] == "float32"
    assert found["model"] == str(trained)
    for option in (("--label", "label"), ("--max-len", 9), ("--null-threshold", 0)):
        assert f"{option[0]} is for a fine-tuned model" in error(*command, *option)
    (folder / "three.tsv").write_text("text\tlabel\na\tb\n")
    assert "sentence_good" in error(*command[:3], "--data", "three.tsv")


PREDICTED = {  # model -> arguments, the function, its arguments, and the line of its first answer
    "classify": (LINES, classify, (LINES,), lambda x: f"{x.label} {x.score:.3f}  {LINES[0]}"),
    "regress": (LINES, regress, (LINES,), lambda x: f"score {x.score:.3f}  {LINES[0]}"),
    "choose": (
        *(LINES, choose, ([LINES[0]], [LINES[1:]])),
        lambda x: f"{x.choice} {x.score:.3f}  {LINES[0]}",
    ),
    "answer": (
        *(LINES[:2], answer, ([LINES[0]], [LINES[1]])),
        lambda x: f"{x[0].text or '(no answer)'} {x[0].score:.3f}  {LINES[0]}",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PREDICTED)
def test_predict_answers_texts_as_the_function_of_the_task_does(name, run, tasks):
    arguments, function, asked, line = PREDICTED[name]
    expected = function(ask.load(tasks / name).model, *asked)
    command = ("predict", *arguments, "--model", tasks / name)
    assert run(*command).stdout.splitlines()[0] == line(expected[0])
    found = objects(run(*command, "--json").stdout)
    assert [row["id"] for row in found] == [str(n + 1) for n in range(len(expected))]


@pytest.mark.slow
def test_predict_lists_the_best_answers(run, error, tasks):
    ask_model = functools.partial(run, "predict", *LINES[:2], "--top-k", 2, "--model")
    expected = answer(ask.load(tasks / "answer").model, LINES[0], LINES[1], top_k=2)
    found = [f"{one.text} {one.score:.3f}" for one in expected]
    assert ask_model(tasks / "answer").stdout == "\n    ".join([LINES[0], *found]) + "\n"
    [row] = objects(ask_model(tasks / "answer", "--json").stdout)
    assert (row["answer"], [one["text"] for one in row["answers"]]) == (
        expected[0].text,
        [one.text for one in expected],
    )
    told = error("predict", "a", "-k", 2, "--model", tasks / "regress")
    assert "--top-k requires a QuestionAnswerer" in told


@pytest.mark.slow
def test_predict_accepts_pairs(run, error, tasks, trained, bert, folder):
    pair = ("predict", "--pairs", *LINES[:2], "--model")
    one = classify(ask.load(tasks / "classify").model, *LINES[:2])
    printed = run(*pair, tasks / "classify").stdout
    assert printed == f"{one.label} {one.score:.3f}  {LINES[0]} | {LINES[1]}\n"
    [score] = next_sentence_score(bert.model, LINES[:1], LINES[1:2])
    assert run(*pair, trained).stdout == f"score {score:.3f}  {LINES[0]} | {LINES[1]}\n"
    (folder / "pairs.tsv").write_text(f"{LINES[0]}\t{LINES[1]}\r\n{LINES[1]}\t{LINES[2]}\r\n")
    columns = ("--text", 1, "--text-b", 2, "--model", trained)
    [first, second] = objects(run("predict", "--pairs", "pairs.tsv", *columns).stdout)
    assert first["score"] == pytest.approx(score, abs=1e-5)
    assert (second["text"], second["text_b"]) == tuple(LINES[1:])
    (folder / "single.txt").write_text("a\n")
    assert "two texts in each row" in error("predict", "--pairs", "single.txt", "-m", trained)
    assert "--pairs requires" in error("predict", "--pairs", "a", "b", "-m", tasks / "tag")


@pytest.mark.slow
def test_predict_chooses_from_given_labels_with_a_model_for_inference(run, error, tasks):
    labels = ("--label", "cat", "--label", "dog", "--template", "a {} .", "--model")
    expected = zero_shot(ask.load(tasks / "nli").model, LINES[0], ["cat", "dog"], template="a {} .")
    ranked = sorted(expected.scores, key=expected.scores.get, reverse=True)
    scores = ", ".join(f"{name} {expected.scores[name]:.3f}" for name in ranked)
    assert run("predict", LINES[0], *labels, tasks / "nli").stdout == f"{scores}  {LINES[0]}\n"
    [row] = objects(run("predict", LINES[0], "--json", *labels, tasks / "nli").stdout)
    assert row["scores"] == pytest.approx(expected.scores, abs=1e-5)
    for option in (("--multi-label",), ("--template", "a {} .")):
        assert f"{option[0]} is for --label" in error("predict", "a", *option, labels[-1], "x")
    assert "needs single texts" in error("predict", "a", "b", "c", *labels, tasks / "choose")


def test_words_and_entities_are_shown_in_lines():
    ada = {"label": "PER", "score": 0.9, "start": 0, "end": 3}
    lived = {"word": "lived", "label": "O", "score": 0.8}
    tags = {"id": "1", "text": "Ada lived", "tags": [{"word": "Ada", **ada}, lived]}
    shown = "Ada lived\n    Ada  PER 0.900\n    lived  O 0.800"
    assert predict._readable(tags, ranked=False) == shown
    entities = {"id": "1", "text": "Ada", "entities": [{"text": "Ada", **ada}]}
    assert predict._readable(entities, ranked=False) == "Ada\n    Ada  PER 0.900"


def test_predict_takes_one_file_or_texts(error, folder):
    (folder / "page.txt").write_text("Paris .")
    model = ("--model", "nowhere")
    assert "INPUT is missing" in error("predict", *model)
    assert "must be one file, or texts" in error("predict", "page.txt", "a film", *model)
    assert "number 1 is empty" in error("predict", " ", *model)
    assert "INPUT must be a file with --text" in error("predict", "a film", "--text", 1, *model)


@pytest.mark.slow
def test_predict_needs_all_texts_of_an_example(error, tasks, folder):
    assert "Received: 1 text" in error("predict", "who ?", "--model", tasks / "answer")
    assert "two choices. Received: 1" in error("predict", "a", "b", "-m", tasks / "choose")
    (folder / "a.txt").write_text("a\n")
    assert "needs several texts" in error("predict", "a.txt", "--model", tasks / "choose")
    assert "absent.tsv" in error("predict", "absent.tsv", "--model", tasks / "classify")


def test_a_dash_means_standard_input(run, trained, monkeypatch):
    command = ["perplexity", "-", "--json", "--model", str(trained)]
    result = run(*command, input="\ufeffthe dog\nthe caf\u00e9\n")
    first, second, _ = objects(result.stdout)  # the last is for both texts together
    assert (first["text"], second["text"]) == ("the dog", "the caf\u00e9")


def test_fill_mask_predicts_each_mask_of_texts_or_a_file(run, trained, folder):
    (folder / "masks.txt").write_text("the [MASK] sees\nthe [MASK] [MASK]\n")
    command = ("fill-mask", "--file", "masks.txt", "--top-k", 2, "--json", "--model", trained)
    out = run(*command[:5], *command[6:]).stdout.splitlines()  # without --json
    assert [out[0], out[2]] == ["the [MASK] sees", "the [MASK] [MASK]"]
    assert all(re.fullmatch(r"    (\S+ 0\.\d{3}(, )?){2}", out[n]) for n in (1, 3, 4))
    rows = objects(run(*command).stdout)
    assert [[len(mask) for mask in row["masks"]] for row in rows] == [[2], [2, 2]]
    assert set(rows[0]["masks"][0][0]) == {"token", "id", "score"}


@pytest.mark.slow
def test_unusable_texts_give_a_one_line_error(error, texts, trained, folder):
    (folder / "gap.txt").write_text("the dog\n\nthe cat\n")
    bert = ("--model", trained)
    assert "as arguments, with --file" in error("embed", *bert)
    assert "as arguments, with --file" in error("embed", "a", "--file", texts, *bert)
    assert "line of 'gap.txt' must contain text. Received: number 2" in error(
        "perplexity", "--file", "gap.txt", *bert
    )
    assert "number 1 is empty" in error("embed", "", *bert)
    assert "nowhere.txt" in error("embed", "--file", "nowhere.txt", *bert)
    assert "QUERY" in error("similar", " ", "a", *bert)
    assert "even number of texts. Received: 3" in error("predict", "--pairs", "a", "b", "c", *bert)
    pair = (LONG, "the dog", "--no-truncate")
    assert error("predict", "--pairs", *pair, *bert).endswith("Split it, or omit --no-truncate.\n")


@pytest.mark.slow
def test_truncated_texts_of_all_parts_are_counted_in_one_line(
    run, error, trained, tasks, folder, monkeypatch
):
    monkeypatch.setattr(ask, "PART", 2)
    monkeypatch.setattr(predict, "_AT_ONCE", 2)
    texts = LONG, "the dog", f"a {LONG}", f"an {LONG}", "the owl"
    (folder / "long.txt").write_text("\n".join(texts))
    note = "Truncated to 512 tokens, including special tokens: 3 texts. Where --no-truncate is"
    for command in (
        ("embed", "--file", "long.txt", "--model", trained),
        ("predict", "long.txt", "--model", tasks / "classify"),
    ):
        lines = run(*command).stderr.splitlines()
        assert [line for line in lines if "truncate" in line.lower()] == [
            f"{note} an option, it makes this an error."
        ]
        assert "omit --no-truncate" in error(*command, "--no-truncate")


@pytest.mark.slow
def test_a_checkpoint_of_a_different_task_gives_a_one_line_error(error, tasks, trained):
    assert "a TokenClassifier" in error("fill-mask", "the [MASK]", "--model", tasks / "tag")
    assert "task TokenClassifier" in error("embed", "a", "--model", tasks / "tag")
    assert "`keras-bert-d2l finetune` first" in error("predict", "a", "--model", trained)


def test_texts_can_be_compressed(run, error, trained, folder):
    (folder / "texts.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    rows = objects(run("perplexity", "--file", "texts.gz", "--json", "--model", trained).stdout)
    assert [row["text"] for row in rows[:3]] == LINES
    told = error("embed", "-", "-m", trained, input=b"the dog\ncaf\xe9\n")
    assert "standard input must be UTF-8" in told


@pytest.mark.slow
def test_playground_writes_a_page(run, trained, texts, folder):
    command = ("playground", "--model", trained, "--out", "made/page.html")
    out = run(*command).stdout
    page = (folder / "made/page.html").read_bytes()
    assert out == f"{len(page) / 1e6:.1f} MB in made/page.html\n"
    run(*command, "--file", texts)
    assert len((folder / "made/page.html").read_bytes()) > len(page)
