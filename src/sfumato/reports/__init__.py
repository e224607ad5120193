"""Records to figures and tables."""
