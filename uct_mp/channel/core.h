// The inside of an Interface: what its parts share, and the parts themselves.
//
// Each part is a class with a header of its own. The parts find each other here. Recovery is no part of this room: Core
// owns it, and knows it as the Observer.
//
// Interface makes one Core, calls open() once, and close() at the end. An error of open() is one line.
// Threads: the interface's. "Under the lock" means Services::lock(), since the handshake's thread uses such data, too.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "uct_mp/channel/acks.h"
#include "uct_mp/channel/adaptation.h"
#include "uct_mp/channel/admission.h"
#include "uct_mp/channel/atomics.h"
#include "uct_mp/channel/cancels.h"
#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/closing.h"
#include "uct_mp/channel/completions.h"
#include "uct_mp/channel/directory.h"
#include "uct_mp/channel/endings.h"
#include "uct_mp/channel/ends.h"
#include "uct_mp/channel/epochs.h"
#include "uct_mp/channel/failures.h"
#include "uct_mp/channel/halves.h"
#include "uct_mp/channel/interface.h"
#include "uct_mp/channel/mail.h"
#include "uct_mp/channel/mover.h"
#include "uct_mp/channel/observer.h"
#include "uct_mp/channel/parts.h"
#include "uct_mp/channel/peers.h"
#include "uct_mp/channel/placement.h"
#include "uct_mp/channel/progress.h"
#include "uct_mp/channel/receiver.h"
#include "uct_mp/channel/ring_choice.h"
#include "uct_mp/channel/rings.h"
#include "uct_mp/channel/rounds.h"
#include "uct_mp/channel/sender.h"
#include "uct_mp/channel/takeover.h"
#include "uct_mp/channel/terms.h"
#include "uct_mp/channel/visibility.h"
#include "uct_mp/channel/waiting.h"
#include "uct_mp/channel/works.h"
#include "uct_mp/link/adapter.h"
#include "uct_mp/link/dc_pool.h"

namespace ucx_mp::channel {

inline constexpr unsigned kHeader = sizeof(MessageHeader);
inline constexpr unsigned kMaxUserHeader = 256; // of am_zcopy, beyond Config::segment
// Room beyond a payload: UCT's 8 bytes of am_short, and perhaps a fence's trailer at the end.
inline constexpr unsigned kExtra = 64;
inline constexpr unsigned kReadBackBytes = 8; // length of a read that pushes writes (Visibility)

// Bits of Core::due: what the next progress has to do.
namespace due {
inline constexpr std::uint8_t lists = 1; // one of the parts' lists may have an entry
inline constexpr std::uint8_t rings = 2; // rings are to be polled
inline constexpr std::uint8_t turns = 4; // a round of DcTurns is under way
} // namespace due

struct Core {
    Core(const verbs::DeviceSet& devices, const Config& config, Services& services, Events& events,
         const verbs::KeyTable& keys, const AmHandler* handlers, MakeObserver make_observer);
    Core(const Core&) = delete;
    // DC: makes the rail's queues, on one life of its device. Lowers inline_bytes to what is granted.
    // no_memory: the adapter may have no more queue pairs.
    [[nodiscard]] Status make_dc_rail(const verbs::Rail& rail, const verbs::Device& device, Adapter& adapter,
                                      unsigned initiators, DcRail& out, std::string& error);
    // Peers may send by DC. If so, every message to us has a tag, over whatever path.
    [[nodiscard]] bool has_targets() const { return path::has(kinds, path::Kind::dc); }
    // Our adapter says how many packets a queue pair has taken. That tells the peer exactly which ones were lost.
    [[nodiscard]] bool tells_packet_numbers(std::uint8_t device) const {
        return config.recovery.packet_numbers && !(untested >> device & 1);
    }
    // Adds an entry to a part's list, and makes progress look at the lists.
    template <class T> void enlist(std::vector<T>& in, const std::type_identity_t<T>& what) {
        in.push_back(what);
        due |= due::lists;
    }

