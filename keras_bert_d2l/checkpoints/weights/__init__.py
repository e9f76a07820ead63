"""Files of named arrays, and the loop that copies them into models and back."""
