"""Kernels for GPUs, written in Triton, each with a twin in plain PyTorch.

==============  ==================================================================================
``products``    per-example products of activations and output gradients: norms, weighted sums;
                started by ``launches``, their twins in ``twins``
``chacha``      Gaussian noise from a cryptographic generator, its twin beside it
``updates``     noise and an optimizer's update in one pass, its twin beside it
==============  ==================================================================================

Files that end in ``_triton`` hold the kernels and are imported only where Triton is. What is
computed and promised is said in ``products``, ``chacha`` and ``updates``.
"""
