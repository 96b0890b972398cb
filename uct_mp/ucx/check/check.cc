#include "uct_mp/ucx/check/check.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

#include "uct_mp/ucx/check/checks.h"

namespace ucx_mp::check {

std::string Checks::name(const Lane& lane) const {
    const char* far = it_.far(lane).name;
    return lane.rail->name + " -> " + std::string(far, strnlen(far, sizeof it_.far(lane).name));
}

void Checks::lane(Lane& lane) {
    own_read(lane);
    last_word(lane);
    within(lane);
    dynamic_target(lane);
    migration(lane);
    packet_numbers(lane); // ends a queue pair
}

namespace {

int run(Side& side, Stream stream) {
    Initiator initiator(side, std::move(stream));
    std::string error;
    if (!initiator.open(error)) {
        std::fprintf(stderr, "mp_info: %s\n", error.c_str());
        return 1;
    }
    Report report;
    Checks checks(initiator, report);
    std::set<unsigned> seen;
    for (auto& lane : initiator.lanes()) {
        if (!seen.insert(lane->device->index).second) continue;
        std::printf("%s\n", lane->device->name.c_str());
        checks.adapter(*lane);
    }
    Lane *first = nullptr, *second = nullptr; // to two adapters there
    for (auto& lane : initiator.lanes()) {
        if (!first)
            first = lane.get();
        else if (!second && lane->remote_device != first->remote_device)
            second = lane.get();
    }
    for (auto& lane : initiator.lanes()) {
        std::printf("%s\n", checks.name(*lane).c_str());
        checks.lane(*lane);
    }
    if (second) {
        std::printf("across adapters\n");
        checks.across(*first, *second);
        checks.across(*second, *first);
    }
    report.features();
    if (report.broken())
        std::printf("%u of what the transport relies on does not hold: see NO above for what to set\n",
                    report.broken());
    else
        std::printf("all that the transport relies on holds\n");
    return report.broken() ? 1 : 0;
}

} // namespace

int check(const std::vector<std::string>& rails, const std::string& host) {
    std::string error;
    Side side;
    const auto trouble = [&] {
        std::fprintf(stderr, "mp_info: %s\n", error.c_str());
        return 1;
    };
    if (!side.open(rails, error)) return trouble();
    if (!host.empty()) {
        Stream stream = connect_to(host, error);
        if (!stream.good()) return trouble();
        return run(side, std::move(stream));
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        error = std::string("socketpair: ") + std::strerror(errno);
        return trouble();
    }
    Stream here(ends[0]), there(ends[1]);
    Side other;
    if (!other.open(rails, error)) return trouble();
    std::thread answering([&] { (void)other.serve(there); });
    const int result = run(side, std::move(here));
    answering.join();
    return result;
}

int listen(const std::vector<std::string>& rails, unsigned port) {
    std::string error;
    Side side;
    if (side.open(rails, error)) {
        const Stream stream = listen_at(port, error);
        if (stream.good()) {
            if (side.serve(stream)) return 0;
            error = "the other end went away";
        }
    }
    std::fprintf(stderr, "mp_info: %s\n", error.c_str());
    return 1;
}

} // namespace ucx_mp::check
