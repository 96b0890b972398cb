#include "pml_glue/core/match/matcher.h"

namespace ucx_mp::glue {

StoredMessage& Matcher::message_of(Link& link) { return message_of(link, kExact); }

StoredMessage& Matcher::message_of(Link& link, Kind kind) {
    constexpr std::size_t kOffsets[kKinds] = {offsetof(StoredMessage, exact), offsetof(StoredMessage, by_tag),
                                              offsetof(StoredMessage, by_source), offsetof(StoredMessage, by_context)};
    return *reinterpret_cast<StoredMessage*>(reinterpret_cast<char*>(&link) - kOffsets[kind]);
}

PostedReceive* Matcher::arrive(const Envelope& message) {
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
    if (!first) return nullptr;
    receives_[from].erase(*first);
    return &receive_of(*first);
}

void Matcher::store(StoredMessage& message) {
    const Envelope& key = message.envelope;
    messages_[kExact].push(message.exact, key);
    messages_[kByTag].push(message.by_tag, {key.context, kAnySource, key.tag});
    if (key.tag < 0) return;
    messages_[kBySource].push(message.by_source, {key.context, key.source, kAnyTag});
    messages_[kByContext].push(message.by_context, {key.context, kAnySource, kAnyTag});
}

StoredMessage* Matcher::find(const Envelope& pattern) const {
    const Kind kind = kind_of(pattern);
    Link* const link = messages_[kind].front(pattern);
    return link ? &message_of(*link, kind) : nullptr;
}

void Matcher::take(StoredMessage& message) {
    messages_[kExact].erase(message.exact);
    messages_[kByTag].erase(message.by_tag);
    if (message.envelope.tag < 0) return;
    messages_[kBySource].erase(message.by_source);
    messages_[kByContext].erase(message.by_context);
}

void Matcher::post(PostedReceive& receive, const Envelope& pattern) {
    receive.number = ++posted_number_;
    receives_[kind_of(pattern)].push(receive.link, pattern);
}

bool Matcher::cancel(PostedReceive& receive) {
    if (!receive.link.linked) return false;
    receives_[kind_of(receive.link.key)].erase(receive.link);
    return true;
}

std::size_t Matcher::posted() const {
    std::size_t sum = 0;
    for (const Index& index : receives_) sum += index.size();
    return sum;
}

} // namespace ucx_mp::glue
