"""One file an attack. An attack sees what an outsider sees, and never imports what it attacks."""
