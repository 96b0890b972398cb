// What the keeper does when it is told to: faults, scripts, re-routes, listing.
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <sstream>

#include "core/liveness.h"
#include "core/notify.h"
#include "fabric/names.h"
#include "fabric/routes.h"
#include "session/keeper.h"
#include "session/keeper_main.h"
#include "session/stop.h"

namespace softhca {

namespace {

void reply(int fd, const std::string& text) {
    (void)send(fd, text.data(), std::min(text.size(), kMaxPacket), MSG_NOSIGNAL | MSG_DONTWAIT);
}

template <class Number> bool read_number(std::string_view text, Number& n) {
    return std::from_chars(text.data(), text.data() + text.size(), n).ec == std::errc{};
}

} // namespace

void Keeper::packet(Connection& c, const std::string& text) {
    if (c.kind == HelloKind::command) return answer(c, text);
    if (c.kind != HelloKind::launcher) return;
    if (text == "verbose") {
        c.verbose = true;
    } else if (text.starts_with("child ")) {
        int32_t pid = 0;
        if (!read_number(std::string_view(text).substr(6), pid)) return;
        if (const int fd = open_process(pid, process_start_time(pid)); fd >= 0) watched_.push_back({fd, kNone});
    } else if (text.starts_with("script\n")) {
        std::istringstream in(text.substr(7));
        for (std::string line; std::getline(in, line);) {
            Nanos at = 0;
            const size_t space = line.find(' ');
            if (space != std::string::npos && read_number(line, at)) steps_.push_back({at, line.substr(space + 1)});
        }
        std::stable_sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.at < b.at; });
    }
}

void Keeper::answer(Connection& c, const std::string& line) {
    bool answered = false;
    const std::string text = execute(line, c.fd, answered);
    if (!answered) reply(c.fd, text);
}

// "ok ..." or "error ...". `answered`: a worker does it, on reply_fd.
std::string Keeper::execute(const std::string& line, int reply_fd, bool& answered) {
    if (line == "ls") return "ok " + list();
    try {
        const FaultCommand command = parse_fault(seg_.img(), split_words(line));
        log(command.text);
        if (command.verb == FaultVerb::reroute) {
            start_reroute(reply_fd);
            answered = reply_fd >= 0;
            return "ok ";
        }
        apply_fault(seg_, command);
        if (command.verb == FaultVerb::port_down && command.at_packet)
            for (uint32_t p : command.ports)
                if (seg_.img().port(p).link == kNone) tripped_ports_.push_back(p);
        if (!command.nodes.empty()) return act_on_processes(command);
        return "ok ";
    } catch (const std::exception& e) { return std::string("error ") + e.what(); }
}

std::string Keeper::act_on_processes(const FaultCommand& command) {
    std::string errors;
    int count = 0;
    const uint32_t top = seg_.proc_top.load();
    for (uint32_t slot = kKeeperSlot + 1; slot < top; ++slot) {
        ProcSlot& p = seg_.proc(slot);
        if (p.state.load() != ProcState::alive ||
            std::find(command.nodes.begin(), command.nodes.end(), p.node.load()) == command.nodes.end())
            continue;
        std::string error;
        if (command.verb == FaultVerb::node_death)
            kill_process(seg_, slot);
        else if (command.verb == FaultVerb::cont)
            continue_process(seg_, slot);
        else if (!stop_process(seg_, slot, error))
            errors += (errors.empty() ? "" : "; ") + error;
        ++count;
    }
    if (!errors.empty()) return "error " + errors;
    return "ok " + std::to_string(count) + (count == 1 ? " process" : " processes");
}

