"""The tables of a report and of a sweep, and the numbers in them."""
