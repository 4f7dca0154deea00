"""The page that is read: `write_report(run)` makes RUN/report.html."""

from labelsieve.report.page import write_report

__all__ = ["write_report"]
