import gzip
import json
import lzma
import re

import numpy as np
import pytest

from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.cli.commands import ask
from keras_bert_d2l.inference.features import extract_features
from keras_bert_d2l.inference.heads import next_sentence_score
from keras_bert_d2l.inference.perplexity import joint_perplexity, minimal_pairs, pseudo_perplexity
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import answer
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import classify
from keras_bert_d2l.tasks.classify.zero_shot import zero_shot
from keras_bert_d2l.tasks.embed.predictions import embed, similar
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import tag

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
        "both": SequenceClassifier(bert.model, ["bad", "good"], multi_label=True),
        "regress": SequenceRegressor(bert.model),
        "tag": TokenClassifier(bert.model, ["NOUN", "X"]),
        "nli": SequenceClassifier(bert.model, ["entailment", "contradiction"]),
        "answer": QuestionAnswerer(bert.model),
        "choose": MultipleChoice(bert.model),
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
    run("embed", "--file", texts, "--model", trained, "--out", "vectors.jsonl")
    rows = objects((folder / "vectors.jsonl").read_text())
    assert [row["text"] for row in rows] == LINES
    np.testing.assert_array_equal(np.array([r["vector"] for r in rows], "float32"), expected)
    assert objects(run("embed", *LINES, "--model", trained).stdout) == rows


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


@pytest.mark.slow
def test_next_sentence_scores_pairs(run, trained, bert, folder):
    scores = next_sentence_score(bert.model, LINES[:2], LINES[1:])
    command = ("next-sentence", "--model", trained)
    out = run(*command, LINES[0], LINES[1], LINES[1], LINES[2]).stdout.splitlines()
    assert out == [
        f"{s:.3f}  {a} | {b}" for a, b, s in zip(LINES[:2], LINES[1:], scores, strict=True)
    ]
    (folder / "pairs.tsv").write_text(f"{LINES[0]}\t{LINES[1]}\r\n{LINES[1]}\t{LINES[2]}\r\n")
    rows = objects(run(*command, "--file", "pairs.tsv", "--json").stdout)
    assert [row["score"] for row in rows] == pytest.approx(list(scores), abs=1e-6)
    assert rows[1]["text_b"] == LINES[2]


@pytest.mark.slow
def test_perplexity_measures_each_text_and_all_texts_together(run, texts, trained, bert):
    expected = pseudo_perplexity(bert.model, LINES)
    out = run("perplexity", "--file", texts, "--model", trained).stdout.splitlines()
    figures = [line.split(maxsplit=2) for line in out]
    assert [text for _, _, text in figures] == [*LINES, "(all 3 texts)"]
    for (value, count, _), one in zip(
        figures, [*expected, joint_perplexity(expected)], strict=True
    ):
        assert float(value) == pytest.approx(one.perplexity, abs=0.006)
        assert int(count) == one.num_tokens
    rows = objects(run("perplexity", *LINES, "--json", "--model", trained).stdout)
    joint = joint_perplexity(expected)
    assert [row["num_tokens"] for row in rows] == [one.num_tokens for one in [*expected, joint]]
    assert rows[-1].keys() == {"num_texts", "num_tokens", "perplexity"}
    assert rows[-1]["num_texts"] == len(LINES)
    assert rows[-1]["perplexity"] == pytest.approx(joint.perplexity, rel=1e-5)


@pytest.mark.slow
def test_grammar_prints_and_writes_the_accuracy_of_each_phenomenon(run, folder, trained, bert):
    pairs = [{"sentence_good": LINES[0], "sentence_bad": "the the dog hare sees .", "UID": "order"}]
    (folder / "pairs.jsonl").write_text(json.dumps(pairs[0]))
    command = ("grammar", "--model", trained, "--data", "pairs.jsonl", "--json", "grammar.json")
    out = run(*command, "--word-wise").stdout
    expected = minimal_pairs(bert.model, pairs, word_wise=True)
    assert re.search(rf"order .*{expected.accuracy:.1%}.*all .*{expected.accuracy:.1%}", out, re.S)
    assert all(len(line) <= 100 for line in out.splitlines())
    written = json.loads((folder / "grammar.json").read_text())
    assert (written["accuracy"], written["by_uid"]) == (expected.accuracy, expected.by_uid)
    assert (written["word_wise"], written["precision"]) == (True, "float32")
    assert written["model"] == str(trained)


