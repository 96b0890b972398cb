// A network within one process, for engines: any number of them, each with a port. Nothing happens at once: messages of
// a pair arrive in order, writes, reads and completions in any order that the standard allows, and there is no room
// whenever the dice say so. Seeded, so a run can be repeated.
//
// Nobody reads `from` of a write before it is executed, which is at any moment up to the completion, or up to the fence
// that the next message waits for: what is sent too early is seen to be wrong.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <random>

#include "pml_glue/core/port.h"

namespace ucx_mp::glue::test {

class FakePort;

class FakeNetwork {
public:
    explicit FakeNetwork(std::uint32_t seed) : random(seed) {}
    std::mt19937 random;
    unsigned hosts = 0;   // processes are on so many, in turn; 0: each on its own
    unsigned no_room = 4; // one of so many operations finds no room; 0: all do
    unsigned refuses = 0; // one of so many operations is refused; 0: none is
    bool can_move = true; // writes and reads
    bool fences_cost = false;
    std::vector<std::uint64_t> exposed;   // open, too: their numbers, of which none comes again
    std::uint64_t exposures = 0;          // that have been
    std::size_t stale = 0;                // moves with keys of one that is not open: must be 0
    std::size_t most_move = 5000;         // bytes of one of them
    std::size_t most_zero_copy = 500;     // bytes of a message without a copy
    unsigned unregistered = 0;            // so many of the next registrations fail
    std::uint64_t unmapped = 0;           // all memory has been so often, and mapped anew: adapters use old pages
    std::size_t registered = 0, keys = 0; // open: must be 0 at the end
    std::vector<FakePort*> ports;
    // If set: whether a peer may write and read there. What it may not fails, as adapters see to it.
    std::function<bool(std::uint64_t address, std::size_t length)> reachable;
    // If set: sees what arrives from another one, before that does.
    std::function<void(FakePort& to, MessageKind kind, const std::vector<std::byte>& data)> tap;
    // One more step of some pair. False: nothing is under way.
    bool step();
    [[nodiscard]] bool dice(unsigned n) { return n && random() % n == 0; }
};

struct FakeMessage {
    MessageKind kind;
    std::vector<std::byte> data;
    Completion* completion; // of a message without a copy: `from` is read on arrival
    const void* from;
    std::size_t length;
    std::uint64_t after; // moves of this number and below come first: the fence
};
struct FakeMove {
    std::uint64_t number;
    bool write;
    void* local;
    std::uint64_t remote;
    std::size_t length;
    Completion* completion;
    bool executed;
    std::uint64_t exposure = 0; // that its key is of; 0: of memory that stays
    bool lost = false;          // from or to pages that the program does not have any more
    bool ok = true;
};

class FakeEndpoint final : public Endpoint {
public:
    FakeEndpoint(FakeNetwork& network, FakePort& from, FakePort& to, bool self);
    Posted send_short(MessageKind kind, std::uint64_t header, const void* payload, std::size_t length) override {
        std::vector<std::byte> data(sizeof header + length);
        std::memcpy(data.data(), &header, sizeof header);
        if (length) std::memcpy(data.data() + sizeof header, payload, length);
        return post({kind, std::move(data), nullptr, nullptr, 0, fence_});
    }
    Posted send_packed(MessageKind kind, Packer packer, void* argument) override {
        if (failed) return Posted::failed;
        if (no_room()) return Posted::no_room;
        // What answers others, or goes on with a message, has no other way: refusing it is the end of the peer.
        if (kind <= 4 && network_.dice(network_.refuses)) return Posted::refused;
        if (kind == 6 && network_.dice(network_.refuses)) return Posted::refused;
        // An operation of a window, and its question for keys.
        if ((kind == 24 || kind == 27) && network_.dice(network_.refuses)) return Posted::refused;
        std::vector<std::byte> data(limits_.max_packed);
        data.resize(packer(data.data(), argument));
        return put_away({kind, std::move(data), nullptr, nullptr, 0, fence_});
    }
    Posted send_zero_copy(MessageKind kind, const void* header, std::size_t header_length, const void* data,
                          std::size_t length, Memory*, Completion& completion) override {
        if (network_.dice(network_.refuses)) return Posted::refused;
        std::vector<std::byte> bytes(header_length);
        std::memcpy(bytes.data(), header, header_length);
        return post({kind, std::move(bytes), &completion, data, length, fence_});
    }
    Posted put(const void* from, std::size_t length, Memory* memory, std::uint64_t to, RemoteKey* key,
               Completion& completion) override {
        const bool lost = network_.unmapped && (pages_of(memory) != network_.unmapped ||
                                                (!exposure_of(key) && pages_of(key) != network_.unmapped));
        return move({++moves_, true, const_cast<void*>(from), to, length, &completion, false, exposure_of(key), lost});
    }
    Posted get(void* to, std::size_t length, Memory*, std::uint64_t from, RemoteKey* key,
               Completion& completion) override {
        return move({++moves_, false, to, from, length, &completion, false, exposure_of(key)});
    }
    Posted fence() override {
        if (failed) return Posted::failed;
        if (no_room()) return Posted::no_room;
        fence_ = moves_;
        return Posted::done;
    }
    Posted put_short(const void* from, std::size_t length, std::uint64_t to, RemoteKey*) override {
        if (failed) return Posted::failed;
        if (no_room()) return Posted::no_room;
        const auto* const bytes = static_cast<const std::byte*>(from);
        return keep({bytes, bytes + length}, to);
    }
    Posted put_packed(Packer packer, void* argument, std::uint64_t to, RemoteKey*) override {
        if (failed) return Posted::failed;
        if (no_room()) return Posted::no_room;
        std::vector<std::byte> data(limits_.max_put_packed);
        data.resize(packer(data.data(), argument));
        return keep(std::move(data), to);
    }
    Posted get_packed(void* to, std::size_t length, std::uint64_t from, RemoteKey*, Completion& completion) override {
        return move({++moves_, false, to, from, length, &completion, false});
    }
    // Ends when all moves from before it are executed.
    Posted flush(Completion& completion) override {
        if (failed) return Posted::failed;
        if (no_room()) return Posted::no_room;
        if (under_way_.empty()) return Posted::done;
        flushes_.push_back({moves_, &completion});
        return Posted::in_progress;
    }
    [[nodiscard]] RemoteKey* unpack_exposed(const std::byte* keys, std::size_t length) override {
        if (!network_.can_move || length < limits_.key_bytes || !unpack_key(keys)) return nullptr;
        std::uint64_t number;
        std::memcpy(&number, keys + 1, sizeof number);
        return reinterpret_cast<RemoteKey*>(2 * number + 1); // odd: no endpoint is there
    }
    [[nodiscard]] bool idle() override {
        return failed || (messages_.empty() && under_way_.empty() && flushes_.empty());
    }
    void hint(Hint) override {}
    void check() override;
    [[nodiscard]] Memory* register_memory(void*, std::size_t) override {
        if (network_.unregistered && network_.unregistered--) return nullptr;
        if (!network_.can_move || network_.dice(16)) return nullptr;
        ++network_.registered;
        return reinterpret_cast<Memory*>(2 * network_.unmapped + 2);
    }
    void deregister(Memory*) override { --network_.registered; }
    [[nodiscard]] bool pack_key(Memory* memory, std::byte* out) override {
        std::memset(out, 0x5a, limits_.key_bytes);
        out[limits_.key_bytes - 1] = static_cast<std::byte>(pages_of(memory));
        return !network_.dice(network_.refuses);
    }
    [[nodiscard]] RemoteKey* unpack_key(const std::byte* key) override {
        if (key[0] != std::byte{0x5a}) return nullptr;
        ++network_.keys;
        return reinterpret_cast<RemoteKey*>(2 * std::to_integer<std::uint64_t>(key[limits_.key_bytes - 1]) + 2);
    }
    void release_key(RemoteKey*) override { --network_.keys; }

