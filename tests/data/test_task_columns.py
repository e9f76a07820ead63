import pytest

from keras_bert_d2l.data.tasks import read_examples

TOXIC = (
    "id,comment_text,toxic,obscene,threat\n"
    'a1,"you, ""sir""",1,1,0\n'
    "a2,fine,0,0.0,false\n"
    "a3,not scored,-1,-1,-1\n"
    "a4,bad,True,0,0\n"
)


def test_columns_of_1_and_0_are_labels_of_a_text(write):
    path = write("toxic.csv", TOXIC)
    examples = read_examples("classify", path, label="toxic,obscene, Threat", multi_label=True)
    assert examples.texts == ('you, "sir"', "fine", "bad")
    assert examples.labels == (("toxic", "obscene"), (), ("toxic",))
    assert examples.dropped == {"a column of a label is neither 1 nor 0": 1}
    assert examples.columns["label"] == "toxic, obscene, threat"
    rows = write("rows.jsonl", '{"text": "a", "x": 1, "y": false}\n{"text": "b", "x": 0, "y": 1.0}')
    assert read_examples("classify", rows, label="x,y", multi_label=True).labels == (("x",), ("y",))
    bare = write("bare.tsv", "a\t1\t0\nb\t1\t1\n")
    examples = read_examples("classify", bare, text=1, label="2,3", multi_label=True)
    assert examples.labels == (("2",), ("2", "3"))
    with pytest.raises(ValueError, match="are for `multi_label`"):
        read_examples("classify", path, label="toxic,obscene")
    with pytest.raises(ValueError, match="label='insult'. Its columns are 'id', 'comment_text'"):
        read_examples("classify", path, label="toxic,insult", multi_label=True)
    odd = write("odd.tsv", "text\tx,y\na\tp,q\n")
    assert read_examples("classify", odd, label="x,y", multi_label=True).labels == (("p", "q"),)


def test_names_of_columns_may_have_spaces(write):
    path = write("news.csv", "Class Index,Title,Description\n3,Oil,It rose.\n4,Net,It grew.\n")
    examples = read_examples("classify", path)
    assert (examples.texts, examples.texts_b) == (("Oil", "Net"), ("It rose.", "It grew."))
    assert examples.labels == ("3", "4")
    assert examples.columns == {"text": "Title", "text_b": "Description", "label": "Class Index"}
    assert read_examples("classify", path, text="title", label="class-index").texts_b is None


def test_labels_that_have_to_be_there_are_missed_by_name(write):
    path = write("a.tsv", "text\tmood\na\tx\n")
    assert read_examples("classify", path).labels is None
    with pytest.raises(ValueError, match="`label` must.*label, gold_label.*like.*'text', 'mood'"):
        read_examples("classify", path, labelled=True)
    bare = write("bare.tsv", "a\t1\nb\t0\n")
    with pytest.raises(ValueError, match="`label` must.*no names of columns but 1: 'a', 2: '1'"):
        read_examples("classify", bare, text=1, labelled=True)
    empty = write("empty.tsv", "text\tlabel\na\t\n")
    with pytest.raises(ValueError, match="must be labels in.*1 examples.*column 'label' is empty"):
        read_examples("classify", empty, labelled=True)
    words = write("words.conll", "a\ncrane\n")
    with pytest.raises(ValueError, match="must be labels in"):
        read_examples("tag", words, labelled=True)
    questions = write("q.jsonl", '{"question": "a", "context": "b", "answers": null}')
    with pytest.raises(ValueError, match="must be answers in"):
        read_examples("answer", questions, labelled=True)


def test_a_folder_of_folders_of_folders_is_refused_and_one_of_texts_has_no_labels(write, tmp_path):
    for name in ("train/pos/0.txt", "train/neg/0.txt", "test/pos/0.txt", "train/unsup/0.txt"):
        write(f"imdb/{name}", f"It is {name}.")
    write("imdb/train/urls_pos.txt", "nothing")
    with pytest.raises(ValueError, match="folders of folders; name one of test, train"):
        read_examples("classify", tmp_path / "imdb")
    whole = read_examples("classify", tmp_path / "imdb/train", labelled=False)
    assert whole.ids == ("neg/0.txt", "pos/0.txt", "unsup/0.txt")
    texts = read_examples("classify", tmp_path / "imdb/train/unsup", labelled=False)
    assert (texts.ids, texts.labels) == (("0.txt",), None)
    assert read_examples("regress", tmp_path / "imdb/train", labelled=False).task == "regress"
    with pytest.raises(ValueError, match="it has no folders of text files"):
        read_examples("classify", tmp_path / "imdb/train/pos")


def test_a_first_label_that_is_alone_may_be_a_header(write):
    path = write("a.csv", "Inhalt,Art\n" + "gut,p\nschlecht,n\n" * 10)
    with pytest.raises(ValueError, match="line 1: the label 'Art' is here alone.*--no-header"):
        read_examples("classify", path, text=1, label=2)
    assert read_examples("classify", path, text=1, label=2, header=True).label_names == ("n", "p")
    assert len(read_examples("classify", path, text=1, label=2, header=False)) == 21
    assert len(read_examples("classify", write("b.csv", "a,x\nb,y\nc,z\n"), text=1, label=2)) == 3
