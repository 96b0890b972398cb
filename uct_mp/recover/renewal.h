// Keys of memory at adapters of the peer that are there again.
//
// The holder of keys of an earlier life of a device cannot renew them, so this does. Operations with such keys wait
// until the peer has told those of now, once per region. Operations under way get the new keys.
//
// Callers: Observer before an operation with other keys, and with the peer's answers; Recoverer when rails change.
// Errors: a region that the peer has released gets keys that its adapter refuses.
// Threads: the interface's. It takes the lock for the control plane. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Renewal {
public:
    Renewal(Core& core, Members& all) : core_(core), all_(all) {}

    // True: `keys` points to keys of now. False: the peer has been asked, and the channel waits.
    bool present_keys(Channel& channel, const verbs::RemoteKeys*& keys);
    // The peer's list of rails is another one: lives of its devices may be new.
    void note_lives(Channel& channel);
    void take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told);
    void stop_asking(Channel& channel);

private:
    void ask_keys(Channel& channel, std::uint64_t region);
    void repeat_question(Channel& channel, std::uint64_t region);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
