"""Read and write files of named arrays, and copy weights between files and models."""
