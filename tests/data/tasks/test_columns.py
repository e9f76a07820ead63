import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples


def test_columns_are_found_by_common_names(write):
    files = {
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\tfirst\tsecond\n": "1",  # MRPC
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tfirst\tsecond\t0\n": "0",
        "index\tquestion\tsentence\tlabel\n0\tfirst\tsecond\tentailment\n": "entailment",  # QNLI
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "1\tfirst\tsecond\t4.5\tNEUTRAL\n": "NEUTRAL",  # SICK
    }
    for content, label in files.items():
        examples = read_examples("classify", write("pairs.tsv", "\ufeff" + content))
        assert (examples.texts, examples.texts_b) == (("first",), ("second",))
        assert examples.labels == (label,)
    scores = read_examples("regress", write("sick.tsv", content))
    assert scores.task == "regress"
    assert scores.labels == (4.5,)
    assert scores.ids == ("1",)


def test_columns_of_a_file_without_a_header_are_given_by_number(write):
    cola = write("cola.tsv", "gj04\t1\t\tOur friends won't buy it.\ngj04\t0\t*\tThey it won't.\n")
    examples = read_examples("classify", cola, text="4", label=2)
    assert examples.texts == ("Our friends won't buy it.", "They it won't.")
    assert examples.labels == ("1", "0")
    news = write("news.csv", '"3","Wall St. Bears","Short-sellers, again"\n"4","Net","Fast"\n')
    examples = read_examples("classify", news, text=2, text_b=3, label=1)
    assert examples.texts_b == ("Short-sellers, again", "Fast")
    with pytest.raises(ValueError, match="`text` must name a column.*2: '1'.*by their numbers"):
        read_examples("classify", cola)


def test_the_columns_of_data_in_memory_may_be_named_by_numbers():
    rows = [{0: "a", 1: "A joy.", 2: "good"}, {0: "b", 1: "A bore.", 2: "bad"}]
    for columns in ({"text": 1, "label": 2, "id": 0}, {"text": "1", "label": "2", "id": "0"}):
        examples = read_examples("classify", rows, **columns)
        assert (examples.texts, examples.labels) == (("A joy.", "A bore."), ("good", "bad"))
        assert examples.ids == ("a", "b")
    with pytest.raises(ValueError, match="`label`.*label=3. Its columns are '0', '1', '2'"):
        read_examples("classify", rows, text=1, label=3)
    named = [{"body": "A joy.", "mood": "good"}]
    assert read_examples("classify", named, text=1, label=2).labels == ("good",)


def test_a_label_that_equals_a_common_column_name_is_not_a_header(write):
    path = write("intents.tsv", "question\tWhat is it?\nstatement\tIt is.\n")
    assert read_examples("classify", path, text=2, label=1).labels == ("question", "statement")
    named = write("named.tsv", "review\tfeeling\ngood\tjoy\n")
    assert read_examples("classify", named, text=1, label=2, header=True).labels == ("joy",)
    assert read_examples("classify", named, text="review", label="Feeling").labels == ("joy",)
    assert read_examples("classify", named).texts == ("good",)


def test_the_error_about_a_missing_column_lists_the_existing_columns(write):
    path = write("a.tsv", "review\tstars\na\t1\n")
    with pytest.raises(ValueError, match="`label` must name.*'grade'.*are 'review', 'stars'"):
        read_examples("classify", path, label="grade")
    with pytest.raises(ValueError, match="columns are 'body_text', 'mark'"):
        read_examples("classify", write("b.jsonl", '{"body_text": "a", "mark": 1}\n'))
    with pytest.raises(ValueError, match="`label`.*label=9"):
        read_examples("classify", path, text="review", label=9)


def test_column_names_may_have_spaces(write):
    path = write("news.csv", "Class Index,Title,Description\n3,Oil,It rose.\n4,Net,It grew.\n")
    examples = read_examples("classify", path)
    assert (examples.texts, examples.texts_b) == (("Oil", "Net"), ("It rose.", "It grew."))
    assert examples.labels == ("3", "4")
    assert examples.columns == {"text": "Title", "text_b": "Description", "label": "Class Index"}
    assert read_examples("classify", path, text="title", label="class-index").texts_b is None


