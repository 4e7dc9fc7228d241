"""Generated reference: write each page that follows from the code, or with ``--check`` name those that differ."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts import chart, cli_page, dashboard, errors_page, metrics_page, operations_page, roles, settings, states

PAGES: Mapping[Path, Callable[[], str]] = {
    Path("docs/settings.md"): settings.page,
    Path("docs/states.md"): states.page,
    Path("docs/reference/cli.md"): cli_page.page,
    Path("docs/reference/metrics.md"): metrics_page.page,
    Path("docs/reference/errors.md"): errors_page.page,
    Path("docs/reference/roles.md"): roles.page,
    Path("docs/reference/operations.md"): operations_page.page,
    Path("helm/files/grafana-dashboard.json"): dashboard.page,
    chart.SCHEMA: chart.schema,
}


def outdated(pages: Mapping[Path, Callable[[], str]]) -> list[Path]:
    """Return the pages that are missing or have another text than the code gives."""
    return [path for path, page in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != page()]


def main() -> int:
    """Write the pages, or check them."""
    if "--check" in sys.argv[1:]:
        different = outdated(PAGES)
        for path in different:
            print(f"{path} differs from the code: run `make reference` and review the difference.", file=sys.stderr)
        return 1 if different else 0
    for path, page in PAGES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
