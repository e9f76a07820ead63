"""Entry point of the command `keras-bert-d2l` and of `python -m keras_bert_d2l`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; exit without a traceback if Ctrl-C stops the imports."""
    try:
        from keras_bert_d2l.cli import main as run

        run()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
