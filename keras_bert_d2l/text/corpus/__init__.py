"""Corpora: streams of documents from text files, folders and installed packages."""
