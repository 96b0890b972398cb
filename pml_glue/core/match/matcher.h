// Finds the receive for a message and the message for a receive, in MPI's order (MPI-3.1 3.5). A
// receive gets the earliest of the messages that it takes; a message goes to the earliest of the
// receives that take it. Every search is O(1) expected, also with wildcards, whatever else is queued.
//
// Receives stand in one of four tables, by the kind of their pattern; each has its posting number. A message
// asks the tables that are not empty, and the smallest number wins. Messages without a receive stand in four
// tables at once, one for each kind of pattern, so that a receive finds its first one with a single look. A
// table for wildcards is made when the first receive of its kind asks, and kept from then on: most programs
// never pay for it. A receive or message that is the only one of its kind is compared, without any table.
//
// (The scheme of Myrinet 3.2 has bins by the tag modulo 20 and walks lists. That is
// linear in the sender's queue, and has no bin for a receive of any source and any tag.)
#pragma once

#include "pml_glue/core/match/index.h"

namespace ucx_mp::glue {

// The beginning of a receive request. `number` is set when it is posted.
struct PostedReceive {
    Link link;
    std::uint64_t number = 0;
};

// The beginning of a stored message. Messages with a negative tag are not in the tables for any tag.
struct StoredMessage {
    Envelope envelope{};
    std::uint64_t number = 0;                  // of arrival; set by store()
    Link exact, by_tag, by_source, by_context; // by_tag: any source; by_source: any tag; by_context: both
};

// Not synchronised. Owns neither receives nor messages.
class Matcher {
public:
    // A message has come: takes its receive out of the tables. Null: no receive waits, store() it.
    [[nodiscard]] PostedReceive* arrive(const Envelope& message) {
        PostedReceive* const lone = lone_receive_;
        if (!lone) {
            if (in_tables_ == 0) return nullptr;
            if (receives_[kExact].size() != in_tables_) return arrive_among(message); // there are wildcards
            Link* const link = receives_[kExact].pop(message);
            if (!link) return nullptr;
            --in_tables_;
            return &receive_of(*link);
        }
        if (!lone->link.key.takes(message)) return nullptr;
        lone_receive_ = nullptr;
        lone->link.linked = false;
        return lone;
    }
    void store(StoredMessage& message) {
        message.number = ++stored_number_;
        if (lone_message_ || !messages_[kExact].empty()) return store_in_tables(message);
        lone_message_ = &message;
    }

    // A receive or probe asks for its message, which stays stored until take(). Null: post() it.
    [[nodiscard]] StoredMessage* find(const Envelope& pattern) {
        if (lone_message_) return pattern.takes(lone_message_->envelope) ? lone_message_ : nullptr;
        if (messages_[kExact].empty()) return nullptr;
        const Kind kind = kind_of(pattern);
        if (!made_[kind]) [[unlikely]]
            make(kind);
        Link* const link = messages_[kind].front(pattern);
        return link ? &message_of(*link, kind) : nullptr;
    }
    void take(StoredMessage& message) {
        if (&message == lone_message_)
            lone_message_ = nullptr;
        else
            take_out(message);
    }
    void post(PostedReceive& receive, const Envelope& pattern) {
        receive.number = ++posted_number_;
        if (lone_receive_ || in_tables_) return post_beside_others(receive, pattern);
        receive.link.key = pattern;
        receive.link.linked = true;
        lone_receive_ = &receive;
    }
    // False: it has got its message already.
    bool cancel(PostedReceive& receive);

    [[nodiscard]] std::size_t posted() const { return in_tables_ + (lone_receive_ ? 1 : 0); }
    [[nodiscard]] std::uint64_t last_posted() const { return posted_number_; } // its number
    [[nodiscard]] std::size_t stored() const { return messages_[kExact].size() + (lone_message_ ? 1 : 0); }
    // Slow path, in no order; the function may cancel or take the entry that it gets.
    template <class F> void each_posted(F&& function) {
        if (lone_receive_) return function(*lone_receive_, lone_receive_->link.key);
        for (Index& index : receives_) index.for_each([&](Link& link) { function(receive_of(link), link.key); });
    }
    template <class F> void each_stored(F&& function) {
        if (lone_message_) return function(*lone_message_);
        messages_[kExact].for_each([&](Link& link) { function(message_of(link)); });
    }

private:
    enum Kind : unsigned { kExact, kByTag, kBySource, kByContext, kKinds };
    static Kind kind_of(const Envelope& pattern) {
        return static_cast<Kind>((pattern.source == kAnySource ? 1u : 0u) + (pattern.tag == kAnyTag ? 2u : 0u));
    }
    static PostedReceive& receive_of(Link& link) {
        static_assert(offsetof(PostedReceive, link) == 0);
        return reinterpret_cast<PostedReceive&>(link);
    }
    static constexpr std::size_t kOffsets[kKinds] = {offsetof(StoredMessage, exact), offsetof(StoredMessage, by_tag),
                                                     offsetof(StoredMessage, by_source),
                                                     offsetof(StoredMessage, by_context)};
    static StoredMessage& message_of(Link& link, Kind kind = kExact) {
        return *reinterpret_cast<StoredMessage*>(reinterpret_cast<char*>(&link) - kOffsets[kind]);
    }
    static Link& link_of(StoredMessage& message, Kind kind) {
        return *reinterpret_cast<Link*>(reinterpret_cast<char*>(&message) + kOffsets[kind]);
    }
    [[gnu::noinline, gnu::cold]] void make(Kind kind); // the table of messages for this kind of pattern
    void add(StoredMessage& message, Kind kind);
    void post_beside_others(PostedReceive& receive, const Envelope& pattern);
    [[nodiscard, gnu::noinline]] PostedReceive* arrive_among(const Envelope& message);
    PostedReceive* take_first(Kind kind, Link& link) {
        receives_[kind].erase(link);
        --in_tables_;
        return &receive_of(link);
    }
    void store_in_tables(StoredMessage& message);
    void take_out(StoredMessage& message);

    Index receives_[kKinds], messages_[kKinds];
    bool made_[kKinds] = {true, false, false, false};
    bool wild_ = false; // a table but the first is made
    // The only waiting receive is not in the tables, which are empty then.
    PostedReceive* lone_receive_ = nullptr;
    StoredMessage* lone_message_ = nullptr;
    std::size_t in_tables_ = 0; // receives
    std::uint64_t posted_number_ = 0, stored_number_ = 0;
};

} // namespace ucx_mp::glue