    // Every progress reads the first fields. They stand together, on few cache lines.
    std::unique_ptr<Adapter[]> adapters;
    unsigned adapter_count = 0, recovery_steps = 0; // steps: events of recovery that this progress counts as found
    const std::uint32_t ring;                       // entries of Wiring::retained and Channel::early: bit_ceil(window)
    bool alert = false;                             // some path is not up, or something else is to be repaired
    std::uint8_t due = 0, aside = 0;                // bits of due::, bits of aside::
    bool timed = false;                             // adapters that can are asked for timestamps of completions
    std::atomic<bool> attention{false}; // progress is to call Progress::attend(): mail, or a handshake under way
    const AmHandler* handlers;          // Beside exchanges them for a while
    ReceiveLayout layout;
    std::unique_ptr<connect::ControlPlane> control;
    verbs::DeviceSet devices;       // in the lives that this interface uses. Progress changes it, under the lock
    std::vector<verbs::Rail> rails; // of `devices`, as they are now. Progress changes it, under the lock
    const Config config;
    const path::Kinds kinds; // kinds that our paths may have
    Services& services;
    Events& events;
    verbs::KeyTable::User keys;
    Limits limits{};
    std::uint32_t inline_bytes = 0;                    // granted by every queue pair
    std::uint32_t untested = config.recovery.untested; // bit i: device i has not shown yet that it tells packet numbers
    BufferPool small, large;
    DcPool dc;

    Rounds rounds;
    Lists lists;

    Progress progress;
    Directory directory{*this};
    Placement placement{*this};
    Acks acks{*this};
    Sender sender{*this};
    Parts parts{*this};
    Receiver receiver{*this};
    Rings rings{*this};
    Completions completions{*this};
    Works works{*this};
    Mover mover{*this};
    Atomics atomics{*this};
    Epochs epochs{*this};
    Visibility visibility{*this};
    Failures failures{*this};
    Takeover takeover{*this};
    Endings endings{*this};
    Admission admission{*this};
    Cancels cancels{*this};
    Closing closing{*this};
    Adaptation adaptation{*this};
    RingChoice ring_choice{*this};
    Ends ends{*this};
    Halves halves{*this};
    Mailbox mail{attention}; // under the lock
    Peers peers{*this};
    std::unique_ptr<Observer> observer; // recovery (recover/recoverer.h)
};

// Adds the channel to one of Core::lists, unless it is there already.
inline void enlist_once(Core& core, std::vector<Channel*>& in, Channel& channel, bool& is_there) {
    if (!std::exchange(is_there, true)) core.enlist(in, &channel);
}

[[nodiscard]] inline bool has_rings(const Core& core) {
    return core.config.adapt.max_rings != 0 && core.config.recovery.enabled;
}

// Recovery is on, and the channel is connected and has not failed.
[[nodiscard]] inline bool recoverable(const Core& core, const Channel& channel) {
    return core.config.recovery.enabled && !(channel.gates & (gate::failed | gate::not_ready));
}

// True: if the path fails, it becomes known which of its writes were executed, or none of them goes again. The peer's
// packet numbers tell it for RC. Nothing tells it for DC: an executed write may go again there, and then undo a later
// one to the same memory.
[[nodiscard]] inline bool tells_what_was_executed(const Core& core, const Channel& channel, const Path& path) {
    if (!core.config.recovery.enabled) return true; // nothing goes again
    if (path.kind != path::Kind::rc) return false;
    return channel.self ? core.tells_packet_numbers(path.device)
                        : channel.connection.features & connect::feature::packet_numbers;
}

// For Interface only: Core itself calls none of its parts.
[[nodiscard]] Status open(Core& core, std::string& error); // after StandIns::begin()
void close(Core& core);                                    // also after a failed open()

} // namespace ucx_mp::channel
