// A peer in another process, on another node: the same test program, started again with the test case `other_side`. It
// has one interface, counts what it gets, and does what it is told over a socket.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "fixture.h"

extern char** environ;

namespace uct_test {

inline constexpr std::uint8_t kCounted = 7;
inline constexpr std::size_t kShared = 1 << 22; // bytes that may be written

struct Order {
    enum What : std::uint32_t { progress, compute, count, quit } what; // compute: no progress until the next order
};
struct Hello { // from the other side, when it is ready
    std::uint8_t device[32], address[64], key[256];
    std::uint64_t memory;
    pid_t pid;
};

inline bool send_all(int fd, const void* data, std::size_t size) {
    return ::send(fd, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}
inline bool receive_all(int fd, void* data, std::size_t size) {
    return ::recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

// What `other_side` does.
inline void serve_other_process() {
    const int fd = std::atoi(std::getenv("UCT_TEST_SOCKET"));
    const char* const transport = std::getenv("UCT_TEST_TRANSPORT");
    Domain domain;
    Interface iface(domain, transport);
    std::uint64_t received = 0;
    uct_iface_set_am_handler(
        iface.iface, kCounted,
        [](void* arg, void*, std::size_t, unsigned) {
            ++*static_cast<std::uint64_t*>(arg);
            return UCS_OK;
        },
        &received, 0);
    std::vector<char> shared(kShared);
    Memory memory(domain, shared.data(), shared.size());
    Hello hello{};
    std::memcpy(hello.device, iface.device_address.data(), iface.device_address.size());
    std::memcpy(hello.address, iface.address.data(), iface.address.size());
    std::memcpy(hello.key, memory.packed.data(), memory.packed.size());
    hello.memory = reinterpret_cast<std::uint64_t>(shared.data());
    hello.pid = getpid();
    BOOST_REQUIRE(send_all(fd, &hello, sizeof hello));
    bool computing = true;
    for (Order order{}; order.what != Order::quit;) {
        while (!computing) {
            char peek;
            if (::recv(fd, &peek, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) break;
            uct_worker_progress(domain.worker);
        }
        if (!receive_all(fd, &order, sizeof order)) return; // the test is gone
        if (order.what <= Order::compute) computing = order.what == Order::compute;
        BOOST_REQUIRE(send_all(fd, &received, sizeof received));
    }
}

// The test's side. Born computing.
class Other {
public:
    explicit Other(const char* transport) {
        int fds[2];
        BOOST_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        BOOST_REQUIRE(fcntl(fds[0], F_SETFD, FD_CLOEXEC) == 0);
        fd_ = fds[0];
        timeval limit{20, 0};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        std::vector<std::string> own{"SOFTHCA_NODE=1", "UCT_TEST_SOCKET=" + std::to_string(fds[1]),
                                     std::string("UCT_TEST_TRANSPORT=") + transport};
        std::vector<char*> env;
        for (char** e = environ; *e; ++e)
            if (std::strncmp(*e, "SOFTHCA_NODE=", 13) != 0) env.push_back(*e);
        for (std::string& e : own) env.push_back(e.data());
        env.push_back(nullptr);
        char program[] = "/proc/self/exe", name[] = "--run_test=other_side", quiet[] = "--log_level=error",
             report[] = "--report_level=no";
        char* argv[] = {program, name, quiet, report, nullptr};
        BOOST_REQUIRE(posix_spawn(&pid_, program, nullptr, nullptr, argv, env.data()) == 0);
        ::close(fds[1]);
        BOOST_REQUIRE(receive_all(fd_, &hello, sizeof hello));
    }
    ~Other() {
        if (pid_ > 0) kill();
        ::close(fd_);
    }
    Other(const Other&) = delete;

    // Returns how many messages it had got.
    std::uint64_t tell(Order::What what) {
        const Order order{what};
        std::uint64_t received = 0;
        BOOST_REQUIRE(send_all(fd_, &order, sizeof order));
        BOOST_REQUIRE(receive_all(fd_, &received, sizeof received));
        return received;
    }
    void put(const void* data, std::size_t size) const { BOOST_REQUIRE(send_all(fd_, data, size)); }
    void get(void* data, std::size_t size) const { BOOST_REQUIRE(receive_all(fd_, data, size)); }
    void signal(int number) const { BOOST_REQUIRE(::kill(pid_, number) == 0); }
    void kill() {
        ::kill(pid_, SIGKILL);
        wait();
    }
    int wait() { // for its end; the exit status
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return status;
    }
    [[nodiscard]] uct_ep_h connect(Interface& from) {
        return from.connect(reinterpret_cast<uct_device_addr_t*>(hello.device),
                            reinterpret_cast<uct_iface_addr_t*>(hello.address));
    }
    Hello hello{};

private:
    pid_t pid_ = -1;
    int fd_ = -1;
};

} // namespace uct_test
