"""The token store: a corpus tokenized once, kept on disk, and read in any order."""
