#include "uct_mp/ucx/inspect.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "uct_mp/ucx/who.h"

namespace ucx_mp::face::inspect {

namespace {

struct Registry {
    std::mutex lock;
    std::vector<Iface*> ifaces;
    int listener = -1;
};
// Never destroyed: the async thread may run until the very end of the process.
Registry& registry() {
    static auto* const only = new Registry;
    return *only;
}

void append(std::string& out, const char* format, auto... values) {
    char line[1024];
    std::snprintf(line, sizeof line, format, values...);
    out += line;
}

// For this peer alone: initiators of DC, receive buffers and send buffers are shared by all.
std::size_t queue_pairs_of(const channel::ChannelStatistics& c) {
    return static_cast<std::size_t>(std::ranges::count_if(
        c.paths, [](const auto& path) { return path.kind == path::Kind::rc && path.qp_number != 0; }));
}
// A request of a queue pair counts as 64 bytes and its inline bytes, and a page
// is for the rest: by formula, since adapters do not tell. The ring is added.
std::size_t memory_of(const channel::ChannelStatistics& c, const channel::Config& config) {
    constexpr std::size_t kRequest = 64, kRest = 4096;
    return queue_pairs_of(c) * (config.send_depth * (kRequest + config.inline_bytes) + kRest) + c.ring.bytes;
}

// A word of the answer: nothing that would end it.
std::string word(std::string text) {
    for (char& c : text)
        if (c <= ' ' || c > '~') c = '?';
    return text.empty() ? "-" : text;
}

std::string or_unknown(const char* format, double value, bool known) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return known ? text : "-";
}

void describe_process(std::string& out) {
    const Who& self = who();
    append(out, "process %d host %s program %s job %s rank %d size %d\n", static_cast<int>(getpid()),
           word(self.host).c_str(), word(self.program).c_str(), word(self.job).c_str(), self.rank, self.size);
}

// One line per thing, words separated by spaces, "key value" pairs: for eyes, grep and scripts.
void describe(Iface& iface, std::string& out) {
    const auto s = iface.statistics();
    append(out,
           "interface %016lx transport %s queue_pairs %u send_buffers %lu receive_buffers %lu dropped %lu parked %u "
           "tear_downs %lu recovery_thread %s%s%s\n",
           s.uid, iface.config().name(), s.queue_pairs, s.send_buffer_bytes, s.receive_buffer_bytes, s.dropped,
           s.parked, s.parks, iface.config().recovery.thread ? "yes" : "no",
           iface.why_no_thread().empty() ? "" : " cause ",
           iface.why_no_thread().c_str()); // the last: it has spaces
    if (iface.config().rc_on_demand()) {
        const auto& a = s.adaptation;
        append(out,
               "adapt rc_in_use %u rc_kept %u looks %lu changes %lu refusals %lu interval_ms %.3f count_bytes %lu "
               "rc_saves_ns %.0f rc_costs_ns %.0f turn_ns %.1f\n",
               a.rc_in_use, a.rc_kept, a.looks, a.changes, a.refusals, static_cast<double>(a.interval) * 1e-6,
               a.count_bytes, a.costs.rc, a.costs.make_rc, a.costs.turn);
    }
    if (const auto& r = s.rings; r.rings || r.hits || r.bytes || r.prepared || r.costs.ring > 0)
        append(out,
               "rings %u bytes %lu prepared %u messages %lu misses %lu foreign %lu garbled %lu saves_ns %.0f "
               "look_ns %.1f credit_ns %.0f\n",
               r.rings, r.bytes, r.prepared, r.hits, r.misses, r.foreign, r.garbled, r.costs.ring, r.costs.miss,
               r.costs.credit);
    for (const auto& t : s.history) {
        append(out, "event ms_ago %.3f peer %016lx path %d state %s", static_cast<double>(t.ago) * 1e-6, t.peer_uid,
               t.path, t.what);
        if (t.took) append(out, " took_ms %.3f", static_cast<double>(t.took) * 1e-6);
        if (t.again) append(out, " writes_again %u", t.again);
        if (t.cause) append(out, " cause %s", t.cause); // the last: it has spaces
        out += '\n';
    }
    for (const auto& c : s.channels) {
        const bool parked = c.parked && c.state == connect::State::closed;
        append(out,
               "peer %016lx state %s sent %lu delivered %lu early %lu duplicates %lu acks %lu markers %lu "
               "tear_downs %lu host %s rank %d cut_off %d\n",
               c.peer_uid, parked ? "parked" : connect::name(c.state), c.sent, c.delivered, c.early, c.duplicates,
               c.acks_sent, c.markers_sent, c.parks, word(c.peer.host).c_str(), c.peer.rank, c.cut_off);
        const bool by_demand = c.service.places != 0;
        if (const auto& v = c.service; by_demand)
            append(out, "service receives_by %s why %s sends_by %s places %u switches %u%s%s\n", v.ours, v.why,
                   v.theirs, v.places, v.switches, v.refused ? " refused_by_peer" : "", v.answered ? "" : " asking");
        append(out, "memory queue_pairs %lu bytes %lu\n", queue_pairs_of(c), memory_of(c, iface.config()));
        if (const auto& r = c.ring; r.wanted || r.switches || r.out || r.messages_out)
            append(out,
                   "ring receives_by %s wanted %s why %s bytes %lu messages %lu switches %u left %u sends_by %s "
                   "messages_by_ring %lu\n",
                   r.in, r.wanted ? "yes" : "no", r.why, r.bytes, r.messages_in, r.switches, r.left,
                   r.out ? "ring" : "queue", r.messages_out);
        if (const auto& r = c.recovery; r.seen)
            append(
                out,
                "recovery messages_again %lu writes_again %lu reads_again %lu bytes_again %lu writes_found_done %lu\n",
                r.messages_again, r.puts_again, r.gets_again, r.bytes_again, r.puts_found_done);
        for (const auto& p : c.paths)
            append(out,
                   "path rail %s from %s to %s qp 0x%x state %s failures %u returns %u migrations %u weight %.3f "
                   "write_rate %s read_rate %s latency %s written %lu "
                   "read %lu in_flight %lu requests %lu carries %s port_there %s down_ms %.0f%s%s%s\n",
                   p.local_rail.c_str(), p.from.c_str(), p.to.c_str(), p.qp_number,
                   std::string_view(p.recovery) == "absent" ? "absent" : schedule::name(p.state), p.failures, p.returns,
                   p.migrations, p.weight, or_unknown("%.3f", p.write_rate, p.write_rate_known).c_str(),
                   or_unknown("%.3f", p.read_rate, p.read_rate_known).c_str(),
                   or_unknown("%.0f", p.latency, p.latency_known).c_str(), p.written, p.read, p.in_flight, p.requests,
                   p.carries, word(p.remote_port).c_str(), static_cast<double>(p.down_for) * 1e-6,
                   !by_demand                 ? ""
                   : p.kind == path::Kind::rc ? " kind rc"
                                              : " kind dc",
                   p.cause ? " cause " : "", p.cause ? p.cause : ""); // the last: it has spaces
    }
}

// As a file in memory: a socket's buffer has a limit, and this thread must not wait for anybody.
void send_text(int to, const std::string& text) {
    constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING, kNoExecute = 8; // MFD_NOEXEC_SEAL, since Linux 6.3
    int file = memfd_create("mp_info", kFlags | kNoExecute);
    if (file < 0) file = memfd_create("mp_info", kFlags);
    if (file < 0) {
        ucs_debug("mp: no answer to mp_info: memfd_create: %m");
        return;
    }
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(head), &file, sizeof file);
    // A reader that gets nothing says that the process does not answer.
    if (write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0)
        (void)!sendmsg(to, &message, MSG_NOSIGNAL);
    ::close(file);
}

