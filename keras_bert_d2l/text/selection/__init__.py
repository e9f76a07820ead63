"""Which documents of a corpus are used: their language and their quality."""
