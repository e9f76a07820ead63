"""Vocabularies: read, learn and extend `vocab.txt`."""
