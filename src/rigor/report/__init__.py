"""Reports on run directories: data, tables, figures, pages, and evaluations of policies."""
