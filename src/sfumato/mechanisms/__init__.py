"""Noise, and the event it amounts to."""
