"""Readers of tables, CoNLL and CoNLL-U. Folders and SQuAD are read by their tasks."""
