"""Requests and responses: JSON and arrays."""
