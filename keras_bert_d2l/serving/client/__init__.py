"""A client for TensorFlow Serving and for the development server."""
