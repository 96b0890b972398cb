#include "uct_mp/ucx/check/wire.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ucx_mp::check {

namespace {
constexpr int kConnectSeconds = 10, kListenSeconds = 600;
}

Stream::~Stream() {
    if (fd_ >= 0) close(fd_);
}

Stream& Stream::operator=(Stream&& other) noexcept {
    if (fd_ >= 0) close(fd_);
    fd_ = other.fd_;
    other.fd_ = -1;
    return *this;
}

bool Stream::send(const Message& message) const {
    const auto* from = reinterpret_cast<const char*>(&message);
    for (std::size_t at = 0; at < sizeof message;) {
        const ssize_t n = ::send(fd_, from + at, sizeof message - at, MSG_NOSIGNAL);
        if (n <= 0) return false;
        at += static_cast<std::size_t>(n);
    }
    return true;
}

bool Stream::receive(Message& message, int seconds) const {
    const timeval patience{seconds, 0};
    (void)setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    auto* to = reinterpret_cast<char*>(&message);
    for (std::size_t at = 0; at < sizeof message;) {
        const ssize_t n = recv(fd_, to + at, sizeof message - at, 0);
        if (n <= 0) return false;
        at += static_cast<std::size_t>(n);
    }
    return message.magic == kMagic && message.version == kVersion;
}

Stream connect_to(const std::string& host, std::string& error) {
    std::string name = host, port = std::to_string(kPort);
    if (const auto colon = host.rfind(':'); colon != std::string::npos && host.find(':') == colon) {
        name = host.substr(0, colon);
        port = host.substr(colon + 1);
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (const int code = getaddrinfo(name.c_str(), port.c_str(), &hints, &list)) {
        error = "\"" + host + "\": " + gai_strerror(code) + "; HOST or HOST:PORT";
        return Stream();
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
    error = host + ": no address";
    for (const addrinfo* a = list; a; a = a->ai_next) {
        const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        Stream stream(fd);
        const timeval patience{kConnectSeconds, 0}; // of connect(), too
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return stream;
        error = host;
        error += " port ";
        error += port;
        error += ": ";
        error += std::strerror(errno == EINPROGRESS ? ETIMEDOUT : errno);
        error += " (there: mp_info --check --listen ";
        error += port;
        error += ")";
    }
    return Stream();
}

Stream listen_at(unsigned port, std::string& error) {
    const auto trouble = [&] { error = "port " + std::to_string(port) + ": " + std::strerror(errno); };
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool v6 = fd >= 0;
    const int listener = v6 ? fd : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) return trouble(), Stream();
    const Stream owner(listener);
    const int yes = 1, no = 0;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (v6) (void)setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 any6{};
    any6.sin6_family = AF_INET6;
    any6.sin6_port = htons(static_cast<std::uint16_t>(port));
    sockaddr_in any4{};
    any4.sin_family = AF_INET;
    any4.sin_port = any6.sin6_port;
    const auto* address = v6 ? reinterpret_cast<const sockaddr*>(&any6) : reinterpret_cast<const sockaddr*>(&any4);
    if (bind(listener, address, v6 ? sizeof any6 : sizeof any4) || listen(listener, 1)) return trouble(), Stream();
    std::printf("waiting on port %u for: mp_info --check THIS_HOST:%u\n", port, port);
    std::fflush(stdout);
    pollfd p{listener, POLLIN, 0};
    if (poll(&p, 1, kListenSeconds * 1000) != 1) {
        error = "nobody came within ten minutes";
        return Stream();
    }
    const int peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) trouble();
    return Stream(peer);
}

} // namespace ucx_mp::check
