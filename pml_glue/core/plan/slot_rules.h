// When a collective operation may start, so that its messages find a free slot at every
// member without acknowledgments. Pure; tests/pml/test_slots.cc tries all orders.
//
// Operations of a group are numbered in the order of the calls, which is the same at all members. Number m uses slot
// m mod K. W operations may be under way. K is 2W, or more: here the next power of two.
//
//   1. m starts when all up to m - W are finished here.
//   2. m starts when some synchronising operation among m - W .. m - 1 is finished here. The beginning counts as one:
//      the group was empty then. A barrier with a number of its own is put in when W/2 - 1 operations (at least one) in
//      a row do not synchronise, so that there is always one.
//
// Then S >= m - W is finished here, so all have started S, so by rule 1 all have finished
// S - W >= m - K, which used the slot. Both rules say: m < (number known to be over) + W.
//
// `finished`: all its parts are taken, and all its messages have left.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>

namespace ucx_mp::glue {

class SlotRules {
public:
    static constexpr unsigned kMostInFlight = 32;
    // `in_flight`: W, from 2 to kMostInFlight; the same at all members.
    explicit SlotRules(unsigned in_flight)
        : in_flight_(in_flight), row_limit_(std::max(1u, in_flight / 2 - 1)), mask_(std::bit_ceil(2 * in_flight) - 1) {
        assert(in_flight >= 2 && in_flight <= kMostInFlight);
    }
    [[nodiscard]] unsigned slots() const { return mask_ + 1; }
    [[nodiscard]] unsigned slot(std::uint64_t number) const { return static_cast<unsigned>(number) & mask_; }

    // Whether a barrier has to be put in before the next operation, which does not synchronise.
    [[nodiscard]] bool barrier_due() const { return row_ >= row_limit_; }
    [[nodiscard]] std::uint64_t given() const { return next_; } // numbers
    [[nodiscard]] std::uint64_t next(bool synchronises) {
        row_ = synchronises ? 0 : row_ + 1;
        return next_++;
    }
    // Whether the first operation that has not started may. They start in the order of their numbers.
    [[nodiscard]] bool may_start(std::uint64_t number) const {
        return number < std::min(lowest_, synchronised_) + in_flight_;
    }
    // Started operations may end in any order.
    void finish(std::uint64_t number, bool synchronises) {
        if (synchronises) synchronised_ = std::max(synchronised_, number + 1);
        finished_ |= std::uint64_t{1} << (number - lowest_);
        const int over = std::countr_one(finished_); // at most kMostInFlight
        finished_ >>= over;
        lowest_ += static_cast<unsigned>(over);
    }
    // The number that ends with these bits, if its slot may be in use: it is among the
    // next K that are not finished. False: no member can have sent a message of it.
    [[nodiscard]] bool find(std::uint32_t bits, std::uint32_t mask, std::uint64_t& number) const {
        const std::uint32_t ahead = (bits - static_cast<std::uint32_t>(lowest_)) & mask;
        number = lowest_ + ahead;
        return ahead < slots() && !(finished_ >> ahead & 1);
    }
    [[nodiscard]] bool idle() const { return lowest_ == next_; } // everything that has a number is finished

private:
    const unsigned in_flight_, row_limit_, mask_;
    unsigned row_ = 0;               // of the last numbered operations, how many do not synchronise
    std::uint64_t next_ = 0;         // number to give
    std::uint64_t lowest_ = 0;       // the first one that is not finished
    std::uint64_t finished_ = 0;     // bit i: lowest_ + i is
    std::uint64_t synchronised_ = 0; // the last finished one that synchronises, + 1
};

} // namespace ucx_mp::glue
