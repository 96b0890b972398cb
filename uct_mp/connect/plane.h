// The inside of a ControlPlane: shared data of its parts, and the parts themselves. Each part is a class with a header
// of its own; they find each other here. ControlPlane begins and ends them. Private to this folder.
//
// Threads: whichever holds Services::lock().
#pragma once

#include "uct_mp/connect/client.h"
#include "uct_mp/connect/connections.h"
#include "uct_mp/connect/control_plane.h"
#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/goodbye.h"
#include "uct_mp/connect/identity.h"
#include "uct_mp/connect/inbox.h"
#include "uct_mp/connect/key_messages.h"
#include "uct_mp/connect/message.h"
#include "uct_mp/connect/outbox.h"
#include "uct_mp/connect/path_messages.h"
#include "uct_mp/connect/question.h"
#include "uct_mp/connect/rail_lists.h"
#include "uct_mp/connect/server.h"
#include "uct_mp/connect/states.h"
#include "uct_mp/connect/turns.h"
#include "uct_mp/connect/wishes.h"

namespace ucx_mp::connect {

// Numbers that wrap: a is newer than b.
[[nodiscard]] constexpr bool newer(std::uint32_t a, std::uint32_t b) { return std::int32_t(a - b) > 0; }
[[nodiscard]] constexpr bool newer(std::uint16_t a, std::uint16_t b) { return std::int16_t(a - b) > 0; }
// The same for numbers of which 0 is none: any other is newer than that.
[[nodiscard]] constexpr bool is_news(std::uint32_t a, std::uint32_t known) {
    return a != 0 && (known == 0 || newer(a, known));
}
[[nodiscard]] constexpr std::uint32_t next_number(std::uint32_t n) { return n + 1 ? n + 1 : 1; }

struct Plane {
    Plane(const verbs::DeviceSet& devices_in, const ControlConfig& config_in, Services& services_in,
          const Owner& owner_in)
        : devices(devices_in), config(config_in), services(services_in), owner(owner_in) {}
    Plane(const Plane&) = delete;

    const verbs::DeviceSet& devices;
    const ControlConfig config;
    Services& services;
    const Owner owner;
    bool polling = false; // within poll(), or a turn that a timer has begun
    bool closing = false; // no handshake begins any more
    ControlCounters counters;

    Identity identity{*this};
    Outbox outbox{*this};
    Connections connections{*this};
    Inbox inbox{*this};
    States states{*this};
    Turns turns{*this};
    Client client{*this};
    Server server{*this};
    Questions questions{*this};
    RailLists rail_lists{*this};
    KeyMessages key_messages{*this};
    PathMessages path_messages{*this};
    Wishes wishes{*this};
    Goodbyes goodbyes{*this};
    Datagrams datagrams;
};

} // namespace ucx_mp::connect
