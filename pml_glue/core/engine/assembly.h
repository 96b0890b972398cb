// Messages that come in several pieces: the first has the envelope, the others name it by its sender and a number. The
// transport keeps the order of one sender's pieces; those of different messages may mix.
#pragma once

#include <memory>

#include "pml_glue/core/engine/request.h"

namespace ucx_mp::glue {

// A message that is not complete. Its data goes to `request`, or is stored in
// `entry` as long as no receive wants it. Neither: nobody wants it any more.
struct Assembly {
    Link link;
    Request* request = nullptr;
    StoredEntry* entry = nullptr;
    std::size_t bytes = 0, arrived = 0;
    Assembly* next_free = nullptr;
};

// Not synchronised. Every search is O(1) expected; mostly the next piece is of the same message as the last one.
class Assemblies {
public:
    // Null: a message of this name is open already.
    [[nodiscard]] Assembly* open(std::uint64_t sender, std::uint32_t number) {
        if (index_.front(key(sender, number))) return nullptr;
        if (!free_) {
            all_.push_back(std::make_unique<Assembly>());
            free_ = all_.back().get();
        }
        Assembly* const out = free_;
        free_ = out->next_free;
        *out = {};
        index_.push(out->link, key(sender, number));
        return last_ = out;
    }
    [[nodiscard]] Assembly* find(std::uint64_t sender, std::uint32_t number) {
        if (last_ && last_->link.key == key(sender, number)) [[likely]]
            return last_;
        Link* const link = index_.front(key(sender, number));
        return link ? last_ = of(*link) : nullptr;
    }
    void close(Assembly& assembly) {
        index_.erase(assembly.link);
        if (last_ == &assembly) last_ = nullptr;
        assembly.next_free = free_;
        free_ = &assembly;
    }
    // Calls the function for those of one sender; it may close the one that it gets. Slow path.
    template <class F> void each_of(std::uint64_t sender, F&& function) {
        const Envelope wanted = key(sender, 0);
        index_.for_each([&](Link& link) {
            if (link.key.context == wanted.context && link.key.source == wanted.source) function(*of(link));
        });
    }
    // The senders of messages that a request waits for. Slow path.
    template <class F> void each_wanted(F&& function) {
        index_.for_each([&](Link& link) {
            if (of(link)->request) function(sender_of(link.key));
        });
    }
    [[nodiscard]] std::size_t size() const { return index_.size(); }

private:
    static Envelope key(std::uint64_t sender, std::uint32_t number) {
        return {.context = static_cast<std::uint32_t>(sender >> 32),
                .source = static_cast<std::int32_t>(sender),
                .tag = static_cast<std::int32_t>(number)};
    }
    static std::uint64_t sender_of(const Envelope& key) {
        return std::uint64_t{key.context} << 32 | static_cast<std::uint32_t>(key.source);
    }
    static Assembly* of(Link& link) {
        static_assert(offsetof(Assembly, link) == 0);
        return reinterpret_cast<Assembly*>(&link);
    }

    Index index_;
    std::vector<std::unique_ptr<Assembly>> all_;
    Assembly *free_ = nullptr, *last_ = nullptr;
};

} // namespace ucx_mp::glue
