"""Model export, a development server, and a client for exported models."""
