"""Pages in headless Chromium: what is wrong with them, and what they are after some use."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.harness.hanging import HANG

BROWSERS = "chromium", "chromium-browser", "google-chrome"
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), "")

needs_browser = pytest.mark.skipif(
    not CHROMIUM, reason="chromium is not installed: apt-get install chromium"
)

_FIRST = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
</script>"""

_LAST = """<script>
try { %s } catch (error) { errors.push(String(error)); }
document.documentElement.dataset.errors = errors.join("; ");
</script>"""

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def data_of(page: str) -> Any:
    """Return the data of a page."""
    found = DATA.search(page)
    assert found is not None
    return json.loads(found[1])


def used(page: str, script: str, folder: Path) -> str:
    """Return the document of a page after a script has used it, without an error in either.

    Args:
        folder: an empty one.
    """
    text = page.replace("<head>", f"<head>{_FIRST}", 1)
    text = f"{_LAST % script}</body>".join(text.rsplit("</body>", 1))
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={folder}/profile", "--virtual-time-budget=5000", "--dump-dom",
             path.as_uri()]  # fmt: skip
    try:
        done = subprocess.run(
            [CHROMIUM, *words], capture_output=True, text=True, check=False, timeout=HANG
        )
    except subprocess.TimeoutExpired:
        pytest.skip("chromium does not end here")
    if done.returncode:
        pytest.skip(f"chromium does not run here: {done.stderr[-300:]}")
    [attributes] = re.findall(r"<html ([^>]*)>", done.stdout)
    assert 'data-ready="yes"' in attributes
    assert 'data-errors=""' in attributes
    return done.stdout
