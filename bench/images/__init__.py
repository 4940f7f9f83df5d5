"""What was measured on images beside the paper's experiments; `python -m bench.images --help` lists the pages."""
