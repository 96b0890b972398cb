// The inside of an Interface: what its parts share, and the parts themselves.
//
// Each part is a class with a header of its own; they find each other here. Recovery is not among them: Core knows it
// as the Observer, and owns it.
//
// Maker: Interface, one each; open() follows once, and close() at the end. Errors of open() are one line.
// Threads: the interface's. "Under the lock" means Services::lock(), since the handshake's thread uses it, too.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

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
#include "uct_mp/channel/visibility.h"
#include "uct_mp/channel/works.h"
#include "uct_mp/link/adapter.h"
#include "uct_mp/link/dc_pool.h"

namespace ucx_mp::channel {

inline constexpr unsigned kHeader = sizeof(MessageHeader);
inline constexpr unsigned kMaxUserHeader = 256; // of am_zcopy, beyond Config::segment
// After the header: UCT's 8 bytes of am_short, or the user's header; at the end perhaps a fence's trailer.
inline constexpr unsigned kExtra = 64;
inline constexpr unsigned kReadBackBytes = 8; // of a read that pushes writes (Visibility)

// The work of each progress.
namespace due {
inline constexpr std::uint8_t lists = 1; // something is, or was a moment ago, in one of the parts' lists
inline constexpr std::uint8_t rings = 2; // rings are to be looked at
inline constexpr std::uint8_t turns = 4; // a round of DcTurns is under way
} // namespace due

struct Core {
    Core(const verbs::DeviceSet& devices, const Config& config, Services& services, Events& events,
         const verbs::KeyTable& keys, const AmHandler* handlers, MakeObserver make_observer);
    Core(const Core&) = delete;
    // DC: queues on a life of the rail's device. Lowers inline_bytes to what is granted.
    // no_memory: the adapter has no more queue pairs, perhaps.
    [[nodiscard]] Status make_dc_rail(const verbs::Rail& rail, const verbs::Device& device, Adapter& adapter,
                                      unsigned initiators, DcRail& out, std::string& error);
    // Peers may send by DC: every message that comes has a tag, whatever path brings it.
    [[nodiscard]] bool has_targets() const { return path::has(kinds, path::Kind::dc); }
    // Between us and others like us there are places for RC, which are taken and left.
    [[nodiscard]] bool rc_on_demand() const {
        return config.adapt.enabled() && config.transport == connect::Transport::dc;
    }
    // Our adapter says how many packets a queue pair has taken: the truth about what the peer has lost.
    [[nodiscard]] bool tells_packet_numbers(std::uint8_t device) const {
        return config.recovery.packet_numbers && !(untested >> device & 1);
    }
    // For either transport.
    [[nodiscard]] bool has_rings() const { return config.adapt.max_rings != 0 && config.recovery.enabled; }
    // Puts something into a part's list; Progress looks at the lists then.
    template <class T> void enlist(std::vector<T>& in, const std::type_identity_t<T>& what) {
        in.push_back(what);
        due |= due::lists;
    }

    // Fields that every progress reads, together: few cache lines.
    std::unique_ptr<Adapter[]> adapters;
    unsigned adapter_count = 0, recovery_steps = 0; // steps: things that happened there, in this round
    const std::uint32_t ring;           // entries of a channel's rings: config.window or more, a power of two
    bool alert = false;                 // some path is not up, or something else is to be repaired
    std::uint8_t due = 0;               // see due::
    bool kept = false;                  // something of the user's waits for him: Progress::beside
    bool timed = false;                 // completions of adapters bring timestamps, if they can
    std::atomic<bool> attention{false}; // Progress::attend() now: mail, or a handshake under way
    const AmHandler* handlers;          // Beside exchanges them for a while
    ReceiveLayout layout;
    std::unique_ptr<connect::ControlPlane> control;
    verbs::DeviceSet devices;       // their lives that this interface uses. Progress changes it, under the lock
    std::vector<verbs::Rail> rails; // of `devices`, as they are now. Progress changes it, under the lock
    const Config config;
    const path::Kinds kinds; // that our paths may have
    Services& services;
    Events& events;
    verbs::KeyTable::User keys;
    Limits limits{};
    std::uint32_t inline_bytes = 0;                    // that every queue pair grants
    std::uint32_t untested = config.recovery.untested; // devices that have not shown yet that they tell packet numbers
    BufferPool small, large;
    DcPool dc;

    Rounds rounds;

    // The parts
    Progress progress;
    Directory directory{*this};
    Placement placement{*this};
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

// The peer's packet numbers say which writes of a failed queue pair of RC were executed. Nothing says so for DC: an
// executed write may go again, and memory takes a step back if another one has come behind it.
[[nodiscard]] inline bool tells_what_was_executed(const Core& core, const Channel& channel, const Path& path) {
    if (!core.config.recovery.enabled) return true; // nothing goes again
    if (path.kind != path::Kind::rc) return false;
    return channel.self ? core.tells_packet_numbers(path.device)
                        : channel.connection.features & connect::feature::packet_numbers;
}

// For Interface only. Core itself calls none of its parts: it is where they find each other.
[[nodiscard]] Status open(Core& core, std::string& error); // behind StandIns::begin()
void close(Core& core);                                    // whatever has been opened

} // namespace ucx_mp::channel