@pytest.mark.slow
def test_grammar_lists_a_phenomenon_with_the_name_of_the_total(run, folder, trained):
    good, bad = LINES[0], "the the dog hare sees ."
    pairs = [("all", good, bad), ("other", good, good), ("other", bad, bad)]
    (folder / "all.jsonl").write_text(
        "\n".join(
            json.dumps({"UID": u, "sentence_good": a, "sentence_bad": b}) for u, a, b in pairs
        )
    )
    lines = run("grammar", "--model", trained, "--data", "all.jsonl").stdout.splitlines()
    names, accuracies = zip(
        *(re.findall(r"(all|other) .*?([\d.]+)%", x)[0] for x in lines[3:6]), strict=True
    )
    assert names == ("all", "other", "all")
    # The two ties count as wrong.
    assert accuracies in {("100.0", "0.0", "33.3"), ("0.0", "0.0", "0.0")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "-"), "--data must not be -"),
        (("--data", "pairs.jsonl", "--json", "."), "--json must be a file. Received: the folder"),
    ],
)
def test_grammar_rejects_what_it_cannot_read_or_write_before_it_starts(run, options, message):
    assert message in run("grammar", *options, exit_code=2).stderr


@pytest.mark.slow
def test_classify_prints_the_label_or_the_score(run, texts, tasks):
    model = ask.load(tasks / "classify").model
    expected = classify(model, LINES)
    command = ("classify", "--file", texts, "--model")
    out = run(*command, tasks / "classify").stdout.splitlines()
    assert out == [
        f"{one.label} {one.score:.3f}  {text}" for text, one in zip(LINES, expected, strict=True)
    ]
    rows = objects(run(*command, tasks / "classify", "--json").stdout)
    assert [row["label"] for row in rows] == [one.label for one in expected]
    assert rows[0]["scores"] == pytest.approx(expected[0].scores, abs=1e-5)
    for line in run(*command, tasks / "both").stdout.splitlines():
        assert re.match(r"(-|(bad|good) 0\.\d{3}(, good 0\.\d{3})?)  the ", line)
    for line in run(*command, tasks / "regress").stdout.splitlines():
        assert re.match(r"score -?\d\.\d{3}  the ", line)


@pytest.mark.slow
def test_classify_accepts_pairs(run, tasks):
    model = ask.load(tasks / "classify").model
    expected = classify(model, LINES[0], LINES[1])
    command = ("classify", "--pairs", "--json", "--model", tasks / "classify")
    [row] = objects(run(*command, LINES[0], LINES[1]).stdout)
    assert [row["text"], row["text_b"]] == LINES[:2]
    assert row["score"] == pytest.approx(expected.score, abs=1e-6)


@pytest.mark.slow
def test_zero_shot_prints_the_probabilities_of_the_given_labels(run, texts, tasks, error):
    model = ("--model", tasks / "nli")
    labels = ("--label", "the dog", "--label", "the owl")
    expected = zero_shot(ask.load(tasks / "nli").model, LINES, ["the dog", "the owl"])
    rows = objects(run("zero-shot", *LINES, *labels, *model, "--json").stdout)
    for row, one in zip(rows, expected, strict=True):
        assert row["scores"] == pytest.approx(one.scores, abs=1e-5)
    out = run("zero-shot", "--file", texts, *labels, *model).stdout.splitlines()
    assert out[0].endswith(f"  {LINES[0]}")
    assert out[0].startswith(f"{expected[0].label} {expected[0].score:.3f}, ")
    assert "--template must contain {}" in error(
        "zero-shot", "a", *labels, *model, "--template", "a"
    )


@pytest.mark.slow
def test_tag_labels_each_word(run, texts, tasks):
    model = ask.load(tasks / "tag").model
    expected = tag(model, LINES)
    out = run("tag", "--file", texts, "--model", tasks / "tag").stdout.splitlines()
    assert out[0] == LINES[0]
    assert [line.split()[:2] for line in out[1:7]] == [[t.word, t.label] for t in expected[0]]
    joined = tag(model, LINES, aggregate="first")
    options = ("--aggregate", "first", "--json", "--model", tasks / "tag")
    rows = objects(run("tag", *LINES, *options).stdout)
    assert [[(x["text"], x["label"]) for x in row["entities"]] for row in rows] == [
        [(x.text, x.label) for x in found] for found in joined
    ]
    out = run("tag", LINES[0], "--aggregate", "first", "--model", tasks / "tag").stdout
    assert out.startswith(f"{LINES[0]}\n    {joined[0][0].text}  ")
    rows = objects(run("tag", *LINES, "--json", "--model", tasks / "tag").stdout)
    assert [[t["label"] for t in row["tags"]] for row in rows] == [
        [t.label for t in words] for words in expected
    ]


