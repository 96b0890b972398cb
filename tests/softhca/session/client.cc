#include "session/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "core/join.h"
#include "core/process.h"
#include "session/keeper.h"

namespace softhca {

std::vector<std::string> running_sessions() {
    // Abstract sockets are listed with a leading @; a listening one has the flag 00010000.
    const std::string prefix = "@" + std::string(kSocketPrefix) + std::to_string(getuid()) + "-";
    std::vector<std::string> names;
    std::ifstream in("/proc/net/unix");
    for (std::string line; std::getline(in, line);) {
        const size_t at = line.find(prefix);
        if (at != std::string::npos && line.find(" 00010000 ") < at) names.push_back(line.substr(at + prefix.size()));
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::string choose_session(const std::string& given) {
    if (!given.empty()) return given;
    if (const char* name = std::getenv(kSessionEnv); name && *name) return name;
    const auto names = running_sessions();
    if (names.size() == 1) return names[0];
    if (names.empty()) throw std::runtime_error("no session is running");
    std::string list;
    for (const auto& n : names) list += " " + n;
    throw std::runtime_error("several sessions are running, choose with --session:" + list);
}

std::string send_command(const std::string& session, const std::string& command) {
    int file = -1;
    uint32_t slot = kNone;
    std::string error;
    const int fd = connect_session(session, HelloKind::command, file, slot, error);
    if (fd < 0) throw std::runtime_error(error);
    close(file);
    const timeval limit{60, 0}; // opensm on a large fabric
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::string answer(kMaxPacket, 0);
    ssize_t n = send(fd, command.data(), command.size(), MSG_NOSIGNAL);
    if (n >= 0) n = recv(fd, answer.data(), answer.size(), 0);
    close(fd);
    if (n <= 0) throw std::runtime_error("session '" + session + "' ended or does not answer");
    answer.resize(static_cast<size_t>(n));
    if (answer.starts_with("error ")) throw std::runtime_error(answer.substr(6));
    if (!answer.starts_with("ok ")) throw std::runtime_error("session '" + session + "' answers strangely");
    return answer.substr(3);
}

Observer::Observer(const std::string& session) {
    int file = -1;
    uint32_t slot = kNone;
    std::string error;
    connection_ = connect_session(session, HelloKind::observer, file, slot, error);
    if (connection_ < 0) throw std::runtime_error(error);
    segment_ = static_cast<Segment*>(map_segment_file(file, true));
    const int saved = errno;
    close(file);
    if (segment_) return;
    close(connection_);
    throw std::runtime_error("can't map session '" + session + "': " + std::strerror(saved));
}

Observer::~Observer() {
    unmap_segment(segment_);
    close(connection_);
}

bool Observer::session_over() {
    pollfd p{connection_, POLLIN, 0};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLIN));
}

} // namespace softhca
