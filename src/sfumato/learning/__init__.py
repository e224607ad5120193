"""Learning from private data: training whose releases are planned, accounted and charged."""
