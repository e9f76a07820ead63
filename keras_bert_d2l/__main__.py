"""Entry point of `python -m keras_bert_d2l`, the same as the command `keras-bert-d2l`."""

from keras_bert_d2l.cli import main

if __name__ == "__main__":
    main()
