"""The exact side: problems that have a model, solved and evaluated without sampling."""
