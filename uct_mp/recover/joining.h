// Paths over ports that were down when the connection was made.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Joining {
public:
    Joining(Core& core, Recoverer& all) : core_(core), all_(all) {}
    [[nodiscard]] bool is_absent(const Channel& channel, PathIndex path) const {
        return channel.wiring.paths[path].phase == Phase::absent;
    }
    void join_paths(Channel& channel);
    [[nodiscard]] bool may_join(const Channel& channel, PathIndex path, bool routed) const;
    [[nodiscard]] bool has_places(Channel& channel);
    void widen(Channel& channel);
    void join(Channel& channel, PathIndex path);
    void find_spares(Channel& channel);
    bool address_target(Channel& channel, PathIndex path);
    void tell_self(Channel& channel); // if it is one to ourselves: of our rails, as they are now

private:
    [[nodiscard]] bool wanted(const Channel& channel, PathIndex path) const;
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
