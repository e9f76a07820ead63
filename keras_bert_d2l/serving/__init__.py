"""Model and tokenizer in, an artefact that answers strings out."""
