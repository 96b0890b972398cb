#include "core/join.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace softhca {

uint32_t session_address(const std::string& session, sockaddr_un& address) {
    const std::string name = kSocketPrefix + std::to_string(getuid()) + "-" + session;
    if (name.size() + 1 > sizeof address.sun_path) return 0;
    address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size()); // leading 0: abstract, vanishes with its owner
    return static_cast<uint32_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

namespace {

// One Welcome with at most one descriptor.
bool receive_welcome(int fd, Welcome& welcome, int& passed) {
    iovec data{&welcome, sizeof welcome};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n;
    do n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); n > 0 && c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            std::memcpy(&passed, CMSG_DATA(c), sizeof passed);
    if (n == static_cast<ssize_t>(sizeof welcome) && welcome.magic == kHelloMagic) return true;
    if (n >= 0) errno = n == 0 ? ECONNREFUSED : EPROTO; // 0: the keeper was just leaving
    return false;
}

} // namespace

int connect_session(const std::string& session, HelloKind kind, int& segment_fd, uint32_t& slot, std::string& error) {
    sockaddr_un address;
    const uint32_t length = session_address(session, address);
    if (length == 0) {
        error = "session name is too long: " + session;
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        error = std::strerror(errno);
        return -1;
    }
    const timeval limit{60, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    Hello hello;
    hello.kind = kind;
    Welcome welcome;
    segment_fd = -1;
    // Anybody may bind an abstract name: the memory must come from a process of this user.
    ucred peer{};
    socklen_t size = sizeof peer;
    bool ok = connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0;
    if (ok && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid != getuid() && peer.uid != 0) {
        errno = EPERM;
        ok = false;
    }
    ok = ok && send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello) &&
         receive_welcome(fd, welcome, segment_fd);
    if (ok && welcome.status != 0) {
        error = std::string(welcome.text, strnlen(welcome.text, sizeof welcome.text));
        errno = welcome.status;
        ok = false;
    } else if (!ok) {
        if (errno == ECONNRESET || errno == EPIPE) errno = ECONNREFUSED; // it died in the middle: the same to callers
        error = errno == ECONNREFUSED ? "no session '" + session + "' is running"
                : errno == EAGAIN     ? "the keeper of session '" + session + "' does not answer"
                                      : "session '" + session + "': " + std::strerror(errno);
    }
    if (!ok) {
        const int saved = errno;
        if (segment_fd >= 0) close(segment_fd);
        segment_fd = -1;
        close(fd);
        errno = saved;
        return -1;
    }
    slot = welcome.slot;
    return fd;
}

} // namespace softhca
