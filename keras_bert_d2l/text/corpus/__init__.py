"""Files, folders and installed packages -> a stream of documents."""
