"""The row `engines`: four queue pairs on one port with send engines (dissertation, ch. 6), virtual time.

What the model is made of (perf/findings/engines.md has the reasons):
- from the text: 1661 MB/s of one queue pair, 2745 MB/s of the port (figure 6.6);
- calibrated with the small messages of 6.3.2: HOST, what a processor needs for a request that it posts, and for a completion
  that it collects; ENGINE, a send engine's time per message beside moving its data. Four queue pairs have to be better than
  two from 1 KiB on and not below: fitting_engine();
- and with what 6.3.3 says of 16 KiB, that even striping is much worse than EPC: the least times on that line for which it is
  by TARGET. So this size is no prediction; 32 and 64 KiB are.
The plots show what would come out of other times.
"""
import os
import re

from speed.run import ROOT, bandwidth

HOST, ENGINE = 750, 2380  # ns; ENGINE is what fabrics/twelve-x.yaml says
TARGET = 1.15
SIZES = (16384, 32768, 65536)
LONGEST = 6000  # ns of host time that are looked at


def fitting_engine(host):
    """ns, such that at 1 KiB (617 ns of data at 1661 MB/s) two engines need as long as a processor that posts and collects."""
    return max(0, 4 * host - 617)


class Port:
    """Runs windows of 64 messages over it."""

    def __init__(self, c):
        self.c = c
        with open(os.path.join(ROOT, "perf", "fabrics", "twelve-x.yaml"), encoding="ascii") as file:
            self.model = file.read()

    def fabric(self, engine):
        where = os.path.join(self.c.folder, f"twelve-x-{engine}.yaml")
        with open(where, "w", encoding="ascii") as out:
            out.write(re.sub(r"engine_message: \d+ ns", f"engine_message: {engine} ns", self.model))
        return where

    def rate(self, size, policy, hint="none", protocol="rendezvous_get", host=HOST, engine=ENGINE, paths=4, **more):
        """MB/s."""
        return bandwidth(self.c.build, fabric=self.fabric(engine), paths=paths, window=64, op=protocol, size=size, policy=policy,
                         hint=hint, host_post=host, host_completion=host, warm_up=5, run=max(20, size // 2500), **more)

    def gain(self, size, **model):
        return self.rate(size, "epc", "non_blocking", **model) / self.rate(size, "even", **model)

    def host_needed(self, size, engine_of):
        """The least host time, in us, from which the gain is TARGET, if an engine's is engine_of(it); None: above LONGEST."""
        low, high = 0, LONGEST
        if self.gain(size, host=high, engine=engine_of(high)) < TARGET:
            return None
        if self.gain(size, host=low, engine=engine_of(low)) >= TARGET:
            return 0
        while high - low > (400 if self.c.quick else 50):
            middle = (low + high) // 2
            if self.gain(size, host=middle, engine=engine_of(middle)) >= TARGET:
                high = middle
            else:
                low = middle
        return high / 1000

    def engine_needed(self, size):
        """The same for an engine's time, the host's as it is; of powers of two."""
        for us in (1, 2, 4, 8, 16, 32, 64):
            if self.gain(size, engine=1000 * us) >= TARGET:
                return us
        return None


def small(port, size, host, engine):
    """What four queue pairs gain over two with eager messages, each of them posted and collected, as MVAPICH does."""
    two, four = (port.rate(size, "round_robin", protocol="eager", host=host, engine=engine, paths=n, signal_interval=1)
                 for n in (2, 4))
    return four / two


def fitting_host(port, engine):
    """The least host time, in us, that explains that four queue pairs are no better than two below 1 KiB."""
    low, high = 0, LONGEST
    while high - low > (200 if port.c.quick else 50):
        middle = (low + high) // 2
        if small(port, 512, middle, engine) < 1.02:
            high = middle
        else:
            low = middle
    return high / 1000


def rows(c, Result, Plot):
    port = Port(c)
    for name, paths, paper in (("one queue pair", 1, 1661), ("four", 4, 2745)):
        rate = port.rate(1 << 20, "even", paths=paths)
        yield Result("engines", f"calibration: 1 MiB, {name}", f"{rate:.0f} MB/s, dissertation {paper}")
    gains = [f"{size} B {small(port, size, HOST, ENGINE):.2f}" for size in (256, 512, 1024, 2048, 4096, 8000)]
    yield Result("engines", "calibration: four queue pairs / two, eager", f"{', '.join(gains)}; dissertation: better from 1 KiB on")

    for protocol in ("rendezvous_get", "rendezvous_put", "rendezvous_fence"):
        for size in SIZES:
            even = port.rate(size, "even", protocol=protocol)
            for name, policy, hint in (("epc", "epc", "non_blocking"), ("default, no hint", "default", "none")):
                value = port.rate(size, policy, hint, protocol)
                judged = (value / even, ">=", TARGET) if protocol == "rendezvous_get" else (None, "", None)
                kind = f" ({protocol[11:]})" if not judged[0] else " (calibrated)" if size == SIZES[0] else ""
                yield Result("engines", f"{size // 1024} KiB{kind}, {name} / even", f"{value:.0f} / {even:.0f} MB/s: {value / even:.3f}",
                             *judged)

    # Where would it be met? By host time, by engine time, and by both.
    times = (0, 750, 1000, 2000, 4000) if c.quick else (0, 250, 400, 560, 750, 850, 1000, 1250, 1500, 2000, 2500, 3000, 4000)
    host = {f"epc / even, {size // 1024} KiB": [(t / 1000, port.gain(size, host=t)) for t in times] for size in SIZES}
    host["target"] = [(t / 1000, TARGET) for t in (times[0], times[-1])]
    c.plots.append(Plot(f"Send engines: gain by host time ({ENGINE / 1000} us of an engine per message)", "lines",
                        ["us of the processor per request posted and per completion collected"], host, "ratio"))
    times = (0, 2380, 8000, 32000) if c.quick else (0, 800, 1620, 2380, 4000, 8000, 12000, 16000, 24000, 32000)
    engine = {f"epc / even, {size // 1024} KiB": [(t / 1000, port.gain(size, engine=t)) for t in times] for size in SIZES}
    engine["target"] = [(t / 1000, TARGET) for t in (times[0], times[-1])]
    c.plots.append(Plot(f"Send engines: gain by the time of an engine per message ({HOST / 1000} us of host time)", "lines",
                        ["us of the send engine per message"], engine, "ratio"))
    times = (500, 2380, 4000) if c.quick else (0, 500, 1000, 1620, 2380, 3200, 4000, 6000, 8000)
    both = {}
    for size in SIZES:
        needed = [(t / 1000, port.host_needed(size, lambda _, t=t: t)) for t in times]
        both[f"{size // 1024} KiB"] = [point for point in needed if point[1] is not None]
        fitting = port.host_needed(size, fitting_engine)
        yield Result("engines", f"{size // 1024} KiB, epc / even is {TARGET}",
                     f"from {port.host_needed(size, lambda _: ENGINE)} us of host time on (an engine {ENGINE / 1000} us), "
                     f"or {port.engine_needed(size)} us of an engine (host {HOST / 1000} us); of times that fit 6.3.2: {fitting} us"
                     + (f" (an engine {fitting_engine(1000 * fitting) / 1000:.2f} us)" if fitting else ""))
    both["fits 6.3.2"] = [(t / 1000, fitting_host(port, t)) for t in times if t <= 6000]
    both = {name: points for name, points in both.items() if points}
    c.plots.append(Plot(f"Send engines: host time from which the gain is {TARGET}, and that which fits small messages", "lines",
                        ["us of the send engine per message"], both, "us of host time"))