@pytest.mark.slow
def test_answer_returns_a_span_of_the_text(run, tasks, folder):
    model = ask.load(tasks / "answer").model
    context = " ".join(LINES)
    [expected] = answer(model, "who sees ?", context)
    (folder / "page.txt").write_text(context)
    (folder / "questions.tsv").write_text(f"who sees ?\t{context}\n")
    for source in (
        ("who sees ?", context),
        ("who sees ?", "--context", "page.txt"),
        ("--file", "questions.tsv"),
    ):
        out = run("answer", *source, "--model", tasks / "answer").stdout.splitlines()
        assert out == ["who sees ?", f"    {expected.score:.3f}  {expected.text}"]
    [row] = objects(
        run("answer", *source, "--json", "--top-k", 2, "--model", tasks / "answer").stdout
    )
    assert row["answers"][0]["text"] == expected.text
    assert len(row["answers"]) == 2


@pytest.mark.slow
def test_choose_prints_the_best_choice(run, error, tasks):
    command = ("choose", LINES[0], *LINES[1:], "--model", tasks / "choose")
    [row] = objects(run(*command, "--json").stdout)
    assert (row["choice"], row["score"]) == (LINES[1 + row["index"]], max(row["scores"]))
    line = f"{row['score']:.3f}  {row['index'] + 1}: {row['choice']}\n"
    assert run(*command).stdout == line
    assert "at least two choices" in error(*command[:3], "--model", tasks / "choose")


def test_a_dash_means_standard_input(run, trained, monkeypatch):
    command = ["perplexity", "-", "--json", "--model", str(trained)]
    result = run(*command, input="\ufeffthe dog\nthe caf\u00e9\n")
    first, second, _ = objects(result.stdout)  # the last is for both texts together
    assert (first["text"], second["text"]) == ("the dog", "the caf\u00e9")


def test_fill_mask_predicts_each_mask_of_texts_or_a_file(run, trained, folder, error):
    (folder / "masks.txt").write_text("the [MASK] sees\nthe [MASK] [MASK]\n")
    command = ("fill-mask", "--file", "masks.txt", "--top-k", 2, "--json", "--model", trained)
    out = run(*command[:5], *command[6:]).stdout.splitlines()  # without --json
    assert [out[0], out[2]] == ["the [MASK] sees", "the [MASK] [MASK]"]
    assert all(re.fullmatch(r"    (\S+ 0\.\d{3}(, )?){2}", out[n]) for n in (1, 3, 4))
    rows = objects(run(*command).stdout)
    assert [[len(mask) for mask in row["masks"]] for row in rows] == [[2], [2, 2]]
    assert set(rows[0]["masks"][0][0]) == {"token", "id", "score"}
    targets = ("--target", "dog", "--target", "owl", "--target", "fox")
    [row] = objects(run("fill-mask", "the [MASK]", *targets, "--json", "--model", trained).stdout)
    assert {one["token"] for one in row["masks"][0]} == {"dog", "owl", "fox"}
    assert error("fill-mask", "a [MASK]", "--target", "the dog", "--model", trained).startswith(
        "error: Each of --target must be one token of the vocabulary."
    )


