"""The page of ``collir compare --html``: measured times against predicted times."""

from collections.abc import Sequence

from collir.cost.calibration import Residual
from collir.targets.reports.page.rendered import rendered
from collir.tools.points_page import collective_point, groups, scatter, sentences, shown


def html(residuals: Sequence[Residual], costing: str) -> str:
    """Return the page of predictions, of which there is at least one.

    Args:
        costing: how they were costed, as a report says it.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    points = [collective_point(residual) for residual in residuals]
    machine = residuals[0].sample.collective.mesh.machine
    data = {
        "title": f"Measured against predicted times on @{machine.name}",
        "lines": [f"Costed {costing}."],
        "sentences": [*sentences(points)],
        "accuracy": [],
        **scatter(points),
    }
    return rendered(
        "compare", data, script="points", styles=["points"], shown=shown(points),
        groups=groups(points),
    )  # fmt: skip
