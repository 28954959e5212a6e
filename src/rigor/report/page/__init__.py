"""The HTML page of a report, and the dashboard of a sweep in W&B."""
