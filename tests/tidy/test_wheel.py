"""What users install holds everything that the code needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.tidy.source import ROOT


def test_the_wheel_holds_the_package_whole(tmp_path: Path) -> None:
    """SQL files and py.typed are no Python, and are easily left out."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("perdure/")}
    package = ROOT / "src"
    wanted = {p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name and ".egg-info" not in name}
    assert "perdure/py.typed" in wanted
    assert any(name.endswith(".sql") for name in wanted)
    assert wanted - held == set()