    bool step(); // one thing happens; false: nothing is under way
    void fail(); // all that is under way is lost; completions say so
    FakePort& to;
    bool failed = false;
    unsigned checks = 0;

private:
    [[nodiscard]] bool no_room() const;
    Posted post(FakeMessage message) {
        if (failed) return Posted::failed;
        if (no_room()) return Posted::no_room;
        return put_away(std::move(message));
    }
    Posted put_away(FakeMessage message);
    // A write whose data is ours; nobody is told of its end.
    Posted keep(std::vector<std::byte> data, std::uint64_t to) {
        copies_.push_back(std::move(data));
        under_way_.push_back({++moves_, true, copies_.back().data(), to, copies_.back().size(), nullptr, false});
        return Posted::done;
    }
    bool end_flush() {
        for (std::size_t i = 0; i < flushes_.size(); ++i) {
            bool over = true;
            for (const FakeMove& move : under_way_) over &= move.number > flushes_[i].first;
            if (!over) continue;
            Completion* const completion = flushes_[i].second;
            flushes_.erase(flushes_.begin() + static_cast<std::ptrdiff_t>(i));
            completion->done(*completion, true);
            return true;
        }
        return false;
    }
    Posted move(FakeMove move) {
        if (failed) return Posted::failed;
        if (no_room()) return Posted::no_room;
        if (network_.dice(network_.refuses)) return Posted::refused;
        under_way_.push_back(move);
        return Posted::in_progress;
    }
    // Of registered memory and its keys: how often memory had been unmapped before.
    static std::uint64_t pages_of(const void* handle) { return reinterpret_cast<std::uint64_t>(handle) / 2 - 1; }
    static std::uint64_t exposure_of(RemoteKey* key) {
        const auto value = reinterpret_cast<std::uint64_t>(key);
        return value % 2 ? value / 2 : 0;
    }
    void execute(FakeMove& move) {
        if (move.exposure && std::ranges::find(network_.exposed, move.exposure) == network_.exposed.end())
            ++network_.stale;
        auto* const remote = reinterpret_cast<void*>(move.remote);
        move.executed = true;
        move.ok = !network_.reachable || network_.reachable(move.remote, move.length);
        if (move.ok && !move.lost)
            std::memcpy(move.write ? remote : move.local, move.write ? move.local : remote, move.length);
    }

