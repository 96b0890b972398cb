"""The measurements behind perf/transport-speed: one module per way of measuring."""
