"""rdma-core's own small programs: ibv_devinfo, ibv_*_pingpong, ibv_asyncwatch; and the adapter's own pictures of them."""

import os
import re
import time

from judge import Group, Program, check, clean_environment

group = Group(seldom=("ideal",))  # of the adapter alone; modelled links show more
DEVICES = ("softhca_0", "softhca_1")


@group.case(alone=False)
def devinfo(session):
    """Two devices with an active InfiniBand port each; every field is there and plausible; nodes differ."""
    seen_guids, seen_lids = set(), set()
    for node in (0, 1):
        text = session.run(["ibv_devinfo", "-v"], node=node)
        check(re.findall(r"hca_id:\s*(\S+)", text) == list(DEVICES), f"node {node}: devices are not {DEVICES}")
        for block in re.split(r"(?=hca_id:)", text)[1:]:
            def field(name, block=block):
                match = re.search(rf"^\s*{name}:\s*(.+)$", block, re.M)
                check(match, f"no field {name} in\n{block}")
                return match[1]

            check("InfiniBand" in field("transport"), "transport is not InfiniBand")
            check(field("link_layer") == "InfiniBand", "link layer is not InfiniBand")
            check("PORT_ACTIVE" in field("state"), "port is not active")
            check("ATOMIC_HCA" in field("atomic_cap"), "atomics are not ATOMIC_HCA")
            for name in ("max_mr_size", "max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd",
                         "max_qp_rd_atom", "max_ah", "max_srq", "max_srq_wr", "max_srq_sge", "max_pkeys",
                         "max_msg_sz", "gid_tbl_len", "pkey_tbl_len", "port_lid", "active_mtu", "max_mtu",
                         "active_width", "active_speed", "node_guid", "sys_image_guid", "phys_port_cnt"):
                value = field(name)
                check(not re.match(r"(0x0+|0)\b(?!\.)", value) and "invalid" not in value, f"{name} is {value}")
            check(re.search(r"phys_state:\s*LINK_UP", block), "no link")
            check(re.search(r"GID\[\s*0\]:\s*fe80:", block), "GID 0 is not a link-local one")
            guid, lid = field("node_guid"), field("port_lid")
            check(guid not in seen_guids, f"node GUID {guid} is used twice")
            check(lid not in seen_lids, f"LID {lid} is used twice")
            seen_guids.add(guid)
            seen_lids.add(lid)


@group.case(alone=False)
def devices(session):
    """ibv_devices lists what ibv_devinfo -l lists; an unknown device is an error."""
    text = session.run(["ibv_devices"], node=0)
    for device in DEVICES:
        check(re.search(rf"^\s*{device}\s+[0-9a-f]{{16}}$", text, re.M), f"ibv_devices does not list {device}")
    text = session.run(["ibv_devinfo", "-l"], node=0)
    check("2 HCAs found" in text, "ibv_devinfo -l does not find 2 HCAs")
    session.run(["ibv_devinfo", "-d", "softhca_9"], node=0, code=255)


def pingpong(program, *options, iterations=200, size=4096, device=DEVICES[0], nodes=(0, 1)):
    def run(session):
        argv = [f"ibv_{program}_pingpong", "-d", device, "-n", str(iterations), "-s", str(size), *options]
        for text in session.pair(argv, nodes=nodes):
            check(re.search(r"bytes in [0-9.]+ seconds", text), "no result line")
            check(re.search(rf"{iterations} iters in", text), "not every iteration was done")
            check("invalid data" not in text and "Error" not in text, "the data are wrong")
            # Pairs of addresses: both sides talk over InfiniBand LIDs, not over some fallback.
            lids = [int(lid, 16) for lid in re.findall(r"(?:local|remote) address:\s*LID 0x([0-9a-f]+)", text)]
            check(len(lids) >= 2 and all(lids), "no LIDs in the addresses")
    return run


