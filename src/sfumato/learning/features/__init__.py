"""Public features: fixed functions of a record that cost no privacy."""
