"""The config: schemas, composing and building, and checks across its groups."""
