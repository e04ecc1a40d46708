"""`python -m perdure.cli`: the command line where the `perdure` script is not on the path."""

from __future__ import annotations

import sys

from perdure.cli.main import main

sys.exit(main())
