"""Python imports this at its start when `perdure run --capture` has put its folder on PYTHONPATH.

It begins the capture, and then executes the `sitecustomize` that the program would have had without it.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

try:
    from perdure.http_capture.bootstrap import begin
except ModuleNotFoundError:
    sys.stderr.write(f"perdure: {sys.executable} has no perdure, so its model calls are not recorded\n")
else:
    begin()

_HERE = Path(__file__).resolve().parent
_others = [folder for folder in sys.path if Path(folder).resolve() != _HERE]
_spec = PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(module_from_spec(_spec))
