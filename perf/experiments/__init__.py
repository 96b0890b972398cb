"""The papers' experiments, run again: what their text says beside what this build does. perf/papers runs them."""