void answer(int, ucs_event_set_types_t, void*) {
    Registry& all = registry();
    const int fd = accept4(all.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid())) {
        std::string text;
        {
            const std::lock_guard hold(all.lock);
            describe_process(text);
            for (Iface* iface : all.ifaces) describe(*iface, text);
        }
        send_text(fd, text);
    }
    ::close(fd);
}

bool listen_for_readers(Registry& all) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // A leading zero: the abstract name space, which needs no file.
    const int length =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "ucx-mp.%d", static_cast<int>(getpid()));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0 || listen(fd, 8) != 0 ||
        abi::async_watch(UCS_ASYNC_MODE_THREAD_SPINLOCK, fd, UCS_EVENT_SET_EVREAD, answer, nullptr, nullptr) !=
            UCS_OK) {
        ::close(fd);
        return false;
    }
    all.listener = fd;
    return true;
}

} // namespace

void add(Iface& iface) {
    Registry& all = registry();
    const std::lock_guard hold(all.lock);
    all.ifaces.push_back(&iface);
    if (all.listener < 0 && !listen_for_readers(all)) ucs_debug("mp: mp_info will not see this process: %m");
}

void remove(Iface& iface) {
    Registry& all = registry();
    int listener = -1;
    {
        const std::lock_guard hold(all.lock);
        std::erase(all.ifaces, &iface);
        if (all.ifaces.empty()) std::swap(listener, all.listener);
    }
    if (listener < 0) return;
    // Waits for a running handler, so not under the lock that it takes.
    (void)abi::async_forget(listener, 1);
    ::close(listener);
}

} // namespace ucx_mp::face::inspect
