"""Files of named arrays, and the tables that rename them."""
