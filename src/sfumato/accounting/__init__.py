"""Events in, guarantees out."""
