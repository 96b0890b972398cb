// Messages of the two ends of `mp_info --check` over a stream: questions of the end that checks,
// one answer for each. Fixed size, little endian. Also used within one process, over a socket pair.
#pragma once

#include <cstdint>
#include <string>

#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::check {

inline constexpr std::uint32_t kMagic = 0x6d70636bu; // "kcpm"
inline constexpr std::uint16_t kVersion = 2;
inline constexpr unsigned kQueuePairs = 6; // per lane, from one port to one port

enum class Ask : std::uint16_t {
    rails,   // -> Answer::rails, memory, keys
    lane,    // at `rail`, the other ends of its queue pairs: -> those here
    query,   // -> value: rq_psn; error: errno of ibv_query_qp
    fail,    // the queue pair goes to the error state
    message, // the next message on `lane`: is `value` at `offset` when it has come? Answers twice: armed, then value 1
             // or 0
    last_word, // the last word of `length` bytes becomes `value`: are they all? Answers twice: armed, then value 1 or 0
    alternate, // loads the other route: `ends[0]`
    migration, // -> value: path_mig_state; length: PATH_MIG events so far
    target,    // a DC target at `lane` -> number; key
    end,
};

#pragma pack(push, 1)
struct End { // An end of a queue pair.
    std::uint32_t number;
    std::uint32_t psn;
    std::uint16_t lid;
    std::uint8_t mtu;
    std::uint8_t path_bits;
    std::uint8_t gid[16];
};
struct RailFacts {
    std::uint64_t subnet;
    std::uint8_t device, active, ethernet, lmc;
    std::uint16_t lid;
    std::uint8_t mtu, roce_2;
    std::uint8_t gid[16];
    char name[32];
};
struct Message {
    std::uint32_t magic = kMagic;
    std::uint16_t version = kVersion;
    Ask ask = Ask::end;
    std::int32_t error = 0; // errno
    std::uint16_t lane = 0, queue_pair = 0, rail = 0, count = 0;
    std::uint32_t number = 0;
    std::uint64_t offset = 0, length = 0, value = 0, key = 0;
    std::uint64_t memory = 0; // address in the answering end's memory
    std::uint32_t rkey[verbs::kMaxDevices] = {};
    End ends[kQueuePairs] = {};
    RailFacts rails[verbs::kMaxRails] = {};
};
#pragma pack(pop)
static_assert(sizeof(End) == 28 && sizeof(RailFacts) == 64);
static_assert(sizeof(Message) == 96 + sizeof(End) * kQueuePairs + sizeof(RailFacts) * verbs::kMaxRails);

// A connected stream; every wait is bounded.
class Stream {
public:
    explicit Stream(int fd = -1) : fd_(fd) {}
    ~Stream();
    Stream(Stream&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Stream& operator=(Stream&& other) noexcept;
    [[nodiscard]] bool send(const Message& message) const;
    // False: no message for `seconds`, or one that this version does not understand.
    [[nodiscard]] bool receive(Message& message, int seconds = 20) const;
    [[nodiscard]] bool good() const { return fd_ >= 0; }

private:
    int fd_;
};

// "HOST" or "HOST:PORT". Not good(): `error` is one line.
[[nodiscard]] Stream connect_to(const std::string& host, std::string& error);
// Waits for one, at most ten minutes.
[[nodiscard]] Stream listen_at(unsigned port, std::string& error);
inline constexpr unsigned kPort = 18515;

} // namespace ucx_mp::check
