#include "pml_glue/core/match/matcher.h"

#include <algorithm>
#include <utility>

namespace ucx_mp::glue {

PostedReceive* Matcher::arrive_among(const Envelope& message) {
    Link* first = nullptr;
    Kind from = kExact;
    const auto ask = [&](Kind kind, const Envelope& pattern) {
        Link* const link = receives_[kind].front(pattern);
        if (link && (!first || receive_of(*link).number < receive_of(*first).number)) first = link, from = kind;
    };
    ask(kExact, message);
    ask(kByTag, {message.context, kAnySource, message.tag});
    if (message.tag >= 0) {
        ask(kBySource, {message.context, message.source, kAnyTag});
        ask(kByContext, {message.context, kAnySource, kAnyTag});
    }
    return first ? take_first(from, *first) : nullptr;
}

void Matcher::store_in_tables(StoredMessage& message) {
    if (StoredMessage* const first = std::exchange(lone_message_, nullptr)) store_in_tables(*first);
    messages_[kExact].push(message.exact, message.envelope);
    if (!wild_) return;
    for (const Kind kind : {kByTag, kBySource, kByContext})
        if (made_[kind]) add(message, kind);
}

// A pattern with any tag does not see negative ones.
void Matcher::add(StoredMessage& message, Kind kind) {
    Envelope key = message.envelope;
    if (kind != kByTag && key.tag < 0) return;
    if (kind != kBySource) key.source = kAnySource;
    if (kind != kByTag) key.tag = kAnyTag;
    messages_[kind].push(link_of(message, kind), key);
}

void Matcher::make(Kind kind) {
    made_[kind] = wild_ = true;
    std::vector<StoredMessage*> all;
    each_stored([&](StoredMessage& message) { all.push_back(&message); });
    std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->number < b->number; });
    for (StoredMessage* message : all) add(*message, kind);
}

void Matcher::take_out(StoredMessage& message) {
    messages_[kExact].erase(message.exact);
    if (!wild_) return;
    for (const Kind kind : {kByTag, kBySource, kByContext})
        if (Link& link = link_of(message, kind); link.linked) messages_[kind].erase(link);
}

void Matcher::post_beside_others(PostedReceive& receive, const Envelope& pattern) {
    if (PostedReceive* const first = std::exchange(lone_receive_, nullptr)) {
        first->link.linked = false;
        post_beside_others(*first, Envelope(first->link.key));
    }
    ++in_tables_;
    receives_[kind_of(pattern)].push(receive.link, pattern);
}

bool Matcher::cancel(PostedReceive& receive) {
    if (!receive.link.linked) return false;
    if (&receive == lone_receive_) {
        lone_receive_ = nullptr;
        receive.link.linked = false;
        return true;
    }
    receives_[kind_of(receive.link.key)].erase(receive.link);
    --in_tables_;
    return true;
}

} // namespace ucx_mp::glue
