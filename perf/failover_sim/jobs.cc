// Whole jobs: a receiver that computes, a partition in the middle of an alltoall, a cable that flaps.
#include <algorithm>
#include <cstring>

#include "failover_sim/cases.h"
#include "failover_sim/traffic.h"

namespace ucx_mp::failover {

namespace {

constexpr double kMs = 1e6, kUs = 1e3;
Nanos ns(double ms) { return static_cast<Nanos>(ms * kMs); }
double us(Nanos t) { return static_cast<double>(t) / kUs; }

// Queue pairs that exist in the whole fabric, whoever has them.
std::uint64_t queue_pairs(const softhca::sim::World& world) {
    std::uint64_t n = 0;
    for (std::uint32_t device = 0; device < world.image().devices; ++device) n += world.objects(device).queue_pairs;
    return n;
}

// Alltoall, round after round: to every other rank `kMessages` messages and a put, then a message behind a fence that
// says so. The next round begins when that message has come from everybody and everything of ours is done. Nobody is
// more than one round ahead, so puts into two slots in turn don't meet what has not been looked at.
class Rank {
public:
    Rank(Job& job, unsigned index, unsigned rounds)
        : job_(job), self_(job.process(index)), index_(index), rounds_(rounds) {}
    void begin(std::vector<std::unique_ptr<Rank>>& ranks) {
        for (unsigned i = 0; i < ranks.size(); ++i) {
            mine_.push_back(self_.memory(kPut));
            into_.push_back(self_.memory(2 * kPut));
            got_.push_back(0);
        }
        self_.on_am(1, message, this);
        self_.on_am(2, done, this);
        self_.on_turn = [this] { pump(); };
    }
    void connect(std::vector<std::unique_ptr<Rank>>& ranks) {
        for (unsigned i = 0; i < ranks.size(); ++i) {
            to_.push_back(i == index_ ? nullptr : &self_.channel_to(ranks[i]->self_));
            into_peer_.push_back(&ranks[i]->into_[index_]);
            step_.push_back(0);
        }
    }
    void pump() {
        if (pumping_) return;
        pumping_ = true;
        while (round_ < rounds_) {
            bool all = true;
            for (unsigned i = 0; i < to_.size(); ++i)
                if (to_[i]) all &= send(i) && got_[i] > round_;
            if (!all || open_ != 0) break;
            ++round_;
            std::fill(step_.begin(), step_.end(), 0u);
        }
        pumping_ = false;
    }
    [[nodiscard]] bool finished() const { return round_ == rounds_ && open_ == 0; }
    [[nodiscard]] unsigned round() const { return round_; }
    [[nodiscard]] std::uint64_t open() const { return open_; }
    [[nodiscard]] Nanos last_heard() const { return last_heard_; }
    Nanos mark = 0, first_after_mark = 0; // the first message that came after `mark`
    std::uint64_t mistakes = 0;

private:
    static constexpr std::size_t kMessage = 8000, kPut = 256 << 10;
    static constexpr unsigned kMessages = 16;
    struct Op : Completion {
        Rank* rank;
    };
    struct Done {
        std::uint32_t from, round;
    };
    static void finished(Completion* self) {
        auto* op = static_cast<Op*>(self);
        --op->rank->open_;
        if (op->status != Status::ok) ++op->rank->mistakes;
        delete op;
    }
    bool post(Status status, Op* op) {
        if (status == Status::in_progress)
            ++open_;
        else
            delete op;
        if (failed(status) && status != Status::no_resource) ++mistakes;
        return !failed(status);
    }
    // To rank i, as far as there is room; true: all of this round has been sent.
    bool send(unsigned i) {
        channel::Interface& iface = self_.iface();
        for (; step_[i] < kMessages; ++step_[i]) {
            const Iov iov = mine_[i].iov(0, kMessage);
            auto* op = new Op{{finished, 1, Status::ok}, this};
            if (!post(iface.am_zcopy(*to_[i], 1, nullptr, 0, &iov, 1, op), op)) return false;
        }
        if (step_[i] == kMessages) {
            std::memset(mine_[i].data, static_cast<int>(round_ + index_), 8);
            const Iov iov = mine_[i].iov(0, kPut);
            auto* op = new Op{{finished, 1, Status::ok}, this};
            if (!post(iface.put_zcopy(*to_[i], &iov, 1, into_peer_[i]->address(round_ % 2 * kPut), into_peer_[i]->keys,
                                      op),
                      op))
                return false;
            ++step_[i];
        }
        if (step_[i] == kMessages + 1) {
            if (iface.fence(*to_[i]) == Status::no_resource) return false;
            ++step_[i];
        }
        if (step_[i] == kMessages + 2) {
            const Done body{index_, round_};
            std::uint64_t header;
            static_assert(sizeof header == sizeof body);
            std::memcpy(&header, &body, sizeof header);
            if (iface.am_short(*to_[i], 2, header, nullptr, 0) == Status::no_resource) return false;
            ++step_[i];
        }
        return true;
    }
    void heard() {
        last_heard_ = job_.world.now();
        if (mark && !first_after_mark && last_heard_ > mark) first_after_mark = last_heard_;
    }
    static Status message(void* self, void*, std::size_t length, unsigned) {
        auto& rank = *static_cast<Rank*>(self);
        rank.heard();
        if (length != kMessage) ++rank.mistakes;
        return Status::ok;
    }
    static Status done(void* self, void* data, std::size_t, unsigned) {
        auto& rank = *static_cast<Rank*>(self);
        rank.heard();
        Done body;
        std::memcpy(&body, data, sizeof body);
        if (body.round != rank.got_[body.from]++) ++rank.mistakes; // once, in order
        // The put before the fence is there.
        if (rank.into_[body.from].data[body.round % 2 * kPut] != static_cast<std::byte>(body.round + body.from))
            ++rank.mistakes;
        return Status::ok;
    }

