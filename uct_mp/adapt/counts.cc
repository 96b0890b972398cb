#include "uct_mp/adapt/counts.h"

#include <algorithm>
#include <utility>

namespace ucx_mp::adapt {

namespace {

std::vector<Counts::Entry> sum(const std::vector<Counts::Entry>& a, const std::vector<Counts::Entry>& b) {
    std::vector<Counts::Entry> both;
    auto i = a.begin(), j = b.begin();
    while (i != a.end() || j != b.end()) {
        if (j == b.end() || (i != a.end() && i->id < j->id)) {
            both.push_back(*i++);
        } else if (i == a.end() || j->id < i->id) {
            both.push_back(*j++);
        } else {
            both.push_back({i->id, i->count + j->count});
            ++i, ++j;
        }
    }
    both.shrink_to_fit();
    return both;
}

} // namespace

void Counts::add(Nanos end, std::vector<Entry> entries) {
    slices_.push_back({.begin = end_, .level = 0, .entries = std::move(entries)});
    end_ = end;
    merge();
}

void Counts::merge() {
    for (unsigned level = 0;; ++level) {
        const auto first = std::ranges::find(slices_, level, &Slice::level);
        const auto alike = std::ranges::count(slices_, level, &Slice::level);
        if (alike <= static_cast<std::ptrdiff_t>(kLevel)) return;
        const auto second = first + 1;
        second->entries = sum(first->entries, second->entries);
        second->begin = first->begin;
        second->level = level + 1;
        slices_.erase(first);
    }
}

std::vector<Source> Counts::since(Nanos begin) const {
    std::vector<Source> sources;
    Nanos end = end_;
    for (std::size_t i = slices_.size(); i-- > 0; end = slices_[i].begin) {
        const Slice& slice = slices_[i];
        if (slice.begin < begin && slice.begin + end <= 2 * begin) break;
        for (const Entry& entry : slice.entries) sources.push_back({.id = entry.id, .count = entry.count});
    }
    std::ranges::sort(sources, {}, &Source::id);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < sources.size(); ++i)
        if (kept && sources[kept - 1].id == sources[i].id)
            sources[kept - 1].count += sources[i].count;
        else
            sources[kept++] = sources[i];
    sources.resize(kept);
    return sources;
}

void Counts::forget(Nanos before) {
    while (slices_.size() > 1 && slices_[1].begin <= before) slices_.pop_front();
}

std::size_t Counts::bytes() const {
    std::size_t sum = sizeof *this;
    for (const Slice& slice : slices_) sum += sizeof slice + slice.entries.capacity() * sizeof(Entry);
    return sum;
}

} // namespace ucx_mp::adapt
