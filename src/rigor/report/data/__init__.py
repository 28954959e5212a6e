"""The data of a report: run records, agents, score statistics, published scores."""
