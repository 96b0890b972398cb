// Numbered messages between any nodes, of all lengths, posted without waiting: order and each byte are checked.
#pragma once

#include <cstring>
#include <ostream>
#include <vector>

#include "simulator/cluster.h"

namespace ucx_mp::sim {

class Numbered {
public:
    explicit Numbered(Cluster& cluster) : cluster_(cluster), flows_(cluster.size() * cluster.size()) {
        for (unsigned i = 0; i < cluster.size(); ++i) cluster.node(i).on_am(kId, take, this);
    }
    enum class Call : std::uint8_t { am_short, am_bcopy };
    friend std::ostream& operator<<(std::ostream& out, Call call) {
        return out << (call == Call::am_short ? "am_short" : "am_bcopy");
    }
    // `length`: 8 at least. False: no room now, nothing has happened.
    bool post(unsigned from, unsigned to, std::size_t length, Call call) {
        Flow& flow = flow_of(from, to);
        channel::Channel& channel = cluster_.channel(from, to);
        const std::vector<std::byte> message = content(from, flow.sent, length);
        cluster_.world.select(from);
        bool posted;
        if (call == Call::am_short) {
            std::uint64_t header;
            std::memcpy(&header, message.data(), sizeof header);
            posted = channel::Interface::am_short(channel, kId, header, message.data() + sizeof header,
                                                  static_cast<unsigned>(length - sizeof header)) == Status::ok;
        } else {
            const auto pack = [](void* at, void* arg) {
                const auto& all = *static_cast<const std::vector<std::byte>*>(arg);
                std::memcpy(at, all.data(), all.size());
                return all.size();
            };
            posted =
                channel::Interface::am_bcopy(channel, kId, pack, const_cast<std::vector<std::byte>*>(&message)) >= 0;
        }
        flow.sent += posted;
        sent += posted;
        return posted;
    }
    [[nodiscard]] bool all_there() const {
        for (const Flow& flow : flows_)
            if (flow.got != flow.sent) return false;
        return true;
    }
    [[nodiscard]] std::uint32_t sent_by(unsigned from, unsigned to) { return flow_of(from, to).sent; }
    [[nodiscard]] std::uint32_t got_by(unsigned from, unsigned to) { return flow_of(from, to).got; }
    std::uint64_t sent = 0;
    bool wrong = false; // order, length or content

private:
    static constexpr std::uint8_t kId = 11;
    struct Flow {
        std::uint32_t sent = 0, got = 0;
    };
    Flow& flow_of(unsigned from, unsigned to) { return flows_[from * cluster_.size() + to]; }
    static std::vector<std::byte> content(unsigned from, std::uint32_t number, std::size_t length) {
        std::vector<std::byte> message(length);
        for (std::size_t i = 8; i < length; ++i) message[i] = static_cast<std::byte>(number * 131 + i * 7);
        const std::uint64_t first = std::uint64_t{from} << 56 | std::uint64_t{length} << 32 | number;
        std::memcpy(message.data(), &first, sizeof first);
        return message;
    }
    static Status take(void* arg, void* data, std::size_t length, unsigned) {
        auto& self = *static_cast<Numbered*>(arg);
        std::uint64_t first = ~std::uint64_t{0};
        if (length >= sizeof first) std::memcpy(&first, data, sizeof first);
        const auto from = static_cast<unsigned>(first >> 56);
        if (from >= self.cluster_.size()) return self.wrong = true, Status::ok;
        Flow& flow = self.flow_of(from, self.cluster_.progressing());
        const std::vector<std::byte> message = content(from, flow.got++, length);
        self.wrong |= std::memcmp(message.data(), data, length) != 0;
        return Status::ok;
    }
    Cluster& cluster_;
    std::vector<Flow> flows_;
};

} // namespace ucx_mp::sim
