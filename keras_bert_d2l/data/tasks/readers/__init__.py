"""Readers of the supported file formats: tables, folders, CoNLL, CoNLL-U and SQuAD."""
