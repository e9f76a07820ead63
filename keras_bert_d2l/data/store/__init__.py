"""The token store: a corpus tokenized once, on disk, read at random."""
