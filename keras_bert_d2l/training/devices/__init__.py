"""Devices, processes, compilation and precision."""
