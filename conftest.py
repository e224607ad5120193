"""Files that this machine cannot import are not searched for examples."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["src/**/*_triton.py"]