def test_missing_labels_are_an_error_if_they_are_required(write):
    path = write("a.tsv", "text\tmood\na\tx\n")
    assert read_examples("classify", path).labels is None
    with pytest.raises(ValueError, match="`label` must.*label, gold_label.*'text', 'mood'"):
        read_examples("classify", path, labeled=True)
    bare = write("bare.tsv", "a\t1\nb\t0\n")
    with pytest.raises(ValueError, match="`label` must.*without names.*is 1: 'a', 2: '1'"):
        read_examples("classify", bare, text=1, labeled=True)
    empty = write("empty.tsv", "text\tlabel\na\t\n")
    with pytest.raises(
        ValueError, match="must have labels.*1 example without any; the column 'label' is empty"
    ):
        read_examples("classify", empty, labeled=True)
    words = write("words.conll", "a\ncrane\n")
    with pytest.raises(ValueError, match="`label` must name.*single column, .*'a'.*tabs or spaces"):
        read_examples("tag", words, labeled=True)
    questions = write("q.jsonl", '{"question": "a", "context": "b", "answers": null}')
    with pytest.raises(ValueError, match="must have answers"):
        read_examples("answer", questions, labeled=True)


def test_without_a_header_cells_with_spaces_are_texts(write):
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


def test_ambiguous_columns_without_a_header_are_rejected(write):
    files = {
        "cola.tsv": "gj\t1\t\tIt is so.\ngj\t0\t*\tSo is it it.\n",  # labels or sources
        "names.tsv": "a text\tid1\nthe text\tid2\n",  # example ids
        "header.tsv": "Inhalt\tArt\nes ist gut\tp\nes ist gut\tp\n",  # may be a header
    }
    for name, content in files.items():
        with pytest.raises(ValueError, match=r"`text` must.*such as --text 2 --label 1 \(text=2"):
            read_examples("classify", write(name, content), labeled=True)
    with pytest.raises(
        ValueError,
        match="are 'text', 'mood'. Rename one of them to .label., or choose one with --label",
    ):
        read_examples("classify", write("mood.tsv", "text\tmood\na\tx\n"), labeled=True)


def test_the_error_about_a_single_column_explains_the_separators(write):
    content = "it is so;joy\nit is not;fear\n" * 2
    for options in ({"labeled": True}, {"text": 1, "label": 2}):
        with pytest.raises(ValueError, match="single column, .*'it is so;joy'.*tabs.*ends in .csv"):
            read_examples("classify", write("train.txt", content), **options)
        assert read_examples("classify", write("train.csv", content), **options).label_names


def test_a_name_shared_by_two_columns_is_rejected(write):
    path = write("twice.csv", "text,Label,label\na,x,1\nb,y,2\n")
    with pytest.raises(ValueError, match="2 columns named 'label', numbers 2, 3.*--label 2"):
        read_examples("classify", path)
    assert read_examples("classify", path, label=2).labels == ("x", "y")
    assert read_examples("classify", path, label="label").labels == ("1", "2")
    same = write("same.csv", "text,label,label\na,x,1\n")
    with pytest.raises(ValueError, match="2 columns named 'label'"):
        read_examples("classify", same, label="label")


def test_camel_case_column_names_match_names_with_underscores(write):
    path = write("movies.tsv", "PhraseId\tPhrase\tSentiment\n1\tA series\t1\n2\tof\t2\n")
    assert read_examples("classify", path).texts == ("A series", "of")
    books = write("books.jsonl", '{"reviewText": "It is so.", "overall": 4.0}')
    assert read_examples("regress", books).labels == (4.0,)


@pytest.mark.parametrize(
    ("task", "columns", "roles"),
    [
        ("classify", {"text": "a", "label": 1}, "`text` and `label`.*'a'"),
        ("classify", {"text": "a", "text_b": "A"}, "`text` and `text_b`.*'a'"),
        ("classify", {"text": "a", "label": "b,a", "multi_label": True}, "`text` and `label`.*'a'"),
        ("embed", {"text": "a", "text_b": "b", "negative": "b"}, "`text_b` and `negative`.*'b'"),
        ("choose", {"text": "a", "choices": "b,a", "label": "c"}, "`text` and `choices`.*'a'"),
    ],
)
def test_a_column_cannot_have_two_roles(task, columns, roles, write):
    path = write("a.csv", "a,b,c\nthe dog,1,0\nthe cat,0,1\n")
    with pytest.raises(ValueError, match=f"{roles} for both"):
        read_examples(task, path, **columns)


def test_the_ids_of_examples_may_be_their_texts(write):
    path = write("a.csv", "text,label\nthe dog,x\n")
    assert read_examples("classify", path, id="text").ids == ("the dog",)
