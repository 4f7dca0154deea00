"""The stages of a run, as plain functions: read, select, train, report, export."""
