"""Tables as plain values, ready for a template."""

from polyfed.report.tables.clients import client_table
from polyfed.report.tables.comparison import Group, comparison, grouped
from polyfed.report.tables.ranking import leader, ranking

__all__ = ["Group", "client_table", "comparison", "grouped", "leader", "ranking"]
