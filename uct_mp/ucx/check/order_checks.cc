// The order in which writes, reads and messages take effect at the other end.
#include "uct_mp/ucx/check/checks.h"

namespace ucx_mp::check {

void Checks::own_read(Lane& lane) {
    const char* what = "a read sees what its queue pair wrote before";
    unsigned stale = 0;
    for (unsigned round = 0; round < kRounds; ++round) {
        std::uint64_t seen = 0;
        const std::uint64_t value = ++value_;
        if (!it_.write(lane, 1, value, kReadAt, 8) || !it_.read(lane, 1, kReadAt, seen))
            return report_.failed(what, it_.trouble());
        stale += seen != value;
    }
    if (stale == 0)
        report_.line(what, Verdict::yes, "flushes over several adapters end with reads");
    else
        report_.line(what, Verdict::broken,
                     "%u of %u stale: no order over several adapters; set UCX_MP_RAILS to one adapter", stale, kRounds);
}

void Checks::last_word(Lane& lane) {
    const char* what = "the last word of a write is written last";
    unsigned torn = 0;
    for (unsigned round = 0; round < kRounds; ++round) {
        Message question;
        question.length = kLarge;
        question.value = ++value_;
        std::uint64_t whole = 0;
        if (!it_.armed(Ask::last_word, it_.index(lane), question)) return report_.failed(what, it_.trouble());
        const bool written = it_.write(lane, 1, question.value, 0, kLarge);
        if (!it_.found(whole) || !written) return report_.failed(what, it_.trouble()); // it answers in any case
        torn += whole == 0;
    }
    if (torn == 0)
        report_.line(what, Verdict::yes, "programs may poll the end of a large put (%u of 1 MiB)", kRounds);
    else
        report_.line(what, Verdict::broken,
                     "%u of %u torn: programs must not poll the end of a put, over any transport; wait for a "
                     "message or a flush",
                     torn, kRounds);
}

// Written over queue pair `a`, acknowledged; is it there when a message over `b` is?
bool Checks::told_over(Lane& written, unsigned a, Lane& told, unsigned b, bool& seen) {
    Message question;
    question.offset = kToldAt;
    question.length = 8;
    question.value = ++value_;
    std::uint64_t found = 0, settled = 0;
    if (!it_.armed(Ask::message, it_.index(told), question)) return false;
    const bool sent = it_.write(written, a, question.value, kToldAt, 8) && it_.send(told, b);
    if (!it_.found(found) || !sent) return false; // it answers in any case
    seen = found != 0;
    return it_.read(written, a, kToldAt, settled); // pushes late writes out of the way
}

void Checks::within(Lane& lane) {
    const char* what = "a message over another queue pair comes behind";
    unsigned stale = 0;
    for (unsigned round = 0; round < kRounds; ++round) {
        bool seen = false;
        if (!told_over(lane, round % kQueuePairs, lane, (round + 1 + round / kQueuePairs) % kQueuePairs, seen))
            return report_.failed(what, it_.trouble());
        stale += !seen;
    }
    if (stale == 0)
        report_.line(what, Verdict::yes, "with one adapter at the peer neither flush nor fence costs a read");
    else
        report_.line(what, Verdict::broken,
                     "%u of %u stale although acknowledged: the order within one adapter is relied on; set "
                     "UCX_MP_READ_BACK=always",
                     stale, kRounds);
}

void Checks::across(Lane& written, Lane& told) {
    const char* what = "a message over another adapter comes behind";
    unsigned stale = 0;
    for (unsigned round = 0; round < kRounds; ++round) {
        bool seen = false;
        if (!told_over(written, 1, told, 1, seen)) return report_.failed(what, it_.trouble());
        stale += !seen;
    }
    if (stale)
        report_.line(what, Verdict::no,
                     "%u of %u stale, as expected: markers and reads keep the order (%s, told over %s)", stale, kRounds,
                     name(written).c_str(), name(told).c_str());
    else
        report_.line(what, Verdict::yes,
                     "never seen late in %u rounds, not relied on: markers and reads keep the order (%s, told over %s)",
                     kRounds, name(written).c_str(), name(told).c_str());
}

} // namespace ucx_mp::check
