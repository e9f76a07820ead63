import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

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
    assert examples.dropped == {"a label column holds neither 1 nor 0": 1}
    assert examples.columns["label"] == "toxic, obscene, threat"
    rows = write("rows.jsonl", '{"text": "a", "x": 1, "y": false}\n{"text": "b", "x": 0, "y": 1.0}')
    assert read_examples("classify", rows, label="x,y", multi_label=True).labels == (("x",), ("y",))
    words = write("words.csv", "text,x,y\na,Yes,False\nb,no,TRUE\nc,maybe,1\n")
    examples = read_examples("classify", words, label="x,y", multi_label=True)
    assert examples.labels == (("x",), ("y",))
    bare = write("bare.tsv", "a\t1\t0\nb\t1\t1\n")
    examples = read_examples("classify", bare, text=1, label="2,3", multi_label=True)
    assert examples.labels == (("2",), ("2", "3"))
    with pytest.raises(ValueError, match="need `multi_label`"):
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
    with pytest.raises(ValueError, match="`label` must.*label, gold_label.*'text', 'mood'"):
        read_examples("classify", path, labeled=True)
    bare = write("bare.tsv", "a\t1\nb\t0\n")
    with pytest.raises(ValueError, match="`label` must.*without names.*is 1: 'a', 2: '1'"):
        read_examples("classify", bare, text=1, labeled=True)
    empty = write("empty.tsv", "text\tlabel\na\t\n")
    with pytest.raises(
        ValueError, match="must hold labels.*1 example without any; the column 'label' is empty"
    ):
        read_examples("classify", empty, labeled=True)
    words = write("words.conll", "a\ncrane\n")
    with pytest.raises(ValueError, match="`label` must name.*single column, 'a'.*tabs or spaces"):
        read_examples("tag", words, labeled=True)
    questions = write("q.jsonl", '{"question": "a", "context": "b", "answers": null}')
    with pytest.raises(ValueError, match="must hold answers"):
        read_examples("answer", questions, labeled=True)


def test_a_folder_of_folders_of_folders_is_refused_and_one_of_texts_has_no_labels(write, tmp_path):
    for name in ("train/pos/0.txt", "train/neg/0.txt", "test/pos/0.txt", "train/unsup/0.txt"):
        write(f"imdb/{name}", f"It is {name}.")
    write("imdb/train/urls_pos.txt", "nothing")
    with pytest.raises(ValueError, match="folders of folders. Pass one of test, train"):
        read_examples("classify", tmp_path / "imdb")
    whole = read_examples("classify", tmp_path / "imdb/train", labeled=False)
    assert whole.ids == ("neg/0.txt", "pos/0.txt", "unsup/0.txt")
    texts = read_examples("classify", tmp_path / "imdb/train/unsup", labeled=False)
    assert (texts.ids, texts.labels) == (("0.txt",), None)
    assert read_examples("regress", tmp_path / "imdb/train", labeled=False).task == "regress"
    with pytest.raises(ValueError, match="it has no folders of text files"):
        read_examples("classify", tmp_path / "imdb/train/pos")


def test_a_first_label_that_is_alone_may_be_a_header(write):
    path = write("a.csv", "Inhalt,Art\n" + "gut,p\nschlecht,n\n" * 10)
    with pytest.raises(ValueError, match="line 1: the label 'Art' occurs only here.*--no-header"):
        read_examples("classify", path, text=1, label=2)
    assert read_examples("classify", path, text=1, label=2, header=True).label_names == ("n", "p")
    assert len(read_examples("classify", path, text=1, label=2, header=False)) == 21
    assert len(read_examples("classify", write("b.csv", "a,x\nb,y\nc,z\n"), text=1, label=2)) == 3


def test_without_a_header_cells_with_spaces_are_texts_beside_one_column_of_labels(write):
    news = '"3","Wall St. Bears","Short-sellers, again; and; more"\n"4","Net","It is fast"\n'
    path = write("news.csv", news + '"3","So it is","Yes, it is"\n"4","The Net","No more of it"\n')
    examples = read_examples("classify", path, labeled=True)
    assert examples.columns == {"text": "2", "text_b": "3", "label": "1"}
    assert examples.texts_b[0] == "Short-sellers, again; and; more"
    assert examples.labels == ("3", "4", "3", "4")
    asked = read_examples("classify", path, labeled=False)
    assert (asked.texts, asked.labels) == (examples.texts, None)
    scores = write("scores.tsv", "a man\ta boy\t2.5\none dog\ta cat\t.5\n")
    assert read_examples("regress", scores).labels == (2.5, 0.5)
    pairs = read_examples("classify", write("pairs.tsv", "a man\ta boy\na b\tc d\n"))
    assert (pairs.texts_b, pairs.labels) == (("a boy", "c d"), None)


def test_what_is_not_plain_without_a_header_is_asked_for(write):
    files = {
        "cola.tsv": "gj\t1\t\tIt is so.\ngj\t0\t*\tSo is it it.\n",  # labels or sources
        "names.tsv": "a text\tid1\nthe text\tid2\n",  # names of examples
        "header.tsv": "Inhalt\tArt\nes ist gut\tp\nes ist gut\tp\n",  # perhaps a header
    }
    for name, content in files.items():
        with pytest.raises(ValueError, match=r"`text` must.*such as --text 2 --label 1 \(text=2"):
            read_examples("classify", write(name, content), labeled=True)
    with pytest.raises(ValueError, match="are 'text', 'mood'. Name one of them with --label"):
        read_examples("classify", write("mood.tsv", "text\tmood\na\tx\n"), labeled=True)


def test_a_line_that_is_one_column_says_which_names_other_separators_have(write):
    content = "it is so;joy\nit is not;fear\n" * 2
    for options in ({"labeled": True}, {"text": 1, "label": 2}):
        with pytest.raises(ValueError, match="single column, 'it is so;joy'.*tabs.*ends in .csv"):
            read_examples("classify", write("train.txt", content), **options)
        assert read_examples("classify", write("train.csv", content), **options).label_names


def test_a_name_that_two_columns_have_is_no_name(write):
    path = write("twice.csv", "text,Label,label\na,x,1\nb,y,2\n")
    with pytest.raises(ValueError, match="2 columns named 'label', numbers 2, 3.*--label 2"):
        read_examples("classify", path)
    assert read_examples("classify", path, label=2).labels == ("x", "y")
    assert read_examples("classify", path, label="label").labels == ("1", "2")
    same = write("same.csv", "text,label,label\na,x,1\n")
    with pytest.raises(ValueError, match="2 columns named 'label'"):
        read_examples("classify", same, label="label")


def test_a_capital_within_a_name_begins_a_word(write):
    path = write("movies.tsv", "PhraseId\tPhrase\tSentiment\n1\tA series\t1\n2\tof\t2\n")
    assert read_examples("classify", path).texts == ("A series", "of")
    books = write("books.jsonl", '{"reviewText": "It is so.", "overall": 4.0}')
    assert read_examples("regress", books).labels == (4.0,)
