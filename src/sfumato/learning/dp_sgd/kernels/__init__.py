"""Kernels for GPUs, written in Triton, each with a twin in plain PyTorch.

==============  ==================================================================================
``products``    per-example products of activations and output gradients: norms, weighted sums
``chacha``      Gaussian noise from a cryptographic generator
==============  ==================================================================================

Files that end in ``_triton`` hold the kernels and are imported only where Triton is; the twin of
each is in the file of the same name without that ending, and says what is computed and promised.
"""
