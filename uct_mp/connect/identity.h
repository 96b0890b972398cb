// Our identity to our peers: uid, cookie, address, the list of our rails, and our terms. Random numbers as well.
#pragma once

#include <span>
#include <vector>

#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

[[nodiscard]] std::size_t gids(std::span<const path::RemoteRail> rails); // how many are RoCE

class Identity {
public:
    explicit Identity(Plane& plane);
    void choose(); // uid, cookie and Q_Key
    void make_address();
    [[nodiscard]] std::size_t smallest_mtu() const; // bytes; our handshakes fit into it
    void set_rail(const verbs::Rail& rail);         // its entry in `rails`

    // For messages to a peer that speaks up to `newest`.
    [[nodiscard]] std::uint8_t version_to(std::uint8_t newest) const;
    // If a rail has several DC targets a peer is told always the same, by its interface's uid.
    [[nodiscard]] std::vector<path::RemoteRail> rails_to(std::uint64_t uid) const;

    [[nodiscard]] Terms terms_for(const Connection& c) const; // ours
    void take_terms(Connection& c, const Message& m) const;   // takes the peer's
    // Kinds of paths that both sides have.
    [[nodiscard]] path::Kinds common_kinds(const Message& m) const;

    [[nodiscard]] std::uint32_t random_psn(); // 24 bits
    [[nodiscard]] std::uint64_t random_tag(); // not 0; tells nothing of others
    [[nodiscard]] std::uint32_t next_transaction();

    InterfaceAddress address;
    Names names;                          // as peers are told
    std::vector<path::RemoteRail> rails;  // ours, as the others see them
    std::uint32_t rails_number = 0;       // of this list; 0: the first one, wraps to 1
    path::TargetNumbers dct_numbers;      // mp_dc: present ones
    std::uint32_t newest_transaction = 0; // of ours; 0: none yet

private:
    [[nodiscard]] std::uint64_t random();

    Plane& plane_;
    std::size_t address_room_ = kMaxInterfaceAddress; // after it has been given away: the bytes it had
    std::uint64_t random_state_ = 0;
    std::uint64_t tags_made_ = 0; // with a seed
};

} // namespace ucx_mp::connect
