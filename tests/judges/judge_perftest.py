"""perftest: ib_{write,read,send,atomic}_{lat,bw} over RC, UC, UD and DC.

perftest compares no data; what is checked is that every iteration completes and that the numbers are possible.
"""

import re

from judge import Failure, Group, check, fabric_file

group = Group(seldom=("ideal",))  # of the adapter alone; modelled links show more


def table(text):
    """The rows of numbers below perftest's heading, as lists of floats."""
    rows, inside = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("#bytes"):
            inside = True
        elif inside and re.fullmatch(r"\s*\d+(\s+[-0-9.]+)+\s*", line):
            rows.append([float(word) for word in line.split()])
    return rows


def link_rate():
    """Gb/s of data that the fastest link of the modelled fabric carries; infinite if its file does not tell."""
    lane = {"SDR": 2, "DDR": 4, "QDR": 8, "FDR": 13.64, "EDR": 25, "HDR": 50}  # Gb/s of data per lane
    with open(fabric_file("modelled"), encoding="utf-8") as text:
        rates = re.findall(r"^\s*rate:\s*(\w+) (\d+)x", text.read(), re.M)
    return max((lane[speed] * int(width) for speed, width in rates if speed in lane), default=float("inf"))


def measure(tool, *options, size=None, iterations=200, device="softhca_0", client=()):
    both_ways = "-b" in options

    def run(session):
        argv = [f"ib_{tool}", "-F", "-d", device, "-n", str(iterations), *options]
        if size is not None:
            argv += ["-s", str(size)]
        if tool.endswith("_bw"):
            argv += ["--report_gbits"]
        outputs = session.pair(argv, client=client, seconds=35)
        for text in outputs:
            for sign in ("Completion with error", "Failed status", "Couldn't", "Unable to", "Failed to"):
                if sign in text:
                    raise Failure(f"output says '{sign}'")
        rows = table(outputs[1])
        if "-a" in options:
            check(len(rows) >= 12, f"{len(rows)} rows for all sizes")
        else:
            check(len(rows) == 1, f"{len(rows)} rows in the table of the client")
            if size is not None:
                check(rows[0][0] == size, f"the table is for {rows[0][0]:.0f} bytes")
        for row in rows:
            check(row[1] >= iterations, f"{row[1]:.0f} iterations of {iterations}")
            if tool.endswith("_bw"):
                average = row[3]
                check(average >= 0 and (row[0] < 4096 or average > 0), f"average bandwidth {average} Gb/s")
                if session.modelled:
                    limit = link_rate() * (2 if both_ways else 1) * 1.03
                    check(average <= limit, f"{average} Gb/s is more than the link carries ({limit:.2f})")
            else:
                check(0 < row[2] <= row[4] <= row[3], f"minimum, typical, maximum of {row}")
    return run


def add(name, tool, *options, **kwargs):
    group.add(measure(tool, *options, **kwargs), name)


SMALL, LARGE = 64, 65536
for kind in ("rc", "uc", "dc"):
    connection = ("-c", kind.upper())
    add(f"write_lat_{kind}", "write_lat", *connection, size=SMALL)
    add(f"write_bw_{kind}", "write_bw", *connection, size=LARGE)
for kind in ("rc", "dc"):
    connection = ("-c", kind.upper())
    add(f"read_lat_{kind}", "read_lat", *connection, size=SMALL)
    add(f"read_bw_{kind}", "read_bw", *connection, size=LARGE)
    if kind != "dc":  # the program itself leaves a CQ on the channel with DC and then fails to close it
        add(f"read_lat_{kind}_events", "read_lat", *connection, "-e", size=SMALL)
    for type_name, operation in (("add", "FETCH_AND_ADD"), ("swap", "CMP_AND_SWAP")):
        add(f"atomic_lat_{kind}_{type_name}", "atomic_lat", *connection, "-A", operation)
        add(f"atomic_bw_{kind}_{type_name}", "atomic_bw", *connection, "-A", operation)
for kind in ("rc", "uc", "ud", "dc"):
    connection = ("-c", kind.upper())
    large = 2048 if kind == "ud" else LARGE
    add(f"send_lat_{kind}", "send_lat", *connection, size=SMALL)
    add(f"send_bw_{kind}", "send_bw", *connection, size=large)
    if kind != "dc":
        add(f"send_lat_{kind}_events", "send_lat", *connection, "-e", size=SMALL)
    add(f"send_bw_{kind}_8qp", "send_bw", *connection, "-q", "8", size=2048, iterations=100)
    add(f"send_bw_{kind}_both_ways", "send_bw", *connection, "-b", size=2048)

add("write_bw_rc_8qp", "write_bw", "-q", "8", size=LARGE, iterations=100)
add("write_bw_dc_8qp", "write_bw", "-c", "DC", "-q", "8", size=LARGE, iterations=100)
add("write_bw_rc_both_ways", "write_bw", "-b", size=LARGE)
add("write_bw_rc_8qp_both_ways", "write_bw", "-q", "8", "-b", size=LARGE, iterations=100)
add("write_bw_rc_post_list", "write_bw", "-l", "16", size=4096, iterations=320)
add("write_bw_rc_all_sizes", "write_bw", "-a", iterations=20)
add("write_lat_rc_all_sizes", "write_lat", "-a", iterations=20)
add("write_lat_rc_not_inline", "write_lat", "-I", "0", size=SMALL)
add("write_bw_rc_old_post", "write_bw", "--use_old_post_send", size=LARGE)
add("write_bw_rc_mtu256", "write_bw", "-m", "256", size=LARGE)
add("write_bw_rc_rail1", "write_bw", size=LARGE, device="softhca_1")
add("read_bw_rc_8qp", "read_bw", "-q", "8", size=LARGE, iterations=100)
add("read_bw_rc_both_ways", "read_bw", "-b", size=LARGE)
add("read_bw_rc_one_outstanding", "read_bw", "-o", "1", size=4096)
add("read_bw_rc_events", "read_bw", "-e", size=LARGE)
add("send_lat_rc_srq", "send_lat", "--use-srq", size=SMALL)
add("send_bw_rc_srq_8qp", "send_bw", "--use-srq", "-q", "8", size=2048, iterations=100)
add("send_bw_rc_events", "send_bw", "-e", size=LARGE)
add("send_bw_rc_all_sizes", "send_bw", "-a", iterations=20)
add("send_bw_rc_gid", "send_bw", "-x", "0", size=LARGE)
add("atomic_lat_rc_events", "atomic_lat", "-e")
add("atomic_bw_rc_8qp", "atomic_bw", "-q", "8", iterations=100)
add("atomic_bw_rc_both_ways", "atomic_bw", "-b")