    FakeNetwork& network_;
    FakePort& from_;
    const bool self_;
    std::deque<FakeMessage> messages_;
    std::vector<FakeMove> under_way_;
    std::deque<std::vector<std::byte>> copies_;
    std::vector<std::pair<std::uint64_t, Completion*>> flushes_;
    std::uint64_t moves_ = 0, fence_ = 0;
};

class FakeExposed final : public Exposed {
public:
    explicit FakeExposed(FakeNetwork& network) : network_(network), number_(++network.exposures) {
        network.exposed.push_back(number_);
    }
    FakeExposed(const FakeExposed&) = delete;
    ~FakeExposed() override { std::erase(network_.exposed, number_); }
    [[nodiscard]] std::vector<std::byte> keys() const override {
        if (network_.dice(8)) return {};
        std::vector<std::byte> out(11, std::byte{0x5a});
        std::memcpy(out.data() + 1, &number_, sizeof number_);
        return out;
    }

private:
    FakeNetwork& network_;
    const std::uint64_t number_;
};

class FakePort final : public Port {
public:
    explicit FakePort(FakeNetwork& network) : network_(network), number_(network.ports.size()) {
        network.ports.push_back(this);
    }
    void handle(MessageKind kind, Handler handler, void* argument) override { handlers_.set(kind, handler, argument); }
    void listen(FailureListener& listener) override { this->listener = &listener; }
    [[nodiscard]] std::uint64_t host() const override { return network_.hosts ? 1 + number_ % network_.hosts : 0; }
    [[nodiscard]] std::vector<std::byte> address() const override { return {static_cast<std::byte>(number_)}; }
    [[nodiscard]] std::unique_ptr<Endpoint> connect(const std::byte* address, std::size_t, bool self,
                                                    std::string&) override {
        auto endpoint = std::make_unique<FakeEndpoint>(network_, *this,
                                                       *network_.ports[std::to_integer<std::size_t>(*address)], self);
        endpoints.push_back(endpoint.get());
        return endpoint;
    }
    void disconnect(std::unique_ptr<Endpoint> endpoint) override {
        std::erase(endpoints, static_cast<FakeEndpoint*>(endpoint.get()));
    }
    // The network's steps are what happens; progress() only lets those of this port's endpoints happen.
    unsigned progress() override {
        unsigned count = 0;
        if (stalls) return 0;
        const std::vector<FakeEndpoint*> now = endpoints; // a step may make more
        for (FakeEndpoint* endpoint : now)
            while (network_.random() % 3 && endpoint->step()) ++count;
        return count;
    }
    [[nodiscard]] std::unique_ptr<Exposed> expose(void*, std::size_t) override {
        return std::make_unique<FakeExposed>(network_);
    }
    [[nodiscard]] bool fences_cost() const override { return network_.fences_cost; }
    [[nodiscard]] TaskPort* tasks() override { return task_port.get(); }
    std::unique_ptr<TaskPort> task_port; // if it is set
    void drain() override {}
    [[nodiscard]] std::uint64_t now() const override { return time_ += tick; }
    std::uint64_t tick = 0; // ns from one look at the clock to the next
    [[nodiscard]] std::string traffic() const override { return "fake"; }
    void arrive(MessageKind kind, const std::vector<std::byte>& data) { arrive(kind, data.data(), data.size()); }
    void arrive(MessageKind kind, const std::byte* data, std::size_t length) { handlers_.of(kind)(data, length); }
    [[nodiscard]] bool handles(MessageKind kind) const { return handlers_.of(kind).handler; }
    std::vector<FakeEndpoint*> endpoints;
    FailureListener* listener = nullptr;
    bool stalls = false; // what our endpoints have sent stays on its way
    // Killed: nothing more arrives, and only who asks hears of it.
    bool gone = false;

private:
    FakeNetwork& network_;
    const std::size_t number_;
    mutable std::uint64_t time_ = 0;
};

inline FakeEndpoint::FakeEndpoint(FakeNetwork& network, FakePort& from, FakePort& peer, bool self)
    : to(peer), network_(network), from_(from), self_(self) {
    limits_ = {.max_short = 40,
               .max_packed = 600,
               .max_zero_copy = network.most_zero_copy,
               .max_header = 64,
               .max_get = network.can_move ? network.most_move : 0,
               .max_put = network.can_move ? network.most_move : 0,
               .max_put_short = 40,
               .max_put_packed = 500,
               .max_get_packed = 300,
               .key_bytes = 11};
    // Thresholds of some kilobytes, and zero copies from 260 bytes on.
    costs_ = {.message = 30,
              .latency = 200,
              .byte = 1,
              .copy = 0.5,
              .move = 30,
              .move_latency = 700,
              .move_byte = 1,
              .registration = 100};
}

inline bool FakeEndpoint::no_room() const { return to.gone || network_.dice(network_.no_room); }

inline void FakeEndpoint::check() {
    ++checks;
    if (!to.gone || failed) return;
    fail();
    from_.listener->endpoint_failed(*this);
}

// To ourselves: arrives within the call, as UCT's `self` does it.
inline Posted FakeEndpoint::put_away(FakeMessage message) {
    if (self_ && !message.completion && message.after <= fence_ && under_way_.empty() && messages_.empty()) {
        to.arrive(message.kind, message.data);
        return Posted::done;
    }
    const Posted outcome = message.completion ? Posted::in_progress : Posted::done;
    messages_.push_back(std::move(message));
    return outcome;
}

inline bool FakeEndpoint::step() {
    if (failed || to.gone) return false;
    const std::size_t choices = under_way_.size() + (messages_.empty() ? 0 : 1);
    if (!flushes_.empty() && network_.dice(3) && end_flush()) return true;
    if (choices == 0) return end_flush();
    const std::size_t choice = network_.random() % choices;
    if (choice < under_way_.size()) {
        FakeMove& move = under_way_[choice];
        if (!move.executed) {
            execute(move);
            if (network_.dice(2)) return true;
        }
        Completion* const completion = move.completion;
        const bool ok = move.ok;
        under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(choice));
        if (completion) completion->done(*completion, ok);
        return true;
    }
    FakeMessage& first = messages_.front();
    for (FakeMove& move : under_way_)
        if (move.number <= first.after && !move.executed) return execute(move), true; // what the fence waits for
    FakeMessage message = std::move(first);
    messages_.pop_front();
    if (message.from) {
        const auto* const bytes = static_cast<const std::byte*>(message.from);
        message.data.insert(message.data.end(), bytes, bytes + message.length);
    }
    if (network_.tap) network_.tap(to, message.kind, message.data);
    to.arrive(message.kind, message.data);
    if (message.completion) message.completion->done(*message.completion, true);
    return true;
}

inline void FakeEndpoint::fail() {
    failed = true;
    auto moves = std::move(under_way_);
    auto messages = std::move(messages_);
    under_way_.clear();
    messages_.clear();
    auto flushes = std::move(flushes_);
    flushes_.clear();
    for (FakeMove& move : moves)
        if (move.completion) move.completion->done(*move.completion, false);
    for (auto& [number, completion] : flushes) completion->done(*completion, false);
    for (FakeMessage& message : messages)
        if (message.completion) message.completion->done(*message.completion, false);
}

inline bool FakeNetwork::step() {
    bool any = false;
    for (FakePort* port : ports)
        for (FakeEndpoint* endpoint : port->endpoints) any |= endpoint->step();
    return any;
}

} // namespace ucx_mp::glue::test
