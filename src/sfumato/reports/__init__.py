"""Plain numbers and records to figures. Nothing here computes a guarantee."""
