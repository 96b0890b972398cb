#include "group.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace ucx_mp::collect_sim {

Group::Group(Cluster& cluster, const std::vector<Process*>& processes, Schedule schedule, Engine engine,
             const Costs& costs, unsigned in_flight)
    : cluster_(cluster), schedule_(std::move(schedule)), engine_(engine), costs_(costs), slots_(in_flight),
      bytes_(schedule_.size()), members_(schedule_.size()) {
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank) bytes_[rank].resize(schedule_[rank].from.size());
    for (const Part& part : schedule_)
        for (const Put& put : part.puts) {
            bytes_[put.to][put.word] = put.bytes;
            largest_ = std::max(largest_, put.bytes);
        }
    for (unsigned rank = 0; rank < members_.size(); ++rank) {
        Member& m = members_[rank];
        m.process = processes[rank];
        m.rank = rank;
        m.part = &schedule_[rank];
        data_at_.push_back((slots_ * m.part->from.size() + 1) * kApart);
        m.memory.resize(data_at_.back() + (largest_ + 7) / 8);
        m.exposed = m.process->tasks.expose(m.memory.data(), m.memory.size() * sizeof(std::uint64_t));
        m.operations.resize(slots_);
    }
    connect();
}

void Group::connect() {
    const auto settled = [this] {
        bool all = true;
        for (Member& m : members_) {
            m.process->tasks.progress();
            for (unsigned rail = 0; rail < m.process->tasks.rails(); ++rail) {
                const auto can = m.process->tasks.can_wait(rail);
                if (can == glue::TaskPort::Can::no) throw std::runtime_error("an adapter of the fabric cannot wait");
                all &= can == glue::TaskPort::Can::yes;
            }
        }
        return all;
    };
    while (!settled()) { // the self-test takes its time
        (void)cluster_.world.at(cluster_.world.now() + 100'000, [] {});
        cluster_.run_for(100'000);
    }
    // One queue for each pair that has something for each other; requests of an operation, of one side.
    std::map<std::pair<unsigned, unsigned>, unsigned> requests;
    for (unsigned rank = 0; rank < members_.size(); ++rank)
        for (const Put& put : schedule_[rank].puts) {
            requests[{rank, put.to}] += static_cast<unsigned>(put.after.size()) + 2;
            requests.try_emplace({put.to, rank});
        }
    const auto half = [&](unsigned rank, unsigned to, unsigned number) {
        Member& m = members_[rank];
        const unsigned rail = number % m.process->tasks.rails();
        auto queue = m.process->tasks.create(rail, std::max(4u, slots_ * requests[{rank, to}]), *m.exposed, *m.exposed);
        if (!queue) throw std::runtime_error("no room for a queue that waits");
        return (m.queues[to] = std::move(queue)).get();
    };
    std::vector<unsigned> pairs(members_.size());
    for (const auto& [pair, unused] : requests) {
        const auto [a, b] = pair;
        if (a > b) continue;
        const unsigned number = pairs[a]++;
        std::byte told[glue::TaskQueue::kHalf];
        glue::TaskQueue *x = half(a, b, number), *y = half(b, a, number);
        x->tell(told);
        bool connected = y->connect(told, members_[a].exposed->keys(), members_[a].exposed->keys());
        y->tell(told);
        connected &= x->connect(told, members_[b].exposed->keys(), members_[b].exposed->keys());
        if (!connected) throw std::runtime_error("a queue cannot be connected");
    }
}

bool Group::all_here(const Member& m, std::uint64_t number, const std::vector<unsigned>& words) const {
    return std::ranges::all_of(words, [&](unsigned w) { return here(m, number, w); });
}

// What a processor has to do with data of this size.
Nanos Group::handled(std::uint64_t bytes, bool puts) const {
    if (bytes > costs_.small) return puts ? costs_.pin : 0;
    return static_cast<Nanos>((puts ? costs_.byte_out : costs_.byte_in) * static_cast<double>(bytes));
}

void Group::start(unsigned rank) {
    Member& m = members_[rank];
    const std::uint64_t number = m.started++;
    Operation& o = operation(m, number);
    o = {.number = number,
         .put = std::vector<bool>(m.part->puts.size()),
         .taken = std::vector<bool>(m.part->from.size()),
         .left = static_cast<unsigned>(m.part->puts.size()),
         .posted = {}};
    if (engine_ == Engine::host) {
        (void)advance(m, o, false);
        return;
    }
    spend(m, costs_.start);
    // The root's data, or that which every rank gives.
    const bool gives = !m.part->puts.empty() && m.part->puts.front().bytes != 0 && m.part->puts.front().after.empty();
    if (gives) spend(m, handled(m.part->puts.front().bytes, true));
    for (unsigned i = 0; i < m.part->puts.size(); ++i) post(m, o, i);
}

void Group::post(Member& m, Operation& o, unsigned index) {
    const Put& put = m.part->puts[index];
    const Member& to = members_[put.to];
    std::vector<const std::uint64_t*> words;
    if (engine_ == Engine::adapter)
        for (const unsigned w : put.after) words.push_back(word(m, o.number, w));
    const auto data = [&](const Member& of) { return &of.memory[data_at_[of.rank]]; };
    glue::TaskQueue& queue = *m.queues.at(put.to);
    const auto address = [](const std::uint64_t* p) { return reinterpret_cast<std::uint64_t>(p); };
    if (!queue.post({.words = words,
                     .value = o.number + 1,
                     .from = put.bytes ? data(m) : nullptr,
                     .bytes = put.bytes,
                     .to = put.bytes ? address(data(to)) : 0,
                     .word = address(word(to, o.number, put.word))}))
        throw std::runtime_error("a queue that waits has no room");
    o.put[index] = true;
    --o.left;
    const bool copied = engine_ == Engine::host && put.bytes <= costs_.small;
    if (put.bytes && !copied) o.posted.emplace_back(&queue, queue.state().posted);
}

void Group::take(Member& m, Operation& o, unsigned index) {
    if (o.taken[index]) return;
    o.taken[index] = true;
    spend(m, costs_.receive + cluster_.world.host_costs().poll_hit + handled(bytes_[m.rank][index], false));
}

// What the host does for an operation.
bool Group::advance(Member& m, Operation& o, bool look_only) {
    if (engine_ == Engine::adapter) return false;
    bool any = false;
    for (unsigned i = 0; o.left != 0 && i < m.part->puts.size(); ++i) {
        if (o.put[i]) continue;
        const Put& put = m.part->puts[i];
        if (!all_here(m, o.number, put.after)) {
            if (m.part->in_order) break;
            continue;
        }
        if (look_only) return true;
        for (const unsigned w : put.after) take(m, o, w);
        spend(m, costs_.send + handled(put.bytes, true));
        post(m, o, i);
        any = true;
    }
    return any;
}

bool Group::progress(unsigned rank, bool look_only) {
    Member& m = members_[rank];
    bool any = false;
    for (std::uint64_t n = m.started > slots_ ? m.started - slots_ : 0; n < m.started; ++n)
        any |= advance(m, operation(m, n), look_only);
    return any;
}

bool Group::done(unsigned rank, std::uint64_t number) {
    Member& m = members_[rank];
    Operation& o = operation(m, number);
    if (o.number != number || o.finished) return true;
    if (o.left != 0 || !all_here(m, number, m.part->awaited)) return false;
    const auto has_left = [](const auto& posted) { return posted.first->state().done >= posted.second; };
    if (m.part->sent && !std::ranges::all_of(o.posted, has_left)) return false;
    o.finished = true;
    if (engine_ == Engine::host) {
        for (const unsigned w : m.part->awaited) take(m, o, w);
    } else if (!m.part->awaited.empty()) {
        spend(m, costs_.finish + handled(bytes_[m.rank][m.part->awaited.front()], false));
    }
    return true;
}

bool Group::over(unsigned rank, std::uint64_t number) const {
    const Member& m = members_[rank];
    return all_here(m, number, m.part->freeing);
}

} // namespace ucx_mp::collect_sim
