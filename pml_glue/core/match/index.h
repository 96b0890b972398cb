// First-in-first-out queues by key, all in one hash table. Intrusive: an entry brings its link.
//
// A bucket chains keys, not entries: the oldest entry of a key stands in the chain, the others hang behind it. So a
// long queue of one key costs nobody else anything, which plain chaining would not give.
#pragma once

#include <vector>

#include "pml_glue/core/match/envelope.h"

namespace ucx_mp::glue {

struct Link {
    Envelope key{};
    bool linked = false;
    Link* chain = nullptr; // the oldest of its key: the next key of the bucket
    Link* next = nullptr;  // younger, same key
    Link* prev = nullptr;  // older, same key; null: it is the oldest
    Link* last = nullptr;  // the oldest of its key: the youngest
};

// Not synchronised. Links belong to the caller and stay where they are while they are queued.
class Index {
public:
    Index();

    // The oldest of this key, or null. O(1) expected.
    [[nodiscard]] Link* front(const Envelope& key) {
        if (entries_ == 0) return nullptr;
        Link** const place = place_of(key);
        if (*place) found_ = place;
        return *place;
    }
    // Queues behind all of the same key. O(1) expected; allocates when the table grows.
    void push(Link& link, const Envelope& key);
    // O(1) expected.
    void erase(Link& link);
    // The oldest of this key, taken out; or null.
    [[nodiscard]] Link* pop(const Envelope& key) {
        Link** const place = place_of(key);
        Link* const link = *place;
        if (!link) return nullptr;
        found_ = place;
        link->linked = false;
        --entries_;
        take_oldest(place, *link);
        return link;
    }

    [[nodiscard]] bool empty() const { return entries_ == 0; }
    [[nodiscard]] std::size_t size() const { return entries_; }
    // Calls function(Link&) for every entry, oldest of a key first; the function may erase that one. Slow path.
    template <class F> void for_each(F&& function) {
        for (std::size_t i = 0; i < buckets_.size(); ++i)
            for (Link* key = buckets_[i]; key;) {
                Link* const next_key = key->chain;
                for (Link* link = key; link;) {
                    Link* const next = link->next;
                    function(*link);
                    link = next;
                }
                key = next_key;
            }
    }

private:
    // The place of the pointer to the oldest entry of this key, present or not.
    [[nodiscard]] Link** place_of(const Envelope& key) {
        if (found_ && (*found_)->key == key) return found_;
        Link** place = &buckets_[hash(key) & mask_];
        while (*place && !((*place)->key == key)) place = &(*place)->chain;
        return place;
    }
    void take_oldest(Link** place, Link& link);
    void grow();

    std::vector<Link*> buckets_; // a power of two
    std::size_t mask_;
    std::size_t keys_ = 0, entries_ = 0;
    // The place of the oldest entry of the last key: programs queue many of one key. Null, or *found_ is not.
    Link** found_ = nullptr;
};

} // namespace ucx_mp::glue
