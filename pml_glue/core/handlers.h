// The handlers of each kind of message. Messages can be held back: then all that come are
// kept, and given back later in their order. No message pays for that: the handlers change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ucx_mp::glue {

// Numbers of message kinds are the engine's; below 32.
using MessageKind = std::uint8_t;
// Called from progress(), or from within a call that sends to this process itself. The bytes are gone when it returns.
using Handler = void (*)(void* argument, const std::byte* data, std::size_t length);

class MessageHandlers {
public:
    struct Called { // stays in its place
        Handler handler = nullptr;
        void* argument = nullptr;
        void operator()(const std::byte* data, std::size_t length) const { handler(argument, data, length); }
    };
    MessageHandlers() = default;
    MessageHandlers(const MessageHandlers&) = delete;

    // Not while messages are held back.
    void set(MessageKind kind, Handler handler, void* argument) { called_[kind] = {handler, argument}; }
    [[nodiscard]] Called& of(MessageKind kind) { return called_[kind]; }
    [[nodiscard]] const Called& of(MessageKind kind) const { return called_[kind]; }

    // Holds back a message that must not be taken now, and all behind it. From within a handler. Slow path.
    void hold_back(MessageKind kind, const std::byte* data, std::size_t length) {
        if (held_.empty())
            for (MessageKind each = 0; each < kKinds; ++each) {
                aside_[each] = called_[each];
                holders_[each] = {this, each};
                if (called_[each].handler) called_[each] = {keep, &holders_[each]};
            }
        held_.push_back({kind, {data, data + length}});
    }
    [[nodiscard]] std::size_t held_back() const { return held_.size(); }
    // Calls their handlers.
    void give_back() {
        if (held_.empty()) return;
        for (MessageKind each = 0; each < kKinds; ++each) called_[each] = aside_[each];
        std::vector<Held> held;
        held.swap(held_);
        for (const Held& each : held) called_[each.kind](each.data.data(), each.data.size());
    }

private:
    struct Held {
        MessageKind kind;
        std::vector<std::byte> data;
    };
    struct Holder { // stands in for the handler of a kind
        MessageHandlers* handlers;
        MessageKind kind;
    };
    static void keep(void* holder, const std::byte* data, std::size_t length) {
        const Holder& of = *static_cast<Holder*>(holder);
        of.handlers->hold_back(of.kind, data, length);
    }
    static constexpr MessageKind kKinds = 32;
    Called called_[kKinds], aside_[kKinds]; // aside_: while messages are held back
    Holder holders_[kKinds] = {};
    std::vector<Held> held_;
};

} // namespace ucx_mp::glue
