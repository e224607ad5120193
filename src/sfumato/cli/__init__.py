"""The command line: for people with rich, for programs with ``--json``."""
