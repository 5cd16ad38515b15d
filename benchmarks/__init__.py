"""All peers in one run, side by side: `python -m benchmarks --help`. The method is in docs/performance.md."""
