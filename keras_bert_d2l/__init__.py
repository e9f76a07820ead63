"""A complete BERT toolkit for Keras: from raw text to a served model.

Importing the package is fast and imports neither TensorFlow nor Keras. Each public name is
imported from its module when it is first used; `__init__.pyi` lists the names.
"""

import lazy_loader

from keras_bert_d2l import _import_hooks

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_import_hooks.install()
