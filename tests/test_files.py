import pytest

from keras_bert_d2l.files import replacing_file, replacing_folder, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def interrupt_after_writing(path):
    path.write_text("a part of it")
    raise KeyboardInterrupt


def test_a_file_is_replaced_when_the_block_succeeds(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "old")
    write_text(path, "größer")
    assert path.read_text(encoding="utf-8") == "größer"
    assert names(path.parent) == ["file.txt"]


def test_an_interrupted_write_leaves_only_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), replacing_file(path) as temporary:
        interrupt_after_writing(temporary)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "model"
    for content in ("old", "new"):
        with replacing_folder(folder) as temporary:
            (temporary / content).write_text(content)
    assert names(folder) == ["new"]
    assert names(tmp_path) == ["model"]


def test_an_interrupted_write_leaves_the_old_folder(tmp_path):
    folder = tmp_path / "model"
    with replacing_folder(folder) as temporary:
        (temporary / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing_folder(folder) as temporary:
        interrupt_after_writing(temporary / "new")
    assert names(folder) == ["old"]
    assert names(tmp_path) == ["model"]
