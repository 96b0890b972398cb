#include "pml_glue/core/match/index.h"

#include <cassert>

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kFirstBuckets = 64;
}

Index::Index() : buckets_(kFirstBuckets), mask_(kFirstBuckets - 1) {}

void Index::push(Link& link, const Envelope& key) {
    assert(!link.linked);
    link.key = key;
    link.linked = true;
    link.next = link.chain = nullptr;
    ++entries_;
    Link** const place = place_of(key);
    found_ = place;
    if (Link* const oldest = *place) {
        link.prev = oldest->last;
        oldest->last->next = &link;
        oldest->last = &link;
        return;
    }
    link.prev = nullptr;
    link.last = &link;
    *place = &link;
    if (++keys_ > buckets_.size()) grow();
}

void Index::erase(Link& link) {
    assert(link.linked);
    link.linked = false;
    --entries_;
    if (link.prev) {
        link.prev->next = link.next;
        if (link.next)
            link.next->prev = link.prev;
        else
            (*place_of(link.key))->last = link.prev;
        return;
    }
    Link** const place = place_of(link.key);
    assert(*place == &link);
    take_oldest(place, link);
}

void Index::take_oldest(Link** place, Link& link) {
    if (found_ == &link.chain) found_ = nullptr; // it stood in the part that goes
    if (Link* const heir = link.next) {
        heir->prev = nullptr;
        heir->last = link.last;
        heir->chain = link.chain;
        *place = heir;
    } else {
        *place = link.chain;
        --keys_;
        if (found_ == place) found_ = nullptr;
    }
}

void Index::grow() {
    found_ = nullptr;
    std::vector<Link*> old(buckets_.size() * 2);
    old.swap(buckets_);
    mask_ = buckets_.size() - 1;
    for (Link* key : old)
        while (key) {
            Link* const next = key->chain;
            Link*& bucket = buckets_[hash(key->key) & mask_];
            key->chain = bucket;
            bucket = key;
            key = next;
        }
}

} // namespace ucx_mp::glue
