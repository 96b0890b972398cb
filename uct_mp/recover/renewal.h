// Keys of memory at adapters of the peer that are there again.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Renewal {
public:
    Renewal(Core& core, Recoverer& all) : core_(core), all_(all) {}
    // False: the peer has been asked, the channel waits.
    bool present_keys(Channel& channel, const verbs::RemoteKeys*& keys);
    void note_lives(Channel& channel);
    void take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told);
    void stop_asking(Channel& channel);

private:
    void ask_keys(Channel& channel, std::uint64_t region);
    void repeat_question(Channel& channel, std::uint64_t region);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
