"""One file an attack; an attack sees what an outsider sees."""
