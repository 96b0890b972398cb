// Streams of operations of one kind between two processes, and what has been delivered when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "failover_sim/job.h"

namespace ucx_mp::failover {

enum class Kind : std::uint8_t { message, put, get };
[[nodiscard]] Kind kind_of(const std::string& name); // am, put, get; throws

// When how many bytes were delivered: of messages where they arrive, of puts and gets when they complete.
class Curve {
public:
    void add(Nanos when, std::uint64_t bytes) {
        if (bytes == 0) return;
        if (!points_.empty() && points_.back().when == when)
            points_.back().sum += bytes;
        else
            points_.push_back({when, total() + bytes});
    }
    void clear() { points_.clear(); } // keeps its memory
    [[nodiscard]] std::uint64_t total() const { return points_.empty() ? 0 : points_.back().sum; }
    [[nodiscard]] std::uint64_t until(Nanos t) const;       // delivered up to and including t
    [[nodiscard]] double rate(Nanos from, Nanos to) const { // bytes/ns = GB/s
        return static_cast<double>(until(to) - until(from)) / static_cast<double>(to - from);
    }
    // The first moment from `from` on from which 1, 5, 20 and 60 ms bring what `rate` (bytes/ns) brings in that time,
    // give or take `grain` bytes, since what is delivered comes in pieces. `to` if there is none.
    [[nodiscard]] Nanos full_from(Nanos from, Nanos to, double rate, std::uint64_t grain) const;
    // First delivery after t; 0: none.
    [[nodiscard]] Nanos next_after(Nanos t) const;
    // The longest time without a delivery between the two.
    [[nodiscard]] Nanos longest_gap(Nanos from, Nanos to) const;

private:
    struct Point {
        Nanos when;
        std::uint64_t sum;
    };
    std::vector<Point> points_;
};

// Keeps `window` operations of `size` bytes under way. Messages are numbered; their order and content are checked.
class Flow {
public:
    Flow(Process& from, Process& to, Kind kind, std::size_t size, unsigned window, Curve& curve);
    Flow(const Flow&) = delete;
    void pump();

    [[nodiscard]] Channel& channel() { return channel_; }
    [[nodiscard]] unsigned open() const { return open_; }
    [[nodiscard]] std::uint64_t started() const { return started_; }
    [[nodiscard]] bool idle() const { return open_ == 0 && (kind_ != Kind::message || received_ == started_); }
    [[nodiscard]] std::uint64_t mistakes() const {
        return mistakes_;
    } // messages out of order, twice or changed; failures
    bool paused = false;
    Nanos pace = 0; // least time between two starts
    // The first operation that was started after this moment and is done; for messages delivered.
    Nanos mark = 0, first_after_mark = 0;

private:
    static constexpr std::uint8_t kId = 1;
    struct Op : Completion {
        Flow* flow;
        Nanos started;
    };
    struct Header {
        std::uint64_t number;
        Flow* flow;
        Nanos started;
    };
    static void finished(Completion* self);
    static Status received(void*, void* data, std::size_t length, unsigned);
    void note(Nanos started);

    Process& from_;
    Process& to_;
    Channel& channel_;
    const Kind kind_;
    const std::size_t size_;
    const unsigned window_;
    Curve& curve_;
    Process::Memory mine_, theirs_;
    unsigned open_ = 0;
    Nanos latest_start_ = 0;
    std::uint64_t started_ = 0, received_ = 0, mistakes_ = 0;
    std::vector<std::unique_ptr<Op>> all_;
    std::vector<Op*> spare_;
};

} // namespace ucx_mp::failover
