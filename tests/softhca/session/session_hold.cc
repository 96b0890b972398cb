#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "core/join.h"
#include "session/keeper.h"
#include "session/launcher.h"

namespace softhca {

namespace {

std::runtime_error failure(const std::string& what) { return std::runtime_error(what + ": " + std::strerror(errno)); }

// The same fabric, as far as it can be told after re-routes (tables change, the rest does not).
bool same_fabric(const FabricImage& a, const FabricImage& b) {
    return std::strncmp(a.name, b.name, sizeof a.name) == 0 && a.ideal == b.ideal && a.bytes == b.bytes &&
           a.nodes == b.nodes && a.devices == b.devices && a.ports == b.ports && a.links == b.links &&
           std::memcmp(a.at<char>(a.devices_at), b.at<char>(b.devices_at), a.devices * sizeof(DeviceImage)) == 0 &&
           std::memcmp(a.at<char>(a.links_at), b.at<char>(b.links_at), a.links * sizeof(LinkImage)) == 0;
}

bool same_file(int a, int b) {
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

} // namespace

SessionHold::SessionHold(const std::string& name, const FabricBlock* fabric) : name_(name) {
    try {
        join_or_create(fabric);
    } catch (...) {
        let_go();
        throw;
    }
}

// Another launcher may do the same at the same moment, and a session may be ending: a few tries.
void SessionHold::join_or_create(const FabricBlock* fabric) {
    std::string why = "neither answers nor ends";
    int mismatches = 0;
    for (int attempt = 0; attempt < 50; ++attempt) {
        if (attempt) usleep(20'000);
        if (connect_to_keeper()) {
            if (!fabric || same_fabric(segment_->img(), fabric->image())) return;
            const FabricImage &runs = segment_->img(), &wanted = fabric->image();
            why = std::string("runs fabric '") + runs.name + (runs.ideal ? "' (ideal)" : "'") + ", not '" +
                  wanted.name + (wanted.ideal ? "' (ideal)" : "'");
            let_go();
            if (++mismatches == 3) break;
            usleep(100'000); // one that nobody else uses is over in a moment
            continue;
        }
        if (!fabric) throw std::runtime_error("no session '" + name_ + "' is running");
        const int listen_fd = bind_session(name_);
        if (listen_fd < 0 && errno == EADDRINUSE) continue;
        if (listen_fd < 0) throw failure("session '" + name_ + "' can't be made");
        create(*fabric, listen_fd);
        return;
    }
    throw std::runtime_error("session '" + name_ + "' " + why);
}

void SessionHold::create(const FabricBlock& fabric, int listen_fd) {
    file_ = create_segment_file(name_.c_str());
    segment_ = file_ < 0 ? nullptr : static_cast<Segment*>(map_segment_file(file_, false));
    if (!segment_) {
        const auto error = failure("session '" + name_ +
                                   "' can't be made (address space and file size, not memory: "
                                   "see ulimit -v, ulimit -f)");
        close(listen_fd);
        throw error;
    }
    format_segment(segment_, fabric.image(), name_.c_str(), false);
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) == sizeof seed) segment_->fabric.seed = seed;
    created_ = true;
    start_keeper(listen_fd);
    if (!connect_to_keeper()) throw std::runtime_error("the keeper of session '" + name_ + "' does not start");
}

void SessionHold::let_go() {
    if (connection_ >= 0) close(connection_);
    if (segment_) unmap_segment(segment_);
    if (file_ >= 0) close(file_);
    connection_ = file_ = -1;
    segment_ = nullptr;
}

SessionHold::~SessionHold() { let_go(); }

void SessionHold::start_keeper(int listen_fd) {
    if (!spawn_keeper(name_, file_, listen_fd)) throw failure("the keeper of session '" + name_ + "' can't be started");
}

bool SessionHold::connect_to_keeper() {
    int file = -1;
    uint32_t slot = kNone;
    std::string error;
    const int fd = connect_session(name_, HelloKind::launcher, file, slot, error);
    if (fd < 0) {
        // Refused or reset: nobody listens (any more).
        if (errno == ECONNREFUSED || errno == ECONNRESET || errno == EPIPE) return false;
        throw std::runtime_error(error);
    }
    if (!segment_) {
        segment_ = static_cast<Segment*>(map_segment_file(file, false));
        if (!segment_) throw failure("session '" + name_ + "' can't be mapped (address space, see ulimit -v)");
        file_ = file;
    } else {
        // Somebody may have started another session by that name while this one had no keeper.
        orphaned_ = !same_file(file, file_);
        close(file);
        if (orphaned_) {
            close(fd);
            std::fprintf(stderr, "softhca: session '%s' has lost its name to a new one; dead processes stay in it\n",
                         name_.c_str());
            return true;
        }
    }
    connection_ = fd;
    return true;
}

void SessionHold::replace_keeper() {
    const Nanos gone = monotonic_now();
    close(connection_);
    connection_ = -1;
    // All launchers of the session come here at the same time: one binds the name, the others connect.
    for (int attempt = 0; attempt < 200 && connection_ < 0 && !orphaned_; ++attempt) {
        if (attempt) usleep(10'000);
        try {
            if (connect_to_keeper()) continue;
            if (const int listen_fd = bind_session(name_); listen_fd >= 0) start_keeper(listen_fd);
        } catch (const std::exception& e) { std::fprintf(stderr, "softhca: %s\n", e.what()); }
    }
    if (connection_ >= 0) send_state(gone);
}

std::string SessionHold::receive() {
    std::string text(kMaxPacket, 0);
    const ssize_t n = recv(connection_, text.data(), text.size(), MSG_DONTWAIT);
    if (n > 0) {
        text.resize(static_cast<size_t>(n));
        return text.starts_with("log ") ? text.substr(4) : "";
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) replace_keeper();
    return "";
}

void SessionHold::send_text(const std::string& text) {
    if (connection_ >= 0) (void)send(connection_, text.data(), text.size(), MSG_NOSIGNAL);
}

// What a new keeper must be told. Steps before `from` have been executed by its predecessor.
void SessionHold::send_state(Nanos from) {
    if (verbose_) send_text("verbose");
    if (child_) send_text("child " + std::to_string(child_));
    std::string script = "script\n";
    for (const auto& s : steps_) {
        if (s.at < from) continue;
        const std::string line = std::to_string(s.at) + " " + s.fault + "\n";
        if (script.size() + line.size() > kMaxPacket) {
            send_text(script);
            script = "script\n";
        }
        script += line;
    }
    if (script.size() > 7) send_text(script);
}

void SessionHold::watch_child(int32_t pid) { send_text("child " + std::to_string(pid)); }

void SessionHold::start_script(std::vector<ScriptStep> steps) {
    const Nanos now = monotonic_now();
    steps_ = std::move(steps);
    for (auto& s : steps_) s.at += now;
    const auto child = child_;
    child_ = 0;
    send_state(0);
    child_ = child;
}

void SessionHold::be_verbose() {
    verbose_ = true;
    send_text("verbose");
}

} // namespace softhca
