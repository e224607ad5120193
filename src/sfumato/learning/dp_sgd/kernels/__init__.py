"""Kernels for GPUs, written in Triton, each with a twin in plain PyTorch."""