@pytest.mark.slow
def test_unusable_texts_give_a_one_line_error(error, texts, trained, folder):
    (folder / "gap.txt").write_text("the dog\n\nthe cat\n")
    (folder / "none.txt").write_text("\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "three.tsv").write_text("a\tb\na\tb\tc\n")
    bert = ("--model", trained)
    assert "as arguments, with --file" in error("embed", *bert)
    assert "as arguments, with --file" in error("embed", "a", "--file", texts, *bert)
    assert "number 2 is empty" in error("perplexity", "--file", "gap.txt", *bert)
    assert "number 1 is empty" in error("embed", "", *bert)
    assert "line of 'none.txt' must contain text" in error("embed", "--file", "none.txt", *bert)
    assert "byte 3 is 0xe9" in error("embed", "--file", "latin.txt", *bert)
    assert "nowhere.txt" in error("embed", "--file", "nowhere.txt", *bert)
    assert "QUERY" in error("similar", " ", "a", *bert)
    assert "Received: 3 texts" in error("next-sentence", "a", "b", "c", *bert)
    assert "line 2, 'a\\tb\\tc'" in error("next-sentence", "--file", "three.tsv", *bert)
    for command in ("embed", "perplexity"):
        assert "at most 512 tokens" in error(command, LONG, *bert)
    assert "at most 512 tokens" in error("next-sentence", LONG, "the dog", *bert)
    assert ".npy or .jsonl" in error("embed", "a", "--out", "vectors.txt", *bert)


@pytest.mark.slow
def test_a_checkpoint_of_a_different_task_gives_a_one_line_error(error, tasks, trained):
    for command in ("fill-mask", "perplexity"):
        message = error(command, "the [MASK] dog", "--model", tasks / "tag")
        assert "a TokenClassifier" in message
    assert "a TokenClassifier" in error("next-sentence", "a", "b", "--model", tasks / "tag")
    assert "task TokenClassifier" in error("embed", "a", "--model", tasks / "tag")
    assert "a BERTModel" in error("classify", "a", "--model", trained)
    assert "a SequenceClassifier" in error("tag", "a", "--model", tasks / "classify")
    assert "a TokenClassifier" in error("answer", "who ?", "the dog", "--model", tasks / "tag")
    assert "--model" in error("classify", "a")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(b"the dog\n", mtime=0), "a gzip file; unpack it with `gunzip -c`"),
        (b"PK\x03\x04\x14\x00the dog\n", "a ZIP archive"),
        (lzma.compress(b"the dog\n"), "an xz file"),
        ("the dog\n".encode("utf-16"), "UTF-16; convert it with `iconv -f UTF-16"),
    ],
)
@pytest.mark.parametrize("option", ["--file", "--context"])
def test_a_file_in_another_format_is_named_with_its_remedy(error, folder, content, kind, option):
    (folder / "packed").write_bytes(content)
    texts = ["who ?"] if option == "--context" else []
    message = error("answer", *texts, option, "packed", "--model", "nowhere")
    assert f"must be UTF-8 text. Received: {kind}" in message


def test_answer_requires_a_text_for_each_question(error, tasks, folder):
    (folder / "none.txt").write_text("")
    command = ("answer", "who ?", "--model", tasks / "answer")
    assert "Received: 1 text. Add the text that contains the answer" in error(*command)
    assert "'none.txt' is empty" in error(*command, "--context", "none.txt")


@pytest.mark.slow
def test_features_writes_the_vectors_of_the_chosen_layers(run, trained, texts, folder):
    command = ("features", "--model", trained, "--layers", "0,-1", "--pooling", "mean")
    found = extract_features(ask.load(trained).model, LINES, layers=[0, -1], pooling="mean")
    expected = [one.vectors for one in found]
    for source in (LINES, ["--file", texts], ["-"]):
        result = run(*command, "--out", "vectors.npz", *source, input="\n".join(LINES))
        assert result.stdout == "3 texts in vectors.npz\n"
        with np.load(folder / "vectors.npz") as arrays:
            np.testing.assert_allclose(arrays["vectors"], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "vectors.csv", *LINES], "must end in .npz, .jsonl"),
        (["--out", "vectors.npz", "--layers", "last", *LINES], "separated by commas"),
        (["--out", "vectors.npz", "--layers", "9", *LINES], "numbers from -3 to 2"),
        (["--out", "vectors.npz", "a fox", " "], "number 2 is empty"),
        (["--out", "vectors.npz", "--file", "absent.txt"], "absent.txt"),
    ],
)
def test_features_refuses_wrong_arguments(error, trained, arguments, message):
    assert message in error("features", "--model", trained, *arguments)


@pytest.mark.slow
def test_playground_writes_a_page(run, trained, texts, folder):
    command = ("playground", "--model", trained, "--out", "made/page.html")
    out = run(*command).stdout
    page = (folder / "made/page.html").read_bytes()
    assert out == f"{len(page) / 1e6:.1f} MB in made/page.html\n"
    run(*command, "--file", texts)
    assert len((folder / "made/page.html").read_bytes()) > len(page)