    Job& job_;
    Process& self_;
    const unsigned index_, rounds_;
    std::vector<Channel*> to_;
    std::vector<Process::Memory> mine_, into_;
    std::vector<Process::Memory*> into_peer_;
    std::vector<unsigned> step_, got_;
    unsigned round_ = 0;
    std::uint64_t open_ = 0;
    Nanos last_heard_ = 0;
    bool pumping_ = false;
};

} // namespace

void receiver(const CaseOptions& options) {
    CaseOptions o = options;
    Job job(o.fabric, o.rails, {.seed = 1, .payload_limit = 0});
    channel::Config config = config_of(o);
    config.background = true;
    Process &a = job.add(o.from, config), &b = job.add(o.to, config);
    if (o.loud) a.threshold = b.threshold = LogLevel::info;
    job.connect({{0, 1}, {1, 0}});
    Curve curve;
    const Kind kind = kind_of(o.op);
    Flow flow(a, b, kind, o.size ? o.size : kind == Kind::message ? 8000 : 65536, o.window, curve);
    a.on_turn = [&] { flow.pump(); };
    job.poll_every(static_cast<Nanos>(o.poll_us * kUs));
    flow.pump();
    job.run_for(ns(o.warm_up_ms));
    b.activity = o.stopped ? Activity::stopped : Activity::computing;
    const Nanos t0 = job.world.now();
    job.run_for(ns(o.seconds * 1e3));
    const std::uint64_t meanwhile = curve.total() - curve.until(t0);
    b.activity = Activity::running;
    const Nanos t1 = job.world.now();
    job.run_for(ns(100));
    Json out;
    out.text("case", "receiver").text("transport", o.transport).text("op", o.op).number("stopped", o.stopped);
    out.number("seconds", o.seconds).number("delivered_meanwhile", static_cast<double>(meanwhile));
    out.number("resumed_us", us(curve.next_after(t1) - t1));
    count(job).print(out);
    flow.paused = true;
    const bool drained = job.until([&] { return flow.idle(); }, ns(5000));
    out.number("mistakes",
               static_cast<double>(flow.mistakes() + a.peers_failed + b.peers_failed + a.errors + b.errors + !drained));
    out.print();
}

void partition(const CaseOptions& options) {
    constexpr unsigned kRanks = 4;
    Job job(options.fabric, options.rails, {.seed = 1, .payload_limit = 0});
    for (unsigned i = 0; i < kRanks; ++i)
        job.add(i, config_of(options)).threshold = options.loud ? LogLevel::info : LogLevel::error;
    std::vector<std::pair<unsigned, unsigned>> pairs;
    for (unsigned i = 0; i < kRanks; ++i)
        for (unsigned k = 0; k < kRanks; ++k)
            if (i != k) pairs.emplace_back(i, k);
    job.connect(pairs);
    std::vector<std::unique_ptr<Rank>> ranks;
    for (unsigned i = 0; i < kRanks; ++i) ranks.push_back(std::make_unique<Rank>(job, i, options.count));
    for (auto& rank : ranks) rank->begin(ranks);
    for (auto& rank : ranks) rank->connect(ranks);
    job.poll_every(static_cast<Nanos>(options.poll_us * kUs));
    const Nanos begin = job.world.now();
    for (auto& rank : ranks) rank->pump();
    const auto least = [&] {
        unsigned round = options.count;
        for (auto& rank : ranks) round = std::min(round, rank->round());
        return round;
    };
    if (!job.until([&] { return least() >= options.count / 2; }, ns(60'000)))
        throw std::runtime_error("alltoall: no progress");
    const Counters before = count(job);
    const std::uint64_t resident_before = resident();
    job.world.fault(options.fault);
    const Nanos t0 = job.world.now();
    const Nanos t1 = t0 + ns(options.seconds * 1e3);
    std::uint64_t buffers = 0, open = 0, most_resident = 0, pairs_most = 0;
    while (job.world.now() < t1) {
        job.run_for(std::min(ns(100), t1 - job.world.now()));
        const Counters now = count(job);
        std::uint64_t under_way = 0;
        for (auto& rank : ranks) under_way += rank->open();
        buffers = std::max(buffers, now.buffers);
        open = std::max(open, under_way);
        most_resident = std::max(most_resident, resident());
        pairs_most = std::max(pairs_most, queue_pairs(job.world));
    }
    Nanos last = 0;
    for (auto& rank : ranks) last = std::max(last, rank->last_heard());
    for (auto& rank : ranks) rank->mark = t1;
    job.world.fault(options.repair);
    const bool completed = job.until(
        [&] { return std::all_of(ranks.begin(), ranks.end(), [](auto& r) { return r->finished(); }); }, ns(60'000));
    Nanos first = 0, all = 0;
    std::uint64_t mistakes = 0;
    for (unsigned i = 0; i < kRanks; ++i) {
        const Nanos t = ranks[i]->first_after_mark;
        if (t && (!first || t < first)) first = t;
        all = std::max(all, t);
        mistakes += ranks[i]->mistakes + job.process(i).errors + job.process(i).peers_failed;
    }
    Json out;
    out.text("case", "partition")
        .text("transport", options.transport)
        .text("fault", options.fault)
        .number("seconds", options.seconds);
    out.number("completed", completed).number("rounds", options.count);
    out.number("quiet_after_us", last > t0 ? us(last - t0) : 0);
    out.number("first_message_us", first ? us(first - t1) : -1).number("all_ranks_us", first ? us(all - t1) : -1);
    out.number("buffers_before", static_cast<double>(before.buffers) / kRanks)
        .number("buffers_most", static_cast<double>(buffers) / kRanks);
    out.number("operations_open_most", static_cast<double>(open) / kRanks);
    out.number("resident_growth", static_cast<double>(most_resident) - static_cast<double>(resident_before));
    out.number("queue_pairs_most", static_cast<double>(pairs_most))
        .number("job_ms", static_cast<double>(job.world.now() - begin) / kMs);
    count(job).print(out);
    out.number("mistakes", static_cast<double>(mistakes));
    out.print();
}

void flaps(const CaseOptions& options) {
    Job job(options.fabric, options.rails, {.seed = 1, .payload_limit = 0});
    Process &a = job.add(options.from, config_of(options)), &b = job.add(options.to, config_of(options));
    if (options.loud) a.threshold = b.threshold = LogLevel::info;
    job.connect({{0, 1}, {1, 0}});
    Curve messages, writes;
    Flow flow(a, b, Kind::message, 4000, 4, messages);
    Flow puts(a, b, Kind::put, 65536, 2, writes);
    a.on_turn = [&] {
        flow.pump();
        puts.pump();
    };
    job.poll_every(static_cast<Nanos>(options.poll_us * kUs));
    flow.pump();
    puts.pump();
    job.run_for(ns(options.warm_up_ms));
    struct Look {
        unsigned flap;
        std::uint64_t queue_pairs, heap, resident, buffers, returns;
    };
    std::vector<Look> looks;
    const auto look = [&](unsigned flap) {
        const Counters now = count(job);
        looks.push_back({flap, queue_pairs(job.world), heap(), resident(), now.buffers, now.returns});
    };
    const unsigned step = std::max(1u, options.count / 10);
    look(0);
    for (unsigned flap = 1; flap <= options.count; ++flap) {
        job.world.fault(options.fault);
        job.run_for(ns(options.down_ms));
        job.world.fault(options.repair);
        job.run_for(ns(options.after_ms));
        if (flap % step == 0) look(flap);
        messages.clear(); // nothing of ours may grow
        writes.clear();
    }
    flow.paused = puts.paused = true;
    const bool completed = job.until([&] { return flow.idle() && puts.idle(); }, ns(5000));
    Json out;
    out.text("case", "flaps")
        .text("transport", options.transport)
        .number("flaps", options.count)
        .number("hold_down_ms", options.hold_down_ms);
    out.number("completed", completed);
    std::string list = "[";
    for (const Look& l : looks) {
        char item[160];
        std::snprintf(item, sizeof item,
                      "%s{\"flap\": %u, \"queue_pairs\": %llu, \"heap\": %llu, \"resident\": %llu, \"buffers\": %llu, "
                      "\"returns\": %llu}",
                      list.size() > 1 ? ", " : "", l.flap, (unsigned long long)l.queue_pairs,
                      (unsigned long long)l.heap, (unsigned long long)l.resident, (unsigned long long)l.buffers,
                      (unsigned long long)l.returns);
        list += item;
    }
    out.raw("looks", list + "]");
    count(job).print(out);
    out.number("mistakes", static_cast<double>(flow.mistakes() + puts.mistakes() + a.errors + b.errors +
                                               a.peers_failed + b.peers_failed));
    out.print();
}

} // namespace ucx_mp::failover
