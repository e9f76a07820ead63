import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

COLA = "gj04\t1\t\tOur friends won't buy it.\ngj04\t0\t*\tThey it won't.\n"
NEWS = '"3","Wall St. Bears","Short-sellers, again; and; more"\n"4","Net","It is fast"\n'


@pytest.mark.parametrize(
    ("task", "content", "text_b", "label"),
    [
        # MRPC
        ("classify", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\ta\tb\n", "b", "1"),
        ("classify", "id\tqid1\tquestion1\tquestion2\tis_duplicate\n7\t1\ta\tb\t0\n", "b", "0"),
        ("classify", "index\tquestion\tsentence\tlabel\n0\ta\tb\tyes\n", "b", "yes"),  # QNLI
        (
            "classify",
            "pair_ID\tsentence_A\tsentence_B\tentailment_judgment\n1\ta\tb\tNO\n",
            "b",
            "NO",
        ),
        ("classify", "Class Index\tTitle\tDescription\n3\ta\tb\n", "b", "3"),  # AG News
        ("classify", "PhraseId\tPhrase\tSentiment\n1\ta\t1\n", None, "1"),
        ("classify", "review\tfeeling\na\tjoy\n", None, None),
        ("regress", "sentence_A\tsentence_B\trelatedness_score\na\tb\t4.5\n", "b", 4.5),
        ("regress", "reviewText\toverall\na\t4.0\n", None, 4.0),
    ],
)
def test_columns_are_found_by_common_names(write, task, content, text_b, label):
    examples = read_examples(task, write("a.tsv", "\ufeff" + content))
    assert (examples.texts, examples.texts_b) == (("a",), text_b and (text_b,))
    assert examples.labels == (None if label is None else (label,))


def test_columns_of_a_file_without_a_header_are_given_by_number(write):
    examples = read_examples("classify", write("cola.tsv", COLA), text="4", label=2)
    assert examples.texts == ("Our friends won't buy it.", "They it won't.")
    assert examples.labels == ("1", "0")
    examples = read_examples("classify", write("news.csv", NEWS), text=2, text_b=3, label=1)
    assert examples.texts_b == ("Short-sellers, again; and; more", "It is fast")


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
    for columns in (
        {"text": 1, "label": 2, "header": True},
        {"text": "review", "label": "Feeling"},
    ):
        assert read_examples("classify", named, **columns).labels == ("joy",)


def test_column_names_may_have_spaces(write):
    path = write("news.csv", "Class Index,Title,Description\n3,Oil,It rose.\n4,Net,It grew.\n")
    columns = read_examples("classify", path).columns
    assert columns == {"text": "Title", "text_b": "Description", "label": "Class Index"}
    assert read_examples("classify", path, text="title", label="class-index").texts_b is None


def test_without_a_header_cells_with_spaces_are_texts(write):
    path = write("news.csv", NEWS + '"3","So it is","Yes, it is"\n"4","The Net","No more of it"\n')
    examples = read_examples("classify", path, labeled=True)
    assert examples.columns == {"text": "2", "text_b": "3", "label": "1"}
    assert examples.labels == ("3", "4", "3", "4")
    asked = read_examples("classify", path, labeled=False)
    assert (asked.texts, asked.labels) == (examples.texts, None)
    yelp = write("yelp.csv", '"1","Not good, no."\n"2","It is fine."\n"1","Bad, so bad."\n' * 2)
    assert read_examples("classify", yelp).columns == {"text": "2", "label": "1"}
    scores = write("scores.tsv", "a man\ta boy\t2.5\none dog\ta cat\t.5\n")
    assert read_examples("regress", scores).labels == (2.5, 0.5)
    alone = read_examples("classify", write("cola.tsv", COLA), labeled=False)
    assert alone.columns == {"text": "4"}


def test_columns_with_names_that_differ_in_case_are_chosen_by_name_or_number(write):
    path = write("twice.csv", "text,Label,label\na,x,1\nb,y,2\n")
    assert read_examples("classify", path, label=2).labels == ("x", "y")
    assert read_examples("classify", path).labels == ("1", "2")


def test_the_column_of_the_ids_may_have_another_role(write):
    path = write("a.csv", "a,b\nthe dog,1\nthe cat,0\n")
    assert read_examples("classify", path, text="a", label="b", id="a").ids[0] == "the dog"