// opensm takes its time: a worker does it, on the shared memory, so that the keeper can go on.
void Keeper::start_reroute(int reply_fd) {
    const FabricImage& image = seg_.img();
    std::vector<uint32_t> now(image.ports), came;
    for (uint32_t p = 0; p < image.ports; ++p) {
        now[p] = seg_.port(p).transitions.load();
        if (now[p] != transitions_[p] && seg_.port(p).up.load()) came.push_back(p);
    }
    transitions_ = now;
    const pid_t worker = fork();
    if (worker < 0 && reply_fd >= 0) reply(reply_fd, std::string("error reroute: ") + std::strerror(errno));
    if (worker != 0) return;
    // The child: fork handlers have taken the session's memory away from it (it is not a process of the session).
    signal(SIGCHLD, SIG_DFL); // the fabric library waits for opensm
    // What it keeps open, nobody would see closed when the keeper is killed.
    close(listen_fd_);
    for (const auto& c : connections_)
        if (c.fd != reply_fd) close(c.fd);
    void* memory = map_segment_file(segment_fd_, false);
    if (!memory) _exit(1);
    auto& seg = *static_cast<Segment*>(memory);
    std::string text = "ok ";
    try {
        auto& live = *seg.at<FabricImage>(seg.image);
        std::vector<uint8_t> down(live.cables);
        for (uint32_t l = 0; l < live.links; ++l) {
            const LinkImage& link = live.link(l);
            const bool dark = !seg.link(l).up || (link.from_kind == EndKind::port && !seg.port(link.from).up);
            down[link.cable] |= dark;
        }
        const Routes routes = reroute(live, [&](uint32_t cable) { return down[cable] != 0; });
        seg.fabric.generation.fetch_add(1);
        double seconds = 0;
        for (const auto& s : routes.subnets) {
            seconds += s.seconds;
            if (!s.warning.empty()) text += s.warning + "; ";
        }
        char took[40];
        std::snprintf(took, sizeof took, "new routes after %.2f s", seconds);
        text += took;
        // The events need a process of the session: this one, for a moment.
        if (Process* self = Process::attach_local(&seg)) {
            for (uint32_t p : came) raise_port_event(seg, p, IBV_EVENT_CLIENT_REREGISTER);
            self->detach();
        }
    } catch (const std::exception& e) { text = std::string("error ") + e.what(); }
    if (reply_fd >= 0) reply(reply_fd, text);
    _exit(0);
}

void Keeper::run_due_steps() {
    size_t done = 0;
    while (done < steps_.size() && steps_[done].at <= monotonic_now()) {
        bool answered = false;
        const std::string result = execute(steps_[done].fault, -1, answered);
        if (result.starts_with("error ")) log(steps_[done].fault + ": " + result.substr(6));
        ++done;
    }
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<long>(done));
}

// The network model takes cables down when their packet comes. A port of a crossbar subnet has no cable: the model only
// disarms the trip, the rest is done here.
void Keeper::watch_crossbar_trips() {
    bool changed = false;
    std::erase_if(tripped_ports_, [&](uint32_t p) {
        PortState& port = seg_.port(p);
        if (port.faults.trip_at.load() != 0) return false;
        // Disarmed by `clear`, or by its packet?
        if (port.faults.trip_action.load() == static_cast<uint32_t>(TripAction::link_down)) {
            port.admin_down = 1;
            changed = true;
        }
        return true;
    });
    if (changed) refresh_states(seg_);
}

std::string Keeper::list() const {
    const FabricImage& image = seg_.img();
    std::ostringstream out;
    out << "session " << seg_.session << ": fabric " << image.name << (image.ideal ? " (ideal)" : "") << ", "
        << image.nodes << " nodes, " << seg_.live_procs.load() << " processes, "
        << std::count_if(connections_.begin(), connections_.end(),
                         [](const Connection& c) { return c.kind == HelloKind::launcher; })
        << " launchers, " << seg_.fabric.disturbed.load() << " active faults, keeper " << getpid();
    const uint32_t top = seg_.proc_top.load();
    for (uint32_t slot = kKeeperSlot + 1; slot < top; ++slot) {
        const ProcSlot& p = seg_.proc(slot);
        const ProcState state = p.state.load();
        if (state == ProcState::free) continue;
        const uint32_t node = p.node.load();
        out << "\n  process " << p.pid.load() << " " << std::string(p.command, strnlen(p.command, sizeof p.command))
            << ", slot " << slot << ", node " << (node < image.nodes ? image.node(node).name : "none yet")
            << (state == ProcState::dead       ? ", dead"
                : state == ProcState::starting ? ", starting"
                : p.stop_request.load()        ? ", stopped"
                                               : "");
    }
    for (uint32_t p = 0; p < image.ports; ++p)
        if (image.port(p).cabled && !seg_.port(p).up.load()) out << "\n  port " << port_name(image, p) << " down";
    for (uint32_t l = 0; l < image.links; ++l)
        if (!seg_.link(l).up.load()) out << "\n  link " << link_name(image, l) << " down";
    for (uint32_t d = 0; d < image.devices; ++d)
        if (seg_.device(d).dead.load())
            out << "\n  adapter " << image.node(image.device(d).node).name << ":softhca_" << image.device(d).index
                << " dead";
    return out.str();
}

void Keeper::log(const std::string& text) {
    for (auto& c : connections_)
        if (c.kind == HelloKind::launcher && c.verbose) reply(c.fd, "log " + text);
}

} // namespace softhca
