"""Exact solvers and policy evaluation for problems with a model, without sampling."""
