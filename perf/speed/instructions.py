"""Instructions per operation, counted by callgrind: libuct_mp.so against libuct_ib.so, side by side.

What is counted: everything that executes in the transport's own libraries (and UCX's libuct, libucs on its behalf).
Not: libibverbs (the emulated adapter), libc (copies), the benchmark, polls that find nothing.
"""
import collections
import os
import re
import subprocess
import tempfile

COUNTED = ("libuct_mp.so", "libuct_ib.so", "libuct.so", "libucs.so")
ADAPTER = ("libibverbs.so", "libsofthca.so")
OPERATIONS = ("am_short_8", "am_short_32", "am_bcopy_1k", "am_zcopy_4k", "put_short_8", "put_short_8_flush", "get_bcopy_8_flush", "put_zcopy_64k",
              "get_zcopy_64k", "atomic_fadd_8")


def parse(path):
    """(trigger line, {object: {function: instructions}}) of one callgrind dump; costs of callees are the callees'."""
    trigger = ""
    names = {"ob": {}, "fn": {}}
    cost = collections.defaultdict(collections.Counter)
    ob = fn = ""
    skip = False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line[0].isdigit() or line[0] in "+-*":
                if not skip:
                    cost[ob][fn] += int(line.split()[1])
                skip = False
                continue
            if line.startswith("calls="):
                skip = True  # the next line is what the callee cost
                continue
            named = re.match(r"(ob|fn|cob|cfn)=\((\d+)\)(?: (.*))?", line)
            if named:
                kind, number, name = named.groups()
                table = names[kind[-2:]]
                if name:
                    table[number] = name
                if kind == "ob":
                    ob = os.path.basename(table[number])
                elif kind == "fn":
                    fn = table[number]
            elif line.startswith("desc: Trigger:"):
                trigger = line.split(":", 2)[2].strip()
    return trigger, cost


def own(name, libraries=COUNTED):
    return any(name.startswith(library) for library in libraries)


def total(cost, libraries=COUNTED):
    return sum(sum(functions.values()) for ob, functions in cost.items() if own(ob, libraries))


def copies(cost):
    """Instructions in libc: memcpy for the most part, counted apart."""
    return sum(sum(functions.values()) for ob, functions in cost.items() if ob.startswith("libc.so"))


def measure(build, transport, device, operations, count, batch, fabric=None, env=None):
    """{operation: {side: (own, libc, {function: instructions}, own and the adapter's)}}, all per operation."""
    with tempfile.TemporaryDirectory() as folder:
        command = [f"{build}/bin/softhca", "run", *(["--fabric", fabric] if fabric else []), "--", "valgrind",
                   "--tool=callgrind", "--fair-sched=yes", "--collect-atstart=no", f"--callgrind-out-file={folder}/out",
                   f"{build}/bin/bench_uct_instructions", transport, device, "--count", str(count), "--batch", str(batch),
                   *operations]
        environment = {**os.environ, "UCX_MP_RAILS": "softhca_0:1", **(env or {})}
        if transport.startswith("mp"):
            environment["LD_PRELOAD"] = f"{build}/lib/libuct_mp.so"
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
        if done.returncode:
            raise RuntimeError(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
        result = collections.defaultdict(dict)
        empty = empty_libc = empty_all = 0.0
        everything = COUNTED + ADAPTER
        dumps = []
        for name in os.listdir(folder):
            trigger, cost = parse(f"{folder}/{name}")
            found = re.search(r"(\w+) (send|receive) (\d+) (\d+)$", trigger)
            if found:
                dumps.append((*found.groups(), cost))
        for operation, _, number, _, cost in dumps:
            if operation == "empty":
                empty, empty_libc = total(cost) / int(number), copies(cost) / int(number)
                empty_all = total(cost, everything) / int(number)
        for operation, side, number, idle, cost in dumps:
            number, idle = int(number), int(idle)
            functions = collections.Counter()
            for ob, inside in cost.items():
                for function, instructions in inside.items():
                    if own(ob):
                        functions[function] += instructions / number
            result[operation][side] = ((total(cost) - idle * empty) / number, (copies(cost) - idle * empty_libc) / number,
                                       functions, (total(cost, everything) - idle * empty_all) / number)
        return result


def table(build, count=2048, batch=16, operations=OPERATIONS):
    """Rows (operation, stock send, receive, mp send, receive, difference, libc stock, libc mp), and the raw results."""
    stock = measure(build, "rc_verbs", "softhca_0:1", operations, count, batch)
    ours = measure(build, "mp_rc", "mp0", operations, count, batch)
    rows = []
    for operation in operations:
        def of(result, side, index=0):
            return result[operation].get(side, (0, 0))[index]
        a = [of(stock, side) for side in ("send", "receive")]
        b = [of(ours, side) for side in ("send", "receive")]
        rows.append((operation, *a, *b, sum(b) - sum(a),
                     of(stock, "send", 1) + of(stock, "receive", 1), of(ours, "send", 1) + of(ours, "receive", 1)))
    return rows, stock, ours
