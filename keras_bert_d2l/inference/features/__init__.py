"""Extract token vectors of chosen layers from any number of texts, and write them to a file."""
