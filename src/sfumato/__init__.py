"""Differential privacy for deep learning, from the first noisy count to an audited model."""