# -c compares the received bytes, -e sleeps on completion events, -t takes completion timestamps, -N uses ibv_wr_*.
# Not -t with -e: the program arms before it polls, so an event can be left over for completions that it has polled
# (mlx5 and this adapter fire when something unpolled is there at arming); without -t it polls again, with -t it gives up.
for kind, options in {
    "rc": [(), ("-e",), ("-t",), ("-N",), ("-c",), ("-c", "-e", "-N"), ("-c", "-N", "-t")],
    "uc": [(), ("-e",), ("-c",), ("-c", "-e")],
    "ud": [(), ("-e",), ("-c",), ("-c", "-e")],
    "srq": [(), ("-e",), ("-c",), ("-q", "8", "-c"), ("-q", "8", "-e")],
}.items():
    for option in options:
        case_name = "_".join([f"{kind}_pingpong", *(word.lstrip("-") for word in option)])
        group.add(pingpong(kind, *option, size=2048 if kind == "ud" else 4096), case_name)
group.add(pingpong("rc", "-c", "-m", "4096", iterations=20, size=1 << 20), "rc_pingpong_1MiB")
group.add(pingpong("rc", "-c", "-m", "256", iterations=50, size=65537), "rc_pingpong_mtu256")
group.add(pingpong("rc", "-c", device=DEVICES[1]), "rc_pingpong_rail1")
group.add(pingpong("rc", "-c", nodes=(0, 0)), "rc_pingpong_loopback")
group.add(pingpong("rc", "-c", "-g", "0"), "rc_pingpong_gid")
group.add(pingpong("ud", "-c", "-g", "0", size=2048), "ud_pingpong_gid")


@group.case(fabrics=("modelled",))
def heatmap(session):
    """The picture of a run in which one rail is used shows that rail's links."""
    keeps = session.start(["ibv_asyncwatch", "-d", "softhca_0"], node=2)
    keeps.wait_for(r"async event FD", 20)
    picture = os.path.join(session.folder, "use.svg")
    watch = Program([session.softhca, "heatmap", "--session", session.name, "--duration", "2", "-o", picture],
                    session.folder, clean_environment())
    session.programs.append(watch)
    end = time.monotonic() + 20
    while watch.running():
        check(time.monotonic() < end, "heatmap does not end")
        pingpong("rc", size=65536, iterations=50)(session)
    watch.wait(30)
    with open(picture, encoding="utf-8") as text:
        svg = text.read()
    check("<svg" in svg and "</svg>" in svg, "not a picture")
    check("softhca_0" in svg, "the rail that was used is not in it")
    keeps.stop()


@group.case(alone=False)
def asyncwatch(session):
    """A port that goes down and comes back is seen by a program that waits for events, on its node and device only."""
    watch = session.start(["ibv_asyncwatch", "-d", "softhca_0"], node=0)
    other_node = session.start(["ibv_asyncwatch", "-d", "softhca_0"], node=1)
    other_device = session.start(["ibv_asyncwatch", "-d", "softhca_1"], node=0)
    for program in (watch, other_node, other_device):
        program.wait_for(r"async event FD", 10)
    session.control("port", "down", "0:softhca_0:1")
    watch.wait_for(r"event_type IBV_EVENT_PORT_ERR", 15)
    text = session.run(["ibv_devinfo", "-d", "softhca_0"], node=0)
    check("PORT_DOWN" in text, "ibv_devinfo does not see the port down")
    session.control("port", "up", "0:softhca_0:1")
    watch.wait_for(r"event_type IBV_EVENT_PORT_ACTIVE", 15)
    text = session.run(["ibv_devinfo", "-d", "softhca_0"], node=0)
    check("PORT_ACTIVE" in text, "ibv_devinfo does not see the port up again")
    for program in (other_node, other_device):
        check("event_type" not in program.output(), f"an event that is not its own: {program}")
    for program in (watch, other_node, other_device):
        program.stop()
