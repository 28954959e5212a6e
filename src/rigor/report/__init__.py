"""What is read out of run directories: figures and tables."""
