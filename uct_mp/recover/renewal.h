// Renews remote keys after an adapter of the peer has been opened again.
//
// The user holds keys of an earlier life of the device, and cannot renew them. So operations with such keys wait until
// the peer has told the present ones; it is asked once per region. Operations under way get the new keys.
//
// Callers: Observer before an operation with old keys, and with the peer's answers; Recoverer when rails change.
// Errors: a region that the peer has released gets keys that its adapter refuses.
// Threads: the interface's. Calls into the control plane take the lock. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Renewal {
public:
    Renewal(Core& core, Members& all) : core_(core), all_(all) {}

    // True: `keys` points to present keys, which the channel owns if they were renewed. False: the peer has been asked,
    // and the channel waits.
    bool present_keys(Channel& channel, const verbs::RemoteKeys*& keys);
    // The peer's list of rails has changed, and so perhaps the lives of its devices.
    void note_lives(Channel& channel);
    void take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told);

private:
    void ask_keys(Channel& channel, std::uint64_t region);
    void repeat_question(Channel& channel, std::uint64_t region);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
