"""Vocabularies: reading, learning and extending a `vocab.txt`."""
