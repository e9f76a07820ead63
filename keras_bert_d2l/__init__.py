"""A complete BERT toolkit for Keras: from raw text to a served model.

Importing the package is fast and imports neither TensorFlow nor Keras. Each public name is
imported from its module when it is first used; `__init__.pyi` lists the names.
"""

import lazy_loader

from keras_bert_d2l import _import_hooks

__version__ = "0.1.0"
_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__ or name.startswith("__"):
        return _import(name)
    from keras_bert_d2l.checks import did_you_mean

    question = did_you_mean(name, __all__)
    raise AttributeError(f"keras_bert_d2l has no public name {name!r}. {question}".rstrip())


_import_hooks.install()
