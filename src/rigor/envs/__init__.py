"""Environments, each driven as a batch of copies through the protocol in `vector.py`."""
